//! The doctor's report, for people.

use crate::faces::doctor::report::{
    ConfinementReport, ModelReport, Problem, ProgramReport, Reached, Report, Verdict,
    WorkspaceReport,
};
use crate::render::confinement::{confinement_text, gaps};
use crate::render::style::{Style, Tone};
use crate::render::width::{pad, plain, plain_lines};

/// Columns of the names on the left.
const NAME_COLUMNS: usize = 12;

/// The whole report: what there is, what is odd, what is wrong, and what it comes to.
pub fn report_text(report: &Report, style: Style) -> String {
    let mut page = Page {
        text: String::new(),
        style,
    };
    page.line(
        "leader",
        &format!("{} on Linux {}", report.version, report.kernel),
    );
    page.line("workspace", &workspace(&report.workspace));
    for program in &report.programs {
        page.line(program.name, &executable(program));
    }
    page.line("model", &model(&report.model));
    if report.model.key.is_some() {
        page.more(&reached(&report.model.reached));
    }
    page.config(report);
    page.confinement(&report.confinement);
    for warning in report.config.warnings.iter().chain(&report.warnings) {
        page.mark(Tone::Odd, "warning:", warning);
    }
    for problem in report.problems() {
        page.problem(problem);
    }
    let (tone, words) = match report.verdict() {
        Verdict::Ready => (Tone::Good, "agents can run here"),
        Verdict::NotReady => (Tone::Bad, "agents can't run here yet"),
        Verdict::RequireNotMet => (Tone::Bad, "agents are not held by what is required"),
    };
    page.text.push('\n');
    let words = page.style.paint(tone, words);
    page.text.push_str(&format!("{words}\n"));
    page.text
}

struct Page {
    text: String,
    style: Style,
}

impl Page {
    fn line(&mut self, name: &str, value: &str) {
        let name = self.style.paint(Tone::Strong, &pad(name, NAME_COLUMNS));
        self.text.push_str(&format!("{name} {value}\n"));
    }

    /// A line below the last one.
    fn more(&mut self, value: &str) {
        let indent = " ".repeat(NAME_COLUMNS);
        self.text.push_str(&format!("{indent} {value}\n"));
    }

    fn mark(&mut self, tone: Tone, mark: &str, text: &str) {
        let mark = self.style.paint(tone, mark);
        self.text
            .push_str(&format!("{mark} {}\n", plain_lines(text)));
    }

    fn problem(&mut self, problem: &Problem) {
        self.mark(Tone::Bad, "error:", &problem.message);
        if !problem.hint.is_empty() {
            self.text
                .push_str(&format!("hint: {}\n", plain_lines(&problem.hint)));
        }
    }

    fn config(&mut self, report: &Report) {
        let files: Vec<String> = report
            .config
            .files
            .iter()
            .map(|file| match file.present {
                true => plain(&file.path.display().to_string()),
                false => format!("{} (not there)", plain(&file.path.display().to_string())),
            })
            .collect();
        self.line("config", &files.join(", "));
        for (key, source) in &report.config.values {
            self.more(&format!("{}  # {}", plain(key), plain(source)));
        }
    }

    fn confinement(&mut self, report: &ConfinementReport) {
        let Some(enforced) = &report.enforced else {
            self.line("confinement", "not known");
            return;
        };
        // The report's own types always become JSON.
        let value = serde_json::to_value(enforced).unwrap_or_default();
        self.line("confinement", &confinement_text(&value));
        if report.required != "none" {
            self.more(&format!("required: {}", report.required));
        }
        if report.highest != "cgroup2" {
            self.more(&format!(
                "nothing above {} is tried (confinement.highest)",
                report.highest
            ));
        }
        for gap in gaps(&value) {
            self.more(&format!("gap: {gap}"));
        }
        for obstacle in &report.obstacles {
            let reason = plain(&obstacle.reason);
            self.more(&format!("for {}: {reason}", obstacle.rung));
            self.more(&format!("  try: {}", plain(&obstacle.remedy)));
        }
    }
}

fn workspace(report: &WorkspaceReport) -> String {
    let path = plain(&report.path.display().to_string());
    match report.free_bytes {
        Some(bytes) => format!("{path} ({} free)", room(bytes)),
        None => path,
    }
}

fn executable(report: &ProgramReport) -> String {
    let path = plain(&report.path.display().to_string());
    match (&report.version, &report.problem) {
        (Some(version), _) => format!("{path} ({})", plain(version)),
        (None, None) => format!("{path} (does not tell its version)"),
        (None, Some(_)) => format!("{path} (can't be used)"),
    }
}

fn model(report: &ModelReport) -> String {
    let (Some(key), Some(provider), Some(model)) = (&report.key, &report.provider, &report.model)
    else {
        return "none".to_owned();
    };
    let mut text = format!("{}: {} {}", plain(key), plain(provider), plain(model));
    if let Some(server) = &report.server {
        text.push_str(&format!(" at {}", plain(server)));
    }
    if let Some(variable) = &report.key_variable {
        text.push_str(&format!(", key in {}", plain(variable)));
    }
    text
}

/// From here on an answer to a tiny question counts as slow, in milliseconds.
const SLOW_MS: u64 = 5_000;

fn reached(reached: &Reached) -> String {
    match reached {
        Reached::NotAsked { why } => format!("not asked: {}", plain(why)),
        Reached::Answered { took_ms } => {
            let slow = if *took_ms >= SLOW_MS { ", slow" } else { "" };
            format!("answers after {}{slow}", seconds(*took_ms))
        }
        Reached::Failed { took_ms } => format!("does not answer ({})", seconds(*took_ms)),
    }
}

fn seconds(ms: u64) -> String {
    format!("{}.{} s", ms / 1_000, ms % 1_000 / 100)
}

/// Bytes in the largest unit of which there is at least one.
fn room(bytes: u64) -> String {
    const UNITS: [(&str, u32); 3] = [("TiB", 40), ("GiB", 30), ("MiB", 20)];
    let fits = UNITS.into_iter().find(|(_, bits)| bytes >> bits > 0);
    match fits {
        Some((unit, bits)) => {
            let tenths = (u128::from(bytes) * 10) >> bits;
            format!("{}.{} {unit}", tenths / 10, tenths % 10)
        }
        None => format!("{} KiB", bytes >> 10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faces::doctor::report::{sample_problem, sample_report};

    #[test]
    fn a_machine_that_is_fit_is_shown_whole() {
        assert_eq!(
            report_text(&sample_report(), Style::Plain),
            "\
leader       0.1.0 on Linux 6.12.1
workspace    /w (3.0 GiB free)
worker       /bin/worker (worker 0.1.0)
jail         /bin/jail (jail 0.1.0)
model        m: openai big at http://127.0.0.1:1/v1, key in MY_KEY
             answers after 0.4 s
config       /h/muster.toml, /w/muster.toml (not there)
             language  # MUSTER_LANGUAGE
confinement  pidns: kill complete, processes tree, memory none, network full, files workspace
             gap: a gap of pidns
             for cgroup2: no cgroup2
               try: allow cgroup2

agents can run here
"
        );
    }

    #[test]
    fn each_thing_in_the_way_is_told_with_what_to_try() {
        let mut report = sample_report();
        report.config.warnings = vec!["odd file".to_owned()];
        report.warnings = vec!["little room".to_owned()];
        report.programs[0].version = None;
        report.programs[0].problem = Some(sample_problem("worker"));
        report.programs[1].version = None;
        report.model.model = None;
        report.model.problem = Some(sample_problem("model"));
        report.confinement.enforced = None;
        let text = report_text(&report, Style::Plain);
        let tail = text.split("model        ").nth(1).unwrap();
        assert!(text.contains("worker       /bin/worker (can't be used)\n"));
        assert!(text.contains("jail         /bin/jail (does not tell its version)\n"));
        assert_eq!(
            tail,
            "none\n             answers after 0.4 s\n\
             config       /h/muster.toml, /w/muster.toml (not there)\n             \
             language  # MUSTER_LANGUAGE\n\
             confinement  not known\n\
             warning: odd file\n\
             warning: little room\n\
             error: worker\nhint: mend worker\n\
             error: model\nhint: mend model\n\
             \nagents can't run here yet\n"
        );
    }

    #[test]
    fn a_required_rung_that_is_not_met_is_the_last_word() {
        let mut report = sample_report();
        report.confinement.required = "cgroup2".to_owned();
        report.confinement.highest = "pidns".to_owned();
        report.confinement.shortfall = Some(sample_problem("rung"));
        let text = report_text(&report, Style::Plain);
        assert!(text.contains("             required: cgroup2\n"), "{text}");
        assert!(
            text.contains("             nothing above pidns is tried (confinement.highest)\n"),
            "{text}"
        );
        assert!(
            text.ends_with(
                "error: rung\nhint: mend rung\n\nagents are not held by what is required\n"
            ),
            "{text}"
        );
    }

    #[test]
    fn a_model_is_told_as_it_was_reached() {
        for (found, text) in [
            (Reached::Answered { took_ms: 4_999 }, "answers after 4.9 s"),
            (
                Reached::Answered { took_ms: 5_000 },
                "answers after 5.0 s, slow",
            ),
            (Reached::Failed { took_ms: 12 }, "does not answer (0.0 s)"),
            (
                Reached::NotAsked {
                    why: "--no-model".to_owned(),
                },
                "not asked: --no-model",
            ),
        ] {
            assert_eq!(reached(&found), text);
        }
    }

    #[test]
    fn room_is_told_in_the_largest_unit_that_fits() {
        for (bytes, text) in [
            (0, "0 KiB"),
            ((1 << 20) - 1, "1023 KiB"),
            (1 << 20, "1.0 MiB"),
            ((3 << 30) + (1 << 29), "3.5 GiB"),
            (u64::MAX, "16777215.9 TiB"),
        ] {
            assert_eq!(room(bytes), text);
        }
    }
}
