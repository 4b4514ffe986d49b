//! GET and HEAD of an object from the cache.
//!
//! First the object's headers: what is known of them, if it is fresh, or a HEAD, one for all requests that wait for it. Then conditions and the range. Then
//! the bytes, which a client of the daemon reads from the shared memory, of the version that the headers are of. If the daemon has another version, what
//! either knows is dropped, and it begins again, [`ATTEMPTS`] times; then the store answers by itself. So headers and bytes are always of one version.
//!
//! What the store must say itself is passed on: errors, 412, ranges that are not in the object.

use crate::asked::{Asked, Writes};
use crate::conditions::{Condition, Range, condition, range};
use crate::door::pass::{Head, PIECES, Passed, Piece, Pieces, error_of, give, response};
use crate::door::{CHUNK, Door};
use crate::figures::count;
use crate::known::Entry;
use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_RANGE};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use s3s::{Body, S3Request, S3Response, S3Result, s3_error};
use std::sync::Arc;
use terrace_files::catalogue::{BLOCK_BYTES, Fault};
use terrace_files::client::{Client, Error};
use terrace_io::clock::Nanos;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

/// Times that a read begins because the object changed.
const ATTEMPTS: usize = 5;

enum Looked {
    Found(Arc<Entry>),
    /// The store answered something else than the object's headers.
    Answered(Head),
}

/// What the bytes of an answer are.
#[derive(Clone)]
struct Wanted {
    key: Arc<str>,
    entry: Arc<Entry>,
    from: u64,
    length: u64,
}

impl Door {
    pub async fn read(
        self: &Arc<Door>,
        asked: Asked,
        key: Arc<str>,
        request: S3Request<Body>,
        permit: Arc<OwnedSemaphorePermit>,
    ) -> S3Result<S3Response<Body>> {
        let is_head = request.method == Method::HEAD;
        let mut since = self.now();
        for _ in 0..ATTEMPTS {
            let entry = match self.look(&key, since).await? {
                Looked::Found(entry) => entry,
                Looked::Answered(head) if is_head => return Ok(response(head, Body::empty())),
                Looked::Answered(_) => break,
            };
            match condition(&request.headers, &entry.etag, entry.modified) {
                Condition::Holds => {}
                Condition::NotModified => return Ok(self.not_modified(&entry)),
                Condition::Failed => break,
            }
            let (from, length) =
                match if is_head { Range::Whole } else { range(&request.headers, entry.length) } {
                    Range::Whole => (0, entry.length),
                    Range::Part(from, length) => (from, length),
                    Range::Unclear => break,
                };
            let is_part = request.headers.contains_key("range") && !is_head;
            let head =
                |body| self.found(&request.headers, &entry, is_part.then_some((from, length)), length, body);
            if is_head || length == 0 {
                return Ok(head(Body::empty()));
            }
            let wanted = Wanted { key: key.clone(), entry: entry.clone(), from, length };
            match self.bytes(wanted, permit.clone()).await {
                Ok(body) => return Ok(head(body)),
                // One of the two knows an older version than the other.
                Err(Fault::Changed | Fault::Absent) => {
                    self.written(&key);
                    since = self.now();
                }
                Err(fault @ (Fault::Unavailable(_) | Fault::Busy(_))) => return Err(error_of(&fault)),
                Err(_) => break,
            }
        }
        let passed = Passed::of(&request.method, Some(key), asked.query, &request.headers)?;
        self.pass(passed, Body::empty(), None, Writes::Nothing, permit).await
    }

    /// The object's headers, as fresh as they have to be for a request that began at `since`.
    async fn look(self: &Arc<Door>, key: &Arc<str>, since: Nanos) -> S3Result<Looked> {
        if let Some(entry) = self.known.lock().find(key, since, self.now()) {
            return Ok(Looked::Found(entry));
        }
        let flight = self.flights.of(key);
        let _turn = flight.lock().await;
        // Another may have asked meanwhile.
        if let Some(entry) = self.known.lock().find(key, since, self.now()) {
            return Ok(Looked::Found(entry));
        }
        let (began, stamp) = (self.now(), self.known.lock().stamp(key));
        count(&self.figures.heads, 1);
        let checksums = [("x-amz-checksum-mode".to_string(), "ENABLED".to_string())].to_vec();
        let passed = Passed {
            method: Method::HEAD,
            key: Some(key.clone()),
            of_service: false,
            query: Vec::new(),
            headers: checksums,
            length: 0,
            sha256: None,
        };
        let door = self.clone();
        let answer = tokio::task::spawn_blocking(move || door.ask(&passed)).await;
        match answer.map_err(|_| s3_error!(InternalError, "the request was not made"))? {
            Ok((head, _)) if head.0 == 200 => match Entry::of(&head.1) {
                Some(entry) => {
                    let entry = Arc::new(entry);
                    self.known.lock().keep(key, entry.clone(), began, stamp);
                    Ok(Looked::Found(entry))
                }
                None => Ok(Looked::Answered(head)),
            },
            Ok((head, _)) => {
                self.known.lock().remove(key);
                Ok(Looked::Answered(head))
            }
            Err(fault @ Fault::Unavailable(_)) => match self.known.lock().find_in_outage(key, self.now()) {
                Some(entry) => {
                    count(&self.figures.served_in_outage, 1);
                    Ok(Looked::Found(entry))
                }
                None => Err(error_of(&fault)),
            },
            Err(fault) => Err(error_of(&fault)),
        }
    }

    fn not_modified(&self, entry: &Entry) -> S3Response<Body> {
        count(&self.figures.cached, 1);
        count(&self.figures.not_modified, 1);
        let mut response = S3Response::new(Body::empty());
        response.status = Some(StatusCode::NOT_MODIFIED);
        let of_304 = ["etag", "last-modified", "cache-control", "expires", "vary", "x-amz-version-id"];
        let kept = entry.headers.iter().filter(|(name, _)| of_304.contains(&name.as_str()));
        response.headers = kept.map(|(name, value)| (name.clone(), value.clone())).collect();
        response
    }

    fn found(
        &self,
        asked: &HeaderMap,
        entry: &Entry,
        part: Option<(u64, u64)>,
        length: u64,
        body: Body,
    ) -> S3Response<Body> {
        count(&self.figures.cached, 1);
        let mut response = S3Response::new(body);
        response.headers = entry.headers.clone();
        response.headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
        let wants_checksums = asked
            .get("x-amz-checksum-mode")
            .is_some_and(|mode| mode.as_bytes().eq_ignore_ascii_case(b"enabled"));
        if let Some((from, length)) = part {
            response.status = Some(StatusCode::PARTIAL_CONTENT);
            let text = format!("bytes {from}-{}/{}", from + length - 1, entry.length);
            if let Ok(value) = HeaderValue::from_str(&text) {
                response.headers.insert(CONTENT_RANGE, value);
            }
        }
        // They are of the whole object.
        if wants_checksums && length == entry.length {
            response.headers.extend(entry.checksums.clone());
        }
        response
    }

    /// The bytes: the first ones are there when this returns, the others come behind them.
    async fn bytes(
        self: &Arc<Door>,
        wanted: Wanted,
        permit: Arc<OwnedSemaphorePermit>,
    ) -> Result<Body, Fault> {
        let gone = || Fault::Unavailable("the read was not made".into());
        count(&self.figures.sent_bytes, wanted.length);
        let door = self.clone();
        if wanted.length <= CHUNK {
            let whole = move || door.with_client(|client| copy(client, &wanted));
            return tokio::task::spawn_blocking(whole).await.map_err(|_| gone())?.map(Body::from);
        }
        let (to, from) = mpsc::channel(PIECES);
        let (begin, begun) = oneshot::channel();
        let left = Some(wanted.length);
        let mut stream = Stream { wanted, done: 0, begin: Some(begin), runtime: Handle::current(), to };
        tokio::task::spawn_blocking(move || {
            let _permit = permit;
            let result = door.with_client(|client| {
                let result = stream.run(client);
                // The leases end now, not with the next request of this connection.
                result.and(client.release())
            });
            if let Err(fault) = result {
                stream.fail(fault);
            }
        });
        begun.await.map_err(|_| gone())??;
        Ok(Body::http_body_unsync(Pieces { from, left }))
    }

    /// Does something with a connection to the daemon; with a new one, if the first one had ended.
    fn with_client<T>(&self, mut work: impl FnMut(&Client) -> Result<T, Error>) -> Result<T, Fault> {
        let mut result = Err(Error::Fault(Fault::Unavailable("the daemon ends".into())));
        for _ in 0..2 {
            let pooled = self.clients.lock().pop();
            let client = match pooled.map_or_else(|| Client::connect(&self.socket, ""), Ok) {
                Ok(client) => client,
                Err(error) => {
                    result = Err(error);
                    continue;
                }
            };
            result = work(&client);
            // After these its connection is still good.
            if matches!(&result, Ok(_) | Err(Error::Fault(_))) {
                self.clients.lock().push(client);
                break;
            }
        }
        result.map_err(|error| match error {
            Error::Fault(fault) => fault,
            error => Fault::Unavailable(error.to_string()),
        })
    }
}

/// A short object or part, in one piece.
fn copy(client: &Client, wanted: &Wanted) -> Result<Bytes, Error> {
    let mut bytes = vec![0; wanted.length as usize];
    let (got, length) = client.read_into(&wanted.key, wanted.from, &mut bytes, &wanted.entry.version)?;
    match got == bytes.len() && length == wanted.entry.length {
        true => Ok(bytes.into()),
        false => Err(Fault::Changed.into()),
    }
}

/// A longer one, block by block. The block that is being sent is under lease, so a change of the object does not reach it.
struct Stream {
    wanted: Wanted,
    /// Bytes that were given to the client.
    done: u64,
    /// Told when the first block is there, or why it is not.
    begin: Option<oneshot::Sender<Result<(), Fault>>>,
    runtime: Handle,
    to: mpsc::Sender<Piece>,
}

impl Stream {
    /// Ends early, without an error, if the client has gone.
    fn run(&mut self, client: &Client) -> Result<(), Error> {
        while self.done < self.wanted.length {
            let Wanted { key, entry, from, length } = &self.wanted;
            let at = from + self.done;
            let step = (BLOCK_BYTES - at % BLOCK_BYTES).min(length - self.done);
            let view = client.read(key, at, step, &entry.version)?;
            let got: u64 = view.pieces().map(|piece| piece.len() as u64).sum();
            if view.info.length != entry.length || got != step {
                return Err(Fault::Changed.into());
            }
            if self.begin.take().is_some_and(|begin| begin.send(Ok(())).is_err()) {
                return Ok(());
            }
            for piece in view.pieces().flat_map(|piece| piece.chunks(CHUNK as usize)) {
                if !give(&self.runtime, &self.to, Ok(Bytes::copy_from_slice(piece))) {
                    return Ok(());
                }
                self.done += piece.len() as u64;
            }
        }
        Ok(())
    }

    /// Before the answer has begun, another one can be given; later, the client knows by its length that it is not whole.
    fn fail(&mut self, fault: Fault) {
        match self.begin.take() {
            Some(begin) => {
                let _ = begin.send(Err(fault));
            }
            None => {
                let _ = give(&self.runtime, &self.to, Err(std::io::Error::other(fault.to_string())));
            }
        }
    }
}
