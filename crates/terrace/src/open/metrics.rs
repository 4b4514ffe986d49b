//! Metrics by HTTP, for Prometheus: `GET /metrics` on a loopback address.
//!
//! One thread answers one request after the other, each on a connection of its own. A request has [`REQUEST_MAX`] bytes
//! and [`PATIENCE`] to come, an answer as long to be taken; then the connection is closed. So a slow client keeps
//! others waiting for a few seconds at most, and nothing grows. Any process on this machine may ask.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use terrace_engine::Error;
use terrace_engine::Result;

const REQUEST_MAX: usize = 8 << 10;
const PATIENCE: Duration = Duration::from_secs(2);
/// After a connection could not be taken.
const REST: Duration = Duration::from_millis(100);

/// Answers until it is dropped.
pub struct Listener {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Listener {
    /// `render` makes the metrics' text, on the listener's thread.
    pub fn start(address: SocketAddr, render: impl Fn() -> String + Send + 'static) -> Result<Listener> {
        let failed =
            |error: std::io::Error| Error::Invalid(format!("metrics_listen = \"{address}\": {error}"));
        let listener = TcpListener::bind(address).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let run = move || {
            let _shown = terrace_io::observe::thread("metrics");
            for stream in listener.incoming() {
                if stopped.load(Ordering::Acquire) {
                    return;
                }
                match stream {
                    // A client that hung up needs no answer.
                    Ok(stream) => drop(serve(stream, &render)),
                    Err(_) => std::thread::sleep(REST),
                }
            }
        };
        let thread = std::thread::Builder::new().name("terrace-metrics".into()).spawn(run).map_err(failed)?;
        Ok(Listener { address, stop, thread: Some(thread) })
    }

    #[cfg(test)]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // Wakes it: it looks at `stop` after each connection.
        let woken = TcpStream::connect_timeout(&self.address, PATIENCE).is_ok();
        if let Some(thread) = self.thread.take().filter(|thread| woken || thread.is_finished()) {
            let _ = thread.join();
        }
    }
}

fn serve(mut stream: TcpStream, render: &impl Fn() -> String) -> std::io::Result<()> {
    let (status, kind, body) = match request(&mut stream)? {
        HttpRequest::Metrics => match catch_unwind(AssertUnwindSafe(render)) {
            Ok(text) => ("200 OK", "text/plain; version=0.0.4; charset=utf-8", text),
            Err(_) => ("500 Internal Server Error", TEXT, "the metrics could not be made\n".into()),
        },
        HttpRequest::Else => ("404 Not Found", TEXT, "metrics are at /metrics\n".to_string()),
        HttpRequest::Otherwise => ("405 Method Not Allowed", TEXT, "only GET\n".into()),
        HttpRequest::TooMuch => {
            ("431 Request Header Fields Too Large", TEXT, "the request is too long\n".into())
        }
        HttpRequest::Nonsense => ("400 Bad Request", TEXT, "not an HTTP request\n".into()),
        HttpRequest::Nothing => return Ok(()),
    };
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    answer(&mut stream, &[head.as_bytes(), body.as_bytes()].concat())
}

/// Writes the answer; all of it has [`PATIENCE`], not each piece that is taken.
fn answer(stream: &mut TcpStream, mut bytes: &[u8]) -> std::io::Result<()> {
    let until = Instant::now() + PATIENCE;
    while !bytes.is_empty() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        stream.set_write_timeout(Some(left))?;
        match stream.write(bytes) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

const TEXT: &str = "text/plain; charset=utf-8";

#[derive(PartialEq, Eq, Debug)]
enum HttpRequest {
    Metrics,
    Else,
    Otherwise,
    TooMuch,
    Nonsense,
    /// It did not come in time, or not at all.
    Nothing,
}

fn request(stream: &mut TcpStream) -> std::io::Result<HttpRequest> {
    let until = Instant::now() + PATIENCE;
    let mut bytes = Vec::new();
    let mut part = [0; 1024];
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(HttpRequest::Nothing);
        }
        stream.set_read_timeout(Some(left))?;
        let read = match stream.read(&mut part) {
            Ok(0) => return Ok(HttpRequest::Nothing),
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return Ok(HttpRequest::Nothing);
            }
            Err(error) => return Err(error),
        };
        bytes.extend_from_slice(&part[..read]);
        if bytes.windows(4).any(|end| end == b"\r\n\r\n") {
            return Ok(understand(&bytes));
        }
        if bytes.len() > REQUEST_MAX {
            return Ok(HttpRequest::TooMuch);
        }
    }
}

/// By the first line.
fn understand(bytes: &[u8]) -> HttpRequest {
    let line = bytes.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let Ok(line) = std::str::from_utf8(line) else { return HttpRequest::Nonsense };
    let words: Vec<&str> = line.split(' ').collect();
    match words[..] {
        [method, path, version] if version.starts_with("HTTP/1.") => {
            let path = path.split('?').next().unwrap_or_default();
            match (method, path) {
                ("GET", "/metrics") => HttpRequest::Metrics,
                ("GET", _) => HttpRequest::Else,
                _ => HttpRequest::Otherwise,
            }
        }
        _ => HttpRequest::Nonsense,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Again if there is no answer: a busy machine may not let the request be written in time.
    fn ask(listener: &Listener, request: &[u8]) -> String {
        (0..5).map(|_| ask_once(listener, request)).find(|answer| !answer.is_empty()).unwrap_or_default()
    }

    fn ask_once(listener: &Listener, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(listener.address()).unwrap();
        let _ = stream.write_all(request);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8(answer).unwrap()
    }

    fn listener() -> Listener {
        Listener::start("127.0.0.1:0".parse().unwrap(), || "x 1\n".into()).unwrap()
    }

    #[test]
    fn each_request_has_its_answer() {
        let listener = listener();
        let answer = ask(&listener, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nx 1\n"), "{answer}");
        for (request, code) in [
            (&b"GET / HTTP/1.0\r\n\r\n"[..], "404"),
            (b"POST /metrics HTTP/1.1\r\n\r\n", "405"),
            (b"\xff\xfe /metrics\r\n\r\n", "400"),
            (b"GET /metrics\r\n\r\n", "400"),
        ] {
            let answer = ask(&listener, request);
            assert!(answer.starts_with(&format!("HTTP/1.1 {code} ")), "{answer}");
        }
        let answer = ask_once(&listener, &vec![b'a'; REQUEST_MAX + 2000]);
        assert!(answer.contains("431") || answer.is_empty(), "it hung up before all was sent, or {answer}");
        // And goes on after all of that.
        assert!(ask(&listener, b"GET /metrics HTTP/1.1\r\n\r\n").contains("200 OK"));
    }

    #[test]
    fn a_silent_metrics_client_is_disconnected_after_a_while() {
        let listener = listener();
        let _silent = TcpStream::connect(listener.address()).unwrap();
        let since = Instant::now();
        assert!(ask(&listener, b"GET /metrics HTTP/1.1\r\n\r\n").contains("200 OK"));
        assert!(since.elapsed() < 15 * PATIENCE, "{:?}", since.elapsed());
    }

    #[test]
    fn a_slow_metrics_client_does_not_keep_the_listener_from_stopping() {
        // All of it would take some minutes.
        let big = "x 1\n".repeat(16 << 20);
        let listener = Listener::start("127.0.0.1:0".parse().unwrap(), move || big.clone()).unwrap();
        let mut slow = TcpStream::connect(listener.address()).unwrap();
        slow.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let reader = std::thread::spawn(move || {
            let mut part = vec![0; 64 << 10];
            while !stopped.load(Ordering::Acquire) && slow.read(&mut part).is_ok_and(|read| read > 0) {
                std::thread::sleep(PATIENCE / 5);
            }
        });
        std::thread::sleep(PATIENCE / 4);
        let (told, ended) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            drop(listener);
            let _ = told.send(());
        });
        let in_time = ended.recv_timeout(15 * PATIENCE);
        stop.store(true, Ordering::Release);
        reader.join().unwrap();
        assert!(in_time.is_ok(), "it waits for a slow client");
    }

    #[test]
    fn a_port_that_is_taken_is_an_error_and_a_closed_listener_frees_it() {
        let first = listener();
        let address = first.address();
        assert!(Listener::start(address, String::new).is_err());
        drop(first);
        // Another process may have it for a moment, as the port of a connection.
        let again = (0..100).any(|_| {
            let started = Listener::start(address, String::new);
            started.map_err(|_| std::thread::sleep(PATIENCE / 20)).is_ok()
        });
        assert!(again);
    }
}
