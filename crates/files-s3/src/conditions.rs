//! Conditional requests and ranges of bytes, as RFC 9110 and S3 say. Pure.

use http::HeaderMap;
use http::header::{IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_UNMODIFIED_SINCE, RANGE};
use std::time::SystemTime;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Condition {
    /// It holds, or the request has no condition.
    Holds,
    NotModified,
    Failed,
}

fn text<'a>(headers: &'a HeaderMap, name: &http::HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// Whether a list of entity tags, or `*`, names this one.
fn names(list: &str, etag: &str) -> bool {
    let bare = |tag: &str| tag.trim().trim_start_matches("W/").trim_matches('"').to_string();
    list.trim() == "*" || list.split(',').any(|one| bare(one) == bare(etag))
}

pub fn condition(headers: &HeaderMap, etag: &str, modified: Option<SystemTime>) -> Condition {
    let date = |name| text(headers, name).and_then(|text| httpdate::parse_http_date(text).ok());
    let is_later = |name| Some(modified? > date(name)?);
    match text(headers, &IF_MATCH) {
        Some(list) if !names(list, etag) => return Condition::Failed,
        None if is_later(&IF_UNMODIFIED_SINCE) == Some(true) => return Condition::Failed,
        _ => {}
    }
    match text(headers, &IF_NONE_MATCH) {
        Some(list) if names(list, etag) => Condition::NotModified,
        None if is_later(&IF_MODIFIED_SINCE) == Some(false) => Condition::NotModified,
        _ => Condition::Holds,
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Range {
    Whole,
    /// From, and how many bytes; at least one.
    Part(u64, u64),
    /// The store says what it makes of it.
    Unclear,
}

/// The range that a request asks for of an object of `length` bytes.
pub fn range(headers: &HeaderMap, length: u64) -> Range {
    let Some(value) = headers.get(RANGE) else { return Range::Whole };
    let part = || {
        let (first, last) = value.to_str().ok()?.strip_prefix("bytes=")?.split_once('-')?;
        let number = |text: &str| match text.bytes().all(|byte| byte.is_ascii_digit()) {
            true => text.parse::<u64>().ok(),
            false => None,
        };
        let (from, end) = match (first.is_empty(), last.is_empty()) {
            (true, true) => return None,
            (true, false) => (length.saturating_sub(number(last).filter(|bytes| *bytes > 0)?), length),
            (false, true) => (number(first)?, length),
            (false, false) => {
                let (from, last) = (number(first)?, number(last)?);
                (from, if last < from { return None } else { last.saturating_add(1).min(length) })
            }
        };
        (from < end).then(|| Range::Part(from, end - from))
    };
    part().unwrap_or(Range::Unclear)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn of(pairs: &[(http::HeaderName, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.clone(), value.parse().unwrap())).collect()
    }

    #[test]
    fn conditions_are_those_of_s3() {
        let modified = Some(SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777));
        let (same, before, after) = (
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:36 GMT",
            "Sun, 06 Nov 1994 08:49:38 GMT",
        );
        use Condition::*;
        let cases: [(&[(http::HeaderName, &str)], Condition); 14] = [
            (&[], Holds),
            (&[(IF_MATCH, "\"a\"")], Holds),
            (&[(IF_MATCH, "\"b\", \"a\"")], Holds),
            (&[(IF_MATCH, "*")], Holds),
            (&[(IF_MATCH, "\"b\"")], Failed),
            (&[(IF_NONE_MATCH, "a")], NotModified),
            (&[(IF_NONE_MATCH, "W/\"a\"")], NotModified),
            (&[(IF_NONE_MATCH, "\"b\"")], Holds),
            (&[(IF_MODIFIED_SINCE, same)], NotModified),
            (&[(IF_MODIFIED_SINCE, before)], Holds),
            (&[(IF_UNMODIFIED_SINCE, before)], Failed),
            (&[(IF_UNMODIFIED_SINCE, after)], Holds),
            // The tag goes before the time.
            (&[(IF_MATCH, "\"a\""), (IF_UNMODIFIED_SINCE, before)], Holds),
            (&[(IF_NONE_MATCH, "\"b\""), (IF_MODIFIED_SINCE, same)], Holds),
        ];
        for (headers, expected) in cases {
            assert_eq!(condition(&of(headers), "\"a\"", modified), expected, "{headers:?}");
        }
    }

    #[test]
    fn ranges_lie_in_the_object_or_are_left_to_the_store() {
        use Range::*;
        let cases = [
            ("bytes=0-9", Part(0, 10)),
            ("bytes=90-", Part(90, 10)),
            ("bytes=90-500", Part(90, 10)),
            ("bytes=-10", Part(90, 10)),
            ("bytes=-500", Part(0, 100)),
            ("bytes=99-99", Part(99, 1)),
            ("bytes=100-", Unclear),
            ("bytes=9-8", Unclear),
            ("bytes=-0", Unclear),
            ("bytes=0-1,3-4", Unclear),
            ("bytes=+1-2", Unclear),
            ("lines=0-1", Unclear),
            ("bytes=-", Unclear),
        ];
        for (value, expected) in cases {
            assert_eq!(range(&of(&[(RANGE, value)]), 100), expected, "{value}");
        }
        assert_eq!(range(&of(&[]), 100), Whole);
        assert_eq!(range(&of(&[(RANGE, "bytes=0-9")]), 0), Unclear);
    }
}
