//! Memory objects, for a client: made where their readers will find them, and read there.
//!
//! The memory of objects is mapped to write, as any client may create one. A client writes what it creates until it seals it, and nothing else; the daemon
//! cannot hold it to that. Releases cost no round trip: the daemon is told with the next request.

use super::{Client, Error, Result, receive};
use crate::catalogue::Fault;
use crate::unix;
use crate::wire::{self, Fields, Malformed, Op, Put, fault_of, status};
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::ptr::NonNull;

/// A mapping of the memory of objects, or of the file of one.
pub(super) struct ObjectMemory {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping belongs to no thread, and lives until it is dropped. The header says which client writes which bytes.
unsafe impl Send for ObjectMemory {}

impl ObjectMemory {
    fn new(fd: impl AsFd, bytes: usize, writes: bool) -> std::io::Result<ObjectMemory> {
        let protection = libc::PROT_READ | if writes { libc::PROT_WRITE } else { 0 };
        let fd = fd.as_fd().as_raw_fd();
        // SAFETY: a new mapping of an open descriptor, at an address that the system chooses.
        let base =
            unsafe { libc::mmap(std::ptr::null_mut(), bytes.max(1), protection, libc::MAP_SHARED, fd, 0) };
        match NonNull::new(base.cast::<u8>()) {
            Some(base) if base.as_ptr().cast() != libc::MAP_FAILED => {
                Ok(ObjectMemory { base, bytes: bytes.max(1) })
            }
            _ => Err(std::io::Error::last_os_error()),
        }
    }
}

impl Drop for ObjectMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping was made with this length, and what borrows from it does not outlive it.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// Where the bytes of an object are.
struct Bytes {
    at: NonNull<u8>,
    len: usize,
    /// An object on flash has a mapping of its own.
    _file: Option<ObjectMemory>,
}

/// An object that this client is writing. It is deleted when this is dropped without [`NewObject::seal`].
pub struct NewObject<'a> {
    client: &'a Client,
    name: String,
    id: u64,
    bytes: Bytes,
    is_over: bool,
}

/// A sealed object. Its bytes stay where they are until this is dropped.
pub struct Object<'a> {
    client: &'a Client,
    id: u64,
    bytes: Bytes,
}

impl NewObject<'_> {
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the bytes are mapped to write as long as `self`, and belong to this object, whose only writer has `self` borrowed.
        unsafe { std::slice::from_raw_parts_mut(self.bytes.at.as_ptr(), self.bytes.len) }
    }

    /// From now on its bytes do not change, and all clients may get it.
    pub fn seal(mut self) -> Result<()> {
        self.is_over = true;
        self.client.named(Op::SealObject, &self.name)
    }
}

impl Drop for NewObject<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            // A client that has failed has no objects any more.
            let _ = self.client.named(Op::DeleteObject, &self.name);
            self.client.released_objects.borrow_mut().push(self.id);
        }
    }
}

impl Deref for Object<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the bytes are mapped as long as `self`. No client writes a sealed object.
        unsafe { std::slice::from_raw_parts(self.bytes.at.as_ptr(), self.bytes.len) }
    }
}

impl Drop for Object<'_> {
    fn drop(&mut self) {
        self.client.released_objects.borrow_mut().push(self.id);
    }
}

impl Client {
    pub(super) fn object_releases(&self) {
        let mut released = self.released_objects.borrow_mut();
        if !released.is_empty() {
            let mut out = self.output.borrow_mut();
            let mut frame = Put::new(&mut out, 0, Op::ReleaseObjects as u8);
            frame.u32(released.len() as u32);
            released.drain(..).for_each(|id| _ = frame.u64(id));
        }
    }

    /// The memory of objects. The descriptor comes with the answer, before which no other is on its way.
    fn object_memory(&self) -> Result<&ObjectMemory> {
        if let Some(memory) = self.objects.get() {
            return Ok(memory);
        }
        let id = self.request(Op::MapObjects, |_| ());
        self.flush()?;
        let mut input = self.input.borrow_mut();
        let mut bytes = [0; 4096];
        let (received, fd) = unix::receive_with_fd(&self.stream.borrow(), &mut bytes)?;
        input.extend_from_slice(&bytes[..received]);
        while wire::frame(&input)?.is_none() {
            receive(&self.stream.borrow(), &mut input)?;
        }
        let Some(frame) = wire::frame(&input)? else { return Err(Malformed("no answer").into()) };
        let mut fields = Fields(frame.fields);
        if frame.request != id || frame.kind != status::OK {
            return Err(fault_of(frame.kind, fields.text()?.to_string()).into());
        }
        let len = fields.u64()?;
        let used = frame.bytes;
        input.drain(..used);
        let fd = fd.ok_or(Malformed("the memory of objects did not come with the answer"))?;
        let memory = ObjectMemory::new(fd, len as usize, true)?;
        Ok(self.objects.get_or_init(|| memory))
    }

    fn given(&self, fields: &mut Fields<'_>, writes: bool) -> Result<(u64, Bytes)> {
        let (id, offset, len) = (fields.u64()?, fields.u64()? as usize, fields.u64()? as usize);
        let path = fields.text()?;
        if !path.is_empty() {
            let memory = ObjectMemory::new(unix::open(Path::new(path), writes)?, len, writes)?;
            return Ok((id, Bytes { at: memory.base, len, _file: Some(memory) }));
        }
        let memory = self.objects.get().ok_or(Malformed("the memory of objects is not mapped"))?;
        if offset.checked_add(len).is_none_or(|end| end > memory.bytes) {
            return Err(Malformed("an object is not in the memory of objects").into());
        }
        // SAFETY: within the mapping, as was checked.
        let at = unsafe { memory.base.add(offset) };
        Ok((id, Bytes { at, len, _file: None }))
    }

    fn ask_object(&self, op: Op, fields: impl FnOnce(&mut Put<'_>)) -> Result<(u64, Bytes)> {
        self.object_memory()?;
        let mut given = None;
        self.ask(op, fields, |mut fields| {
            given = Some(self.given(&mut fields, op == Op::CreateObject)?);
            Ok(())
        })?;
        given.ok_or(Malformed("no answer").into())
    }

    fn named(&self, op: Op, name: &str) -> Result<()> {
        self.ask(op, |put| _ = put.text(name), |_| Ok(()))
    }

    /// A new object of `len` bytes, which this client writes and seals. `at_once`: it will be read soon, and is made in memory however long it is.
    pub fn create_object(&self, name: &str, len: usize, at_once: bool) -> Result<NewObject<'_>> {
        let (id, bytes) = self.ask_object(Op::CreateObject, |put| {
            put.text(name).u64(len as u64).u8(u8::from(at_once));
        })?;
        Ok(NewObject { client: self, name: name.to_string(), id, bytes, is_over: false })
    }

    /// A sealed object; waits for it for at most `timeout_ms`. None: there is none until then.
    pub fn get_object(&self, name: &str, timeout_ms: u64) -> Result<Option<Object<'_>>> {
        let asked = self.ask_object(Op::GetObject, |put| _ = put.text(name).u64(timeout_ms));
        match asked {
            Ok((id, bytes)) => Ok(Some(Object { client: self, id, bytes })),
            Err(Error::Fault(Fault::Absent)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The name is free at once; readers keep the bytes.
    pub fn delete_object(&self, name: &str) -> Result<()> {
        self.named(Op::DeleteObject, name)
    }
}
