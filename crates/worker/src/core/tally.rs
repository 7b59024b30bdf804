//! Adds up what an agent has used and done.

use protocol::stats::{Stats, TokenUsage};

/// What a successful call adds to the agent's counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Files read.
    pub files_read: u64,
    /// Searches.
    pub searches: u64,
    /// Commands that started a process.
    pub commands: u64,
    /// Files written.
    pub files_written: u64,
}

/// The counts of one run. Time is put in when they are read, since nothing here has a clock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    stats: Stats,
}

impl Counts {
    /// One answer of the model, with its cost where the provider told it.
    pub fn answer(&mut self, usage: Option<TokenUsage>) {
        self.stats.turns = self.stats.turns.saturating_add(1);
        if let Some(usage) = usage {
            self.stats.token_usage.add(usage);
        }
    }

    /// One call of a tool.
    pub fn call(&mut self, tally: Tally) {
        let stats = &mut self.stats;
        stats.files_read = stats.files_read.saturating_add(tally.files_read);
        stats.searches = stats.searches.saturating_add(tally.searches);
        stats.commands = stats.commands.saturating_add(tally.commands);
        stats.files_written = stats.files_written.saturating_add(tally.files_written);
    }

    /// Answers of the model so far.
    pub fn turns(&self) -> u64 {
        self.stats.turns
    }

    /// Tokens so far.
    pub fn tokens(&self) -> u64 {
        self.stats.token_usage.total
    }

    /// All counts, as of so many seconds on the agent's clock.
    pub fn at(&self, runtime_seconds: u64) -> Stats {
        Stats {
            runtime_seconds,
            ..self.stats
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_and_calls_add_up_without_overflow() {
        let mut counts = Counts::default();
        let usage = TokenUsage {
            prompt: 3,
            completion: 2,
            total: 5,
            cached: 0,
        };
        counts.answer(Some(usage));
        counts.answer(None);
        counts.call(Tally {
            files_read: 1,
            searches: 2,
            commands: 3,
            files_written: u64::MAX,
        });
        counts.call(Tally {
            files_written: 1,
            ..Tally::default()
        });
        assert_eq!(
            counts.at(7),
            Stats {
                runtime_seconds: 7,
                files_read: 1,
                searches: 2,
                web_pages: 0,
                commands: 3,
                files_written: u64::MAX,
                turns: 2,
                token_usage: usage,
            }
        );
    }
}
