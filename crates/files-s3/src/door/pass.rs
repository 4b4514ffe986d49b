//! Requests that go to the store as they are, and their answers.
//!
//! A request to the store is made on a thread of its own, which waits; bodies pass between it and the client in pieces through short channels. What
//! a write changes is told to the cache when the store has answered, or has failed to, and before the client has the answer: on that thread, as a
//! client that goes away ends the rest.

use crate::asked::Writes;
use crate::door::Door;
use crate::figures::count;
use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH};
use http::{HeaderMap, HeaderName, Method, StatusCode};
use http_body_util::BodyExt;
use parking_lot::Mutex;
use s3s::dto::Delete;
use s3s::xml::{Deserialize, Deserializer};
use s3s::{Body, S3Error, S3Response, S3Result, TrailingHeaders, s3_error};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use terrace_files::catalogue::Fault;
use terrace_files::wire::check_path;
use terrace_io::object::passage::{Relay, Request, Target};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use tokio::time::timeout;

/// Pieces that wait in each direction.
pub const PIECES: usize = 2;
/// A client that takes or gives no byte for this long has gone.
pub const STALL: Duration = Duration::from_secs(60);
/// An answer to a write, in bytes: a result or an error.
const ANSWER_MAX: usize = 8 << 20;
/// The names of keys to delete, in bytes.
const DELETE_MAX: usize = 4 << 20;
/// A body whose checksum comes behind it is held until it is there, if it is not longer than this.
const HELD_MAX: u64 = 8 << 20;
/// Headers of the connection or the signature, and those that are set anew.
const NOT_PASSED: [&str; 22] = [
    "accept-encoding",
    "authorization",
    "connection",
    "content-length",
    "date",
    "expect",
    "host",
    "keep-alive",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
    "x-amz-content-sha256",
    "x-amz-date",
    "x-amz-decoded-content-length",
    "x-amz-security-token",
    "x-amz-trailer",
    "amz-sdk-invocation-id",
    "amz-sdk-request",
];

pub type Head = (u16, Vec<(String, String)>);
pub type Piece = Result<Bytes, std::io::Error>;

/// What goes to the store.
pub struct Passed {
    pub method: Method,
    pub key: Option<Arc<str>>,
    pub of_service: bool,
    pub query: Vec<(String, String)>,
    pub headers: Vec<(String, String)>,
    pub length: u64,
    pub sha256: Option<String>,
}

impl Passed {
    pub fn of(
        method: &Method,
        key: Option<Arc<str>>,
        query: Vec<(String, String)>,
        headers: &HeaderMap,
    ) -> S3Result<Passed> {
        let mut passed = Vec::new();
        for (name, value) in headers.iter().filter(|(name, _)| !NOT_PASSED.contains(&name.as_str())) {
            let value = std::str::from_utf8(value.as_bytes())
                .map_err(|_| s3_error!(InvalidArgument, "The value of a header is not UTF-8"))?;
            let value = match *name == CONTENT_ENCODING {
                true => value
                    .split(',')
                    .map(str::trim)
                    .filter(|one| *one != "aws-chunked")
                    .collect::<Vec<_>>()
                    .join(","),
                false => value.to_string(),
            };
            if *name != CONTENT_ENCODING || !value.is_empty() {
                passed.push((name.as_str().to_string(), value));
            }
        }
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let length = text(CONTENT_LENGTH.as_str()).map(str::parse).transpose();
        let length = length.map_err(|_| s3_error!(InvalidArgument, "Content-Length is not a number"))?;
        if length.is_none() && *method == Method::PUT {
            return Err(s3_error!(MissingContentLength));
        }
        let is_digest = |text: &&str| text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let sha256 = text("x-amz-content-sha256").filter(is_digest).map(str::to_string);
        let (method, of_service) = (method.clone(), false);
        Ok(Passed { method, key, of_service, query, headers: passed, length: length.unwrap_or(0), sha256 })
    }

    fn send(&self, door: &Door, relay: Box<dyn Relay>) -> Result<(), Fault> {
        let target = match &self.key {
            Some(key) => Target::Object(key),
            None if self.of_service => Target::Service,
            None => Target::Bucket,
        };
        let Passed { method, query, headers, length, sha256, .. } = self;
        let request = Request {
            method: method.as_str(),
            target,
            query,
            headers,
            length: *length,
            sha256: sha256.as_deref(),
        };
        door.files.store.pass(|| door.passage.send(&request, relay))
    }
}

/// What the client is told when the store cannot be asked.
pub fn error_of(fault: &Fault) -> S3Error {
    match fault {
        Fault::Unavailable(why) => s3_error!(ServiceUnavailable, "{}", why),
        Fault::Busy(why) => s3_error!(SlowDown, "{}", why),
        Fault::Refused(why) => s3_error!(AccessDenied, "{}", why),
        fault => s3_error!(InternalError, "{}", fault),
    }
}

pub fn headers_of(answer: Vec<(String, String)>) -> HeaderMap {
    let of_connection = ["connection", "keep-alive", "transfer-encoding"];
    let mut headers = HeaderMap::new();
    for (name, value) in answer {
        let (Ok(name), Ok(value)) =
            (name.parse::<HeaderName>(), http::HeaderValue::from_bytes(value.as_bytes()))
        else {
            continue;
        };
        if !of_connection.contains(&name.as_str()) {
            headers.append(name, value);
        }
    }
    headers
}

pub fn response((status, headers): Head, body: Body) -> S3Response<Body> {
    let mut response = S3Response::new(body);
    response.status = StatusCode::from_u16(status).ok();
    response.headers = headers_of(headers);
    response
}

/// The body of an answer that comes piece by piece.
pub struct Pieces {
    pub from: mpsc::Receiver<Piece>,
    /// Not passed on yet, if it is known.
    pub left: Option<u64>,
}

impl http_body::Body for Pieces {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, std::io::Error>>> {
        let piece = std::task::ready!(self.from.poll_recv(context));
        if let (Some(Ok(bytes)), Some(left)) = (&piece, &mut self.left) {
            *left = left.saturating_sub(bytes.len() as u64);
        }
        Poll::Ready(piece.map(|piece| piece.map(http_body::Frame::data)))
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.left.map_or_else(Default::default, http_body::SizeHint::with_exact)
    }
}

/// The exchange of one request, on the thread that makes it.
struct Exchange {
    runtime: Handle,
    /// From the client; None: it has no body.
    body: Option<mpsc::Receiver<Piece>>,
    piece: Bytes,
    head: Option<oneshot::Sender<Head>>,
    to: mpsc::Sender<Piece>,
}

impl Relay for Exchange {
    fn send(&mut self, into: &mut [u8]) -> Option<usize> {
        let Some(body) = &mut self.body else { return Some(0) };
        while self.piece.is_empty() {
            match self.runtime.block_on(async { timeout(STALL, body.recv()).await }) {
                Ok(Some(Ok(piece))) => self.piece = piece,
                Ok(None) => return Some(0),
                Ok(Some(Err(_))) | Err(_) => return None,
            }
        }
        let some = self.piece.len().min(into.len());
        into[..some].copy_from_slice(&self.piece.split_to(some));
        Some(some)
    }
    fn begin(&mut self, status: u16, headers: Vec<(String, String)>) -> bool {
        self.head.take().is_some_and(|head| head.send((status, headers)).is_ok())
    }
    fn receive(&mut self, bytes: &[u8]) -> bool {
        give(&self.runtime, &self.to, Ok(Bytes::copy_from_slice(bytes)))
    }
}

/// Gives a piece to the client; false: it does not take it. For threads that may wait.
pub fn give(runtime: &Handle, to: &mpsc::Sender<Piece>, piece: Piece) -> bool {
    matches!(runtime.block_on(async { timeout(STALL, to.send(piece)).await }), Ok(Ok(())))
}

/// The exchange of a write: its answer is taken whole.
#[derive(Default)]
struct Whole {
    head: Option<Head>,
    body: Vec<u8>,
}

struct Writing {
    body: Exchange,
    whole: Arc<Mutex<Whole>>,
}

impl Relay for Writing {
    fn send(&mut self, into: &mut [u8]) -> Option<usize> {
        self.body.send(into)
    }
    fn begin(&mut self, status: u16, headers: Vec<(String, String)>) -> bool {
        self.whole.lock().head = Some((status, headers));
        true
    }
    fn receive(&mut self, bytes: &[u8]) -> bool {
        let mut whole = self.whole.lock();
        whole.body.extend_from_slice(bytes);
        whole.body.len() <= ANSWER_MAX
    }
}

/// Passes the frames of a client's body on.
async fn pump(mut body: Body, to: mpsc::Sender<Piece>, door: Arc<Door>) {
    loop {
        let piece = match body.frame().await {
            None => return,
            Some(Err(error)) => Err(std::io::Error::other(error.to_string())),
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => Ok(data),
                Err(_) => continue,
            },
        };
        count(&door.figures.received_bytes, piece.as_ref().map_or(0, |bytes| bytes.len() as u64));
        let is_over = piece.is_err();
        if to.send(piece).await.is_err() || is_over {
            return;
        }
    }
}

async fn held(body: Body, most: usize) -> S3Result<Bytes> {
    let limited = http_body_util::Limited::new(body, most);
    let taken = timeout(STALL, limited.collect()).await.map_err(|_| s3_error!(RequestTimeout))?;
    taken.map(|taken| taken.to_bytes()).map_err(|error| {
        match error.downcast_ref::<http_body_util::LengthLimitError>() {
            Some(_) => s3_error!(MaxMessageLengthExceeded),
            None => s3_error!(IncompleteBody, "{}", error),
        }
    })
}

/// The keys that a request deletes.
fn deleted(xml: &[u8]) -> S3Result<Vec<Arc<str>>> {
    let delete = Delete::deserialize(&mut Deserializer::new(xml));
    let delete = delete.map_err(|error| s3_error!(MalformedXML, "{}", error))?;
    Ok(delete.objects.into_iter().map(|object| object.key.into()).collect())
}

impl Door {
    /// Sends the request to the store and passes the answer on.
    pub async fn pass(
        self: &Arc<Door>,
        mut passed: Passed,
        body: Body,
        trailers: Option<TrailingHeaders>,
        writes: Writes,
        permit: Arc<OwnedSemaphorePermit>,
    ) -> S3Result<S3Response<Body>> {
        count(&self.figures.passed, 1);
        let mut body = body;
        let keys = match &writes {
            Writes::Nothing => Vec::new(),
            Writes::Key(key) => vec![key.clone()],
            Writes::Many => {
                let bytes = held(std::mem::take(&mut body), DELETE_MAX).await?;
                let keys = deleted(&bytes)?;
                passed.length = bytes.len() as u64;
                body = Body::from(bytes);
                keys
            }
        };
        if let Some(trailers) = trailers {
            passed.headers.retain(|(name, _)| name != "x-amz-sdk-checksum-algorithm");
            if passed.length <= HELD_MAX {
                let bytes = held(std::mem::take(&mut body), HELD_MAX as usize).await?;
                for (name, value) in trailers.take().unwrap_or_default() {
                    if let (Some(name), Ok(value)) = (name, value.to_str()) {
                        passed.headers.push((name.as_str().to_string(), value.to_string()));
                    }
                }
                body = Body::from(bytes);
            }
        }
        let body = (passed.length > 0).then(|| {
            let (to, from) = mpsc::channel(PIECES);
            tokio::spawn(pump(body, to, self.clone()));
            from
        });
        match writes {
            Writes::Nothing => self.pass_read(passed, body, permit).await,
            _ => self.pass_write(passed, body, keys, permit).await,
        }
    }

    async fn pass_read(
        self: &Arc<Door>,
        passed: Passed,
        body: Option<mpsc::Receiver<Piece>>,
        permit: Arc<OwnedSemaphorePermit>,
    ) -> S3Result<S3Response<Body>> {
        let (to, from) = mpsc::channel(PIECES);
        let (head, begun) = oneshot::channel();
        let runtime = Handle::current();
        let exchange = Exchange {
            runtime: runtime.clone(),
            body,
            piece: Bytes::new(),
            head: Some(head),
            to: to.clone(),
        };
        let (door, is_head) = (self.clone(), passed.method == Method::HEAD);
        let request = tokio::task::spawn_blocking(move || {
            let result = passed.send(&door, Box::new(exchange));
            if let Err(fault) = &result {
                // If the answer has begun, the client must not take what it has for all.
                let _ = give(&runtime, &to, Err(std::io::Error::other(fault.to_string())));
            }
            drop(permit);
            result
        });
        let Ok(head) = begun.await else {
            return match request.await {
                Ok(Err(fault)) => Err(error_of(&fault)),
                _ => Err(s3_error!(InternalError, "the store gave no answer")),
            };
        };
        let length = head.1.iter().find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
        let left = length.and_then(|(_, value)| value.parse().ok());
        count(&self.figures.sent_bytes, left.unwrap_or(0));
        let body = if is_head { Body::empty() } else { Body::http_body_unsync(Pieces { from, left }) };
        Ok(response(head, body))
    }

    async fn pass_write(
        self: &Arc<Door>,
        passed: Passed,
        body: Option<mpsc::Receiver<Piece>>,
        keys: Vec<Arc<str>>,
        permit: Arc<OwnedSemaphorePermit>,
    ) -> S3Result<S3Response<Body>> {
        count(&self.figures.writes, 1);
        let whole = Arc::new(Mutex::new(Whole::default()));
        let (to, _) = mpsc::channel(1);
        let body = Exchange { runtime: Handle::current(), body, piece: Bytes::new(), head: None, to };
        let (door, writing) = (self.clone(), Writing { body, whole: whole.clone() });
        let request = tokio::task::spawn_blocking(move || {
            let result = passed.send(&door, Box::new(writing));
            // Even a request that failed may have taken effect.
            keys.iter().for_each(|key| door.written(key));
            drop(permit);
            result
        });
        let result = request.await.map_err(|_| s3_error!(InternalError, "the request was not made"))?;
        let Whole { head, body } = std::mem::take(&mut *whole.lock());
        match (result, head) {
            (Ok(()), Some(head)) => Ok(response(head, Body::from(body))),
            (Err(fault), _) => Err(error_of(&fault)),
            (Ok(()), None) => Err(s3_error!(InternalError, "the store gave no answer")),
        }
    }

    /// A request without a body, whose answer has none or is short. For threads that may wait.
    pub fn ask(&self, passed: &Passed) -> Result<(Head, Vec<u8>), Fault> {
        let whole = Arc::new(Mutex::new(Whole::default()));
        let (to, _) = mpsc::channel(1);
        let body = Exchange { runtime: Handle::current(), body: None, piece: Bytes::new(), head: None, to };
        passed.send(self, Box::new(Writing { body, whole: whole.clone() }))?;
        let Whole { head, body } = std::mem::take(&mut *whole.lock());
        head.map(|head| (head, body)).ok_or_else(|| Fault::Unavailable("the store gave no answer".into()))
    }

    /// The key has another content now, or none.
    pub fn written(&self, key: &Arc<str>) {
        match check_path(key) {
            // This front is told, too.
            Ok(()) => self.files.changed(key),
            Err(_) => self.forget(key),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_to_delete_are_read_from_the_body() {
        let xml = b"<?xml version=\"1.0\"?><Delete xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Object><Key>a &amp; b/\xc3\xa4</Key></Object>\
            <Object><Key>c</Key><VersionId>1</VersionId></Object><Quiet>true</Quiet></Delete>";
        let keys = deleted(xml).unwrap();
        assert_eq!(keys.iter().map(|key| &**key).collect::<Vec<_>>(), ["a & b/ä", "c"]);
        for bad in [&b""[..], b"<Delete>", b"<Other/>"] {
            assert!(deleted(bad).is_err());
        }
    }

    #[test]
    fn what_belongs_to_the_connection_or_the_signature_is_not_passed_on() {
        let pairs = [
            ("host", "h"),
            ("authorization", "secret"),
            ("x-amz-meta-a", "b"),
            ("content-encoding", "aws-chunked,gzip"),
            ("content-length", "5"),
            ("x-amz-date", "d"),
        ];
        let headers: HeaderMap = pairs
            .iter()
            .map(|(name, value)| (name.parse::<HeaderName>().unwrap(), value.parse().unwrap()))
            .collect();
        let passed = Passed::of(&Method::PUT, None, Vec::new(), &headers).unwrap();
        let mut found = passed.headers.clone();
        found.sort();
        assert_eq!(
            found,
            [("content-encoding".to_string(), "gzip".to_string()), ("x-amz-meta-a".into(), "b".into())]
        );
        assert_eq!((passed.length, passed.sha256), (5, None));
        assert!(Passed::of(&Method::PUT, None, Vec::new(), &HeaderMap::new()).is_err());
    }
}
