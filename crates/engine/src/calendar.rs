//! Times for people: UTC, to the second or the millisecond.

/// Year, month, day, hour, minute and second of a Unix time in milliseconds.
pub fn utc(ms: u64) -> (u64, u64, u64, u64, u64, u64) {
    let (days, seconds) = (ms / 86_400_000, ms / 1000 % 86_400);
    // Days since 0000-03-01, in eras of 400 years.
    let day = days + 719_468;
    let (era, of_era) = (day / 146_097, day % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let of_month = of_year - (153 * month + 2) / 5 + 1;
    let (month, year) = if month < 10 { (month + 3, year) } else { (month - 9, year + 1) };
    (year + era * 400, month, of_month, seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// As 2026-11-28 17:30:00 UTC.
pub fn seconds(ms: u64) -> String {
    let (year, month, day, hour, minute, second) = utc(ms);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

/// As 2026-11-28 17:30:00.125 UTC.
pub fn milliseconds(ms: u64) -> String {
    let (year, month, day, hour, minute, second) = utc(ms);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{:03} UTC", ms % 1000)
}

/// The Unix time in milliseconds of 2026-11-28 17:30:00, with or without a fraction, `T` for the space, and `Z` or `UTC` behind it. None: it is no time since 1970.
pub fn parse(text: &str) -> Option<u64> {
    let text = text.trim();
    let text = text.strip_suffix("UTC").or(text.strip_suffix('Z')).unwrap_or(text).trim_end();
    let (date, time) = text.split_once(['T', ' '])?;
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let number =
        |text: &str| text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse::<u64>().ok()).flatten();
    let three = |text: &str, by: char| {
        let mut numbers = text.split(by).map(number);
        let found = (numbers.next()??, numbers.next()??, numbers.next()??);
        numbers.next().is_none().then_some(found)
    };
    let ((year, month, day), (hour, minute, second)) = (three(date, '-')?, three(time, ':')?);
    if !(1970..=9999).contains(&year) || fraction.len() > 9 || !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let millis = number(&format!("{fraction:0<3}")[..3])?;
    // The inverse of `utc`, checked by it: there are days that no month has.
    let (y, m) = if month > 2 { (year, month.checked_sub(3)?) } else { (year - 1, month + 9) };
    let of_year = (153 * m + 2) / 5 + day.checked_sub(1)?;
    let days = (y / 400 * 146_097 + (y % 400) * 365 + (y % 400) / 4 - (y % 400) / 100 + of_year)
        .checked_sub(719_468)?;
    let ms = (days * 86_400 + hour * 3600 + minute * 60 + second) * 1000 + millis;
    (utc(ms) == (year, month, day, hour, minute, second)).then_some(ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        assert_eq!(seconds(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(seconds(951_827_696_000), "2000-02-29 12:34:56 UTC");
        assert_eq!(seconds(1_709_251_199_000), "2024-02-29 23:59:59 UTC");
        assert_eq!(milliseconds(1_735_689_600_007), "2025-01-01 00:00:00.007 UTC");
    }

    #[test]
    fn times_read_back() {
        for ms in (0..4_000_000_000_000).step_by(12_345_678_901) {
            assert_eq!(parse(&milliseconds(ms)), Some(ms));
            assert_eq!(parse(&seconds(ms)), Some(ms / 1000 * 1000));
        }
        assert_eq!(parse("2026-11-20 10:00:00"), parse("2026-11-20T10:00:00.000Z"));
        for bad in [
            "2026-02-29 10:00:00",
            "2026-13-01 10:00:00",
            "2026-00-01 10:00:00",
            "2026-11-00 10:00:00",
            "2026-11-20 24:00:00",
            "2026-11-20 10:60:00",
            "2026-11-20",
            "2026-11-20 10:00",
            "1969-11-20 10:00:00",
            "2026-11-20 10:00:00.x",
            "2026-11-+2 10:00:00",
            "2026-11-20 10:00:00 +01:00",
            "99999-11-20 10:00:00",
        ] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
