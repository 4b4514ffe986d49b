//! Members from etcd, by its JSON gateway: each node has a key under a common prefix, with a lease, and watches the prefix.
//!
//! One thread grants the lease, keeps it alive and reads the keys; the other one waits for a change of them and wakes the first. A node whose lease ends is no member any more.
//! While etcd does not answer the members stay as they are. Which of them answer, links find out by themselves.

use super::Peers;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use curl::easy::{Easy2, Handler, List, WriteError};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use terrace_io::clock::Nanos;
use terrace_io::sched::{Event, Step, Worker};

/// Seconds that a member is one after it was heard of last.
const TTL: u64 = 6;
/// Between two renewals of the lease: what may be lost are two of them.
const RENEW: Nanos = 2_000_000_000;
const CONNECT: Duration = Duration::from_secs(1);
const TIME: Duration = Duration::from_secs(3);
/// A watch is made again after this time.
const WATCH: Duration = Duration::from_secs(30);
/// Between two attempts, in nanoseconds.
const RETRY: Nanos = 500_000_000;
/// Bytes of an answer.
const ANSWER_MAX: usize = 4 << 20;

/// What both threads have.
pub(super) struct Shared {
    peers: Arc<Peers>,
    urls: Vec<String>,
    prefix: String,
    /// Which of the URLs answered last.
    at: Mutex<usize>,
    /// The revision of the keys that were read.
    revision: Mutex<i64>,
    wake: Arc<Event>,
}

/// One request: its answer, or each line of it as it comes.
struct Exchange {
    peers: Arc<Peers>,
    body: Vec<u8>,
    is_too_long: bool,
    /// A watch ends with its first event.
    watches: bool,
    has_event: bool,
}

impl Handler for Exchange {
    fn write(&mut self, data: &[u8]) -> Result<usize, WriteError> {
        self.body.extend_from_slice(data);
        self.is_too_long = self.body.len() > ANSWER_MAX;
        if self.watches {
            let lines = self.body.split(|byte| *byte == b'\n');
            self.has_event =
                lines.filter_map(|line| serde_json::from_slice::<Value>(line).ok()).any(|line| {
                    let result = &line["result"];
                    // A watch that etcd ends is made again, after the keys were read.
                    result["events"].is_array()
                        || result["canceled"] == json!(true)
                        || line["error"].is_object()
                });
        }
        // Fewer bytes than there are end the request.
        Ok(if self.is_too_long || self.has_event { 0 } else { data.len() })
    }
    fn progress(&mut self, _: f64, _: f64, _: f64, _: f64) -> bool {
        !self.peers.is_stopping()
    }
}

impl Shared {
    fn exchange(&self, url: &str, path: &str, body: &Value, watches: bool) -> Result<Exchange, String> {
        let exchange = Exchange {
            peers: self.peers.clone(),
            body: Vec::new(),
            is_too_long: false,
            watches,
            has_event: false,
        };
        let body = body.to_string();
        let mut easy = Easy2::new(exchange);
        let result = (|| {
            easy.url(&format!("{}{path}", url.trim_end_matches('/')))?;
            easy.post(true)?;
            easy.post_fields_copy(body.as_bytes())?;
            let mut headers = List::new();
            headers.append("content-type: application/json")?;
            headers.append("expect:")?;
            easy.http_headers(headers)?;
            easy.connect_timeout(CONNECT)?;
            easy.timeout(if watches { WATCH } else { TIME })?;
            easy.progress(true)?;
            easy.perform()
        })();
        let status = easy.response_code().unwrap_or(0);
        let exchange = std::mem::replace(
            easy.get_mut(),
            Exchange {
                peers: self.peers.clone(),
                body: Vec::new(),
                is_too_long: false,
                watches: false,
                has_event: false,
            },
        );
        match result {
            _ if exchange.has_event => Ok(exchange),
            Err(error) if watches && error.is_operation_timedout() && status == 200 => Ok(exchange),
            Err(error) => Err(format!("{url}: {error}")),
            Ok(()) if status == 200 => Ok(exchange),
            Ok(()) => Err(format!("{url}: status {status}: {}", String::from_utf8_lossy(&exchange.body))),
        }
    }

    /// Asks the URL that answered last, then the others.
    fn post(&self, path: &str, body: &Value, watches: bool) -> Result<Exchange, String> {
        let mut last = "no URL is given".to_string();
        let begin = *self.at.lock();
        for at in (0..self.urls.len()).map(|i| (begin + i) % self.urls.len()) {
            match self.exchange(&self.urls[at], path, body, watches) {
                Ok(exchange) => {
                    *self.at.lock() = at;
                    return Ok(exchange);
                }
                Err(error) => last = error,
            }
            if self.peers.is_stopping() {
                break;
            }
        }
        Err(last)
    }

    fn ask(&self, path: &str, body: &Value) -> Result<Value, String> {
        let exchange = self.post(path, body, false)?;
        let answer = String::from_utf8_lossy(&exchange.body);
        // A stream's answer has a line for each of its parts: the first is what was asked for.
        let first = answer.lines().next().unwrap_or_default();
        serde_json::from_str(first).map_err(|error| format!("{path}: {error}"))
    }

    /// The keys below the prefix: from it up to its successor.
    fn range(&self) -> Value {
        let mut end = self.prefix.clone().into_bytes();
        // No prefix ends with the byte 255, which is not in UTF-8.
        if let Some(last) = end.last_mut() {
            *last += 1;
        }
        json!({"key": STANDARD.encode(&self.prefix), "range_end": STANDARD.encode(end)})
    }
}

fn number(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| value.as_str()?.parse().ok())
}

/// The thread that registers this node and reads who is there.
pub(super) struct Members {
    shared: Arc<Shared>,
    lease: Option<i64>,
    renewed: Nanos,
}

impl Members {
    pub fn new(peers: Arc<Peers>, urls: Vec<String>, prefix: String) -> Members {
        let prefix = format!("{}/", prefix.trim_end_matches('/'));
        let shared = Shared {
            peers,
            urls,
            prefix,
            at: Mutex::default(),
            revision: Mutex::default(),
            wake: Arc::default(),
        };
        Members { shared: Arc::new(shared), lease: None, renewed: 0 }
    }

    pub fn shared(&self) -> Arc<Shared> {
        self.shared.clone()
    }

    fn register(&mut self) -> Result<i64, String> {
        let answer = self.shared.ask("/v3/lease/grant", &json!({"TTL": TTL}))?;
        let lease = number(&answer["ID"]).ok_or_else(|| format!("no lease was granted: {answer}"))?;
        let me = &self.shared.peers.settings.address;
        let key = STANDARD.encode(format!("{}{me}", self.shared.prefix));
        self.shared.ask(
            "/v3/kv/put",
            &json!({"key": key, "value": STANDARD.encode(me), "lease": lease.to_string()}),
        )?;
        Ok(lease)
    }

    /// Renews the lease, or takes a new one, and reads the members.
    fn turn(&mut self) -> Result<(), String> {
        let now = self.shared.peers.world.clock.now();
        if let Some(lease) = self.lease
            && now.saturating_sub(self.renewed) >= RENEW
        {
            let answer = self.shared.ask("/v3/lease/keepalive", &json!({"ID": lease.to_string()}))?;
            let left = number(&answer["result"]["TTL"]).unwrap_or(0);
            // It has ended: this node was no member for a while.
            self.lease = self.lease.filter(|_| left > 0);
            self.renewed = now;
        }
        if self.lease.is_none() {
            self.lease = Some(self.register()?);
            self.renewed = now;
        }
        let found = self.shared.ask("/v3/kv/range", &self.shared.range())?;
        let keys = found["kvs"].as_array().map(Vec::as_slice).unwrap_or_default();
        let value = |kv: &Value| STANDARD.decode(kv["value"].as_str()?).ok();
        let members: Vec<Arc<str>> = keys
            .iter()
            .filter_map(|kv| String::from_utf8(value(kv)?).ok())
            .filter(|name| !name.is_empty())
            .map(Arc::from)
            .collect();
        *self.shared.revision.lock() = number(&found["header"]["revision"]).unwrap_or(0);
        // Someone has removed the key and left the lease.
        if !members.iter().any(|member| **member == self.shared.peers.settings.address) {
            self.lease = None;
        }
        self.shared.peers.list(members);
        self.shared.peers.connect_to_members();
        Ok(())
    }
}

impl Worker for Members {
    fn name(&self) -> &'static str {
        "files-etcd"
    }
    fn step(&mut self) -> Step {
        if self.shared.peers.is_stopping() {
            return Step::Idle;
        }
        let result = self.turn();
        let wait = if result.is_ok() { RENEW } else { RETRY };
        *self.shared.peers.etcd.lock() = result.err();
        Step::IdleFor(wait)
    }
    fn wake_event(&self) -> Arc<Event> {
        self.shared.wake.clone()
    }
}

impl Drop for Members {
    /// At a clean stop the others are told at once.
    fn drop(&mut self) {
        if let Some(lease) = self.lease {
            let body = json!({"ID": lease.to_string()});
            let url = self.shared.urls.get(*self.shared.at.lock()).cloned().unwrap_or_default();
            let mut easy = Easy2::new(Quiet);
            let _ = (|| {
                easy.url(&format!("{}/v3/lease/revoke", url.trim_end_matches('/')))?;
                easy.post(true)?;
                easy.post_fields_copy(body.to_string().as_bytes())?;
                easy.connect_timeout(CONNECT)?;
                easy.timeout(CONNECT)?;
                easy.perform()
            })();
        }
    }
}

struct Quiet;

impl Handler for Quiet {
    fn write(&mut self, data: &[u8]) -> Result<usize, WriteError> {
        Ok(data.len())
    }
}

/// The thread that waits for changes.
pub(super) struct Watch {
    shared: Arc<Shared>,
    wake: Arc<Event>,
}

impl Watch {
    pub fn new(shared: Arc<Shared>) -> Watch {
        Watch { shared, wake: Arc::default() }
    }
}

impl Worker for Watch {
    fn name(&self) -> &'static str {
        "files-etcd-watch"
    }
    fn step(&mut self) -> Step {
        if self.shared.peers.is_stopping() {
            return Step::Idle;
        }
        let revision = *self.shared.revision.lock();
        if revision == 0 {
            return Step::IdleFor(RETRY / 10);
        }
        let mut create = self.shared.range();
        create["start_revision"] = json!((revision + 1).to_string());
        match self.shared.post("/v3/watch", &json!({"create_request": create}), true) {
            Ok(exchange) if exchange.has_event => {
                self.shared.wake.notify();
                // Until the keys are read, the same event would end the next watch.
                Step::IdleFor(RETRY / 10)
            }
            Ok(_) => Step::Worked,
            Err(_) => Step::IdleFor(RETRY),
        }
    }
    fn wake_event(&self) -> Arc<Event> {
        self.wake.clone()
    }
}
