//! How a command ended, and what a model is told of it.

use std::fmt::Write as _;
use std::time::Duration;

use nix::sys::signal::Signal;
use protocol::text::BackgroundState;

use super::remark::remarks;
use crate::tools::output::Captured;

/// A command that has ended, with everything of it that its holder reaches.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) how: HowEnded,
    pub(crate) leftover: Leftover,
    pub(crate) output: Captured,
}

/// What the shell came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HowEnded {
    /// It ended by itself.
    Exited { code: i32 },
    /// It died of a signal that was not ours.
    Killed { signal: i32 },
    /// It was ended.
    TimedOut {
        after: Duration,
        survived_term: bool,
    },
    /// It was told to stop before its time.
    Stopped,
}

/// What was still there when the shell had ended by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leftover {
    /// Nothing.
    None,
    /// Processes that it had started, which were ended.
    Ended,
    /// Something that its holder does not reach and that still holds the output.
    OutOfReach,
}

/// How a background command stands that has ended.
pub(crate) fn state(how: HowEnded) -> BackgroundState {
    match how {
        HowEnded::Exited { code: 0 } => BackgroundState::Completed,
        HowEnded::Exited { .. } | HowEnded::Killed { .. } => BackgroundState::Error,
        HowEnded::TimedOut { .. } => BackgroundState::Timeout,
        HowEnded::Stopped => BackgroundState::Stopped,
    }
}

/// The result for the model: how it ended, remarks, then the output.
pub(crate) fn tell(ended: &Ended) -> String {
    let mut told = headline(ended);
    match ended.leftover {
        Leftover::None => {}
        Leftover::Ended => told.push_str(
            "\n[note: a background process was left and ended; a command's processes do not \
             outlive it]",
        ),
        Leftover::OutOfReach => told.push_str(
            "\n[note: a background process left the command's process group and still holds its \
             output; it could not be ended with the command]",
        ),
    }
    for remark in remarks(&ended.output.text) {
        // Writing to a String does not fail.
        let _: std::fmt::Result = write!(told, "\n[note: {remark}]");
    }
    if ended.output.text.is_empty() {
        told.push_str("\n[no output]");
    } else {
        told.push('\n');
        told.push_str(&ended.output.text);
    }
    told
}

fn headline(ended: &Ended) -> String {
    let how = match ended.how {
        HowEnded::Exited { code: 0 } => "exit code 0".to_owned(),
        HowEnded::Exited { code } => format!("failed: exit code {code}"),
        HowEnded::Killed { signal } => format!("failed: killed by {}", signal_name(signal)),
        HowEnded::TimedOut {
            after,
            survived_term,
        } => format!(
            "failed: timed out (timeout of {} s); the command and its processes were ended{}",
            seconds(after),
            if survived_term {
                " with SIGKILL, since SIGTERM was not obeyed in time"
            } else {
                " with SIGTERM"
            }
        ),
        HowEnded::Stopped => "stopped; the command and its processes were ended".to_owned(),
    };
    let output = &ended.output;
    let mut size = format!("{} bytes of output", output.raw_bytes);
    if output.left_out_bytes > 0 {
        // Writing to a String does not fail.
        let _: std::fmt::Result = write!(
            size,
            ", {} of them left out in the middle",
            output.left_out_bytes
        );
    }
    // Nothing here may differ between two runs that went alike, such as how long they took: the
    // loop tells by equal results that an agent is going round in circles.
    format!("[{how}; {size}]")
}

fn seconds(duration: Duration) -> String {
    let tenths = (duration.as_millis() + 50) / 100;
    if tenths.is_multiple_of(10) {
        (tenths / 10).to_string()
    } else {
        format!("{}.{}", tenths / 10, tenths % 10)
    }
}

fn signal_name(number: i32) -> String {
    match Signal::try_from(number) {
        Ok(signal) => format!("{} (signal {number})", signal.as_str()),
        Err(_) => format!("signal {number}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(how: HowEnded, text: &str) -> Ended {
        Ended {
            how,
            leftover: Leftover::None,
            output: Captured {
                text: text.to_owned(),
                raw_bytes: 12,
                left_out_bytes: 0,
            },
        }
    }

    #[test]
    fn an_end_is_told_in_one_line_before_the_output() {
        let timed_out = |survived_term| HowEnded::TimedOut {
            after: Duration::from_secs(3),
            survived_term,
        };
        let table = [
            (HowEnded::Exited { code: 0 }, "exit code 0"),
            (HowEnded::Exited { code: 137 }, "failed: exit code 137"),
            (
                HowEnded::Killed { signal: 9 },
                "failed: killed by SIGKILL (signal 9)",
            ),
            (
                HowEnded::Killed { signal: 40 },
                "failed: killed by signal 40",
            ),
            (
                timed_out(false),
                "failed: timed out (timeout of 3 s); the command and its processes were ended \
                 with SIGTERM",
            ),
            (
                HowEnded::Stopped,
                "stopped; the command and its processes were ended",
            ),
            (
                timed_out(true),
                "failed: timed out (timeout of 3 s); the command and its processes were ended \
                 with SIGKILL, since SIGTERM was not obeyed in time",
            ),
        ];
        for (how, words) in table {
            assert_eq!(
                tell(&ended(how, "text\n")),
                format!("[{words}; 12 bytes of output]\ntext\n")
            );
        }
    }

    #[test]
    fn only_an_exit_code_of_0_is_completed() {
        let after = Duration::from_secs(1);
        for (how, wanted) in [
            (HowEnded::Exited { code: 0 }, BackgroundState::Completed),
            (HowEnded::Exited { code: 1 }, BackgroundState::Error),
            (HowEnded::Killed { signal: 9 }, BackgroundState::Error),
            (
                HowEnded::TimedOut {
                    after,
                    survived_term: false,
                },
                BackgroundState::Timeout,
            ),
            (HowEnded::Stopped, BackgroundState::Stopped),
        ] {
            assert_eq!(state(how), wanted, "{how:?}");
        }
    }

    #[test]
    fn what_is_odd_is_noted() {
        let mut ended = ended(HowEnded::Exited { code: 1 }, "");
        ended.leftover = Leftover::Ended;
        ended.output.left_out_bytes = 5;
        assert_eq!(
            tell(&ended),
            "[failed: exit code 1; 12 bytes of output, 5 of them left out in the middle]\n\
             [note: a background process was left and ended; a command's processes do not outlive \
             it]\n[no output]"
        );
    }
}
