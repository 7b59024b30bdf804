//! One question with all its tries: waits, tries again, and never outlasts the deadline.

use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::pin::Pin;
use std::time::Duration;

use tokio::time::{sleep, timeout_at};

use super::fault::Fault;
use super::retry::{Decision, Retries, decide};
use super::{EventSink, ModelError, ModelErrorKind, ModelEvent, ModelReply};
use crate::io::clock;

/// What a boxed try comes to.
pub(crate) type TryFuture<'a> =
    Pin<Box<dyn Future<Output = Result<ModelReply, Fault>> + Send + 'a>>;

/// One dialect's single try, made anew each time.
pub(crate) trait Try: Sync {
    /// Sends the request and reads the answer to its end. `variation` is 0, and one more each time
    /// that the same question would only bring the same unusable answer.
    fn once<'a>(&'a self, variation: u32, events: EventSink<'a>) -> TryFuture<'a>;

    /// Whom it asks, as it may be shown.
    fn address(&self) -> &str;
}

/// Where the jitter of pauses comes from: a number from 0 up to but not including 1.
pub(crate) type Chance = fn() -> f64;

/// A number that differs between processes and calls. It decides about pauses and no secret, so
/// the seed of the standard library's hash tables is good enough.
pub(crate) fn chance() -> f64 {
    let bits = RandomState::new().hash_one(0_u8) >> 32;
    bits as f64 / (1_u64 << 32) as f64
}

/// Tries until there is an answer, a fault that is final, or no time left. `requests` counts the
/// tries that reached a server. It may be dropped at any await point.
///
/// # Errors
/// When no try brought an answer.
pub(crate) async fn ask(
    tries: &dyn Try,
    within: Duration,
    chance: Chance,
    requests: &mut u64,
    events: EventSink<'_>,
) -> Result<ModelReply, ModelError> {
    let deadline = clock::after(within);
    let mut retries = Retries::default();
    let (mut attempt, mut reached) = (0, 0);
    loop {
        attempt += 1;
        if clock::now() >= deadline {
            return Err(too_late(tries.address(), within, reached));
        }
        // Counted before it is sent, because the call may be dropped while it is under way.
        *requests += 1;
        reached += 1;
        events(ModelEvent::Sent { attempt });
        let began = clock::now();
        let outcome = timeout_at(deadline, tries.once(retries.variation(), &mut *events)).await;
        let duration_ms = milliseconds(began.elapsed());
        let fault = match outcome {
            Ok(Ok(reply)) => {
                tracing::debug!(attempt, duration_ms, "the model answered");
                return Ok(reply);
            }
            Ok(Err(fault)) => fault,
            Err(_) => return Err(too_late(tries.address(), within, reached)),
        };
        if fault.kind == ModelErrorKind::Connect {
            *requests -= 1;
            reached -= 1;
        }
        let left = deadline.saturating_duration_since(clock::now());
        match decide(&fault, retries, left, chance()) {
            Decision::Again {
                pause,
                retries: next,
            } => {
                tracing::warn!(attempt, duration_ms, pause_ms = milliseconds(pause),
                    why = %fault.message, "a model call failed and is tried again");
                retries = next;
                events(ModelEvent::Retry {
                    attempt,
                    why: fault.message,
                    pause,
                });
                sleep(pause).await;
            }
            Decision::GiveUp { why } => {
                let message = if why.is_empty() {
                    fault.message
                } else {
                    format!("{} ({why})", fault.message)
                };
                tracing::warn!(attempt, duration_ms, why = %message, "a model call failed");
                return Err(ModelError {
                    kind: fault.kind,
                    message,
                    requests: reached,
                });
            }
        }
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn too_late(address: &str, within: Duration, requests: u32) -> ModelError {
    ModelError {
        kind: ModelErrorKind::Deadline,
        message: format!(
            "{address}: no answer within the {:.1} s that the agent had left",
            within.as_secs_f64()
        ),
        requests,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::FinishKind;
    use crate::model::fault::Mend;
    use std::sync::Mutex;

    /// Tries that come out as listed, the last one again and again.
    struct Listed {
        /// A mutex, because tries are made through a shared reference from a future that must
        /// be able to move between threads.
        left: Mutex<Vec<Result<ModelReply, Fault>>>,
        takes: Duration,
    }

    impl Try for Listed {
        fn once<'a>(&'a self, _variation: u32, events: EventSink<'a>) -> TryFuture<'a> {
            Box::pin(async move {
                sleep(self.takes).await;
                events(ModelEvent::Text("x".to_owned()));
                let mut left = self.left.lock().unwrap();
                match left.len() {
                    1 => left[0].clone(),
                    _ => left.remove(0),
                }
            })
        }

        fn address(&self) -> &str {
            "here"
        }
    }

    fn reply() -> ModelReply {
        ModelReply {
            content: Some("x".to_owned()),
            reasoning_content: None,
            provider_blocks: Vec::new(),
            tool_calls: Vec::new(),
            finish: FinishKind::Done,
            usage: None,
        }
    }

    fn fault(kind: ModelErrorKind, mend: Mend) -> Result<ModelReply, Fault> {
        Err(Fault::new(kind, mend, "why"))
    }

    async fn run(
        left: Vec<Result<ModelReply, Fault>>,
        takes_ms: u64,
        within: Duration,
    ) -> (Result<ModelReply, ModelError>, u64, Vec<ModelEvent>) {
        let tries = Listed {
            left: Mutex::new(left),
            takes: Duration::from_millis(takes_ms),
        };
        let (mut requests, mut events) = (0, Vec::new());
        let mut sink = |event| events.push(event);
        let outcome = ask(&tries, within, || 0.5, &mut requests, &mut sink).await;
        (outcome, requests, events)
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_try_is_announced_and_made_again() {
        let down = fault(ModelErrorKind::Connect, Mend::Again);
        let busy = fault(ModelErrorKind::Server, Mend::Again);
        let (outcome, requests, events) =
            run(vec![down, busy, Ok(reply())], 10, Duration::MAX).await;
        assert_eq!(outcome, Ok(reply()));
        assert_eq!(requests, 2, "the first try reached no server");
        let text = ModelEvent::Text("x".to_owned());
        let retry = |attempt, ms| ModelEvent::Retry {
            attempt,
            why: "why".to_owned(),
            pause: Duration::from_millis(ms),
        };
        assert_eq!(
            events,
            [
                ModelEvent::Sent { attempt: 1 },
                text.clone(),
                retry(1, 250),
                ModelEvent::Sent { attempt: 2 },
                text.clone(),
                retry(2, 500),
                ModelEvent::Sent { attempt: 3 },
                text,
            ]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_never_outlasts_what_it_was_given() {
        let hour = 3_600_000;
        for (left, takes_ms, kind, requests) in [
            (vec![Ok(reply())], hour, ModelErrorKind::Deadline, 1),
            (
                vec![fault(ModelErrorKind::Server, Mend::Again)],
                9_900,
                ModelErrorKind::Server,
                1,
            ),
            (
                vec![fault(ModelErrorKind::Stalled, Mend::Silent)],
                5_000,
                ModelErrorKind::Deadline,
                2,
            ),
        ] {
            let began = clock::now();
            let (outcome, made, _) = run(left, takes_ms, Duration::from_secs(10)).await;
            let error = outcome.unwrap_err();
            assert_eq!(
                (error.kind, error.requests, made),
                (kind, requests, u64::from(requests))
            );
            assert!(began.elapsed() <= Duration::from_millis(10_005));
        }
        let (outcome, made, events) = run(vec![Ok(reply())], 0, Duration::ZERO).await;
        assert_eq!(outcome, Err(too_late("here", Duration::ZERO, 0)));
        assert_eq!((made, events), (0, Vec::new()));
    }

    #[test]
    fn chance_stays_in_its_range_and_is_not_always_the_same() {
        let numbers: Vec<f64> = (0..1_000).map(|_| chance()).collect();
        assert!(numbers.iter().all(|number| (0.0..1.0).contains(number)));
        let mean = numbers.iter().sum::<f64>() / 1_000.0;
        // The standard deviation of this mean is 0.009; this is 15 of them.
        assert!((0.36..0.64).contains(&mean), "{mean}");
    }
}
