//! One command, from its order to its end, in whichever way this worker holds its commands.

use std::time::Duration;

use protocol::error::ToolError;
use protocol::secret::Mask;

use super::control::Control;
use super::ending::Ended;
use super::keeping::Keeping;
use super::kept::{Kept, conclude, follow, start_by_jail, start_by_keeper};
use super::order::Order;
use super::refusal;
use super::start::{Started, start};
use super::watch::watch;

/// A command that was started. Dropping it ends the command at once, with whatever the way of
/// holding it reaches.
#[derive(Debug)]
pub(crate) struct Running {
    held: Held,
    mask: Mask,
    timeout: Duration,
}

#[derive(Debug)]
enum Held {
    Kept(Kept),
    Group(Started),
}

/// Starts a command that is ended after `timeout`.
///
/// # Errors
/// When it is none that can be run, or could not be started; what a keeper or a jail refuses is
/// told at its end.
pub(crate) fn begin(
    keeping: &Keeping,
    order: &Order,
    timeout: Duration,
) -> Result<Running, ToolError> {
    order.check()?;
    order.prepare();
    let system = |error: std::io::Error| refusal::by_system(&error);
    let held = match keeping {
        Keeping::Keeper(client) => Held::Kept(start_by_keeper(client, order, timeout)?),
        Keeping::Jail { path, rungs, .. } => {
            Held::Kept(start_by_jail(path, *rungs, order).map_err(system)?)
        }
        Keeping::Group { .. } => Held::Group(start(order).map_err(system)?),
    };
    let mask = order.mask.clone();
    Ok(Running {
        held,
        mask,
        timeout,
    })
}

impl Running {
    /// Waits for its end, or ends it when its time is over or `control` says so. Dropping the
    /// future ends it at once.
    ///
    /// # Errors
    /// When it did not start after all, or could not be watched.
    pub(crate) async fn end(self, control: Control) -> Result<Ended, ToolError> {
        let Running {
            held,
            mask,
            timeout,
        } = self;
        match held {
            Held::Kept(kept) => conclude(follow(kept, &mask, timeout, control).await?, timeout),
            Held::Group(started) => watch(started, &mask, timeout, control)
                .await
                .map_err(|error| refusal::unwatched(&error)),
        }
    }
}

/// Starts a command and waits for its end, or ends it after `timeout`. Dropping the future ends
/// it at once.
///
/// # Errors
/// As [`begin`] and [`Running::end`].
pub(crate) async fn run(
    keeping: &Keeping,
    order: &Order,
    timeout: Duration,
) -> Result<Ended, ToolError> {
    begin(keeping, order, timeout)?
        .end(Control::default())
        .await
}
