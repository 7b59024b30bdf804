//! A proof, for people.

use crate::faces::doctor::prove::proof::{Ending, Proof, Round};
use crate::faces::doctor::prove::secrets::Found;
use crate::render::confinement::{confinement_text, gaps};
use crate::render::line::counted;
use crate::render::style::{Style, Tone};
use crate::render::width::plain;

/// By rung what each kill left, and the sum of it.
pub fn proof_text(proof: &Proof, style: Style) -> String {
    let mut text = String::new();
    for rung in &proof.rungs {
        let held = match confinement_text(&rung.confinement) {
            text if text.is_empty() => plain(&rung.rung),
            text => text,
        };
        text.push_str(&format!("{}\n", style.paint(Tone::Strong, &held)));
        for gap in gaps(&rung.confinement) {
            text.push_str(&format!("  gap: {gap}\n"));
        }
        for round in &rung.rounds {
            text.push_str(&format!("  {}\n", round_text(round, style)));
        }
        text.push_str(&format!("  {}\n", key_text(&rung.key, style)));
    }
    let seconds = proof.took.as_secs_f64();
    let sum = match proof.survivors() {
        0 => style.paint(Tone::Good, "nothing survived"),
        1 => style.paint(Tone::Bad, "1 process survived"),
        many => style.paint(Tone::Bad, &format!("{many} processes survived")),
    };
    let leaks = match proof.leaks() {
        0 => style.paint(Tone::Good, "no key was found"),
        leaks => style.paint(Tone::Bad, &format!("a key was found {leaks} times")),
    };
    text.push_str(&format!("{sum}, {leaks} ({seconds:.1} s)\n"));
    text
}

fn round_text(round: &Round, style: Style) -> String {
    let ending = match round.ending {
        Ending::Terminated => "agent terminated, no grace",
        Ending::LeaderKilled => "leader killed with SIGKILL",
    };
    let left = match round.empty_ms {
        Some(ms) => format!("0 survivors, empty after {ms:.1} ms"),
        None => style.paint(Tone::Bad, &counted(round.survivors as u64, "survivor")),
    };
    format!(
        "{ending}: {} escaping processes of {}, {left}",
        round.processes,
        counted(round.agents as u64, "agent")
    )
}

fn key_text(key: &Found, style: Style) -> String {
    let looked = format!(
        "key of the model, looked for by {} in environments and command lines, and in {}",
        counted(key.looks as u64, "command"),
        counted(key.files_looked_at as u64, "file"),
    );
    match key.times() {
        0 => format!("{looked}: found 0 times"),
        _ => {
            let found = format!(
                "found {} in a command's environment, {} in /proc/*/environ, {} in /proc/*/cmdline, \
                 in {}",
                key.environment,
                key.environ,
                key.cmdline,
                counted(key.files as u64, "file"),
            );
            format!("{looked}: {}", style.paint(Tone::Bad, &found))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faces::doctor::prove::proof::sample_proof;

    #[test]
    fn survivors_rung_and_times_are_told() {
        assert_eq!(
            proof_text(&sample_proof(0), Style::Plain),
            "\
pidns: kill complete
  gap: a gap
  agent terminated, no grace: 4 escaping processes of 1 agent, 0 survivors, empty after 5.0 ms
  leader killed with SIGKILL: 12 escaping processes of 3 agents, 0 survivors, empty after 2.1 ms
  key of the model, looked for by 4 commands in environments and command lines, and in 31 files: found 0 times
nothing survived, no key was found (1.2 s)
"
        );
        let failed = proof_text(&sample_proof(2), Style::Plain);
        assert!(
            failed.ends_with("found 0 times\n2 processes survived, no key was found (1.2 s)\n"),
            "{failed}"
        );
        let one = proof_text(&sample_proof(1), Style::Plain);
        assert!(
            one.contains("3 agents, 1 survivor\n") && one.contains("\n1 process survived, "),
            "{one}"
        );
        let mut leaky = sample_proof(0);
        leaky.rungs[0].key.environ = 3;
        leaky.rungs[0].key.files = 1;
        let leaky = proof_text(&leaky, Style::Plain);
        assert!(
            leaky.ends_with(
                "31 files: found 0 in a command's environment, 3 in /proc/*/environ, 0 in \
                 /proc/*/cmdline, in 1 file\nnothing survived, a key was found 4 times (1.2 s)\n"
            ),
            "{leaky}"
        );
    }
}
