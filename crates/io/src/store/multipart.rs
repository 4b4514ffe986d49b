//! Putting a large object in parts, several at a time.
//!
//! The source is cut into parts of one size. A source that fits into one part is put by a single request. Otherwise: begin the
//! upload, send the parts, complete it; whatever fails, the upload is aborted and the first error is returned. A crash in between
//! leaves an upload without an object.
//!
//! Memory: at most [`MultipartPlan::buffer_bytes_max`]. The caller's thread reads the source and hands each part to a sending thread;
//! it waits while all of them are busy. Where the store allows one request at a time only, the caller's thread sends.
//!
//! Not here: retries, which the store makes for each part.

use super::{Bytes, ObjectStore, Purpose, Result, StoreError, Upload, UploadPart, Version};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};

/// Parts of one upload: S3's limit.
pub const PARTS_MAX: usize = 10_000;

/// How a large object is put.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MultipartPlan {
    /// Of every part but the last. S3 wants 5 MiB or more.
    pub part_bytes: usize,
    /// Parts that are sent at a time; the store may allow fewer.
    pub in_flight_max: usize,
}

impl Default for MultipartPlan {
    fn default() -> MultipartPlan {
        MultipartPlan { part_bytes: 8 << 20, in_flight_max: 4 }
    }
}

impl MultipartPlan {
    /// Memory for parts while an object is put: those in flight and the next one.
    pub fn buffer_bytes_max(&self) -> usize {
        self.part_bytes * (self.in_flight_max.max(1) + 1)
    }
}

/// Cuts what a source gives into parts.
struct Cutter<'a> {
    next: &'a mut dyn FnMut() -> Result<Option<Bytes>>,
    /// The rest of the piece that the source gave last.
    rest: Bytes,
    part_bytes: usize,
}

impl Cutter<'_> {
    /// The next part; only the last one is shorter than `part_bytes`. None: the source has ended.
    fn part(&mut self) -> Result<Option<Bytes>> {
        let mut gathered: Vec<u8> = Vec::new();
        loop {
            if self.rest.is_empty() {
                match (self.next)()? {
                    Some(piece) => self.rest = piece,
                    None => return Ok((!gathered.is_empty()).then(|| gathered.into())),
                }
                continue;
            }
            let missing = self.part_bytes - gathered.len();
            let piece = self.rest.split_to(missing.min(self.rest.len()));
            // A piece that is a whole part is not copied.
            if piece.len() == self.part_bytes {
                return Ok(Some(piece));
            }
            gathered.reserve_exact(missing);
            gathered.extend_from_slice(&piece);
            if gathered.len() == self.part_bytes {
                return Ok(Some(gathered.into()));
            }
        }
    }
}

/// A part to be sent.
struct Unsent {
    number: u32,
    offset: u64,
    body: Bytes,
}

/// Nothing of an upload is visible before its completion, so a lost reply to an earlier request is known to have had no effect.
fn without_effect(error: StoreError) -> StoreError {
    match error {
        StoreError::Unknown { key, cause } => StoreError::Unavailable { key, cause },
        error => error,
    }
}

impl dyn ObjectStore + '_ {
    /// Puts a new object whose bytes `next` gives piece by piece, in order, until it returns None; durable when it returns Ok.
    /// `Conflict` if the key exists. An error of `next` ends the upload and is returned.
    pub fn put_multipart(
        &self,
        purpose: Purpose,
        key: &str,
        plan: &MultipartPlan,
        next: &mut dyn FnMut() -> Result<Option<Bytes>>,
    ) -> Result<Version> {
        if plan.part_bytes == 0 {
            let cause = "a part must have at least one byte".into();
            return Err(StoreError::Refused { key: key.into(), cause });
        }
        let mut cutter = Cutter { next, rest: Bytes::new(), part_bytes: plan.part_bytes };
        let Some(first) = cutter.part()? else { return self.put_if_absent(purpose, key, &[]) };
        let Some(second) = cutter.part()? else { return self.put_if_absent(purpose, key, &[first]) };
        let upload = self.begin_upload(purpose, key).map_err(without_effect)?;
        let mut ready = [Some(second), Some(first)];
        let mut count = 0;
        let mut offset = 0;
        let mut unsent = || {
            let early = ready.iter_mut().rev().find_map(Option::take);
            let Some(body) = early.map_or_else(|| cutter.part(), |body| Ok(Some(body)))? else {
                return Ok(None);
            };
            if count == PARTS_MAX {
                let cause =
                    format!("the object has more than {PARTS_MAX} parts of {} bytes", plan.part_bytes);
                return Err(StoreError::Refused { key: key.into(), cause });
            }
            let part = Unsent { number: count as u32, offset, body };
            (count, offset) = (count + 1, offset + part.body.len() as u64);
            Ok(Some(part))
        };
        let sent = match plan.in_flight_max.min(self.parallel_max()) {
            0 | 1 => self.send_one_by_one(purpose, &upload, &mut unsent),
            width => self.send_side_by_side(purpose, &upload, width, &mut unsent),
        };
        let done = sent.map_err(without_effect).and_then(|parts| {
            if UploadPart::check(key, &parts)? != offset {
                let cause = "a part is missing from the upload".into();
                return Err(StoreError::Refused { key: key.into(), cause });
            }
            self.complete_upload(purpose, &upload, &parts)
        });
        if done.is_err() {
            // After a lost reply, too: either the object is complete, or it must not become so later. What an abort that fails
            // leaves, `remove_staged` or the bucket's life cycle removes.
            let _ = self.abort_upload(purpose, &upload);
        }
        done
    }

    fn send_one_by_one(
        &self,
        purpose: Purpose,
        upload: &Upload,
        unsent: &mut dyn FnMut() -> Result<Option<Unsent>>,
    ) -> Result<Vec<UploadPart>> {
        let mut parts = Vec::new();
        while let Some(part) = unsent()? {
            parts.push(self.put_part(purpose, upload, part.number, part.offset, &part.body)?);
        }
        Ok(parts)
    }

    /// With `width` threads, or as many as can be started.
    fn send_side_by_side(
        &self,
        purpose: Purpose,
        upload: &Upload,
        width: usize,
        unsent: &mut dyn FnMut() -> Result<Option<Unsent>>,
    ) -> Result<Vec<UploadPart>> {
        // A part is handed over only to a thread that is free: no queue holds any.
        let (to_send, parts) = sync_channel::<Unsent>(0);
        let sent: Mutex<Result<Vec<UploadPart>>> = Mutex::new(Ok(Vec::new()));
        let work = |parts: Arc<Mutex<Receiver<Unsent>>>| {
            loop {
                let Ok(part) = parts.lock().recv() else { return };
                // After a failure parts are taken and dropped, so that the caller's thread does not wait.
                if sent.lock().is_err() {
                    continue;
                }
                let result = self.put_part(purpose, upload, part.number, part.offset, &part.body);
                let mut sent = sent.lock();
                match (&mut *sent, result) {
                    (Ok(sent), Ok(part)) => sent.push(part),
                    (Ok(_), Err(error)) => *sent = Err(error),
                    (Err(_), _) => {}
                }
            }
        };
        // Only the threads have the receiving end: should all of them die, the caller's thread does not wait for them.
        let parts = Arc::new(Mutex::new(parts));
        let read = std::thread::scope(|scope| {
            let work = &work;
            let start = |_| {
                let parts = parts.clone();
                let builder = std::thread::Builder::new().name("terrace-part".into());
                builder.spawn_scoped(scope, move || work(parts)).is_ok()
            };
            let started = (0..width).map(start).filter(|started| *started).count();
            drop(parts);
            if started == 0 {
                return Some(self.send_one_by_one(purpose, upload, unsent));
            }
            loop {
                match unsent() {
                    Ok(Some(part)) => {
                        if sent.lock().is_err() || to_send.send(part).is_err() {
                            break;
                        }
                    }
                    Ok(None) => break,
                    Err(error) => {
                        let mut sent = sent.lock();
                        if sent.is_ok() {
                            *sent = Err(error);
                        }
                        break;
                    }
                }
            }
            drop(to_send);
            None
        });
        let mut parts = read.unwrap_or_else(|| sent.into_inner())?;
        parts.sort_unstable_by_key(|part| part.number);
        Ok(parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(pieces: &[&'static [u8]], part_bytes: usize) -> Vec<Vec<u8>> {
        let mut pieces = pieces.iter();
        let mut next = || Ok(pieces.next().map(|piece| Bytes::from_static(piece)));
        let mut cutter = Cutter { next: &mut next, rest: Bytes::new(), part_bytes };
        std::iter::from_fn(|| cutter.part().unwrap()).map(|part| part.to_vec()).collect()
    }

    #[test]
    fn pieces_of_any_length_become_parts_of_one_length() {
        assert_eq!(cut(&[], 3), Vec::<Vec<u8>>::new());
        assert_eq!(cut(&[b"", b""], 3), Vec::<Vec<u8>>::new());
        assert_eq!(cut(&[b"abc"], 3), [b"abc"]);
        assert_eq!(cut(&[b"a", b"", b"bcdefg", b"h"], 3), [&b"abc"[..], b"def", b"gh"]);
        assert_eq!(cut(&[b"abcdefghij"], 4), [&b"abcd"[..], b"efgh", b"ij"]);
    }

    #[test]
    fn a_list_of_parts_with_a_gap_is_refused() {
        let part = |number, offset, bytes| UploadPart { number, offset, bytes, tag: String::new() };
        assert_eq!(UploadPart::check("k", &[part(0, 0, 5), part(1, 5, 2)]).unwrap(), 7);
        for parts in [
            vec![],
            vec![part(1, 0, 5)],
            vec![part(0, 0, 5), part(2, 10, 5)],
            vec![part(0, 0, 5), part(1, 10, 5)],
            vec![part(0, 0, 5), part(1, 4, 5)],
        ] {
            let checked = UploadPart::check("k", &parts);
            assert!(matches!(checked, Err(StoreError::Refused { .. })), "{parts:?}: {checked:?}");
        }
    }
}
