//! Values to RDB and back.
//!
//! Compact encodings are those of RDB, so they are copied. A hash whose fields expire is written as Redis 7.4 writes it, which older versions
//! do not read; all other values can be read by Redis 7.0.

use super::length::{WriteString, write_length, write_plain_string, write_stored_string, write_string};
use super::object::{ExpiringField, NODE_PACKED};
use super::{Object, kind, stream};
use crate::value::hash::HashBody;
use crate::value::limits::CollectionLimits;
use crate::value::list::End;
use crate::value::set::SetBody;
use crate::value::{Hash, List, Set, Str, Value, Zset};

impl Value {
    /// Appends the value in its RDB form. Returns the type byte, which stands in front of it or elsewhere.
    pub fn write_rdb(&self, out: &mut Vec<u8>) -> u8 {
        self.write_rdb_by(out, write_string)
    }

    fn write_rdb_by(&self, out: &mut Vec<u8>, string: WriteString) -> u8 {
        match self {
            Value::Str(text) => {
                text.with(|bytes| string(out, bytes));
                kind::STRING
            }
            Value::List(list) => {
                let packs = list.packs();
                write_length(out, packs.len() as u64);
                for pack in packs {
                    write_length(out, NODE_PACKED);
                    string(out, pack.as_bytes());
                }
                kind::LIST_QUICKLIST_2
            }
            Value::Set(set) => write_set(out, set, string),
            Value::Hash(hash) => write_hash(out, hash, string),
            Value::Zset(zset) => write_zset(out, zset, string),
            Value::Stream(value) => {
                stream::write(out, value);
                kind::STREAM_LISTPACKS_2
            }
        }
    }

    /// Type byte and value: what storage keeps. Strings that gain little by it are not compressed: objects compress whole pages.
    pub fn to_rdb(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.append_rdb(&mut out, write_stored_string);
        out
    }

    /// Appends the type byte and the value as the log keeps them for a moment: not compressed.
    pub fn append_logged(&self, out: &mut Vec<u8>) {
        self.append_rdb(out, write_plain_string);
    }

    fn append_rdb(&self, out: &mut Vec<u8>, string: WriteString) {
        if let Value::Str(text) = self {
            out.reserve(text.len() + 8);
        }
        let at = out.len();
        out.push(0);
        out[at] = self.write_rdb_by(out, string);
    }

    /// The value that RDB described, in the encoding that `limits` give it.
    pub fn from_rdb(object: Object, limits: &CollectionLimits) -> Value {
        match object {
            Object::String(bytes) => Value::Str(Str::encoded(&bytes)),
            Object::List(elements) => {
                let mut list = List::new();
                for element in &elements {
                    list.push(End::Right, element, limits);
                }
                list.into()
            }
            Object::Set(members) => {
                let mut set = Set::new();
                for member in &members {
                    set.insert(member, limits);
                }
                set.into()
            }
            Object::Hash(pairs) => {
                let mut hash = Hash::new();
                for (field, value) in &pairs {
                    hash.insert(field, value, limits);
                }
                hash.into()
            }
            Object::ExpiringHash(fields) => {
                let mut hash = Hash::new();
                for ExpiringField { field, value, expires_ms } in &fields {
                    hash.insert(field, value, limits);
                    if let Some(at_ms) = expires_ms {
                        hash.expire_at(field, *at_ms);
                    }
                }
                hash.into()
            }
            Object::Zset(members) => {
                // Not packed first: a pack has no negative zero.
                let mut zset = match members.len() > limits.zset_max_listpack_entries {
                    true => Zset::new_ordered(),
                    false => Zset::new(),
                };
                for (member, score) in &members {
                    zset.insert(member, *score, limits);
                }
                zset.into()
            }
            Object::Stream(stream) => Value::Stream(stream),
        }
    }
}

fn write_set(out: &mut Vec<u8>, set: &Set, string: WriteString) -> u8 {
    if let SetBody::Ints(ints) = set.body() {
        string(out, ints.as_bytes());
        return kind::SET_INTSET;
    }
    write_length(out, set.len() as u64);
    for member in set.iter() {
        string(out, member.bytes(&mut itoa::Buffer::new()));
    }
    kind::SET
}

fn write_hash(out: &mut Vec<u8>, hash: &Hash, string: WriteString) -> u8 {
    if let Some(first_ms) = hash.next_expiry() {
        out.extend_from_slice(&first_ms.to_le_bytes());
        write_length(out, hash.len() as u64);
        for (field, value) in hash.iter() {
            let mut buffer = itoa::Buffer::new();
            let field = field.bytes(&mut buffer);
            // Zero means that the field does not expire.
            write_length(out, hash.expiry_of(field).map_or(0, |at_ms| (at_ms - first_ms) as u64 + 1));
            string(out, field);
            string(out, value.bytes(&mut itoa::Buffer::new()));
        }
        return kind::HASH_METADATA;
    }
    if let HashBody::Pack(pack) = hash.body() {
        string(out, pack.as_bytes());
        return kind::HASH_LISTPACK;
    }
    write_length(out, hash.len() as u64);
    for (field, value) in hash.iter() {
        string(out, field.bytes(&mut itoa::Buffer::new()));
        string(out, value.bytes(&mut itoa::Buffer::new()));
    }
    kind::HASH
}

fn write_zset(out: &mut Vec<u8>, zset: &Zset, string: WriteString) -> u8 {
    if let Some(pack) = zset.pack() {
        string(out, pack.as_bytes());
        return kind::ZSET_LISTPACK;
    }
    write_length(out, zset.len() as u64);
    for (member, score) in zset.iter_from(0) {
        string(out, member.bytes(&mut itoa::Buffer::new()));
        out.extend_from_slice(&score.to_le_bytes());
    }
    kind::ZSET_2
}
