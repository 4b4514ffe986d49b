//! Counters of the endpoint.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counted since the start.
#[derive(Default)]
pub struct Figures {
    pub connections: AtomicU64,
    pub requests: AtomicU64,
    /// Answered 403: a bad signature, an unknown key, or something that is not allowed here.
    pub refused: AtomicU64,
    /// GET and HEAD of objects that were answered from the cache, and of those how many with 304.
    pub cached: AtomicU64,
    pub not_modified: AtomicU64,
    /// Requests for an object's headers that the store was asked.
    pub heads: AtomicU64,
    pub cached_listings: AtomicU64,
    /// Requests that went to the store as they were; how many of them could change something.
    pub passed: AtomicU64,
    pub writes: AtomicU64,
    /// Answers from what was past its time, as the store did not answer.
    pub served_in_outage: AtomicU64,
    pub sent_bytes: AtomicU64,
    pub received_bytes: AtomicU64,
}

pub fn count(figure: &AtomicU64, by: u64) {
    figure.fetch_add(by, Ordering::Relaxed);
}

impl Figures {
    /// As the fields of a JSON object.
    pub fn json(&self) -> String {
        let all = [
            ("connections", &self.connections),
            ("requests", &self.requests),
            ("refused", &self.refused),
            ("cached", &self.cached),
            ("not_modified", &self.not_modified),
            ("heads", &self.heads),
            ("cached_listings", &self.cached_listings),
            ("passed", &self.passed),
            ("writes", &self.writes),
            ("served_in_outage", &self.served_in_outage),
            ("sent_bytes", &self.sent_bytes),
            ("received_bytes", &self.received_bytes),
        ];
        let field =
            |(name, value): &(&str, &AtomicU64)| format!("\"s3_{name}\": {}", value.load(Ordering::Relaxed));
        all.iter().map(field).collect::<Vec<_>>().join(", ")
    }
}
