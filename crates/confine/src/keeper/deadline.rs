//! When a command is asked to end and when it is killed, and what a pause of the whole tree does
//! to that.

use std::time::{Duration, Instant};

use crate::limits;

/// What is going to happen to a command by the clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Clock {
    /// Nothing.
    Unbounded,
    /// It is asked to end then.
    TermAt(Instant),
    /// It is killed then.
    KillAt(Instant),
    /// It has been killed.
    Killed,
}

/// What the clock asks for now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Due {
    Nothing,
    Term,
    Kill,
}

impl Clock {
    /// What is due at `now`, and the clock after it.
    pub(super) fn advance(self, now: Instant) -> (Due, Clock) {
        match self {
            Clock::TermAt(at) if at <= now => {
                let kill = now + Duration::from_millis(limits::COMMAND_GRACE_MS);
                (Due::Term, Clock::KillAt(kill))
            }
            Clock::KillAt(at) if at <= now => (Due::Kill, Clock::Killed),
            Clock::Unbounded | Clock::TermAt(_) | Clock::KillAt(_) | Clock::Killed => {
                (Due::Nothing, self)
            }
        }
    }

    /// The same clock, for which so much time has not passed.
    pub(super) fn put_off(self, by: Duration) -> Clock {
        match self {
            Clock::TermAt(at) => Clock::TermAt(at + by),
            Clock::KillAt(at) => Clock::KillAt(at + by),
            Clock::Unbounded | Clock::Killed => self,
        }
    }

    /// When something is due next.
    pub(super) fn next(self) -> Option<Instant> {
        match self {
            Clock::TermAt(at) | Clock::KillAt(at) => Some(at),
            Clock::Unbounded | Clock::Killed => None,
        }
    }
}

/// How long the whole tree was stopped during one wait, as by a Ctrl-Z on the leader: the clock
/// goes on meanwhile, which must not cost the commands their time. While any time-out runs no wait
/// is longer than a piece, so that one that took far longer was not spent awake.
pub(super) fn stood_still(waited: Duration) -> Duration {
    let piece = Duration::from_millis(limits::AWAKE_PIECE_MS);
    match waited > 2 * piece {
        true => waited - piece,
        false => Duration::ZERO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_in_which_the_tree_was_stopped_does_not_count() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let ms = Duration::from_millis;
        let piece = limits::AWAKE_PIECE_MS;
        for (waited, stood) in [(0, 0), (piece, 0), (2 * piece, 0), (60_000, 60_000 - piece)] {
            assert_eq!(stood_still(ms(waited)), ms(stood), "{waited}");
        }
        assert_eq!(
            Clock::TermAt(at(100)).put_off(ms(50)),
            Clock::TermAt(at(150))
        );
        assert_eq!(
            Clock::KillAt(at(100)).put_off(ms(50)),
            Clock::KillAt(at(150))
        );
        assert_eq!(Clock::Killed.put_off(ms(50)), Clock::Killed);
        assert_eq!(Clock::Unbounded.put_off(ms(50)), Clock::Unbounded);
    }

    #[test]
    fn a_time_out_asks_first_and_kills_a_grace_later() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let clock = Clock::TermAt(at(100));
        assert_eq!(clock.advance(at(99)), (Due::Nothing, clock));
        let (due, clock) = clock.advance(at(100));
        assert_eq!((due, clock), (Due::Term, Clock::KillAt(at(1_100))));
        assert_eq!(clock.advance(at(1_099)), (Due::Nothing, clock));
        assert_eq!(clock.advance(at(1_100)), (Due::Kill, Clock::Killed));
        assert_eq!(
            Clock::Killed.advance(at(9_999)),
            (Due::Nothing, Clock::Killed)
        );
        assert_eq!(
            Clock::Unbounded.advance(at(9_999)),
            (Due::Nothing, Clock::Unbounded)
        );
    }
}
