//! A value of any type as it stands in RDB, without the encodings of memory.

use super::length::{
    read_count, read_double, read_length, read_string, read_text_double, write_length, write_string,
};
use super::{RdbError, Result, Source, kind, legacy, stream};
use crate::value::stream::Stream;
use crate::value::stream::listpack::{Builder, View};
use std::collections::HashSet;

#[derive(Debug, Clone)]
pub enum Object {
    String(Vec<u8>),
    List(Vec<Vec<u8>>),
    Set(Vec<Vec<u8>>),
    Hash(Vec<(Vec<u8>, Vec<u8>)>),
    ExpiringHash(Vec<ExpiringField>),
    Zset(Vec<(Vec<u8>, f64)>),
    Stream(Box<Stream>),
}

/// A field of a hash of which some fields expire.
#[derive(Debug, Clone)]
pub struct ExpiringField {
    pub field: Vec<u8>,
    pub value: Vec<u8>,
    /// Milliseconds since the epoch.
    pub expires_ms: Option<i64>,
}

/// A node of a list: its elements in a listpack, or one large element.
const NODE_PLAIN: u64 = 1;
pub const NODE_PACKED: u64 = 2;
/// A node of a list that is written ends when its listpack is this large: Redis's `list-max-listpack-size -2`.
const NODE_BYTES_MAX: usize = 8 << 10;
/// Collections up to this many elements of this many bytes are written as a listpack: Redis's defaults.
const PACK_ELEMENTS_MAX: usize = 128;
const PACK_ELEMENT_BYTES_MAX: usize = 64;
const INTSET_MEMBERS_MAX: usize = 512;

const EMPTY: RdbError = RdbError::Corrupt("an empty collection");
const DUPLICATE: RdbError = RdbError::Corrupt("an element occurs twice");

impl Object {
    /// Reads the value of type `kind`. A collection has at least one element and no element twice.
    pub fn read(source: &mut impl Source, kind: u8) -> Result<Object> {
        let object = match kind {
            kind::STRING => return Ok(Object::String(read_string(source)?)),
            kind::LIST => Object::List(read_strings(source)?),
            kind::SET => Object::Set(read_strings(source)?),
            kind::HASH => {
                let count = read_count(source, 2)?;
                Object::Hash(
                    (0..count)
                        .map(|_| Ok((read_string(source)?, read_string(source)?)))
                        .collect::<Result<_>>()?,
                )
            }
            kind::HASH_METADATA => Object::ExpiringHash(read_expiring(source)?),
            kind::ZSET | kind::ZSET_2 => {
                let count = read_count(source, 2)?;
                let mut members = Vec::new();
                for _ in 0..count {
                    let member = read_string(source)?;
                    let score =
                        if kind == kind::ZSET { read_text_double(source)? } else { read_double(source)? };
                    members.push((member, score));
                }
                Object::Zset(members)
            }
            kind::HASH_ZIPMAP => Object::Hash(legacy::zipmap(&read_string(source)?)?),
            kind::LIST_ZIPLIST => Object::List(legacy::ziplist(&read_string(source)?)?),
            kind::SET_INTSET => {
                let members = legacy::intset(&read_string(source)?)?;
                Object::Set(
                    members
                        .into_iter()
                        .map(|member| itoa::Buffer::new().format(member).as_bytes().to_vec())
                        .collect(),
                )
            }
            kind::ZSET_ZIPLIST => Object::Zset(scored(legacy::ziplist(&read_string(source)?)?)?),
            kind::HASH_ZIPLIST => Object::Hash(paired(legacy::ziplist(&read_string(source)?)?)?),
            kind::SET_LISTPACK => Object::Set(unpacked(&read_string(source)?)?),
            kind::HASH_LISTPACK => Object::Hash(paired(unpacked(&read_string(source)?)?)?),
            kind::ZSET_LISTPACK => Object::Zset(scored(unpacked(&read_string(source)?)?)?),
            kind::LIST_QUICKLIST => {
                let nodes = read_count(source, 1)?;
                let mut elements = Vec::new();
                for _ in 0..nodes {
                    elements.append(&mut legacy::ziplist(&read_string(source)?)?);
                }
                Object::List(elements)
            }
            kind::LIST_QUICKLIST_2 => Object::List(read_nodes(source)?),
            kind::STREAM_LISTPACKS | kind::STREAM_LISTPACKS_2 | kind::STREAM_LISTPACKS_3 => {
                return Ok(Object::Stream(Box::new(stream::read(source, kind)?)));
            }
            other => return Err(RdbError::UnsupportedType(other)),
        };
        object.check()?;
        Ok(object)
    }

    fn check(&self) -> Result<()> {
        fn distinct<'a>(count: usize, mut names: impl Iterator<Item = &'a Vec<u8>>) -> Result<()> {
            let mut seen = HashSet::with_capacity(count);
            if count == 0 {
                return Err(EMPTY);
            }
            if names.all(|name| seen.insert(name)) { Ok(()) } else { Err(DUPLICATE) }
        }
        match self {
            Object::List(elements) if elements.is_empty() => Err(EMPTY),
            Object::String(_) | Object::List(_) | Object::Stream(_) => Ok(()),
            Object::Set(members) => distinct(members.len(), members.iter()),
            Object::Hash(pairs) => distinct(pairs.len(), pairs.iter().map(|(name, _)| name)),
            Object::ExpiringHash(fields) => distinct(fields.len(), fields.iter().map(|field| &field.field)),
            Object::Zset(members) if members.iter().any(|(_, score)| score.is_nan()) => {
                Err(RdbError::Corrupt("a score that is not a number"))
            }
            Object::Zset(members) => distinct(members.len(), members.iter().map(|(name, _)| name)),
        }
    }

    /// Appends the value to `out`. Returns its type byte, which stands elsewhere.
    pub fn write(&self, out: &mut Vec<u8>) -> u8 {
        match self {
            Object::String(bytes) => {
                write_string(out, bytes);
                kind::STRING
            }
            Object::List(elements) => {
                write_list(out, elements.iter().map(Vec::as_slice));
                kind::LIST_QUICKLIST_2
            }
            Object::Set(members) => write_set(out, members),
            Object::Hash(pairs) => {
                if packs(pairs.len(), pairs.iter().flat_map(|(name, value)| [name.len(), value.len()])) {
                    let mut pack = Builder::default();
                    for (name, value) in pairs {
                        pack.push(name);
                        pack.push(value);
                    }
                    write_string(out, pack.bytes());
                    return kind::HASH_LISTPACK;
                }
                write_length(out, pairs.len() as u64);
                for (name, value) in pairs {
                    write_string(out, name);
                    write_string(out, value);
                }
                kind::HASH
            }
            Object::ExpiringHash(fields) => {
                let first_ms = fields.iter().filter_map(|field| field.expires_ms).min().unwrap_or(0);
                out.extend_from_slice(&first_ms.to_le_bytes());
                write_length(out, fields.len() as u64);
                for ExpiringField { field, value, expires_ms } in fields {
                    write_length(
                        out,
                        expires_ms.map_or(0, |at_ms| at_ms.abs_diff(first_ms).saturating_add(1)),
                    );
                    write_string(out, field);
                    write_string(out, value);
                }
                kind::HASH_METADATA
            }
            Object::Zset(members) => {
                write_length(out, members.len() as u64);
                for (member, score) in members {
                    write_string(out, member);
                    out.extend_from_slice(&score.to_le_bytes());
                }
                kind::ZSET_2
            }
            Object::Stream(value) => {
                stream::write(out, value);
                kind::STREAM_LISTPACKS_2
            }
        }
    }
}

fn packs(count: usize, mut sizes: impl Iterator<Item = usize>) -> bool {
    count <= PACK_ELEMENTS_MAX && sizes.all(|size| size <= PACK_ELEMENT_BYTES_MAX)
}

fn write_set(out: &mut Vec<u8>, members: &[Vec<u8>]) -> u8 {
    let integers = (members.len() <= INTSET_MEMBERS_MAX)
        .then(|| {
            members
                .iter()
                .map(|member| crate::value::integer::parse_integer(member))
                .collect::<Option<Vec<i64>>>()
        })
        .flatten();
    if let Some(mut integers) = integers {
        integers.sort_unstable();
        write_string(out, &legacy::write_intset(&integers));
        return kind::SET_INTSET;
    }
    write_length(out, members.len() as u64);
    for member in members {
        write_string(out, member);
    }
    kind::SET
}

/// Writes a list as a quicklist: packed nodes of at most 8 KiB, larger elements in nodes of their own.
pub fn write_list<'a>(out: &mut Vec<u8>, elements: impl Iterator<Item = &'a [u8]>) {
    let mut nodes = 0u64;
    let mut body = Vec::new();
    let mut pack = Builder::default();
    let mut packed = 0;
    let flush = |pack: &mut Builder, packed: &mut usize, body: &mut Vec<u8>, nodes: &mut u64| {
        if *packed > 0 {
            write_length(body, NODE_PACKED);
            write_string(body, std::mem::take(pack).bytes());
            (*packed, *nodes) = (0, *nodes + 1);
        }
    };
    for element in elements {
        if element.len() > NODE_BYTES_MAX {
            flush(&mut pack, &mut packed, &mut body, &mut nodes);
            write_length(&mut body, NODE_PLAIN);
            write_string(&mut body, element);
            nodes += 1;
            continue;
        }
        if pack.bytes().len() + element.len() > NODE_BYTES_MAX {
            flush(&mut pack, &mut packed, &mut body, &mut nodes);
        }
        pack.push(element);
        packed += 1;
    }
    flush(&mut pack, &mut packed, &mut body, &mut nodes);
    write_length(out, nodes);
    out.append(&mut body);
}

fn read_strings(source: &mut impl Source) -> Result<Vec<Vec<u8>>> {
    let count = read_count(source, 1)?;
    (0..count).map(|_| read_string(source)).collect()
}

fn read_expiring(source: &mut impl Source) -> Result<Vec<ExpiringField>> {
    const BAD_TIME: RdbError = RdbError::Corrupt("a time beyond 64 bits");
    let first_ms = i64::from_le_bytes(source.array()?);
    let count = read_count(source, 3)?;
    (0..count)
        .map(|_| {
            let expires_ms = match read_length(source)? {
                0 => None,
                later => {
                    let later = i64::try_from(later - 1).map_err(|_| BAD_TIME)?;
                    Some(first_ms.checked_add(later).ok_or(BAD_TIME)?)
                }
            };
            Ok(ExpiringField { field: read_string(source)?, value: read_string(source)?, expires_ms })
        })
        .collect()
}

fn read_nodes(source: &mut impl Source) -> Result<Vec<Vec<u8>>> {
    let nodes = read_count(source, 2)?;
    let mut elements = Vec::new();
    for _ in 0..nodes {
        match read_length(source)? {
            NODE_PLAIN => elements.push(read_string(source)?),
            NODE_PACKED => elements.append(&mut unpacked(&read_string(source)?)?),
            _ => return Err(RdbError::Corrupt("a list node of unknown kind")),
        }
    }
    Ok(elements)
}

fn unpacked(pack: &[u8]) -> Result<Vec<Vec<u8>>> {
    Ok(View::checked(pack)?.iter().map(|element| element.to_vec()).collect())
}

fn paired(elements: Vec<Vec<u8>>) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    if !elements.len().is_multiple_of(2) {
        return Err(RdbError::Corrupt("a name without a value"));
    }
    let mut pairs = Vec::with_capacity(elements.len() / 2);
    let mut elements = elements.into_iter();
    while let (Some(name), Some(value)) = (elements.next(), elements.next()) {
        pairs.push((name, value));
    }
    Ok(pairs)
}

fn scored(elements: Vec<Vec<u8>>) -> Result<Vec<(Vec<u8>, f64)>> {
    let score = |text: Vec<u8>| {
        std::str::from_utf8(&text)
            .ok()
            .and_then(|text| text.parse::<f64>().ok())
            .filter(|score| !score.is_nan())
    };
    paired(elements)?
        .into_iter()
        .map(|(member, text)| {
            Ok((member, score(text).ok_or(RdbError::Corrupt("a score that is not a number"))?))
        })
        .collect()
}
