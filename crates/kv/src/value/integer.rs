//! Canonical decimal integers: the strings that compact encodings store as numbers.
//!
//! A string is canonical if formatting the parsed number gives back the same bytes: no sign on
//! zero, no leading zeros, no spaces, no plus sign.

/// The longest canonical integer: `-9223372036854775808`.
pub const INTEGER_CHARS_MAX: usize = 20;

/// Parses a canonical decimal integer. Returns `None` for every other string.
pub fn parse_integer(text: &[u8]) -> Option<i64> {
    if text.is_empty() || text.len() > INTEGER_CHARS_MAX {
        return None;
    }
    let (negative, digits) = match text[0] {
        b'-' => (true, &text[1..]),
        _ => (false, text),
    };
    match digits.first()? {
        b'0' if digits.len() == 1 && !negative => return Some(0),
        b'1'..=b'9' => {}
        _ => return None,
    }
    let mut magnitude: u64 = 0;
    for &digit in digits {
        let value = digit.wrapping_sub(b'0');
        if value > 9 {
            return None;
        }
        magnitude = magnitude.checked_mul(10)?.checked_add(u64::from(value))?;
    }
    if negative {
        if magnitude > i64::MIN.unsigned_abs() {
            return None;
        }
        Some(magnitude.wrapping_neg() as i64)
    } else {
        i64::try_from(magnitude).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_canonical_integers_parse() {
        for value in [0, 1, -1, 9, 10, -10, i64::MAX, i64::MIN, i64::MAX - 1, i64::MIN + 1] {
            assert_eq!(parse_integer(value.to_string().as_bytes()), Some(value));
        }
        for text in [
            "",
            "-",
            "-0",
            "00",
            "01",
            "+1",
            " 1",
            "1 ",
            "1.0",
            "9223372036854775808",
            "-9223372036854775809",
            "99999999999999999999",
            "a",
        ] {
            assert_eq!(parse_integer(text.as_bytes()), None, "{text}");
        }
    }
}
