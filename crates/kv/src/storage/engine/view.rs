//! The rows of an instance at one point in time, for a snapshot file.

use super::{Space, parse_meta_key};
use crate::storage::row;
use crate::storage::{Element, Key, Position, StorageError, Stored, View};
use std::ops::Bound;
use terrace::{Db, Snapshot, Tree};

pub struct EngineView {
    snapshot: Snapshot,
    rows: Tree,
    elements: Tree,
    /// Databases that are still to be read, with their spaces, the present one last.
    spaces: Vec<(u16, Space)>,
    /// The row that was read last.
    last: Option<Vec<u8>>,
}

impl EngineView {
    pub fn new(db: &Db, rows: &Tree, elements: &Tree, meta: &Tree) -> Result<EngineView, StorageError> {
        let snapshot = db.snapshot();
        let mut spaces = Vec::new();
        for pair in snapshot.prefix(meta, "db")? {
            let (key, value) = pair?;
            spaces.push((parse_meta_key(&key)?, Space::parse(&value)?));
        }
        spaces.reverse();
        Ok(EngineView { snapshot, rows: rows.clone(), elements: elements.clone(), spaces, last: None })
    }
}

impl View for EngineView {
    fn read(&mut self, bytes: usize) -> Result<Vec<(Key, Stored)>, StorageError> {
        let mut found = Vec::new();
        let mut size = 0;
        while let Some(&(db, space)) = self.spaces.last() {
            let start = match self.last.take() {
                Some(last) => Bound::Excluded(last),
                None => Bound::Included(space.id.to_be_bytes().to_vec()),
            };
            let end = match space.id.checked_add(1) {
                Some(next) => Bound::Excluded(next.to_be_bytes().to_vec()),
                None => Bound::Unbounded,
            };
            let mut range = self.snapshot.range(&self.rows, (start, end))?;
            while let Some((key, value)) = range.advance()? {
                let (_, _, name) = row::parse(key)?;
                let (expires_ms, rdb) = row::decode(value)?;
                size += key.len() + value.len();
                found.push((Key::new(db, name), Stored { expires_ms, rdb: rdb.to_vec() }));
                if size >= bytes {
                    self.last = Some(key.to_vec());
                    return Ok(found);
                }
            }
            self.spaces.pop();
        }
        Ok(found)
    }

    fn elements(&mut self, generation: u64) -> Result<Vec<Element>, StorageError> {
        let of = |generation| row::element_start(generation, Position::default());
        let mut range = self.snapshot.range(&self.elements, of(generation)..of(generation + 1))?;
        let mut found = Vec::new();
        while let Some((key, value)) = range.advance()? {
            found.push(row::decode_element(key, value)?);
        }
        Ok(found)
    }
}
