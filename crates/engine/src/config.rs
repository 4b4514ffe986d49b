//! Settings, with their defaults. Every fault is named at once.

use crate::error::Error;
use serde::Deserialize;
use terrace_tier::page::PAGE_SIZE;

const MIB: u64 = 1 << 20;

/// A size in bytes, written as a number or as text with a unit: `"128M"`, `"64K"`, `"2G"`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord)]
pub struct Bytes(pub u64);

impl Bytes {
    pub fn parse(text: &str) -> Option<Bytes> {
        let text = text.trim();
        let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (digits, unit) = text.split_at(split);
        let factor = match unit.trim().to_ascii_uppercase().as_str() {
            "" | "B" => 1,
            "K" | "KB" | "KIB" => 1 << 10,
            "M" | "MB" | "MIB" => 1 << 20,
            "G" | "GB" | "GIB" => 1 << 30,
            "T" | "TB" | "TIB" => 1 << 40,
            _ => return None,
        };
        digits.parse::<u64>().ok()?.checked_mul(factor).map(Bytes)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Bytes, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Either {
            Number(u64),
            Text(String),
        }
        match Either::deserialize(from)? {
            Either::Number(n) => Ok(Bytes(n)),
            Either::Text(t) => Bytes::parse(&t).ok_or_else(|| serde::de::Error::custom(format!("`{t}` is not a size"))),
        }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// All memory the engine may use: buffer pool, log buffer, map, flash index, locks.
    pub memory: Bytes,
    /// All log files together. A longer log means fewer checkpoints and a longer recovery.
    pub log: Bytes,
    /// Log files written side by side: 1 for a local disk, more for a network volume. Fixed when the
    /// volume is made.
    pub log_partitions: usize,
    /// Space for pages on the volume. Without an object store it bounds the data.
    pub object_buffer: Bytes,
    /// Space for clean copies of pages on local flash; 0 turns it off.
    pub flash: Bytes,
    /// How long a statement waits for a row lock, in milliseconds.
    pub lock_wait_timeout_ms: u64,
    /// Row locks that may be held at a time, in all transactions together.
    pub locks_max: usize,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            memory: Bytes(128 * MIB),
            log: Bytes(96 * MIB),
            log_partitions: 1,
            object_buffer: Bytes(8 << 30),
            flash: Bytes(0),
            lock_wait_timeout_ms: 50_000,
            locks_max: 1_000_000,
        }
    }
}

/// The least memory that an instance works with.
pub const MEMORY_MIN: u64 = 4 * MIB;
/// The least log for one partition.
pub const LOG_MIN: u64 = 2 * MIB;

impl Config {
    pub fn from_toml(text: &str) -> Result<Config, Error> {
        let config: Config = toml::from_str(text).map_err(|e| Error::Invalid(format!("configuration: {e}")))?;
        config.check()?;
        Ok(config)
    }

    /// Names every fault at once.
    pub fn check(&self) -> Result<(), Error> {
        let mut faults = Vec::new();
        if self.memory.0 < MEMORY_MIN {
            faults.push(format!("memory = {} is less than {MEMORY_MIN}", self.memory.0));
        }
        if self.log_partitions == 0 || self.log_partitions > crate::superblock::PARTITIONS_MAX {
            let max = crate::superblock::PARTITIONS_MAX;
            faults.push(format!("log_partitions = {} is not in 1..={max}", self.log_partitions));
        } else if self.log.0 / (self.log_partitions as u64) < LOG_MIN {
            faults.push(format!("log = {} gives each of {} partitions less than {LOG_MIN}", self.log.0, self.log_partitions));
        }
        if self.object_buffer.0 < 4 * MIB || self.object_buffer.0 / (PAGE_SIZE as u64) > u64::from(terrace_tier::map::entry::Slot::COUNT_MAX) {
            faults.push(format!("object_buffer = {} is not in 4 MiB..256 GiB", self.object_buffer.0));
        }
        if self.locks_max < 1000 {
            faults.push(format!("locks_max = {} is less than 1000", self.locks_max));
        }
        if faults.is_empty() {
            return Ok(());
        }
        Err(Error::Invalid(format!("configuration: {}", faults.join("; "))))
    }

    /// Frames of the buffer pool: what memory leaves after log buffers, the map and fixed costs.
    pub fn frames(&self) -> usize {
        // An eighth (at most 32 MiB) stays for the log's buffers, locks, read buffers and the map.
        let rest = (self.memory.0 / 8).min(32 * MIB);
        // A frame costs its page and about 200 bytes of table, queues and metadata.
        ((self.memory.0 - rest) / (PAGE_SIZE as u64 + 200)).max(64) as usize
    }

    /// Blocks of one log partition.
    pub fn log_blocks(&self) -> u64 {
        self.log.0 / self.log_partitions as u64 / crate::log::block::BLOCK as u64
    }

    pub fn slots(&self) -> u32 {
        (self.object_buffer.0 / PAGE_SIZE as u64) as u32
    }
}
