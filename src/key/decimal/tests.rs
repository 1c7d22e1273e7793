use proptest::prelude::*;

use super::*;

fn canonical(text: &str) -> String {
    Decimal::parse(text)
        .unwrap_or_else(|| panic!("{text} is a number"))
        .to_string()
}

/// Moves the point through the digits one place at a time, as one does on paper: slow, and of
/// use only for small exponents, but with nothing in common with the code under test.
fn on_paper(text: &str) -> (bool, String, String) {
    let lower = text.to_lowercase();
    let (mantissa, exponent) = lower.split_once('e').unwrap_or((&lower, "0"));
    let negative = mantissa.starts_with('-');
    let mantissa = mantissa.trim_start_matches('-');
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let (mut whole, mut fraction) = (whole.to_owned(), fraction.to_owned());
    let exponent: i32 = exponent.trim_start_matches('+').parse().unwrap();
    for _ in 0..exponent.max(0) {
        whole.push(if fraction.is_empty() {
            '0'
        } else {
            fraction.remove(0)
        });
    }
    for _ in exponent.min(0)..0 {
        fraction.insert(0, whole.pop().unwrap_or('0'));
    }
    let whole = whole.trim_start_matches('0').to_owned();
    let fraction = fraction.trim_end_matches('0').to_owned();
    let zero = whole.is_empty() && fraction.is_empty();
    (negative && !zero, whole, fraction)
}

fn number() -> impl Strategy<Value = String> {
    "-?(0|[1-9][0-9]{0,4})(\\.[0-9]{1,4}|\\.0{1,3}|)([eE][+-]?[0-9]{1,2}|)"
}

proptest! {
    #[test]
    fn two_numbers_share_a_form_exactly_if_they_are_equal_on_paper(a in number(), b in number()) {
        prop_assert_eq!(canonical(&a) == canonical(&b), on_paper(&a) == on_paper(&b));
    }

    #[test]
    fn a_number_and_its_respelling_share_a_form(a in number(), zeros in 0_usize..4, shift in 0..9) {
        let (mantissa, exponent) = a.split_once(['e', 'E']).unwrap_or((&a, "0"));
        let point = if mantissa.contains('.') { "" } else { ".0" };
        let exponent: i32 = exponent.trim_start_matches('+').parse().unwrap();
        let padded = format!("{mantissa}{point}{}E{exponent}", "0".repeat(zeros));
        prop_assert_eq!(canonical(&a), canonical(&padded));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let fraction = format!("{fraction:0<9}");
        let (near, far) = fraction.split_at(usize::try_from(shift).unwrap());
        let moved = format!("{whole}{near}.{far}0");
        let negative = moved.starts_with('-');
        let plain = moved.trim_start_matches('-').trim_start_matches('0');
        let lead = if plain.starts_with('.') { "0" } else { "" };
        let sign = if negative { "-" } else { "" };
        let moved = format!("{sign}{lead}{plain}e{}", exponent - shift);
        prop_assert_eq!(canonical(&a), canonical(&moved), "{}", moved);
    }

    #[test]
    fn the_canonical_form_is_a_number_and_its_own_canonical_form(a in number()) {
        prop_assert_eq!(canonical(&canonical(&a)), canonical(&a));
        prop_assert_eq!(on_paper(&canonical(&a)), on_paper(&a));
    }

    #[test]
    fn exponents_beyond_an_integer_are_added_exactly(
        negative: bool, digits in "[09]{0,3}[0-9]{1,33}", shift in -2_000_i64..2_000,
    ) {
        let magnitude: i128 = digits.parse().unwrap();
        let exact = if negative { -magnitude } else { magnitude } + i128::from(shift);
        prop_assert_eq!(sum(negative, &digits, shift), exact.to_string());
    }

    #[test]
    fn integers_survive_the_way_there_and_back(value: i64) {
        prop_assert_eq!(Decimal::parse(&value.to_string()).unwrap().to_i64(), Some(value));
        let shifted = format!("{value}000e-3");
        prop_assert_eq!(Decimal::parse(&shifted).unwrap().to_i64(), Some(value));
    }
}

#[test]
fn exponents_carry_and_borrow_across_their_whole_length() {
    for length in (1..=40).chain([300]) {
        let nines = "9".repeat(length);
        let power = format!("1{}", "0".repeat(length));
        assert_eq!(canonical(&format!("10e{nines}")), format!("1e{power}"));
        assert_eq!(canonical(&format!("0.1e{power}")), format!("1e{nines}"));
        assert_eq!(canonical(&format!("0.1e-{nines}")), format!("1e-{power}"));
        assert_eq!(canonical(&format!("10e-{power}")), format!("1e-{nines}"));
        assert_ne!(
            canonical(&format!("1e{nines}")),
            canonical(&format!("1e{power}"))
        );
    }
}

#[test]
fn neighbours_that_a_double_merges_stay_apart() {
    for (left, right) in [
        ("9007199254740993", "9007199254740992"),
        ("1e-400", "0"),
        ("1e400", "1e401"),
        ("0.1", "0.10000000000000000001"),
        ("1e999999999", "1e999999998"),
        ("1e-999999999999999999999", "-1e-999999999999999999999"),
    ] {
        assert_ne!(canonical(left), canonical(right));
    }
}

#[test]
fn zero_has_one_form_whatever_its_sign_and_exponent() {
    for text in [
        "0",
        "-0",
        "0.0",
        "-0.000",
        "0e5",
        "0E-99999999999999999999",
        "-0e+7",
    ] {
        assert_eq!(canonical(text), "0", "{text}");
    }
}

#[test]
fn only_the_grammar_of_json_is_a_number() {
    for text in [
        "", "-", "+1", "01", "-01", "00", ".5", "1.", "1.e3", "1e", "1e+", "1e+-2", "1e-+2", "0x1",
        "1_0", " 1", "1 ", "NaN", "Infinity", "--1", "1e1.5", "1.2.3", "１",
    ] {
        assert_eq!(Decimal::parse(text), None, "{text}");
        assert!(!Decimal::is_number(text), "{text}");
    }
}

#[test]
fn only_whole_numbers_that_fit_are_integers() {
    let integer = |text| Decimal::parse(text).unwrap().to_i64();
    assert_eq!(integer("30.0"), Some(30));
    assert_eq!(integer("3e1"), Some(30));
    assert_eq!(integer("-9223372036854775808"), Some(i64::MIN));
    for text in [
        "0.5",
        "30e-2",
        "9223372036854775808",
        "1e19",
        "1e999999999",
        "1e-999999999",
    ] {
        assert_eq!(integer(text), None, "{text}");
    }
}
