//! What is counted between peers.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters, named in the status as here with `peer_` before them.
macro_rules! traffic {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        #[derive(Default)]
        pub struct Traffic { $($(#[$doc])* pub $name: AtomicU64,)* }
        impl Traffic {
            pub fn figures(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name.load(Ordering::Relaxed)),)*]
            }
        }
    };
}

traffic! {
    /// Reads of which another node was asked, and those that it answered with what was asked for.
    asked,
    got,
    got_bytes,
    /// Reads that were the store's after all: the peer is down, took too long, had nothing, refused, or answered with something that is not current.
    down,
    late,
    not_there,
    faults,
    stale,
    /// Connections that broke, frames with a wrong checksum, peers that were refused or refused this one.
    broken,
    corrupt,
    refused,
    /// Reads of other nodes that were answered with bytes.
    served,
    served_bytes,
    /// Of partitions that moved: what this node gave, dropped after that, and took.
    given_files,
    given_bytes,
    moved_files,
    taken_blocks,
    taken_files,
    taken_bytes,
    /// Fetches of a partition that failed, and are made again.
    take_failures,
}

pub fn count(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}
