//! Listening, connections, signatures, and which part answers a request.
//!
//! A runtime of its own waits for sockets; what waits for the store or the daemon runs on its blocking threads, of which there are as many as requests
//! at a time. With keys, each request must be signed with one of them. Without keys, signatures are not looked at, and the address must be of this
//! machine alone.

mod listing;
mod object;
mod pass;

use crate::asked::{Ask, Writes, asked};
use crate::figures::{Figures, count};
use crate::keys::Keys;
use crate::known::Known;
use crate::listings::Listings;
use hashbrown::HashMap;
use http::header::{AUTHORIZATION, CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri};
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use parking_lot::Mutex;
use pass::{PIECES, Passed};
use s3s::route::S3Route;
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s::{Body, HttpError, S3, S3Request, S3Response, S3Result, s3_error};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;
use terrace_files::catalogue::Freshness;
use terrace_files::client::Client;
use terrace_files::read::{Files, Front};
use terrace_io::clock::Nanos;
use terrace_io::object::passage::Passage;
use tokio::sync::Semaphore;

/// Bytes of a piece of an object.
pub const CHUNK: u64 = 128 << 10;
/// Buffers of a request: pieces on their way, the one that is made, the one that is sent.
const BUFFERS: u64 = PIECES as u64 + 2;
/// Requests at a time, if memory is there.
const REQUESTS_MAX: u64 = 64;
/// Connections at a time: others wait to be accepted.
const CONNECTIONS_MAX: usize = 1024;
/// A client has this long to send a request's head.
const HEAD_TIME: Duration = Duration::from_secs(30);

pub struct Settings {
    pub listen: SocketAddr,
    pub keys: Keys,
    pub freshness: Freshness,
    /// The daemon's.
    pub socket: PathBuf,
    /// For all that the endpoint keeps.
    pub memory: u64,
}

/// Locks by name, which exist as long as a request has one.
#[derive(Default)]
pub struct Flights(Mutex<HashMap<Arc<str>, Weak<tokio::sync::Mutex<()>>>>);

impl Flights {
    pub fn of(&self, name: &Arc<str>) -> Arc<tokio::sync::Mutex<()>> {
        let mut all = self.0.lock();
        if let Some(flight) = all.get(name).and_then(Weak::upgrade) {
            return flight;
        }
        // There are no more than requests, and as many of the past.
        if all.len() >= 4 * REQUESTS_MAX as usize {
            all.retain(|_, flight| flight.strong_count() > 0);
        }
        let flight = Arc::default();
        all.insert(name.clone(), Arc::downgrade(&flight));
        flight
    }
}

/// The endpoint, as all requests share it.
pub struct Door {
    pub files: Arc<Files>,
    pub passage: Passage,
    pub figures: Figures,
    pub known: Mutex<Known>,
    pub listings: Mutex<Listings>,
    pub flights: Flights,
    /// Connections to the daemon that are not in use.
    pub clients: Mutex<Vec<Client>>,
    pub socket: PathBuf,
    has_keys: bool,
    listen: SocketAddr,
    requests: Arc<Semaphore>,
    requests_max: usize,
}

/// The endpoint at work. Ends when it is dropped.
pub struct Running {
    pub listen: SocketAddr,
    runtime: Option<tokio::runtime::Runtime>,
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(Duration::from_secs(2));
        }
    }
}

impl Door {
    /// Listens, and serves from now on.
    pub fn open(files: Arc<Files>, passage: Passage, settings: Settings) -> Result<Running, String> {
        let Settings { listen, keys, freshness, socket, memory } = settings;
        if keys.is_empty() && !listen.ip().is_loopback() {
            return Err(format!(
                "{listen} can be reached from other machines: keys are needed to listen there"
            ));
        }
        let at = |error: std::io::Error| format!("{listen}: {error}");
        let requests_max = (memory / 2 / (BUFFERS * CHUNK)).clamp(4, REQUESTS_MAX) as usize;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .max_blocking_threads(requests_max + 4)
            .thread_name("files-s3")
            .enable_all()
            .build()
            .map_err(at)?;
        let listener = runtime.block_on(tokio::net::TcpListener::bind(listen)).map_err(at)?;
        let listen = listener.local_addr().map_err(at)?;
        let door = Arc::new(Door {
            files: files.clone(),
            passage,
            figures: Figures::default(),
            known: Mutex::new(Known::new(freshness, memory / 4)),
            listings: Mutex::new(Listings::new(freshness, memory / 4)),
            flights: Flights::default(),
            clients: Mutex::default(),
            socket,
            has_keys: !keys.is_empty(),
            listen,
            requests: Arc::new(Semaphore::new(requests_max)),
            requests_max,
        });
        files.stand_before(Arc::new(Told(Arc::downgrade(&door))));
        let mut builder = S3ServiceBuilder::new(Nothing);
        if door.has_keys {
            builder.set_auth(keys);
        }
        builder.set_route(Route(door.clone()));
        runtime.spawn(accept(listener, builder.build(), door));
        Ok(Running { listen, runtime: Some(runtime) })
    }

    pub fn now(&self) -> Nanos {
        self.files.world.clock.now()
    }

    /// What is kept here of the key does not hold any more.
    pub fn forget(&self, key: &str) {
        self.known.lock().changed(key);
        self.listings.lock().changed(key);
    }

    fn status(&self) -> String {
        let ((headers, header_bytes), (listings, listing_bytes)) =
            (self.known.lock().sizes(), self.listings.lock().sizes());
        format!(
            "{{\"s3_listen\": \"{}\", \"s3_bucket\": \"{}\", \"s3_requests_now\": {}, \"s3_requests_max\": {}, \"s3_objects_known\": {headers}, \
             \"s3_object_bytes\": {header_bytes}, \"s3_listings\": {listings}, \"s3_listing_bytes\": {listing_bytes}, {}}}",
            self.listen,
            self.passage.bucket_name,
            self.requests_max - self.requests.available_permits(),
            self.requests_max,
            self.figures.json()
        )
    }
}

/// What the daemon has of the endpoint, which has the daemon.
struct Told(Weak<Door>);

impl Front for Told {
    fn changed(&self, path: &str) {
        if let Some(door) = self.0.upgrade() {
            door.forget(path);
        }
    }
    fn evicted(&self, prefix: &str) {
        if let Some(door) = self.0.upgrade() {
            door.known.lock().evicted(prefix);
            door.listings.lock().evicted(prefix);
        }
    }
    fn status(&self) -> String {
        self.0.upgrade().map_or("null".into(), |door| door.status())
    }
}

/// The operations that the crate knows are not used: requests are answered before it looks at them.
struct Nothing;

#[async_trait::async_trait]
impl S3 for Nothing {}

struct Route(Arc<Door>);

#[async_trait::async_trait]
impl S3Route for Route {
    fn is_match(&self, _: &Method, _: &Uri, _: &HeaderMap, _: &mut http::Extensions) -> bool {
        true
    }

    async fn check_access(&self, request: &mut S3Request<Body>) -> S3Result<()> {
        match self.0.has_keys && request.credentials.is_none() {
            true => Err(s3_error!(AccessDenied, "Access Denied")),
            false => Ok(()),
        }
    }

    async fn call(&self, mut request: S3Request<Body>) -> S3Result<S3Response<Body>> {
        let door = &self.0;
        let asked = asked(&request.method, &request.uri, &request.headers, &door.passage.bucket_name)?;
        let body_says = request.headers.get("x-amz-content-sha256").and_then(|value| value.to_str().ok());
        if !door.has_keys && body_says.is_some_and(|says| says.starts_with("STREAMING-")) {
            return Err(s3_error!(NotImplemented, "Signed pieces of a body need an endpoint that has keys"));
        }
        let permit = door.requests.clone().acquire_owned().await;
        let permit = Arc::new(permit.map_err(|_| s3_error!(ServiceUnavailable, "the daemon ends"))?);
        match asked.ask.clone() {
            Ask::Buckets => door.buckets(request).await,
            Ask::Listing(prefix) => door.list(asked, prefix, request).await,
            Ask::Read(key) => door.read(asked, key, request, permit).await,
            Ask::Pass(writes) => {
                let passed = Passed::of(&request.method, asked.key, asked.query, &request.headers)?;
                let body = if writes == Writes::Nothing {
                    Body::empty()
                } else {
                    std::mem::take(&mut request.input)
                };
                door.pass(passed, body, request.trailing_headers, writes, permit).await
            }
        }
    }
}

/// Without keys nothing can be said of a signature.
fn unsigned<T>(request: &mut Request<T>) {
    request.headers_mut().remove(AUTHORIZATION);
    let Some(query) = request.uri().query() else { return };
    let is_signature = |pair: &&str| {
        let name = pair.split('=').next().unwrap_or_default();
        ["x-amz-signature", "signature"].iter().any(|one| name.eq_ignore_ascii_case(one))
    };
    let kept: Vec<&str> = query.split('&').filter(|pair| !is_signature(pair)).collect();
    if let Ok(uri) = format!("{}?{}", request.uri().path(), kept.join("&")).parse() {
        *request.uri_mut() = uri;
    }
}

async fn answer(
    door: &Door,
    service: &S3Service,
    mut request: Request<hyper::body::Incoming>,
) -> Result<Response<Body>, HttpError> {
    count(&door.figures.requests, 1);
    if !door.has_keys {
        unsigned(&mut request);
    }
    let has_body = request.headers().contains_key(TRANSFER_ENCODING)
        || request.headers().get(CONTENT_LENGTH).is_some_and(|length| length.as_bytes() != b"0");
    let mut answer = Service::call(service, request).await;
    // A client that waited for "100 Continue" sends no body after an error, and one that did not may have sent a part: what comes next on the connection could
    // be taken for the rest of it.
    if has_body
        && let Ok(answer) = &mut answer
        && !answer.status().is_success()
    {
        answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    if answer.as_ref().is_ok_and(|answer| answer.status() == StatusCode::FORBIDDEN) {
        count(&door.figures.refused, 1);
    }
    answer
}

async fn accept(listener: tokio::net::TcpListener, service: S3Service, door: Arc<Door>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        let socket = match listener.accept().await {
            Ok((socket, _)) => socket,
            Err(_) => {
                // Such as too many open files: others end.
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        // Else head and body of an answer wait for each other.
        let _ = socket.set_nodelay(true);
        count(&door.figures.connections, 1);
        let (service, door) = (service.clone(), door.clone());
        tokio::spawn(async move {
            let each = service_fn(move |request| {
                let (service, door) = (service.clone(), door.clone());
                async move { answer(&door, &service, request).await }
            });
            let mut builder = Builder::new(TokioExecutor::new());
            builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_TIME);
            let _ = builder.serve_connection(TokioIo::new(socket), each).await;
            drop(place);
        });
    }
}
