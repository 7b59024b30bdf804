//! One command, from its order to its end, in whichever way this worker holds its commands.

use std::time::Duration;

use protocol::error::ToolError;

use super::ending::Ended;
use super::keeping::Keeping;
use super::kept::{conclude, follow, start_by_jail, start_by_keeper};
use super::order::Order;
use super::refusal;
use super::start::start;
use super::watch::watch;

/// Starts a command and waits for its end, or ends it after `timeout`. Dropping the future ends
/// it at once, with whatever the way of holding it reaches.
///
/// # Errors
/// When it is none that can be run, could not be started, or could not be watched.
pub(crate) async fn run(
    keeping: &Keeping,
    order: &Order,
    timeout: Duration,
) -> Result<Ended, ToolError> {
    order.check()?;
    let system = |error: std::io::Error| refusal::by_system(&error);
    let kept = match keeping {
        Keeping::Keeper(client) => start_by_keeper(client, order, timeout)?,
        Keeping::Jail { path, rungs, .. } => start_by_jail(path, *rungs, order).map_err(system)?,
        Keeping::Group { .. } => {
            let started = start(order).map_err(system)?;
            return watch(started, timeout)
                .await
                .map_err(|error| refusal::unwatched(&error));
        }
    };
    conclude(follow(kept, timeout).await?, timeout)
}
