//! A real S3 server in this process: `s3s-fs` over a directory, with signatures checked.
//!
//! It compares and writes in two steps, so of two puts of one key at the same moment both may win:
//! tests don't race there.

use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use s3s::auth::SimpleAuth;
use s3s::service::S3ServiceBuilder;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A file beside the buckets with `<one in> <seconds>`: while it exists, one in `<one in>` requests is refused with SlowDown, to be retried after `<seconds>`.
const SLOW_DOWN: &str = "slow-down";
/// A file beside the buckets with a number of milliseconds: while it exists, each request waits that long, as on a network.
const DELAY: &str = "delay-ms";

pub const KEY: &str = "TESTKEY";
pub const SECRET: &str = "test-secret-that-must-not-show";

pub struct Server {
    pub endpoint: String,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Server {
    /// Serves the directory's folders as buckets; port 0 picks one.
    pub fn start(directory: &Path, port: u16) -> Server {
        let listener = std::net::TcpListener::bind(("127.0.0.1", port)).expect("a free port");
        listener.set_nonblocking(true).expect("a socket");
        let endpoint = format!("http://{}", listener.local_addr().expect("a bound socket"));
        let mut builder = S3ServiceBuilder::new(s3s_fs::FileSystem::new(directory).expect("a directory"));
        builder.set_auth(SimpleAuth::from_single(KEY, SECRET));
        let (service, asks) = (builder.build(), Arc::new(Asks::new(directory)));
        let (stop, mut stopped) = tokio::sync::oneshot::channel();
        let thread = std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async move {
                let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
                loop {
                    let socket = tokio::select! {
                        accepted = listener.accept() => accepted,
                        _ = &mut stopped => return,
                    };
                    let Ok((socket, _)) = socket else { continue };
                    // Else head and body of an answer wait for each other: 40 ms a request.
                    let _ = socket.set_nodelay(true);
                    let (service, asks) = (service.clone(), asks.clone());
                    let answer = service_fn(move |request| {
                        let (service, asks) = (service.clone(), asks.clone());
                        async move {
                            if let Some(delay) = asks.delay() {
                                tokio::time::sleep(delay).await;
                            }
                            match asks.to_wait() {
                                Some(seconds) => Ok(slow_down(seconds)),
                                None => Service::call(&service, request).await,
                            }
                        }
                    });
                    tokio::spawn(async move {
                        let _ = Builder::new(TokioExecutor::new())
                            .serve_connection(TokioIo::new(socket), answer)
                            .await;
                    });
                }
            });
        });
        Server { endpoint, stop: Some(stop), thread: Some(thread) }
    }
}

/// The requests, and whether one is to be refused.
struct Asks {
    file: std::path::PathBuf,
    delay: std::path::PathBuf,
    count: AtomicU64,
}

impl Asks {
    fn new(directory: &Path) -> Asks {
        Asks { file: directory.join(SLOW_DOWN), delay: directory.join(DELAY), count: AtomicU64::new(0) }
    }

    fn delay(&self) -> Option<std::time::Duration> {
        let millis = std::fs::read_to_string(&self.delay).ok()?;
        Some(std::time::Duration::from_millis(millis.trim().parse().ok()?))
    }

    /// After how many seconds the next request is to be repeated, if it is refused.
    fn to_wait(&self) -> Option<u64> {
        let text = std::fs::read_to_string(&self.file).ok()?;
        let (one_in, seconds) = text.trim().split_once(' ')?;
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        count.is_multiple_of(one_in.parse().ok()?).then(|| seconds.parse().ok()).flatten()
    }
}

fn slow_down(seconds: u64) -> hyper::Response<s3s::Body> {
    let body = "<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>";
    let answer = hyper::Response::builder()
        .status(503)
        .header("Retry-After", seconds)
        .header("Content-Type", "application/xml");
    answer.body(s3s::Body::from(body.to_string())).expect("an answer")
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.take().map(|stop| stop.send(()));
        self.thread.take().map(|thread| thread.join());
    }
}
