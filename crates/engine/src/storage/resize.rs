//! Other sizes, while the instance runs: memory, flash, object buffer. CloudJump III §2.3.
//!
//! One resize at a time. Each is given up, and the old size stays in force, when it is stopped by the caller, when nothing has moved
//! for [`Config::resize_wait_timeout_ms`], or when a device fails. What is impossible from the start is refused with its reason.
//!
//! | what | grows | shrinks |
//! | --- | --- | --- |
//! | memory | the pool gets frames | the pool empties frames and gives them back (`tier/src/memory/pool/resize.rs`) |
//! | flash | the pool gives memory for the index, then the index gets slots | the index loses slots, then the pool gets the memory |
//! | object buffer | superblock, then slots | blocks sink until all fits, pages move to lower slots, superblock, the file is cut |
//!
//! The size of the object buffer stands in the superblock and holds from then on; the others hold until the next start, which
//! goes by its configuration.
//!
//! Not here: how it is done in each tier (`memory/pool/resize`, `flash/bpe/resize`, `volume/map/resize` in the tier).

use crate::config::{Bytes, Config};
use crate::error::{Error, Result};
use crate::storage::Storage;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace_io::clock::Nanos;
use terrace_io::machine;
use terrace_io::sched::Event;
use terrace_log::Redo as _;
use terrace_tier::flash::bpe::FlashResizeError;
use terrace_tier::memory::pool::{PoolLeft, ResizeError};
use terrace_tier::page::PAGE_SIZE;
use terrace_tier::volume::map::resize::{MoveError, Moved, Mover};

/// What to do about pinned pages.
const PINNED: &str = " (reads and changes that go on pin pages, and transactions that write one each: let them end, or give more memory)";

/// Between two looks, in nanoseconds.
const LOOK: Nanos = 5_000_000;
/// How long tables that were dropped a moment ago are waited for, and how often to look, in nanoseconds.
const DROPS_PATIENCE: Nanos = 1_000_000_000;
const DROPS_REST: Nanos = 10_000_000;

/// What has a size that can be changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Size {
    Memory,
    Flash,
    ObjectBuffer,
}

impl Size {
    /// By the setting's name.
    pub fn named(name: &str) -> Option<Size> {
        [Size::Memory, Size::Flash, Size::ObjectBuffer].into_iter().find(|size| size.name() == name)
    }
    pub fn name(self) -> &'static str {
        match self {
            Size::Memory => "memory",
            Size::Flash => "flash",
            Size::ObjectBuffer => "object_buffer",
        }
    }
}

/// A resize that is under way.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    pub what: Size,
    pub from: Bytes,
    pub to: Bytes,
    /// Bytes that are still to be given up; 0 if it grows.
    pub left: Bytes,
    pub since: Nanos,
}

/// The sizes in force that are not in the superblock, and the resize that is under way.
pub struct Resizing {
    memory: AtomicU64,
    flash: AtomicU64,
    now: Mutex<Option<Progress>>,
    rest: Event,
    /// Pages that moved to lower slots of the volume.
    pub moved: AtomicU64,
}

impl Resizing {
    pub fn new(config: &Config) -> Resizing {
        Resizing {
            memory: AtomicU64::new(config.memory.0),
            flash: AtomicU64::new(config.flash.0),
            now: Mutex::new(None),
            rest: Event::new(),
            moved: AtomicU64::new(0),
        }
    }
    pub fn progress(&self) -> Option<Progress> {
        *self.now.lock()
    }
}

/// Ends the resize in the status, however it ends.
struct ResizeGuard<'a>(&'a Resizing);
impl Drop for ResizeGuard<'_> {
    fn drop(&mut self) {
        *self.0.now.lock() = None;
    }
}

/// Whether to go on waiting: not if the caller stopped it, or nothing has moved for too long.
struct Patience<'a> {
    storage: &'a Storage,
    stop: &'a dyn Fn() -> bool,
    least: u64,
    since: Nanos,
    stopped: bool,
}

impl<'a> Patience<'a> {
    fn new(storage: &'a Storage, stop: &'a dyn Fn() -> bool) -> Patience<'a> {
        Patience { storage, stop, least: u64::MAX, since: storage.world.clock.now(), stopped: false }
    }

    /// `left` bytes are left. Rests a little if `rest` says so.
    fn goes_on(&mut self, left: u64, rest: bool) -> bool {
        let Storage { world, resizing, config, .. } = self.storage;
        if let Some(now) = &mut *resizing.now.lock() {
            now.left = Bytes(left);
        }
        if left < self.least {
            (self.least, self.since) = (left, world.clock.now());
        }
        self.stopped |= (self.stop)() || terrace_io::cancel::asked();
        if rest && !self.stopped {
            world.sched.wait(&resizing.rest, resizing.rest.ticket(), Some(LOOK));
        }
        !self.stopped
            && world.clock.now() - self.since <= config.resize_wait_timeout_ms.saturating_mul(1_000_000)
    }

    fn error(&self, what: String) -> Error {
        if self.stopped { Error::Cancelled } else { Error::Unavailable(what) }
    }
}

impl Storage {
    /// Memory that the engine may use now.
    pub fn memory(&self) -> Bytes {
        Bytes(self.resizing.memory.load(Ordering::Relaxed))
    }
    /// Flash that it may use now.
    pub fn flash_size(&self) -> Bytes {
        Bytes(self.resizing.flash.load(Ordering::Relaxed))
    }
    /// Room for pages on the volume now.
    pub fn object_buffer_size(&self) -> Bytes {
        Bytes(u64::from(self.checkpointer.superblock().slots) * PAGE_SIZE as u64)
    }

    /// The configuration with the sizes in force.
    pub(crate) fn in_force(&self) -> Config {
        Config {
            memory: self.memory(),
            flash: self.flash_size(),
            object_buffer: self.object_buffer_size(),
            ..self.config.clone()
        }
    }

    /// Frames of the pool with these sizes: buffers that were made at the start stay as they were made.
    fn frames_with(&self, config: &Config) -> usize {
        config.budget(&self.config.buffers(self.cold.is_some()), self.map.bytes()).frames_count()
    }

    /// Gives `what` another size (0: its default) and waits until it has it. `stop` is asked every few milliseconds whether to give up; then, and
    /// after any other error, the old size is in force. No latch is held.
    pub fn resize(&self, what: Size, to: Bytes, stop: &dyn Fn() -> bool) -> Result<()> {
        let from = |sizes: &Config| match what {
            Size::Memory => sizes.memory,
            Size::Flash => sizes.flash,
            Size::ObjectBuffer => sizes.object_buffer,
        };
        let to = if to.0 == 0 { from(&Config::default()) } else { to };
        {
            let mut turn = self.resizing.now.lock();
            if let Some(other) = &*turn {
                return Err(Error::Busy(format!(
                    "{} is being changed to {}: one size is changed at a time",
                    other.what.name(),
                    other.to
                )));
            }
            let since = self.world.clock.now();
            *turn = Some(Progress { what, from: from(&self.in_force()), to, left: Bytes(0), since });
        }
        let _turn = ResizeGuard(&self.resizing);
        if what == Size::ObjectBuffer && self.copying.load(Ordering::SeqCst) {
            return Err(Error::Busy(
                "the volume is being copied: object_buffer keeps its size until that is done".into(),
            ));
        }
        // By the sizes in force now that they are locked: a moment ago they may have been others.
        let mut then = self.in_force();
        match what {
            Size::Memory => then.memory = to,
            Size::Flash => then.flash = to,
            Size::ObjectBuffer => then.object_buffer = to,
        }
        if then.memory > self.config.memory_max_bytes() {
            return Err(Error::Invalid(format!(
                "memory = {} is more than memory_max = {}, which counts at the start",
                then.memory,
                self.config.memory_max_bytes()
            )));
        }
        then.check()?;
        // Whole pages: that is what the superblock counts.
        then.object_buffer = Bytes(then.object_buffer.0 / PAGE_SIZE as u64 * PAGE_SIZE as u64);
        match what {
            Size::Memory => self.resize_memory(&then, stop),
            Size::Flash => self.resize_flash(&then, stop),
            Size::ObjectBuffer => self.resize_object_buffer(&then, stop),
        }
    }

    fn resize_pool(&self, to: usize, stop: &dyn Fn() -> bool, what: &str) -> Result<()> {
        let pool = self.pages.pool();
        let (frames, mut patience) = (pool.frames(), Patience::new(self, stop));
        let bytes = |left: PoolLeft| (left.frames * PAGE_SIZE) as u64;
        match pool.resize(to, &mut |left| patience.goes_on(bytes(left), false)) {
            Ok(()) => Ok(()),
            Err(ResizeError::TooMany { max }) => Err(Error::Invalid(format!(
                "{what} asks for {to} pages in memory, and memory_max = {} allows {max}; it counts at the start",
                self.config.memory_max_bytes()
            ))),
            Err(ResizeError::NoMemory) => {
                Err(Error::Invalid(format!("{what} is more than this machine gives")))
            }
            Err(ResizeError::GivenUp(left)) => Err(patience.error(format!(
                "{what} is not in force, the old size is: of {} pages of memory to give up {} are in use, {} of them pinned{}; {} \
                 pages are changed and not flushed",
                frames - to,
                left.frames,
                left.pinned,
                if left.pinned > 0 { PINNED } else { "" },
                pool.dirty_frames()
            ))),
        }
    }

    fn resize_memory(&self, then: &Config, stop: &dyn Fn() -> bool) -> Result<()> {
        if self.cold.is_some() && then.memory < crate::storage::cold::MEMORY_MIN {
            let least = crate::storage::cold::MEMORY_MIN;
            return Err(Error::Invalid(format!(
                "memory = {} is less than {least}, the least with an object store",
                then.memory
            )));
        }
        let more = then.memory.0.saturating_sub(self.memory().0);
        if more > 0 {
            then.check_machine(more, machine::memory_limit())?;
        }
        self.resize_pool(self.frames_with(then), stop, &format!("memory = {}", then.memory))?;
        self.resizing.memory.store(then.memory.0, Ordering::Relaxed);
        Ok(())
    }

    fn resize_flash(&self, then: &Config, stop: &dyn Fn() -> bool) -> Result<()> {
        let name = format!("flash = {}", then.flash);
        let (Some(bpe), Some(disk)) = (&self.bpe, &self.flash) else {
            return Err(Error::Invalid(format!(
                "{name}: this instance was started without flash (flash_path and flash)"
            )));
        };
        let grown = bpe.status().file_bytes;
        let free = disk.free_bytes()?;
        if then.flash > self.flash_size() && then.flash.0.saturating_sub(grown) > free {
            return Err(Error::Invalid(format!(
                "{name}: {} has room for {} more and {} has been used",
                disk.describe(),
                Bytes(free),
                Bytes(grown)
            )));
        }
        let (before, after) = (self.pages.pool().frames(), self.frames_with(then));
        if after < before {
            self.resize_pool(after, stop, &name)?;
        }
        let mut patience = Patience::new(self, stop);
        let resized = bpe.resize(then.flash.0, &mut |left| {
            // A slot that is still written to has nothing left to give but time.
            patience.goes_on(u64::from(left) * PAGE_SIZE as u64, left == 0)
        });
        if let Err(error) = resized {
            if after < before {
                self.resize_pool(before, &|| false, &name)?;
            }
            return Err(match error {
                FlashResizeError::Off(_) => Error::Unavailable(format!("{name}: {error}")),
                FlashResizeError::GivenUp => patience.error(format!("{name} is not in force: {error}")),
                FlashResizeError::Disk(error) => error.into(),
            });
        }
        self.resizing.flash.store(then.flash.0, Ordering::Relaxed);
        if after > before {
            self.resize_pool(after, &|| false, &name)?;
        }
        Ok(())
    }

    fn resize_object_buffer(&self, then: &Config, stop: &dyn Fn() -> bool) -> Result<()> {
        let (from, to) = (self.map.slots_total(), then.slots());
        if to < from {
            let shrunk = self.give_up_slots(from, to, &then.object_buffer, stop);
            self.map.aim_at_slots(u32::MAX);
            return shrunk;
        }
        // Before a page can be there.
        self.checkpointer.write_both(|s| s.slots = to)?;
        self.map.set_slots(to);
        Ok(())
    }

    /// Slots that would be in use or promised if there were only `total`, with what stays free for what must go on.
    fn slots_needed(&self, total: u32) -> u64 {
        let margin = (total / 16).min(256) + (total / 64).clamp(1, 64);
        let promised = self.pages.pool().homeless() + self.pending.pages();
        u64::from(self.map.slots_in_numbers().used) + promised as u64 + u64::from(margin)
    }

    fn give_up_slots(&self, from: u32, to: u32, size: &Bytes, stop: &dyn Fn() -> bool) -> Result<()> {
        let bytes = |slots: u64| slots * PAGE_SIZE as u64;
        let mut patience = Patience::new(self, stop);
        // First all must fit: until then no request is refused.
        loop {
            self.settle_slots()?;
            let needed = self.slots_needed(to);
            if needed <= u64::from(to) {
                break;
            }
            let full = |why: &str| {
                format!(
                    "object_buffer = {size} has room for {to} pages; {needed} are needed on the volume{why}"
                )
            };
            if self.cold.is_none() {
                return Err(Error::Full(full(", and there is no object store to take any")));
            }
            self.map.aim_at_slots(to);
            if !patience.goes_on(bytes(needed), true) {
                let trouble =
                    self.cold.as_ref().and_then(|cold| cold.trouble()).map(|why| format!(": {}", why.text));
                return Err(patience.error(full(&trouble.unwrap_or_default())));
            }
        }
        self.map.set_slots(to);
        let moved = self.move_pages(&mut patience).and_then(|()| {
            // No page is beyond, by records that are durable.
            self.checkpointer.write_both(|s| s.slots = to)
        });
        if let Err(error) = moved {
            self.map.set_slots(from);
            return Err(error);
        }
        self.map.forget_slots();
        self.buffer.shrink(to)?;
        self.map.limit_slots(self.buffer.grown(), false);
        Ok(())
    }

    fn settle_slots(&self) -> Result<()> {
        if let Some(last) = self.dropped_spaces.last() {
            // Tables were dropped a moment ago: purge need not come first. What it has in hand already is waited for.
            self.log.make_durable(last)?;
            let until = self.world.clock.now() + DROPS_PATIENCE;
            while self.dropped_spaces.are_there(last) && self.world.clock.now() < until {
                let freed = self.map.slots_freed.ticket();
                let mine = self.dropped_spaces.take(&*self.log, self.world.clock.now());
                if mine.is_empty() && self.dropped_spaces.are_there(last) {
                    self.world.sched.wait(&self.map.slots_freed, freed, Some(DROPS_REST));
                }
                mine.into_iter().for_each(|space| _ = self.let_space_go(space));
            }
        }
        if self.map.has_pending_slots() {
            self.log.make_durable(self.log.appended())?;
            self.map.settle();
        }
        Ok(())
    }

    fn move_pages(&self, patience: &mut Patience<'_>) -> Result<()> {
        let mut mover = Mover::new(self.map.clone(), self.buffer.clone());
        patience.least = u64::MAX;
        loop {
            let step = mover.step().map_err(|error| match error {
                MoveError::Map(error) => Error::from(error),
                MoveError::Disk(error) => Error::from(error),
                MoveError::Corrupt { .. } => Error::Corrupt(error.to_string()),
            })?;
            if let Moved::Some(pages) = step {
                self.resizing.moved.fetch_add(pages as u64, Ordering::Relaxed);
            }
            if step == Moved::AllDone {
                self.settle_slots()?;
                if self.map.slots_in_numbers().beyond == 0 {
                    return Ok(());
                }
            }
            let beyond = u64::from(self.map.slots_in_numbers().beyond);
            if !patience.goes_on(beyond * PAGE_SIZE as u64, !matches!(step, Moved::Some(_))) {
                return Err(patience.error(format!(
                    "the object buffer keeps its size: {beyond} pages are in slots that are to go"
                )));
            }
        }
    }
}
