//! Settings that the volume decides: what an instance has from when it was made, whatever is asked for later.

use super::{Bytes, Config};
use crate::superblock::Superblock;
use terrace_log::block::BLOCK;
use terrace_tier::page::PAGE_SIZE;

impl Config {
    /// Whether this value was asked for: a text that names it, or a program that sets another than the default.
    fn asks(&self, name: &str, differs: bool) -> bool {
        differs || self.named.contains(name)
    }

    /// Settings that are not in force, because the volume has something else: a sentence for each. They are shown when an instance is
    /// started.
    pub fn overruled(&self, volume: &Superblock) -> Vec<String> {
        let default = Config::default();
        let mut overruled = Vec::new();
        let partitions = volume.starts.len();
        let log = Bytes(volume.log_blocks * (BLOCK * partitions) as u64);
        // As it would have been made with this many partitions: whole blocks of each.
        let asked = self.log.0 / partitions as u64 / BLOCK as u64;
        if asked != volume.log_blocks && self.asks("log", self.log != default.log) {
            overruled.push(format!("log = {} is not in force: the volume was made with {log}", self.log));
        }
        let count = self.log_partitions;
        if count != partitions && self.asks("log_partitions", count != default.log_partitions) {
            overruled.push(format!(
                "log_partitions = {count} is not in force: the volume was made with {partitions}"
            ));
        }
        let buffer = self.object_buffer;
        if self.slots() < volume.slots && self.asks("object_buffer", buffer != default.object_buffer) {
            overruled.push(format!(
                "object_buffer = {buffer} is not in force: the volume has {}, and a start makes it no less (a running instance can)",
                Bytes(u64::from(volume.slots) * PAGE_SIZE as u64)
            ));
        }
        overruled
    }
}
