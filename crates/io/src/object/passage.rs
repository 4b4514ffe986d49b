//! Requests of the S3 protocol that other clients made, sent to a bucket with this process's keys: for a front that speaks S3 itself.
//!
//! Bodies pass in pieces and are never whole in memory. Nothing is tried again: the client that made the request does that. What the bucket
//! answers is passed on as it is, errors too.
//!
//! A request is signed as Signature Version 4 says: path and query are decoded by the caller and encoded here, so that what is signed is what is
//! sent. Not here: which requests are allowed (the front's), requests of the engine (`adapter`).

use super::{Settings, connector, s3_builder, verdict};
use crate::object::curl::Limits;
use crate::store::{Result, StoreError};
use curl::easy::{Easy2, Handler, List, ReadError, WriteError};
use hmac::{Hmac, KeyInit, Mac};
use object_store::aws::{AmazonS3ConfigKey, AwsCredential, AwsCredentialProvider};
use parking_lot::Mutex;
use pollster::block_on;
use sha2::{Digest, Sha256};
use std::fmt::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use url::Url;

/// A body that is not hashed.
const UNSIGNED: &str = "UNSIGNED-PAYLOAD";
/// SHA-256 of nothing.
const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
/// A connection older than this is not used again.
const IDLE: Duration = Duration::from_secs(20);

/// A request, decoded.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    pub method: &'a str,
    pub target: Target<'a>,
    pub query: &'a [(String, String)],
    /// Without those of the connection, of the signature and of the body's length.
    pub headers: &'a [(String, String)],
    /// The body's.
    pub length: u64,
    /// The body's, in hexadecimal digits. None: the body is not signed.
    pub sha256: Option<&'a str>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target<'a> {
    Service,
    Bucket,
    Object(&'a str),
}

/// The bodies of a request and of its answer.
pub trait Relay: Send {
    /// The next bytes of the request's body: how many, 0 at its end. None: it cannot be had, and the request fails.
    fn send(&mut self, into: &mut [u8]) -> Option<usize>;
    /// The answer has begun. False ends the request.
    fn begin(&mut self, status: u16, headers: Vec<(String, String)>) -> bool;
    /// Bytes of the answer. False ends the request.
    fn receive(&mut self, bytes: &[u8]) -> bool;
}

/// The way to a bucket.
pub struct Passage {
    /// Without a slash at its end.
    service: Url,
    bucket: Url,
    pub bucket_name: String,
    region: String,
    credentials: AwsCredentialProvider,
    signs: bool,
    limits: Limits,
    idle: Mutex<Vec<Easy2<Passing>>>,
}

/// Opens the way to the bucket that the settings name, with the keys that [`super::open`] would use. Nothing is asked yet.
pub fn open(settings: &Settings) -> Result<Passage> {
    let url = Url::parse(&settings.url).map_err(|error| settings.refused(format!("not a URL: {error}")))?;
    let bucket = url.host_str().filter(|name| url.scheme() == "s3" && !name.is_empty());
    let bucket = bucket.ok_or_else(|| settings.refused("it is not s3:// with a bucket"))?;
    if !url.path().trim_matches('/').is_empty() {
        return Err(settings.refused("it is a part of a bucket: requests of the S3 protocol name whole keys"));
    }
    let builder = s3_builder(settings, bucket)?;
    let of = |key| builder.get_config_value(&key).filter(|value| !value.is_empty());
    let region = of(AmazonS3ConfigKey::Region).unwrap_or_else(|| "us-east-1".into());
    let is_virtual = of(AmazonS3ConfigKey::VirtualHostedStyleRequest).as_deref() == Some("true");
    let endpoint = of(AmazonS3ConfigKey::S3Endpoint).or_else(|| of(AmazonS3ConfigKey::Endpoint));
    let service = endpoint.clone().unwrap_or_else(|| format!("https://s3.{region}.amazonaws.com"));
    let of_bucket = match (endpoint, is_virtual) {
        (Some(endpoint), true) => endpoint,
        (None, true) => format!("https://{bucket}.s3.{region}.amazonaws.com"),
        (_, false) => format!("{}/{bucket}", service.trim_end_matches('/')),
    };
    let parsed = |text: &str| {
        Url::parse(text.trim_end_matches('/'))
            .map_err(|error| settings.refused(format!("the endpoint: {error}")))
    };
    let signs = of(AmazonS3ConfigKey::SkipSignature).as_deref() != Some("true");
    let (service, of_bucket) = (parsed(&service)?, parsed(&of_bucket)?);
    let store = builder.build().map_err(|error| settings.refused(verdict::cause(&error)))?;
    Ok(Passage {
        service,
        bucket: of_bucket,
        bucket_name: bucket.to_string(),
        region,
        credentials: store.credentials().clone(),
        signs,
        limits: connector(settings).0,
        idle: Mutex::default(),
    })
}

impl Passage {
    /// Sends the request and passes its answer on. An error: there is no answer, or not all of it.
    pub fn send(&self, request: &Request<'_>, relay: Box<dyn Relay>) -> Result<()> {
        let (url, key) = match request.target {
            Target::Service => (&self.service, ""),
            Target::Bucket => (&self.bucket, ""),
            Target::Object(key) => (&self.bucket, key),
        };
        let credential = match self.signs {
            true => match block_on(self.credentials.get_credential()) {
                Ok(credential) => Some(credential),
                Err(error) => {
                    let (key, cause) = (key.to_string(), verdict::cause(&error));
                    return Err(StoreError::Unavailable { key, cause });
                }
            },
            false => None,
        };
        let mut path = url.path().trim_end_matches('/').to_string();
        if matches!(request.target, Target::Object(_)) {
            path.push('/');
            encode(key, true, &mut path);
        }
        if path.is_empty() {
            path.push('/');
        }
        let query = query_text(request.query);
        let host = match (url.host_str().unwrap_or_default(), url.port()) {
            (host, Some(port)) => format!("{host}:{port}"),
            (host, None) => host.to_string(),
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let body = request.sha256.unwrap_or(if request.length == 0 { EMPTY } else { UNSIGNED });
        let mut headers: Vec<(String, String)> = request.headers.to_vec();
        if let Some(credential) = &credential {
            let what = Signing { method: request.method, path: &path, query: &query, host: &host, body };
            what.sign(credential, &self.region, now, &mut headers);
        }
        let mark = if query.is_empty() { "" } else { "?" };
        let url = format!("{}://{host}{path}{mark}{query}", url.scheme());
        let mut easy = self.idle.lock().pop().unwrap_or_else(|| Easy2::new(Passing::default()));
        easy.reset();
        *easy.get_mut() = Passing { relay: Some(relay), ..Passing::default() };
        let result = self.prepare(&mut easy, request, &url, &headers).and_then(|()| easy.perform());
        // The relay ends here, as whoever waits for it may wait for its end.
        let passing = std::mem::take(easy.get_mut());
        match result {
            Ok(()) if passing.has_begun => {
                let mut idle = self.idle.lock();
                if idle.len() < self.limits.idle_max {
                    idle.push(easy);
                }
                Ok(())
            }
            Ok(()) => Err(StoreError::Unknown { key: key.into(), cause: "the answer has no head".into() }),
            // The handle is dropped, and with it a connection in an unknown state.
            Err(_) if passing.was_ended => Err(StoreError::Cancelled { key: key.into() }),
            Err(error) => {
                let (key, cause) = (key.to_string(), error.to_string());
                let changes = !matches!(request.method, "GET" | "HEAD");
                match changes && !crate::object::curl::surely_unsent(&error) {
                    true => Err(StoreError::Unknown { key, cause }),
                    false => Err(StoreError::Unavailable { key, cause }),
                }
            }
        }
    }

    fn prepare(
        &self,
        easy: &mut Easy2<Passing>,
        request: &Request<'_>,
        url: &str,
        all: &[(String, String)],
    ) -> std::result::Result<(), curl::Error> {
        easy.path_as_is(true)?;
        easy.url(url)?;
        match request.method {
            "GET" => easy.get(true)?,
            "HEAD" => easy.nobody(true)?,
            "PUT" => easy.upload(true)?,
            "POST" => easy.post(true)?,
            other => {
                if request.length > 0 {
                    easy.upload(true)?;
                }
                easy.custom_request(other)?;
            }
        }
        match request.method {
            "POST" => easy.post_field_size(request.length)?,
            "GET" | "HEAD" => {}
            _ => easy.in_filesize(request.length)?,
        }
        let mut headers = List::new();
        for (name, value) in all {
            headers.append(&if value.is_empty() {
                format!("{name};")
            } else {
                format!("{name}: {value}")
            })?;
        }
        // What libcurl would add by itself.
        for unwanted in ["expect", "accept", "content-type", "transfer-encoding"] {
            if !all.iter().any(|(name, _)| name.eq_ignore_ascii_case(unwanted)) {
                headers.append(&format!("{unwanted}:"))?;
            }
        }
        easy.http_headers(headers)?;
        easy.connect_timeout(self.limits.connect)?;
        // A body may be long, so what is bounded is the time without a byte.
        easy.low_speed_limit(1)?;
        easy.low_speed_time(self.limits.total)?;
        easy.tcp_nodelay(true)?;
        easy.tcp_keepalive(true)?;
        easy.maxage_conn(IDLE)?;
        easy.max_connects(1)?;
        easy.upload_buffer_size(128 << 10)?;
        easy.buffer_size(128 << 10)
    }
}

/// An exchange as libcurl's callbacks see it.
#[derive(Default)]
struct Passing {
    relay: Option<Box<dyn Relay>>,
    status: u16,
    headers: Vec<(String, String)>,
    has_begun: bool,
    /// By the relay.
    was_ended: bool,
}

impl Handler for Passing {
    // No `seek`: libcurl must not send a body a second time by itself.
    fn read(&mut self, into: &mut [u8]) -> std::result::Result<usize, ReadError> {
        let sent = self.relay.as_mut().and_then(|relay| relay.send(into));
        self.was_ended |= sent.is_none();
        sent.ok_or(ReadError::Abort)
    }
    fn write(&mut self, data: &[u8]) -> std::result::Result<usize, WriteError> {
        let goes_on = self.relay.as_mut().is_some_and(|relay| relay.receive(data));
        self.was_ended |= !goes_on;
        // Fewer bytes than there are end the request.
        Ok(if goes_on { data.len() } else { 0 })
    }
    fn header(&mut self, line: &[u8]) -> bool {
        let line = String::from_utf8_lossy(line);
        let line = line.trim_end_matches(['\r', '\n']);
        if line.starts_with("HTTP/") {
            self.headers.clear();
            self.status = line.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
        } else if let Some((name, value)) = line.split_once(':') {
            self.headers.push((name.trim().to_string(), value.trim().to_string()));
        } else if line.is_empty() && self.status >= 200 && !self.has_begun {
            self.has_begun = true;
            let headers = std::mem::take(&mut self.headers);
            let goes_on = self.relay.as_mut().is_some_and(|relay| relay.begin(self.status, headers));
            self.was_ended |= !goes_on;
            return goes_on;
        }
        true
    }
}

/// Percent-encodes what is not unreserved; slashes only if they are not a path's.
fn encode(text: &str, is_path: bool, out: &mut String) {
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(byte.into()),
            b'/' if is_path => out.push('/'),
            // Writing to a string cannot fail.
            _ => drop(write!(out, "%{byte:02X}")),
        }
    }
}

/// In the order in which it is signed.
fn query_text(query: &[(String, String)]) -> String {
    let encoded = |text: &str| {
        let mut out = String::new();
        encode(text, false, &mut out);
        out
    };
    let mut pairs: Vec<(String, String)> =
        query.iter().map(|(name, value)| (encoded(name), encoded(value))).collect();
    pairs.sort_unstable();
    pairs.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("&")
}

/// `20261128T170203Z`.
fn time_text(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Years that begin in March, so that a leap day is a year's last.
    let shifted = days + 719_468;
    let (era, day) = (shifted / 146_097, shifted % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let of_month = of_year - (153 * month + 2) / 5 + 1;
    let (month, later) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = era * 400 + year + later;
    format!("{year:04}{month:02}{of_month:02}T{:02}{:02}{:02}Z", rest / 3600, rest / 60 % 60, rest % 60)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    })
}

fn mac(key: &[u8], text: &str) -> Vec<u8> {
    // A key of any length is one.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else { return Vec::new() };
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

struct Signing<'a> {
    method: &'a str,
    path: &'a str,
    query: &'a str,
    host: &'a str,
    body: &'a str,
}

impl Signing<'_> {
    /// Adds the headers of the signature.
    fn sign(&self, credential: &AwsCredential, region: &str, now: u64, headers: &mut Vec<(String, String)>) {
        let time = time_text(now);
        let date = time.split('T').next().unwrap_or_default().to_string();
        headers.push(("x-amz-date".into(), time.clone()));
        headers.push(("x-amz-content-sha256".into(), self.body.to_string()));
        if let Some(token) = &credential.token {
            headers.push(("x-amz-security-token".into(), token.clone()));
        }
        let is_signed = |name: &str| name.starts_with("x-amz-") || name == "content-md5";
        let plain =
            |value: &str| value.split(' ').filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ");
        let mut signed: Vec<(String, String)> = headers
            .iter()
            .map(|(name, value)| (name.to_ascii_lowercase(), plain(value)))
            .filter(|(name, _)| is_signed(name))
            .collect();
        signed.push(("host".into(), self.host.to_string()));
        signed.sort_unstable();
        let lines: String = signed.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
        let names = signed.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(";");
        let Signing { method, path, query, body, .. } = self;
        let request = format!("{method}\n{path}\n{query}\n{lines}\n{names}\n{body}");
        let scope = format!("{date}/{region}/s3/aws4_request");
        let text = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{}", hex(&Sha256::digest(request.as_bytes())));
        let secret = format!("AWS4{}", credential.secret_key);
        let key = [date.as_str(), region, "s3", "aws4_request"]
            .iter()
            .fold(secret.into_bytes(), |key, part| mac(&key, part));
        let signature = hex(&mac(&key, &text));
        let id = &credential.key_id;
        let value =
            format!("AWS4-HMAC-SHA256 Credential={id}/{scope},SignedHeaders={names},Signature={signature}");
        headers.push(("authorization".into(), value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_signatures_want_them() {
        let expected = [
            (0, "19700101T000000Z"),
            (951_782_399, "20000228T235959Z"),
            (951_782_400, "20000229T000000Z"),
            (1_795_885_323, "20261128T170203Z"),
        ];
        for (seconds, text) in expected {
            assert_eq!(time_text(seconds), text);
        }
    }

    /// The provider's documented example of a GET with a range.
    #[test]
    fn the_signature_is_that_of_the_documented_example() {
        let credential = AwsCredential {
            key_id: "AKIAIOSFODNN7EXAMPLE".into(),
            secret_key: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".into(),
            token: None,
        };
        let (host, query) = (
            "examplebucket.s3.amazonaws.com",
            query_text(&[("prefix".into(), "J".into()), ("max-keys".into(), "2".into())]),
        );
        let mut headers = Vec::new();
        let what = Signing { method: "GET", path: "/", query: &query, host, body: EMPTY };
        what.sign(&credential, "us-east-1", 1_369_353_600, &mut headers);
        let (_, value) = headers.last().unwrap();
        assert!(
            value.ends_with("Signature=34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"),
            "{value}"
        );
    }

    #[test]
    fn keys_and_queries_are_encoded_as_they_are_signed() {
        let mut path = String::new();
        encode("ä ö/#1+~*", true, &mut path);
        assert_eq!(path, "%C3%A4%20%C3%B6/%231%2B~%2A");
        let query = [("prefix", "a/b"), ("list-type", "2"), ("uploads", "")];
        let query: Vec<_> = query.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        assert_eq!(query_text(&query), "list-type=2&prefix=a%2Fb&uploads=");
    }
}
