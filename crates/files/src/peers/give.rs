//! What a former owner gives of partitions that moved: the frame, and how far a giver has come.
//!
//! A frame has one packed block, as it is on flash or made for this with the wanted files alone, with the versions that the giver knows of its files; or blocks of longer files;
//! or nothing. The taker asks for the next one when it has kept this one, and the giver then drops what that was. So a transfer that breaks goes on where it was.

use super::frame::{Broken, fields};
use crate::wire::Fields;
use std::sync::Arc;
use terrace_io::clock::Nanos;

/// Bytes of what is known of files in one frame: what does not fit, the taker asks the store about.
const KNOWN_MAX: usize = 1 << 20;

/// A file of the packed block, by its place in it: a version that was current `age` nanoseconds ago.
pub struct Knows {
    pub at: u32,
    pub age: Nanos,
    pub version: Arc<str>,
}

/// A block of a file that is not packed.
pub struct Large {
    pub path: Arc<str>,
    pub version: Arc<str>,
    pub length: u64,
    pub index: u32,
    pub age: Nanos,
    pub bytes: Vec<u8>,
}

#[derive(Default)]
pub struct Given {
    /// Empty: there is none.
    pub packed: Vec<u8>,
    /// The block's, as its footer has it.
    pub id: u64,
    pub known: Vec<Knows>,
    pub larges: Vec<Large>,
    /// There is no more.
    pub ended: bool,
}

impl Given {
    /// The fields, and what follows them.
    pub fn encode(&self) -> (Vec<u8>, Vec<&[u8]>) {
        let (mut bytes, mut fits) = (0, 0);
        for known in &self.known {
            bytes += 16 + known.version.len();
            fits += usize::from(bytes <= KNOWN_MAX);
        }
        let head = fields(|put| {
            put.u8(u8::from(self.ended)).u64(self.id).u32(self.packed.len() as u32);
            put.u32(fits as u32);
            self.known.iter().take(fits).for_each(|known| {
                put.u32(known.at).u64(known.age).text(&known.version);
            });
            put.u32(self.larges.len() as u32);
            for large in &self.larges {
                put.text(&large.path).text(&large.version).u64(large.length).u32(large.index);
                put.u64(large.age).u32(large.bytes.len() as u32);
            }
        });
        let larges = self.larges.iter().map(|large| &large.bytes[..]);
        (head, std::iter::once(&self.packed[..]).chain(larges).collect())
    }

    pub fn decode(bytes: &[u8]) -> Result<Given, Broken> {
        let mut read = Fields(bytes);
        let (ended, id, packed) = (read.u8()? != 0, read.u64()?, read.u32()? as usize);
        let known = (0..read.count(16)?)
            .map(|_| Ok(Knows { at: read.u32()?, age: read.u64()?, version: read.text()?.into() }))
            .collect::<Result<Vec<_>, Broken>>()?;
        let mut larges = Vec::new();
        let mut lens = Vec::new();
        for _ in 0..read.count(32)? {
            let (path, version) = (read.text()?.into(), read.text()?.into());
            let (length, index, age) = (read.u64()?, read.u32()?, read.u64()?);
            lens.push(read.u32()? as usize);
            larges.push(Large { path, version, length, index, age, bytes: Vec::new() });
        }
        let mut rest = read.0;
        let mut take = |len: usize| {
            let (taken, after) = rest.split_at_checked(len).ok_or(Broken::Malformed("bytes are missing"))?;
            rest = after;
            Ok::<_, Broken>(taken.to_vec())
        };
        let packed = take(packed)?;
        for (large, len) in larges.iter_mut().zip(lens) {
            large.bytes = take(len)?;
        }
        if !rest.is_empty() {
            return Err(Broken::Malformed("bytes follow the last block"));
        }
        Ok(Given { packed, id, known, larges, ended })
    }
}

/// Where a giver is, in this order.
#[derive(Default)]
pub enum Phase {
    #[default]
    Begin,
    /// The next packed block.
    Packed(u32),
    Staged,
    /// Files that are known, by their paths: the next one, and the next block of it.
    Known {
        list: Vec<Arc<str>>,
        at: usize,
        index: u32,
    },
}

/// A transfer, at the giver.
#[derive(Default)]
pub struct Giving {
    pub phase: Phase,
    /// What the last frame had: small files, and long ones whose last block it had, with their lengths.
    pub sent: Sent,
}

#[derive(Default)]
pub struct Sent {
    pub smalls: Vec<(Arc<str>, u64)>,
    pub larges: Vec<(Arc<str>, u64)>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_given_is_read_back() {
        let given = Given {
            packed: b"packed".to_vec(),
            id: 9,
            known: vec![Knows { at: 3, age: 5, version: "v".into() }],
            larges: vec![Large {
                path: "a/b".into(),
                version: "w".into(),
                length: 10 << 20,
                index: 1,
                age: 7,
                bytes: b"large".to_vec(),
            }],
            ended: true,
        };
        let (mut bytes, parts) = given.encode();
        parts.iter().for_each(|part| bytes.extend_from_slice(part));
        let read = Given::decode(&bytes).unwrap();
        assert_eq!((read.packed, read.id, read.ended), (given.packed, 9, true));
        assert_eq!((read.known[0].at, read.known[0].age, &*read.known[0].version), (3, 5, "v"));
        let large = &read.larges[0];
        assert_eq!(
            (&*large.path, &*large.version, large.index, &large.bytes[..]),
            ("a/b", "w", 1, &b"large"[..])
        );
        (0..bytes.len()).for_each(|cut| assert!(Given::decode(&bytes[..cut]).is_err(), "{cut} bytes"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_given_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..120)) {
            let _ = Given::decode(&bytes).map(|given| given.larges.len());
        }
    }
}
