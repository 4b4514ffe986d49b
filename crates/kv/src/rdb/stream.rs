//! The stream type in RDB: nodes under their first identifier, counters, and consumer groups.
//!
//! A group lists its pending entries with their delivery, then each consumer lists the identifiers it has. Version 2 (Redis 7.0) adds
//! counters that version 1 lets the reader derive; version 3 (7.2), which is read alone, a second time of each consumer.

use super::length::{read_count, read_length, read_string, write_length, write_string};
use super::{RdbError, Result, Source, kind};
use crate::value::stream::{Group, Stream, StreamId};

const ID_BYTES: usize = 16;
/// `entries_read` of a group that does not know it.
const UNKNOWN: u64 = u64::MAX;

pub fn write(out: &mut Vec<u8>, stream: &Stream) {
    write_length(out, stream.nodes().len() as u64);
    for (master, node) in stream.nodes() {
        write_string(out, &master.to_bytes());
        write_string(out, node.bytes());
    }
    write_length(out, stream.len());
    for id in [stream.last_id, stream.first_id, stream.max_deleted_id] {
        write_id(out, id);
    }
    write_length(out, stream.entries_added);
    write_length(out, stream.groups().len() as u64);
    for (name, group) in stream.groups() {
        write_string(out, name);
        write_id(out, group.last_id);
        write_length(out, group.entries_read.unwrap_or(UNKNOWN));
        write_length(out, group.pending().len() as u64);
        for (id, pending) in group.pending() {
            out.extend_from_slice(&id.to_bytes());
            out.extend_from_slice(&pending.delivered_ms.to_le_bytes());
            write_length(out, pending.deliveries);
        }
        write_length(out, group.consumers().len() as u64);
        for (name, consumer) in group.consumers() {
            write_string(out, name);
            out.extend_from_slice(&consumer.seen_ms.to_le_bytes());
            write_length(out, consumer.pending().len() as u64);
            for id in consumer.pending() {
                out.extend_from_slice(&id.to_bytes());
            }
        }
    }
}

fn write_id(out: &mut Vec<u8>, id: StreamId) {
    write_length(out, id.ms);
    write_length(out, id.seq);
}

fn read_id(source: &mut impl Source) -> Result<StreamId> {
    Ok(StreamId::new(read_length(source)?, read_length(source)?))
}

pub fn read(source: &mut impl Source, kind: u8) -> Result<Stream> {
    let mut stream = Stream::new();
    for _ in 0..read_count(source, 2)? {
        let master = read_string(source)?;
        let master: [u8; ID_BYTES] =
            master.try_into().map_err(|_| RdbError::Corrupt("a stream node's key is not an identifier"))?;
        if !stream.adopt_node(StreamId::from_bytes(master), read_string(source)?) {
            return Err(RdbError::Corrupt("a malformed stream node"));
        }
    }
    if read_length(source)? != stream.len() {
        return Err(RdbError::Corrupt("the length of a stream differs from its entries"));
    }
    stream.last_id = read_id(source)?;
    if kind != kind::STREAM_LISTPACKS {
        stream.first_id = read_id(source)?;
        stream.max_deleted_id = read_id(source)?;
        stream.entries_added = read_length(source)?;
    } else {
        stream.derive_first_id();
        stream.entries_added = stream.len();
    }
    for _ in 0..read_count(source, 4)? {
        let name = read_string(source)?;
        let last_id = read_id(source)?;
        let entries_read = if kind != kind::STREAM_LISTPACKS {
            Some(read_length(source)?).filter(|read| *read != UNKNOWN)
        } else {
            stream.entries_up_to(last_id)
        };
        let group = read_group(source, Group::new(last_id, entries_read), kind)?;
        if !stream.create_group(&name, group) {
            return Err(RdbError::Corrupt("a consumer group occurs twice"));
        }
    }
    if stream.is_consistent() {
        Ok(stream)
    } else {
        Err(RdbError::Corrupt("the nodes of a stream are out of order"))
    }
}

fn read_group(source: &mut impl Source, mut group: Group, kind: u8) -> Result<Group> {
    for _ in 0..read_count(source, ID_BYTES as u64 + 9)? {
        let id = StreamId::from_bytes(source.array()?);
        let delivered_ms = u64::from_le_bytes(source.array()?);
        let deliveries = read_length(source)?;
        if !group.load_pending(id, delivered_ms, deliveries) {
            return Err(RdbError::Corrupt("a pending entry occurs twice"));
        }
    }
    for _ in 0..read_count(source, 10)? {
        let name = read_string(source)?;
        let seen_ms = u64::from_le_bytes(source.array()?);
        if kind == kind::STREAM_LISTPACKS_3 {
            // When it last got something.
            source.array::<8>()?;
        }
        if !group.create_consumer(&name, seen_ms) {
            return Err(RdbError::Corrupt("a consumer occurs twice"));
        }
        let name = group.see_consumer(&name, seen_ms);
        for _ in 0..read_count(source, ID_BYTES as u64)? {
            let id = StreamId::from_bytes(source.array()?);
            if !group.load_owner(&name, id) {
                return Err(RdbError::Corrupt("a consumer has an entry that is not pending"));
            }
        }
    }
    if group.is_consistent() {
        Ok(group)
    } else {
        Err(RdbError::Corrupt("a pending entry without a consumer"))
    }
}
