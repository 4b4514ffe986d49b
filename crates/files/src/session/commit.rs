//! The end of a group of files: the commit makes all of them visible, or none; the abort removes what is kept.
//!
//! A commit has steps, each with as many requests to the store in flight as there are workers; the last worker of a step begins the next one.
//!
//! 1. *Look*: what is each file now? What the commit will replace is copied to flash; a file that must not exist and does ends the commit.
//! 2. *Record*: what step 1 found is on flash. From now on what is visible can be taken back, by a successor of this daemon, too.
//! 3. *Show*: each file is put from flash, or its upload is completed.
//! 4. If one failed, *take back*: files that were not there are deleted, others are put as they were. If that fails, too, the group stays, and
//!    is taken back later; the client is told so.
//!
//! Readers see the files of a commit appear one after the other.

use super::client::{Client, Pending};
use super::serve::Decoded;
use crate::catalogue::Fault;
use crate::groups::{Before, Kept, Member, Name};
use crate::planted;
use crate::read::{Files, Outcome, Reply};
use crate::wire::{Fields, Malformed, Op, Put, put_fault, status as code};
use crate::write::PART_BYTES;
use hashbrown::HashMap;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

type Job = Box<dyn FnOnce(&Files) + Send>;
type Record = HashMap<u32, Before>;

/// How a group is called in the protocol.
pub fn name_of(text: &str) -> Result<Name, Malformed> {
    Name::from_str_radix(text, 16).map_err(|_| Malformed("it is not the name of a group of files"))
}

pub fn group(files: &Files, client: &mut Client, request: u64, op: Op, fields: &mut Fields<'_>) -> Decoded {
    let name = match op {
        Op::BeginGroup => {
            let random = &files.world.random;
            u128::from(random.next_u64()) << 64 | u128::from(random.next_u64())
        }
        _ => name_of(fields.text()?)?,
    };
    fields.end()?;
    let id = client.id;
    let answered = match op {
        Op::BeginGroup => files.groups.begin(name, id).map(|()| {
            Put::new(&mut client.output, request, code::OK).text(&format!("{name:032x}"));
        }),
        Op::ResumeGroup => files.groups.resume(name, id).map(|members| {
            Put::new(&mut client.output, request, code::OK).u64(members as u64);
        }),
        // An abort takes the files that are being written along: they will not be kept.
        Op::CommitGroup if client.writers.values().any(|writer| writer.group == Some(name)) => {
            Err(Fault::Invalid("files of the group are still being written".into()))
        }
        _ => files.groups.end(name, Some(id)).map(|(members, record)| {
            client.pending.insert(request, Pending::Job);
            let to = Some((id, request));
            files.submit(match op {
                Op::CommitGroup => commit(name, members, record, to),
                _ => abort(name, members, record, to),
            });
        }),
    };
    if let Err(fault) = answered {
        put_fault(&mut client.output, request, &fault);
    }
    Ok(())
}

/// What all steps of a group's end know.
struct End {
    name: Name,
    members: Vec<Member>,
    /// The client and its request, if one waits.
    to: Option<(u64, u64)>,
    record: Mutex<Record>,
    /// Files that may be visible, by number.
    shown: Mutex<Vec<u32>>,
    fault: Mutex<Option<Fault>>,
    left: AtomicUsize,
    /// A commit or an abort of it had begun before.
    again: bool,
}

impl End {
    fn new(name: Name, members: Vec<Member>, record: Option<Record>, to: Option<(u64, u64)>) -> Arc<End> {
        let (shown, fault, left) = (Mutex::default(), Mutex::default(), AtomicUsize::new(0));
        let (again, record) = (record.is_some(), Mutex::new(record.unwrap_or_default()));
        Arc::new(End { name, members, to, record, shown, fault, left, again })
    }

    fn fail(&self, fault: Fault, path: &str) {
        self.fault.lock().get_or_insert(match fault {
            Fault::Unavailable(why) => Fault::Unavailable(format!("{path}: {why}")),
            Fault::Refused(why) => Fault::Refused(format!("{path}: {why}")),
            Fault::Busy(why) => Fault::Busy(format!("{path}: {why}")),
            Fault::Invalid(why) => Fault::Invalid(format!("{path}: {why}")),
            fault @ (Fault::Exists | Fault::Absent | Fault::Changed) => fault,
        });
    }
    fn has_failed(&self) -> bool {
        self.fault.lock().is_some()
    }

    /// Does `one` for each member, several at a time, and then `next`.
    fn each(self: Arc<End>, files: &Files, one: fn(&End, &Files, &Member), next: fn(Arc<End>, &Files)) {
        if self.members.is_empty() {
            return next(self, files);
        }
        self.left.store(self.members.len(), Ordering::SeqCst);
        for at in 0..self.members.len() {
            let end = self.clone();
            files.submit(Box::new(move |files| {
                one(&end, files, &end.members[at]);
                if end.left.fetch_sub(1, Ordering::SeqCst) == 1 {
                    next(end, files);
                }
            }));
        }
    }

    fn answer(&self, files: &Files, result: Result<(), Fault>) {
        let Some((client, request)) = self.to else { return };
        let mut frames = Vec::new();
        match result {
            Ok(()) => drop(Put::new(&mut frames, request, code::OK).u64(self.members.len() as u64)),
            Err(fault) => put_fault(&mut frames, request, &fault),
        }
        files.reply(Reply { client, request, outcome: Outcome::Frames(frames) });
    }
}

fn commit(name: Name, members: Vec<Member>, record: Option<Record>, to: Option<(u64, u64)>) -> Job {
    Box::new(move |files| {
        let end = End::new(name, members, record, to);
        // If the commit had begun before, what it replaces is known, and the present file may be its own.
        match end.again {
            true => end.each(files, show, shown),
            false => end.each(files, look, looked),
        }
    })
}

/// Step 1.
fn look(end: &End, files: &Files, member: &Member) {
    if end.has_failed() {
        return;
    }
    let before = files.store.head(&member.path).map(Some).or_else(|fault| match fault {
        Fault::Absent => Ok(None),
        fault => Err(fault),
    });
    let before = before.and_then(|meta| match meta {
        None => Ok(Before::Absent),
        Some(_) if member.creates => Err(Fault::Exists),
        Some(meta) if meta.length > PART_BYTES as u64 => Err(Fault::Invalid(format!(
            "it would replace a file of more than {PART_BYTES} bytes, which cannot be taken back: delete it first"
        ))),
        Some(meta) => {
            let _room = files.bodies.take(meta.length);
            let (found, bytes) = files.store.start(&member.path, meta.length.max(1))?;
            match found.length == bytes.len() as u64 {
                true => files.groups.keep_old(end.name, member, bytes).map(|()| Before::There),
                false => Err(Fault::Changed),
            }
        }
    });
    match before {
        Ok(before) => drop(end.record.lock().insert(member.number, before)),
        Err(fault) => end.fail(fault, &member.path),
    }
}

/// Step 2.
fn looked(end: Arc<End>, files: &Files) {
    if !end.has_failed() {
        let record = end.record.lock().clone();
        if let Err(fault) = files.groups.record(end.name, record) {
            end.fail(fault, "the record of the commit");
        }
    }
    match end.has_failed() {
        // Nothing is visible.
        true => end.each(files, drop_upload, gone),
        false => end.each(files, show, shown),
    }
}

/// Step 3.
fn show(end: &End, files: &Files, member: &Member) {
    if end.has_failed() {
        return;
    }
    let room = files.bodies.take(member.bytes);
    let shown = files.groups.content(end.name, member).and_then(|kept| {
        // Even a request that fails may have made it visible.
        end.shown.lock().push(member.number);
        // An earlier attempt may have made the file visible.
        let creates = member.creates && !end.again;
        match kept {
            Kept::Whole(body) => files.put(&member.path, body, creates),
            Kept::Upload(upload, parts) => {
                let completed = files.store.complete(&upload, &parts, creates);
                files.changed(&member.path);
                completed.map(|version| version.0.into())
            }
        }
    });
    drop(room);
    if let Err(fault) = shown {
        if fault == Fault::Exists {
            end.shown.lock().retain(|number| *number != member.number);
        }
        end.fail(fault, &member.path);
    }
}

fn shown(end: Arc<End>, files: &Files) {
    if end.has_failed() && planted::GROUP_HALF_COMMITTED.on() {
        return gone(end, files);
    }
    if end.has_failed() {
        return end.each(files, take_back, taken_back);
    }
    files.groups.ended(end.name);
    end.answer(files, Ok(()));
}

/// Step 4. A file that another writer has made meanwhile is taken back, too: the store cannot be asked whose it is.
fn take_back(end: &End, files: &Files, member: &Member) {
    let before = end.record.lock().get(&member.number).copied();
    if !end.shown.lock().contains(&member.number) {
        return drop_upload(end, files, member);
    }
    let result = match before {
        None => Ok(()),
        Some(Before::Absent) => {
            let deleted = files.store.delete(&member.path);
            files.changed(&member.path);
            deleted
        }
        Some(Before::There) => {
            let old = files.groups.old(end.name, member);
            old.and_then(|old| files.put(&member.path, old, false)).map(drop)
        }
    };
    drop_upload(end, files, member);
    match result {
        Ok(()) => end.shown.lock().retain(|number| *number != member.number),
        Err(fault) => end.fail(fault, &member.path),
    }
}

fn taken_back(end: Arc<End>, files: &Files) {
    let left = end.shown.lock().len();
    let fault = end.fault.lock().clone();
    match (left, fault) {
        (0, None) => {
            files.groups.ended(end.name);
            end.answer(files, Ok(()));
        }
        (0, Some(fault)) => {
            files.groups.ended(end.name);
            end.answer(files, Err(fault));
        }
        (left, fault) => {
            files.groups.not_ended(end.name, files.world.clock.now());
            let why = fault.map_or_else(String::new, |fault| fault.to_string());
            let text = format!("{why}; {left} files may be visible until they can be taken back");
            end.answer(files, Err(Fault::Unavailable(text)));
        }
    }
}

/// What an upload that is not completed has at the store.
fn drop_upload(end: &End, files: &Files, member: &Member) {
    if member.bytes > 0 {
        return; // It is kept whole.
    }
    if let Ok(Kept::Upload(upload, _)) = files.groups.content(end.name, member) {
        files.store.abort(&upload);
    }
}

fn gone(end: Arc<End>, files: &Files) {
    files.groups.ended(end.name);
    let fault = end.fault.lock().clone();
    end.answer(files, fault.map_or(Ok(()), Err));
}

/// Removes the group. If its commit had begun, what is visible is taken back.
pub fn abort(name: Name, members: Vec<Member>, record: Option<Record>, to: Option<(u64, u64)>) -> Job {
    Box::new(move |files| {
        let end = End::new(name, members, record, to);
        if !end.again {
            return end.each(files, drop_upload, gone);
        }
        *end.shown.lock() = end.members.iter().map(|member| member.number).collect();
        end.each(files, take_back, taken_back)
    })
}
