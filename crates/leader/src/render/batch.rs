//! A batch for people: its items as they run and end, and what it came to.

use protocol::manifest::{ItemStatus, Manifest, ManifestItem};
use protocol::result::AgentStatus;

use crate::render::line::{counted, duration};
use crate::render::style::{Style, Tone};
use crate::render::width::{columns, cut, pad, plain};

/// Items without success that are shown at the end; the rest is counted.
const BAD_SHOWN_MAX: usize = 20;
/// Columns of a status word.
const WORD_COLUMNS: usize = 11;
/// Columns of an id in a live line.
const ID_COLUMNS_MAX: usize = 20;

/// How many items stand where.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// All of them.
    pub all: usize,
    /// Completed.
    pub done: usize,
    /// Ended otherwise, or refused.
    pub failed: usize,
    /// Not run for good.
    pub skipped: usize,
    /// With an agent that works.
    pub running: usize,
    /// With an agent that waits for a slot, or with none yet.
    pub queued: usize,
}

impl Totals {
    /// Counts the records; `queued_agents` of the agents that have not ended wait for a slot.
    pub fn of(records: &[ManifestItem], queued_agents: usize) -> Totals {
        let mut totals = Totals {
            all: records.len(),
            ..Totals::default()
        };
        for record in records {
            match record.status {
                ItemStatus::Pending => totals.queued += 1,
                ItemStatus::Accepted => totals.running += 1,
                ItemStatus::Completed => totals.done += 1,
                ItemStatus::Skipped => totals.skipped += 1,
                ItemStatus::Failed
                | ItemStatus::TimedOut
                | ItemStatus::Terminated
                | ItemStatus::Interrupted
                | ItemStatus::Unkillable
                | ItemStatus::Refused => totals.failed += 1,
            }
        }
        let queued = queued_agents.min(totals.running);
        totals.running -= queued;
        totals.queued += queued;
        totals
    }

    /// Items that are settled.
    pub fn settled(&self) -> usize {
        self.done + self.failed + self.skipped
    }
}

/// `17/100 · 15 done · 1 failed · 1 skipped · 5 running · 78 queued · 2m05s`.
pub fn totals_line(totals: &Totals, seconds: u64) -> String {
    let mut text = format!(
        "{}/{} · {} done · {} failed",
        totals.settled(),
        totals.all,
        totals.done,
        totals.failed
    );
    if totals.skipped > 0 {
        text.push_str(&format!(" · {} skipped", totals.skipped));
    }
    text.push_str(&format!(
        " · {} running · {} queued · {}",
        totals.running,
        totals.queued,
        duration(seconds)
    ));
    text
}

/// One running item in at most `width` columns: id, agent, time, time left, what it does.
pub fn running_line(id: &str, agent: &AgentStatus, width: usize) -> String {
    let mut parts = vec![format!(
        "{} {} {}",
        cut(&plain(id), ID_COLUMNS_MAX),
        agent.status,
        duration(agent.runtime_seconds)
    )];
    if let Some(left) = agent.deadline_in_seconds {
        parts.push(format!("{} left", duration(left)));
    }
    let action = plain(&agent.last_action);
    if !action.is_empty() {
        parts.push(action);
    }
    cut(&parts.join(" · "), width)
}

/// One settled item on one line, in at most `width` columns.
pub fn settled_line(record: &ManifestItem, style: Style, width: usize) -> String {
    let word = record.status.as_str();
    let mut text = format!(" {}", plain(&record.id));
    if let Some(agent_id) = record.agent_id {
        text.push_str(&format!(" (agent {agent_id}"));
        if let Some(stats) = &record.stats {
            text.push_str(&format!(
                ", {}, {}",
                duration(stats.runtime_seconds),
                counted(stats.turns, "turn")
            ));
        }
        text.push(')');
    }
    let why = reason(record);
    if !why.is_empty() {
        text.push_str(&format!(": {why}"));
    }
    let room = width.saturating_sub(WORD_COLUMNS);
    format!(
        "{}{}",
        style.paint(tone(record.status), &pad(word, WORD_COLUMNS)),
        cut(&text, room)
    )
}

/// Why an item did not succeed, or what it reports.
fn reason(record: &ManifestItem) -> String {
    let told = match (&record.error, record.success) {
        (Some(error), false) => error.message.as_str(),
        (Some(_) | None, _) => record.result_summary.as_str(),
    };
    let first = plain(told.lines().next().unwrap_or_default());
    match &record.stop_reason {
        Some(reason) if record.status != ItemStatus::Skipped => {
            let gap = if first.is_empty() { "" } else { ", " };
            format!("{reason}{gap}{first}")
        }
        Some(_) | None => first,
    }
}

fn tone(status: ItemStatus) -> Tone {
    match status {
        ItemStatus::Completed => Tone::Good,
        ItemStatus::Failed
        | ItemStatus::TimedOut
        | ItemStatus::Interrupted
        | ItemStatus::Unkillable
        | ItemStatus::Refused => Tone::Bad,
        ItemStatus::Terminated => Tone::Odd,
        ItemStatus::Skipped | ItemStatus::Pending => Tone::Faint,
        ItemStatus::Accepted => Tone::Strong,
    }
}

/// What a batch came to: totals, and every item without success.
pub fn batch_text(manifest: &Manifest, seconds: u64, style: Style, width: usize) -> String {
    let totals = Totals::of(&manifest.items, 0);
    let mut counts = vec![format!("{} completed", totals.done)];
    for (count, word) in [
        (totals.failed, "without success"),
        (totals.skipped, "skipped"),
        (totals.running + totals.queued, "not ended"),
    ] {
        if count > 0 {
            counts.push(format!("{count} {word}"));
        }
    }
    let all = counted(totals.all as u64, "item");
    let mut text = format!(
        "batch of {all}: {} ({})\n",
        counts.join(", "),
        duration(seconds)
    );
    let bad: Vec<&ManifestItem> = manifest
        .items
        .iter()
        .filter(|item| item.status != ItemStatus::Completed)
        .collect();
    for item in bad.iter().take(BAD_SHOWN_MAX) {
        text.push_str(&settled_line(item, style, width));
        text.push('\n');
        if let Some(dir) = item
            .deliverables_dir
            .as_deref()
            .filter(|_| !item.files.is_empty())
        {
            text.push_str(&format!(
                "{}partial files in {}\n",
                " ".repeat(columns("  ")),
                plain(dir)
            ));
        }
    }
    if bad.len() > BAD_SHOWN_MAX {
        text.push_str(&format!("and {} more\n", bad.len() - BAD_SHOWN_MAX));
    }
    text.push_str(&format!("conversation: {}\n", manifest.conversation));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::line::sample_status;
    use protocol::error::{ErrorCode, ToolError};
    use protocol::ids::{AgentId, ConversationId};
    use protocol::manifest::MANIFEST_FORMAT;
    use protocol::stats::Stats;

    fn record(id: &str, status: ItemStatus) -> ManifestItem {
        ManifestItem {
            status,
            success: status == ItemStatus::Completed,
            agent_id: AgentId::new(3).ok(),
            stats: Some(Stats {
                runtime_seconds: 65,
                turns: 2,
                ..Stats::default()
            }),
            result_summary: "Wrote it.\nAll of it.".to_owned(),
            ..ManifestItem::pending(id, "", Vec::new(), "s")
        }
    }

    #[test]
    fn totals_tell_who_waits_for_a_slot() {
        let records = [
            record("a", ItemStatus::Completed),
            record("b", ItemStatus::TimedOut),
            record("c", ItemStatus::Skipped),
            record("d", ItemStatus::Accepted),
            record("e", ItemStatus::Accepted),
            record("f", ItemStatus::Pending),
        ];
        let totals = Totals::of(&records, 1);
        assert_eq!(
            totals_line(&totals, 125),
            "3/6 · 1 done · 1 failed · 1 skipped · 1 running · 2 queued · 2m05s"
        );
        assert_eq!(
            totals_line(&Totals::default(), 0),
            "0/0 · 0 done · 0 failed · 0 running · 0 queued · 0s"
        );
    }

    #[test]
    fn lines_fit_and_hold_nothing_that_a_terminal_acts_on() {
        let agent = sample_status();
        assert_eq!(
            running_line("parse\x1b[2J", &agent, 200),
            "parse\u{FFFD}[2J running 1m05s · 8m55s left · 正在读取 src/api/routes.py"
        );
        let failed = ManifestItem {
            stop_reason: Some("no_finish".to_owned()),
            error: Some(ToolError::new(ErrorCode::AgentFailed, "it stopped\x07")),
            ..record("parse", ItemStatus::Failed)
        };
        assert_eq!(
            settled_line(&failed, Style::Plain, 200),
            "failed      parse (agent 3, 1m05s, 2 turns): no_finish, it stopped\u{FFFD}"
        );
        assert_eq!(
            settled_line(&record("a", ItemStatus::Completed), Style::Plain, 200),
            "completed   a (agent 3, 1m05s, 2 turns): Wrote it."
        );
        for width in 12..80 {
            assert!(columns(&settled_line(&failed, Style::Plain, width)) <= width);
            assert!(columns(&running_line("parse", &agent, width)) <= width);
        }
    }

    #[test]
    fn the_end_names_every_item_without_success() {
        let mut items = vec![record("good", ItemStatus::Completed)];
        items.extend(
            (0..BAD_SHOWN_MAX + 2).map(|n| record(&format!("bad{n}"), ItemStatus::TimedOut)),
        );
        let manifest = Manifest {
            format: MANIFEST_FORMAT,
            conversation: ConversationId::new("conv_00000001").unwrap(),
            earlier_conversations: Vec::new(),
            started_at: String::new(),
            ended_at: None,
            success: None,
            exit_code: None,
            items,
            other: serde_json::Map::new(),
        };
        let text = batch_text(&manifest, 61, Style::Plain, 80);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[0],
            "batch of 23 items: 1 completed, 22 without success (1m01s)"
        );
        assert_eq!(
            lines[1],
            "timed_out   bad0 (agent 3, 1m05s, 2 turns): Wrote it."
        );
        assert_eq!(lines[21..], ["and 2 more", "conversation: conv_00000001"]);
    }
}
