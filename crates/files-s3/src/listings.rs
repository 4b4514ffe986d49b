//! Listings as the store answered them, by their query. Pure.
//!
//! Kept only with [`Freshness::Ttl`]: with `Always` each listing asks the store, and with `Immutable` files do not change, but come. A write drops each
//! listing whose prefix the key has. One that was asked for before a write and answered after it is not kept.

use bytes::Bytes;
use hashbrown::HashMap;
use http::HeaderMap;
use std::collections::VecDeque;
use std::sync::Arc;
use terrace_files::catalogue::Freshness;
use terrace_io::clock::Nanos;

/// Listings at a time: each write looks at all of them.
const LISTINGS_MAX: usize = 1024;
/// As with files.
const RECHECK: Nanos = 1_000_000_000;

#[derive(Debug)]
pub struct Listing {
    pub headers: HeaderMap,
    pub body: Bytes,
}

struct Place {
    listing: Arc<Listing>,
    prefix: String,
    began: Nanos,
    bytes: u64,
}

pub struct Listings {
    ttl: Option<Nanos>,
    bytes_max: u64,
    bytes: u64,
    places: HashMap<String, Place>,
    order: VecDeque<String>,
    /// Grows with each write.
    writes: u64,
}

impl Listings {
    pub fn new(freshness: Freshness, bytes_max: u64) -> Listings {
        let ttl = if let Freshness::Ttl(ttl) = freshness { Some(ttl) } else { None };
        Listings { ttl, bytes_max, bytes: 0, places: HashMap::new(), order: VecDeque::new(), writes: 0 }
    }

    pub fn are_kept(&self) -> bool {
        self.ttl.is_some()
    }

    pub fn find(&self, query: &str, now: Nanos) -> Option<Arc<Listing>> {
        let place = self.places.get(query)?;
        (now.saturating_sub(place.began) < self.ttl?).then(|| place.listing.clone())
    }

    pub fn find_in_outage(&mut self, query: &str, now: Nanos) -> Option<Arc<Listing>> {
        let ttl = self.ttl?;
        let place = self.places.get_mut(query)?;
        place.began = now.saturating_sub(ttl.saturating_sub(ttl.min(RECHECK)));
        Some(place.listing.clone())
    }

    pub fn writes(&self) -> u64 {
        self.writes
    }

    /// Keeps a listing that was asked for at `began`, when there had been `writes` writes.
    pub fn keep(&mut self, query: &str, prefix: &str, listing: Arc<Listing>, began: Nanos, writes: u64) {
        let bytes = (listing.body.len() + 2 * query.len() + prefix.len() + 1024) as u64;
        if self.writes != writes || self.ttl.is_none() || bytes > self.bytes_max / 4 {
            return;
        }
        self.remove(query);
        self.bytes += bytes;
        self.places.insert(query.to_string(), Place { listing, prefix: prefix.to_string(), began, bytes });
        self.order.push_back(query.to_string());
        while (self.bytes > self.bytes_max || self.places.len() > LISTINGS_MAX)
            && let Some(oldest) = self.order.front().cloned()
        {
            self.remove(&oldest);
        }
    }

    fn remove(&mut self, query: &str) {
        if let Some(place) = self.places.remove(query) {
            self.bytes -= place.bytes;
            self.order.retain(|one| one != query);
        }
    }

    /// The key was written or deleted.
    pub fn changed(&mut self, key: &str) {
        self.writes += 1;
        self.remove_where(|prefix| key.starts_with(prefix));
    }

    /// What is cached of keys with this prefix is to be dropped.
    pub fn evicted(&mut self, of: &str) {
        self.remove_where(|prefix| prefix.starts_with(of) || of.starts_with(prefix));
    }

    fn remove_where(&mut self, is_it: impl Fn(&str) -> bool) {
        let gone: Vec<String> = self
            .places
            .iter()
            .filter(|(_, place)| is_it(&place.prefix))
            .map(|(query, _)| query.clone())
            .collect();
        gone.iter().for_each(|query| self.remove(query));
    }

    /// Listings, and bytes of memory.
    pub fn sizes(&self) -> (usize, u64) {
        (self.places.len(), self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing(len: usize) -> Arc<Listing> {
        Arc::new(Listing { headers: HeaderMap::new(), body: vec![b'x'; len].into() })
    }

    #[test]
    fn a_write_drops_the_listings_that_could_name_it_and_no_others() {
        let mut listings = Listings::new(Freshness::Ttl(1000), 1 << 20);
        for (query, prefix) in [("q1", ""), ("q2", "a/"), ("q3", "b/"), ("q4", "a/long")] {
            listings.keep(query, prefix, listing(10), 0, 0);
        }
        let asked_before = listings.writes();
        listings.changed("a/1");
        let left = ["q1", "q2", "q3", "q4"].map(|query| listings.find(query, 10).is_some());
        assert_eq!(left, [false, false, true, true]);
        listings.keep("q1", "", listing(10), 5, asked_before);
        assert!(listings.find("q1", 10).is_none(), "it was asked for before the write");
        listings.evicted("b/x");
        assert!(listings.find("q3", 10).is_none());
    }

    #[test]
    fn listings_hold_for_their_time_alone_and_in_an_outage() {
        let mut listings = Listings::new(Freshness::Ttl(100), 1 << 20);
        listings.keep("q", "", listing(10), 0, 0);
        assert!(listings.find("q", 99).is_some() && listings.find("q", 100).is_none());
        assert!(listings.find_in_outage("q", 500).is_some() && listings.find("q", 550).is_some());
        for freshness in [Freshness::Always, Freshness::Immutable] {
            let mut listings = Listings::new(freshness, 1 << 20);
            listings.keep("q", "", listing(10), 0, 0);
            assert!(listings.find("q", 0).is_none() && listings.sizes() == (0, 0));
        }
    }

    #[test]
    fn their_memory_is_bounded() {
        let mut listings = Listings::new(Freshness::Ttl(100), 100_000);
        for i in 0..5000 {
            listings.keep(&format!("q{i}"), "", listing(i % 40_000), 0, 0);
            assert!(listings.sizes().1 <= 100_000 && listings.sizes().0 == listings.order.len());
        }
        assert!(listings.find("q4999", 1).is_some());
    }
}
