//! A run's record, its watch and its listeners: what there is from the first moment to the last,
//! also when the run never gets as far as its model.

use std::sync::Arc;

use protocol::channel::ProgressParams;
use protocol::conversation::Outcome;
use protocol::secret::Mask;
use protocol::stats::Stats;
use protocol::status::{Status, StopReason};

use crate::exit::{Ended, StopCause};
use crate::io::clock::utc_now;
use crate::io::log;
use crate::io::record::Record;
use crate::run::report::Reporter;
use crate::run::watch::Watch;
use crate::tools::command::Keeping;

/// What every part of a run needs.
#[derive(Debug)]
pub struct Surroundings {
    /// The run's own folder.
    pub agent_dir: std::path::PathBuf,
    /// What is kept.
    pub record: Record,
    /// What is minded.
    pub watch: Watch,
    /// Who is told.
    pub reporter: Reporter,
    /// What holds the processes of commands together.
    pub keeping: Arc<Keeping>,
}

impl Surroundings {
    /// Keeps these secrets out of everything that is written or told from here on.
    pub fn hide(&mut self, mask: Mask) {
        log::hide(mask.clone());
        self.record.hide(mask.clone());
        self.reporter.mask = mask;
    }

    /// Ends the run: first its files, then the word to its leader. `last` is where the agent
    /// stood.
    pub async fn finish(
        mut self,
        mut outcome: Outcome,
        cause: Option<StopCause>,
        last: ProgressParams,
    ) -> Ended {
        self.reporter.mask.outcome(&mut outcome);
        let stats = last.stats;
        let mut ended = Ended {
            outcome,
            cause,
            stats,
        };
        let status = ended.outcome.status();
        let now_ms = self.watch.now_ms();
        let saved = self
            .record
            .finish(ended.outcome.clone(), status, stats, utc_now(), now_ms);
        if let Err(error) = saved {
            tracing::error!(%error, "the run's record is not complete");
            if ended.outcome.success {
                // Others read the record; a success that stands nowhere can't be claimed.
                ended.outcome = Outcome {
                    success: false,
                    summary: format!("{error}; the report was: {}", ended.outcome.summary),
                    stop_reason: Some(error.stop_reason()),
                };
                ended.cause = Some(StopCause::Record(error));
            }
        }
        self.reporter.progress(&last);
        self.reporter.finished(&ended.outcome, stats).await;
        ended
    }

    /// Ends a run that could not begin.
    pub async fn fail(
        self,
        summary: String,
        reason: StopReason,
        cause: Option<StopCause>,
    ) -> Ended {
        let outcome = Outcome {
            success: false,
            summary,
            stop_reason: Some(reason),
        };
        let nothing = ProgressParams {
            stats: Stats::default(),
            last_action: String::new(),
            state: Status::Running,
            output_tail: String::new(),
        };
        self.finish(outcome, cause, nothing).await
    }
}
