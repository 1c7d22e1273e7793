//! The price list: Google's, and the shape in which `PRICES` changes it.

use serde_json::{Map, Value};

use crate::gemini::price::{Price, PriceTable, Rates};
use crate::sorted::SortedMap;
use crate::time::Timestamp;

/// What is wrong with an entry of `PRICES`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{pointer}: {problem}")]
pub struct PriceFault {
    /// JSON pointer to the entry.
    pub pointer: String,
    /// What is wrong with it.
    pub problem: &'static str,
}

impl PriceTable {
    /// Google's list with the changes of `PRICES`, an object by model:
    ///
    /// - a price, or a list of prices with the dates from which they count (UTC), in US dollars
    ///   for a million tokens; `cached` is as `input` where it is missing, and so is `audio`;
    ///   `long` has the rates of prompts over 200,000 tokens;
    /// - or a text: the model that the name stands for.
    ///
    /// An entry takes the place of the whole entry of that name. All faults are reported.
    ///
    /// ```
    /// use oncepress::gemini::price::PriceTable;
    /// let prices = serde_json::json!({
    ///     "gemini-5-xenon": [
    ///         {"input": 1, "output": "6.5", "cached": 0.125,
    ///          "long": {"input": 2, "output": 13}},
    ///         {"from": "2027-06-01", "input": 0.5, "output": 3.25},
    ///     ],
    ///     "gemini-pro-latest": "gemini-5-xenon",
    /// });
    /// assert!(PriceTable::parse(&prices).is_ok());
    ///
    /// let faults = PriceTable::parse(&serde_json::json!({"a/b": {"input": 1}})).unwrap_err();
    /// assert_eq!(faults[0].to_string(), "/a~1b/output: is required");
    /// ```
    pub fn parse(prices: &Value) -> Result<Self, Vec<PriceFault>> {
        let mut faults = Faults::default();
        let Some(entries) = prices.as_object() else {
            faults.add("", "must be an object of prices by model");
            return Err(faults.0);
        };
        let (mut models, mut aliases) = (SortedMap::new(), SortedMap::new());
        for (name, entry) in entries {
            let pointer = format!("/{}", name.replace('~', "~0").replace('/', "~1"));
            if let Value::String(model) = entry {
                let model = model.strip_prefix("models/").unwrap_or(model);
                aliases.insert(bare(name), model.to_owned());
            } else {
                models.insert(bare(name), faults.prices(entry, &pointer));
            }
        }
        let table = google().overridden_by(Self::new(models, aliases));
        for (name, entry) in entries {
            if entry.is_string() && !table.knows(&bare(name)) {
                let pointer = format!("/{}", name.replace('~', "~0").replace('/', "~1"));
                faults.add(&pointer, "names a model without a price");
            }
        }
        if faults.0.is_empty() {
            Ok(table)
        } else {
            Err(faults.0)
        }
    }
}

/// Faults as they are found.
#[derive(Default)]
struct Faults(Vec<PriceFault>);

impl Faults {
    fn add(&mut self, pointer: &str, problem: &'static str) {
        self.0.push(PriceFault {
            pointer: pointer.to_owned(),
            problem,
        });
    }

    fn prices(&mut self, entry: &Value, pointer: &str) -> Vec<Price> {
        match entry {
            Value::Object(price) => self.price(price, pointer).into_iter().collect(),
            Value::Array(list) if !list.is_empty() => {
                let mut prices: Vec<Price> = Vec::new();
                for (at, entry) in list.iter().enumerate() {
                    let pointer = format!("{pointer}/{at}");
                    let Some(price) = entry.as_object() else {
                        self.add(&pointer, "must be an object");
                        continue;
                    };
                    let Some(price) = self.price(price, &pointer) else {
                        continue;
                    };
                    if prices.iter().any(|before| before.from == price.from) {
                        self.add(&format!("{pointer}/from"), "is the date of another price");
                    }
                    prices.push(price);
                }
                prices
            }
            _ => {
                self.add(
                    pointer,
                    "must be a price, a list of prices, or the name of a model",
                );
                Vec::new()
            }
        }
    }

    fn price(&mut self, price: &Map<String, Value>, pointer: &str) -> Option<Price> {
        let from = match price.get("from") {
            None => Some(ALWAYS),
            Some(from) => {
                let date = from.as_str().and_then(date);
                if date.is_none() {
                    self.add(
                        &format!("{pointer}/from"),
                        "must be a date such as 2026-12-01",
                    );
                }
                date
            }
        };
        let rates = self.rates(price, pointer, &["from", "long"]);
        let long = match price.get("long") {
            None => Some(None),
            Some(Value::Object(long)) => {
                self.rates(long, &format!("{pointer}/long"), &[]).map(Some)
            }
            Some(_) => {
                self.add(&format!("{pointer}/long"), "must be an object");
                None
            }
        };
        Some(Price {
            from: from?,
            rates: rates?,
            long: long?,
        })
    }

    fn rates(
        &mut self,
        rates: &Map<String, Value>,
        pointer: &str,
        others: &[&str],
    ) -> Option<Rates> {
        for name in rates.keys() {
            if !RATE_NAMES.contains(&name.as_str()) && !others.contains(&name.as_str()) {
                let name = name.replace('~', "~0").replace('/', "~1");
                self.add(&format!("{pointer}/{name}"), "is not known");
            }
        }
        let mut rate = |name: &str, fallback: Option<Option<u32>>| {
            let pointer = format!("{pointer}/{name}");
            match (rates.get(name), fallback) {
                (Some(value), _) => {
                    let read = nano_usd(value);
                    read.map_err(|problem| self.add(&pointer, problem)).ok()
                }
                (None, Some(fallback)) => fallback,
                (None, None) => {
                    self.add(&pointer, "is required");
                    None
                }
            }
        };
        let input = rate("input", None);
        let audio = rate("audio", Some(input));
        let cached = rate("cached", Some(input));
        let output = rate("output", None);
        Some(Rates {
            input: input?,
            audio: audio?,
            cached: cached?,
            output: output?,
        })
    }
}

fn bare(name: &str) -> String {
    name.strip_prefix("models/").unwrap_or(name).to_owned()
}

fn date(text: &str) -> Option<Timestamp> {
    let whole = text.len() == "2026-12-01".len();
    whole
        .then(|| Timestamp::parse_rfc3339(&format!("{text}T00:00:00Z")))
        .flatten()
}

/// Dollars for a million tokens, as a number or a text, in nano-dollars for one. It is read from
/// its digits: a detour through a double could lose a billionth.
fn nano_usd(value: &Value) -> Result<u32, &'static str> {
    let text = match value {
        Value::Number(number) => number.to_string(),
        Value::String(text) => text.clone(),
        _ => return Err("must be a price in US dollars for a million tokens"),
    };
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(fraction) {
        return Err("must be a price in US dollars for a million tokens");
    }
    let fraction = fraction.trim_end_matches('0');
    if fraction.len() > 3 {
        return Err("must not be finer than a thousandth of a dollar");
    }
    let whole = whole.parse::<u32>().ok().filter(|whole| *whole <= USD_MAX);
    let thousandths = format!("{fraction:0<3}").parse::<u32>().ok();
    let sum = whole
        .zip(thousandths)
        .and_then(|(whole, thousandths)| whole.checked_mul(1_000)?.checked_add(thousandths));
    sum.ok_or("must not be over 1,000,000 dollars")
}

/// Google's list prices for paid use, read on 2026-11-16 and before.
pub(crate) fn google() -> PriceTable {
    let models = GOOGLE.iter().map(|(name, prices)| {
        let prices = prices.iter().filter_map(|(from, rates, long)| {
            Some(Price {
                from: from.map_or(Some(ALWAYS), date)?,
                rates: *rates,
                long: *long,
            })
        });
        ((*name).to_owned(), prices.collect())
    });
    let aliases = ALIASES
        .iter()
        .map(|(name, model)| ((*name).to_owned(), (*model).to_owned()));
    PriceTable::new(models.collect(), aliases.collect())
}

const fn rates(input: u32, output: u32, cached: u32) -> Rates {
    Rates {
        input,
        audio: input,
        cached,
        output,
    }
}

const fn with_audio(audio: u32, rates: Rates) -> Rates {
    Rates { audio, ..rates }
}

/// A price that counts from a date, or since ever; the rates; those of a long prompt.
type Row = (Option<&'static str>, Rates, Option<Rates>);

/// Nano-dollars a token: input, output, cached.
const GOOGLE: [(&str, &[Row]); 18] = [
    ("gemini-4-argon", &FOUR),
    ("gemini-4-carbon", &FOUR),
    (
        "gemini-4-hydrogen",
        &[(None, rates(1_500, 7_500, 75), None)],
    ),
    ("gemini-4-neon", &[(None, rates(3_000, 15_000, 150), None)]),
    (
        "gemini-3.8-flash",
        &[
            (None, rates(750, 3_750, 75), None),
            // Google has not said what becomes of the cached rate; its share of the input stays.
            (Some("2027-01-01"), rates(1_500, 7_500, 150), None),
        ],
    ),
    ("gemini-3.7-flash", &[(None, rates(750, 3_750, 75), None)]),
    ("gemini-3.6-flash", &[(None, rates(750, 3_750, 75), None)]),
    (
        "gemini-3.5-flash",
        &[(None, rates(1_500, 9_000, 150), None)],
    ),
    (
        "gemini-3.5-flash-lite",
        &[(None, rates(300, 2_500, 30), None)],
    ),
    (
        "gemini-3.1-pro-preview",
        &[(
            None,
            rates(2_000, 12_000, 200),
            Some(rates(4_000, 18_000, 400)),
        )],
    ),
    (
        "gemini-3.1-flash-lite",
        &[(None, with_audio(500, rates(250, 1_500, 25)), None)],
    ),
    (
        "gemini-3-flash-preview",
        &[(None, with_audio(1_000, rates(500, 3_000, 50)), None)],
    ),
    (
        "gemini-2.5-pro",
        &[(
            None,
            rates(1_250, 10_000, 125),
            Some(rates(2_500, 15_000, 250)),
        )],
    ),
    (
        "gemini-2.5-flash",
        &[(None, with_audio(1_000, rates(300, 2_500, 30)), None)],
    ),
    (
        "gemini-2.5-flash-lite",
        &[(None, with_audio(300, rates(100, 400, 10)), None)],
    ),
    ("gemma-4-31b-it", &[(None, rates(0, 0, 0), None)]),
    ("gemma-4-26b-a4b-it", &[(None, rates(0, 0, 0), None)]),
    (
        "gemini-3.1-pro-preview-customtools",
        &[(
            None,
            rates(2_000, 12_000, 200),
            Some(rates(4_000, 18_000, 400)),
        )],
    ),
];

const FOUR: [Row; 2] = [
    (None, rates(2_000, 10_000, 100), None),
    (Some("2026-12-01"), rates(4_000, 20_000, 200), None),
];

/// Names that move with Google's releases.
const ALIASES: [(&str, &str); 3] = [
    ("gemini-pro-latest", "gemini-3.1-pro-preview"),
    ("gemini-flash-latest", "gemini-3.8-flash"),
    ("gemini-flash-lite-latest", "gemini-3.5-flash-lite"),
];

const RATE_NAMES: [&str; 4] = ["input", "audio", "cached", "output"];
/// Before any request.
const ALWAYS: Timestamp = Timestamp::from_millis(i64::MIN);
/// No price of a million tokens is near this; it keeps a rate within 32 bits.
const USD_MAX: u32 = 1_000_000;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn faults(prices: &Value) -> String {
        let faults = PriceTable::parse(prices).unwrap_err();
        faults
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join("\n")
    }

    #[test]
    fn every_model_of_the_list_has_a_price_on_every_day() {
        let table = PriceTable::default();
        for name in GOOGLE
            .iter()
            .map(|(name, _)| name)
            .chain(ALIASES.iter().map(|(name, _)| name))
        {
            assert!(table.price(name, ALWAYS).is_some(), "{name}");
        }
        for (name, rows) in GOOGLE {
            let dates = rows
                .iter()
                .all(|(from, ..)| from.is_none_or(|from| date(from).is_some()));
            assert!(dates, "{name}");
        }
    }

    #[test]
    fn an_entry_takes_the_place_of_the_listed_one() {
        let table = PriceTable::parse(&json!({
            "models/gemini-4-argon": {"input": "1.5", "output": 2.25},
            "gemini-3.8-flash": [
                {"input": 1, "output": 1}, {"from": "2026-06-01", "input": 2, "output": 2},
            ],
            "gemini-4-neon": "gemini-flash-latest",
            "gemini-pro-latest": {"input": 7, "output": 7, "audio": 8, "cached": 0.001},
        }))
        .unwrap();
        let rates = |name, date| {
            table
                .price(name, Timestamp::parse_rfc3339(date).unwrap())
                .unwrap()
                .rates
        };
        let december = "2026-12-02T00:00:00Z";
        let argon = Rates {
            input: 1_500,
            audio: 1_500,
            cached: 1_500,
            output: 2_250,
        };
        assert_eq!(rates("gemini-4-argon", december), argon);
        assert_eq!(rates("gemini-4-neon", december).input, 2_000);
        assert_eq!(rates("gemini-4-neon", "2026-05-31T23:59:59Z").input, 1_000);
        let pro = Rates {
            input: 7_000,
            audio: 8_000,
            cached: 1,
            output: 7_000,
        };
        assert_eq!(rates("gemini-pro-latest", december), pro);
        assert_eq!(rates("gemini-4-carbon", december).input, 4_000);
        assert_eq!(PriceTable::parse(&json!({})), Ok(PriceTable::default()));
    }

    #[test]
    fn a_price_is_read_from_its_digits() {
        assert_eq!(nano_usd(&json!(0.075)), Ok(75));
        assert_eq!(nano_usd(&json!(0.29)), Ok(290));
        assert_eq!(nano_usd(&json!("1.1000")), Ok(1_100));
        assert_eq!(nano_usd(&json!(1_000_000)), Ok(1_000_000_000));
        for odd in [
            json!(0.0001),
            json!(-1),
            json!(1_000_001),
            json!(null),
            json!("1e3"),
            json!(1e-7),
            json!(""),
            json!("."),
            json!("1."),
            json!(".5"),
            json!("+1"),
            json!("99999999999"),
        ] {
            assert!(nano_usd(&odd).is_err(), "{odd}");
        }
    }

    #[test]
    fn all_faults_are_reported_by_their_pointers() {
        insta::assert_snapshot!(faults(&json!([])), @": must be an object of prices by model");
        insta::assert_snapshot!(faults(&json!({
            "a": 1,
            "b": [],
            "c": [{"input": 1, "output": 1}, 2, {"input": 3, "output": 3}],
            "d/e": {"input": -1, "cached": 0.0001, "outptu": 2, "long": {"input": 1}},
            "f": {"input": 1, "output": 1, "from": "2026-02-30", "long": 7},
            "g": "h",
            "i": "j",
            "j": "i",
        })), @r#"
    /a: must be a price, a list of prices, or the name of a model
    /b: must be a price, a list of prices, or the name of a model
    /c/1: must be an object
    /c/2/from: is the date of another price
    /d~1e/outptu: is not known
    /d~1e/input: must be a price in US dollars for a million tokens
    /d~1e/cached: must not be finer than a thousandth of a dollar
    /d~1e/output: is required
    /d~1e/long/output: is required
    /f/from: must be a date such as 2026-12-01
    /f/long: must be an object
    /g: names a model without a price
    /i: names a model without a price
    /j: names a model without a price
    "#);
    }
}
