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

use crate::gemini::bounds::Bounds;
use crate::gemini::price_list;
use crate::gemini::usage::{Tier, Usage};
use crate::sorted::SortedMap;
use crate::time::Timestamp;

/// An amount in billionths of a US dollar.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NanoUsd(i64);

/// Prices by model and date.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PriceTable {
    models: SortedMap<String, Vec<Price>>,
    aliases: SortedMap<String, String>,
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
        models: SortedMap<String, Vec<Price>>,
        aliases: SortedMap<String, String>,
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::gemini::bounds::{OUTPUT_TOKENS_DEFAULT, WINDOW_TOKENS};

    fn at(date: &str) -> Timestamp {
        Timestamp::parse_rfc3339(&format!("{date}T00:00:00Z")).unwrap()
    }

    fn cost(model: &str, usage: Usage, date: &str) -> i64 {
        PriceTable::default()
            .cost(model, &usage, at(date))
            .unwrap()
            .nano_usd()
    }

    const ARTICLE: Usage = Usage {
        prompt_tokens: 11_000,
        output_tokens: 3_500,
        cached_tokens: 0,
        audio_tokens: 0,
        cached_audio_tokens: 0,
        tool_prompt_tokens: 0,
        thought_tokens: 0,
        total_tokens: 14_500,
        tier: None,
    };

    #[test]
    fn an_article_costs_what_the_price_list_says_on_its_day() {
        assert_eq!(cost("gemini-2.5-pro", ARTICLE, "2026-11-30"), 48_750_000);
        assert_eq!(cost("gemini-3.8-flash", ARTICLE, "2026-12-31"), 21_375_000);
        assert_eq!(cost("gemini-3.8-flash", ARTICLE, "2027-01-01"), 42_750_000);
        assert_eq!(cost("gemini-4-argon", ARTICLE, "2026-11-30"), 57_000_000);
        assert_eq!(cost("gemini-4-carbon", ARTICLE, "2026-12-01"), 114_000_000);
        assert_eq!(cost("gemma-4-31b-it", ARTICLE, "2026-12-01"), 0);
    }

    #[test]
    fn the_price_changes_with_the_first_moment_of_its_day() {
        let just_before = Timestamp::from_millis(at("2026-12-01").millis() - 1);
        let table = PriceTable::default();
        let input = |at| table.price("gemini-4-argon", at).unwrap().rates.input;
        assert_eq!(
            (input(just_before), input(at("2026-12-01"))),
            (2_000, 4_000)
        );
    }

    #[test]
    fn cached_thought_tool_and_sound_tokens_have_their_rates() {
        let usage = Usage {
            cached_tokens: 4_000,
            thought_tokens: 500,
            tool_prompt_tokens: 100,
            ..ARTICLE
        };
        let wanted = 7_100 * 750 + 4_000 * 75 + 4_000 * 3_750;
        assert_eq!(cost("gemini-3.8-flash", usage, "2026-11-30"), wanted);
        let sound = Usage {
            audio_tokens: 1_000,
            cached_tokens: 600,
            cached_audio_tokens: 400,
            ..ARTICLE
        };
        let wanted = 9_800 * 300 + 600 * 1_000 + 600 * 30 + 3_500 * 2_500;
        assert_eq!(cost("gemini-2.5-flash", sound, "2026-11-30"), wanted);
    }

    #[test]
    fn a_long_prompt_is_dearer_as_a_whole() {
        let usage = |prompt_tokens| Usage {
            prompt_tokens,
            output_tokens: 10,
            ..Usage::default()
        };
        let cost = |tokens| cost("gemini-3.1-pro-preview", usage(tokens), "2026-11-30");
        assert_eq!(cost(200_000), 200_000 * 2_000 + 10 * 12_000);
        assert_eq!(cost(200_001), 200_001 * 4_000 + 10 * 18_000);
    }

    #[test]
    fn a_tier_multiplies_and_half_nano_dollars_are_rounded_up_once() {
        let with = |tier, tokens| {
            let usage = Usage {
                prompt_tokens: tokens,
                cached_tokens: tokens,
                tier,
                ..Usage::default()
            };
            cost("gemini-3.8-flash", usage, "2026-11-30")
        };
        assert_eq!((with(None, 3), with(Some(Tier::Standard), 3)), (225, 225));
        assert_eq!(
            (with(Some(Tier::Flex), 3), with(Some(Tier::Flex), 2)),
            (113, 75)
        );
        assert_eq!(with(Some(Tier::Priority), 3), 405);
    }

    #[test]
    fn aliases_and_full_names_lead_to_the_model_and_others_nowhere() {
        let table = PriceTable::default();
        let price = |name| table.price(name, at("2026-11-30"));
        assert_eq!(price("gemini-flash-latest"), price("gemini-3.8-flash"));
        assert_eq!(
            price("models/gemini-pro-latest"),
            price("gemini-3.1-pro-preview")
        );
        assert_eq!(
            price("gemini-flash-lite-latest"),
            price("gemini-3.5-flash-lite")
        );
        for unknown in [
            "",
            "models/",
            "gemini-9",
            "GEMINI-3.8-FLASH",
            "tunedModels/gemini-3.8-flash",
        ] {
            assert_eq!(price(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn credits_are_rounded_up() {
        let credits = |nano| NanoUsd::new(nano).map(NanoUsd::micro_usd_rounded_up);
        assert_eq!([0, 1, 1_000, 1_001].map(credits), [0, 1, 1, 2].map(Some));
        assert_eq!((credits(-1), credits(1 << 53)), (None, None));
    }

    #[test]
    fn no_count_overflows() {
        let most = (1 << 53) - 1;
        let usage = Usage {
            prompt_tokens: most,
            output_tokens: most,
            ..Usage::default()
        };
        assert_eq!(cost("gemini-4-argon", usage, "2026-12-01"), NANO_USD_MAX);
        let bounds = Bounds {
            input_tokens: u64::MAX,
            output_tokens: u64::MAX,
            tier: Tier::Priority,
        };
        let estimate = PriceTable::default().estimate("gemini-4-argon", &bounds, at("2026-12-01"));
        assert_eq!(estimate.unwrap().nano_usd(), NANO_USD_MAX);
    }

    fn tier() -> impl Strategy<Value = Tier> {
        prop::sample::select(vec![Tier::Standard, Tier::Flex, Tier::Priority])
    }

    fn model() -> impl Strategy<Value = String> {
        let names = PriceTable::default()
            .models
            .into_iter()
            .map(|(name, _)| name)
            .chain(["odd".to_owned()]);
        prop::sample::select(names.collect::<Vec<_>>())
    }

    proptest! {
        #[test]
        fn an_estimate_is_never_below_the_cost_of_what_its_bounds_allow(
            model in model(),
            asked in tier(),
            served_as_asked: bool,
            input in 0..WINDOW_TOKENS,
            output in 0..OUTPUT_TOKENS_DEFAULT,
            shares in prop::array::uniform5(0_u64..=100),
            day in 0_i64..800,
        ) {
            let part = |of: u64, share: u64| of * share / 100;
            let prompt = part(input, shares[0]);
            let cached = part(prompt, shares[1]);
            let output_tokens = part(output, shares[3]);
            let usage = Usage {
                prompt_tokens: prompt,
                cached_tokens: cached,
                audio_tokens: part(prompt, shares[2]),
                cached_audio_tokens: part(part(prompt, shares[2]), shares[4]),
                tool_prompt_tokens: input - prompt,
                output_tokens,
                thought_tokens: output - output_tokens,
                total_tokens: input + output,
                tier: served_as_asked.then_some(asked),
            };
            // A price that is out of all order: a cache that is dearer, long prompts for less.
            let table = PriceTable::parse(&serde_json::json!({"odd": {"input": 1, "cached": 9,
                "output": 7, "long": {"input": 0.5, "output": 2}}})).unwrap();
            let bounds = Bounds { input_tokens: input, output_tokens: output, tier: asked };
            let at = Timestamp::from_millis(at("2026-01-01").millis() + day * 86_400_000);
            prop_assert!(table.estimate(&model, &bounds, at) >= table.cost(&model, &usage, at));
        }
    }
}
