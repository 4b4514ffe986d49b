//! Values as the server below keeps them: payloads of `RESTORE` and `DUMP`.
//!
//! A hash whose fields expire is not a value for every server, and a value that a server refuses would end a transaction half way. It is stored as
//! a string: [`WRAP`], then its RDB form. So is a string that begins with the same bytes.

use crate::rdb::length::{read_string, write_string};
use crate::rdb::{SliceSource, kind, payload};
use crate::storage::StorageError;

/// Begins a string that holds the RDB form of another value.
pub const WRAP: &[u8] = b"\0terrace rdb\0";

/// The string that a type byte and value of type string stand for, if it begins with [`WRAP`].
fn wrapped(rdb: &[u8]) -> Option<Vec<u8>> {
    let (kind::STRING, value) = rdb.split_first().map(|(kind, value)| (*kind, value))? else { return None };
    // Most strings are neither compressed nor numbers, and begin with another byte.
    let first = *value.first()?;
    let skipped = match first >> 6 {
        0 => Some(1),
        1 => Some(2),
        2 if first == 0x80 => Some(5),
        2 => Some(9),
        _ => None,
    };
    if let Some(skipped) = skipped
        && !value.get(skipped..).is_some_and(|text| text.starts_with(WRAP))
    {
        return None;
    }
    read_string(&mut SliceSource::new(value)).ok().filter(|text| text.starts_with(WRAP))
}

/// What `RESTORE` is given for a type byte and value.
pub fn seal(rdb: Vec<u8>) -> Vec<u8> {
    let is_foreign = rdb.first() == Some(&kind::HASH_METADATA);
    if !is_foreign && wrapped(&rdb).is_none() {
        return payload::seal(rdb);
    }
    let mut out = vec![kind::STRING];
    write_string(&mut out, &[WRAP, &rdb].concat());
    payload::seal(out)
}

/// The type byte and value of what `DUMP` has answered.
pub fn open(dumped: &[u8]) -> Result<Vec<u8>, StorageError> {
    let corrupt = || StorageError::Corrupt("a payload of DUMP has a wrong checksum".into());
    let rdb = payload::open_of_any_version(dumped).ok_or_else(corrupt)?;
    Ok(wrapped(rdb).map_or_else(|| rdb.to_vec(), |text| text[WRAP.len()..].to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rdb::Object;
    use crate::rdb::object::ExpiringField;

    #[test]
    fn every_value_comes_back_and_hashes_with_times_are_strings_below() {
        let string = |text: &[u8]| payload::encode(&Object::String(text.to_vec()));
        let field =
            ExpiringField { field: b"f".to_vec(), value: b"v".to_vec(), expires_ms: Some(1_900_000_000_000) };
        let hash = payload::encode(&Object::ExpiringHash(vec![field]));
        let tricky = [WRAP, b"a string of a client"].concat();
        let values = [
            (string(b"plain"), false),
            (string(b"12345"), false),
            (string(&[b'x'; 5000]), false),
            (string(&WRAP[..5]), false),
            (string(&tricky), true),
            (string(&[&tricky[..], &[b'y'; 5000]].concat()), true),
            (payload::encode(&Object::List(vec![b"a".to_vec()])), false),
            (hash, true),
        ];
        for (rdb, is_wrapped) in values {
            let sealed = seal(rdb.clone());
            assert_eq!(open(&sealed), Ok(rdb.clone()));
            assert_eq!(payload::open(&sealed).unwrap() != &rdb[..], is_wrapped);
            let mut damaged = sealed;
            damaged[0] ^= 1;
            assert!(open(&damaged).is_err());
        }
    }
}
