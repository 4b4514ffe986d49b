//! Blind writes that belong together.

use crate::db::range::Bounds;
use crate::db::tree::Tree;
use crate::db::txn;
use crate::error::Result;
use std::ops::{Bound, Range, RangeBounds};
use std::sync::Arc;
use terrace_engine::Txn;

/// What a change does. Ranges of bytes are in the batch's buffer.
enum Kind {
    Put { key: Range<usize>, value: Range<usize> },
    Delete { key: Range<usize> },
    DeleteRange { bounds: Bounds },
}

/// A set of puts and deletes in several trees, carried out in order, all of it or nothing, by [`Db::write`](crate::Db::write). It reads nothing, so it meets no
/// conflict that `write` does not resolve itself. It can be written several times.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let db = terrace::Db::open_with(terrace::Config::new(dir.path()).log(4 << 20).memory(8 << 20))?;
/// let tree = db.tree("t")?;
/// let mut batch = terrace::Batch::new();
/// batch.delete_range(&tree, "a".."z");
/// batch.put(&tree, "key", "value");
/// db.write(&batch)?;
/// # drop((tree, batch));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Default)]
pub struct Batch {
    /// Each tree once.
    trees: Vec<Tree>,
    changes: Vec<(usize, Kind)>,
    bytes: Vec<u8>,
}

/// One change of a batch.
pub(crate) struct Change<'b> {
    pub tree: &'b Tree,
    kind: &'b Kind,
    bytes: &'b [u8],
}

impl Change<'_> {
    /// Bytes of the value that it puts.
    pub fn value_len(&self) -> usize {
        match self.kind {
            Kind::Put { value, .. } => value.len(),
            _ => 0,
        }
    }

    pub fn make(&self, txn: &Arc<Txn>) -> Result<()> {
        let table = &self.tree.in_use().table;
        match self.kind {
            Kind::Put { key, value } => {
                txn.put(table, &self.bytes[key.clone()], &self.bytes[value.clone()])?;
            }
            Kind::Delete { key } => _ = txn::delete(txn, table, &self.bytes[key.clone()])?,
            Kind::DeleteRange { bounds } => _ = txn::delete_range(txn, table, bounds)?,
        }
        Ok(())
    }
}

impl Batch {
    /// An empty batch.
    ///
    /// ```
    /// assert!(terrace::Batch::new().is_empty());
    /// ```
    pub fn new() -> Batch {
        Batch::default()
    }

    fn add(&mut self, tree: &Tree, kind: Kind) {
        let known = self.trees.iter().rposition(|known| known.is(tree));
        let at = known.unwrap_or_else(|| {
            self.trees.push(tree.clone());
            self.trees.len() - 1
        });
        self.changes.push((at, kind));
    }

    fn keep(&mut self, bytes: &[u8]) -> Range<usize> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        start..self.bytes.len()
    }

    /// Adds: sets a key, whether it is there or not.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Db::open_with(terrace::Config::new(dir.path()).log(4 << 20).memory(8 << 20))?;
    /// let mut batch = terrace::Batch::new();
    /// batch.put(&db.tree("t")?, "key", "value");
    /// assert_eq!(batch.len(), 1);
    /// # drop(batch);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn put(&mut self, tree: &Tree, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        let (key, value) = (self.keep(key.as_ref()), self.keep(value.as_ref()));
        self.add(tree, Kind::Put { key, value });
    }

    /// Adds: deletes a key, if it is there.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Db::open_with(terrace::Config::new(dir.path()).log(4 << 20).memory(8 << 20))?;
    /// let mut batch = terrace::Batch::new();
    /// batch.delete(&db.tree("t")?, "key");
    /// db.write(&batch)?;
    /// # drop(batch);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn delete(&mut self, tree: &Tree, key: impl AsRef<[u8]>) {
        let key = self.keep(key.as_ref());
        self.add(tree, Kind::Delete { key });
    }

    /// Adds: deletes all keys in a range.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Db::open_with(terrace::Config::new(dir.path()).log(4 << 20).memory(8 << 20))?;
    /// let mut batch = terrace::Batch::new();
    /// batch.delete_range(&db.tree("t")?, "a".."b");
    /// db.write(&batch)?;
    /// # drop(batch);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn delete_range<K: AsRef<[u8]>>(&mut self, tree: &Tree, range: impl RangeBounds<K>) {
        self.add(tree, Kind::DeleteRange { bounds: Bounds::of(&range) });
    }

    /// How many changes it has.
    ///
    /// ```
    /// assert_eq!(terrace::Batch::new().len(), 0);
    /// ```
    pub fn len(&self) -> usize {
        self.changes.len()
    }

    /// Whether it has none.
    ///
    /// ```
    /// assert!(terrace::Batch::new().is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Bytes of keys and values that it holds.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Db::open_with(terrace::Config::new(dir.path()).log(4 << 20).memory(8 << 20))?;
    /// let mut batch = terrace::Batch::new();
    /// batch.put(&db.tree("t")?, "key", "value");
    /// assert_eq!(batch.bytes(), 8);
    /// # drop(batch);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn bytes(&self) -> usize {
        let of = |bound: &Bound<Vec<u8>>| match bound {
            Bound::Included(key) | Bound::Excluded(key) => key.len(),
            Bound::Unbounded => 0,
        };
        let of_ranges = self.changes.iter().map(|(_, kind)| match kind {
            Kind::DeleteRange { bounds } => of(&bounds.low) + of(&bounds.high),
            _ => 0,
        });
        self.bytes.len() + of_ranges.sum::<usize>()
    }

    /// Empties it. Its memory is used again.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Db::open_with(terrace::Config::new(dir.path()).log(4 << 20).memory(8 << 20))?;
    /// let mut batch = terrace::Batch::new();
    /// batch.put(&db.tree("t")?, "key", "value");
    /// batch.clear();
    /// assert!(batch.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn clear(&mut self) {
        self.trees.clear();
        self.changes.clear();
        self.bytes.clear();
    }

    pub(crate) fn changes(&self) -> impl Iterator<Item = Change<'_>> {
        self.changes.iter().map(|(tree, kind)| Change { tree: &self.trees[*tree], kind, bytes: &self.bytes })
    }
}
