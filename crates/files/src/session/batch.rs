//! The answer to a batch: its files in groups, as they become ready. Pure.

use crate::catalogue::{Fault, Leased, Meta};
use crate::wire::{Put, status, status_of};

/// A group is sent when it has this many files or bytes, or is the last.
const GROUP_FILES: usize = 100;
const GROUP_BYTES: u64 = 16 << 20;

pub type Item = Result<(Meta, Vec<Leased>), Fault>;

pub struct Batch {
    /// Items that are not in a group yet.
    left: usize,
    group: Vec<(u32, Item)>,
    bytes: u64,
}

impl Batch {
    pub fn new(items: usize) -> Batch {
        Batch { left: items, group: Vec::new(), bytes: 0 }
    }

    /// All items were answered.
    pub fn is_over(&self) -> bool {
        self.left == 0
    }

    /// Appends a frame to `out` if a group is full. True: it was the last.
    pub fn add(&mut self, request: u64, index: u32, item: Item, out: &mut Vec<u8>) -> bool {
        self.bytes += item.as_ref().map_or(0, |(_, parts)| parts.iter().map(|part| part.extent.len).sum());
        self.group.push((index, item));
        self.left -= 1;
        if self.left > 0 && self.group.len() < GROUP_FILES && self.bytes < GROUP_BYTES {
            return false;
        }
        let kind = if self.left == 0 { status::OK } else { status::MORE };
        let mut frame = Put::new(out, request, kind);
        frame.u32(self.group.len() as u32);
        for (index, item) in self.group.drain(..) {
            frame.u32(index);
            match item {
                Ok((meta, parts)) => {
                    frame.u8(status::OK);
                    put_read(&mut frame, &meta, &parts);
                }
                Err(fault) => {
                    frame.u8(status_of(&fault)).text(&fault.to_string());
                }
            }
        }
        self.bytes = 0;
        self.left == 0
    }
}

/// What a read is answered.
pub fn put_read(frame: &mut Put<'_>, meta: &Meta, parts: &[Leased]) {
    frame.text(&meta.version).u64(meta.length).u32(parts.len() as u32);
    for part in parts {
        frame.u32(part.block).u64(part.extent.offset).u32(part.extent.len as u32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::extents::Extent;
    use crate::wire;

    fn item(bytes: u64) -> Item {
        let part = Leased { block: 1, extent: Extent { offset: 0, len: bytes }, held: bytes };
        Ok((Meta { version: "v".into(), length: bytes }, vec![part]))
    }

    fn groups(items: Vec<Item>) -> Vec<usize> {
        let mut batch = Batch::new(items.len());
        let mut out = Vec::new();
        let count = items.len();
        for (index, item) in items.into_iter().enumerate() {
            assert_eq!(batch.add(9, index as u32, item, &mut out), index + 1 == count);
        }
        let mut sizes = Vec::new();
        let mut at = 0;
        while let Some(frame) = wire::frame(&out[at..]).unwrap() {
            at += frame.bytes;
            assert_eq!(frame.kind == status::OK, at == out.len(), "the last group alone ends the answer");
            sizes.push(wire::Fields(frame.fields).u32().unwrap() as usize);
        }
        sizes
    }

    #[test]
    fn a_group_has_a_hundred_files_or_sixteen_mebibytes() {
        assert_eq!(groups((0..250).map(|_| item(10)).collect()), [100, 100, 50]);
        assert_eq!(groups((0..9).map(|_| item(4 << 20)).collect()), [4, 4, 1]);
        assert_eq!(groups(vec![Err(Fault::Absent)]), [1]);
    }
}
