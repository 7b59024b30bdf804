//! The one line that shows what runs, and the durations in it.

use protocol::result::AgentStatus;
use protocol::status::Status;

use crate::render::width::{cut, plain};

/// A duration as people read it: `7s`, `2m05s`, `1h02m`.
pub fn duration(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h{:02}m", seconds / 3600, seconds % 3600 / 60),
    }
}

/// `1 file`, `2 files`.
pub fn counted(count: u64, noun: &str) -> String {
    match count {
        1 => format!("1 {noun}"),
        _ => format!("{count} {noun}s"),
    }
}

/// One agent's live line, in at most `width` columns.
pub fn live_line(agent: &AgentStatus, width: usize) -> String {
    let mut parts = vec![format!(
        "{} {} {}",
        plain(&agent.display_name),
        agent.status,
        duration(agent.runtime_seconds)
    )];
    if agent.status == Status::Queued
        && let Some(position) = agent.queue_position
    {
        parts.push(format!("position {position}"));
    }
    if let Some(left) = agent.deadline_in_seconds.filter(|left| *left <= 60) {
        parts.push(format!("{} left", duration(left)));
    }
    if agent.token_usage.total > 0 {
        parts.push(format!("{} tokens", agent.token_usage.total));
    }
    let action = plain(&agent.last_action);
    if !action.is_empty() {
        parts.push(action);
    }
    cut(&parts.join(" · "), width)
}

#[cfg(test)]
pub(crate) fn sample_status() -> AgentStatus {
    use protocol::ids::{AgentId, TaskId};
    use protocol::stats::TokenUsage;

    AgentStatus {
        agent_id: AgentId::FIRST,
        role_id: None,
        task_id: TaskId::new("sub_0190a6e0-0000-7000-8000-000000000001").unwrap(),
        display_name: "子智能体1".to_owned(),
        summary: "生成API文档".to_owned(),
        status: Status::Running,
        runtime_seconds: 65,
        files_read: 2,
        searches: 1,
        web_pages: 0,
        commands: 3,
        last_action: "正在读取 src/api/routes.py".to_owned(),
        last_output: String::new(),
        token_usage: TokenUsage {
            prompt: 10,
            completion: 5,
            total: 15,
            cached: 0,
        },
        deadline_in_seconds: Some(535),
        queue_position: None,
        deliverables_dir: "docs/api".to_owned(),
        stop_reason: None,
        rung: Some("pidns".to_owned()),
        confinement: serde_json::Value::Null,
        unkillable: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::width::columns;

    #[test]
    fn durations_read_like_a_clock() {
        for (seconds, text) in [
            (0, "0s"),
            (59, "59s"),
            (60, "1m00s"),
            (125, "2m05s"),
            (3599, "59m59s"),
            (3600, "1h00m"),
            (90_061, "25h01m"),
        ] {
            assert_eq!(duration(seconds), text);
        }
        assert_eq!(counted(1, "file"), "1 file");
        assert_eq!(counted(0, "file"), "0 files");
    }

    #[test]
    fn a_live_line_fits_and_warns_of_the_end() {
        let mut agent = sample_status();
        assert_eq!(
            live_line(&agent, 200),
            "子智能体1 running 1m05s · 15 tokens · 正在读取 src/api/routes.py"
        );
        for width in 0..60 {
            assert!(columns(&live_line(&agent, width)) <= width);
        }
        agent.deadline_in_seconds = Some(9);
        agent.last_action = "a\x1b[31mb".to_owned();
        assert_eq!(
            live_line(&agent, 200),
            "子智能体1 running 1m05s · 9s left · 15 tokens · a\u{FFFD}[31mb"
        );
    }

    #[test]
    fn a_queued_agent_shows_its_place() {
        let agent = AgentStatus {
            status: Status::Queued,
            runtime_seconds: 0,
            queue_position: Some(2),
            last_action: String::new(),
            token_usage: Default::default(),
            ..sample_status()
        };
        assert_eq!(live_line(&agent, 80), "子智能体1 queued 0s · position 2");
    }
}
