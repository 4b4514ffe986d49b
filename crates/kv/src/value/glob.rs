//! Glob patterns as KEYS, SCAN and PSUBSCRIBE take them: `*`, `?`, `[abc]`, `[^a-z]` and `\` before a byte that means itself.
//!
//! After a `*` fails to match, only the last `*` is tried again with one more byte, so the time is at most the
//! product of the two lengths.

pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut from) = (0, 0);
    // Where to go on if what follows the last `*` doesn't match: after it, with one more byte of the text taken.
    let mut retry: Option<(usize, usize)> = None;
    while from < text.len() || at < pattern.len() {
        if at < pattern.len() {
            if pattern[at] == b'*' {
                retry = Some((at + 1, from));
                at += 1;
                continue;
            }
            if from < text.len()
                && let Some(next) = match_one(pattern, at, text[from])
            {
                at = next;
                from += 1;
                continue;
            }
        }
        match retry {
            Some((after, start)) if start < text.len() => {
                at = after;
                from = start + 1;
                retry = Some((after, start + 1));
            }
            _ => return false,
        }
    }
    true
}

/// Matches one byte against the element of the pattern at `at`; returns where the next element is.
fn match_one(pattern: &[u8], at: usize, byte: u8) -> Option<usize> {
    match pattern[at] {
        b'?' => Some(at + 1),
        b'\\' if at + 1 < pattern.len() => (pattern[at + 1] == byte).then_some(at + 2),
        b'[' => match_class(pattern, at + 1, byte),
        own => (own == byte).then_some(at + 1),
    }
}

/// A class without an end reaches to the end of the pattern.
fn match_class(pattern: &[u8], mut at: usize, byte: u8) -> Option<usize> {
    let negated = pattern.get(at) == Some(&b'^');
    at += usize::from(negated);
    let mut found = false;
    loop {
        match pattern.get(at) {
            None => break,
            Some(b']') => {
                at += 1;
                break;
            }
            Some(b'\\') if at + 1 < pattern.len() => {
                found |= pattern[at + 1] == byte;
                at += 2;
            }
            Some(&low) if at + 2 < pattern.len() && pattern[at + 1] == b'-' => {
                let high = pattern[at + 2];
                found |= (low.min(high)..=low.max(high)).contains(&byte);
                at += 3;
            }
            Some(&own) => {
                found |= own == byte;
                at += 1;
            }
        }
    }
    (found != negated).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns_match_as_in_redis() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("", "", true),
            ("", "a", false),
            ("h?llo", "hello", true),
            ("h?llo", "hllo", false),
            ("h*llo", "heeeello", true),
            ("h[ae]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[a-c]llo", "hbllo", true),
            ("h[c-a]llo", "hbllo", true),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("a*b*c", "axxbyyc", true),
            ("a*b*c", "axxbyy", false),
            ("*a*a*a*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false),
            ("[abc", "b", true),
            ("foo*", "foobar", true),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} {text}");
        }
    }
}
