//! The engine's fuzz targets; see `terrace_tier::fuzz`.
//!
//! `parts` reads single records and blocks, `structures` whole trees, undo streams and logs of which each
//! page or block is intact but wrong, `volume` starts an instance on a damaged volume and works with it.

mod parts;
mod structures;
mod volume;

use terrace_tier::fuzz::{Sample, Target};
use terrace_tier::page::PAGE_SIZE;

pub const TARGETS: &[Target] = &[
    Target { name: "block", run: parts::block, samples: parts::block_samples, rounds: 20_000 },
    Target { name: "record", run: parts::record, samples: parts::record_samples, rounds: 50_000 },
    Target {
        name: "undo-record",
        run: parts::undo_record,
        samples: parts::undo_record_samples,
        rounds: 50_000,
    },
    Target { name: "superblock", run: parts::superblock, samples: parts::superblock_samples, rounds: 20_000 },
    Target { name: "catalog", run: parts::catalog, samples: parts::catalog_samples, rounds: 50_000 },
    Target { name: "row", run: parts::row, samples: parts::row_samples, rounds: 50_000 },
    Target { name: "node", run: structures::node, samples: structures::node_samples, rounds: 20_000 },
    Target { name: "tree", run: structures::tree, samples: structures::tree_samples, rounds: 300 },
    Target { name: "undo", run: structures::undo, samples: structures::undo_samples, rounds: 1000 },
    Target { name: "log", run: structures::log, samples: structures::log_samples, rounds: 2000 },
    Target { name: "volume", run: volume::volume, samples: volume::samples, rounds: 60 },
];

/// `bytes`, cut or filled up with zeros to a length.
fn sized(bytes: &[u8], len: usize) -> Vec<u8> {
    let mut out = bytes[..bytes.len().min(len)].to_vec();
    out.resize(len, 0);
    out
}

fn sample(bytes: Vec<u8>, headers: (usize, usize)) -> Sample {
    Sample { bytes, headers }
}

/// Pages one after the other: their headers, slots and first bytes are changed most.
fn of_pages(pages: Vec<Vec<u8>>) -> Sample {
    sample(pages.concat(), (PAGE_SIZE, 140))
}

#[cfg(test)]
mod tests;
