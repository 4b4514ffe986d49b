//! HTTP over the system's libcurl, on the caller's thread.
//!
//! The object store crate wants an async client; a request here is made in one blocking call, for
//! the adapter above blocks anyway: no runtime, no threads, and a connection is kept with its handle
//! in a pool, newest first. What happened is told through [`wire`].
//!
//! Not here: retries (see `adapter`) and signing (the crate's).

use crate::AlignedBuf;
use crate::cancel;
use crate::object::wire;
use async_trait::async_trait;
use bytes::Bytes;
use curl::easy::{Easy2, Handler, List, ReadError, WriteError};
use http_body_util::BodyExt;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Time limits of one request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) connect: Duration,
    pub(crate) total: Duration,
    /// Handles, each with its connection, kept when idle.
    pub(crate) idle_max: usize,
}

/// An answer larger than this is refused: objects are a few MiB.
const ANSWER_MAX: usize = 256 << 20;
/// A connection older than this is not used again: servers close idle ones.
const IDLE: Duration = Duration::from_secs(20);
/// A metadata service answers at once or is not there.
const METADATA_CONNECT: Duration = Duration::from_secs(1);
const METADATA_HOSTS: [&str; 3] = ["169.254.169.254", "169.254.170.2", "metadata.google.internal"];

#[derive(Debug)]
pub(crate) struct CurlConnector(pub(crate) Limits);

impl HttpConnector for CurlConnector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(Curl { limits: self.0, idle: Arc::default() }))
    }
}

struct Curl {
    limits: Limits,
    idle: Arc<Mutex<Vec<Easy2<Exchange>>>>,
}

impl std::fmt::Debug for Curl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Curl")
    }
}

/// One request and its answer, as libcurl's callbacks see them.
#[derive(Default)]
struct Exchange {
    to_send: VecDeque<Bytes>,
    sent: u64,
    headers: Vec<(String, String)>,
    body: Body,
}

/// An answer's bytes so far. What is large goes back to the kernel when it is done with ([`AlignedBuf`]).
#[derive(Default)]
struct Body {
    room: Option<AlignedBuf>,
    len: usize,
}

impl Body {
    fn reserve(&mut self, more: usize) {
        let needed = self.len + more;
        if self.room.as_ref().is_some_and(|room| room.len() >= needed) || needed == 0 {
            return;
        }
        let mut larger = AlignedBuf::zeroed(needed.max(2 * self.len));
        if let Some(room) = &self.room {
            larger[..self.len].copy_from_slice(&room[..self.len]);
        }
        self.room = Some(larger);
    }
    fn extend(&mut self, data: &[u8]) {
        self.reserve(data.len());
        if let Some(room) = &mut self.room {
            room[self.len..self.len + data.len()].copy_from_slice(data);
        }
        self.len += data.len();
    }
    fn into_bytes(self) -> Bytes {
        self.room.map_or_else(Bytes::new, |room| Bytes::from_owner(room).slice(..self.len))
    }
}

impl Handler for Exchange {
    fn read(&mut self, into: &mut [u8]) -> Result<usize, ReadError> {
        let mut count = 0;
        while let Some(part) = self.to_send.front_mut() {
            let some = part.len().min(into.len() - count);
            into[count..count + some].copy_from_slice(&part.split_to(some));
            count += some;
            if !part.is_empty() {
                break;
            }
            self.to_send.pop_front();
        }
        self.sent += count as u64;
        Ok(count)
    }
    // No `seek`: libcurl must not send a body a second time by itself, for a PUT may have landed.
    fn write(&mut self, data: &[u8]) -> Result<usize, WriteError> {
        if self.body.len + data.len() > ANSWER_MAX {
            return Ok(0);
        }
        self.body.extend(data);
        Ok(data.len())
    }
    /// Called about once a second, and whenever something comes or goes. False ends the request.
    fn progress(&mut self, _: f64, _: f64, _: f64, _: f64) -> bool {
        !cancel::asked()
    }
    fn header(&mut self, line: &[u8]) -> bool {
        let line = String::from_utf8_lossy(line);
        if line.starts_with("HTTP/") {
            // An interim answer's headers (100, 103) don't count.
            self.headers.clear();
        } else if let Some((name, value)) = line.split_once(':') {
            if name.eq_ignore_ascii_case("content-length") {
                let length = value.trim().parse().unwrap_or(0);
                self.body.reserve(ANSWER_MAX.min(length));
            }
            self.headers.push((name.trim().to_string(), value.trim().to_string()));
        }
        true
    }
}

#[async_trait]
impl HttpService for Curl {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let (parts, mut body) = request.into_parts();
        let mut exchange = Exchange::default();
        while let Some(frame) = body.frame().await {
            exchange.to_send.extend(frame?.into_data().ok().filter(|part| !part.is_empty()));
        }
        self.perform(&parts, exchange)
    }
}

impl Curl {
    fn perform(&self, parts: &http::request::Parts, exchange: Exchange) -> Result<HttpResponse, HttpError> {
        let mut easy = self.idle.lock().pop().unwrap_or_else(|| Easy2::new(Exchange::default()));
        // Options go, the connection stays.
        easy.reset();
        let changes = !matches!(parts.method.as_str(), "GET" | "HEAD");
        let is_metadata = parts.uri.host().is_some_and(|host| METADATA_HOSTS.contains(&host));
        wire::note(|wire| {
            wire.requests += 1;
            (wire.status, wire.retry_after, wire.timed_out) = (None, None, false);
            wire.asked_metadata = is_metadata;
        });
        self.prepare(&mut easy, parts, exchange, is_metadata)
            .map_err(|e| HttpError::new(HttpErrorKind::Unknown, e))?;
        if let Err(error) = easy.perform() {
            // The handle is dropped, and with it a connection in an unknown state.
            wire::note(|wire| {
                wire.timed_out = error.is_operation_timedout();
                wire.wrote |= changes && !is_metadata && !surely_unsent(&error);
            });
            return Err(HttpError::new(kind_of(&error), error));
        }
        wire::note(|wire| wire.wrote |= changes && !is_metadata);
        let response = answer(&mut easy)?;
        wire::note(|wire| {
            wire.status = Some(response.status().as_u16());
            wire.retry_after = retry_after(response.headers());
        });
        let mut idle = self.idle.lock();
        if idle.len() < self.limits.idle_max {
            idle.push(easy);
        }
        Ok(response)
    }

    fn prepare(
        &self,
        easy: &mut Easy2<Exchange>,
        parts: &http::request::Parts,
        exchange: Exchange,
        is_metadata: bool,
    ) -> Result<(), curl::Error> {
        let length: usize = exchange.to_send.iter().map(Bytes::len).sum();
        *easy.get_mut() = exchange;
        easy.url(&parts.uri.to_string())?;
        match parts.method.as_str() {
            "GET" => easy.get(true)?,
            "HEAD" => easy.nobody(true)?,
            "PUT" => easy.upload(true)?,
            "POST" => easy.post(true)?,
            other => {
                if length > 0 {
                    easy.upload(true)?;
                }
                easy.custom_request(other)?;
            }
        }
        match parts.method.as_str() {
            "POST" => easy.post_field_size(length as u64)?,
            "GET" | "HEAD" => {}
            _ => easy.in_filesize(length as u64)?,
        }
        let mut headers = List::new();
        for (name, value) in &parts.headers {
            // libcurl counts for itself.
            if name != "content-length" {
                let value = String::from_utf8_lossy(value.as_bytes());
                // A header without a value is written with a semicolon.
                let line = if value.is_empty() { format!("{name};") } else { format!("{name}: {value}") };
                headers.append(&line)?;
            }
        }
        // What libcurl would add by itself; waiting for “100 Continue” costs a round trip.
        for unwanted in ["expect", "accept", "content-type", "transfer-encoding"] {
            if !parts.headers.contains_key(unwanted) {
                headers.append(&format!("{unwanted}:"))?;
            }
        }
        let is_completion = parts.method == http::Method::POST
            && parts.uri.query().is_some_and(|query| query.contains("uploadId="));
        if is_completion && wire::creates_only() {
            headers.append("if-none-match: *")?;
        }
        easy.http_headers(headers)?;
        easy.connect_timeout(if is_metadata { METADATA_CONNECT } else { self.limits.connect })?;
        easy.timeout(self.limits.total)?;
        easy.progress(true)?;
        easy.tcp_nodelay(true)?;
        easy.tcp_keepalive(true)?;
        easy.maxage_conn(IDLE)?;
        easy.max_connects(1)?;
        easy.upload_buffer_size(512 << 10)?;
        easy.buffer_size(128 << 10)
    }
}

fn answer(easy: &mut Easy2<Exchange>) -> Result<HttpResponse, HttpError> {
    let decode = |e: http::Error| HttpError::new(HttpErrorKind::Decode, e);
    let status = easy.response_code().map_err(|e| HttpError::new(HttpErrorKind::Decode, e))?;
    let exchange = std::mem::take(easy.get_mut());
    let mut response = http::Response::builder().status(u16::try_from(status).unwrap_or(0));
    for (name, value) in &exchange.headers {
        response = response.header(name, value);
    }
    response.body(exchange.body.into_bytes().into()).map_err(decode)
}

/// How long the server asks to wait: it says seconds, or a date. That is by its own clock, which stands beside it as a rule; one that has
/// passed is now.
fn retry_after(headers: &http::HeaderMap) -> Option<Duration> {
    let text = |name| Some(headers.get(name)?.to_str().ok()?.trim());
    let date = |text| httpdate::parse_http_date(text).ok();
    let asked = text("retry-after")?;
    if let Ok(seconds) = asked.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let (at, now) = (date(asked)?, text("date").and_then(date).unwrap_or_else(SystemTime::now));
    Some(at.duration_since(now).unwrap_or_default())
}

/// No byte of the request can have reached the server.
pub(crate) fn surely_unsent(error: &curl::Error) -> bool {
    error.is_couldnt_connect()
        || error.is_couldnt_resolve_host()
        || error.is_couldnt_resolve_proxy()
        || error.is_ssl_connect_error()
        || error.is_peer_failed_verification()
        || error.is_ssl_cacert()
        || error.is_ssl_cacert_badfile()
        || error.is_url_malformed()
        || error.is_unsupported_protocol()
}

fn kind_of(error: &curl::Error) -> HttpErrorKind {
    if surely_unsent(error) {
        HttpErrorKind::Connect
    } else if error.is_operation_timedout() {
        HttpErrorKind::Timeout
    } else {
        HttpErrorKind::Interrupted
    }
}

#[cfg(test)]
mod tests;
