//! The protocol between clients and the daemon (`docs/files.md`): frames, and the fields in them. Pure; both ends use it.
//!
//! A frame is a length (4 bytes, of what follows), the request's id (8), one byte of operation (in a request) or status (in an answer), and
//! the fields. Numbers are little-endian; a string is its length (4) and its bytes. Answers carry the id of their request and come in any
//! order. Whatever bytes arrive, decoding returns an error and never panics.

use crate::catalogue::Fault;
use std::sync::Arc;

/// `TFS1`, at the start of the first request.
pub const MAGIC: u32 = u32::from_le_bytes(*b"TFS1");
pub const VERSION: u32 = 2;
/// Bytes of a frame without its length.
pub const HEAD: usize = 9;
/// Longest frame, in bytes after the length: a part of a file that is written, or the paths of a batch.
pub const FRAME_MAX: usize = (8 << 20) + (64 << 10);
/// Longest path, in bytes, as S3's keys.
pub const PATH_MAX: usize = 1024;
/// Files in one batch.
pub const BATCH_MAX: usize = 1000;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Op {
    Hello = 1,
    Read = 2,
    ReadMany = 3,
    Release = 4,
    Stat = 5,
    List = 6,
    Put = 7,
    OpenWrite = 8,
    Write = 9,
    Commit = 10,
    Abort = 11,
    Delete = 12,
    Status = 13,
    Evict = 14,
    Warm = 15,
    Touch = 16,
    BeginGroup = 17,
    ResumeGroup = 18,
    OpenInGroup = 19,
    CommitGroup = 20,
    AbortGroup = 21,
    MapObjects = 32,
    CreateObject = 33,
    SealObject = 34,
    GetObject = 35,
    ReleaseObjects = 36,
    DeleteObject = 37,
    Pin = 40,
    Unpin = 41,
    Pins = 42,
}

impl Op {
    pub fn of(byte: u8) -> Option<Op> {
        use Op::*;
        let all = [
            Hello,
            Read,
            ReadMany,
            Release,
            Stat,
            List,
            Put,
            OpenWrite,
            Write,
            Commit,
            Abort,
            Delete,
            Status,
            Evict,
            Warm,
            Touch,
            BeginGroup,
            ResumeGroup,
            OpenInGroup,
            CommitGroup,
            AbortGroup,
            MapObjects,
            CreateObject,
            SealObject,
            GetObject,
            ReleaseObjects,
            DeleteObject,
            Pin,
            Unpin,
            Pins,
        ];
        all.into_iter().find(|op| *op as u8 == byte)
    }
}

/// The status of an answer.
pub mod status {
    /// The answer, or its last part.
    pub const OK: u8 = 0;
    /// A part of the answer: others follow.
    pub const MORE: u8 = 1;
    pub const ABSENT: u8 = 16;
    pub const CHANGED: u8 = 17;
    pub const UNAVAILABLE: u8 = 18;
    pub const REFUSED: u8 = 19;
    pub const BUSY: u8 = 20;
    pub const INVALID: u8 = 21;
    pub const EXISTS: u8 = 22;
    /// The client speaks another protocol, or another version of it.
    pub const PROTOCOL: u8 = 23;
}

pub fn status_of(fault: &Fault) -> u8 {
    match fault {
        Fault::Absent => status::ABSENT,
        Fault::Changed => status::CHANGED,
        Fault::Unavailable(_) => status::UNAVAILABLE,
        Fault::Refused(_) => status::REFUSED,
        Fault::Busy(_) => status::BUSY,
        Fault::Invalid(_) => status::INVALID,
        Fault::Exists => status::EXISTS,
    }
}

pub fn fault_of(status: u8, message: String) -> Fault {
    match status {
        status::ABSENT => Fault::Absent,
        status::CHANGED => Fault::Changed,
        status::UNAVAILABLE => Fault::Unavailable(message),
        status::REFUSED => Fault::Refused(message),
        status::BUSY => Fault::Busy(message),
        status::EXISTS => Fault::Exists,
        _ => Fault::Invalid(message),
    }
}

/// What the other end sent is not the protocol.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the frame is malformed: {0}")]
pub struct Malformed(pub &'static str);

/// A frame in a buffer of received bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame<'a> {
    pub request: u64,
    /// The operation or the status.
    pub kind: u8,
    pub fields: &'a [u8],
    /// With its length.
    pub bytes: usize,
}

/// The frame that the bytes begin with; None if it is not whole yet.
pub fn frame(bytes: &[u8]) -> Result<Option<Frame<'_>>, Malformed> {
    let Some(head) = bytes.get(..4) else { return Ok(None) };
    let len = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
    if !(HEAD..=FRAME_MAX).contains(&len) {
        return Err(Malformed("its length is out of bounds"));
    }
    let Some(body) = bytes.get(4..4 + len) else { return Ok(None) };
    let mut fields = Fields(body);
    let (request, kind) = (fields.u64()?, fields.u8()?);
    Ok(Some(Frame { request, kind, fields: fields.0, bytes: 4 + len }))
}

/// Fields that are still to be read.
pub struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(Malformed("a field is cut off"))?;
        self.0 = rest;
        Ok(taken)
    }
    pub fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(self.take(1)?[0])
    }
    pub fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(self.take(4)?.try_into().map_or(0, u32::from_le_bytes))
    }
    pub fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(self.take(8)?.try_into().map_or(0, u64::from_le_bytes))
    }
    pub fn text(&mut self) -> Result<&'a str, Malformed> {
        let len = self.u32()? as usize;
        std::str::from_utf8(self.take(len)?).map_err(|_| Malformed("a string is not UTF-8"))
    }
    /// An empty string stands for no string.
    pub fn some_text(&mut self) -> Result<Option<Arc<str>>, Malformed> {
        Ok(Some(self.text()?).filter(|text| !text.is_empty()).map(Arc::from))
    }
    /// A number of items, each of at least `least` bytes: a count that the frame cannot hold is refused before room is made for it.
    pub fn count(&mut self, least: usize) -> Result<usize, Malformed> {
        let count = self.u32()? as usize;
        if count.saturating_mul(least) > self.0.len() {
            return Err(Malformed("it has fewer items than it says"));
        }
        Ok(count)
    }
    pub fn end(&self) -> Result<(), Malformed> {
        if self.0.is_empty() { Ok(()) } else { Err(Malformed("it has bytes after its last field")) }
    }
}

/// Appends one frame to a buffer.
pub struct Put<'a> {
    out: &'a mut Vec<u8>,
    begin: usize,
}

impl<'a> Put<'a> {
    pub fn new(out: &'a mut Vec<u8>, request: u64, kind: u8) -> Put<'a> {
        let begin = out.len();
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&request.to_le_bytes());
        out.push(kind);
        Put { out, begin }
    }
    pub fn u8(&mut self, value: u8) -> &mut Self {
        self.out.push(value);
        self
    }
    pub fn u32(&mut self, value: u32) -> &mut Self {
        self.out.extend_from_slice(&value.to_le_bytes());
        self
    }
    pub fn u64(&mut self, value: u64) -> &mut Self {
        self.out.extend_from_slice(&value.to_le_bytes());
        self
    }
    pub fn text(&mut self, value: &str) -> &mut Self {
        self.u32(value.len() as u32).bytes(value.as_bytes())
    }
    pub fn bytes(&mut self, value: &[u8]) -> &mut Self {
        self.out.extend_from_slice(value);
        self
    }
    /// Bytes of the fields so far.
    pub fn len(&self) -> usize {
        self.out.len() - self.begin - 4 - HEAD
    }
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Drop for Put<'_> {
    /// Now its length is known.
    fn drop(&mut self) {
        let len = (self.out.len() - self.begin - 4) as u32;
        if let Some(place) = self.out.get_mut(self.begin..self.begin + 4) {
            place.copy_from_slice(&len.to_le_bytes());
        }
    }
}

pub fn put_fault(out: &mut Vec<u8>, request: u64, fault: &Fault) {
    Put::new(out, request, status_of(fault)).text(&fault.to_string());
}

/// A path is a key of the store: no empty part, no `.` or `..`, no slash at either end.
pub fn check_path(path: &str) -> Result<(), Fault> {
    let is_plain = |part: &str| !part.is_empty() && part != "." && part != "..";
    let is_good = path.len() <= PATH_MAX && path.split('/').all(is_plain) && !path.contains(char::is_control);
    match is_good {
        true => Ok(()),
        false => Err(Fault::Invalid(format!(
            "`{}` is not a path: 1 to {PATH_MAX} bytes, no empty part, no `.` or `..`, no control characters",
            path.escape_debug()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_put_is_read_back() {
        let mut out = Vec::new();
        Put::new(&mut out, 77, Op::Read as u8).text("a/b").u64(5).u32(6).u8(7);
        Put::new(&mut out, 78, Op::Status as u8);
        let first = frame(&out).unwrap().unwrap();
        assert_eq!((first.request, Op::of(first.kind)), (77, Some(Op::Read)));
        let mut fields = Fields(first.fields);
        assert_eq!(fields.text().unwrap(), "a/b");
        assert_eq!((fields.u64().unwrap(), fields.u32().unwrap(), fields.u8().unwrap()), (5, 6, 7));
        fields.end().unwrap();
        let second = frame(&out[first.bytes..]).unwrap().unwrap();
        assert_eq!((second.request, second.fields.len()), (78, 0));
        for cut in 0..first.bytes {
            assert_eq!(frame(&out[..cut]).unwrap(), None, "{cut} bytes are no frame");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_frame_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(Some(frame)) = frame(&bytes) {
                let mut fields = Fields(frame.fields);
                while fields.text().is_ok() && fields.count(9).is_ok() {}
            }
        }
    }

    #[test]
    fn a_path_that_leaves_the_store_is_refused() {
        for good in ["a", "a/b.parquet", "year=2026/part-0", "ä ö/#1"] {
            assert!(check_path(good).is_ok(), "{good}");
        }
        for bad in ["", "/a", "a/", "a//b", "..", "a/../b", ".", "a\nb", &"x".repeat(PATH_MAX + 1)] {
            assert!(check_path(bad).is_err(), "{bad}");
        }
    }
}
