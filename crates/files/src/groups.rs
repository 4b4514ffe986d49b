//! Groups of files that are written together: visible all at once, as far as a store can do that, or not at all.
//!
//! A client begins a group and writes files into it. The close of a file returns when the file is *kept*: on flash (`spool`), or, if it is longer
//! than one part, at the store as an upload that is not completed. Nothing of it is visible. A commit then makes all of them visible, several at a
//! time; if one fails, those that are visible already are taken back. How that is carried out is `session::commit`'s.
//!
//! States of a group. *Open*: files come. *Ending*: it is committed or aborted, and ends. Before the first file is made visible a *record* of
//! what the commit may have to take back is on flash, too. From any moment on, what is on flash tells what to do:
//!
//! | on flash | after the daemon has ended |
//! | --- | --- |
//! | files | the client may resume the group by its name, within [`ORPHAN_TIME`]; then the group is aborted: its files are removed |
//! | files and the record | the same; an abort takes back what is visible |
//!
//! A client whose connection ends while the daemon lives has aborted its open groups. The daemon's own end aborts nothing.
//!
//! Limits: groups of a client, files of a group, bytes on flash.
//!
//! Not here: requests to the store.

mod spool;

use crate::catalogue::Fault;
use hashbrown::HashMap;
use parking_lot::Mutex;
use spool::{Kind, Spool};
use std::path::Path;
use std::sync::Arc;
use terrace_io::clock::Nanos;
use terrace_io::store::{Bytes, Upload, UploadPart};

/// How long a group whose client is gone, with the daemon that it wrote to, waits for it, in nanoseconds.
pub const ORPHAN_TIME: Nanos = 600_000_000_000;
/// Groups of one client, and files of one group.
pub const GROUPS_MAX: usize = 16;
pub const MEMBERS_MAX: usize = 100_000;

pub type Name = u128;

/// A file of a group, as it is kept.
#[derive(Clone, Debug)]
pub struct Member {
    pub number: u32,
    pub path: Arc<str>,
    /// The commit fails if the file exists.
    pub creates: bool,
    /// On flash, in memory while it is put.
    pub bytes: u64,
}

/// The content of a file that is kept.
#[derive(Debug)]
pub enum Kept {
    Whole(Bytes),
    Upload(Upload, Vec<UploadPart>),
}

/// What a file was before the commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Before {
    Absent,
    /// Its bytes are kept.
    There,
}

struct Group {
    client: Option<u64>,
    /// When its client was gone.
    orphaned: Nanos,
    members: Vec<Member>,
    next: u32,
    ending: bool,
    /// By a member's number.
    record: Option<HashMap<u32, Before>>,
}

pub struct Groups {
    /// Or why there is none.
    spool: Result<Spool, String>,
    groups: Mutex<HashMap<Name, Group>>,
    orphan_time: Nanos,
}

fn unknown() -> Fault {
    Fault::Invalid("there is no such group of files: it was committed or aborted".into())
}

impl Groups {
    /// Without flash there are no groups.
    pub fn none() -> Groups {
        let why = "files are written together on flash only: start the daemon with --flash".to_string();
        Groups { spool: Err(why), groups: Mutex::default(), orphan_time: ORPHAN_TIME }
    }

    /// Finds the groups of the last run, which wait for their clients.
    pub fn open(directory: &Path, bytes_max: u64, orphan_time: Nanos, now: Nanos) -> Groups {
        let mut groups: HashMap<Name, Group> = HashMap::new();
        let spool = Spool::open(directory, bytes_max).and_then(|spool| {
            for (name, found) in spool.find()? {
                let group = groups.entry(name).or_insert_with(|| Group {
                    client: None,
                    orphaned: now,
                    members: Vec::new(),
                    next: 0,
                    ending: false,
                    record: None,
                });
                match found {
                    spool::SpoolEntry::Member(member) => {
                        group.next = group.next.max(member.number + 1);
                        group.members.push(member);
                    }
                    spool::SpoolEntry::Record(record) => group.record = Some(record),
                }
            }
            Ok(spool)
        });
        // Of two closes of one path the later one is the file's.
        for group in groups.values_mut() {
            group.members.sort_unstable_by_key(|member| member.number);
        }
        Groups { spool, groups: Mutex::new(groups), orphan_time }
    }

    fn spool(&self) -> Result<&Spool, Fault> {
        self.spool.as_ref().map_err(|why| Fault::Invalid(why.clone()))
    }

    pub fn begin(&self, name: Name, client: u64) -> Result<(), Fault> {
        self.spool()?;
        let mut groups = self.groups.lock();
        if groups.values().filter(|group| group.client == Some(client)).count() >= GROUPS_MAX {
            return Err(Fault::Busy(format!(
                "this client has {GROUPS_MAX} groups of files, which is the limit"
            )));
        }
        let group = Group {
            client: Some(client),
            orphaned: 0,
            members: Vec::new(),
            next: 0,
            ending: false,
            record: None,
        };
        groups.insert(name, group);
        Ok(())
    }

    /// The client has it from now on. The number of its files.
    pub fn resume(&self, name: Name, client: u64) -> Result<usize, Fault> {
        let mut groups = self.groups.lock();
        let group = groups.get_mut(&name).filter(|group| !group.ending).ok_or_else(unknown)?;
        match group.client {
            Some(other) if other != client => {
                Err(Fault::Busy("another client has this group of files".into()))
            }
            _ => {
                group.client = Some(client);
                Ok(group.members.len())
            }
        }
    }

    /// Whether the client may write into it.
    pub fn check(&self, name: Name, client: u64) -> Result<(), Fault> {
        let groups = self.groups.lock();
        let group = groups.get(&name).filter(|group| !group.ending && group.client == Some(client));
        match group {
            None => Err(unknown()),
            Some(group) if group.record.is_some() => {
                Err(Fault::Invalid("this group's commit had begun: commit it again, or abort it".into()))
            }
            Some(group) if group.members.len() >= MEMBERS_MAX => {
                Err(Fault::Busy(format!("the group has {MEMBERS_MAX} files, which is the limit")))
            }
            Some(_) => Ok(()),
        }
    }

    /// Keeps a file that was written. On failure its content is returned.
    pub fn keep(&self, name: Name, path: &Arc<str>, creates: bool, kept: Kept) -> Result<(), (Fault, Kept)> {
        let number = {
            let mut groups = self.groups.lock();
            let Some(group) = groups.get_mut(&name).filter(|group| !group.ending) else {
                return Err((unknown(), kept));
            };
            group.next += 1;
            group.next - 1
        };
        let bytes = if let Kept::Whole(body) = &kept { body.len() as u64 } else { 0 };
        let member = Member { number, path: path.clone(), creates, bytes };
        let kept_on_flash = self.spool().and_then(|spool| spool.write(name, Kind::Member, &member, &kept));
        if let Err(fault) = kept_on_flash {
            return Err((fault, kept));
        }
        let replaced = {
            let mut groups = self.groups.lock();
            match groups.get_mut(&name).filter(|group| !group.ending) {
                None => Err(()),
                Some(group) => {
                    let same = group.members.iter().position(|other| other.path == member.path);
                    let before = same.map(|at| group.members.swap_remove(at));
                    group.members.push(member);
                    Ok(before)
                }
            }
        };
        match replaced {
            // The group has ended meanwhile.
            Err(()) => {
                self.remove(name, Kind::Member, number);
                Err((unknown(), kept))
            }
            Ok(before) => {
                if let Some(before) = before {
                    self.remove(name, Kind::Member, before.number);
                }
                Ok(())
            }
        }
    }

    fn remove(&self, name: Name, kind: Kind, number: u32) {
        if let Ok(spool) = &self.spool {
            spool.remove(name, kind, number);
        }
    }

    /// Begins its end: its files, and the record of a commit that was begun before. `client`: None takes a group that no client has.
    pub fn end(
        &self,
        name: Name,
        client: Option<u64>,
    ) -> Result<(Vec<Member>, Option<HashMap<u32, Before>>), Fault> {
        let mut groups = self.groups.lock();
        let group = groups.get_mut(&name).filter(|group| !group.ending && group.client == client);
        let group = group.ok_or_else(unknown)?;
        group.ending = true;
        Ok((group.members.clone(), group.record.clone()))
    }

    pub fn content(&self, name: Name, member: &Member) -> Result<Kept, Fault> {
        self.spool()?.read(name, Kind::Member, member.number)
    }

    /// Keeps what the commit replaces.
    pub fn keep_old(&self, name: Name, member: &Member, bytes: Bytes) -> Result<(), Fault> {
        self.spool()?.write(name, Kind::Old, member, &Kept::Whole(bytes))
    }

    pub fn old(&self, name: Name, member: &Member) -> Result<Bytes, Fault> {
        match self.spool()?.read(name, Kind::Old, member.number)? {
            Kept::Whole(bytes) => Ok(bytes),
            Kept::Upload(..) => Err(Fault::Refused("what was replaced is not on flash any more".into())),
        }
    }

    /// From now on an abort takes back what is visible.
    pub fn record(&self, name: Name, record: HashMap<u32, Before>) -> Result<(), Fault> {
        self.spool()?.write_record(name, &record)?;
        if let Some(group) = self.groups.lock().get_mut(&name) {
            group.record = Some(record);
        }
        Ok(())
    }

    /// Nothing of it is to be done any more.
    pub fn ended(&self, name: Name) {
        let Some(group) = self.groups.lock().remove(&name) else { return };
        let Ok(spool) = &self.spool else { return };
        // The record last: as long as it is there, what is visible can be taken back.
        for member in &group.members {
            spool.remove(name, Kind::Member, member.number);
            spool.remove(name, Kind::Old, member.number);
        }
        spool.remove(name, Kind::Record, 0);
    }

    /// Its end failed: it is tried again when it has been without a client for its time.
    pub fn not_ended(&self, name: Name, now: Nanos) {
        if let Some(group) = self.groups.lock().get_mut(&name) {
            (group.ending, group.client, group.orphaned) = (false, None, now);
        }
    }

    /// The open groups of a client that is gone.
    pub fn of_client(&self, client: u64) -> Vec<Name> {
        let groups = self.groups.lock();
        groups.iter().filter(|(_, group)| group.client == Some(client)).map(|(name, _)| *name).collect()
    }

    /// Groups that have waited for their clients long enough.
    pub fn overdue(&self, now: Nanos) -> Vec<Name> {
        let groups = self.groups.lock();
        let is_over = |group: &Group| {
            group.client.is_none() && !group.ending && now.saturating_sub(group.orphaned) >= self.orphan_time
        };
        groups.iter().filter(|(_, group)| is_over(group)).map(|(name, _)| *name).collect()
    }

    /// Groups, and bytes on flash.
    pub fn sizes(&self) -> (usize, u64) {
        (self.groups.lock().len(), self.spool.as_ref().map_or(0, Spool::bytes))
    }

    /// Why there are none, if so.
    pub fn off(&self) -> Option<&str> {
        self.spool.as_ref().err().map(String::as_str)
    }
}

#[cfg(test)]
mod tests;
