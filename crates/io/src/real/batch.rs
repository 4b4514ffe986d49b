//! How batches reach the kernel: through [`ring`], where it has rings, else through [`pool`].
//!
//! Chosen once for the process, at the first disk opened: [`backend`] says what was chosen, a line
//! on standard error when rings were refused. [`CHOICE`] in the environment takes another one.

use super::file::{RealFile, failed};
use super::pool::Pool;
use super::ring::{Done, Request, Rings};
use crate::AlignedBuf;
use crate::disk::{DiskError, Op, Result};
use std::io::Error as IoError;
use std::os::fd::AsFd;
use std::sync::{LazyLock, OnceLock};

/// Names a backend, as [`Backend::name`] does: then that one is used or the disk does not open.
pub const CHOICE: &str = "TERRACE_DISK_BATCHES";

/// How several requests of one batch get to be in flight together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Backend {
    /// `io_uring`.
    Rings,
    /// A few threads.
    Threads,
    /// Not at all: one after the other.
    InTurn,
}

impl Backend {
    pub const ALL: [Backend; 3] = [Backend::Rings, Backend::Threads, Backend::InTurn];

    pub fn name(self) -> &'static str {
        match self {
            Backend::Rings => "io_uring",
            Backend::Threads => "threads",
            Backend::InTurn => "in-turn",
        }
    }
    pub fn named(name: &str) -> Option<Backend> {
        Backend::ALL.into_iter().find(|backend| backend.name() == name)
    }
}

/// What carries the batches of this process's disks: `io_uring`, `threads` or `in-turn`. An error if
/// the environment asks for a backend that this machine does not have.
pub fn backend() -> Result<Backend> {
    static CHOSEN: OnceLock<std::result::Result<Backend, DiskError>> = OnceLock::new();
    CHOSEN.get_or_init(|| choose(std::env::var(CHOICE).ok(), &RINGS)).clone()
}

static RINGS: LazyLock<std::result::Result<Rings, String>> =
    LazyLock::new(|| Rings::open().map_err(|e| e.to_string()));
static POOL: LazyLock<Pool> = LazyLock::new(Pool::new);

fn choose(asked: Option<String>, rings: &std::result::Result<Rings, String>) -> Result<Backend> {
    let refused =
        |cause: String| DiskError::Failed { name: CHOICE.into(), what: "set", offset: 0, len: 0, cause };
    let Some(asked) = asked else {
        return Ok(match rings {
            Ok(_) => Backend::Rings,
            Err(cause) => {
                eprintln!("terrace: no io_uring here ({cause}): batches of disk requests go through threads");
                Backend::Threads
            }
        });
    };
    match (Backend::named(&asked), rings) {
        (None, _) => {
            Err(refused(format!("“{asked}” is none of {}", Backend::ALL.map(Backend::name).join(", "))))
        }
        (Some(Backend::Rings), Err(cause)) => Err(refused(format!("there is no io_uring here: {cause}"))),
        (Some(backend), _) => Ok(backend),
    }
}

/// A backend that this machine has.
#[derive(Clone, Copy)]
pub(super) enum Carrier {
    Rings(&'static Rings),
    Threads(&'static Pool),
    InTurn,
}

/// One request of a batch over the files of a disk.
pub(super) struct Piece<'a, 'b> {
    pub file: &'a RealFile,
    pub op: &'a mut Op<'b>,
}

impl Carrier {
    pub fn of(backend: Backend) -> std::result::Result<Carrier, String> {
        Ok(match backend {
            Backend::Rings => Carrier::Rings(RINGS.as_ref().map_err(String::clone)?),
            Backend::Threads => Carrier::Threads(&POOL),
            Backend::InTurn => Carrier::InTurn,
        })
    }

    pub fn backend(self) -> Backend {
        match self {
            Carrier::Rings(_) => Backend::Rings,
            Carrier::Threads(_) => Backend::Threads,
            Carrier::InTurn => Backend::InTurn,
        }
    }

    /// All requests; one result each, in order.
    pub fn all(self, pieces: &mut [Piece<'_, '_>]) -> Vec<Result<()>> {
        let through = match self {
            Carrier::Rings(rings) if pieces.len() > 1 => through_ring(rings, pieces),
            Carrier::Threads(pool) if pieces.len() > 1 => Some(through_pool(pool, pieces)),
            _ => None,
        };
        through.unwrap_or_else(|| pieces.iter_mut().map(|p| p.file.one(p.op)).collect())
    }

    /// `fdatasync` of all files; one result each, in order.
    pub fn sync(self, files: &[&RealFile]) -> Vec<Result<()>> {
        let through = match self {
            Carrier::Rings(rings) if files.len() > 1 => sync_through_ring(rings, files),
            Carrier::Threads(pool) if files.len() > 1 => {
                let answers = pool.each(files.len(), |i| files[i].sync_data());
                Some(answers.into_iter().zip(files).map(|(a, f)| a.unwrap_or_else(|| Err(lost(f)))).collect())
            }
            _ => None,
        };
        through.unwrap_or_else(|| files.iter().map(|file| file.sync_data()).collect())
    }
}

/// The error of a request whose thread panicked.
fn lost(file: &RealFile) -> DiskError {
    failed("request to", file.label(), 0, 0, &IoError::other("its thread panicked"))
}

fn through_pool(pool: &Pool, pieces: &mut [Piece<'_, '_>]) -> Vec<Result<()>> {
    let files: Vec<&RealFile> = pieces.iter().map(|p| p.file).collect();
    let ops: Vec<_> = pieces.iter_mut().map(|p| parking_lot::Mutex::new(&mut *p.op)).collect();
    let answers = pool.each(ops.len(), |i| files[i].one(&mut ops[i].lock()));
    answers.into_iter().zip(files).map(|(answer, file)| answer.unwrap_or_else(|| Err(lost(file)))).collect()
}

/// None: no ring is free.
fn through_ring(rings: &Rings, pieces: &mut [Piece<'_, '_>]) -> Option<Vec<Result<()>>> {
    let mut results: Vec<Result<()>> = pieces.iter().map(|p| p.file.check(p.op)).collect();
    let mut bounces: Vec<Option<AlignedBuf>> = pieces.iter().map(|p| bounce(p.op)).collect();
    let mut requests = Vec::with_capacity(pieces.len());
    for ((piece, bounce), result) in pieces.iter_mut().zip(&mut bounces).zip(&results) {
        if result.is_ok() {
            requests.push(request(piece, bounce.as_mut()));
        }
    }
    let done = rings.run(&mut requests)?;
    drop(requests);
    let sent = pieces.iter_mut().zip(bounces).zip(&mut results).filter(|(_, result)| result.is_ok());
    for (((piece, bounce), result), done) in sent.zip(done) {
        *result = finish(piece, bounce, done);
    }
    Some(results)
}

/// Aligned memory in place of memory that isn't.
fn bounce(op: &Op<'_>) -> Option<AlignedBuf> {
    match op {
        Op::Read { buf, .. } => (!super::file::is_aligned(buf)).then(|| AlignedBuf::zeroed(buf.len())),
        Op::Write { buf, .. } => (!super::file::is_aligned(buf)).then(|| AlignedBuf::from_slice(buf)),
    }
}

fn request<'a>(piece: &'a mut Piece<'_, '_>, bounce: Option<&'a mut AlignedBuf>) -> Request<'a> {
    let fd = piece.file.as_fd();
    match (&mut *piece.op, bounce) {
        (Op::Read { offset, buf }, None) => Request::Read { fd, offset: *offset, buf },
        (Op::Read { offset, buf }, Some(own)) => {
            Request::Read { fd, offset: *offset, buf: &mut own[..buf.len()] }
        }
        (Op::Write { offset, buf }, None) => Request::Write { fd, offset: *offset, buf },
        (Op::Write { offset, buf }, Some(own)) => {
            Request::Write { fd, offset: *offset, buf: &own[..buf.len()] }
        }
    }
}

/// The result of a request that went through a ring. One that was cut short is done again from its start,
/// by the calls that know the end of a file from an interruption.
fn finish(piece: &mut Piece<'_, '_>, bounce: Option<AlignedBuf>, done: Done) -> Result<()> {
    let file = piece.file;
    match (done, &mut *piece.op) {
        (Done::Moved(moved), Op::Read { buf, .. }) if moved == buf.len() => {
            if let Some(own) = bounce {
                buf.copy_from_slice(&own[..moved]);
            }
            Ok(())
        }
        (Done::Moved(moved), Op::Write { offset, buf }) if moved == buf.len() => {
            file.reaches(*offset + moved as u64);
            Ok(())
        }
        (Done::Failed(e), Op::Read { offset, buf }) => {
            Err(failed("read", file.label(), *offset, buf.len() as u64, &e))
        }
        (Done::Failed(e), Op::Write { offset, buf }) => {
            Err(failed("write", file.label(), *offset, buf.len() as u64, &e))
        }
        (Done::Moved(_) | Done::Not, op) => file.one(op),
    }
}

/// None: no ring is free.
fn sync_through_ring(rings: &Rings, files: &[&RealFile]) -> Option<Vec<Result<()>>> {
    let mut requests: Vec<Request<'_>> =
        files.iter().map(|file| Request::Sync { fd: file.as_fd() }).collect();
    let done = rings.run(&mut requests)?;
    let result = |(done, file): (Done, &&RealFile)| match done {
        Done::Moved(_) => Ok(()),
        Done::Failed(e) => Err(failed("sync", file.label(), 0, 0, &e)),
        Done::Not => file.sync_data(),
    };
    Some(done.into_iter().zip(files).map(result).collect())
}

#[cfg(test)]
mod tests;
