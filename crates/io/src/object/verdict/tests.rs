use super::*;

fn generic(text: &str) -> Error {
    Error::Generic { store: "test", source: text.to_string().into() }
}

fn answered(status: u16) -> Wire {
    Wire { status: Some(status), requests: 1, wrote: true, ..Wire::default() }
}

/// A verdict in one word.
fn word(kind: Kind, error: &Error, wire: &Wire) -> &'static str {
    match judge("k", kind, error, wire) {
        Verdict::Final(StoreError::Absent { .. }) => "absent",
        Verdict::Final(StoreError::Conflict { .. }) => "conflict",
        Verdict::Final(StoreError::Refused { .. }) => "refused",
        Verdict::Final(StoreError::Unknown { .. }) => "unknown",
        Verdict::Again { error: StoreError::Throttled { .. }, in_doubt: false, .. } => "throttled",
        Verdict::Again { error: StoreError::Throttled { .. }, in_doubt: true, .. } => "throttled?",
        Verdict::Again { in_doubt: false, .. } => "again",
        Verdict::Again { in_doubt: true, .. } => "again?",
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_answer_means_what_its_status_and_text_say() {
    for (kind, status, text, expected) in [
        (Kind::Put, 409, "ConditionalRequestConflict", "again"),
        (Kind::Put, 503, "SlowDown", "throttled"),
        (Kind::Put, 503, "gateway", "throttled?"),
        (Kind::Read, 503, "gateway", "throttled"),
        (Kind::Put, 429, "", "throttled"),
        (Kind::Put, 500, "InternalError", "again?"),
        (Kind::Read, 500, "InternalError", "again"),
        (Kind::Delete, 504, "", "again?"),
        (Kind::Put, 404, "NoSuchBucket", "refused"),
        (Kind::Read, 404, "NoSuchBucket", "refused"),
        (Kind::Read, 416, "", "refused"),
        (Kind::Put, 403, "AccessDenied", "refused"),
        (Kind::Put, 301, "", "refused"),
        (Kind::Put, 400, "RequestTimeout", "again"),
        (Kind::Put, 400, "MalformedXML", "refused"),
        (Kind::Put, 200, "no ETag", "unknown"),
        (Kind::Read, 206, "cut off", "again"),
    ] {
        assert_eq!(word(kind, &generic(text), &answered(status)), expected, "{kind:?} {status} {text}");
    }
    let not_found = Error::NotFound { path: "k".into(), source: "NoSuchKey".into() };
    assert_eq!(word(Kind::Read, &not_found, &answered(404)), "absent");
    let taken = Error::AlreadyExists { path: "k".into(), source: "x".into() };
    assert_eq!(word(Kind::Put, &taken, &answered(412)), "conflict");
    assert_eq!(word(Kind::Put, &taken, &answered(409)), "conflict");
}

#[test]
fn without_an_answer_only_an_unsent_request_surely_had_no_effect() {
    let no_answer = |wrote, timed_out| Wire { requests: 1, wrote, timed_out, ..Wire::default() };
    let error = generic("connection");
    assert_eq!(word(Kind::Put, &error, &no_answer(false, false)), "again");
    assert_eq!(word(Kind::Put, &error, &no_answer(true, false)), "again?");
    assert_eq!(word(Kind::Put, &error, &no_answer(true, true)), "unknown");
    assert_eq!(word(Kind::Read, &error, &no_answer(false, true)), "again");
    assert_eq!(word(Kind::Read, &error, &Wire::default()), "refused");
}

#[test]
fn a_missing_metadata_service_means_no_credentials() {
    let wire = Wire { requests: 1, asked_metadata: true, ..Wire::default() };
    assert_eq!(word(Kind::Put, &generic("connect"), &wire), "refused");
    // Its “not found” is not the object's.
    let wire = Wire { status: Some(404), ..wire };
    let not_found = Error::NotFound { path: "k".into(), source: "x".into() };
    assert_eq!(word(Kind::Read, &not_found, &wire), "refused");
    assert_eq!(word(Kind::Read, &generic(""), &Wire { status: Some(503), ..wire }), "again");
}

#[test]
fn causes_are_short_and_without_queries() {
    let error = generic("GET https://host/bucket/key?sig=SECRET&x=1 failed\nbadly");
    let text = cause(&error);
    assert!(text.contains("https://host/bucket/key failed badly") && !text.contains("SECRET"), "{text}");
    assert!(cause(&generic(&"x".repeat(10_000))).len() <= CAUSE_MAX);
}

/// The code of an answer stands after its XML declaration, and perhaps far behind.
#[test]
fn a_code_is_found_wherever_it_stands_in_the_answer() {
    let far = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?><Error>{}<Code>NoSuchBucket</Code>",
        "x".repeat(1000)
    );
    let not_found = Error::NotFound { path: "k".into(), source: far.into() };
    assert_eq!(word(Kind::Read, &not_found, &answered(404)), "refused");
    assert!(cause(&generic("<?xml version=\"1\"?><Code>A</Code>")).contains("<Code>A</Code>"));
}
