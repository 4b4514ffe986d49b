//! Memory objects: results that programs of this machine hand to each other, written once and read by many, without a file. Pure; it knows no clock.
//!
//! A client creates an object and writes its bytes where they are: in the arena of objects, which clients map to write, or in a file on flash. It seals
//! it; from then on the bytes do not change, and all may get them. An object is *being written* (its creator's alone, and gone with it) → *sealed*
//! (until it is deleted, or no client has used it for [`IDLE_TIME`]) → *deleted* (its name is free at once, its bytes when the last reader has released them).
//!
//! Where. Up to [`SMALL`] bytes, or if they will be read at once: memory. Larger ones: flash, where writing them costs memory nothing. When memory is
//! full, the sealed object without readers that was not used for longest is *spilled*: its bytes are copied to flash, and its memory is free.
//!
//! A get of an object that is not sealed waits: for its seal, or its time. References are counted by client, and end with it; a release has no answer.
//!
//! Limits. The bytes of the arena; the bytes on flash; [`COUNT_MAX`] objects; [`WAITING_MAX`] gets that wait.
//!
//! Not here: the bytes (`store`), requests (`session::objects`).

pub mod spill;
#[cfg(test)]
mod tests;

use crate::catalogue::Fault;
use crate::memory::extents::{Extent, Extents};
use crate::planted;
use hashbrown::HashMap;
use std::sync::Arc;
use terrace_io::clock::Nanos;

/// Objects up to this many bytes are made in memory.
pub const SMALL: u64 = 8 << 20;
/// A sealed object that no client has used for this long is deleted, in nanoseconds.
pub const IDLE_TIME: Nanos = 3_600_000_000_000;
pub const COUNT_MAX: usize = 100_000;
pub const WAITING_MAX: usize = 10_000;
/// Longest name, in bytes.
pub const NAME_MAX: usize = 256;

/// Names an object as long as the daemon lives; a name may be used again.
pub type ObjectId = u64;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    Memory(Extent),
    /// In the file of this object on flash.
    Flash,
}

/// What a client is given of an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Given {
    pub id: ObjectId,
    pub place: Place,
    pub len: u64,
}

/// A client's get that is answered now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    pub client: u64,
    pub request: u64,
    pub result: Result<Given, Fault>,
}

/// Bytes to copy to flash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Spill {
    pub id: ObjectId,
    pub extent: Extent,
}

pub enum Created {
    Made(Given),
    /// There is room when this is on flash.
    After(Spill),
}

struct Object {
    name: Arc<str>,
    place: Place,
    len: u64,
    sealed: bool,
    creator: u64,
    /// Of all clients, with the one of a spill.
    references: u32,
    is_deleted: bool,
    used: Nanos,
}

struct Waiting {
    client: u64,
    request: u64,
    until: Nanos,
}

pub struct Settings {
    pub memory_bytes: u64,
    pub flash_bytes: u64,
}

pub struct Objects {
    settings: Settings,
    extents: Extents,
    names: HashMap<Arc<str>, ObjectId>,
    objects: HashMap<ObjectId, Object>,
    /// By client and object.
    references: HashMap<u64, HashMap<ObjectId, u32>>,
    waiting: HashMap<Arc<str>, Vec<Waiting>>,
    waiting_count: usize,
    flash_bytes: u64,
    next: ObjectId,
    pub spilled: u64,
    /// Objects whose file on flash is to be removed.
    pub dropped: Vec<ObjectId>,
}

fn absent() -> Fault {
    Fault::Absent
}

impl Objects {
    pub fn new(settings: Settings) -> Objects {
        Objects {
            extents: Extents::new(settings.memory_bytes),
            settings,
            names: HashMap::new(),
            objects: HashMap::new(),
            references: HashMap::new(),
            waiting: HashMap::new(),
            waiting_count: 0,
            flash_bytes: 0,
            next: 0,
            spilled: 0,
            dropped: Vec::new(),
        }
    }

    /// Objects, gets that wait, bytes in memory and on flash.
    pub fn sizes(&self) -> (usize, usize, u64, u64) {
        let memory = self.settings.memory_bytes / 64 * 64 - self.extents.free_bytes();
        (self.objects.len(), self.waiting_count, memory, self.flash_bytes)
    }

    /// A new object of `len` bytes, which the client writes. `at_once`: it will be read soon, and belongs to memory however long it is.
    pub fn create(
        &mut self,
        name: &str,
        len: u64,
        at_once: bool,
        client: u64,
        now: Nanos,
    ) -> Result<Created, Fault> {
        if name.is_empty() || name.len() > NAME_MAX {
            return Err(Fault::Invalid(format!("the name of an object has 1 to {NAME_MAX} bytes")));
        }
        if self.names.contains_key(name) {
            return Err(Fault::Exists);
        }
        if self.objects.len() >= COUNT_MAX {
            return Err(Fault::Busy(format!("there are {COUNT_MAX} objects, which is the limit")));
        }
        let fits_memory = len <= self.settings.memory_bytes / 64 * 64;
        let fits_flash = |flash_bytes: u64| flash_bytes + len <= self.settings.flash_bytes;
        let place = if fits_memory && (len <= SMALL || at_once || self.settings.flash_bytes == 0) {
            match self.extents.allocate(len) {
                Some(extent) => Place::Memory(extent),
                None => return self.victim().map(Created::After),
            }
        } else if fits_flash(self.flash_bytes) {
            self.flash_bytes += len;
            Place::Flash
        } else {
            return Err(Fault::Busy(format!(
                "neither memory nor flash for objects has room for {len} bytes"
            )));
        };
        self.next += 1;
        let id = self.next;
        let name: Arc<str> = name.into();
        self.names.insert(name.clone(), id);
        let object = Object {
            name,
            place,
            len,
            sealed: false,
            creator: client,
            references: 0,
            is_deleted: false,
            used: now,
        };
        self.objects.insert(id, object);
        self.reference(id, client, now);
        Ok(Created::Made(Given { id, place, len }))
    }

    /// The object to spill for another. It cannot be deleted for good until [`Objects::spilled`].
    fn victim(&mut self) -> Result<Spill, Fault> {
        let busy = |why: &str| Err(Fault::Busy(format!("the memory for objects is full: {why}")));
        let can_go = |object: &&Object| {
            let is_idle = object.references == 0 || planted::REFERENCED_OBJECT_SPILLED.on();
            object.sealed && is_idle && !object.is_deleted && matches!(object.place, Place::Memory(_))
        };
        let oldest = self
            .objects
            .iter()
            .filter(|(_, object)| can_go(object))
            .min_by_key(|(id, object)| (object.used, **id))
            .map(|(id, _)| *id);
        let Some((id, object)) = oldest.and_then(|id| Some((id, self.objects.get_mut(&id)?))) else {
            return busy("all of it is being written or read");
        };
        if self.flash_bytes + object.len > self.settings.flash_bytes {
            return busy("and flash has no room for what is not used");
        }
        let Place::Memory(extent) = object.place else { return busy("its objects are on flash") };
        object.references += 1;
        self.flash_bytes += object.len;
        Ok(Spill { id, extent })
    }

    /// The object's bytes are on flash, or could not be written there.
    pub fn spilled(&mut self, spill: Spill, is_written: bool) {
        let Some(object) = self.objects.get_mut(&spill.id) else { return };
        object.references -= 1;
        // A reader that came meanwhile has its bytes in memory.
        if is_written && (object.references == 0 || planted::REFERENCED_OBJECT_SPILLED.on()) {
            object.place = Place::Flash;
            self.extents.free(spill.extent);
            self.spilled += 1;
        } else {
            self.flash_bytes -= object.len;
            self.dropped.push(spill.id);
        }
        self.free_if_gone(spill.id);
    }

    fn reference(&mut self, id: ObjectId, client: u64, now: Nanos) {
        if let Some(object) = self.objects.get_mut(&id) {
            object.references += 1;
            object.used = now;
            *self.references.entry(client).or_default().entry(id).or_default() += 1;
        }
    }

    pub fn has(&self, id: ObjectId) -> bool {
        self.objects.contains_key(&id)
    }

    fn find(&self, name: &str) -> Option<(ObjectId, &Object)> {
        let id = *self.names.get(name)?;
        Some((id, self.objects.get(&id)?))
    }

    /// The creator has written all of it: its own reference ends. The gets that waited are answered.
    pub fn seal(&mut self, name: &str, client: u64, now: Nanos) -> Result<Vec<Answer>, Fault> {
        let (id, object) = self.find(name).ok_or_else(absent)?;
        if object.sealed || object.creator != client {
            return Err(Fault::Invalid("it is not an object that this client is writing".into()));
        }
        if let Some(object) = self.objects.get_mut(&id) {
            object.sealed = true;
        }
        self.release(id, client);
        let waiting = self.waiting.remove(name).unwrap_or_default();
        self.waiting_count -= waiting.len();
        let answer = |waiting: Waiting| {
            let Waiting { client, request, .. } = waiting;
            Answer { client, request, result: self.get(name, client, now).unwrap_or_else(|| Err(absent())) }
        };
        Ok(waiting.into_iter().map(answer).collect())
    }

    /// A sealed object, which the client references from now on. None: there is none, or it is not sealed.
    pub fn get(&mut self, name: &str, client: u64, now: Nanos) -> Option<Result<Given, Fault>> {
        let (id, object) = self.find(name)?;
        if !object.sealed && !planted::UNSEALED_OBJECT_GIVEN.on() {
            return None;
        }
        let given = Given { id, place: object.place, len: object.len };
        self.reference(id, client, now);
        Some(Ok(given))
    }

    /// The get is answered when the object is sealed, or at `until`.
    pub fn wait(&mut self, name: &str, client: u64, request: u64, until: Nanos) -> Result<(), Fault> {
        if name.is_empty() || name.len() > NAME_MAX {
            return Err(Fault::Invalid(format!("the name of an object has 1 to {NAME_MAX} bytes")));
        }
        if self.waiting_count >= WAITING_MAX {
            return Err(Fault::Busy(format!("{WAITING_MAX} requests wait for objects, which is the limit")));
        }
        self.waiting_count += 1;
        self.waiting.entry(name.into()).or_default().push(Waiting { client, request, until });
        Ok(())
    }

    /// The first moment at which a wait is over.
    pub fn next_deadline(&self) -> Option<Nanos> {
        self.waiting.values().flatten().map(|waiting| waiting.until).min()
    }

    /// The waits that are over at `now`.
    pub fn expire(&mut self, now: Nanos) -> Vec<Answer> {
        let mut answers = Vec::new();
        self.waiting.retain(|_, waiting| {
            waiting.retain(|waiting| {
                let is_over = waiting.until <= now;
                if is_over {
                    let (client, request) = (waiting.client, waiting.request);
                    answers.push(Answer { client, request, result: Err(absent()) });
                }
                !is_over
            });
            !waiting.is_empty()
        });
        self.waiting_count -= answers.len();
        answers
    }

    /// Deletes sealed objects without readers that were last used before `since`.
    pub fn delete_idle(&mut self, since: Nanos) {
        let is_idle = |object: &Object| object.sealed && object.references == 0 && object.used < since;
        let idle: Vec<Arc<str>> = self
            .objects
            .values()
            .filter(|object| is_idle(object))
            .map(|object| object.name.clone())
            .collect();
        idle.iter().for_each(|name| _ = self.delete(name));
    }

    /// False: the client has no reference to it.
    pub fn release(&mut self, id: ObjectId, client: u64) -> bool {
        let Some(of_client) = self.references.get_mut(&client) else { return false };
        let Some(count) = of_client.get_mut(&id) else { return false };
        *count -= 1;
        if *count == 0 {
            of_client.remove(&id);
        }
        if of_client.is_empty() {
            self.references.remove(&client);
        }
        if let Some(object) = self.objects.get_mut(&id) {
            object.references -= 1;
        }
        self.free_if_gone(id);
        true
    }

    /// As `delete`, for a client: an object that is being written may be deleted by its creator alone.
    pub fn delete_by(&mut self, name: &str, client: u64) -> Result<(), Fault> {
        match self.find(name) {
            Some((_, object)) if !object.sealed && object.creator != client => {
                Err(Fault::Invalid("another client is writing it".into()))
            }
            _ => self.delete(name),
        }
    }

    /// The name is free at once.
    pub fn delete(&mut self, name: &str) -> Result<(), Fault> {
        let (id, _) = self.find(name).ok_or_else(absent)?;
        self.names.remove(name);
        if let Some(object) = self.objects.get_mut(&id) {
            object.is_deleted = true;
        }
        self.free_if_gone(id);
        Ok(())
    }

    fn free_if_gone(&mut self, id: ObjectId) {
        let Some(object) = self.objects.get(&id) else { return };
        let is_read = object.references > 0 && !planted::READ_OBJECT_FREED.on();
        if !object.is_deleted || is_read {
            return;
        }
        match object.place {
            Place::Memory(extent) => self.extents.free(extent),
            Place::Flash => {
                self.flash_bytes -= object.len;
                self.dropped.push(id);
            }
        }
        self.objects.remove(&id);
    }

    /// The client is gone: its references end, its gets are not answered, and what it was writing is deleted.
    pub fn client_gone(&mut self, client: u64) {
        let unsealed: Vec<Arc<str>> = self
            .references
            .get(&client)
            .into_iter()
            .flat_map(|objects| objects.keys())
            .filter_map(|id| self.objects.get(id))
            .filter(|object| !object.sealed && object.creator == client && !object.is_deleted)
            .map(|object| object.name.clone())
            .collect();
        unsealed.iter().for_each(|name| _ = self.delete(name));
        let held = self.references.remove(&client).unwrap_or_default();
        for (id, count) in held {
            if let Some(object) = self.objects.get_mut(&id) {
                object.references -= count;
            }
            self.free_if_gone(id);
        }
        let mut ended = 0;
        self.waiting.retain(|_, waiting| {
            let before = waiting.len();
            waiting.retain(|waiting| waiting.client != client);
            ended += before - waiting.len();
            !waiting.is_empty()
        });
        self.waiting_count -= ended;
    }

    /// For tests: panics if a rule is broken.
    pub fn check_invariants(&self) {
        let memory: u64 = self
            .objects
            .values()
            .filter_map(|object| match object.place {
                Place::Memory(extent) => Some(extent.len.max(1).next_multiple_of(64)),
                Place::Flash => None,
            })
            .sum();
        assert_eq!(memory + self.extents.free_bytes(), self.settings.memory_bytes / 64 * 64);
        assert!(self.flash_bytes <= self.settings.flash_bytes);
        for (name, id) in &self.names {
            let object = self.objects.get(id).expect("a name has an object");
            assert!(object.name == *name && !object.is_deleted);
        }
        assert_eq!(self.waiting.values().map(Vec::len).sum::<usize>(), self.waiting_count);
    }
}
