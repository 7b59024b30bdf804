//! Adds up what an agent has used and done.

use protocol::job::ModelSpec;
use protocol::stats::{Stats, TokenUsage};

/// What a successful call adds to the agent's counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Files read.
    pub files_read: u64,
    /// Searches.
    pub searches: u64,
    /// Pages of the web.
    pub web_pages: u64,
    /// Commands that started a process.
    pub commands: u64,
    /// Files written.
    pub files_written: u64,
}

/// What tokens cost, in thousandths of a currency unit for a million of them; none is no price.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Prices {
    prompt: Option<u64>,
    cached: Option<u64>,
    completion: Option<u64>,
}

impl Prices {
    /// The prices that a model is configured with. Tokens from a cache cost what others do where
    /// nobody says otherwise.
    pub fn of(spec: &ModelSpec) -> Self {
        let milli = |price: Option<f64>| {
            // A price is finite and not negative; the cast stops at the greatest number.
            price.map(|price| (price * 1_000.0).round() as u64)
        };
        Prices {
            prompt: milli(spec.price_prompt),
            cached: milli(spec.price_cached.or(spec.price_prompt)),
            completion: milli(spec.price_completion),
        }
    }

    /// The price of an answer, in millionths of a currency unit, rounded.
    fn cost(self, usage: TokenUsage) -> u64 {
        let cached = usage.cached.min(usage.prompt);
        let sum: u128 = [
            (usage.prompt - cached, self.prompt),
            (cached, self.cached),
            (usage.completion, self.completion),
        ]
        .into_iter()
        .map(|(tokens, price)| u128::from(tokens) * u128::from(price.unwrap_or(0)))
        .sum();
        u64::try_from((sum + 500) / 1_000).unwrap_or(u64::MAX)
    }
}

/// The counts of one run. Time is put in when they are read, since nothing here has a clock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    stats: Stats,
    prices: Prices,
}

impl Counts {
    /// Counts of nothing yet, at these prices.
    pub fn new(prices: Prices) -> Self {
        Counts {
            stats: Stats::default(),
            prices,
        }
    }

    /// One answer of the model, with its cost where the provider told it.
    pub fn answer(&mut self, usage: Option<TokenUsage>) {
        self.stats.turns = self.stats.turns.saturating_add(1);
        self.beside(usage);
    }

    /// An answer that is no turn of the conversation, such as a summary of it.
    pub fn beside(&mut self, usage: Option<TokenUsage>) {
        if let Some(usage) = usage {
            let cost = self.prices.cost(usage);
            self.stats.token_usage.add(usage);
            self.stats.cost_micros = self.stats.cost_micros.saturating_add(cost);
        }
    }

    /// One call of a tool.
    pub fn call(&mut self, tally: Tally) {
        let stats = &mut self.stats;
        stats.files_read = stats.files_read.saturating_add(tally.files_read);
        stats.searches = stats.searches.saturating_add(tally.searches);
        stats.web_pages = stats.web_pages.saturating_add(tally.web_pages);
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
    use protocol::job::Provider;

    use super::*;

    #[test]
    fn answers_and_calls_add_up_without_overflow() {
        let mut spec = ModelSpec::new("m", Provider::Openai, "", "");
        spec.price_prompt = Some(2.0);
        spec.price_completion = Some(0.5);
        let mut counts = Counts::new(Prices::of(&spec));
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
            web_pages: 4,
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
                web_pages: 4,
                commands: 3,
                files_written: u64::MAX,
                turns: 2,
                token_usage: usage,
                cost_micros: 7,
            }
        );
    }

    #[test]
    fn what_tokens_cost_hangs_on_where_they_came_from() {
        let usage = TokenUsage {
            prompt: 1_000_000,
            completion: 100_000,
            total: 1_100_000,
            cached: 900_000,
        };
        let cost = |prompt, cached, completion| {
            let mut spec = ModelSpec::new("m", Provider::Openai, "", "");
            spec.price_prompt = prompt;
            spec.price_cached = cached;
            spec.price_completion = completion;
            Prices::of(&spec).cost(usage)
        };
        assert_eq!(cost(Some(3.0), Some(0.3), Some(15.0)), 2_070_000);
        assert_eq!(cost(Some(3.0), None, None), 3_000_000);
        assert_eq!(cost(None, None, None), 0);
        assert_eq!(cost(Some(f64::MAX), None, None), u64::MAX);
    }
}
