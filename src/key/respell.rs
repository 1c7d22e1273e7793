//! For tests: other spellings of the same value, and other values.

use proptest::prelude::*;

use super::decimal::Decimal;
use super::json::{Json, Number};

/// A small source of choices, so that one seed makes one spelling.
pub(super) struct Choices(pub(super) u64);

impl Choices {
    fn next(&mut self, below: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % below
    }

    fn blank(&mut self) -> &'static str {
        ["", "", " ", "\n", "\t\r\n  "][self.next(5)]
    }

    /// Writes a value with its members in another order, other white space, other escapes, and
    /// other spellings of its numbers.
    pub(super) fn respell(&mut self, json: &Json) -> String {
        let inner = match json {
            Json::Number(number) => self.number(number.as_str()),
            Json::String(text) => self.string(text),
            Json::Array(elements) => {
                let inner: Vec<String> = elements.iter().map(|e| self.respell(e)).collect();
                format!("[{}{}]", self.blank(), inner.join(","))
            }
            Json::Object(members) => {
                let mut inner: Vec<String> = Vec::new();
                for (name, value) in members {
                    let member = format!(
                        "{}{}:{}",
                        self.string(name),
                        self.blank(),
                        self.respell(value)
                    );
                    let at = self.next(inner.len() + 1);
                    inner.insert(at, member);
                }
                format!("{{{}{}}}", self.blank(), inner.join(","))
            }
            other => other.write(),
        };
        format!("{}{inner}{}", self.blank(), self.blank())
    }

    fn string(&mut self, text: &str) -> String {
        let mut out = "\"".to_owned();
        for c in text.chars() {
            let plain = Json::from(c.to_string()).write();
            let mut units = [0; 2];
            match self.next(3) {
                0 => out.extend(
                    c.encode_utf16(&mut units)
                        .iter()
                        .map(|unit| format!("\\u{unit:04X}")),
                ),
                _ => out.push_str(plain.strip_prefix('"').unwrap().strip_suffix('"').unwrap()),
            }
        }
        out + "\""
    }

    fn number(&mut self, spelled: &str) -> String {
        let (mantissa, exponent) = spelled.split_once(['e', 'E']).unwrap_or((spelled, "0"));
        let exponent: i64 = exponent.trim_start_matches('+').parse().unwrap();
        let point = if mantissa.contains('.') { "" } else { "." };
        match self.next(5) {
            0 => spelled.to_owned(),
            1 => format!("{mantissa}E{exponent:+}"),
            2 => format!("{mantissa}{point}00e{exponent}"),
            3 if point == "." && mantissa.trim_start_matches('-') != "0" => {
                format!("{mantissa}00e{}", exponent - 2)
            }
            _ => format!("{mantissa}{point}0e{exponent:03}"),
        }
    }
}

/// Whether two values are one: written down slowly, and apart from the code under test.
pub(super) fn equal(a: &Json, b: &Json) -> bool {
    match (a, b) {
        (Json::Number(a), Json::Number(b)) => {
            Decimal::parse(a.as_str()) == Decimal::parse(b.as_str())
        }
        (Json::Array(a), Json::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal(a, b))
        }
        (Json::Object(a), Json::Object(other)) => {
            let found =
                |(name, value): &(String, Json)| b.get(name).is_some_and(|b| equal(value, b));
            a.len() == other.len() && a.iter().all(found)
        }
        (Json::Number(_) | Json::Array(_) | Json::Object(_), _) => false,
        (a, b) => a == b,
    }
}

/// Values that often differ in one place only.
pub(super) fn json() -> impl Strategy<Value = Json> {
    let number = prop::sample::select(vec![
        "0", "-0", "1", "1.0", "10", "-1", "0.1", "1e1", "1e999",
    ]);
    let text = prop::sample::select(vec![
        "",
        "a",
        "b",
        "aB",
        "a_b",
        "é",
        "e\u{301}",
        "\"\\\u{0}",
        "😀",
    ]);
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::Bool),
        number.prop_map(|text| Json::Number(Number::parse(text).unwrap())),
        text.clone().prop_map(Json::from),
        text.clone()
            .prop_map(|text| Json::from(text.repeat(70) + "end of a long text")),
    ];
    leaf.prop_recursive(3, 12, 3, move |inner| {
        let members =
            prop::collection::btree_map(text.clone().prop_map(str::to_owned), inner.clone(), 0..4);
        prop_oneof![
            prop::collection::vec(inner, 0..4).prop_map(Json::Array),
            members.prop_map(|members| Json::Object(members.into_iter().collect())),
        ]
    })
}
