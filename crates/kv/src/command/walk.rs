//! What a walk of `SCAN`, `KEYS` or `RANDOMKEY` over storage and memory has found. `dispatch/scan.rs` makes the walk.

use super::Ctx;
use crate::rdb::kind;
use crate::storage::{Key, Position};
use crate::value::large::{LARGE_LIST, LARGE_SET, LARGE_ZSET};
use std::collections::HashSet;

/// What a walk has found.
pub struct Walked {
    /// Names and types.
    pub keys: Vec<(Box<[u8]>, &'static str)>,
    /// The cursor of the next piece, 0 at the end.
    pub cursor: u64,
}

fn type_name(type_byte: u8) -> &'static str {
    match type_byte {
        kind::STRING => "string",
        kind::LIST | kind::LIST_ZIPLIST | kind::LIST_QUICKLIST | kind::LIST_QUICKLIST_2 | LARGE_LIST => {
            "list"
        }
        kind::SET | kind::SET_INTSET | kind::SET_LISTPACK | LARGE_SET => "set",
        kind::ZSET | kind::ZSET_2 | kind::ZSET_ZIPLIST | kind::ZSET_LISTPACK | LARGE_ZSET => "zset",
        kind::STREAM_LISTPACKS | kind::STREAM_LISTPACKS_2 | kind::STREAM_LISTPACKS_3 => "stream",
        _ => "hash",
    }
}

/// The result of the walk that was made for a client's command, if a storage tier is attached.
pub fn walked(ctx: &mut Ctx<'_>) -> Option<Walked> {
    let tier = ctx.server.tier.as_mut()?;
    let scan = tier.end_scan(ctx.client.id)?;
    let db = ctx.dbs.all.get(usize::from(scan.db))?;
    let now_ms = db.now_ms;
    let mut keys: Vec<(Box<[u8]>, &'static str)> = Vec::new();
    let last = scan.next.unwrap_or(Position(u64::MAX));
    let is_in = |name: &[u8]| (scan.from..last).contains(&Position::of(name));
    let resident = |name: &[u8]| {
        let (value, at_ms) = db.resident(name)?;
        Some(at_ms.is_none_or(|at_ms| at_ms > now_ms).then(|| value.type_name()))
    };
    // What storage has found of these is older than what memory knew when it was asked.
    let is_whole = scan.losses == tier.losses();
    let held: HashSet<&[u8]> = scan.held.iter().map(|key| key.name.as_bytes()).collect();
    let was_known = |name: &[u8]| is_whole && (scan.was_emptying || held.contains(name));
    let mut stored: HashSet<&[u8]> = HashSet::new();
    for found in &scan.found {
        // Storage may find a key twice.
        if !stored.insert(&found.name) {
            continue;
        }
        let kind = match resident(&found.name) {
            Some(kind) => kind,
            None if tier.queue.holds(&Key::new(scan.db, &found.name)) || was_known(&found.name) => None,
            None => {
                let lives = found.expires_ms.is_none_or(|at_ms| at_ms > now_ms.max(0) as u64);
                lives.then(|| type_name(found.type_byte))
            }
        };
        keys.extend(kind.map(|kind| (found.name.clone(), kind)));
    }
    let in_range = scan.held.iter().filter(|key| scan.shown.is_none() && is_in(&key.name));
    let shown = in_range.chain(scan.shown.iter().flatten());
    for key in shown.filter(|key| !stored.contains(&*key.name)) {
        keys.extend(resident(&key.name).flatten().map(|kind| (key.name.as_bytes().into(), kind)));
    }
    Some(Walked { keys, cursor: scan.next.map_or(0, |next| next.0) })
}
