//! Filling a batch.

use super::{
    TerraceCursor, TerraceFetch, TerraceHole, TerraceRow, TerraceRowHead, TerraceVerdict as Verdict,
    TerraceWant,
};
use crate::bytes::TerraceBytes;
use crate::error::{Code, Fault};
use terrace_engine::PartFilter;
use terrace_engine::RowLock;
use terrace_engine::Seek;

/// The number of rows for which a batch reserves memory at once.
const ROWS_AT_ONCE: usize = 64;

/// The number of leaf copies at which a batch ends.
const COPIES_MAX: usize = 8;
/// Bytes of the copy of a leaf, with the places of its entries.
const COPY: usize = 28 << 10;
/// If there is no room for copies of leaves, one entry is copied for each of these bytes.
const ENTRY: usize = 8 << 10;

/// The limits of a batch. It has at least one row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Limits {
    rows: usize,
    bytes: usize,
    copies: usize,
    /// Entries that are copied at a time.
    run: usize,
}

impl Limits {
    /// The limits of a batch for which the caller asks for at most these rows and bytes, and which has this share of the cursors' memory.
    fn new(rows: usize, bytes: usize, share: usize) -> Limits {
        let rows = rows.max(1);
        match share / COPY {
            COPIES_MAX.. => Limits { rows, bytes, copies: COPIES_MAX, run: usize::MAX },
            copies @ 2.. => Limits { rows, bytes: bytes.min(share / 4), copies, run: usize::MAX },
            _ => {
                let few = (share / ENTRY).max(1);
                Limits { rows: rows.min(few), bytes: bytes.min(share / 2), copies: COPIES_MAX, run: few }
            }
        }
    }
}

impl TerraceCursor {
    /// Fills `rows`. Whether the index or the prefix ended.
    ///
    /// # Safety
    /// What `fetch` points to is valid during the call.
    pub(super) unsafe fn fetch(&mut self, fetch: &TerraceFetch) -> crate::error::Result<bool> {
        // SAFETY: the caller's promise.
        let (key, prefix, end) = unsafe { (fetch.key.get(), fetch.prefix.get(), fetch.end.get()) };
        let entry_only = fetch.want == TerraceWant::Entry as u32 || self.primary;
        self.rows.clear();
        self.holes.clear();
        self.buffer.clear();
        (self.bytes, self.copies) = (0, 0);
        self.cursor.release();
        let share = self.cursor.room().share(self.account.counted());
        let most = Limits::new(fetch.max_rows as usize, fetch.max_bytes as usize, share);
        if most.run < usize::MAX && self.account.counted() > share {
            (self.rows, self.holes, self.buffer, self.row) = Default::default();
        }
        self.cursor.limit_runs(most.run);
        // Of entries with a prefix one more, which often says that they end.
        let looks_behind = !(self.locking || self.primary || prefix.is_empty());
        self.cursor.expect(match fetch.filter {
            Some(_) => 0,
            None => most.rows + usize::from(looks_behind),
        });
        self.cursor.set_prefix(prefix);
        self.cursor.set_end(if self.locking { &[] } else { end });
        if self.locking {
            self.cursor.set_ahead_end(end);
        }
        let starts = fetch.want == TerraceWant::Start as u32;
        self.cursor.set_enough(starts.then_some(fetch.first_bytes as usize));
        let context = fetch.context.expose_provenance();
        self.cursor.set_parts(fetch.parts.map(|wants| -> Box<PartFilter> {
            // SAFETY: the caller's promise about the callback; the cursor asks it during this call only.
            Box::new(move |row, name| unsafe {
                wants(std::ptr::with_exposed_provenance_mut(context), TerraceBytes::of(row), u32::from(name))
            })
        }));
        self.cursor.lock_rows_later(fetch.filter.is_some());
        self.cursor.set_entries_only(fetch.want == TerraceWant::Entry as u32);
        self.cursor.batch_begin();
        let filled = self.fill(fetch, key, entry_only, most);
        self.cursor.batch_end();
        self.cursor.set_parts(None);
        if filled.is_err() {
            self.rows.clear();
        }
        self.point_into_buffer();
        self.account.set(self.reserved());
        filled
    }

    /// Goes where it is told; whether a row is there, and whether a batch goes on backward.
    fn position(&mut self, seek: u32, key: &[u8]) -> crate::error::Result<(bool, bool)> {
        let (seek, backward) = match seek {
            0 => (Seek::AtLeast, false),
            1 => (Seek::After, false),
            2 => (Seek::AtMost, true),
            3 => (Seek::Before, true),
            4 => (Seek::First, false),
            5 => (Seek::Last, true),
            6 => return Ok((self.cursor.next()?, false)),
            7 => return Ok((self.cursor.prev()?, true)),
            _ => return Err(Fault::invalid(format!("no seek {seek}"))),
        };
        Ok((self.cursor.seek(key, seek)?, backward))
    }

    /// Puts the rows found behind one another. Whether the index or the prefix ended.
    fn fill(
        &mut self,
        fetch: &TerraceFetch,
        key: &[u8],
        entry_only: bool,
        most: Limits,
    ) -> crate::error::Result<bool> {
        let (mut found, backward) = self.position(fetch.seek, key)?;
        self.rows.reserve(most.rows.min(ROWS_AT_ONCE));
        let takes = entry_only && !backward && !self.locking && fetch.filter.is_none();
        while found {
            match self.judge(fetch)? {
                Verdict::Keep => {
                    match self.cursor.lock_row()? {
                        RowLock::Locked => {}
                        RowLock::Gone => {
                            found = self.cursor.again(backward)?;
                            continue;
                        }
                        RowLock::Skipped => {
                            found = if backward { self.cursor.prev()? } else { self.cursor.next()? };
                            continue;
                        }
                    }
                    if self.append(entry_only)? {
                        let full =
                            |cursor: &Self| cursor.rows.len() >= most.rows || cursor.bytes >= most.bytes;
                        if takes && !full(self) {
                            self.append_in_place(most.rows, most.bytes);
                        }
                        if full(self)
                            || (self.locking && !self.cursor.has_ahead())
                            || self.copies >= most.copies
                        {
                            return Ok(!backward && self.cursor.prefix_ends_here());
                        }
                    }
                }
                Verdict::End => {
                    self.cursor.unlock_unwanted();
                    break;
                }
                _ => self.cursor.unlock_unwanted(),
            }
            found = if backward { self.cursor.prev()? } else { self.cursor.next()? };
        }
        Ok(true)
    }

    /// What the filter, if there is one, says of the entry at hand.
    fn judge(&self, fetch: &TerraceFetch) -> crate::error::Result<Verdict> {
        let Some(filter) = fetch.filter else { return Ok(Verdict::Keep) };
        let key = self.cursor.key();
        let primary_at = if self.primary { 0 } else { key.len() - self.cursor.primary_key().len() };
        let (key, value) = (TerraceBytes::of(key), TerraceBytes::of(self.cursor.value()));
        // SAFETY: the caller's promise about the callback; what it is given lives as long as the cursor stays.
        match unsafe { filter(fetch.context, key, primary_at as u32, value) } {
            0 => Ok(Verdict::Skip),
            1 => Ok(Verdict::Keep),
            2 => Ok(Verdict::End),
            3 => Err(Fault::new(Code::Cancelled, "the filter ended the read".into())),
            4 => Err(Fault::new(Code::Corrupt, "an entry is not of its index's layout".into())),
            other => Err(Fault::invalid(format!("no verdict {other}"))),
        }
    }

    /// Appends what follows in the copy of the leaf that is held, in place, as long as it is simply there.
    fn append_in_place(&mut self, max_rows: usize, max_bytes: usize) {
        let TerraceCursor { cursor, rows, bytes, .. } = self;
        cursor.take_in_place(|key, primary_at, value| {
            *bytes += key.len() + value.len();
            let (key, value) = (TerraceBytes::of(key), TerraceBytes::of(value));
            rows.push(TerraceRow { key, value, primary_at: primary_at as u32, holes: 0 });
            rows.len() < max_rows && *bytes < max_bytes
        });
    }

    /// False: the entry's row has gone.
    fn append(&mut self, entry_only: bool) -> crate::error::Result<bool> {
        if !entry_only && !self.cursor.row(&mut self.row)? {
            return Ok(false);
        }
        let in_place = self.cursor.is_in_place();
        if in_place {
            self.copies = self.cursor.hold();
        }
        let key = self.cursor.key();
        let primary_at = if self.primary { 0 } else { key.len() - self.cursor.primary_key().len() };
        self.bytes += key.len();
        let key = if in_place { TerraceBytes::of(key) } else { kept(&mut self.buffer, key) };
        let value = match (entry_only, in_place) {
            (true, true) => TerraceBytes::of(self.cursor.value()),
            (true, false) => kept(&mut self.buffer, self.cursor.value()),
            (false, _) => kept(&mut self.buffer, &self.row),
        };
        self.bytes += value.len;
        let holes = if entry_only && !self.primary { &[] } else { self.cursor.holes() };
        self.holes.extend(holes.iter().map(|hole| TerraceHole {
            at: hole.at,
            len: hole.len,
            name: u32::from(hole.name),
        }));
        self.rows.push(TerraceRow { key, value, primary_at: primary_at as u32, holes: holes.len() as u32 });
        Ok(true)
    }

    /// What was [`kept`] points to its place, now that the buffer stays where it is.
    fn point_into_buffer(&mut self) {
        if self.buffer.is_empty() {
            return;
        }
        let start = self.buffer.as_ptr();
        for bytes in self.rows.iter_mut().flat_map(|row| [&mut row.key, &mut row.value]) {
            let at = bytes.data as usize;
            if bytes.len > 0 && at < self.buffer.len() {
                bytes.data = start.wrapping_add(at);
            }
        }
    }
}

/// Appends to the buffer. The pointer is only the place in it as yet: no address is so low.
fn kept(buffer: &mut Vec<u8>, bytes: &[u8]) -> TerraceBytes {
    let at = buffer.len();
    buffer.extend_from_slice(bytes);
    TerraceBytes { data: std::ptr::without_provenance(at), len: bytes.len() }
}

/// Appends a row to a batch's buffer.
#[inline]
pub(crate) fn append_row(buffer: &mut Vec<u8>, key: &[u8], primary_at: usize, value: &[u8]) {
    let mut head = [0; size_of::<TerraceRowHead>()];
    for (to, part) in head.chunks_exact_mut(4).zip([key.len(), primary_at, value.len()]) {
        to.copy_from_slice(&(part as u32).to_ne_bytes());
    }
    buffer.reserve(head.len() + key.len() + value.len());
    buffer.extend_from_slice(&head);
    buffer.extend_from_slice(key);
    buffer.extend_from_slice(value);
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_engine::PLENTY;

    #[test]
    fn a_batch_is_as_large_as_its_share_of_memory_allows() {
        let asked = |share| Limits::new(256, 48 << 10, share);
        assert_eq!(asked(PLENTY), Limits { rows: 256, bytes: 48 << 10, copies: 8, run: usize::MAX });
        assert_eq!(asked(100 << 10), Limits { rows: 256, bytes: 25 << 10, copies: 3, run: usize::MAX });
        assert_eq!(asked(20 << 10), Limits { rows: 2, bytes: 10 << 10, copies: 8, run: 2 });
        assert_eq!(asked(0), Limits { rows: 1, bytes: 0, copies: 8, run: 1 }, "one row there always is");
        assert_eq!(Limits::new(0, 1, PLENTY).rows, 1);
    }
}
