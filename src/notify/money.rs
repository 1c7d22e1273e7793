//! Amounts for people: micro-dollars in the currency of reports.

use crate::config::Currency;

/// An amount of micro-dollars as people read it.
///
/// ```
/// use oncepress::config::Currency;
/// use oncepress::notify::money::show;
/// let yen = Currency { code: "JPY".to_owned(), micros_per_usd: 150_500_000 };
/// assert_eq!(show(&yen, 231_000), "JPY 35");
/// let dollar = Currency { code: "USD".to_owned(), micros_per_usd: 1_000_000 };
/// assert_eq!(show(&dollar, 1_234_567_890), "$1234.57");
/// assert_eq!(show(&dollar, 1_200), "under $0.01");
/// ```
pub fn show(currency: &Currency, micro_usd: i64) -> String {
    let micros = i128::from(micro_usd).saturating_mul(i128::from(currency.micros_per_usd));
    let whole_only = WITHOUT_CENTS.contains(&currency.code.as_str());
    // The smallest unit that is shown, in millionths of a millionth.
    let unit: i128 = if whole_only {
        1_000_000_000_000
    } else {
        10_000_000_000
    };
    // Written with 64 bits, which is more than all money: 128 take code of their own.
    let units = micros.saturating_add(unit / 2).div_euclid(unit);
    let units = i64::try_from(units).unwrap_or(i64::MAX);
    let sign = |amount: String| {
        if currency.code == "USD" {
            format!("${amount}")
        } else {
            format!("{} {amount}", currency.code)
        }
    };
    let write = |units: i64| {
        if whole_only {
            units.to_string()
        } else {
            format!("{}.{:02}", units / 100, units.rem_euclid(100))
        }
    };
    if units == 0 && micros > 0 {
        return format!("under {}", sign(write(1)));
    }
    sign(write(units))
}

/// A share as a percentage with so many decimals, at most 6; without the formatting of floating
/// point numbers, which takes 16 KB of the Worker.
///
/// ```
/// use oncepress::notify::money::percent;
/// assert_eq!(percent(0.001_25, 3), "0.125 %");
/// assert_eq!(percent(1.0, 2), "100.00 %");
/// ```
pub fn percent(share: f64, decimals: u32) -> String {
    let unit = 10_u64.pow(decimals.min(6));
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a share is from 0 to 1"
    )]
    let units = (share * 100.0 * unit as f64).round() as u64;
    let digits = usize::try_from(decimals).unwrap_or_default();
    let whole = units.checked_div(unit).unwrap_or_default();
    let rest = units.checked_rem(unit).unwrap_or_default();
    format!("{whole}.{rest:0digits$} %")
}

/// Millionths a dollar as a decimal number: `150.5`.
pub fn per_usd(currency: &Currency) -> String {
    let (whole, rest) = (
        currency.micros_per_usd / 1_000_000,
        currency.micros_per_usd % 1_000_000,
    );
    if rest == 0 {
        return whole.to_string();
    }
    let digits = format!("{rest:06}");
    format!("{whole}.{}", digits.trim_end_matches('0'))
}

/// Currencies whose smallest unit is a whole one (ISO 4217).
const WITHOUT_CENTS: [&str; 16] = [
    "BIF", "CLP", "DJF", "GNF", "ISK", "JPY", "KMF", "KRW", "PYG", "RWF", "UGX", "VND", "VUV",
    "XAF", "XOF", "XPF",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_written_without_needless_digits() {
        let of = |micros_per_usd| {
            per_usd(&Currency {
                code: "EUR".to_owned(),
                micros_per_usd,
            })
        };
        assert_eq!(of(1_000_000), "1");
        assert_eq!(of(925_000), "0.925");
        assert_eq!(of(150_000_001), "150.000001");
    }

    #[test]
    fn nothing_costs_nothing_and_cents_are_rounded_to_the_nearest() {
        let euro = Currency {
            code: "EUR".to_owned(),
            micros_per_usd: 900_000,
        };
        assert_eq!(show(&euro, 0), "EUR 0.00");
        assert_eq!(show(&euro, 1_000_000), "EUR 0.90");
        assert_eq!(show(&euro, 16_700), "EUR 0.02");
    }
}
