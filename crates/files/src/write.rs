//! Writing a file through the daemon. Synchronously: `commit` returns when the store has it all. In a group of files (`groups`), it returns
//! when the file is kept, and the group's commit makes it visible. Pure: requests of the client and ends of uploads go in, [`Action`]s come
//! out.
//!
//! A file that ends within its first part is put by one request. Each full part of a longer one is uploaded while the client goes on writing,
//! [`IN_FLIGHT_MAX`] at a time. A write is acknowledged when no part waits to be sent, so a client that is faster than the store is slowed.
//! Nothing is visible before the commit. After a failure the upload is aborted, and what the client does next fails with the same reason.
//!
//! Not here: the requests themselves (`session`), the room that unsent bytes take (`Bodies`).

use crate::catalogue::Fault;
use crate::groups::{Kept, Name};
use std::collections::VecDeque;
use std::sync::Arc;
use terrace_io::store::{Bytes, PARTS_MAX, Upload, UploadPart};

/// Bytes of a part.
pub const PART_BYTES: usize = 8 << 20;
/// Parts of one file that are uploaded at a time.
pub const IN_FLIGHT_MAX: usize = 4;

/// The end of something that was asked for.
#[derive(Debug)]
pub enum Step {
    Begun(Result<Upload, Fault>),
    Sent(Result<UploadPart, Fault>),
    /// The commit: the file's version.
    Ended(Result<Arc<str>, Fault>),
}

#[derive(Debug)]
pub enum Action {
    /// Put the whole file. The room of its bytes is free when that has ended; so it is with parts.
    Put(Bytes),
    Begin,
    Send {
        upload: Upload,
        number: u32,
        offset: u64,
        body: Bytes,
    },
    Complete {
        upload: Upload,
        parts: Vec<UploadPart>,
    },
    /// Keep the whole file, or the parts that are uploaded, for the group's commit. The room of its bytes is free when that has ended.
    Keep(Kept),
    Abort(Upload),
    /// This many bytes that were not sent are not held any more.
    Free(u64),
    Answer {
        request: u64,
        result: Result<Option<Arc<str>>, Fault>,
    },
}

pub struct Writer {
    pub path: Arc<str>,
    /// It fails if the file exists.
    pub creates: bool,
    /// It is a file of this group.
    pub group: Option<Name>,
    part: Vec<u8>,
    offset: u64,
    number: u32,
    begins: bool,
    upload: Option<Upload>,
    unsent: VecDeque<(u32, u64, Bytes)>,
    in_flight: usize,
    sent: Vec<UploadPart>,
    failed: Option<Fault>,
    /// Writes to acknowledge.
    unanswered: VecDeque<u64>,
    commit: Option<u64>,
    /// Its last request has been made.
    ends: bool,
}

impl Writer {
    pub fn new(path: Arc<str>, creates: bool, group: Option<Name>) -> Writer {
        Writer {
            path,
            creates,
            group,
            part: Vec::new(),
            offset: 0,
            number: 0,
            begins: false,
            upload: None,
            unsent: VecDeque::new(),
            in_flight: 0,
            sent: Vec::new(),
            failed: None,
            unanswered: VecDeque::new(),
            commit: None,
            ends: false,
        }
    }

    /// Bytes that the client sent; the caller has taken room for them.
    pub fn write(&mut self, request: u64, mut bytes: &[u8]) -> Vec<Action> {
        let mut actions = Vec::new();
        if self.failed.is_some() || self.commit.is_some() {
            let fault = self.failed.clone().unwrap_or(Fault::Invalid("the file is being committed".into()));
            return vec![Action::Free(bytes.len() as u64), Action::Answer { request, result: Err(fault) }];
        }
        while self.part.len() + bytes.len() > PART_BYTES {
            let (now, later) = bytes.split_at(PART_BYTES - self.part.len());
            self.part.extend_from_slice(now);
            bytes = later;
            self.cut();
        }
        self.part.extend_from_slice(bytes);
        self.unanswered.push_back(request);
        if self.number as usize > PARTS_MAX {
            let most = PARTS_MAX * PART_BYTES;
            self.fail(Fault::Refused(format!("a file has at most {most} bytes")), &mut actions);
        }
        self.go_on(&mut actions);
        actions
    }

    fn cut(&mut self) {
        let body = Bytes::from(std::mem::take(&mut self.part));
        let len = body.len() as u64;
        self.unsent.push_back((self.number, self.offset, body));
        self.number += 1;
        self.offset += len;
    }

    /// The file is whole: puts it, completes its upload, or keeps it for its group.
    pub fn commit(&mut self, request: u64) -> Vec<Action> {
        let mut actions = Vec::new();
        if self.commit.is_some() {
            let result = Err(Fault::Invalid("the file is being committed".into()));
            return vec![Action::Answer { request, result }];
        }
        self.commit = Some(request);
        if self.failed.is_none() && self.number == 0 {
            self.ends = true;
            let body = std::mem::take(&mut self.part).into();
            actions.push(if self.group.is_some() {
                Action::Keep(Kept::Whole(body))
            } else {
                Action::Put(body)
            });
        } else if self.failed.is_none() && !self.part.is_empty() {
            self.cut();
        }
        self.go_on(&mut actions);
        actions
    }

    /// Something that was asked for has ended.
    pub fn step(&mut self, step: Step) -> Vec<Action> {
        let mut actions = Vec::new();
        match step {
            Step::Begun(Ok(upload)) if self.failed.is_some() => actions.push(Action::Abort(upload)),
            Step::Begun(Ok(upload)) => self.upload = Some(upload),
            Step::Begun(Err(fault)) => self.fail(fault, &mut actions),
            Step::Sent(result) => {
                self.in_flight -= 1;
                match result {
                    Ok(part) => self.sent.push(part),
                    Err(fault) => self.fail(fault, &mut actions),
                }
            }
            Step::Ended(result) => {
                if result.is_ok() {
                    self.upload = None;
                }
                match (self.commit, result) {
                    (Some(request), Ok(version)) => {
                        actions.push(Action::Answer { request, result: Ok(Some(version)) });
                    }
                    (_, Err(fault)) => self.fail(fault, &mut actions),
                    (None, Ok(_)) => {}
                }
            }
        }
        self.go_on(&mut actions);
        actions
    }

    /// False: it has failed and has told the client so.
    pub fn is_open(&self) -> bool {
        self.failed.is_none()
    }

    /// The client is gone or gives the file up. The writer is not used afterwards.
    pub fn abort(&mut self) -> Vec<Action> {
        let mut actions = Vec::new();
        self.fail(Fault::Invalid("the file was given up".into()), &mut actions);
        self.go_on(&mut actions);
        actions
    }

    fn fail(&mut self, fault: Fault, actions: &mut Vec<Action>) {
        if self.failed.is_some() {
            return;
        }
        let unsent: usize = self.unsent.drain(..).map(|(_, _, body)| body.len()).sum();
        actions.push(Action::Free((unsent + self.part.len()) as u64));
        self.part = Vec::new();
        actions.extend(self.upload.take().map(Action::Abort));
        self.failed = Some(fault);
    }

    fn go_on(&mut self, actions: &mut Vec<Action>) {
        if let Some(fault) = &self.failed {
            for request in self.unanswered.drain(..).chain(self.commit.take()) {
                actions.push(Action::Answer { request, result: Err(fault.clone()) });
            }
            return;
        }
        if !self.unsent.is_empty() && !self.begins {
            self.begins = true;
            actions.push(Action::Begin);
        }
        if let Some(upload) = &self.upload {
            while self.in_flight < IN_FLIGHT_MAX
                && let Some((number, offset, body)) = self.unsent.pop_front()
            {
                self.in_flight += 1;
                actions.push(Action::Send { upload: upload.clone(), number, offset, body });
            }
            if self.commit.is_some() && !self.ends && self.in_flight == 0 && self.unsent.is_empty() {
                self.ends = true;
                let mut parts = std::mem::take(&mut self.sent);
                parts.sort_unstable_by_key(|part| part.number);
                let upload = upload.clone();
                actions.push(match self.group.is_some() {
                    true => Action::Keep(Kept::Upload(upload, parts)),
                    false => Action::Complete { upload, parts },
                });
            }
        }
        if self.unsent.is_empty() {
            let answers = self.unanswered.drain(..);
            actions.extend(answers.map(|request| Action::Answer { request, result: Ok(None) }));
        }
    }
}

#[cfg(test)]
mod tests;
