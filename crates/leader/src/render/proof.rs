//! A proof, for people.

use crate::faces::doctor::prove::attempts::Attempts;
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
        for attempts in &rung.attempts {
            text.push_str(&format!("  {}\n", writes_text(attempts, style)));
            text.push_str(&format!("  {}\n", network_text(attempts, style)));
        }
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
    let breaches = match proof.breaches() {
        0 => style.paint(Tone::Good, "all attempts were held"),
        1 => style.paint(Tone::Bad, "1 attempt succeeded that must not"),
        many => style.paint(
            Tone::Bad,
            &format!("{many} attempts succeeded that must not"),
        ),
    };
    text.push_str(&format!("{sum}, {leaks}, {breaches} ({seconds:.1} s)\n"));
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

fn writes_text(attempts: &Attempts, style: Style) -> String {
    let tried = format!(
        "write = {}: {} outside, into what is protected and into what is others', held by {}",
        attempts.write,
        counted(attempts.writes as u64, "attempt"),
        plain(&attempts.filesystem),
    );
    let broken = match attempts.broken.as_slice() {
        [] => "0 changed what it keeps".to_owned(),
        broken => style.paint(Tone::Bad, &format!("changed: {}", names(broken))),
    };
    match attempts.open.as_slice() {
        [] => format!("{tried}: {broken}"),
        open => format!("{tried}: {broken}; it does not keep {}", names(open)),
    }
}

fn names(names: &[String]) -> String {
    plain(&names.join(", "))
}

fn network_text(attempts: &Attempts, style: Style) -> String {
    let tried = format!(
        "network = {}: {} of commands to this machine, which reach {}",
        attempts.network,
        counted(attempts.ways as u64, "way"),
        plain(&attempts.commands_network),
    );
    let came = counted(attempts.connections as u64, "connection");
    match attempts.escapes() {
        0 => format!("{tried}: {came}"),
        _ => format!("{tried}: {}", style.paint(Tone::Bad, &came)),
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
  write = workspace: 19 attempts outside, into what is protected and into what is others', held by workspace: 0 changed what it keeps; it does not keep area/new
  network = model: 4 ways of commands to this machine, which reach loopback: 0 connections
nothing survived, no key was found, all attempts were held (1.2 s)
"
        );
        let failed = proof_text(&sample_proof(2), Style::Plain);
        assert!(
            failed.ends_with(
                "\n2 processes survived, no key was found, all attempts were held (1.2 s)\n"
            ),
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
            leaky.contains(
                "31 files: found 0 in a command's environment, 3 in /proc/*/environ, 0 in \
                 /proc/*/cmdline, in 1 file\n"
            ) && leaky.contains("\nnothing survived, a key was found 4 times, all"),
            "{leaky}"
        );
        let mut open = sample_proof(0);
        open.rungs[0].attempts[0].broken = vec![".git/config".to_owned()];
        open.rungs[0].attempts[0].connections = 1;
        let open = proof_text(&open, Style::Plain);
        assert!(
            open.contains("held by workspace: changed: .git/config; it does not keep area/new\n")
                && open.contains("which reach loopback: 1 connection\n")
                && open.contains("no key was found, 2 attempts succeeded that must not (1.2 s)"),
            "{open}"
        );
    }
}
