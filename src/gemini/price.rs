//! What tokens cost: exact sums in billionths of a US dollar, and upper bounds to reserve.
//!
//! Prices are whole nano-dollars a token, which is thousandths of a dollar a million tokens. Each
//! has a date from which it counts (00:00 UTC), so a change that was announced is in the table
//! before it comes. The worked example of an article of 11,000 tokens in and 3,500 out:
//!
//! ```
//! use oncepress::gemini::price::PriceTable;
//! use oncepress::gemini::usage::Usage;
//! use oncepress::time::Timestamp;
//! let usage = Usage { prompt_tokens: 11_000, output_tokens: 3_500, ..Usage::default() };
//! let table = PriceTable::default();
//! let in_november = Timestamp::from_date(2026, 11, 30).unwrap();
//! let in_december = Timestamp::from_date(2026, 12, 1).unwrap();
//! let cost = |at| table.cost("gemini-4-argon", &usage, at).unwrap().micro_usd_rounded_up();
//! assert_eq!((cost(in_november), cost(in_december)), (57_000, 114_000));
//! ```

use std::collections::BTreeMap;

use crate::gemini::bounds::Bounds;
use crate::gemini::price_list;
use crate::gemini::usage::{Tier, Usage};
use crate::time::Timestamp;

/// An amount in billionths of a US dollar.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NanoUsd(i64);

/// Prices by model and date.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PriceTable {
    models: BTreeMap<String, Vec<Price>>,
    aliases: BTreeMap<String, String>,
}

/// The price of a model from a date on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Price {
    /// When it begins to count.
    pub from: Timestamp,
    /// The rates…
    pub rates: Rates,
    /// …and those of a request whose prompt is over [`LONG_PROMPT_TOKENS`], where they differ.
    pub long: Option<Rates>,
}

/// Nano-dollars a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rates {
    /// Of the prompt.
    pub input: u32,
    /// Of sound in the prompt.
    pub audio: u32,
    /// Of what came from a cache.
    pub cached: u32,
    /// Of the answer and of thoughts.
    pub output: u32,
}

impl NanoUsd {
    /// An amount of so many nano-dollars, if it fits the database (below 2^53).
    pub fn new(nano_usd: i64) -> Option<Self> {
        (0..=NANO_USD_MAX)
            .contains(&nano_usd)
            .then_some(Self(nano_usd))
    }

    /// The amount in nano-dollars.
    pub const fn nano_usd(self) -> i64 {
        self.0
    }

    /// The amount in micro-dollars (credits), rounded up.
    pub const fn micro_usd_rounded_up(self) -> i64 {
        self.0.saturating_add(999) / 1_000
    }
}

impl From<NanoUsd> for i64 {
    fn from(amount: NanoUsd) -> Self {
        amount.0
    }
}

impl Default for PriceTable {
    /// Google's list prices.
    fn default() -> Self {
        price_list::google()
    }
}

impl PriceTable {
    /// A table from prices by model and names that stand for another.
    pub(crate) fn new(
        models: BTreeMap<String, Vec<Price>>,
        aliases: BTreeMap<String, String>,
    ) -> Self {
        Self { models, aliases }
    }

    /// This table with the entries of `other` in place of those of the same name.
    #[must_use]
    pub(crate) fn overridden_by(mut self, other: Self) -> Self {
        for name in other.models.keys() {
            self.aliases.remove(name);
        }
        for name in other.aliases.keys() {
            self.models.remove(name);
        }
        self.models.extend(other.models);
        self.aliases.extend(other.aliases);
        self
    }

    /// The price of `model` (bare or `models/…`, an alias too) at a point in time.
    pub fn price(&self, model: &str, at: Timestamp) -> Option<Price> {
        let name = model.strip_prefix("models/").unwrap_or(model);
        let prices = self.models.get(self.resolve(name))?;
        prices
            .iter()
            .filter(|price| price.from <= at)
            .max_by_key(|price| price.from)
            .copied()
    }

    /// Whether `model` leads to an entry with prices.
    pub(crate) fn knows(&self, model: &str) -> bool {
        self.models.contains_key(self.resolve(model))
    }

    fn resolve<'a>(&'a self, mut name: &'a str) -> &'a str {
        for _ in 0..ALIAS_STEPS_MAX {
            let Some(model) = self.aliases.get(name) else {
                break;
            };
            name = model;
        }
        name
    }

    /// What `usage` costs, exact in nano-dollars (half ones of the flex tier are rounded up, once);
    /// `None` for a model without a price. Take the moment of the claim for `at`, as the estimate
    /// did.
    pub fn cost(&self, model: &str, usage: &Usage, at: Timestamp) -> Option<NanoUsd> {
        let price = self.price(model, at)?;
        let long = price
            .long
            .filter(|_| usage.prompt_tokens > LONG_PROMPT_TOKENS);
        let rates = long.unwrap_or(price.rates);
        let cached = usage.cached_tokens.min(usage.prompt_tokens);
        let fresh = usage.prompt_tokens.saturating_sub(cached);
        let audio = usage
            .audio_tokens
            .saturating_sub(usage.cached_audio_tokens)
            .min(fresh);
        let text = fresh
            .saturating_sub(audio)
            .saturating_add(usage.tool_prompt_tokens);
        let sum = Sum::default()
            .plus(text, rates.input)
            .plus(audio, rates.audio)
            .plus(cached, rates.cached)
            .plus(usage.billed_output_tokens(), rates.output);
        Some(sum.at(usage.tier.unwrap_or_default()))
    }

    /// The most that a request within `bounds` can cost; `None` for a model without a price.
    pub fn estimate(&self, model: &str, bounds: &Bounds, at: Timestamp) -> Option<NanoUsd> {
        let price = self.price(model, at)?;
        let long = price
            .long
            .filter(|_| bounds.input_tokens > LONG_PROMPT_TOKENS);
        // A configured price may be odd: every rate that can apply is looked at.
        let rates = [Some(price.rates), long];
        let dearest = |of: fn(Rates) -> u32| rates.into_iter().flatten().map(of).max().unwrap_or(0);
        let input = dearest(|rates| rates.input.max(rates.audio).max(rates.cached));
        let output = dearest(|rates| rates.output);
        let sum = Sum::default()
            .plus(bounds.input_tokens, input)
            .plus(bounds.output_tokens, output);
        // A tier below the list price is not sure to be served.
        let tier = if bounds.tier == Tier::Priority {
            Tier::Priority
        } else {
            Tier::Standard
        };
        Some(sum.at(tier))
    }
}

/// A sum in nano-dollars at the list price.
#[derive(Clone, Copy, Default)]
struct Sum(u128);

impl Sum {
    fn plus(self, tokens: u64, rate: u32) -> Self {
        Self(
            self.0
                .saturating_add(u128::from(tokens).saturating_mul(u128::from(rate))),
        )
    }

    fn at(self, tier: Tier) -> NanoUsd {
        let tenths = match tier {
            Tier::Flex => 5,
            Tier::Standard => 10,
            Tier::Priority => 18,
        };
        let nano_usd = self.0.saturating_mul(tenths).div_ceil(10);
        NanoUsd(
            i64::try_from(nano_usd)
                .unwrap_or(NANO_USD_MAX)
                .min(NANO_USD_MAX),
        )
    }
}

/// A prompt over this is long, for the models whose price knows the difference.
pub const LONG_PROMPT_TOKENS: u64 = 200_000;
/// An alias may name another one, but not go round in circles.
const ALIAS_STEPS_MAX: usize = 4;
/// D1 passes numbers as doubles, which are exact below 2^53: nine million dollars.
const NANO_USD_MAX: i64 = (1 << 53) - 1;
