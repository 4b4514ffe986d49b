//! Ops of records in memory, packed into chunks: so that what is taken up is little more than what is needed.
//!
//! A chunk is given back when nothing in it is needed any more. One that is mostly unneeded is emptied by its owner, and what is left put again,
//! which costs no more than what went. Many bytes have a chunk of their own: pages created anew, which are let go of by the next record
//! that creates the page anew, would otherwise leave chunks of which little is needed.

use terrace_tier::page::{Glsn, PageId, SpaceId};

/// Bytes of a chunk.
pub const CHUNK: usize = 64 << 10;
/// The number that have one of their own.
const LARGE: usize = CHUNK / 8;
/// Before the ops: whose they are (space, page, the record's first position), and how many bytes.
const HEAD: usize = 20;

/// Whose ops they are: a page's, and the first position of its record's range.
pub type Owner = (PageId, Glsn);

/// Where ops are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct At {
    pub chunk: u32,
    pub at: u16,
}

#[derive(Default)]
struct Chunk {
    bytes: Vec<u8>,
    /// Bytes of what is still needed, heads included.
    live: usize,
}

#[derive(Default)]
pub struct Packed {
    chunks: Vec<Chunk>,
    /// Numbers of those that were given back.
    vacant: Vec<u32>,
    /// The one that is being filled.
    open: Option<u32>,
    bytes: usize,
}

impl Packed {
    /// Bytes that it takes up.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The bytes by which it would grow with `len` bytes of ops.
    pub fn needs(&self, len: usize) -> usize {
        match HEAD + len {
            len if len >= LARGE => len,
            len if self.open.is_some_and(|open| self.chunks[open as usize].bytes.len() + len <= CHUNK) => 0,
            _ => CHUNK,
        }
    }

    /// Keeps ops. Also returns the chunk that is filled no longer, for which there was no room in it.
    pub fn put(&mut self, (id, first): Owner, ops: &[u8]) -> (At, Option<u32>) {
        let len = HEAD + ops.len();
        let mut full = None;
        let number = match (self.needs(ops.len()), self.open) {
            (0, Some(open)) => open,
            (needs, _) if len >= LARGE => self.begin(needs),
            (needs, _) => {
                full = self.open;
                let number = self.begin(needs);
                self.open = Some(number);
                number
            }
        };
        let chunk = &mut self.chunks[number as usize];
        let at = chunk.bytes.len() as u16;
        chunk.bytes.extend_from_slice(&id.space.0.to_le_bytes());
        chunk.bytes.extend_from_slice(&id.page.to_le_bytes());
        chunk.bytes.extend_from_slice(&first.to_le_bytes());
        chunk.bytes.extend_from_slice(&(ops.len() as u32).to_le_bytes());
        chunk.bytes.extend_from_slice(ops);
        chunk.live += len;
        (At { chunk: number, at }, full)
    }

    fn begin(&mut self, capacity: usize) -> u32 {
        let bytes = Vec::with_capacity(capacity);
        self.bytes += bytes.capacity();
        let chunk = Chunk { bytes, live: 0 };
        match self.vacant.pop() {
            Some(number) => {
                self.chunks[number as usize] = chunk;
                number
            }
            None => {
                self.chunks.push(chunk);
                self.chunks.len() as u32 - 1
            }
        }
    }

    pub fn get(&self, at: At, len: usize) -> &[u8] {
        &self.chunks[at.chunk as usize].bytes[usize::from(at.at) + HEAD..][..len]
    }

    /// `len` bytes of ops are needed no longer. Says whether the chunk is mostly unneeded now.
    pub fn let_go(&mut self, at: At, len: usize) -> bool {
        let chunk = &mut self.chunks[at.chunk as usize];
        chunk.live -= HEAD + len;
        if chunk.live > 0 {
            return self.is_sparse(at.chunk);
        }
        if self.open == Some(at.chunk) {
            chunk.bytes.clear();
        } else {
            self.take(at.chunk);
            self.give_back(at.chunk);
        }
        false
    }

    /// Whether less than half of the chunk is needed, and it is filled no longer.
    pub fn is_sparse(&self, chunk: u32) -> bool {
        let Chunk { bytes, live } = &self.chunks[chunk as usize];
        self.open != Some(chunk) && 2 * live < bytes.len()
    }

    /// Takes all bytes out of a chunk; [`entries`] says what they are. Until [`Packed::give_back`], its number stays unused.
    pub fn take(&mut self, chunk: u32) -> Vec<u8> {
        let Chunk { bytes, .. } = std::mem::take(&mut self.chunks[chunk as usize]);
        self.bytes -= bytes.capacity();
        bytes
    }

    pub fn give_back(&mut self, chunk: u32) {
        self.vacant.push(chunk);
    }
}

/// What was put into a chunk, needed or not: whose it is, where in it, and the ops.
pub fn entries(bytes: &[u8]) -> impl Iterator<Item = (Owner, u16, &[u8])> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let (owner, ops) = entry(bytes.get(at..)?)?;
        let here = at as u16;
        at += HEAD + ops.len();
        Some((owner, here, ops))
    })
}

/// The first entry of a chunk's rest.
fn entry(bytes: &[u8]) -> Option<(Owner, &[u8])> {
    let (head, rest) = bytes.split_first_chunk::<HEAD>()?;
    let number = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let first = u64::from(number(8)) | u64::from(number(12)) << 32;
    let id = PageId::new(SpaceId(number(0)), number(4));
    Some(((id, first), rest.get(..number(16) as usize)?))
}
