//! The story of the demo, for somebody who sees the product for the first time. No line of it is
//! longer than 80 columns but for the paths of a kept workspace.

use std::path::{Path, PathBuf};

use protocol::result::{AgentResult, AgentStatus};

use crate::faces::demo::pulse::Fate;
use crate::faces::demo::script::{NOTES, Role};
use crate::faces::demo::truth::Seen;
use crate::render::style::{Style, Tone};
use crate::render::width::{cut, pad, plain, plain_lines};

/// Columns of the summaries in the list of agents.
const SUMMARY_COLUMNS: usize = 24;

/// A delivered file that is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// Whose it is.
    pub role: Role,
    /// Relative to the workspace.
    pub path: PathBuf,
    /// Its beginning.
    pub text: String,
}

/// The first chapters, up to the start of the agents.
pub fn beginning(style: Style) -> String {
    let mut text = chapter(style, 1, "A temporary workspace with two notes in it:");
    for (name, content) in NOTES {
        text.push_str(&format!("   {name}\n{}", indented(content)));
    }
    text.push_str(&format!(
        "\n{}",
        chapter(
            style,
            2,
            "Three sub-agents start at once. Each is a process of its own, under a\n   \
             deadline and OS limits. Their model is a script, so that this needs no\n   \
             network: what it says is fixed, everything else is real.",
        )
    ));
    for role in Role::ALL {
        text.push_str(&format!(
            "   agent {}  {} {}\n",
            role.number(),
            pad(role.summary(), SUMMARY_COLUMNS),
            role.intent()
        ));
    }
    text.push_str(&format!(
        "\n{}",
        chapter(style, 3, "They end, each for itself:")
    ));
    text
}

/// One end, as it comes.
pub fn end_line(result: &AgentResult, after_ms: u64, style: Style) -> String {
    let status = style.paint(Tone::of(result.status), result.status.as_str());
    let reason = result
        .stop_reason
        .map_or(String::new(), |reason| format!(" ({reason})"));
    format!(
        "   after {:>4}  agent {}  {status}{reason}\n",
        seconds(after_ms),
        result.agent_id
    )
}

/// All live agents on one line.
pub fn team_line(agents: &[AgentStatus], width: usize) -> String {
    let parts: Vec<String> = agents
        .iter()
        .filter(|agent| !agent.status.is_end())
        .map(|agent| match plain(&agent.last_action) {
            action if action.is_empty() => format!("agent {} {}", agent.agent_id, agent.status),
            action => format!("agent {} {action}", agent.agent_id),
        })
        .collect();
    cut(&parts.join(" · "), width)
}

/// The chapters about what was seen of each agent.
pub fn ending(seen: &Seen, shown: &[Shown], style: Style) -> String {
    let mut text = String::new();
    for (role, number) in Role::ALL.into_iter().zip(4..) {
        let words = match role {
            Role::Collects => {
                "Agent 1 searched the notes, wrote a script, ran it and edited what came\n   \
                 of it. It delivered"
            }
            Role::Dawdles => {
                "Agent 2 was in the middle of a long command when its time was over. It\n   \
                 was ended with all its processes, and what it had is kept:"
            }
            Role::LeavesOne => {
                "Agent 3 reported success and left a process behind that had cut itself\n   \
                 loose (setsid). Such processes fill machines with orphans. This one held\n   \
                 a pipe open for as long as it lived, and the kernel says:"
            }
        };
        if let Some(untruth) = seen.untruth(role) {
            let words = format!("It went otherwise: {}.", plain(&untruth));
            text.push_str(&format!("\n{}", chapter(style, number, &words)));
            continue;
        }
        text.push_str(&format!("\n{}", chapter(style, number, words)));
        for file in shown.iter().filter(|file| file.role == role) {
            let path = plain(&file.path.display().to_string());
            text.push_str(&format!("   {path}\n{}", indented(&file.text)));
        }
        if role == Role::LeavesOne {
            text.push_str(&fate_text(seen, style));
        }
    }
    text
}

fn fate_text(seen: &Seen, style: Style) -> String {
    let rung = plain(seen.rung());
    let (tone, words, why) = match seen.fate {
        Fate::DiedWithItsAgent => (
            Tone::Good,
            "nobody holds it any more: that process is dead.",
            format!("(It was held by the rung `{rung}`; `leader doctor` says more of it.)"),
        ),
        Fate::EndedByTheDemo => (
            Tone::Odd,
            "somebody still holds it: that process outlived its agent.",
            format!(
                "(The rung `{rung}` can't hold what leaves its group; `leader doctor` names the\n   \
                 line that brings a better one. The demo has told the process to end, and\n   \
                 it has.)"
            ),
        ),
        Fate::StillThere => (
            Tone::Bad,
            "somebody still holds it, and does not end when told to.",
            format!("(The rung was `{rung}`. The process ends by itself within a minute.)"),
        ),
        Fate::NeverUp => (
            Tone::Bad,
            "nobody ever held it, so that nothing is shown.",
            format!("(The rung was `{rung}`.)"),
        ),
    };
    format!("   {}\n   {why}\n", style.paint(tone, words))
}

/// Whether the story came true, and what can be looked at now. `leader` is how this executable is
/// called.
pub fn look_next(
    untruths: &[String],
    took_ms: u64,
    leader: &str,
    kept: Option<&Path>,
    style: Style,
) -> String {
    let mut text = String::from("\n");
    if untruths.is_empty() {
        let words = format!("All of it came true, in {}.", seconds(took_ms));
        text.push_str(&format!("{}\n", style.paint(Tone::Good, &words)));
    } else {
        let words = style.paint(Tone::Bad, "The story did not come true:");
        text.push_str(&format!("{words}\n"));
        for untruth in untruths {
            text.push_str(&format!("  {}\n", plain_lines(untruth)));
        }
    }
    let leader = plain(leader);
    match kept {
        None => text.push_str(&format!(
            "Everything of the demo is removed again. To look at it:\n  {leader} demo --keep\n"
        )),
        Some(path) => {
            let path = plain(&path.display().to_string());
            text.push_str(&format!(
                "\nKept: {path}\nWhere to look next:\n\
                 \x20 {leader} -C {path} ps\n\
                 \x20 {leader} -C {path} logs 1\n\
                 \x20 {leader} -C {path} status 2\n\
                 \x20 cat {path}/sub_agent_results/agent_2/.subagent/conversations.json\n"
            ));
        }
    }
    text
}

fn chapter(style: Style, number: u32, text: &str) -> String {
    let head = style.paint(Tone::Strong, &format!("{number}."));
    format!("{head} {text}\n")
}

fn indented(text: &str) -> String {
    plain_lines(text)
        .lines()
        .map(|line| format!("{}\n", format!("      {line}").trim_end()))
        .collect()
}

fn seconds(ms: u64) -> String {
    format!("{}.{} s", ms / 1_000, ms % 1_000 / 100)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faces::demo::truth::test_kit::seen;
    use crate::render::line::sample_status;
    use crate::render::width::columns;

    fn whole(rung: &str) -> String {
        let story = seen(rung);
        let shown = [Shown {
            role: Role::Collects,
            path: "sub_agent_results/agent_1/todo.md".into(),
            text: "- monday: \u{1b}[2Jcall Ada\n".to_owned(),
        }];
        let mut text = beginning(Style::Plain);
        for result in &story.results {
            text.push_str(&end_line(result, 5_043, Style::Plain));
        }
        text.push_str(&ending(&story, &shown, Style::Plain));
        text.push_str(&look_next(
            &story.untruths(),
            6_299,
            "leader",
            None,
            Style::Plain,
        ));
        text
    }

    #[test]
    fn the_story_fits_into_80_columns_and_tells_each_rung_as_it_is() {
        for rung in ["pidns", "group"] {
            let text = whole(rung);
            for line in text.lines() {
                assert!(columns(line) <= 80, "{line}");
            }
            assert!(!text.contains('\u{1b}'), "{text:?}");
            for number in 1..=6 {
                assert!(text.contains(&format!("{number}. ")), "{number}: {text}");
            }
            assert!(
                text.contains("   after 5.0 s  agent 2  timed_out (deadline)\n"),
                "{text}"
            );
            assert!(text.contains("All of it came true, in 6.2 s.\n"), "{text}");
            let dead = text.contains("that process is dead");
            let outlived = text.contains("outlived its agent");
            assert_eq!((dead, outlived), (rung == "pidns", rung == "group"));
        }
    }

    #[test]
    fn a_part_that_went_otherwise_is_not_told_as_if_it_had_come_true() {
        let mut story = seen("pidns");
        story.results[0].deliverables_files.clear();
        let text = ending(&story, &[], Style::Plain);
        assert!(
            text.starts_with(
                "\n4. It went otherwise: agent 1 did not deliver todo.md.\n\n5. Agent 2"
            ),
            "{text}"
        );
    }

    #[test]
    fn what_did_not_come_true_is_listed_and_a_kept_workspace_has_its_commands() {
        let untruths = ["agent 1 has no end".to_owned()];
        let text = look_next(
            &untruths,
            1,
            "bin/leader",
            Some(Path::new("/t")),
            Style::Plain,
        );
        assert_eq!(
            text,
            "\nThe story did not come true:\n  agent 1 has no end\n\nKept: /t\n\
             Where to look next:\n  bin/leader -C /t ps\n  bin/leader -C /t logs 1\n  \
             bin/leader -C /t status 2\n  \
             cat /t/sub_agent_results/agent_2/.subagent/conversations.json\n"
        );
    }

    #[test]
    fn the_live_line_has_every_agent_that_still_works() {
        let mut quiet = sample_status();
        quiet.last_action = String::new();
        let line = team_line(&[sample_status(), quiet.clone()], 200);
        let first = format!("agent 1 {}", plain(&sample_status().last_action));
        assert_eq!(line, format!("{first} · agent 1 {}", quiet.status));
        assert!(columns(&team_line(&[sample_status(), quiet], 20)) <= 20);
    }
}
