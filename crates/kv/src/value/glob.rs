//! Patterns of `KEYS`, `SCAN … MATCH`, `PSUBSCRIBE`, ACL and `CONFIG GET`: `*`, `?`, `[a-z]`, `[^x]`, and `\` before any of them.
//!
//! Time is bounded by pattern length times text length: of several `*` only the last is retried.

/// Whether the whole text matches.
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    matches_with(pattern, text, false)
}

pub fn matches_ignoring_case(pattern: &[u8], text: &[u8]) -> bool {
    matches_with(pattern, text, true)
}

fn matches_with(pattern: &[u8], text: &[u8], ignores_case: bool) -> bool {
    let (mut p, mut t) = (0, 0);
    // After the last `*`: where the pattern goes on, and the text that the star takes so far.
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        if pattern.get(p) == Some(&b'*') {
            p += 1;
            star = Some((p, t));
            continue;
        }
        match one(&pattern[p.min(pattern.len())..], text[t], ignores_case) {
            Some(taken) => {
                p += taken;
                t += 1;
            }
            None => {
                let Some((after, from)) = star else { return false };
                star = Some((after, from + 1));
                p = after;
                t = from + 1;
            }
        }
    }
    pattern[p..].iter().all(|&byte| byte == b'*')
}

/// Bytes of the pattern that match `byte`, `None` if it does not match or the pattern is at its end.
fn one(pattern: &[u8], byte: u8, ignores_case: bool) -> Option<usize> {
    let fold = |byte: u8| if ignores_case { byte.to_ascii_lowercase() } else { byte };
    match pattern {
        [] => None,
        [b'?', ..] => Some(1),
        [b'[', ..] => {
            let mut at = 1;
            let negated = pattern.get(1) == Some(&b'^');
            at += usize::from(negated);
            let mut found = false;
            loop {
                match &pattern[at.min(pattern.len())..] {
                    // A class that is not closed ends with the pattern.
                    [] => break,
                    [b']', ..] => {
                        at += 1;
                        break;
                    }
                    [b'\\', escaped, ..] => {
                        found |= fold(*escaped) == fold(byte);
                        at += 2;
                    }
                    [low, b'-', high, ..] => {
                        let (low, high) = (fold(*low.min(high)), fold(*low.max(high)));
                        found |= (low..=high).contains(&fold(byte));
                        at += 3;
                    }
                    [single, ..] => {
                        found |= fold(*single) == fold(byte);
                        at += 1;
                    }
                }
            }
            (found != negated).then_some(at)
        }
        [b'\\', escaped, ..] => (fold(*escaped) == fold(byte)).then_some(2),
        [single, ..] => (fold(*single) == fold(byte)).then_some(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_redis() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("h?llo", "hello", true),
            ("h[ae]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[a-b]llo", "hbllo", true),
            ("h[b-a]llo", "hallo", true),
            ("a*b*c", "axxbyyc", true),
            ("a*b*c", "axxbyy", false),
            ("\\*", "*", true),
            ("\\*", "x", false),
            ("foo*", "foo", true),
            ("[ab", "a", true),
            ("", "", true),
            ("", "a", false),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} {text}");
        }
        assert!(matches_ignoring_case(b"MAX*", b"maxmemory"));
    }

    #[test]
    fn many_stars_take_no_exponential_time() {
        let pattern = b"a*".repeat(50);
        let text = [b'a'; 5000];
        assert!(!matches(&[&pattern[..], b"b"].concat(), &text));
    }
}
