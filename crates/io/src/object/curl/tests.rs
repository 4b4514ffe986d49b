use super::*;

/// What an answer with these headers asks for.
fn asked(headers: &[(&'static str, &str)]) -> Option<Duration> {
    let named =
        headers.iter().map(|(name, value)| (http::HeaderName::from_static(name), value.parse().unwrap()));
    retry_after(&named.collect())
}

#[test]
fn retry_after_is_seconds_or_a_date() {
    const NOW: (&str, &str) = ("date", "Sun, 06 Nov 1994 08:49:37 GMT");
    for (said, seconds) in [
        ("120", Some(120)),
        (" 0 ", Some(0)),
        ("18446744073709551615", Some(u64::MAX)),
        ("Sun, 06 Nov 1994 08:50:07 GMT", Some(30)),
        ("Mon, 07 Nov 1994 08:49:37 GMT", Some(86_400)),
        // As servers of old write it.
        ("Sunday, 06-Nov-94 08:49:38 GMT", Some(1)),
        ("Sun Nov  6 08:49:39 1994", Some(2)),
        ("Sun, 06 Nov 1994 08:49:36 GMT", Some(0)),
        ("-1", None),
        ("1.5", None),
        ("", None),
        ("soon", None),
        ("Sun, 99 Nov 1994 08:49:37 GMT", None),
    ] {
        assert_eq!(asked(&[NOW, ("retry-after", said)]), seconds.map(Duration::from_secs), "{said}");
    }
    assert_eq!(asked(&[NOW]), None);
}

#[test]
fn a_retry_date_without_a_server_date_counts_by_the_local_clock() {
    let at = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(3600));
    for date in [None, Some(("date", "yesterday"))] {
        let headers: Vec<_> = date.into_iter().chain([("retry-after", at.as_str())]).collect();
        let seconds = asked(&headers).unwrap().as_secs();
        assert!((3500..=3600).contains(&seconds), "{seconds}");
    }
}
