//! One line of the table: what was measured, against what, and whether it is good enough.

use std::fmt;

use serde::Serialize;

use crate::stats::{median, median_ratio, percentile};

/// What a number counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Unit {
    /// Milliseconds.
    #[serde(rename = "ms")]
    Milliseconds,
    /// Megabytes, 10^6 bytes.
    #[serde(rename = "MB")]
    Megabytes,
    /// Events a second.
    #[serde(rename = "1/s")]
    PerSecond,
    /// Things.
    #[serde(rename = "count")]
    Count,
}

impl Unit {
    fn name(self) -> &'static str {
        match self {
            Unit::Milliseconds => "ms",
            Unit::Megabytes => "MB",
            Unit::PerSecond => "/s",
            Unit::Count => "",
        }
    }
}

/// What is good enough.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Goal {
    /// At most so many times the floor of the same run.
    RatioMax(f64),
    /// At most so much. It depends on the machine and on what else runs there.
    Max(f64),
    /// At least so much; depends on the machine as well.
    Min(f64),
    /// At most so many; depends on nothing but our code.
    CountMax(f64),
    /// None: the row explains another.
    Told,
}

impl Goal {
    /// Whether it can be judged by a few rounds on a busy machine.
    fn is_hard(self) -> bool {
        match self {
            Goal::CountMax(_) => true,
            Goal::RatioMax(_) | Goal::Max(_) | Goal::Min(_) | Goal::Told => false,
        }
    }
}

/// What became of a goal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Reached.
    Met,
    /// Not reached.
    Missed,
    /// There is no goal, or this run can't judge it.
    NotJudged,
}

impl Verdict {
    fn name(self) -> &'static str {
        match self {
            Verdict::Met => "met",
            Verdict::Missed => "MISSED",
            Verdict::NotJudged => "-",
        }
    }
}

/// One line of the table.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// What was measured, in words.
    pub what: String,
    /// What the numbers count.
    pub unit: Unit,
    /// Ours.
    pub ours: f64,
    /// The bare floor of the same run.
    pub floor: Option<f64>,
    /// The median of ours / floor, round by round.
    pub ratio: Option<f64>,
    /// What is good enough.
    pub goal: Goal,
    /// How many samples of ours there are.
    pub samples: usize,
}

impl Row {
    /// Medians of ours and of the floor, and of their ratios round by round.
    pub fn paired(what: &str, unit: Unit, ours: &[f64], floors: &[f64], goal: Goal) -> Row {
        Row {
            what: what.to_owned(),
            unit,
            ours: median(ours),
            floor: Some(median(floors)),
            ratio: Some(median_ratio(ours, floors)),
            goal,
            samples: ours.len(),
        }
    }

    /// A percentile of ours.
    pub fn percentile(what: &str, unit: Unit, ours: &[f64], percent: usize, goal: Goal) -> Row {
        Row {
            what: format!("{what}, p{percent}"),
            unit,
            ours: percentile(ours, percent),
            floor: None,
            ratio: None,
            goal,
            samples: ours.len(),
        }
    }

    /// One number.
    pub fn single(what: &str, unit: Unit, ours: f64, goal: Goal) -> Row {
        Row {
            what: what.to_owned(),
            unit,
            ours,
            floor: None,
            ratio: None,
            goal,
            samples: 1,
        }
    }

    /// The same with a floor.
    #[must_use]
    pub fn with_floor(mut self, floor: f64) -> Row {
        self.floor = Some(floor);
        self.ratio = (floor > 0.0).then(|| self.ours / floor);
        self
    }

    /// What became of the goal; a quick run judges only what depends on nothing but our code.
    pub fn verdict(&self, quick: bool) -> Verdict {
        if quick && !self.goal.is_hard() {
            return Verdict::NotJudged;
        }
        let met = match self.goal {
            Goal::RatioMax(most) => self.ratio.is_some_and(|ratio| ratio <= most),
            Goal::Max(most) | Goal::CountMax(most) => self.ours <= most,
            Goal::Min(least) => self.ours >= least,
            Goal::Told => return Verdict::NotJudged,
        };
        if met { Verdict::Met } else { Verdict::Missed }
    }

    fn goal_text(&self) -> String {
        let unit = self.unit.name();
        match self.goal {
            Goal::RatioMax(most) => format!("<= {} x", Short(most)),
            Goal::Max(most) | Goal::CountMax(most) => format!("<= {} {unit}", Short(most)),
            Goal::Min(least) => format!(">= {} {unit}", Short(least)),
            Goal::Told => String::new(),
        }
    }

    /// The cells of its line.
    fn cells(&self, quick: bool) -> [String; 6] {
        let unit = self.unit.name();
        let number = |value: f64| format!("{} {unit}", Short(value)).trim_end().to_owned();
        [
            self.what.clone(),
            number(self.ours),
            self.floor.map(number).unwrap_or_default(),
            self.ratio
                .map(|ratio| format!("{} x", Short(ratio)))
                .unwrap_or_default(),
            self.goal_text().trim_end().to_owned(),
            self.verdict(quick).name().to_owned(),
        ]
    }
}

/// A number with about three digits.
struct Short(f64);

impl fmt::Display for Short {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.0;
        if value.fract() == 0.0 || value.abs() >= 100.0 {
            write!(f, "{value:.0}")
        } else if value.abs() >= 10.0 {
            write!(f, "{value:.1}")
        } else {
            write!(f, "{value:.2}")
        }
    }
}

/// The head of the table.
const HEAD: [&str; 6] = ["figure", "ours", "floor", "ratio", "goal", "verdict"];

/// The whole table as text, numbers to the right.
pub fn table(rows: &[Row], quick: bool) -> String {
    let mut lines = vec![HEAD.map(str::to_owned)];
    lines.extend(rows.iter().map(|row| row.cells(quick)));
    let width = |column: usize| {
        let lengths = lines.iter().map(|line| line[column].chars().count());
        lengths.max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..HEAD.len()).map(width).collect();
    let mut text = String::new();
    for line in &lines {
        let mut out = format!("{:<width$}", line[0], width = widths[0]);
        for (cell, width) in line.iter().zip(&widths).skip(1) {
            out.push_str(&format!("  {cell:>width$}"));
        }
        text.push_str(out.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(goal: Goal, ours: f64, ratio: Option<f64>) -> Row {
        Row {
            ratio,
            ..Row::single("x", Unit::Milliseconds, ours, goal)
        }
    }

    #[test]
    fn a_goal_is_met_at_its_bound_and_missed_past_it() {
        let cases = [
            (row(Goal::RatioMax(3.0), 9.0, Some(3.0)), Verdict::Met),
            (row(Goal::RatioMax(3.0), 1.0, Some(3.01)), Verdict::Missed),
            // Without a floor there is nothing to be better than.
            (row(Goal::RatioMax(3.0), 1.0, None), Verdict::Missed),
            (row(Goal::Max(5.0), 5.0, None), Verdict::Met),
            (row(Goal::Max(5.0), 5.1, Some(1.0)), Verdict::Missed),
            (row(Goal::Min(5.0), 5.0, None), Verdict::Met),
            (row(Goal::Min(5.0), 4.9, None), Verdict::Missed),
            (row(Goal::CountMax(2.0), 2.0, None), Verdict::Met),
            (row(Goal::CountMax(2.0), 3.0, None), Verdict::Missed),
            (row(Goal::Told, 1.0, None), Verdict::NotJudged),
        ];
        for (row, verdict) in cases {
            assert_eq!(row.verdict(false), verdict, "{row:?}");
            let quick = match row.goal {
                Goal::CountMax(_) => verdict,
                _ => Verdict::NotJudged,
            };
            assert_eq!(row.verdict(true), quick, "{row:?}");
        }
    }

    #[test]
    fn the_table_shows_numbers_with_about_three_digits() {
        let rows = [
            Row::paired(
                "first request",
                Unit::Milliseconds,
                &[4.0, 4.5],
                &[1.5, 1.25],
                Goal::RatioMax(3.0),
            ),
            Row::single("threads", Unit::Count, 2.0, Goal::CountMax(2.0)),
            Row::single("events", Unit::PerSecond, 12345.6, Goal::Min(10_000.0)),
        ];
        let expected = "\
figure             ours    floor   ratio         goal  verdict
first request   4.25 ms  1.38 ms  3.13 x       <= 3 x   MISSED
threads               2                          <= 2      met
events         12346 /s                   >= 10000 /s      met
";
        assert_eq!(table(&rows, false), expected);
    }
}
