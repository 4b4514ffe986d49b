//! Headers of objects, as the store's HEAD gave them. Pure.
//!
//! Bounded by bytes; the one that was not used since the hand came by last is dropped. A *stamp* keeps a HEAD that began before a write from being
//! kept after it: it is taken before the HEAD, and a write of the key, or of one that shares its stamp, changes it.

use hashbrown::HashMap;
use http::header::{CONTENT_LENGTH, ETAG, LAST_MODIFIED};
use http::{HeaderMap, HeaderName};
use std::collections::VecDeque;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::time::SystemTime;
use terrace_files::catalogue::Freshness;
use terrace_io::clock::Nanos;

const STAMPS: usize = 1024;
/// After the store failed to answer, what is past its time is served without a question for at most this long.
const RECHECK: Nanos = 1_000_000_000;
/// Headers of the connection or of one answer, not of the object.
const NOT_KEPT: [&str; 9] = [
    "connection",
    "content-length",
    "date",
    "keep-alive",
    "transfer-encoding",
    "x-amz-id-2",
    "x-amz-request-id",
    "vary",
    "x-envoy-upstream-service-time",
];

/// What is known of an object.
#[derive(Debug)]
pub struct Entry {
    pub etag: String,
    /// As the daemon's store names it.
    pub version: String,
    pub length: u64,
    pub modified: Option<SystemTime>,
    pub headers: HeaderMap,
    /// Given to clients that ask for them, with the whole object.
    pub checksums: HeaderMap,
}

impl Entry {
    /// None: the answer does not say what is needed.
    pub fn of(answer: &[(String, String)]) -> Option<Entry> {
        let (mut headers, mut checksums) = (HeaderMap::new(), HeaderMap::new());
        let mut length = None;
        for (name, value) in answer {
            let name: HeaderName = name.parse().ok()?;
            if name == CONTENT_LENGTH {
                length = value.parse().ok();
            }
            let to = if name.as_str().starts_with("x-amz-checksum-") { &mut checksums } else { &mut headers };
            if !NOT_KEPT.contains(&name.as_str()) {
                to.append(name, value.parse().ok()?);
            }
        }
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_string);
        let etag = text(ETAG.as_str())?;
        let modified = text(LAST_MODIFIED.as_str()).and_then(|text| httpdate::parse_http_date(&text).ok());
        let version = format!("{etag}\n{}", text("x-amz-version-id").unwrap_or_default());
        Some(Entry { etag, version, length: length?, modified, headers, checksums })
    }

    fn bytes(&self) -> u64 {
        let of = |headers: &HeaderMap| {
            headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 64).sum::<usize>()
        };
        (of(&self.headers) + of(&self.checksums) + self.etag.len() + self.version.len() + 256) as u64
    }
}

struct Place {
    entry: Arc<Entry>,
    began: Nanos,
    bytes: u64,
    used: bool,
}

pub struct Known {
    freshness: Freshness,
    bytes_max: u64,
    bytes: u64,
    places: HashMap<Arc<str>, Place>,
    /// Some are gone.
    order: VecDeque<Arc<str>>,
    hash: RandomState,
    stamps: Vec<u64>,
}

impl Known {
    pub fn new(freshness: Freshness, bytes_max: u64) -> Known {
        let (places, order, hash) = (HashMap::new(), VecDeque::new(), RandomState::new());
        Known { freshness, bytes_max, bytes: 0, places, order, hash, stamps: vec![0; STAMPS] }
    }

    /// What still holds: with [`Freshness::Always`], what a request that began at `since` or later has told.
    pub fn find(&mut self, key: &str, since: Nanos, now: Nanos) -> Option<Arc<Entry>> {
        let place = self.places.get_mut(key)?;
        let holds = match self.freshness {
            Freshness::Immutable => true,
            Freshness::Ttl(ttl) => now.saturating_sub(place.began) < ttl,
            Freshness::Always => place.began >= since,
        };
        place.used = true;
        holds.then(|| place.entry.clone())
    }

    /// The store did not answer. What is served all the same, and for how long without another question, is as with the daemon's files.
    pub fn find_in_outage(&mut self, key: &str, now: Nanos) -> Option<Arc<Entry>> {
        let Freshness::Ttl(ttl) = self.freshness else { return None };
        let place = self.places.get_mut(key)?;
        place.began = now.saturating_sub(ttl.saturating_sub(ttl.min(RECHECK)));
        Some(place.entry.clone())
    }

    fn stamp_of(&self, key: &str) -> usize {
        let mut hasher = self.hash.build_hasher();
        hasher.write(key.as_bytes());
        hasher.finish() as usize % STAMPS
    }

    pub fn stamp(&self, key: &str) -> u64 {
        self.stamps[self.stamp_of(key)]
    }

    /// Keeps what a HEAD that began at `began` has told, unless the key was written since the stamp was taken.
    pub fn keep(&mut self, key: &Arc<str>, entry: Arc<Entry>, began: Nanos, stamp: u64) {
        if self.stamp(key) != stamp {
            return;
        }
        let bytes = entry.bytes() + 2 * key.len() as u64;
        self.remove(key);
        self.bytes += bytes;
        self.places.insert(key.clone(), Place { entry, began, bytes, used: false });
        self.order.push_back(key.clone());
        while self.bytes > self.bytes_max
            && let Some(oldest) = self.order.pop_front()
        {
            match self.places.get_mut(&oldest) {
                Some(place) if place.used => {
                    place.used = false;
                    self.order.push_back(oldest);
                }
                _ => self.remove(&oldest),
            }
        }
        if self.order.len() > 2 * self.places.len() + 64 {
            self.forget_the_gone();
        }
    }

    /// A key is in the order as often as it was kept: once is enough.
    fn forget_the_gone(&mut self) {
        let mut seen = hashbrown::HashSet::new();
        let order = std::mem::take(&mut self.order);
        self.order = order
            .into_iter()
            .filter(|key| self.places.contains_key(key) && seen.insert(key.clone()))
            .collect();
    }

    pub fn remove(&mut self, key: &str) {
        if let Some(place) = self.places.remove(key) {
            self.bytes -= place.bytes;
        }
    }

    /// The key was written.
    pub fn changed(&mut self, key: &str) {
        let at = self.stamp_of(key);
        self.stamps[at] += 1;
        self.remove(key);
    }

    pub fn evicted(&mut self, prefix: &str) {
        let gone: Vec<Arc<str>> = self.places.keys().filter(|key| key.starts_with(prefix)).cloned().collect();
        gone.iter().for_each(|key| self.remove(key));
        self.forget_the_gone();
    }

    /// Objects, and bytes of memory.
    pub fn sizes(&self) -> (usize, u64) {
        (self.places.len(), self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(etag: &str) -> Arc<Entry> {
        let answer = [
            ("ETag", etag),
            ("Content-Length", "7"),
            ("x-amz-meta-a", "b"),
            ("x-amz-checksum-crc32", "AAAA"),
            ("Date", "now"),
        ];
        let answer: Vec<_> =
            answer.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        Arc::new(Entry::of(&answer).unwrap())
    }

    fn key(text: &str) -> Arc<str> {
        text.into()
    }

    #[test]
    fn what_belongs_to_the_object_is_kept_and_checksums_apart() {
        let entry = entry("\"e\"");
        assert_eq!((entry.length, entry.version.as_str()), (7, "\"e\"\n"));
        assert!(entry.headers.contains_key("x-amz-meta-a") && !entry.headers.contains_key("date"));
        assert!(!entry.headers.contains_key("x-amz-checksum-crc32") && entry.checksums.len() == 1);
        assert!(Entry::of(&[("ETag".into(), "x".into())]).is_none());
    }

    #[test]
    fn freshness_is_as_the_daemon_has_it() {
        for (freshness, at_once, late) in [
            (Freshness::Immutable, true, true),
            (Freshness::Ttl(100), true, false),
            (Freshness::Always, false, false),
        ] {
            let mut known = Known::new(freshness, 1 << 20);
            let stamp = known.stamp("a");
            known.keep(&key("a"), entry("1"), 1000, stamp);
            assert_eq!(known.find("a", 1001, 1050).is_some(), at_once, "{freshness:?}");
            assert_eq!(known.find("a", 2000, 2000).is_some(), late, "{freshness:?}");
            assert!(
                known.find("a", 1000, 1050).is_some(),
                "{freshness:?}: the request had begun before the HEAD"
            );
            assert_eq!(known.find_in_outage("a", 5000).is_some(), matches!(freshness, Freshness::Ttl(_)));
        }
    }

    #[test]
    fn a_head_that_began_before_a_write_is_not_kept_after_it() {
        let mut known = Known::new(Freshness::Immutable, 1 << 20);
        let stamp = known.stamp("a");
        known.changed("a");
        known.keep(&key("a"), entry("old"), 0, stamp);
        assert!(known.find("a", 0, 0).is_none());
        let stamp = known.stamp("a");
        known.keep(&key("a"), entry("new"), 0, stamp);
        assert_eq!(known.find("a", 0, 0).unwrap().etag, "new");
        known.changed("a");
        assert!(known.find("a", 0, 0).is_none());
    }

    #[test]
    fn memory_is_bounded_and_what_is_used_stays() {
        let mut known = Known::new(Freshness::Immutable, 20_000);
        for i in 0..2000 {
            let name = key(&format!("k{i}"));
            let stamp = known.stamp(&name);
            known.keep(&name, entry("e"), 0, stamp);
            known.find("k0", 0, 0);
            assert!(known.sizes().1 <= 20_000 && known.order.len() <= 2 * known.places.len() + 65);
        }
        assert!(known.find("k0", 0, 0).is_some() && known.find("k1", 0, 0).is_none());
        known.evicted("k1");
        assert!(known.places.keys().all(|key| !key.starts_with("k1")));
        known.evicted("");
        assert_eq!(known.sizes(), (0, 0));
    }
}
