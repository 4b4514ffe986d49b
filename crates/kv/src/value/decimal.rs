//! Doubles as text, the way C's `%.17g` and Redis write and read them.

mod extended;

use extended::{DIGITS, Extended};

/// Formats like C's `%.17g`. Infinities are `inf` and `-inf`.
pub fn format_g17(value: f64) -> String {
    format_g(value, 17)
}

/// Formats like C's `%g` with this number of digits.
pub fn format_g(value: f64, precision: usize) -> String {
    if value.is_nan() {
        return "nan".into();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf".into() } else { "-inf".into() };
    }
    if value == 0.0 {
        return if value.is_sign_negative() { "-0".into() } else { "0".into() };
    }
    let scientific = format!("{value:.*e}", precision - 1);
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let (sign, mantissa) = mantissa.strip_prefix('-').map_or(("", mantissa), |rest| ("-", rest));
    let digits: String = mantissa.chars().filter(|&digit| digit != '.').collect();
    let digits = digits.trim_end_matches('0');
    let point = exponent + 1;
    if !(-4..precision as i32).contains(&exponent) {
        let (first, rest) = digits.split_at(1);
        let dot = if rest.is_empty() { "" } else { "." };
        let exponent_sign = if exponent < 0 { '-' } else { '+' };
        format!("{sign}{first}{dot}{rest}e{exponent_sign}{:02}", exponent.abs())
    } else if point <= 0 {
        format!("{sign}0.{}{digits}", "0".repeat(-point as usize))
    } else if digits.len() <= point as usize {
        format!("{sign}{digits}{}", "0".repeat(point as usize - digits.len()))
    } else {
        let (whole, fraction) = digits.split_at(point as usize);
        format!("{sign}{whole}.{fraction}")
    }
}

/// The text of a score inside a listpack: an integer without a fraction if it is one, else `%.17g`.
pub fn format_score(value: f64) -> String {
    // Redis stores integral scores as integers up to this magnitude. A negative zero loses its sign, as in Redis.
    if value == value.trunc() && value.abs() <= (i64::MAX / 2) as f64 {
        return (value as i64).to_string();
    }
    format_g17(value)
}

/// Parses a double as `strtod` does when the whole text must be consumed: decimal or hexadecimal
/// digits, `inf`, `infinity`. Refuses an empty text, spaces and NaN.
pub fn parse_double(text: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(text).ok()?;
    let (negative, unsigned) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let first = *unsigned.as_bytes().first()?;
    let magnitude = if first.is_ascii_digit() || first == b'.' {
        if unsigned.len() > 2 && unsigned.as_bytes()[..2].eq_ignore_ascii_case(b"0x") {
            parse_hex(&unsigned[2..])?
        } else {
            let value: f64 = unsigned.parse().ok()?;
            if value.is_infinite() {
                // Out of range: strtod reports ERANGE.
                return None;
            }
            value
        }
    } else if unsigned.eq_ignore_ascii_case("inf") || unsigned.eq_ignore_ascii_case("infinity") {
        f64::INFINITY
    } else {
        return None;
    };
    Some(if negative { -magnitude } else { magnitude })
}

/// Parses a double as a bare `strtod` does: leading spaces are skipped, an empty text is zero, and a number that is too
/// large is infinite.
pub fn parse_double_leniently(text: &[u8]) -> Option<f64> {
    if text.is_empty() {
        return Some(0.0);
    }
    let text = text.trim_ascii_start();
    parse_double(text).or_else(|| {
        let digits = text.strip_prefix(b"-").or(text.strip_prefix(b"+")).unwrap_or(text);
        let is_decimal = digits.first().is_some_and(|&first| first.is_ascii_digit() || first == b'.');
        std::str::from_utf8(text).ok().filter(|_| is_decimal)?.parse().ok()
    })
}

fn parse_hex(text: &str) -> Option<f64> {
    let (mantissa, exponent) = match text.find(['p', 'P']) {
        Some(at) => (&text[..at], text[at + 1..].parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let mut value = 0.0f64;
    for digit in whole.chars().chain(fraction.chars()) {
        value = value * 16.0 + f64::from(digit.to_digit(16)?);
    }
    let value = value * 2f64.powi(exponent.checked_sub(4 * i32::try_from(fraction.len()).ok()?)?);
    value.is_finite().then_some(value)
}

/// Adds two decimal numbers, and formats the sum with at most 17 digits behind the point and no
/// trailing zeros. Below 10^20 as Redis does ([`extended`]); larger numbers are added as doubles. Returns `None` if a text isn't a
/// number or the sum is infinite.
pub fn add_decimals(first: &[u8], second: &[u8]) -> Option<String> {
    if let (Some(first), Some(second)) = (parse_fixed(first), parse_fixed(second))
        && let Some(sum) = Extended::of_scaled(first).plus(Extended::of_scaled(second)).to_scaled()
    {
        let scale = 10u128.pow(DIGITS);
        let magnitude = sum.unsigned_abs();
        let sign = if sum < 0 { "-" } else { "" };
        return Some(trim_zeros(format!("{sign}{}.{:017}", magnitude / scale, magnitude % scale)));
    }
    let sum = parse_double(first)? + parse_double(second)?;
    sum.is_finite().then(|| trim_zeros(format!("{sum:.17}")))
}

fn trim_zeros(text: String) -> String {
    let trimmed = text.trim_end_matches('0').trim_end_matches('.');
    if trimmed == "-0" { "0".into() } else { trimmed.into() }
}

/// A decimal number times 10^17; `None` if it has more digits behind the point or is 10^20 or larger.
fn parse_fixed(text: &[u8]) -> Option<i128> {
    let text = std::str::from_utf8(text).ok()?;
    let (mantissa, exponent) = match text.find(['e', 'E']) {
        Some(at) => (&text[..at], text[at + 1..].parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (negative, mantissa) = match mantissa.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, mantissa.strip_prefix('+').unwrap_or(mantissa)),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let mut value: i128 = 0;
    for digit in whole.bytes().chain(fraction.bytes()) {
        if !digit.is_ascii_digit() {
            return None;
        }
        value = value.checked_mul(10)?.checked_add(i128::from(digit - b'0'))?;
    }
    let shift = i64::from(DIGITS) + i64::from(exponent) - fraction.len() as i64;
    for _ in 0..shift.unsigned_abs().min(64) {
        if shift > 0 {
            value = value.checked_mul(10)?;
        } else if value % 10 != 0 {
            return None;
        } else {
            value /= 10;
        }
    }
    (value < 10i128.pow(37)).then_some(if negative { -value } else { value })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn seventeen_digits_are_those_of_c() {
        for (value, text) in [
            (0.1, "0.10000000000000001"),
            (1.5, "1.5"),
            (3.0, "3"),
            (-0.0, "-0"),
            (1e17, "1e+17"),
            (1e16, "10000000000000000"),
            (123456789012345680.0, "1.2345678901234568e+17"),
            (1e-5, "1.0000000000000001e-05"),
            (0.0001, "0.0001"),
            (1e300, "1.0000000000000001e+300"),
            (f64::MAX, "1.7976931348623157e+308"),
            (f64::NEG_INFINITY, "-inf"),
            (-12.25, "-12.25"),
        ] {
            assert_eq!(format_g17(value), text);
        }
    }

    #[test]
    fn doubles_parse_as_strtod_does() {
        for (text, value) in [
            ("1", 1.0),
            ("+1.5", 1.5),
            ("-.5", -0.5),
            ("5.", 5.0),
            ("1e3", 1000.0),
            ("inf", f64::INFINITY),
            ("-Infinity", f64::NEG_INFINITY),
            ("0x1p3", 8.0),
            ("0xA.8", 10.5),
        ] {
            assert_eq!(parse_double(text.as_bytes()), Some(value), "{text}");
        }
        for text in [
            "", " 1", "1 ", "nan", "abc", "1e", "--1", "+", "0x", "1e999", "1_0", ".", "4¥", "¥", "0¥1",
            "-0x¥",
        ] {
            assert_eq!(parse_double(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn lenient_doubles_are_those_of_strtod() {
        for (text, value) in [
            ("", 0.0),
            (" 1", 1.0),
            ("\t-2.5", -2.5),
            ("1e400", f64::INFINITY),
            ("-1e400", f64::NEG_INFINITY),
        ] {
            assert_eq!(parse_double_leniently(text.as_bytes()), Some(value), "{text:?}");
        }
        for text in [" ", "1 ", "x", "nan", "-nan", "1e", "- 1"] {
            assert_eq!(parse_double_leniently(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn decimal_sums_are_those_of_redis() {
        for (first, second, sum) in [
            ("1", "1.23", "2.23"),
            ("2.23", "-2.23", "0"),
            ("3.0e3", "200", "3200"),
            ("17179869184", "1.5", "17179869185.5"),
            ("10.5", "0.1", "10.6"),
            ("0", "-1.1", "-1.1"),
            // What C's `strtold` and `%.17Lf` make of them on x86-64.
            ("9223372036854775807", "1.5", "9223372036854775808"),
            ("1234567890123.1", "0.1", "1234567890123.20000004768371582"),
            ("0.1", "0.2", "0.3"),
            ("-0.1", "0.3", "0.2"),
            ("18446744073709551615", "1", "18446744073709551616"),
            ("18446744073709551617", "0.5", "18446744073709551616"),
            ("99999999999999999999", "0.5", "100000000000000000000"),
            ("123456789.123456789", "-123456789", "0.12345678899873747"),
            ("0.00000000000000001", "0.00000000000000001", "0.00000000000000002"),
            ("1e-17", "1", "1.00000000000000001"),
            ("4503599627370497.3", "0.00000000000000003", "4503599627370497.2998046875"),
            ("-9223372036854775808", "-0.5", "-9223372036854775808"),
            ("3.3", "-3.3", "0"),
            ("100000.7", "-100000.1", "0.60000000000000142"),
            ("1e19", "1e-5", "10000000000000000000"),
            ("-1e19", "3.14159", "-9999999999999999997"),
            ("5.0e15", "0.1", "5000000000000000.10009765625"),
        ] {
            assert_eq!(add_decimals(first.as_bytes(), second.as_bytes()).as_deref(), Some(sum));
        }
        assert_eq!(add_decimals(b"1e300", b"1").map(|sum| sum.len()), Some(301));
        assert_eq!(add_decimals(b"1", b"x"), None);
        assert_eq!(add_decimals(b"1", b"inf"), None);
    }

    proptest! {
        #[test]
        fn formatted_doubles_parse_back(bits in any::<u64>()) {
            let value = f64::from_bits(bits);
            prop_assume!(!value.is_nan());
            prop_assert_eq!(parse_double(format_g17(value).as_bytes()), Some(value));
            prop_assert_eq!(parse_double(format_score(value).as_bytes()), Some(value));
        }
    }
}
