//! A server that misbehaves: the client reports correctly whether a put may have taken effect, and retries end.

mod stage;

use stage::{Act, Stage, stage};
use std::sync::{Arc, Once};
use std::time::{Duration, Instant};
use terrace_io::object::{Settings, open};
use terrace_io::store::{Bytes, ObjectStore, Purpose, StoreError, Version};

const STORED: Act = Act::Answer("200 OK", "ETag: \"e1\"\r\n", "");
const TAKEN: Act =
    Act::Answer("412 Precondition Failed", "", "<Error><Code>PreconditionFailed</Code></Error>");

/// A store that waits for an answer as long as a busy machine may take.
fn store(stage: &Stage) -> Arc<dyn ObjectStore> {
    patient(stage, Duration::from_secs(120))
}

/// A store that waits so long for an answer.
fn patient(stage: &Stage, timeout: Duration) -> Arc<dyn ObjectStore> {
    static ENVIRONMENT: Once = Once::new();
    // SAFETY: once, before any test's first request; nothing else reads or writes the environment until then.
    ENVIRONMENT.call_once(|| unsafe {
        std::env::set_var("AWS_ACCESS_KEY_ID", "KEY");
        std::env::set_var("AWS_SECRET_ACCESS_KEY", "hush-hush");
    });
    let settings = Settings {
        endpoint: Some(stage.endpoint.clone()),
        timeout,
        attempts_max: 3,
        ..Settings::new("s3://bucket/p")
    };
    open(&settings).unwrap()
}

fn put(stage: &Stage) -> Result<Version, StoreError> {
    store(stage).put_if_absent(Purpose::Sink, "a", &[Bytes::from_static(b"body")])
}

#[test]
fn a_put_says_if_none_match_and_shows_no_secret() {
    let stage = stage(&[STORED]);
    put(&stage).unwrap();
    let head = stage.heads.lock().unwrap()[0].to_lowercase();
    assert!(head.starts_with("put /bucket/p/a ") && head.contains("if-none-match: *"), "{head}");
    assert!(head.contains("authorization: aws4-hmac-sha256") && !head.contains("hush"), "{head}");
    assert!(!head.contains("expect:"), "{head}");
}

const BEGUN: Act = Act::Answer(
    "200 OK",
    "",
    "<InitiateMultipartUploadResult><Bucket>bucket</Bucket><Key>p/a</Key><UploadId>u1</UploadId></InitiateMultipartUploadResult>",
);
const COMPLETED: Act = Act::Answer(
    "200 OK",
    "",
    "<CompleteMultipartUploadResult><ETag>e3</ETag></CompleteMultipartUploadResult>",
);

/// Begins an upload, sends one part and completes it.
fn upload(stage: &Stage) -> Result<Version, StoreError> {
    let store = store(stage);
    let upload = store.begin_upload(Purpose::Sink, "a")?;
    let part = store.put_part(Purpose::Sink, &upload, 0, 0, &Bytes::from_static(b"body"))?;
    store.complete_upload(Purpose::Sink, &upload, &[part])
}

#[test]
fn the_completion_of_an_upload_says_if_none_match_and_its_other_requests_do_not() {
    let stage = stage(&[BEGUN, STORED, COMPLETED]);
    upload(&stage).unwrap();
    let heads: Vec<String> = stage.heads.lock().unwrap().iter().map(|head| head.to_lowercase()).collect();
    let conditional: Vec<bool> = heads.iter().map(|head| head.contains("if-none-match: *")).collect();
    assert_eq!(conditional, [false, false, true], "{heads:?}");
    assert!(heads[2].starts_with("post /bucket/p/a?uploadid=u1 "), "{heads:?}");
}

#[test]
fn a_part_without_an_answer_is_sent_again_and_a_completion_that_finds_the_key_taken_after_one_is_unknown() {
    const GONE: Act = Act::Answer("404 Not Found", "", "<Error><Code>NoSuchUpload</Code></Error>");
    upload(&stage(&[BEGUN, Act::Close, STORED, COMPLETED])).unwrap();
    let conflict = upload(&stage(&[BEGUN, STORED, TAKEN]));
    assert!(matches!(conflict, Err(StoreError::Conflict { .. })), "{conflict:?}");
    for second in [&[BEGUN, STORED, Act::Close, TAKEN], &[BEGUN, STORED, Act::Close, GONE]] {
        let result = upload(&stage(second));
        assert!(
            matches!(result, Err(StoreError::Unknown { .. })),
            "its first attempt may have done it: {result:?}"
        );
    }
    let refused = upload(&stage(&[BEGUN, STORED, GONE]));
    assert!(
        matches!(&refused, Err(StoreError::Refused { cause, .. }) if cause.contains("no such upload")),
        "{refused:?}"
    );
}

#[test]
fn a_put_without_an_answer_in_time_is_unknown_and_not_sent_again() {
    let stage = stage(&[Act::Silence]);
    let result = patient(&stage, Duration::from_secs(1)).put_if_absent(
        Purpose::Sink,
        "a",
        &[Bytes::from_static(b"body")],
    );
    assert!(matches!(result, Err(StoreError::Unknown { .. })), "{result:?}");
    assert_eq!(stage.heads.lock().unwrap().len(), 1);
}

#[test]
fn a_put_that_finds_the_key_taken_after_a_lost_reply_is_unknown() {
    let stage = stage(&[Act::Close, TAKEN]);
    let result = put(&stage);
    assert!(
        matches!(result, Err(StoreError::Unknown { .. })),
        "its own first attempt may have taken it: {result:?}"
    );
    assert_eq!(stage.heads.lock().unwrap().len(), 2);
}

#[test]
fn a_put_that_finds_the_key_taken_after_being_turned_away_is_a_conflict() {
    let slow_down = "<Error><Code>SlowDown</Code></Error>";
    const SLOW: Act = Act::Answer("503 Slow Down", "", "<Error><Code>SlowDown</Code></Error>");
    assert!(matches!(SLOW, Act::Answer(_, _, body) if body == slow_down));
    let stage = stage(&[SLOW, TAKEN]);
    let result = put(&stage);
    assert!(matches!(result, Err(StoreError::Conflict { .. })), "{result:?}");
}

#[test]
fn a_concurrent_put_elsewhere_is_waited_out() {
    const BESIDE: Act =
        Act::Answer("409 Conflict", "", "<Error><Code>ConditionalRequestConflict</Code></Error>");
    put(&stage(&[BESIDE, STORED])).unwrap();
}

#[test]
fn a_server_error_is_retried_and_the_outcome_is_unknown_in_the_end() {
    const BROKEN: Act =
        Act::Answer("500 Internal Server Error", "", "<Error><Code>InternalError</Code></Error>");
    put(&stage(&[BROKEN, STORED])).unwrap();
    let result = put(&stage(&[BROKEN, BROKEN, BROKEN]));
    assert!(matches!(result, Err(StoreError::Unknown { .. })), "{result:?}");
}

#[test]
fn retry_after_is_honoured_and_passed_on() {
    const LATER: Act = Act::Answer("429 Too Many Requests", "Retry-After: 1\r\n", "");
    let stage = stage(&[LATER, STORED, LATER, LATER, LATER]);
    let started = Instant::now();
    put(&stage).unwrap();
    assert!(started.elapsed() >= Duration::from_secs(1));
    let store = store(&stage);
    let result = store.get(Purpose::Merge, "a");
    assert!(matches!(result, Err(StoreError::Throttled { retry_after_ms: 1000, .. })), "{result:?}");
    assert_eq!(store.stats().unwrap().throttled, 3);
    assert_eq!(store.stats().unwrap().of(Purpose::Merge).errors, 1);
}

/// A session waits for the page: more than a few attempts are made, each at the time that the store gave.
#[test]
fn page_misses_answered_with_slow_down_are_retried_until_they_succeed() {
    const LATER: Act =
        Act::Answer("503 Slow Down", "Retry-After: 0\r\n", "<Error><Code>SlowDown</Code></Error>");
    const PAGE: Act = Act::Answer(
        "206 Partial",
        "Content-Range: bytes 0-3/4\r\nETag: \"e\"\r\nLast-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n",
        "page",
    );
    let stage = stage(&[LATER, LATER, LATER, LATER, LATER, PAGE]);
    let mut read = [0; 4];
    store(&stage).get_range(Purpose::PageMiss, "a", 0, &mut read).unwrap();
    assert_eq!(&read, b"page");
    assert_eq!(stage.heads.lock().unwrap().len(), 6);
}

#[test]
fn retry_after_may_be_a_date_and_one_that_is_too_far_is_given_up() {
    const LATER: Act = Act::Answer(
        "503 Slow Down",
        "Date: Sun, 06 Nov 1994 08:49:37 GMT\r\nRetry-After: Sun, 06 Nov 1994 08:49:39 GMT\r\n",
        "",
    );
    const TOMORROW: Act = Act::Answer(
        "429 Too Many Requests",
        "Date: Sun, 06 Nov 1994 08:49:37 GMT\r\nRetry-After: Mon, 07 Nov 1994 08:49:37 GMT\r\n",
        "",
    );
    let stage = stage(&[LATER, STORED, TOMORROW]);
    let started = Instant::now();
    put(&stage).unwrap();
    assert!(started.elapsed() >= Duration::from_secs(2));
    let result = store(&stage).get(Purpose::Merge, "a");
    assert!(matches!(result, Err(StoreError::Throttled { retry_after_ms: 86_400_000, .. })), "{result:?}");
    assert_eq!(stage.heads.lock().unwrap().len(), 3);
}

#[test]
fn a_truncated_or_unanswered_read_is_retried() {
    const PART: Act = Act::Answer(
        "206 Partial Content",
        "Content-Range: bytes 0-3/4\r\nETag: \"e\"\r\nLast-Modified: Mon, 01 Jan 2024 00:00:00 GMT\r\n",
        "body",
    );
    let stage = stage(&[Act::CutOff, Act::Silence, PART]);
    let mut buf = [0; 4];
    // The last answer, too, has to come within this.
    patient(&stage, Duration::from_secs(4)).get_range(Purpose::PageMiss, "a", 0, &mut buf).unwrap();
    assert_eq!(&buf, b"body");
}

#[test]
fn an_absent_key_is_absent_and_a_missing_bucket_is_not() {
    const NO_KEY: Act = Act::Answer("404 Not Found", "", "<Error><Code>NoSuchKey</Code></Error>");
    const NO_BUCKET: Act = Act::Answer("404 Not Found", "", "<Error><Code>NoSuchBucket</Code></Error>");
    let stage = stage(&[NO_KEY, NO_BUCKET, NO_KEY, NO_BUCKET]);
    let store = store(&stage);
    assert!(matches!(store.get(Purpose::Merge, "a"), Err(StoreError::Absent { .. })));
    assert!(matches!(store.get(Purpose::Merge, "a"), Err(StoreError::Refused { .. })));
    store.delete(Purpose::Collect, "a").unwrap();
    assert!(matches!(store.put_if_absent(Purpose::Sink, "a", &[]), Err(StoreError::Refused { .. })));
}

/// Reads in a scope that is cancelled after half a second. How it ended, and how long after that.
fn cancelled(acts: &'static [Act]) -> (StoreError, Duration) {
    let store = patient(&stage(acts), Duration::from_secs(30));
    let cancel = Arc::new(terrace_io::cancel::Cancel::default());
    let from = cancel.clone();
    let killer = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(500));
        from.cancel();
        Instant::now()
    });
    let _scope = cancel.scope();
    let error = store.get_range(Purpose::PageMiss, "o/1", 0, &mut [0; 100]).unwrap_err();
    let ended = Instant::now();
    (error, ended.saturating_duration_since(killer.join().unwrap()))
}

#[test]
fn a_read_that_is_cancelled_ends_within_a_second_whether_it_waits_for_an_answer_or_to_try_again() {
    const BUSY: Act = Act::Answer("503 Slow Down", "Retry-After: 20\r\n", "");
    const WAITS: &[Act] = &[Act::Silence];
    for (acts, most) in [(WAITS, Duration::from_millis(1300)), (&[BUSY; 3], Duration::from_millis(300))] {
        // A busy machine may not run it in time: the best of ten counts. A read that waits for the answer, 30 s, or for the
        // next try, 20 s, never ends so early.
        let mut best = Duration::MAX;
        for _ in 0..10 {
            let (error, late) = cancelled(acts);
            assert!(matches!(error, StoreError::Cancelled { .. }), "{error}");
            best = best.min(late);
            if best < most {
                break;
            }
        }
        assert!(best < most, "{best:?}");
    }
}
