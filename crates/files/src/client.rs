//! The client for Rust: a connection and the mapped arena.
//!
//! A [`View`] is bytes of the arena under a lease; dropping it ends the lease, which the daemon is told with the next request, so that it
//! costs no round trip. Each thread uses a client of its own.
//!
//! A connection that failed stays failed: its leases are gone, and views of it must not be used any longer. They cannot be: a view borrows its
//! client, and reading one of a failed client panics.

mod objects;
pub mod shared;

pub use objects::{NewObject, Object};

use crate::catalogue::Fault;
use crate::unix::{connect, receive_with_fd};
use crate::wire::{self, BATCH_MAX, Fields, MAGIC, Malformed, Op, Put, VERSION, fault_of, status};
use shared::{Layout, Mapping, Shared};
use std::cell::{Cell, RefCell};
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;

/// How long a write waits for room in the daemon, and between two attempts, in nanoseconds.
const PATIENCE: u64 = 30_000_000_000;
const PAUSE: u64 = 5_000_000;
/// Files of one request of a batch, and requests of it in flight: their files are in memory together, under lease.
const CHUNK: usize = 100;
const AHEAD: usize = 6;
/// Times that a read of several parts begins because the file changed between two of them.
const ATTEMPTS: usize = 5;

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
    /// Objects whose release was not told yet, and the memory of objects, mapped when it is used first.
    released_objects: RefCell<Vec<u64>>,
    objects: std::cell::OnceCell<objects::ObjectMemory>,
    next: Cell<u64>,
    mapping: Arc<Mapping>,
    pub shared: Shared,
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
            // SAFETY: `View::read` has checked that the piece lies in the mapping. Its bytes do not change while the lease lasts, which ends
            // when `self` is dropped.
            unsafe { self.client.mapping.slice(*offset, *len) }
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
            if offset.checked_add(len).is_none_or(|end| end > client.mapping.bytes()) {
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
        let layout = Layout::of(&mut fields)?;
        let fd = fd.ok_or(Malformed("the arena did not come with the answer"))?;
        let mapping = Arc::new(Mapping::new(fd, layout.mapped as usize)?);
        let shared = Shared::new(mapping.clone(), &layout)?;
        let used = frame.bytes;
        input.drain(..used);
        Ok(Client {
            stream: RefCell::new(stream),
            input: RefCell::new(input),
            output: RefCell::default(),
            released: RefCell::default(),
            released_objects: RefCell::default(),
            objects: std::cell::OnceCell::new(),
            next: Cell::new(1),
            mapping,
            shared,
            store: layout.store,
        })
    }

    /// Encodes a request, behind the releases of leases that have ended.
    fn request(&self, op: Op, fields: impl FnOnce(&mut Put<'_>)) -> u64 {
        self.releases();
        let mut out = self.output.borrow_mut();
        self.shared.news(&mut out);
        let id = self.next.get();
        self.next.set(id + 1);
        fields(&mut Put::new(&mut out, id, op as u8));
        id
    }

    fn releases(&self) {
        self.object_releases();
        let mut released = self.released.borrow_mut();
        if !released.is_empty() {
            let mut out = self.output.borrow_mut();
            let mut frame = Put::new(&mut out, 0, Op::Release as u8);
            frame.u32(released.len() as u32);
            released.drain(..).for_each(|lease| {
                frame.u32(lease);
            });
        }
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

    /// Copies bytes from `offset` into the buffer: from the shared memory without a question to the daemon if they are there and fresh.
    /// Returns how many, fewer than the buffer has only at the file's end, and the file's length. All are of one version.
    pub fn read_into(&self, path: &str, offset: u64, buf: &mut [u8], expected: &str) -> Result<(usize, u64)> {
        let (place, most) = (buf.as_mut_ptr(), buf.len() as u64);
        // SAFETY: the buffer has this many bytes, and `copy` asks for no more.
        if let Some(found) = unsafe { self.shared.copy(path, offset, most, expected, |_| place) } {
            if self.shared.has_news() {
                self.shared.tell(self.stream.borrow().as_fd());
            }
            return Ok((found.copied, found.length));
        }
        for _ in 1..ATTEMPTS {
            match self.read_parts(path, offset, buf, expected) {
                Err(Error::Fault(Fault::Changed)) if expected.is_empty() => {}
                result => return result,
            }
        }
        self.read_parts(path, offset, buf, expected)
    }

    fn read_parts(&self, path: &str, offset: u64, buf: &mut [u8], expected: &str) -> Result<(usize, u64)> {
        let mut version = expected.to_string();
        let (mut at, mut length) = (0, 0);
        while at < buf.len() {
            let view = self.read(path, offset + at as u64, (buf.len() - at) as u64, &version)?;
            let before = at;
            for piece in view.pieces() {
                let Some(place) = buf.get_mut(at..at + piece.len()) else {
                    return Err(Malformed("it answers more than was asked for").into());
                };
                place.copy_from_slice(piece);
                at += piece.len();
            }
            (version, length) = (view.info.version.clone(), view.info.length);
            if at == before || offset + at as u64 >= length {
                break;
            }
        }
        if buf.is_empty() {
            length = self.stat(path)?.length;
        }
        Ok((at, length))
    }

    /// Copies a whole file from the shared memory to the start of the buffer, if it is there and fresh. Its length; as an error, if the buffer is
    /// shorter. None: the daemon must be asked.
    pub fn copy_whole(&self, path: &str, buf: &mut [u8]) -> Option<std::result::Result<usize, usize>> {
        let (place, room) = (buf.as_mut_ptr(), buf.len());
        let mut needed = 0;
        let place = |len| {
            needed = len;
            if len <= room { place } else { std::ptr::null_mut() }
        };
        // SAFETY: the place has as many bytes as are asked for, or is null.
        let found = unsafe { self.shared.copy(path, 0, u64::MAX, "", place) };
        if found.is_some() && self.shared.has_news() {
            self.shared.tell(self.stream.borrow().as_fd());
        }
        match found {
            Some(found) => Some(Ok(found.copied)),
            None if needed > room => Some(Err(needed)),
            None => None,
        }
    }

    /// The whole of each file, in the order in which they come: `each` is given the index and the bytes. Several requests of it are in
    /// flight, so the daemon fetches as many as it may.
    pub fn read_many(
        &self,
        paths: &[&str],
        mut each: impl FnMut(usize, std::result::Result<View<'_>, Fault>),
    ) -> Result<()> {
        let mut chunks = paths.chunks(CHUNK).enumerate();
        // By the request's id: the index of its first file, and their number.
        let mut waiting: Vec<(u64, usize, usize)> = Vec::new();
        loop {
            while waiting.len() < AHEAD
                && let Some((chunk, paths)) = chunks.next()
            {
                let id = self.request(Op::ReadMany, |put| {
                    put.u32(paths.len() as u32);
                    paths.iter().for_each(|path| {
                        put.text(path).u64(0).u64(u64::MAX).text("");
                    });
                });
                waiting.push((id, chunk * CHUNK, paths.len()));
            }
            self.flush()?;
            if waiting.is_empty() {
                return self.release();
            }
            self.group(&mut waiting, &mut each)?;
        }
    }

    /// Takes the next group of an answer to one of the batches that wait.
    fn group(
        &self,
        waiting: &mut Vec<(u64, usize, usize)>,
        each: &mut impl FnMut(usize, std::result::Result<View<'_>, Fault>),
    ) -> Result<()> {
        let mut input = self.input.borrow_mut();
        loop {
            let Some(frame) = wire::frame(&input)? else {
                receive(&self.stream.borrow(), &mut input)?;
                continue;
            };
            let Some(at) = waiting.iter().position(|(id, ..)| *id == frame.request) else {
                return Err(Malformed("it answers no request").into());
            };
            let (_, first, count) = waiting[at];
            let mut fields = Fields(frame.fields);
            if frame.kind > status::MORE {
                let fault = fault_of(frame.kind, fields.text()?.to_string());
                (first..first + count).for_each(|index| each(index, Err(fault.clone())));
                waiting.swap_remove(at);
                let bytes = frame.bytes;
                input.drain(..bytes);
                return Ok(());
            }
            for _ in 0..fields.count(9)? {
                let index = first + fields.u32()? as usize;
                match fields.u8()? {
                    status::OK => each(index, Ok(View::read(self, &mut fields)?)),
                    code => each(index, Err(fault_of(code, fields.text()?.to_string()))),
                }
            }
            if frame.kind == status::OK {
                waiting.swap_remove(at);
            }
            let bytes = frame.bytes;
            input.drain(..bytes);
            return Ok(());
        }
    }

    /// Tells the daemon of leases that have ended now, not with the next request.
    pub fn release(&self) -> Result<()> {
        self.releases();
        self.flush()
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
        if let Some(found) = self.shared.stat(path)
            && let Some(version) = found.version()
        {
            return Ok(Info { version, length: found.length });
        }
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
        let handle = self.open_write(path, false)?;
        self.write_part(handle, body)?;
        self.commit(handle)
    }

    /// Begins a file; with `creates` its commit fails if there is one. Nothing is visible before the commit.
    pub fn open_write(&self, path: &str, creates: bool) -> Result<u64> {
        let mut handle = 0;
        let fields = |put: &mut Put<'_>| {
            put.text(path).u8(u8::from(creates));
        };
        self.ask(Op::OpenWrite, fields, |mut fields| {
            handle = fields.u64()?;
            Ok(())
        })?;
        Ok(handle)
    }

    /// Begins a group of files, which a commit makes visible together. Its name.
    pub fn begin_group(&self) -> Result<String> {
        let mut name = String::new();
        self.ask(
            Op::BeginGroup,
            |_| (),
            |mut fields| {
                name = fields.text()?.to_string();
                Ok(())
            },
        )?;
        Ok(name)
    }

    /// Goes on with a group after the daemon was started again. The number of files that it has.
    pub fn resume_group(&self, group: &str) -> Result<u64> {
        self.of_group(Op::ResumeGroup, group)
    }

    /// Makes all files of the group visible, or none. Their number.
    pub fn commit_group(&self, group: &str) -> Result<u64> {
        self.of_group(Op::CommitGroup, group)
    }

    pub fn abort_group(&self, group: &str) -> Result<u64> {
        self.of_group(Op::AbortGroup, group)
    }

    fn of_group(&self, op: Op, group: &str) -> Result<u64> {
        let mut files = 0;
        let fields = |put: &mut Put<'_>| {
            put.text(group);
        };
        self.ask(op, fields, |mut fields| {
            files = fields.u64()?;
            Ok(())
        })?;
        Ok(files)
    }

    /// Begins a file of a group. Its `commit` returns when the file is kept, and makes nothing visible.
    pub fn open_in_group(&self, group: &str, path: &str, creates: bool) -> Result<u64> {
        let mut handle = 0;
        let fields = |put: &mut Put<'_>| {
            put.text(group).text(path).u8(u8::from(creates));
        };
        self.ask(Op::OpenInGroup, fields, |mut fields| {
            handle = fields.u64()?;
            Ok(())
        })?;
        Ok(handle)
    }

    /// Appends to a file that was begun. Waits while the daemon has no room, as the store is slower than its writers.
    pub fn write_part(&self, handle: u64, body: &[u8]) -> Result<()> {
        let world = terrace_io::real::world();
        let never = terrace_io::sched::Event::new();
        for part in body.chunks(1 << 20) {
            let until = world.clock.now() + PATIENCE;
            loop {
                let fields = |put: &mut Put<'_>| {
                    put.u64(handle).bytes(part);
                };
                match self.ask(Op::Write, fields, |_| Ok(())) {
                    Err(Error::Fault(Fault::Busy(_))) if world.clock.now() < until => {
                        world.sched.wait(&never, never.ticket(), Some(PAUSE));
                    }
                    result => break result?,
                }
            }
        }
        Ok(())
    }

    /// When it returns, the store has the file. Returns its version.
    pub fn commit(&self, handle: u64) -> Result<String> {
        let mut version = String::new();
        let fields = |put: &mut Put<'_>| {
            put.u64(handle);
        };
        self.ask(Op::Commit, fields, |mut fields| {
            version = fields.text()?.to_string();
            Ok(())
        })?;
        Ok(version)
    }

    /// Gives a file up that was begun.
    pub fn abort(&self, handle: u64) -> Result<()> {
        let fields = |put: &mut Put<'_>| {
            put.u64(handle);
        };
        self.ask(Op::Abort, fields, |_| Ok(()))
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

    /// Pins files, and all files below folders: they stay in memory. Returns when they are there; how many.
    pub fn pin(&self, paths: &[&str]) -> Result<u64> {
        self.of_pins(Op::Pin, paths)
    }

    /// Ends the pins of these paths. How many files are not pinned any more.
    pub fn unpin(&self, paths: &[&str]) -> Result<u64> {
        self.of_pins(Op::Unpin, paths)
    }

    fn of_pins(&self, op: Op, paths: &[&str]) -> Result<u64> {
        let mut files = 0;
        let fields = |put: &mut Put<'_>| {
            put.u32(paths.len() as u32);
            paths.iter().for_each(|path| {
                put.text(path);
            });
        };
        self.ask(op, fields, |mut fields| {
            files = fields.u64()?;
            Ok(())
        })?;
        Ok(files)
    }

    /// The paths that are pinned.
    pub fn pins(&self) -> Result<Vec<String>> {
        let mut pins = Vec::new();
        self.ask(
            Op::Pins,
            |_| (),
            |mut fields| {
                for _ in 0..fields.count(4)? {
                    pins.push(fields.text()?.to_string());
                }
                Ok(())
            },
        )?;
        Ok(pins)
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
