//! The client for Rust: a connection and the mapped arena.
//!
//! A [`View`] is bytes of the arena under a lease; dropping it ends the lease, which the daemon is told with the next request, so that it
//! costs no round trip. Each thread uses a client of its own.
//!
//! A connection that failed stays failed: its leases are gone, and views of it must not be used any longer. They cannot be: a view borrows its
//! client, and reading one of a failed client panics.

use crate::catalogue::Fault;
use crate::unix::{connect, receive_with_fd};
use crate::wire::{self, BATCH_MAX, Fields, MAGIC, Malformed, Op, Put, VERSION, fault_of, status};
use std::cell::{Cell, RefCell};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::ptr::NonNull;

/// How long a write waits for room in the daemon, and between two attempts, in nanoseconds.
const PATIENCE: u64 = 30_000_000_000;
const PAUSE: u64 = 5_000_000;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Fault(#[from] Fault),
    #[error(transparent)]
    Malformed(#[from] Malformed),
    #[error("the daemon: {0}")]
    Io(#[from] std::io::Error),
}

pub type Result<T> = std::result::Result<T, Error>;

/// A file's version and length.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Info {
    pub version: String,
    pub length: u64,
}

/// An entry of a listing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    pub is_folder: bool,
    pub path: String,
    pub length: u64,
    pub modified_ms: u64,
}

pub struct Client {
    stream: RefCell<UnixStream>,
    input: RefCell<Vec<u8>>,
    /// Requests, and releases before them, that are not sent yet.
    output: RefCell<Vec<u8>>,
    released: RefCell<Vec<u32>>,
    next: Cell<u64>,
    arena: NonNull<u8>,
    arena_bytes: usize,
    pub store: String,
}

/// Bytes of a file, where the daemon has them: in one piece for each block.
pub struct View<'a> {
    client: &'a Client,
    pub info: Info,
    parts: Vec<(u32, usize, usize)>,
}

impl View<'_> {
    /// The pieces, in the order of the file.
    pub fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        self.parts.iter().map(|(_, offset, len)| {
            // SAFETY: `View::read` has checked that the piece lies in the arena, which is mapped as long as the client lives. Its bytes
            // do not change while the lease lasts, which ends when `self` is dropped.
            unsafe { std::slice::from_raw_parts(self.client.arena.as_ptr().add(*offset), *len) }
        })
    }

    pub fn to_vec(&self) -> Vec<u8> {
        self.pieces().flatten().copied().collect()
    }

    fn read<'a>(client: &'a Client, fields: &mut Fields<'_>) -> Result<View<'a>> {
        let info = Info { version: fields.text()?.to_string(), length: fields.u64()? };
        let mut parts = Vec::new();
        for _ in 0..fields.count(16)? {
            let (lease, offset, len) = (fields.u32()?, fields.u64()? as usize, fields.u32()? as usize);
            if offset.checked_add(len).is_none_or(|end| end > client.arena_bytes) {
                return Err(Malformed("a lease is not in the arena").into());
            }
            parts.push((lease, offset, len));
        }
        Ok(View { client, info, parts })
    }
}

impl Drop for View<'_> {
    fn drop(&mut self) {
        self.client.released.borrow_mut().extend(self.parts.iter().map(|(lease, _, _)| *lease));
    }
}

impl Client {
    /// `target` is the store that the daemon must serve; an empty one is any.
    pub fn connect(socket: &Path, target: &str) -> Result<Client> {
        let stream = connect(socket)?;
        let mut hello = Vec::new();
        Put::new(&mut hello, 0, Op::Hello as u8).u32(MAGIC).u32(VERSION).text(target);
        (&stream).write_all(&hello)?;
        let mut input = vec![0; 4096];
        let (received, fd) = receive_with_fd(&stream, &mut input)?;
        input.truncate(received);
        while wire::frame(&input)?.is_none() {
            receive(&stream, &mut input)?;
        }
        let Some(frame) = wire::frame(&input)? else {
            return Err(Malformed("no answer to the greeting").into());
        };
        let mut fields = Fields(frame.fields);
        if frame.kind != status::OK {
            return Err(fault_of(frame.kind, fields.text()?.to_string()).into());
        }
        let (_version, bytes) = (fields.u32()?, fields.u64()? as usize);
        let (_block, _frame, _batch) = (fields.u32()?, fields.u32()?, fields.u32()?);
        let store = fields.text()?.to_string();
        let fd = fd.ok_or(Malformed("the arena did not come with the answer"))?;
        // SAFETY: a new mapping of an open descriptor, at an address that the system chooses.
        let arena = unsafe {
            libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ, libc::MAP_SHARED, fd.as_raw_fd(), 0)
        };
        let arena = match NonNull::new(arena.cast::<u8>()) {
            Some(arena) if arena.as_ptr().cast() != libc::MAP_FAILED => arena,
            _ => return Err(std::io::Error::last_os_error().into()),
        };
        let used = frame.bytes;
        input.drain(..used);
        Ok(Client {
            stream: RefCell::new(stream),
            input: RefCell::new(input),
            output: RefCell::default(),
            released: RefCell::default(),
            next: Cell::new(1),
            arena,
            arena_bytes: bytes,
            store,
        })
    }

    /// Encodes a request, behind the releases of leases that have ended.
    fn request(&self, op: Op, fields: impl FnOnce(&mut Put<'_>)) -> u64 {
        let mut out = self.output.borrow_mut();
        let mut released = self.released.borrow_mut();
        if !released.is_empty() {
            let mut frame = Put::new(&mut out, 0, Op::Release as u8);
            frame.u32(released.len() as u32);
            released.drain(..).for_each(|lease| {
                frame.u32(lease);
            });
        }
        let id = self.next.get();
        self.next.set(id + 1);
        fields(&mut Put::new(&mut out, id, op as u8));
        id
    }

    fn flush(&self) -> Result<()> {
        let mut out = self.output.borrow_mut();
        let result = self.stream.borrow_mut().write_all(&out);
        out.clear();
        Ok(result?)
    }

    /// Takes the answer to `id`, part by part, until `part` returns false or it was the last. Other answers may not be pending.
    fn answer(&self, id: u64, mut part: impl FnMut(Fields<'_>) -> Result<()>) -> Result<()> {
        let mut input = self.input.borrow_mut();
        loop {
            let Some(frame) = wire::frame(&input)? else {
                receive(&self.stream.borrow(), &mut input)?;
                continue;
            };
            if frame.request != id {
                let text = Fields(frame.fields).text().unwrap_or_default().to_string();
                return Err(match frame.request {
                    0 => Fault::Refused(text).into(),
                    _ => Malformed("it answers no request").into(),
                });
            }
            let (kind, bytes) = (frame.kind, frame.bytes);
            let result = match kind {
                status::OK | status::MORE => part(Fields(frame.fields)),
                _ => Err(fault_of(kind, Fields(frame.fields).text()?.to_string()).into()),
            };
            input.drain(..bytes);
            if kind != status::MORE || result.is_err() {
                return result;
            }
        }
    }

    fn ask(
        &self,
        op: Op,
        fields: impl FnOnce(&mut Put<'_>),
        part: impl FnMut(Fields<'_>) -> Result<()>,
    ) -> Result<()> {
        let id = self.request(op, fields);
        self.flush()?;
        self.answer(id, part)
    }

    /// Bytes from `offset`: at most `length`, and at most what the daemon leases at a time. Fails with [`Fault::Changed`] if the file's
    /// version is not `expected`, which may be empty.
    pub fn read(&self, path: &str, offset: u64, length: u64, expected: &str) -> Result<View<'_>> {
        let mut view = None;
        let fields = |put: &mut Put<'_>| {
            put.text(path).u64(offset).u64(length).text(expected);
        };
        self.ask(Op::Read, fields, |mut fields| {
            view = Some(View::read(self, &mut fields)?);
            Ok(())
        })?;
        view.ok_or(Malformed("no answer").into())
    }

    /// The whole of each file, in the order in which they come: `each` is given the index and the bytes.
    pub fn read_many(
        &self,
        paths: &[&str],
        mut each: impl FnMut(usize, std::result::Result<View<'_>, Fault>),
    ) -> Result<()> {
        for (chunk, paths) in paths.chunks(BATCH_MAX / 10).enumerate() {
            let fields = |put: &mut Put<'_>| {
                put.u32(paths.len() as u32);
                paths.iter().for_each(|path| {
                    put.text(path).u64(0).u64(u64::MAX).text("");
                });
            };
            self.ask(Op::ReadMany, fields, |mut fields| {
                for _ in 0..fields.count(9)? {
                    let index = chunk * (BATCH_MAX / 10) + fields.u32()? as usize;
                    match fields.u8()? {
                        status::OK => each(index, Ok(View::read(self, &mut fields)?)),
                        code => each(index, Err(fault_of(code, fields.text()?.to_string()))),
                    }
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Brings ranges of files into memory: `each` is given the index and what the file is.
    pub fn warm(
        &self,
        ranges: &[(&str, u64, u64)],
        mut each: impl FnMut(usize, std::result::Result<Info, Fault>),
    ) -> Result<()> {
        for (chunk, ranges) in ranges.chunks(BATCH_MAX).enumerate() {
            let fields = |put: &mut Put<'_>| {
                put.u32(ranges.len() as u32);
                ranges.iter().for_each(|(path, offset, length)| {
                    put.text(path).u64(*offset).u64(*length).text("");
                });
            };
            self.ask(Op::Warm, fields, |mut fields| {
                for _ in 0..fields.count(9)? {
                    let index = chunk * BATCH_MAX + fields.u32()? as usize;
                    match fields.u8()? {
                        status::OK => each(index, Ok(View::read(self, &mut fields)?.info.clone())),
                        code => each(index, Err(fault_of(code, fields.text()?.to_string()))),
                    }
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    pub fn stat(&self, path: &str) -> Result<Info> {
        let mut info = None;
        self.ask(
            Op::Stat,
            |put| {
                put.text(path);
            },
            |mut fields| {
                info = Some(Info { version: fields.text()?.to_string(), length: fields.u64()? });
                Ok(())
            },
        )?;
        info.ok_or(Malformed("no answer").into())
    }

    pub fn list(&self, folder: &str, recursive: bool) -> Result<Vec<Entry>> {
        let mut entries = Vec::new();
        self.ask(
            Op::List,
            |put| {
                put.text(folder).u8(u8::from(recursive));
            },
            |mut fields| {
                for _ in 0..fields.count(21)? {
                    let is_folder = fields.u8()? == 0;
                    let (path, length, modified_ms) =
                        (fields.text()?.to_string(), fields.u64()?, fields.u64()?);
                    entries.push(Entry { is_folder, path, length, modified_ms });
                }
                Ok(())
            },
        )?;
        Ok(entries)
    }

    /// Writes a file: when it returns, the store has it. Returns its version.
    pub fn write(&self, path: &str, body: &[u8]) -> Result<String> {
        let mut handle = 0;
        self.ask(
            Op::OpenWrite,
            |put| {
                put.text(path).u8(0);
            },
            |mut fields| {
                handle = fields.u64()?;
                Ok(())
            },
        )?;
        let world = terrace_io::real::world();
        let never = terrace_io::sched::Event::new();
        for part in body.chunks(1 << 20) {
            let until = world.clock.now() + PATIENCE;
            loop {
                let fields = |put: &mut Put<'_>| {
                    put.u64(handle).bytes(part);
                };
                match self.ask(Op::Write, fields, |_| Ok(())) {
                    // The daemon has no room, as the store is slower than its writers.
                    Err(Error::Fault(Fault::Busy(_))) if world.clock.now() < until => {
                        world.sched.wait(&never, never.ticket(), Some(PAUSE));
                    }
                    result => break result?,
                }
            }
        }
        let mut version = String::new();
        self.ask(
            Op::Commit,
            |put| {
                put.u64(handle);
            },
            |mut fields| {
                version = fields.text()?.to_string();
                Ok(())
            },
        )?;
        Ok(version)
    }

    pub fn delete(&self, path: &str) -> Result<()> {
        let mut fault = None;
        self.ask(
            Op::Delete,
            |put| {
                put.u32(1).text(path);
            },
            |mut fields| {
                fields.u32()?;
                let code = fields.u8()?;
                fault = (code != status::OK).then_some(fault_of(code, fields.text()?.to_string()));
                Ok(())
            },
        )?;
        fault.map_or(Ok(()), |fault| Err(fault.into()))
    }

    /// The daemon's figures, as JSON.
    pub fn status(&self) -> Result<String> {
        let mut text = String::new();
        self.ask(
            Op::Status,
            |_| (),
            |mut fields| {
                text = fields.text()?.to_string();
                Ok(())
            },
        )?;
        Ok(text)
    }

    /// Drops what is cached of files whose path starts with `prefix`; of how many.
    pub fn evict(&self, prefix: &str) -> Result<u64> {
        let mut count = 0;
        self.ask(
            Op::Evict,
            |put| {
                put.text(prefix);
            },
            |mut fields| {
                count = fields.u64()?;
                Ok(())
            },
        )?;
        Ok(count)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // SAFETY: the mapping was made with this length; views borrow the client, so there are none.
        unsafe { libc::munmap(self.arena.as_ptr().cast(), self.arena_bytes) };
    }
}

fn receive(mut stream: &UnixStream, input: &mut Vec<u8>) -> Result<()> {
    let len = input.len();
    input.resize(len + (64 << 10), 0);
    let result = stream.read(&mut input[len..]);
    input.truncate(len + result.as_ref().map_or(0, |count| *count));
    match result? {
        0 => Err(std::io::Error::new(std::io::ErrorKind::UnexpectedEof, "it closed the connection").into()),
        _ => Ok(()),
    }
}
