//! Reading arguments.

use super::{Arg, CommandError};
use crate::resp::parse::parse_i64;
use crate::value::decimal::parse_double;

/// Whether an argument is the word, in any case.
pub fn is(arg: Arg<'_>, word: &str) -> bool {
    arg.eq_ignore_ascii_case(word.as_bytes())
}

pub fn int(arg: Arg<'_>) -> Result<i64, CommandError> {
    parse_i64(arg).ok_or(CommandError::NotInteger)
}

/// An integer from `min` to `max`, or an error of `text`.
pub fn int_within(arg: Arg<'_>, min: i64, max: i64, text: &'static str) -> Result<i64, CommandError> {
    parse_i64(arg).filter(|number| (min..=max).contains(number)).ok_or(CommandError::of(text))
}

/// A number as C's `strtold` reads it, without spaces and not NaN.
pub fn float(arg: Arg<'_>) -> Result<f64, CommandError> {
    parse_float(arg).ok_or(CommandError::NotFloat)
}

pub fn parse_float(arg: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(arg).ok()?;
    if text.is_empty() || text.len() > 256 || text.bytes().any(|byte| byte.is_ascii_whitespace()) {
        return None;
    }
    let number = parse_double(arg).or_else(|| text.parse().ok())?;
    (!number.is_nan()).then_some(number)
}

/// The text of an argument for an error message or a log.
pub fn text(arg: Arg<'_>) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(arg)
}

/// A timeout in seconds, as the Unix time in milliseconds at which it is over; `None` if it is 0.
pub fn timeout(arg: Arg<'_>, now_ms: i64) -> Result<Option<i64>, CommandError> {
    let seconds = parse_float(arg).ok_or(CommandError::of("ERR timeout is not a float or out of range"))?;
    if seconds < 0.0 {
        return Err(CommandError::of("ERR timeout is negative"));
    }
    let ms = (seconds * 1000.0).ceil();
    if ms > (i64::MAX - now_ms) as f64 {
        return Err(CommandError::of("ERR timeout is out of range"));
    }
    Ok((ms > 0.0).then_some(now_ms + ms as i64))
}
