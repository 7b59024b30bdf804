//! Whether and when a failed try is made again. A pure decision; the driver waits.

use std::time::Duration;

use jiff::Timestamp;
use protocol::limits;

use super::fault::{Fault, Mend};

/// The retries of one call so far, by what made them needed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Retries {
    all: u32,
    silent: u32,
    late_cuts: u32,
    bad_replies: u32,
    unreadable: u32,
}

impl Retries {
    /// How often the question is to be asked in another way: with another seed.
    pub(crate) fn variation(self) -> u32 {
        self.unreadable
    }
}

/// What to do after a failed try.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Try again after the pause.
    Again {
        /// Shorter than what is left of the deadline.
        pause: Duration,
        /// The retries, this one included.
        retries: Retries,
    },
    /// It is final.
    GiveUp {
        /// Why no further try is made, to be added to the fault; empty where a retry could not
        /// help in the first place.
        why: String,
    },
}

/// Decides after a fault. `left` is what the agent has until its deadline, `chance` a number from
/// 0 up to but not including 1: the pause is spread over its whole range, so that agents which
/// failed together do not come again together.
pub(crate) fn decide(fault: &Fault, retries: Retries, left: Duration, chance: f64) -> Decision {
    let mut next = retries;
    next.all += 1;
    let (count, most) = match fault.mend {
        Mend::Never => return GIVE_UP_AT_ONCE,
        Mend::Again => (next.all, limits::MODEL_RETRIES_MAX),
        Mend::Silent => {
            next.silent += 1;
            (next.silent, limits::MODEL_STALL_RETRIES_MAX)
        }
        Mend::LateCut => {
            next.late_cuts += 1;
            (next.late_cuts, limits::MODEL_LATE_CUT_RETRIES_MAX)
        }
        Mend::BadReply => {
            next.bad_replies += 1;
            (next.bad_replies, limits::MODEL_BAD_REPLY_RETRIES_MAX)
        }
        Mend::Unreadable => {
            next.unreadable += 1;
            (next.unreadable, limits::MODEL_UNREADABLE_RETRIES_MAX)
        }
    };
    if count > most || next.all > limits::MODEL_RETRIES_MAX {
        return Decision::GiveUp {
            why: format!("given up after {} tries", next.all),
        };
    }
    let pause = match fault.wish {
        Some(wish) => wish.saturating_add(backoff(0, chance)),
        None => backoff(retries.all, chance),
    };
    if pause >= left {
        return Decision::GiveUp {
            why: format!(
                "not tried again: the next try would be in {:.1} s, and the agent has {:.1} s left",
                pause.as_secs_f64(),
                left.as_secs_f64()
            ),
        };
    }
    Decision::Again {
        pause,
        retries: next,
    }
}

const GIVE_UP_AT_ONCE: Decision = Decision::GiveUp { why: String::new() };

/// Up to the base for the first retry, up to twice as much for each further one.
fn backoff(retries: u32, chance: f64) -> Duration {
    let doubled = limits::MODEL_BACKOFF_MS_BASE.saturating_mul(1 << retries.min(20));
    let most = Duration::from_millis(doubled.min(limits::MODEL_BACKOFF_MS_MAX));
    most.mul_f64(chance.clamp(0.0, 1.0))
}

/// The pause that a server asks for: `retry-after-ms`, else `retry-after` in seconds or as a
/// date. What can't be read is no wish; a date that has passed is a wish for no pause.
pub(crate) fn wish(
    retry_after_ms: Option<&str>,
    retry_after: Option<&str>,
    now: Timestamp,
) -> Option<Duration> {
    let milliseconds = retry_after_ms.and_then(|text| seconds(text, 1_000.0));
    milliseconds.or_else(|| {
        let text = retry_after?;
        seconds(text, 1.0).or_else(|| until(text, now))
    })
}

fn seconds(text: &str, per_second: f64) -> Option<Duration> {
    let number: f64 = text.trim().parse().ok()?;
    Duration::try_from_secs_f64(number / per_second).ok()
}

fn until(text: &str, now: Timestamp) -> Option<Duration> {
    let at = jiff::fmt::rfc2822::DateTimeParser::new()
        .parse_timestamp(text.trim())
        .ok()?;
    Some(Duration::try_from(at.duration_since(now)).unwrap_or(Duration::ZERO))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ModelErrorKind;
    use proptest::prelude::*;

    const HOUR: Duration = Duration::from_secs(3_600);

    fn fault(mend: Mend, wish: Option<u64>) -> Fault {
        Fault {
            wish: wish.map(Duration::from_millis),
            ..Fault::new(ModelErrorKind::Server, mend, "x")
        }
    }

    /// The greatest pauses that a row of faults leads to, and why it ended.
    fn run(mends: &[Mend]) -> (Vec<u64>, String) {
        let mut retries = Retries::default();
        let mut pauses = Vec::new();
        for mend in mends {
            match decide(&fault(*mend, None), retries, HOUR, 1.0) {
                Decision::Again {
                    pause,
                    retries: next,
                } => {
                    pauses.push(u64::try_from(pause.as_millis()).unwrap());
                    retries = next;
                }
                Decision::GiveUp { why } => return (pauses, why),
            }
        }
        (pauses, "goes on".to_owned())
    }

    #[test]
    fn each_kind_of_fault_has_its_own_bound() {
        for (mends, pauses, why) in [
            (vec![Mend::Never], vec![], ""),
            (
                vec![Mend::Again; 9],
                vec![500, 1_000, 2_000, 4_000, 8_000],
                "given up after 6 tries",
            ),
            (
                vec![Mend::Silent; 9],
                vec![500, 1_000],
                "given up after 3 tries",
            ),
            (vec![Mend::LateCut; 9], vec![500], "given up after 2 tries"),
            (
                vec![Mend::BadReply; 9],
                vec![500, 1_000],
                "given up after 3 tries",
            ),
            (
                vec![Mend::Unreadable; 9],
                vec![500, 1_000],
                "given up after 3 tries",
            ),
            (
                vec![Mend::Silent, Mend::LateCut, Mend::Again, Mend::LateCut],
                vec![500, 1_000, 2_000],
                "given up after 4 tries",
            ),
            (
                vec![
                    Mend::Silent,
                    Mend::LateCut,
                    Mend::BadReply,
                    Mend::Silent,
                    Mend::BadReply,
                    Mend::Again,
                ],
                vec![500, 1_000, 2_000, 4_000, 8_000],
                "given up after 6 tries",
            ),
            (vec![Mend::Again, Mend::Never], vec![500], ""),
        ] {
            assert_eq!(run(&mends), (pauses, why.to_owned()), "{mends:?}");
        }
    }

    #[test]
    fn a_wish_of_the_server_is_obeyed_inside_the_deadline_only() {
        let after = |wish, left_ms, chance| {
            decide(
                &fault(Mend::Again, wish),
                Retries::default(),
                Duration::from_millis(left_ms),
                chance,
            )
        };
        let once = Retries {
            all: 1,
            ..Retries::default()
        };
        let again = |ms| Decision::Again {
            pause: Duration::from_millis(ms),
            retries: once,
        };
        assert_eq!(after(Some(2_000), 10_000, 0.0), again(2_000));
        assert_eq!(after(Some(2_000), 10_000, 0.5), again(2_250));
        assert_eq!(after(Some(0), 10_000, 0.0), again(0));
        assert_eq!(after(Some(2_000), 2_001, 0.0), again(2_000));
        assert_eq!(
            after(Some(2_000), 2_000, 0.0),
            Decision::GiveUp {
                why: "not tried again: the next try would be in 2.0 s, and the agent has 2.0 s \
                      left"
                    .to_owned()
            }
        );
        assert_eq!(after(None, 10_000, 0.0), again(0));
        assert!(matches!(after(None, 0, 0.0), Decision::GiveUp { .. }));
    }

    #[test]
    fn a_wish_comes_in_seconds_in_milliseconds_or_as_a_date() {
        let now: Timestamp = "2026-11-30T12:00:00Z".parse().unwrap();
        let read = |ms, after| wish(ms, after, now).map(|pause| pause.as_millis());
        for (ms, after, wanted) in [
            (None, Some("2"), Some(2_000)),
            (None, Some(" 1.5 "), Some(1_500)),
            (Some("250"), Some("2"), Some(250)),
            (Some("x"), Some("2"), Some(2_000)),
            (None, Some("Mon, 30 Nov 2026 12:01:30 GMT"), Some(90_000)),
            (None, Some("Mon, 30 Nov 2026 11:59:00 GMT"), Some(0)),
            (None, Some("-1"), None),
            (None, Some("NaN"), None),
            (None, Some("1e300"), None),
            (None, Some("soon"), None),
            (None, None, None),
        ] {
            assert_eq!(read(ms, after), wanted, "{ms:?} {after:?}");
        }
    }

    proptest! {
        #[test]
        fn no_row_of_faults_is_retried_without_end_or_past_the_deadline(
            mends in prop::collection::vec(
                prop::sample::select(vec![
                    Mend::Again, Mend::Silent, Mend::LateCut, Mend::BadReply, Mend::Unreadable,
                ]),
                0..20,
            ),
            left_ms in 0_u64..100_000,
            chance in 0.0_f64..1.0,
            wish in prop::option::of(0_u64..200_000),
        ) {
            let left = Duration::from_millis(left_ms);
            let mut retries = Retries::default();
            let mut made = 0;
            for mend in mends {
                match decide(&fault(mend, wish), retries, left, chance) {
                    Decision::Again { pause, retries: next } => {
                        prop_assert!(pause < left);
                        retries = next;
                        made += 1;
                    }
                    Decision::GiveUp { .. } => break,
                }
            }
            prop_assert!(made <= limits::MODEL_RETRIES_MAX);
        }
    }
}
