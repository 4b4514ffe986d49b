//! A node of a stream: a listpack of entries whose identifiers are differences from that of the first, the master.
//!
//! ```text
//! master entry   live entries · tombstones · N · N field names · 0
//! entry          flags · ms difference · seq difference · values            · elements      (flag SAME_FIELDS: the names are the master's)
//!                flags · ms difference · seq difference · N · names, values · elements
//! ```
//! `elements` counts the elements of the entry before it, so that Redis can walk backwards.

use super::StreamId;
use super::listpack::{Builder, Element, HEADER_BYTES, Iter};

const DELETED: i64 = 1;
const SAME_FIELDS: i64 = 2;
/// Elements of an entry without its fields: flags and the two differences.
const ENTRY_ELEMENTS: i64 = 3;

#[derive(Debug, Clone)]
pub struct Node {
    pack: Builder,
}

/// An entry in its node.
#[derive(Debug, Clone)]
pub struct Entry<'a> {
    pub id: StreamId,
    pub deleted: bool,
    /// Offset of the flags in the listpack.
    at: usize,
    flags: i64,
    fields: usize,
    names: Option<Iter<'a>>,
    values: Iter<'a>,
}

impl<'a> Entry<'a> {
    /// How many fields.
    pub fn fields(&self) -> usize {
        self.fields
    }

    pub fn pairs(&self) -> Pairs<'a> {
        Pairs { left: self.fields, names: self.names.clone(), values: self.values.clone() }
    }
}

/// The fields of an entry with their values.
pub struct Pairs<'a> {
    left: usize,
    names: Option<Iter<'a>>,
    values: Iter<'a>,
}

impl<'a> Iterator for Pairs<'a> {
    type Item = (Element<'a>, Element<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let name = match &mut self.names {
            Some(names) => names.next()?,
            None => self.values.next()?,
        };
        Some((name, self.values.next()?))
    }
}

struct Header<'a> {
    live: u64,
    tombstones: u64,
    fields: usize,
    names: Iter<'a>,
    entries: Iter<'a>,
}

impl Node {
    /// A node without entries whose master has the names in `fields`, which alternates names and values.
    pub fn new(fields: &[&[u8]]) -> Node {
        let mut pack = Builder::default();
        pack.push_integer(0);
        pack.push_integer(0);
        pack.push_integer((fields.len() / 2) as i64);
        for name in fields.iter().step_by(2) {
            pack.push(name);
        }
        pack.push_integer(0);
        Node { pack }
    }

    /// A node from RDB, if every entry of it is well-formed, in order and counted.
    pub fn adopt(master: StreamId, pack: Vec<u8>) -> Option<Node> {
        let node = Node { pack: Builder::adopt(pack).ok()? };
        let header = node.header()?;
        let mut walk = header.entries.clone();
        let (mut live, mut tombstones) = (0u64, 0u64);
        let mut before = None;
        while walk.clone().next().is_some() {
            let entry = parse_entry(&header, master, &mut walk)?;
            if before.is_some_and(|before| before >= entry.id) {
                return None;
            }
            before = Some(entry.id);
            if entry.deleted {
                tombstones += 1;
            } else {
                live += 1;
            }
        }
        (live == header.live && tombstones == header.tombstones && live > 0).then_some(node)
    }

    pub fn bytes(&self) -> &[u8] {
        self.pack.bytes()
    }

    pub fn pack_bytes(&self) -> usize {
        self.pack.bytes().len()
    }

    pub fn heap_bytes(&self) -> usize {
        self.pack.heap_bytes()
    }

    pub fn shrink(&mut self) {
        self.pack.shrink();
    }

    pub fn live(&self) -> u64 {
        self.count_at(0)
    }

    /// Live entries and tombstones.
    pub fn entries(&self) -> u64 {
        self.count_at(0) + self.count_at(1)
    }

    fn count_at(&self, element: usize) -> u64 {
        let mut walk = self.pack.iter();
        walk.skip_elements(element);
        walk.next().and_then(Element::integer).map_or(0, |count| count as u64)
    }

    fn header(&self) -> Option<Header<'_>> {
        let mut walk = self.pack.iter();
        let live = u64::try_from(walk.next()?.integer()?).ok()?;
        let tombstones = u64::try_from(walk.next()?.integer()?).ok()?;
        let fields = usize::try_from(walk.next()?.integer()?).ok()?;
        let names = walk.clone();
        if !walk.skip_elements(fields) || walk.next()?.integer()? != 0 {
            return None;
        }
        Some(Header { live, tombstones, fields, names, entries: walk })
    }

    /// All entries, tombstones included.
    pub fn entries_from(&self, master: StreamId) -> impl Iterator<Item = Entry<'_>> {
        let header = self.header();
        let mut walk = header.as_ref().map(|header| header.entries.clone());
        std::iter::from_fn(move || parse_entry(header.as_ref()?, master, walk.as_mut()?))
    }

    pub fn append(&mut self, master: StreamId, id: StreamId, fields: &[&[u8]]) {
        let same = self.header().is_some_and(|header| {
            let mut names = header.names;
            header.fields * 2 == fields.len()
                && fields.iter().step_by(2).all(|name| names.next().is_some_and(|own| own.equals(name)))
        });
        let pack = &mut self.pack;
        pack.push_integer(if same { SAME_FIELDS } else { 0 });
        pack.push_integer(id.ms.wrapping_sub(master.ms) as i64);
        pack.push_integer(id.seq.wrapping_sub(master.seq) as i64);
        let elements = if same {
            for value in fields.iter().skip(1).step_by(2) {
                pack.push(value);
            }
            fields.len() as i64 / 2
        } else {
            pack.push_integer(fields.len() as i64 / 2);
            for field in fields {
                pack.push(field);
            }
            fields.len() as i64 + 1
        };
        pack.push_integer(elements + ENTRY_ELEMENTS);
        self.recount(1, 0);
    }

    pub fn delete(&mut self, master: StreamId, id: StreamId) -> bool {
        let found = self
            .entries_from(master)
            .find(|entry| entry.id >= id)
            .filter(|entry| entry.id == id && !entry.deleted);
        let Some((at, flags)) = found.map(|entry| (entry.at, entry.flags)) else { return false };
        self.pack.replace_integer(at, flags | DELETED);
        self.recount(-1, 1);
        true
    }

    /// Deletes up to `count` live entries below `below`, from the start. Returns how many.
    pub fn delete_first(&mut self, master: StreamId, count: u64, below: StreamId) -> u64 {
        let doomed: Vec<(usize, i64)> = self
            .entries_from(master)
            .take_while(|entry| entry.id < below)
            .filter(|entry| !entry.deleted)
            .take(usize::try_from(count).unwrap_or(usize::MAX))
            .map(|entry| (entry.at, entry.flags))
            .collect();
        // A flag fits one byte before and after, so the offsets stay valid.
        for (at, flags) in &doomed {
            self.pack.replace_integer(*at, flags | DELETED);
        }
        self.recount(-(doomed.len() as i64), doomed.len() as i64);
        doomed.len() as u64
    }

    fn recount(&mut self, live: i64, tombstones: i64) {
        let live = self.count_at(0) as i64 + live;
        self.pack.replace_integer(HEADER_BYTES, live);
        if tombstones != 0 {
            let mut walk = self.pack.iter();
            walk.skip_elements(1);
            let at = walk.offset();
            let tombstones = self.count_at(1) as i64 + tombstones;
            self.pack.replace_integer(at, tombstones);
        }
    }
}

fn parse_entry<'a>(header: &Header<'a>, master: StreamId, walk: &mut Iter<'a>) -> Option<Entry<'a>> {
    let at = walk.offset();
    let flags = walk.next()?.integer()?;
    let ms = master.ms.wrapping_add(walk.next()?.integer()? as u64);
    let seq = master.seq.wrapping_add(walk.next()?.integer()? as u64);
    let same = flags & SAME_FIELDS != 0;
    let fields = if same { header.fields } else { usize::try_from(walk.next()?.integer()?).ok()? };
    let values = walk.clone();
    let elements = if same { fields } else { fields.checked_mul(2)? };
    if !walk.skip_elements(elements) {
        return None;
    }
    let counted = walk.next()?.integer()?;
    if counted != elements as i64 + ENTRY_ELEMENTS + i64::from(!same) {
        return None;
    }
    let names = same.then(|| header.names.clone());
    Some(Entry { id: StreamId { ms, seq }, deleted: flags & DELETED != 0, at, flags, fields, names, values })
}
