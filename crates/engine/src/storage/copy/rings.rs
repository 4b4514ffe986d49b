//! The log's rings in a copy: blocks in their places, of another instance.
//!
//! A durable block never changes while it is in the ring. So what was copied before the hold counts, as far as it was still in the ring then.

use super::target::{Target, failed};
use crate::error::{Error, Result};
use std::ops::Range;
use terrace_io::disk::Class;
use terrace_log::block::{self, BLOCK};
use terrace_log::{Log, file_name};

pub struct Rings {
    /// For each ring: everything before it was copied, or had left the ring.
    done: Vec<u64>,
    /// The first block that is not to be copied.
    ends: Vec<u64>,
}

impl Rings {
    pub fn new(partitions: usize) -> Rings {
        let none = vec![0; partitions];
        Rings { done: none.clone(), ends: none }
    }

    /// All blocks before these are durable.
    pub fn end_at(&mut self, ends: Vec<u64>) {
        self.ends = ends;
    }

    /// The next blocks of the ring to copy, if it begins at `start`. None: it is done.
    pub fn next(&self, partition: usize, start: u64) -> Option<Range<u64>> {
        let (from, end) = (self.done[partition].max(start), self.ends[partition]);
        (from < end).then_some(from..end)
    }

    /// Copies the first of the blocks that `next` named, as many as `buf` holds. `held`: they are in the ring still, or the log is damaged.
    /// Returns the bytes written.
    pub fn copy(
        &mut self,
        (log, target): (&Log, &Target),
        partition: usize,
        blocks: Range<u64>,
        buf: &mut [u8],
        held: bool,
    ) -> Result<u64> {
        let of_ring = target.log_blocks();
        // Up to the ring's end; the next call goes on at its begin.
        let place = blocks.start % of_ring;
        let count = (blocks.end - blocks.start).min(of_ring - place).min((buf.len() / BLOCK) as u64);
        let offset = place * BLOCK as u64;
        let buf = &mut buf[..count as usize * BLOCK];
        log.file(partition).read(Class::CopyRead, offset, buf).map_err(failed)?;
        for (sequence, image) in (blocks.start..).zip(buf.chunks_exact_mut(BLOCK)) {
            let intact = block::decode(image).is_some_and(|(header, _)| header.sequence == sequence);
            if intact {
                block::restamp(image, target.instance());
            } else if held {
                let name = file_name(partition);
                return Err(Error::Corrupt(format!(
                    "{name}: block {sequence}, which is durable, is damaged"
                )));
            } else {
                image.fill(0); // a later one is there by now
            }
        }
        target.log(partition).write(Class::LogWrite, offset, buf).map_err(failed)?;
        self.done[partition] = blocks.start + count;
        Ok(buf.len() as u64)
    }
}
