//! Flights of files that another node owns: it is asked before the store.
//!
//! Whatever it does not answer in time, whole and late enough, the store is asked for. A node that fetches the partition from its former owner asks that one, for what it has
//! cached only.

use super::{Fetched, Files};
use crate::catalogue::{Fault, Freshness, Meta, block_len};
use crate::memory::extents::Extent;
use crate::peers::{Answer, Ask, Owner, Peers, Reply};
use std::sync::Arc;
use terrace_io::clock::Nanos;

/// Whom to ask, and whether only for what it has cached.
struct Whom<'a> {
    peers: &'a Peers,
    name: Arc<str>,
    is_cached: bool,
}

impl Files {
    /// Where the blocks of the path are kept on flash.
    pub(crate) fn keeps(&self, path: &str) -> bool {
        self.peers().is_none_or(|peers| peers.is_mine(path))
    }

    fn whom(&self, path: &str) -> Option<Whom<'_>> {
        let peers = self.peers()?;
        match peers.owner(path) {
            Owner::Me(source) => source.map(|name| Whom { peers, name, is_cached: true }),
            Owner::Other(name) => Some(Whom { peers, name, is_cached: false }),
        }
    }

    /// How long ago what another node says may have been true, at most.
    fn age_max(&self, path: &str, began: Nanos) -> Nanos {
        let since = self.tell(|catalogue, _| catalogue.since(path));
        let age_max = match self.freshness {
            Freshness::Immutable => Nanos::MAX,
            Freshness::Ttl(ttl) => ttl.saturating_sub(1),
            Freshness::Always => 0,
        };
        match since {
            0 => age_max,
            since => age_max.min(began.saturating_sub(since)),
        }
    }

    /// What another node says of the file, and its first block if there is room for `max` bytes of it: and when that was true.
    pub(super) fn start_by_peer(&self, path: &Arc<str>, max: u64) -> Option<Fetched> {
        let whom = self.whom(path)?;
        let began = self.world.clock.now();
        let age_max = self.age_max(path, began);
        let (path, is_cached) = (path.clone(), whom.is_cached);
        let ask = Ask { path, expected: None, index: 0, max, age_max, is_cached };
        let room = self.bodies.take(max);
        let Some(Reply::Found(answer)) = whom.peers.ask(&whom.name, &ask) else { return None };
        let meta = Meta { version: answer.version.clone(), length: answer.length };
        let at = Some(began.saturating_sub(answer.age));
        let len = block_len(meta.length, 0);
        let block = if len > 0 && answer.bytes().len() as u64 == len {
            Some(self.copy(len, answer.bytes()).ok()?)
        } else {
            None
        };
        drop(room);
        Some((meta, block, at))
    }

    /// A block of this version of the file.
    pub(super) fn block_by_peer(&self, path: &str, version: &str, index: u32, len: u64) -> Option<Extent> {
        let whom = self.whom(path)?;
        let ask = Ask {
            path: path.into(),
            expected: Some(version.into()),
            index,
            max: len,
            // It is the version that counts.
            age_max: Nanos::MAX,
            is_cached: whom.is_cached,
        };
        let _room = self.bodies.take(len);
        let Some(Reply::Found(answer)) = whom.peers.ask(&whom.name, &ask) else { return None };
        let is_it = |answer: &Answer| *answer.version == *version && answer.bytes().len() as u64 == len;
        if is_it(&answer) { self.copy(len, answer.bytes()).ok() } else { None }
    }

    fn copy(&self, len: u64, bytes: &[u8]) -> Result<Extent, Fault> {
        let mut loading = self.allocate(len)?;
        loading.bytes_mut().copy_from_slice(bytes);
        Ok(loading.loaded())
    }
}
