//! How a daemon is set up, and how its memory is divided. Pure.
//!
//! One number bounds memory. Of it: what the flash cache needs for its index and its queue; with flash, one eighth for packing small files; one
//! eighth for bodies of requests, one for memory objects; one sixteenth for what is known of files, and an index of as many of them that clients map; one sixteenth for the S3 endpoint, if there is one, and one for blocks that come from other nodes, if there are any; the rest is the arena that they map, too.

use crate::catalogue::{BLOCK_BYTES, Freshness};
use crate::flash::Flash;
use crate::groups::ORPHAN_TIME;
use crate::memory::index::{HEADER_BYTES, SET_BYTES};
use crate::packing;
use crate::peers;
use std::path::PathBuf;

/// Clients at a time.
pub const CLIENTS_MAX: usize = 1024;
/// Memory of a known file, in bytes, with a name of usual length.
const FILE_BYTES: u64 = 512;
/// Memory of an entry of the index, in bytes.
const ENTRY_BYTES: u64 = 128;
/// Memory objects have one part in this many, unless a size is given.
const OBJECTS_SHARE: u64 = 8;
/// What a read of flash may take at least, in nanoseconds.
pub const FLASH_TIMEOUT: u64 = 100_000_000;
/// Packing has one part in this many of the memory.
const PACKING_SHARE: u64 = 8;
/// Memory of a client's buffers while it is idle, in bytes, is below this.
const ARENA_MIN: u64 = 4 * BLOCK_BYTES;

#[derive(Clone, Debug)]
pub struct Config {
    /// The store: `s3://bucket/prefix`, `gs://`, `az://` or a directory.
    pub store: String,
    pub endpoint: Option<String>,
    pub memory: u64,
    /// Directory and bytes.
    pub flash: Option<(PathBuf, u64)>,
    pub socket: PathBuf,
    pub freshness: Freshness,
    /// Requests to the store at a time.
    pub requests: usize,
    /// Requests to the store a second; 0 is no limit.
    pub requests_per_second: u64,
    pub clients: usize,
    /// Memory for objects, in bytes, of all of it; None: an eighth.
    pub objects: Option<u64>,
    /// Small files are packed on flash; off for comparison.
    pub packing: bool,
    /// What part of the hits of flash that fill it the store may take: 0 to 1.
    pub store_weight: f64,
    /// How long a read of flash may take at least before the store is asked, in nanoseconds; a long block has more.
    pub flash_timeout: u64,
    /// How long files that were not committed wait for their client after the daemon was started again, in nanoseconds.
    pub orphan_time: u64,
    /// Other daemons that cache the same store.
    pub peers: Option<peers::Settings>,
    /// Another front serves the store beside the socket (`read::Front`), which has memory of its own.
    pub has_front: bool,
}

impl Config {
    pub fn new(store: &str, memory: u64) -> Config {
        Config {
            store: store.to_string(),
            endpoint: None,
            memory,
            flash: None,
            socket: default_socket(),
            freshness: Freshness::Ttl(60_000_000_000),
            requests: 128,
            requests_per_second: 0,
            clients: CLIENTS_MAX,
            objects: None,
            packing: true,
            store_weight: 0.0,
            flash_timeout: FLASH_TIMEOUT,
            orphan_time: ORPHAN_TIME,
            peers: None,
            has_front: false,
        }
    }
}

/// How memory is divided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shares {
    pub arena: u64,
    pub bodies: u64,
    pub files: usize,
    /// Bytes of the index that clients read.
    pub index: u64,
    /// Bytes of the arena of memory objects.
    pub objects: u64,
    /// None: small files are not packed.
    pub packing: Option<packing::Shares>,
    /// Another front's.
    pub front: u64,
    /// For blocks that come from other nodes.
    pub peers: u64,
}

impl Config {
    pub fn shares(&self) -> Result<Shares, String> {
        let flash =
            self.flash.as_ref().map_or(0, |(_, bytes)| Flash::memory_bytes(cache_bytes(*bytes), self.memory));
        let packing_bytes =
            if self.packing && self.flash.is_some() { self.memory / PACKING_SHARE } else { 0 };
        let packing = packing::Shares::of(packing_bytes);
        let flash = flash + packing.map_or(0, |_| packing_bytes);
        let objects = self.objects.unwrap_or(self.memory / OBJECTS_SHARE) / 4096 * 4096;
        let bodies = self.memory / 8;
        let files = self.memory / 16;
        let front = if self.has_front { self.memory / 16 } else { 0 };
        let peers = if self.peers.is_some() { self.memory / 16 } else { 0 };
        let index = HEADER_BYTES + (files / FILE_BYTES * ENTRY_BYTES).next_multiple_of(SET_BYTES);
        let arena = self.memory.saturating_sub(flash + bodies + files + index + objects + front + peers)
            / 4096
            * 4096;
        if arena < ARENA_MIN {
            let needed = (flash + ARENA_MIN) * 8 / 5 + (1 << 20);
            return Err(format!(
                "{} bytes of memory are too few: {} are needed at least, of which {flash} for the index and the queue of flash",
                self.memory, needed
            ));
        }
        Ok(Shares {
            arena,
            bodies,
            files: (files / FILE_BYTES) as usize,
            index,
            objects,
            packing,
            front,
            peers,
        })
    }
}

/// Flash for memory objects, of all that the daemon has.
pub fn object_bytes(flash: u64) -> u64 {
    flash / 8
}

/// Flash for the cache: what files that are not committed, and objects, leave of it.
pub fn cache_bytes(flash: u64) -> u64 {
    flash - pending_bytes(flash) - object_bytes(flash)
}

/// Flash for files that are not committed, of all that the daemon has.
pub fn pending_bytes(flash: u64) -> u64 {
    flash / 8
}

/// Where the daemon listens unless it is told otherwise.
pub fn default_socket() -> PathBuf {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").filter(|dir| !dir.is_empty()).map(PathBuf::from);
    match runtime {
        Some(directory) => directory.join("terrace-files.sock"),
        None => PathBuf::from(format!("/tmp/terrace-files-{}.sock", crate::unix::user())),
    }
}

/// A number from 0 to 1.
pub fn weight(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(weight) if (0.0..=1.0).contains(&weight) => Ok(weight),
        _ => Err(format!("`{text}` is not a number from 0 to 1")),
    }
}

/// `2G`, `512M`, `64K` or a number of bytes.
pub fn bytes(text: &str) -> Result<u64, String> {
    let refused =
        || format!("`{text}` is not a size: write a number with K, M, G or T after it, or of bytes");
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: u64 = digits.parse().map_err(|_| refused())?;
    let shift = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" | "B" => 0,
        "K" | "KB" | "KIB" => 10,
        "M" | "MB" | "MIB" => 20,
        "G" | "GB" | "GIB" => 30,
        "T" | "TB" | "TIB" => 40,
        _ => return Err(refused()),
    };
    number.checked_shl(shift).filter(|bytes| bytes >> shift == number).ok_or_else(refused)
}

/// `immutable`, `always` or `ttl=30s`.
pub fn freshness(text: &str) -> Result<Freshness, String> {
    let refused = || {
        format!(
            "`{text}` is not a freshness: immutable, always, or ttl= with a time such as 500ms, 30s, 5m, 1h"
        )
    };
    match text {
        "immutable" => Ok(Freshness::Immutable),
        "always" => Ok(Freshness::Always),
        _ => {
            let time = text.strip_prefix("ttl=").ok_or_else(refused)?;
            let unit = time.trim_start_matches(|c: char| c.is_ascii_digit());
            let number: u64 = time[..time.len() - unit.len()].parse().map_err(|_| refused())?;
            let nanos: u64 = match unit {
                "ms" => 1_000_000,
                "s" | "" => 1_000_000_000,
                "m" => 60_000_000_000,
                "h" => 3_600_000_000_000,
                _ => return Err(refused()),
            };
            number.checked_mul(nanos).map(Freshness::Ttl).ok_or_else(refused)
        }
    }
}

/// `/nvme/cache:200G`.
pub fn flash(text: &str) -> Result<(PathBuf, u64), String> {
    let refused = || format!("`{text}` is not a directory and a size, as /nvme/cache:200G");
    let (directory, size) = text.rsplit_once(':').ok_or_else(refused)?;
    if directory.is_empty() {
        return Err(refused());
    }
    Ok((PathBuf::from(directory), bytes(size)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_times_and_places_are_read_as_people_write_them() {
        assert_eq!((bytes("2G"), bytes("64k"), bytes("17")), (Ok(2 << 30), Ok(64 << 10), Ok(17)));
        for bad in ["", "G", "2X", "-1", "99999999999999T"] {
            assert!(bytes(bad).is_err(), "{bad}");
        }
        assert_eq!(freshness("ttl=5m"), Ok(Freshness::Ttl(300_000_000_000)));
        assert_eq!(
            (freshness("immutable"), freshness("always")),
            (Ok(Freshness::Immutable), Ok(Freshness::Always))
        );
        assert!(freshness("ttl=").is_err() && freshness("ttl=5d").is_err() && freshness("never").is_err());
        assert_eq!(flash("/a:b:1G"), Ok(("/a:b".into(), 1 << 30)));
        assert!(flash("1G").is_err() && flash(":1G").is_err());
    }

    #[test]
    fn the_shares_of_memory_are_no_more_than_all_of_it() {
        for (memory, flash) in
            [(64 << 20, 0), (128 << 20, 256 << 20), (2 << 30, 0), (2 << 30, 20 << 30), (8 << 30, 200 << 30)]
        {
            let mut config = Config::new("/s", memory);
            config.flash = (flash > 0).then(|| ("/f".into(), flash));
            let shares = config.shares().unwrap();
            let index = if flash > 0 { Flash::memory_bytes(cache_bytes(flash), memory) } else { 0 };
            assert_eq!(shares.packing.is_some(), flash > 0);
            let index = index + if flash > 0 { memory / PACKING_SHARE } else { 0 };
            assert!(
                shares.objects
                    + shares.arena
                    + shares.bodies
                    + shares.files as u64 * FILE_BYTES
                    + shares.index
                    + index
                    <= memory
            );
            assert!(shares.arena >= memory / 4, "{memory} {flash}: {shares:?}");
        }
        assert!(Config::new("/s", 16 << 20).shares().unwrap_err().contains("too few"));
    }
}
