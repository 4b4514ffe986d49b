//! What a request asks for, and whether it is allowed here. Pure.
//!
//! Allowed is what is about objects of the one bucket, and reading what the bucket is. What would change the bucket itself, or read another one, is
//! refused: the store would do it with the daemon's keys, not with the client's.

use http::{HeaderMap, Method, Uri};
use s3s::{S3Error, S3Result, s3_error};
use std::sync::Arc;
use terrace_files::wire::check_path;

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ask {
    Buckets,
    /// A listing that may be kept; its prefix.
    Listing(String),
    /// A read of an object that may come from the cache.
    Read(Arc<str>),
    /// For the store.
    Pass(Writes),
}

/// What a request may change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Writes {
    Nothing,
    Key(Arc<str>),
    /// The keys that its body names.
    Many,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Asked {
    pub ask: Ask,
    /// None: the bucket.
    pub key: Option<Arc<str>>,
    /// Decoded, without the signature.
    pub query: Vec<(String, String)>,
}

/// Parts of a signature in a query.
const SIGNATURE: [&str; 11] = [
    "x-amz-algorithm",
    "x-amz-credential",
    "x-amz-date",
    "x-amz-expires",
    "x-amz-signedheaders",
    "x-amz-signature",
    "x-amz-security-token",
    "x-amz-content-sha256",
    "awsaccesskeyid",
    "signature",
    "expires",
];
/// What a query may have that reads the bucket, reads an object, or writes one.
const OF_BUCKET: [&str; 20] = [
    "list-type",
    "prefix",
    "delimiter",
    "marker",
    "max-keys",
    "encoding-type",
    "continuation-token",
    "start-after",
    "fetch-owner",
    "location",
    "uploads",
    "key-marker",
    "upload-id-marker",
    "max-uploads",
    "versions",
    "version-id-marker",
    "versioning",
    "x-id",
    "tagging",
    "encryption",
];
const OF_LISTING: [&str; 10] = [
    "list-type",
    "prefix",
    "delimiter",
    "marker",
    "max-keys",
    "encoding-type",
    "continuation-token",
    "start-after",
    "fetch-owner",
    "x-id",
];
const OF_READ: [&str; 17] = [
    "versionid",
    "partnumber",
    "uploadid",
    "tagging",
    "attributes",
    "acl",
    "legal-hold",
    "retention",
    "max-parts",
    "part-number-marker",
    "x-id",
    "response-cache-control",
    "response-content-disposition",
    "response-content-encoding",
    "response-content-language",
    "response-content-type",
    "response-expires",
];
const OF_WRITE: [&str; 6] = ["versionid", "partnumber", "uploadid", "uploads", "tagging", "x-id"];
/// Headers of S3's own with which a read is as without them.
const PLAIN: [&str; 6] = [
    "x-amz-date",
    "x-amz-content-sha256",
    "x-amz-security-token",
    "x-amz-checksum-mode",
    "x-amz-user-agent",
    "x-amz-api-version",
];

fn decode(text: &str, is_query: bool) -> S3Result<String> {
    let wrong = || s3_error!(InvalidURI, "Couldn't parse the specified URI.");
    let bytes = text.as_bytes();
    let (mut out, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while let Some(&byte) = bytes.get(at) {
        at += 1;
        match byte {
            b'%' => {
                let digits =
                    text.get(at..at + 2).filter(|two| two.bytes().all(|digit| digit.is_ascii_hexdigit()));
                out.push(u8::from_str_radix(digits.ok_or_else(wrong)?, 16).map_err(|_| wrong())?);
                at += 2;
            }
            b'+' if is_query => out.push(b' '),
            byte => out.push(byte),
        }
    }
    String::from_utf8(out).map_err(|_| wrong())
}

fn query_of(uri: &Uri) -> S3Result<Vec<(String, String)>> {
    let pairs = uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
    let decoded = pairs.map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        Ok((decode(name, true)?, decode(value, true)?))
    });
    let all = decoded.collect::<S3Result<Vec<_>>>()?;
    Ok(all.into_iter().filter(|(name, _)| !SIGNATURE.contains(&name.to_ascii_lowercase().as_str())).collect())
}

fn not_here() -> S3Error {
    s3_error!(AccessDenied, "This endpoint serves the objects of its bucket: ask the store itself")
}

fn denied(what: &str) -> S3Error {
    s3_error!(NotImplemented, "This endpoint does not pass on requests with {}", what)
}

fn only(query: &[(String, String)], allowed: &[&str]) -> S3Result<()> {
    let is_allowed = |name: &str| {
        let name = name.to_ascii_lowercase();
        allowed.contains(&name.as_str()) || name.starts_with("x-amz-checksum-")
    };
    match query.iter().find(|(name, _)| !is_allowed(name)) {
        Some((name, _)) => Err(denied(name)),
        None => Ok(()),
    }
}

/// Copies are made with the daemon's keys, which may read more than the bucket.
fn check_source(headers: &HeaderMap, bucket: &str) -> S3Result<()> {
    let Some(source) = headers.get("x-amz-copy-source") else { return Ok(()) };
    let source = source.to_str().map_err(|_| s3_error!(InvalidArgument, "x-amz-copy-source is not text"))?;
    let source = decode(source, false)?;
    let of_bucket =
        source.trim_start_matches('/').strip_prefix(bucket).is_some_and(|rest| rest.starts_with('/'));
    if of_bucket { Ok(()) } else { Err(not_here()) }
}

pub fn asked(method: &Method, uri: &Uri, headers: &HeaderMap, bucket: &str) -> S3Result<Asked> {
    let path = uri.path().strip_prefix('/').unwrap_or(uri.path());
    let (first, rest) = path.split_once('/').unwrap_or((path, ""));
    let (first, key) = (decode(first, false)?, decode(rest, false)?);
    let query = query_of(uri)?;
    if first.is_empty() {
        return match *method {
            Method::GET => Ok(Asked { ask: Ask::Buckets, key: None, query }),
            _ => Err(not_here()),
        };
    }
    if first != bucket {
        return Err(s3_error!(NoSuchBucket, "The specified bucket does not exist"));
    }
    let is_plain =
        |name: &http::HeaderName| !name.as_str().starts_with("x-amz-") || PLAIN.contains(&name.as_str());
    let is_plain = headers.keys().all(is_plain);
    let has = |allowed: &[&str]| query.iter().all(|(name, _)| allowed.contains(&name.as_str()));
    if key.is_empty() {
        let ask = match *method {
            Method::GET => {
                only(&query, &OF_BUCKET)?;
                let prefix = query.iter().find(|(name, _)| name == "prefix").map(|(_, value)| value.clone());
                match is_plain && has(&OF_LISTING) {
                    true => Ask::Listing(prefix.unwrap_or_default()),
                    false => Ask::Pass(Writes::Nothing),
                }
            }
            Method::HEAD => {
                only(&query, &["x-id"])?;
                Ask::Pass(Writes::Nothing)
            }
            Method::POST if query.iter().any(|(name, _)| name == "delete") => {
                only(&query, &["delete", "x-id"])?;
                Ask::Pass(Writes::Many)
            }
            _ => return Err(not_here()),
        };
        return Ok(Asked { ask, key: None, query });
    }
    let key: Arc<str> = key.into();
    let ask = match *method {
        Method::GET | Method::HEAD => {
            only(&query, &OF_READ)?;
            let is_simple = is_plain
                && has(&["x-id"])
                && !headers.contains_key("if-range")
                && (*method == Method::GET || !headers.contains_key("range"));
            match is_simple && check_path(&key).is_ok() {
                true => Ask::Read(key.clone()),
                false => Ask::Pass(Writes::Nothing),
            }
        }
        Method::PUT | Method::POST | Method::DELETE => {
            only(&query, &OF_WRITE)?;
            check_source(headers, bucket)?;
            Ask::Pass(Writes::Key(key.clone()))
        }
        _ => return Err(s3_error!(MethodNotAllowed)),
    };
    Ok(Asked { ask, key: Some(key), query })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(method: &str, uri: &str, headers: &[(&str, &str)]) -> Result<Asked, String> {
        let headers = headers
            .iter()
            .map(|(name, value)| {
                (http::HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap())
            })
            .collect();
        asked(&method.parse().unwrap(), &uri.parse().unwrap(), &headers, "b")
            .map_err(|error| error.code().as_str().to_string())
    }

    fn read(key: &str) -> Ask {
        Ask::Read(key.into())
    }

    #[test]
    fn plain_reads_and_listings_may_come_from_the_cache_and_the_rest_goes_to_the_store() {
        let pass = Ask::Pass(Writes::Nothing);
        let cases: [(&str, &str, &[(&str, &str)], Ask); 17] = [
            ("GET", "/b/a%20b/%C3%A4?x-id=GetObject", &[], read("a b/ä")),
            ("HEAD", "/b/a", &[("x-amz-checksum-mode", "ENABLED")], read("a")),
            ("GET", "/b/a", &[("range", "bytes=0-1")], read("a")),
            ("GET", "/b/a?X-Amz-Signature=ab&X-Amz-Date=c&X-Amz-Expires=3", &[], read("a")),
            ("HEAD", "/b/a", &[("range", "bytes=0-1")], pass.clone()),
            ("GET", "/b/a", &[("if-range", "x")], pass.clone()),
            ("GET", "/b/a", &[("x-amz-server-side-encryption-customer-key", "x")], pass.clone()),
            ("GET", "/b/a?versionId=3", &[], pass.clone()),
            ("GET", "/b/a?response-content-type=x", &[], pass.clone()),
            ("GET", "/b/a//b", &[], pass.clone()),
            ("GET", "/b/folder/", &[], pass.clone()),
            ("GET", "/b?list-type=2&prefix=a%2Fb+c", &[], Ask::Listing("a/b c".into())),
            ("GET", "/b/", &[], Ask::Listing("".into())),
            ("GET", "/b?uploads", &[], pass.clone()),
            ("HEAD", "/b", &[], pass),
            ("PUT", "/b/a?partNumber=1&uploadId=x", &[], Ask::Pass(Writes::Key("a".into()))),
            ("POST", "/b?delete", &[], Ask::Pass(Writes::Many)),
        ];
        for (method, uri, headers, expected) in cases {
            assert_eq!(
                ask(method, uri, headers).map(|asked| asked.ask),
                Ok(expected),
                "{method} {uri} {headers:?}"
            );
        }
    }

    #[test]
    fn what_is_not_about_objects_of_the_bucket_is_refused() {
        let cases: [(&str, &str, &[(&str, &str)], &str); 11] = [
            ("GET", "/other/a", &[], "NoSuchBucket"),
            ("PUT", "/b", &[], "AccessDenied"),
            ("DELETE", "/b", &[], "AccessDenied"),
            ("PUT", "/b?policy", &[], "AccessDenied"),
            ("GET", "/b?policy", &[], "NotImplemented"),
            ("PUT", "/b/a?acl", &[], "NotImplemented"),
            ("PUT", "/b/a", &[("x-amz-copy-source", "/secret/a")], "AccessDenied"),
            ("PUT", "/b/a", &[("x-amz-copy-source", "bb/a")], "AccessDenied"),
            ("PUT", "/b/a", &[("x-amz-copy-source", "arn:aws:s3:::b/a")], "AccessDenied"),
            ("GET", "/b/%zz", &[], "InvalidURI"),
            ("PATCH", "/b/a", &[], "MethodNotAllowed"),
        ];
        for (method, uri, headers, expected) in cases {
            assert_eq!(
                ask(method, uri, headers).map(|asked| asked.ask),
                Err(expected.into()),
                "{method} {uri} {headers:?}"
            );
        }
        assert!(ask("PUT", "/b/a", &[("x-amz-copy-source", "/b/x%20y?versionId=1")]).is_ok());
    }
}
