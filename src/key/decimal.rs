//! Exact decimals: numbers compared by value, whatever their size and spelling.
//!
//! ```
//! use oncepress::key::decimal::Decimal;
//! let canonical = |text| Decimal::parse(text).unwrap().to_string();
//! assert_eq!(canonical("1.0"), canonical("10e-1"));
//! assert_eq!(canonical("-0"), "0");
//! assert_ne!(canonical("9007199254740993"), canonical("9007199254740992"));
//! assert_eq!(canonical("1e999999999"), "1e999999999");
//! ```

use std::fmt;

/// The value of a JSON number: ± digits × 10^exponent, neither rounded nor expanded.
///
/// The digits begin and end with another digit than 0, so each value has one form. Zero is the
/// digit 0 with exponent 0 and no sign.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Decimal {
    negative: bool,
    digits: String,
    /// A plain integer of any length, since `1e` may be followed by hundreds of digits.
    exponent: String,
}

impl Decimal {
    /// Reads a number in JSON's grammar; anything else is `None`.
    pub fn parse(text: &str) -> Option<Self> {
        Spelling::read(text).map(|spelling| spelling.value())
    }

    /// Whether a text is a number in JSON's grammar.
    pub fn is_number(text: &str) -> bool {
        Spelling::read(text).is_some()
    }

    /// The value as an integer, if it is one and fits.
    pub fn to_i64(&self) -> Option<i64> {
        let digits: u64 = self.digits.parse().ok()?;
        let power = 10_u64.checked_pow(self.exponent.parse().ok()?)?;
        let magnitude = digits.checked_mul(power)?;
        if self.negative {
            0_i64.checked_sub_unsigned(magnitude)
        } else {
            i64::try_from(magnitude).ok()
        }
    }
}

/// The canonical form: `-`, digits, and `e` with the exponent unless that is 0.
impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.negative { "-" } else { "" };
        write!(f, "{sign}{}", self.digits)?;
        if self.exponent == "0" {
            Ok(())
        } else {
            write!(f, "e{}", self.exponent)
        }
    }
}

/// A number cut into the parts of JSON's grammar; fraction and exponent may be empty.
struct Spelling<'a> {
    negative: bool,
    whole: &'a str,
    fraction: &'a str,
    exponent_negative: bool,
    exponent: &'a str,
}

impl<'a> Spelling<'a> {
    fn read(text: &'a str) -> Option<Self> {
        let (negative, unsigned) = minus(text);
        let (whole, rest) = digits(unsigned)?;
        if whole.len() > 1 && whole.starts_with('0') {
            return None;
        }
        let (fraction, rest) = match rest.strip_prefix('.') {
            Some(after) => digits(after)?,
            None => ("", rest),
        };
        let (exponent_negative, exponent, rest) = match rest.strip_prefix(['e', 'E']) {
            Some(after) => {
                let (negative, unsigned) = match after.strip_prefix('+') {
                    Some(unsigned) => (false, unsigned),
                    None => minus(after),
                };
                let (exponent, rest) = digits(unsigned)?;
                (negative, exponent, rest)
            }
            None => (false, "", rest),
        };
        let spelling = Self {
            negative,
            whole,
            fraction,
            exponent_negative,
            exponent,
        };
        rest.is_empty().then_some(spelling)
    }

    fn value(&self) -> Decimal {
        let all = [self.whole, self.fraction].concat();
        let leading = all.trim_start_matches('0');
        let digits = leading.trim_end_matches('0');
        if digits.is_empty() {
            return Decimal {
                negative: false,
                digits: "0".to_owned(),
                exponent: "0".to_owned(),
            };
        }
        let stripped = length(leading).saturating_sub(length(digits));
        let shift = stripped.saturating_sub(length(self.fraction));
        Decimal {
            negative: self.negative,
            digits: digits.to_owned(),
            exponent: sum(self.exponent_negative, self.exponent, shift),
        }
    }
}

/// Whether a minus leads the text, and what follows it.
fn minus(text: &str) -> (bool, &str) {
    text.strip_prefix('-')
        .map_or((false, text), |rest| (true, rest))
}

/// One or more digits, and what follows them.
fn digits(text: &str) -> Option<(&str, &str)> {
    let end = text
        .bytes()
        .position(|byte| !byte.is_ascii_digit())
        .unwrap_or(text.len());
    if end == 0 {
        None
    } else {
        text.split_at_checked(end)
    }
}

fn length(text: &str) -> i64 {
    i64::try_from(text.len()).unwrap_or(i64::MAX)
}

/// ± `magnitude` (decimal digits, perhaps none) plus `shift`, as a plain integer.
fn sum(negative: bool, magnitude: &str, shift: i64) -> String {
    let magnitude = magnitude.trim_start_matches('0');
    if magnitude.len() <= I64_SAFE_DIGITS {
        let value = magnitude.parse::<i64>().unwrap_or(0);
        let value = if negative {
            value.saturating_neg()
        } else {
            value
        };
        // Nothing saturates: `shift` counts characters, and nine times this value would still fit.
        return value.saturating_add(shift).to_string();
    }
    // The magnitude has 19 digits or more, and `shift` counts characters of one text: the sum
    // keeps the magnitude's sign, so the shift is carried through from the last digit on.
    let mut carry = if negative {
        shift.saturating_neg()
    } else {
        shift
    };
    let mut reversed: Vec<char> = Vec::with_capacity(magnitude.len().saturating_add(1));
    for byte in magnitude.bytes().rev() {
        let total = i64::from(byte.saturating_sub(b'0')).saturating_add(carry);
        reversed.push(digit(total.rem_euclid(10)));
        carry = total.div_euclid(10);
    }
    if carry > 0 {
        reversed.extend(carry.to_string().chars().rev());
    }
    while reversed.last() == Some(&'0') {
        reversed.pop();
    }
    reversed.extend(negative.then_some('-'));
    reversed.iter().rev().collect()
}

fn digit(value: i64) -> char {
    u32::try_from(value)
        .ok()
        .and_then(|value| char::from_digit(value, 10))
        .unwrap_or('0')
}

/// So many digits always fit into an `i64`.
const I64_SAFE_DIGITS: usize = 18;

#[cfg(test)]
mod tests;
