//! Agents in tables and one by one.

use protocol::ids::ConversationId;
use protocol::result::AgentStatus;
use protocol::status::Status;

use crate::render::confinement::{confinement_text, gaps};
use crate::render::line::{counted, duration};
use crate::render::style::{Style, Tone};
use crate::render::width::{columns, cut, pad, plain, plain_lines};

/// Columns of a summary in a table.
const SUMMARY_COLUMNS_MAX: usize = 40;
/// Columns of a name in a table.
const NAME_COLUMNS_MAX: usize = 30;
/// Columns of what an agent does, in a table.
const ACTION_COLUMNS_MAX: usize = 50;
/// Columns that are left of an action, a summary or a name where the terminal is narrow.
const NARROW_COLUMNS: usize = 12;

/// One run with its agents, as `ps` shows it.
#[derive(Debug, Clone, PartialEq)]
pub struct RunView {
    /// Which.
    pub conversation: ConversationId,
    /// Whether its leader runs, or what is known of its end.
    pub state: RunState,
    /// Its agents, first to last.
    pub agents: Vec<AgentStatus>,
}

/// Where a run stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunState {
    /// Its leader runs and answers.
    Live,
    /// Its leader runs and does not answer.
    Silent(String),
    /// It has ended.
    Ended,
    /// It has ended, and its files can't be read.
    Unreadable(String),
}

impl RunState {
    /// The word for it.
    pub fn word(&self) -> &'static str {
        match self {
            RunState::Live => "live",
            RunState::Silent(_) => "silent",
            RunState::Ended => "ended",
            RunState::Unreadable(_) => "unreadable",
        }
    }

    /// What else is known.
    pub fn detail(&self) -> Option<&str> {
        match self {
            RunState::Silent(why) | RunState::Unreadable(why) => Some(why),
            RunState::Live | RunState::Ended => None,
        }
    }
}

/// Runs as tables, one each, in at most `width` columns as far as that can be.
pub fn runs_text(runs: &[RunView], style: Style, width: Option<usize>) -> String {
    if runs.is_empty() {
        return "no runs in this workspace\n".to_owned();
    }
    let tables: Vec<String> = runs.iter().map(|run| run_text(run, style, width)).collect();
    tables.join("\n")
}

fn run_text(run: &RunView, style: Style, width: Option<usize>) -> String {
    let mut text = format!(
        "{} {}\n",
        style.paint(Tone::Strong, run.conversation.as_str()),
        run.state.word()
    );
    if let Some(detail) = run.state.detail() {
        text.push_str(&format!("  {}\n", plain(detail)));
    }
    if run.agents.is_empty() {
        if run.state.detail().is_none() {
            text.push_str("  no agents\n");
        }
        return text;
    }
    let mut rows =
        vec![["N", "NAME", "STATUS", "TIME", "TOKENS", "SUMMARY", "LAST"].map(Cell::head)];
    rows.extend(run.agents.iter().map(row));
    text.push_str(&table(&rows, style, width.unwrap_or(usize::MAX)));
    text
}

/// One entry of a table.
struct Cell {
    text: String,
    tone: Option<Tone>,
}

impl Cell {
    fn head(text: &str) -> Cell {
        Cell {
            text: text.to_owned(),
            tone: Some(Tone::Faint),
        }
    }

    fn plain(text: String) -> Cell {
        Cell { text, tone: None }
    }
}

fn row(agent: &AgentStatus) -> [Cell; 7] {
    let last = match (agent.stop_reason, agent.status.is_end()) {
        (Some(reason), true) => reason.as_str().to_owned(),
        (None, true) => String::new(),
        (_, false) => plain(&agent.last_action),
    };
    [
        Cell::plain(agent.agent_id.to_string()),
        Cell::plain(cut(&plain(&agent.display_name), NAME_COLUMNS_MAX)),
        Cell {
            text: agent.status.to_string(),
            tone: Some(Tone::of(agent.status)),
        },
        Cell::plain(duration(agent.runtime_seconds)),
        Cell::plain(agent.token_usage.total.to_string()),
        Cell::plain(cut(&plain(&agent.summary), SUMMARY_COLUMNS_MAX)),
        Cell::plain(cut(&last, ACTION_COLUMNS_MAX)),
    ]
}

/// Rows with their columns under each other; the last column is not filled up. The last two
/// columns and the names are cut where the rows would be wider than `width`.
fn table<const N: usize>(rows: &[[Cell; N]], style: Style, width: usize) -> String {
    let mut widths: [usize; N] = std::array::from_fn(|column| {
        let cells = rows.iter().map(|row| columns(&row[column].text));
        cells.max().unwrap_or(0)
    });
    // What is said most freely gives way first.
    for column in [N - 1, N - 2, 1] {
        // A space at the beginning, and one before each column.
        let taken = 1 + N + widths.iter().sum::<usize>();
        let spare = widths[column].saturating_sub(NARROW_COLUMNS);
        widths[column] -= taken.saturating_sub(width).min(spare);
    }
    let mut text = String::new();
    for row in rows {
        let mut line = String::from(" ");
        for (column, cell) in row.iter().enumerate() {
            let text = cut(&cell.text, widths[column]);
            let padded = match column + 1 == N {
                true => text,
                false => pad(&text, widths[column]),
            };
            let painted = match cell.tone {
                Some(tone) => style.paint(tone, &padded),
                None => padded,
            };
            line.push_str(&format!(" {painted}"));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// One agent, line by line.
pub fn status_text(conversation: &ConversationId, agent: &AgentStatus, style: Style) -> String {
    let mut text = format!(
        "{} {}: {}\n",
        style.paint(Tone::of(agent.status), agent.status.as_str()),
        plain(&agent.display_name),
        plain(&agent.summary)
    );
    let mut line = |name: &str, value: String| {
        if !value.is_empty() {
            text.push_str(&format!("{} {value}\n", pad(&format!("{name}:"), 14)));
        }
    };
    let counts = [
        counted(agent.files_read, "file") + " read",
        match agent.searches {
            1 => "1 search".to_owned(),
            count => format!("{count} searches"),
        },
        counted(agent.web_pages, "web page"),
        counted(agent.commands, "command"),
    ];
    let usage = agent.token_usage;
    line("agent", format!("{}/{}", conversation, agent.agent_id));
    line("task_id", agent.task_id.to_string());
    line(
        "role",
        agent
            .role_id
            .as_ref()
            .map(ToString::to_string)
            .unwrap_or_default(),
    );
    line(
        "reason",
        agent
            .stop_reason
            .map(|reason| reason.to_string())
            .unwrap_or_default(),
    );
    line("queue", position(agent));
    line("time", time(agent));
    line("work", counts.join(", "));
    line(
        "tokens",
        format!(
            "{} ({} in, {} out)",
            usage.total, usage.prompt, usage.completion
        ),
    );
    line("does", plain(&agent.last_action));
    line("deliverables", plain(&agent.deliverables_dir));
    let held = match confinement_text(&agent.confinement) {
        text if text.is_empty() => agent.rung.clone().unwrap_or_default(),
        text => text,
    };
    line("confinement", held);
    for gap in gaps(&agent.confinement) {
        line("gap", gap);
    }
    line(
        "can't kill",
        agent
            .unkillable
            .as_ref()
            .map(ToString::to_string)
            .unwrap_or_default(),
    );
    let output = plain_lines(agent.last_output.trim());
    if !output.is_empty() {
        text.push_str("last output:\n");
        for shown in output.lines() {
            text.push_str(&format!("  {shown}\n"));
        }
    }
    text
}

fn position(agent: &AgentStatus) -> String {
    match (agent.status, agent.queue_position) {
        (Status::Queued, Some(position)) => format!("position {position}"),
        _ => String::new(),
    }
}

fn time(agent: &AgentStatus) -> String {
    let spent = duration(agent.runtime_seconds);
    match agent.deadline_in_seconds {
        Some(left) => format!("{spent}, {} left", duration(left)),
        None => spent,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::line::sample_status;
    use protocol::ids::AgentId;
    use protocol::status::StopReason;

    fn conversation() -> ConversationId {
        ConversationId::new("conv_0190a6e0-0000").unwrap()
    }

    #[test]
    fn columns_stand_under_each_other_whatever_the_script() {
        let ended = AgentStatus {
            agent_id: AgentId::new(12).unwrap(),
            display_name: "UI Operator_12".to_owned(),
            status: Status::Failed,
            stop_reason: Some(StopReason::WorkerCrashed),
            summary: "x".repeat(50),
            ..sample_status()
        };
        let run = RunView {
            conversation: conversation(),
            state: RunState::Live,
            agents: vec![sample_status(), ended],
        };
        assert_eq!(
            runs_text(std::slice::from_ref(&run), Style::Plain, None),
            format!(
                "conv_0190a6e0-0000 live\n  \
                 N  NAME           STATUS  TIME  TOKENS SUMMARY{pad} LAST\n  \
                 1  子智能体1      running 1m05s 15     生成API文档{pad2} 正在读取 src/api/routes.py\n  \
                 12 UI Operator_12 failed  1m05s 15     {long}… worker_crashed\n",
                pad = " ".repeat(33),
                pad2 = " ".repeat(29),
                long = "x".repeat(39),
            )
        );
        assert_eq!(
            runs_text(&[run], Style::Plain, Some(72)),
            format!(
                "conv_0190a6e0-0000 live\n  \
                 N  NAME           STATUS  TIME  TOKENS SUMMARY{pad} LAST\n  \
                 1  子智能体1      running 1m05s 15     生成API文档{pad2} 正在读取 sr…\n  \
                 12 UI Operator_12 failed  1m05s 15     {long}… worker_cras…\n",
                pad = " ".repeat(11),
                pad2 = " ".repeat(7),
                long = "x".repeat(17),
            )
        );
    }

    #[test]
    fn runs_without_agents_say_why() {
        let run = |state| RunView {
            conversation: conversation(),
            state,
            agents: Vec::new(),
        };
        assert_eq!(
            runs_text(&[], Style::Plain, None),
            "no runs in this workspace\n"
        );
        assert_eq!(
            runs_text(
                &[
                    run(RunState::Ended),
                    run(RunState::Silent("no answer within 2 s".to_owned()))
                ],
                Style::Plain,
                None
            ),
            "conv_0190a6e0-0000 ended\n  no agents\n\n\
             conv_0190a6e0-0000 silent\n  no answer within 2 s\n"
        );
    }

    #[test]
    fn one_agent_is_shown_whole() {
        let agent = AgentStatus {
            last_output: "line 1\nline 2\n".to_owned(),
            confinement: serde_json::json!({
                "rung": "group", "kill": "group", "gaps": ["setsid escapes"],
                "asked": {"rung": "pidns"},
            }),
            ..sample_status()
        };
        assert_eq!(
            status_text(&conversation(), &agent, Style::Plain),
            "running 子智能体1: 生成API文档\n\
             agent:         conv_0190a6e0-0000/1\n\
             task_id:       sub_0190a6e0-0000-7000-8000-000000000001\n\
             time:          1m05s, 8m55s left\n\
             work:          2 files read, 1 search, 0 web pages, 3 commands\n\
             tokens:        15 (10 in, 5 out)\n\
             does:          正在读取 src/api/routes.py\n\
             deliverables:  docs/api\n\
             confinement:   group (asked: pidns): kill group\n\
             gap:           setsid escapes\n\
             last output:\n  line 1\n  line 2\n"
        );
    }
}
