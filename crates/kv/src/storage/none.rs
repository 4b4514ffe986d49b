//! No storage tier: memory is all there is.
//!
//! Nothing is written and nothing is found. With it, a server is a cache: eviction loses data, as `maxmemory-policy` says.

use crate::storage::{
    Durability, ExpiredDone, Get, GetDone, Key, Outcome, Position, ScanDone, Scanned, Storage, StorageError,
    Stored, View, Write, WriteDone,
};

use std::sync::Arc;
use terrace_io::disk::Disk;
/// What nothing has.
struct Empty;

impl View for Empty {
    fn read(&mut self, _: usize) -> Result<Vec<(Key, Stored)>, StorageError> {
        Ok(Vec::new())
    }
}

pub struct NoStorage;

impl Storage for NoStorage {
    fn name(&self) -> &'static str {
        "none"
    }
    fn get_many(&self, keys: &[Key], _: &GetDone) -> Result<Vec<Get>, StorageError> {
        Ok(vec![Get::Absent; keys.len()])
    }
    fn write(&self, _: Write, _: Durability, _: WriteDone) -> Option<Outcome> {
        Some(Outcome::Written)
    }
    fn writes_in_flight_max(&self) -> usize {
        1
    }
    fn scan(&self, _: u16, _: Position, _: usize, done: ScanDone) {
        done(Ok(Scanned::default()));
    }
    fn expired(&self, _: u64, _: usize, done: ExpiredDone) {
        done(Ok(Vec::new()));
    }
    fn view(&self) -> Result<Box<dyn View>, StorageError> {
        Ok(Box::new(Empty))
    }
    fn keep(&self, _: &str, _: &[u8]) -> Result<(), StorageError> {
        Ok(())
    }
    fn kept(&self, _: &str) -> Result<Option<Vec<u8>>, StorageError> {
        Ok(None)
    }
    fn swap(&self, _: u16, _: u16, _: Option<u64>) -> Result<(), StorageError> {
        Ok(())
    }
    fn count(&self, _: u16) -> u64 {
        0
    }
    fn log_position(&self) -> u64 {
        0
    }
    fn log_disk(&self) -> Option<Arc<dyn Disk>> {
        None
    }
}
