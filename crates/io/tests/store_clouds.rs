//! Google Cloud Storage and Azure, played by a stand-in: the requests, their conditions and signatures, and that no error
//! shows a key. The keys are made up.

mod stage;
mod store_contract;

use stage::{Act, Stage, stage};
use std::sync::{Arc, Mutex, MutexGuard};
use store_contract::Scratch;
use terrace_io::object::{Settings, open};
use terrace_io::store::{Bytes, ObjectStore, Purpose, StoreError};

/// An RSA key that opens nothing.
const PEM: &str = include_str!("../src/object/crypto/test_key.pem");
/// `hush-hush-hush-hush-hush-hush-32b` in base64.
const AZURE_KEY: &str = "aHVzaC1odXNoLWh1c2gtaHVzaC1odXNoLWh1c2gtMzJi";

/// The environment is the process's: tests take turns, and each begins without any provider's words.
fn environment(words: &[(&str, &str)]) -> MutexGuard<'static, ()> {
    static ENVIRONMENT: Mutex<()> = Mutex::new(());
    let turn = ENVIRONMENT.lock().unwrap_or_else(|e| e.into_inner());
    for (name, _) in std::env::vars_os() {
        let is_a_providers =
            name.to_str().is_some_and(|n| n.starts_with("GOOGLE_") || n.starts_with("AZURE_"));
        if is_a_providers || name == "SERVICE_ACCOUNT" {
            // SAFETY: all access to the environment in this process happens under the lock above.
            unsafe { std::env::remove_var(name) };
        }
    }
    for (name, value) in words {
        // SAFETY: as above.
        unsafe { std::env::set_var(name, value) };
    }
    turn
}

fn account() -> String {
    let key = PEM.replace('\n', "\\n");
    format!(r#"{{"private_key": "{key}", "private_key_id": "7", "client_email": "terrace@made.up"}}"#)
}

/// The private key's second line: what would be seen if it was shown in part.
fn some_of_the_key() -> &'static str {
    PEM.lines().nth(1).unwrap()
}

fn at(stage: &Stage, url: &str) -> Arc<dyn ObjectStore> {
    open(&Settings { endpoint: Some(stage.endpoint.clone()), ..Settings::new(url) }).unwrap()
}

/// One request of each kind, against a server that has `a` and not `b`, and lists `a` alone.
fn one_of_each(store: &dyn ObjectStore) {
    let version = store.put_if_absent(Purpose::Sink, "a", &[Bytes::from_static(b"body")]).unwrap();
    let taken = store.put_if_absent(Purpose::Sink, "a", &[Bytes::from_static(b"mine")]);
    assert!(matches!(taken, Err(StoreError::Conflict { .. })), "{taken:?}");
    store.put_if_match(Purpose::Epoch, "a", b"more", &version).unwrap();
    let mut buf = [0; 4];
    store.get_range(Purpose::PageMiss, "a", 8, &mut buf).unwrap();
    assert_eq!(&buf, b"body");
    assert!(matches!(store.get(Purpose::Merge, "b"), Err(StoreError::Absent { .. })));
    let mut found = Vec::new();
    store.list(Purpose::Scrub, "", &mut |key, size| found.push((key.to_string(), size))).unwrap();
    assert_eq!(found, [("a".to_string(), 4)]);
    store.delete(Purpose::Collect, "a").unwrap();
    store.delete(Purpose::Collect, "b").unwrap();
}

const PART: Act = Act::Answer(
    "206 Partial Content",
    "Content-Range: bytes 8-11/99\r\nETag: \"e1\"\r\nLast-Modified: Mon, 01 Jan 2024 00:00:00 GMT\r\n",
    "body",
);

fn has(head: &str, words: &[&str]) {
    let head = format!("{}\r\n", head.to_lowercase());
    for word in words {
        assert!(head.contains(&word.to_lowercase()), "`{word}` is missing:\n{head}");
    }
}

#[test]
fn google_requests_are_conditional_and_signed_by_the_service_account() {
    const STORED: Act = Act::Answer("200 OK", "ETag: \"e1\"\r\nx-goog-generation: 1700\r\n", "");
    const ACTS: &[Act] = &[
        STORED,
        Act::Answer("412 Precondition Failed", "", "<Error><Code>PreconditionFailed</Code></Error>"),
        STORED,
        PART,
        Act::Answer("404 Not Found", "", "<Error><Code>NoSuchKey</Code></Error>"),
        Act::Answer(
            "200 OK",
            "",
            "<ListBucketResult><Contents><Key>p/a</Key><LastModified>2024-01-01T00:00:00.000Z</LastModified>\
             <ETag>\"e1\"</ETag><Size>4</Size></Contents></ListBucketResult>",
        ),
        Act::Answer("204 No Content", "", ""),
        Act::Answer("404 Not Found", "", "<Error><Code>NoSuchKey</Code></Error>"),
    ];
    let account = account();
    let _turn = environment(&[("GOOGLE_SERVICE_ACCOUNT_KEY", &account)]);
    let stage = stage(ACTS);
    let store = at(&stage, "gs://bucket/p");
    assert_eq!(store.describe(), "gs://bucket/p");
    one_of_each(&*store);
    let heads = stage.heads.lock().unwrap();
    assert_eq!(heads.len(), ACTS.len());
    has(&heads[0], &["PUT /bucket/p%2fa ", "x-goog-if-generation-match: 0\r\n"]);
    has(&heads[2], &["PUT /bucket/p%2fa ", "x-goog-if-generation-match: 1700\r\n"]);
    has(&heads[3], &["GET /bucket/p%2fa ", "range: bytes=8-11\r\n"]);
    has(&heads[6], &["DELETE /bucket/p%2fa "]);
    for head in heads.iter() {
        // `{"` in base64: a token signed with the key, which is not in it.
        has(head, &["authorization: Bearer eyJ"]);
        assert!(!head.contains(some_of_the_key()), "{head}");
    }
}

#[test]
fn azure_requests_are_conditional_and_signed_with_the_shared_key() {
    const STORED: Act = Act::Answer("201 Created", "ETag: \"0x8D\"\r\n", "");
    macro_rules! batch {
        ($answer:literal) => {
            Act::Answer(
                "202 Accepted",
                "Content-Type: multipart/mixed; boundary=batchresponse_1\r\n",
                concat!(
                    "--batchresponse_1\r\nContent-Type: application/http\r\nContent-ID: 0\r\n\r\nHTTP/1.1 ",
                    $answer,
                    "\r\nx-ms-version: 2018-11-09\r\n\r\n\r\n--batchresponse_1--\r\n"
                ),
            )
        };
    }
    const ACTS: &[Act] = &[
        STORED,
        Act::Answer(
            "409 The specified blob already exists.",
            "",
            "<Error><Code>BlobAlreadyExists</Code></Error>",
        ),
        STORED,
        PART,
        Act::Answer("404 Not Found", "", "<Error><Code>BlobNotFound</Code></Error>"),
        Act::Answer(
            "200 OK",
            "",
            "<EnumerationResults ServiceEndpoint=\"http://x/\" ContainerName=\"box\"><Blobs><Blob><Name>p/a</Name>\
             <Properties><Last-Modified>Mon, 01 Jan 2024 00:00:00 GMT</Last-Modified><Etag>0x8D</Etag>\
             <Content-Length>4</Content-Length><Content-Type>text/plain</Content-Type></Properties></Blob></Blobs>\
             <NextMarker/></EnumerationResults>",
        ),
        batch!("202 Accepted"),
        batch!("404 The specified blob does not exist."),
    ];
    let _turn =
        environment(&[("AZURE_STORAGE_ACCOUNT_NAME", "made-up"), ("AZURE_STORAGE_ACCOUNT_KEY", AZURE_KEY)]);
    let stage = stage(ACTS);
    let store = at(&stage, "az://box/p");
    assert_eq!(store.describe(), "az://box/p");
    one_of_each(&*store);
    let heads = stage.heads.lock().unwrap();
    assert_eq!(heads.len(), ACTS.len());
    has(&heads[0], &["PUT /box/p/a ", "if-none-match: *\r\n", "x-ms-blob-type: BlockBlob\r\n"]);
    has(&heads[2], &["PUT /box/p/a ", "if-match: \"0x8d\"\r\n"]);
    has(&heads[3], &["GET /box/p/a ", "range: bytes=8-11\r\n"]);
    has(&heads[6], &["POST /box?", "comp=batch"]);
    for head in heads.iter() {
        has(head, &["authorization: SharedKey made-up:"]);
        assert!(!head.contains(AZURE_KEY), "{head}");
    }
}

fn refused(settings: &Settings) -> String {
    match open(settings) {
        Err(error @ StoreError::Refused { .. }) => error.to_string(),
        Err(error) => panic!("{error}"),
        Ok(store) => panic!("{} opens", store.describe()),
    }
}

#[test]
fn errors_in_a_clouds_settings_are_reported_without_its_keys() {
    let account = account();
    let elsewhere = |url| Settings { endpoint: Some("http://192.0.2.1:9".into()), ..Settings::new(url) };
    let google = [("GOOGLE_SERVICE_ACCOUNT_KEY", account.as_str())];
    let azure = [("AZURE_STORAGE_ACCOUNT_NAME", "made-up"), ("AZURE_STORAGE_ACCOUNT_KEY", AZURE_KEY)];
    // Opening asks nothing: the clouds' own addresses do, unlike plain HTTP to another host, which would show the token.
    for (words, url) in [(&google[..], "gs://bucket/p"), (&azure[..], "az://box/p")] {
        let _turn = environment(words);
        assert_eq!(open(&Settings::new(url)).unwrap().describe(), url);
        let said = refused(&elsewhere(url));
        assert!(said.contains("plain HTTP"), "{said}");
        let said = refused(&Settings { endpoint: Some("https://x:hush@h/".into()), ..Settings::new(url) });
        assert!(said.contains("keys come from") && !said.contains("hush"), "{said}");
        open(&Settings { allow_http: true, ..elsewhere(url) }).unwrap();
    }
    {
        let scratch = Scratch::new("clouds");
        let file = scratch.0.join("account.json");
        let _turn = environment(&[("GOOGLE_SERVICE_ACCOUNT", file.to_str().unwrap())]);
        let missing = refused(&Settings::new("gs://bucket"));
        assert!(missing.contains("account.json"), "{missing}");
        // A truncated key, and a file that is no key file.
        let cut = account.replace(&PEM[PEM.len() - 60..].replace('\n', "\\n"), "");
        for text in [cut.as_str(), &account[..account.len() / 2], "{\"private_key\": 7}"] {
            assert_ne!(text, account);
            std::fs::write(&file, text).unwrap();
            let said = refused(&Settings::new("gs://bucket"));
            assert!(!said.contains(&some_of_the_key()[..20]), "{said}");
        }
        std::fs::write(&file, &account).unwrap();
        open(&Settings::new("gs://bucket")).unwrap();
    }
    {
        let _turn = environment(&[("AZURE_STORAGE_ACCOUNT_KEY", AZURE_KEY)]);
        let said = refused(&Settings::new("az://box"));
        assert!(said.to_lowercase().contains("account"), "{said}");
    }
    let _turn = environment(&[
        ("AZURE_STORAGE_ACCOUNT_NAME", "made-up"),
        ("AZURE_STORAGE_ACCOUNT_KEY", "hush, which is not base64"),
    ]);
    let said = refused(&Settings::new("az://box"));
    assert!(!said.contains("hush"), "{said}");
}
