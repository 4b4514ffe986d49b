//! The proof that source and target have the same, while the source is written to.
//!
//! Every key of the source is compared, and every key of the target is looked for in the source. A comparison reads the source, waits until the target has everything
//! that the source had then, and reads the target. A key that changes between both reads seems to differ: it is a suspect. Suspects, and all keys that the source has
//! changed since the proof began, are compared again until they are few; the last ones while the source's writers are paused. So at the end each key was equal when it
//! was last compared, and has not changed since.

use super::databases;
use super::replica::{DbKey, Replica};
use super::same::same;
use crate::kv::client::{Connection, Reply};
use crate::kv::import::{Ended, faulty, stopped};
use crate::output;
use std::collections::HashSet;
use std::time::{Duration, Instant};
use terrace_kv::rdb::payload;

/// Keys that are read together.
const TOGETHER: usize = 200;
/// Suspects that are left for the time in which the source's writers are paused.
const FEW: usize = 1000;
const ROUNDS_MAX: usize = 30;
/// How often it begins again, as whole databases changed.
const PROOFS_MAX: usize = 5;
/// How long the source's writers are paused at most.
const PAUSE: Duration = Duration::from_secs(10);
/// How often suspects are compared within the pause: an expired key may be deleted on one side first.
const LOOKS: usize = 5;
/// How near the target has to be before the proof begins, in bytes of the source's stream.
const NEAR: u64 = 1 << 20;

/// The value and time of expiry of a key.
type Read = (Option<Vec<u8>>, Reply);

/// Returns how many keys were compared.
pub fn prove(from: &mut Connection, to: &mut Connection, replica: &Replica) -> Result<u64, Ended> {
    let start = source_offset(from)?;
    while replica.behind(source_offset(from)?) > NEAR {
        replica.wait_for(start)?;
        std::thread::sleep(Duration::from_millis(20));
    }
    for _ in 0..PROOFS_MAX {
        if let Some(keys) = try_to_prove(from, to, replica)? {
            return Ok(keys);
        }
    }
    Err(stopped("the source changes whole databases, or too many keys, while both sides are compared".into()))
}

/// `None`: it has to begin again.
fn try_to_prove(from: &mut Connection, to: &mut Connection, replica: &Replica) -> Result<Option<u64>, Ended> {
    replica.take_changed();
    let mut suspects: HashSet<DbKey> = HashSet::new();
    let mut compared = 0;
    for (db, all) in databases(from)? {
        let before = compared;
        each_piece(from, db, |from, keys| {
            compared += keys.len() as u64;
            output::progress(&format!("comparing, key of database {db}:"), compared - before, all);
            suspects.extend(differing(from, to, replica, keys)?);
            Ok(())
        })?;
    }
    for (db, all) in databases(to)? {
        let mut seen = 0;
        each_piece(to, db, |_, keys| {
            seen += keys.len() as u64;
            output::progress(&format!("looking for keys of database {db} in the source:"), seen, all);
            suspects.extend(missing(from, keys)?);
            Ok(())
        })?;
    }
    for _ in 0..ROUNDS_MAX {
        let changed = replica.take_changed();
        if changed.everything {
            return Ok(None);
        }
        suspects.extend(changed.keys);
        if suspects.len() <= FEW {
            break;
        }
        suspects = differing_of(from, to, replica, suspects)?;
    }
    output::end_progress();
    finish(from, to, replica, suspects).map(|is_proved| is_proved.then_some(compared))
}

/// Compares the last suspects while the writers of the source are paused.
fn finish(
    from: &mut Connection,
    to: &mut Connection,
    replica: &Replica,
    mut suspects: HashSet<DbKey>,
) -> Result<bool, Ended> {
    let pause_ms = PAUSE.as_millis().to_string();
    from.ask(&[b"CLIENT", b"PAUSE", pause_ms.as_bytes(), b"WRITE"]).map_err(|error| {
        faulty(format!("{error} (the source's writers are paused for the last comparison)"))
    })?;
    let paused = Instant::now();
    let result = compare_paused(from, to, replica, &mut suspects);
    let unpaused = from.ask_words("CLIENT UNPAUSE").map_err(stopped);
    let is_whole = result?;
    unpaused?;
    if !is_whole {
        return Ok(false);
    }
    if paused.elapsed() >= PAUSE {
        return Err(stopped(format!("{} keys could not be compared within {PAUSE:?}", suspects.len())));
    }
    if suspects.is_empty() {
        return Ok(true);
    }
    let mut names: Vec<String> = suspects
        .iter()
        .map(|(db, key)| format!("{:?} of database {db}", String::from_utf8_lossy(key)))
        .collect();
    names.sort();
    names.truncate(10);
    Err(faulty(format!("{} keys differ: {}", suspects.len(), names.join(", "))))
}

fn compare_paused(
    from: &mut Connection,
    to: &mut Connection,
    replica: &Replica,
    suspects: &mut HashSet<DbKey>,
) -> Result<bool, Ended> {
    replica.wait_for(source_offset(from)?)?;
    let changed = replica.take_changed();
    if changed.everything {
        return Ok(false);
    }
    suspects.extend(changed.keys);
    for _ in 0..LOOKS {
        if suspects.is_empty() {
            break;
        }
        *suspects = differing_of(from, to, replica, std::mem::take(suspects))?;
    }
    Ok(true)
}

/// The offset of the source's stream.
fn source_offset(from: &mut Connection) -> Result<u64, Ended> {
    let info = from.info().map_err(stopped)?;
    let offset = info.get("master_repl_offset").and_then(|text| text.trim().parse().ok());
    offset.ok_or_else(|| stopped(format!("{}: INFO has no master_repl_offset", from.address)))
}

/// Walks over the keys of a database.
fn each_piece(
    connection: &mut Connection,
    db: u16,
    mut visit: impl FnMut(&mut Connection, Vec<DbKey>) -> Result<(), Ended>,
) -> Result<(), Ended> {
    let mut cursor = b"0".to_vec();
    loop {
        connection.ask(&[b"SELECT", db.to_string().as_bytes()]).map_err(stopped)?;
        let count = TOGETHER.to_string();
        let reply = connection.ask(&[b"SCAN", &cursor, b"COUNT", count.as_bytes()]).map_err(stopped)?;
        let Reply::Array(parts) = reply else { return Err(stopped("SCAN is answered wrongly".into())) };
        let [next, Reply::Array(keys)] = &parts[..] else {
            return Err(stopped("SCAN is answered wrongly".into()));
        };
        let keys = keys.iter().filter_map(Reply::bytes).map(|key| (db, key.to_vec())).collect();
        visit(connection, keys)?;
        cursor = next.bytes().unwrap_or(b"0").to_vec();
        if cursor == b"0" {
            return Ok(());
        }
    }
}

/// Sends `commands` for each key, in its database, and returns the replies to them.
fn ask_each(
    connection: &mut Connection,
    keys: &[DbKey],
    commands: &[&str],
) -> Result<Vec<Vec<Reply>>, Ended> {
    let mut db = None;
    let mut selects = Vec::new();
    for (of, key) in keys {
        let select = db.replace(*of) != Some(*of);
        if select {
            connection.send(&[b"SELECT", of.to_string().as_bytes()]).map_err(stopped)?;
        }
        selects.push(select);
        for command in commands {
            connection.send(&[command.as_bytes(), key]).map_err(stopped)?;
        }
    }
    connection.flush().map_err(stopped)?;
    let mut replies = Vec::with_capacity(keys.len());
    for select in selects {
        if select {
            connection.reply().map_err(stopped)?;
        }
        let of_key = commands.iter().map(|_| connection.reply());
        replies.push(of_key.collect::<Result<_, _>>().map_err(stopped)?);
    }
    Ok(replies)
}

fn read(connection: &mut Connection, keys: &[DbKey]) -> Result<Vec<Read>, Ended> {
    let replies = ask_each(connection, keys, &["DUMP", "PEXPIRETIME"])?;
    let address = connection.address.to_string();
    let take = |mut replies: Vec<Reply>| {
        let expiry = replies.pop().unwrap_or(Reply::Null);
        match replies.pop() {
            Some(Reply::Bulk(value)) => Ok((Some(value), expiry)),
            Some(Reply::Null) => Ok((None, expiry)),
            Some(Reply::Error(error)) => Err(faulty(format!("{address}: DUMP: {error}"))),
            other => Err(stopped(format!("{address}: DUMP is answered with {other:?}"))),
        }
    };
    replies.into_iter().map(take).collect()
}

fn is_same(one: &Read, other: &Read) -> bool {
    let values = match (&one.0, &other.0) {
        (None, None) => return true,
        (Some(one), Some(other)) => {
            one == other || {
                let decoded =
                    |bytes: &[u8]| payload::open(bytes).and_then(|value| payload::decode(value).ok());
                matches!((decoded(one), decoded(other)), (Some(one), Some(other)) if same(&one, &other))
            }
        }
        _ => false,
    };
    // Servers before 7.0 do not know the command.
    let is_unknown = matches!(one.1, Reply::Error(_)) || matches!(other.1, Reply::Error(_));
    values && (is_unknown || one.1 == other.1)
}

/// Those of `keys` that differ.
fn differing(
    from: &mut Connection,
    to: &mut Connection,
    replica: &Replica,
    mut keys: Vec<DbKey>,
) -> Result<Vec<DbKey>, Ended> {
    if keys.is_empty() {
        return Ok(keys);
    }
    let ours = read(from, &keys)?;
    replica.wait_for(source_offset(from)?)?;
    let theirs = read(to, &keys)?;
    let mut pairs = ours.iter().zip(&theirs);
    keys.retain(|_| pairs.next().is_some_and(|(one, other)| !is_same(one, other)));
    Ok(keys)
}

fn differing_of(
    from: &mut Connection,
    to: &mut Connection,
    replica: &Replica,
    keys: HashSet<DbKey>,
) -> Result<HashSet<DbKey>, Ended> {
    let mut keys: Vec<DbKey> = keys.into_iter().collect();
    keys.sort();
    let mut left = HashSet::new();
    for piece in keys.chunks(TOGETHER) {
        left.extend(differing(from, to, replica, piece.to_vec())?);
    }
    Ok(left)
}

/// Keys of the target that the source does not have.
fn missing(from: &mut Connection, mut keys: Vec<DbKey>) -> Result<Vec<DbKey>, Ended> {
    let replies = ask_each(from, &keys, &["EXISTS"])?;
    let mut replies = replies.iter();
    keys.retain(|_| replies.next().is_some_and(|reply| reply[..] != [Reply::Int(1)]));
    Ok(keys)
}
