//! Values of settings as text: sizes with units, the letters of keyspace notices, the pairs of `save`, words of a configuration file.

use crate::resp::parse::parse_i64;

pub const NOTICE_KEYSPACE: u32 = 1;
pub const NOTICE_KEYEVENT: u32 = 1 << 1;
/// Letters of `notify-keyspace-events` with their bits, in the order in which they are shown.
const NOTICE_LETTERS: &[(char, u32)] = &[
    ('g', 1 << 2),
    ('$', 1 << 3),
    ('l', 1 << 4),
    ('s', 1 << 5),
    ('h', 1 << 6),
    ('z', 1 << 7),
    ('x', 1 << 8),
    ('e', 1 << 9),
    ('t', 1 << 10),
    ('d', 1 << 13),
];
const NOTICE_ALL: u32 = 0b10_0111_1111_1100;
const NOTICE_REST: &[(char, u32)] =
    &[('K', NOTICE_KEYSPACE), ('E', NOTICE_KEYEVENT), ('m', 1 << 11), ('n', 1 << 14)];

pub(super) fn parse_notices(text: &str) -> Option<u32> {
    text.chars().try_fold(0, |bits, letter| match letter {
        'A' => Some(bits | NOTICE_ALL),
        _ => NOTICE_LETTERS
            .iter()
            .chain(NOTICE_REST)
            .find(|(known, _)| *known == letter)
            .map(|(_, bit)| bits | bit),
    })
}

pub(super) fn show_notices(bits: u32) -> String {
    let mut text = String::new();
    if bits & NOTICE_ALL == NOTICE_ALL {
        text.push('A');
    } else {
        text.extend(NOTICE_LETTERS.iter().filter(|(_, bit)| bits & bit != 0).map(|(letter, _)| letter));
    }
    text.extend(NOTICE_REST.iter().filter(|(_, bit)| bits & bit != 0).map(|(letter, _)| letter));
    text
}

pub(super) fn parse_save_points(text: &str) -> Option<Vec<(i64, u64)>> {
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    let pair = |pair: &[&str]| {
        let [seconds, changes] = pair else { return None };
        let seconds = parse_i64(seconds.as_bytes()).filter(|&seconds| seconds >= 1)?;
        let changes = parse_i64(changes.as_bytes())?;
        Some((seconds, u64::try_from(changes).ok()?))
    };
    words.chunks(2).map(pair).collect()
}

pub(super) fn show_save_points(points: &[(i64, u64)]) -> String {
    let words: Vec<String> = points.iter().map(|(seconds, changes)| format!("{seconds} {changes}")).collect();
    words.join(" ")
}

/// A size with a unit, as configuration files have it.
pub fn parse_bytes(text: &str) -> Option<i64> {
    let lower = text.to_ascii_lowercase();
    let digits = lower.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = match &lower[digits.len()..] {
        "" | "b" => 1,
        "k" => 1000,
        "kb" => 1 << 10,
        "m" => 1_000_000,
        "mb" => 1 << 20,
        "g" => 1_000_000_000,
        "gb" => 1 << 30,
        _ => return None,
    };
    parse_i64(digits.as_bytes()).filter(|&number| number >= 0)?.checked_mul(unit)
}

/// A value as a word of a configuration file.
pub(super) fn quoted(value: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\'' | b'\\' | b'#');
    // `save 60 1` and `bind A B` are several words.
    if !value.is_empty() && value.bytes().all(|byte| is_plain(byte) || byte == b' ') {
        return value.to_owned();
    }
    let escaped: String = value
        .bytes()
        .map(|byte| match byte {
            b'"' | b'\\' => format!("\\{}", char::from(byte)),
            b' '..=b'~' => char::from(byte).to_string(),
            other => format!("\\x{other:02x}"),
        })
        .collect();
    format!("\"{escaped}\"")
}
