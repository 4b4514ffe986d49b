//! Streams: where undo records are appended, taken off, walked and freed.

use super::record::{self, RECORD_MAX, Record};
use crate::error::TreeError;
use crate::error::{Error, Result};
use crate::row::RollPtr;
use crate::tree::space::{self, ALLOCATION_FRAMES, Content, Space};
use std::sync::Arc;
use terrace_io::lock::{Mutex, Mutexes};
use terrace_io::observe;
use terrace_io::sched::Event;
use terrace_log::{LsnRange, Urgency, record_bound};
use terrace_tier::memory::mtr::Mtr;
use terrace_tier::memory::pages::Freed;
use terrace_tier::memory::pages::{Pages, Pin};
use terrace_tier::memory::pool::Access;
use terrace_tier::page::{PAGE_SIZE, PageId, PageKind, PageRef, SpaceId};

/// Streams of an instance: at most this many transactions can write at a time. One that has written keeps its stream until it ends, and one that is prepared
/// until it is decided.
pub const STREAMS: usize = 1000;

/// How long a transaction waits for one, in nanoseconds, and after how long it looks whether it was cancelled.
const PATIENCE: u64 = 60_000_000_000;
const LOOK_AGAIN: u64 = 100_000_000;

/// The number of idle streams that keep their last page in memory: those used last.
const KEPT_NEAR: usize = 32;

const DIRECTORY: u32 = 1;
const DIRECTORY_AT: usize = 64;
const DIRECTORY_ENTRY: usize = 16;

const NEXT: usize = 64;
const BEFORE: usize = 68;
const END: usize = 72;
const RECORDS: usize = 80;

/// Bytes of a page's records that a walk copies first, about; then twice as many, and so on.
const PIECE: usize = 512;

/// Log bytes that appending a record of `len` bytes takes, beside the change's own.
pub fn append_log(len: usize) -> u64 {
    record_bound(len + 32)
}
const PAGE_LOG: u64 = 4 * record_bound(128) + 1024;

/// A stream in use: its last page and where the records in it end.
pub struct Stream {
    pub number: usize,
    tail: Pin,
    end: usize,
}

/// An unused stream.
enum Idle {
    /// With its last page.
    Near(Stream),
    /// Where it ends.
    Far { number: usize, end: Mark },
}

impl Idle {
    fn number(&self) -> usize {
        match self {
            Idle::Near(stream) => stream.number,
            Idle::Far { number, .. } => *number,
        }
    }

    fn end(&self) -> Mark {
        match self {
            Idle::Near(stream) => Mark { page: stream.tail.id().page, end: stream.end },
            Idle::Far { end, .. } => *end,
        }
    }
}

/// A place between two records of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mark {
    pub page: u32,
    pub end: usize,
}

/// All streams.
pub struct Streams {
    pages: Arc<Pages>,
    space: Space,
    directory: Pin,
    /// Stays in memory as the directory does: a rollback does not wait for it.
    _header: Pin,
    idle: Mutex<Vec<Idle>, { Mutexes::UndoStreams as u8 }>,
    unused: Mutex<Vec<usize>, { Mutexes::UndoStreams as u8 }>,
    given_back: Event,
}

/// Makes an undo space with its directory, if it is not there: both or neither.
pub fn create(pages: &Arc<Pages>, space: SpaceId) -> Result<()> {
    if pages.exists(PageId::new(space, 0))? {
        return Ok(());
    }
    pages.ask_room(2, space, Urgency::Normal).map_err(TreeError::from)?;
    let mut mtr = pages.begin(1024 + PAGE_LOG, 2, Urgency::Normal).map_err(TreeError::from)?;
    let header = space::create_in(&mut mtr, space, Content::Nothing);
    mtr.page_mut(header).write_u32(space::at::NEXT, DIRECTORY + 1);
    mtr.create(PageId::new(space, DIRECTORY), PageKind::System, 0);
    mtr.commit();
    Ok(())
}

/// What recovery found in one stream: where it begins, and a way to walk it.
pub struct FoundStream {
    pub number: usize,
    pub head: Mark,
}

impl Streams {
    /// Opens the streams. Those that hold something are returned and not idle: the caller walks them
    /// and gives each back.
    pub fn open(pages: &Arc<Pages>, space: SpaceId) -> Result<(Streams, Vec<FoundStream>)> {
        let space = Space::open(pages, space)?;
        let header = pages.load_to_keep(space.page_id(space::HEADER_PAGE), Access::Normal)?;
        let directory = pages.load_to_keep(space.page_id(DIRECTORY), Access::Normal)?;
        if directory.read().page().kind() != PageKind::System as u8 {
            return Err(Error::Corrupt(format!(
                "page {} is not the directory of the undo streams",
                directory.id()
            )));
        }
        let (mut unused, mut found) = (Vec::new(), Vec::new());
        {
            let guard = directory.read();
            for number in (0..STREAMS).rev() {
                let at = DIRECTORY_AT + number * DIRECTORY_ENTRY;
                let page = guard.page().u32(at);
                if page == 0 {
                    unused.push(number);
                } else {
                    found.push(FoundStream {
                        number,
                        head: Mark { page, end: usize::from(guard.page().u16(at + 4)) },
                    });
                }
            }
        }
        let streams = Streams {
            pages: pages.clone(),
            space,
            directory,
            _header: header,
            idle: Mutex::new(Vec::new()),
            unused: Mutex::new(unused),
            given_back: Event::new(),
        };
        Ok((streams, found))
    }

    pub fn pages(&self) -> &Arc<Pages> {
        &self.pages
    }
    pub fn id(&self, page: u32) -> PageId {
        self.space.page_id(page)
    }

    /// A stream to write to. Waits if all are in use.
    pub fn take(&self) -> Result<Stream> {
        let world = self.pages.world();
        let mut deadline = None;
        loop {
            let given_back = self.given_back.ticket();
            let idle = self.idle.lock().pop();
            if let Some(idle) = idle {
                return self.bring(idle);
            }
            let number = self.unused.lock().pop();
            if let Some(number) = number {
                return self.start(number).inspect_err(|_| self.unused.lock().push(number));
            }
            if terrace_io::cancel::refuses(observe::Wait::UndoStream) || terrace_io::cancel::asked() {
                // Another may have been told of a stream by what this one has heard.
                self.given_back.notify_one();
                return Err(Error::Cancelled);
            }
            let now = world.clock.now();
            if now >= *deadline.get_or_insert(now + PATIENCE) {
                return Err(Error::Unavailable(format!(
                    "{STREAMS} transactions have written something and are not ended, and no more can at a time"
                )));
            }
            let _shown = observe::wait(observe::Wait::UndoStream);
            world.sched.wait(&self.given_back, given_back, Some(LOOK_AGAIN));
        }
    }

    fn bring(&self, idle: Idle) -> Result<Stream> {
        match idle {
            Idle::Near(stream) => Ok(stream),
            Idle::Far { number, end } => match self.pages.load(self.id(end.page), Access::Normal) {
                Ok(tail) => Ok(Stream { number, tail, end: end.end }),
                Err(error) => {
                    // Below those that are near: the next one gets another.
                    self.idle.lock().insert(0, Idle::Far { number, end });
                    self.given_back.notify_one();
                    Err(error.into())
                }
            },
        }
    }

    /// Keeps the page of a record in memory, to change the record in place.
    pub fn pin(&self, at: RollPtr) -> Result<Pin> {
        Ok(self.pages.load(self.id(at.page()), Access::Normal)?)
    }

    pub fn give_back(&self, stream: Stream) {
        let mut idle = self.idle.lock();
        idle.push(Idle::Near(stream));
        // The one that has been idle for longest of those that are near.
        let far = idle.len().checked_sub(KEPT_NEAR + 1).map(|at| &mut idle[at]);
        let left = far.map(|far| std::mem::replace(far, Idle::Far { number: far.number(), end: far.end() }));
        drop(idle);
        drop(left);
        self.given_back.notify_one();
    }

    /// While the pool shrinks: the last pages of idle streams move out of its way. Those of the others do when their streams are idle, or
    /// go on to the next page.
    pub fn make_way(&self) {
        let mut idle = self.idle.lock();
        for idle in idle.iter_mut() {
            if let Idle::Near(stream) = idle {
                self.pages.make_way(&mut stream.tail);
            }
        }
    }

    /// The first page of a stream that never had one.
    fn start(&self, number: usize) -> Result<Stream> {
        let ready = self.space.ready(1, Urgency::Normal)?;
        let mut mtr = self.pages.begin(PAGE_LOG, 1 + ALLOCATION_FRAMES, Urgency::Normal)?;
        let directory = mtr.write_pinned(&self.directory);
        let header = ready.latch_header(&mut mtr);
        let page = self.space.allocate(&mut mtr, header, &ready, PageKind::Undo, 0)?;
        mtr.page_mut(page).write_u16(END, RECORDS as u16);
        let first = mtr.id(page).page;
        write_directory(&mut mtr, directory, number, Mark { page: first, end: RECORDS });
        mtr.commit();
        let tail = self.pages.load(self.id(first), Access::Normal)?;
        Ok(Stream { number, tail, end: RECORDS })
    }

    /// Makes room for a record of `len` bytes, in a new page if need be.
    pub fn make_room(&self, stream: &mut Stream, len: usize, urgency: Urgency) -> Result<()> {
        if len > RECORD_MAX {
            return Err(Error::TooLarge { what: "an undo record", len, max: RECORD_MAX });
        }
        if stream.end + len <= PAGE_SIZE {
            return Ok(());
        }
        let ready = self.space.ready(1, urgency)?;
        let mut mtr = self.pages.begin(PAGE_LOG, 1 + ALLOCATION_FRAMES, urgency)?;
        let old = mtr.write_pinned(&stream.tail);
        let header = ready.latch_header(&mut mtr);
        let page = self.space.allocate(&mut mtr, header, &ready, PageKind::Undo, 0)?;
        let number = mtr.id(page).page;
        let before = mtr.id(old).page;
        let mut new = mtr.page_mut(page);
        new.write_u32(BEFORE, before);
        new.write_u16(END, RECORDS as u16);
        mtr.page_mut(old).write_u32(NEXT, number);
        mtr.commit();
        stream.tail = self.pages.load(self.id(number), Access::Normal)?;
        stream.end = RECORDS;
        Ok(())
    }

    pub fn mark(&self, stream: &Stream) -> Mark {
        Mark { page: stream.tail.id().page, end: stream.end }
    }

    /// Frees the pages behind the stream's end page, after records were taken off.
    fn step_back(&self, stream: &mut Stream) -> Result<()> {
        let before = stream.tail.read().page().u32(BEFORE);
        if before == 0 {
            return Err(Error::Corrupt(format!("undo page {} has none before it", stream.tail.id())));
        }
        let previous = self.pages.load(self.id(before), Access::Normal)?;
        let homes = self.space.ready_to_free([stream.tail.id().page])?;
        let mut mtr = self.pages.begin(PAGE_LOG, 0, Urgency::Reserve)?;
        let old = mtr.write_pinned(&previous);
        let page = mtr.write_pinned(&stream.tail);
        let header = homes.latch_header(&mut mtr);
        mtr.page_mut(old).write_u32(NEXT, 0);
        self.space.free(&mut mtr, header, page, &homes);
        let range = mtr.commit();
        stream.end = usize::from(previous.read().page().u16(END));
        self.let_go(std::mem::replace(&mut stream.tail, previous), range);
        Ok(())
    }

    /// Goes back to the page on which `at` is, before the record there is undone. All records behind
    /// that page's have been taken off.
    pub fn back_to(&self, stream: &mut Stream, at: RollPtr) -> Result<()> {
        while stream.tail.id().page != at.page() {
            if stream.end != RECORDS {
                return Err(Error::Corrupt(format!(
                    "undo stream {} goes on behind record {at:?}",
                    stream.number
                )));
            }
            self.step_back(stream)?;
        }
        Ok(())
    }

    /// Reads one record; None if there is none at that place (any more).
    pub fn read<R>(&self, at: RollPtr, with: impl FnOnce(Record<'_>) -> R) -> Result<Option<R>> {
        let guard = match self.pages.read(self.id(at.page()), Access::Normal) {
            Ok(guard) => guard,
            Err(terrace_tier::memory::lower_tiers::ReadError::Absent(_)) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let page = guard.page();
        let end = usize::from(page.u16(END));
        if page.kind() != PageKind::Undo as u8 || at.at() < RECORDS || at.at() >= end {
            return Ok(None);
        }
        Ok(record::decode(page.bytes(at.at(), end - at.at())).map(|(record, _)| with(record)))
    }

    /// Whether the page of this place is in memory.
    pub fn is_near(&self, at: Mark) -> bool {
        self.pages.try_read(self.id(at.page), Access::Internal).is_some()
    }

    /// Walks the records from `from` on, at most to `to`. `each` says whether to go on. Returns where
    /// it stopped.
    pub fn walk(
        &self,
        from: Mark,
        to: Option<Mark>,
        mut each: impl FnMut(RollPtr, Record<'_>) -> Result<bool>,
    ) -> Result<Mark> {
        let (mut at, mut piece) = (from, PIECE);
        loop {
            // Records are copied, so that `each` may do what it likes: a few at first, for callers that want few of a page.
            let (bytes, is_all, next) = {
                let guard = self.pages.read(self.id(at.page), Access::Internal)?;
                let page = guard.page();
                if page.kind() != PageKind::Undo as u8 {
                    return Err(Error::Corrupt(format!("page {} is not an undo page", self.id(at.page))));
                }
                let end = usize::from(page.u16(END));
                let bytes = page.bytes(at.end, end.saturating_sub(at.end));
                let len = record::whole(bytes, piece);
                (bytes[..len].to_vec(), len == bytes.len(), page.u32(NEXT))
            };
            let start = at.end;
            while at.end - start < bytes.len() {
                if Some(at) == to {
                    return Ok(at);
                }
                let Some((record, len)) = record::decode(&bytes[at.end - start..]) else {
                    return Err(Error::Corrupt(format!("undo record at {}:{}", self.id(at.page), at.end)));
                };
                if !each(RollPtr::new(at.page, at.end as u16), record)? {
                    return Ok(at);
                }
                at.end += len;
            }
            if !is_all {
                piece *= 2;
                continue;
            }
            if Some(at) == to || next == 0 {
                return Ok(at);
            }
            at = Mark { page: next, end: RECORDS };
        }
    }

    /// A stream that recovery found, positioned at its end.
    ///
    /// Every page is checked on the way: each names the one before it, and the first names none. So the
    /// chain has an end.
    pub fn at_end(&self, found: &FoundStream) -> Result<Stream> {
        let (mut page, mut before) = (found.head.page, 0);
        loop {
            let pin = self.pages.load(self.id(page), Access::Normal)?;
            let (next, end, links_back, is_undo) = {
                let guard = pin.read();
                let read = guard.page();
                let is_undo = read.kind() == PageKind::Undo as u8;
                (read.u32(NEXT), usize::from(read.u16(END)), read.u32(BEFORE) == before, is_undo)
            };
            let from = if before == 0 { found.head.end } else { RECORDS };
            if !is_undo || !links_back || from < RECORDS || end < from || end > PAGE_SIZE {
                let number = found.number;
                return Err(Error::Corrupt(format!(
                    "page {} is not the next of undo stream {number}",
                    self.id(page)
                )));
            }
            if next == 0 {
                return Ok(Stream { number: found.number, tail: pin, end });
            }
            (before, page) = (page, next);
        }
    }

    /// The stream before `upto` is not needed any more: frees the pages before it.
    pub fn forget_before(&self, number: usize, upto: Mark) -> Result<()> {
        loop {
            let at = DIRECTORY_AT + number * DIRECTORY_ENTRY;
            let first = self.directory.read().page().u32(at);
            if first == upto.page {
                let mut mtr = self.pages.begin(PAGE_LOG, 0, Urgency::Reserve)?;
                let directory = mtr.write_pinned(&self.directory);
                write_directory(&mut mtr, directory, number, upto);
                mtr.commit();
                return Ok(());
            }
            let pin = self.pages.load(self.id(first), Access::Internal)?;
            let next = pin.read().page().u32(NEXT);
            if next == 0 {
                return Err(Error::Corrupt(format!("undo stream {number} ends before {upto:?}")));
            }
            let successor = self.pages.load(self.id(next), Access::Internal)?;
            let homes = self.space.ready_to_free([first])?;
            let mut mtr = self.pages.begin(PAGE_LOG, 0, Urgency::Reserve)?;
            let page = mtr.write_pinned(&pin);
            let after = mtr.write_pinned(&successor);
            let directory = mtr.write_pinned(&self.directory);
            let header = homes.latch_header(&mut mtr);
            mtr.page_mut(after).write_u32(BEFORE, 0);
            write_directory(&mut mtr, directory, number, Mark { page: next, end: RECORDS });
            self.space.free(&mut mtr, header, page, &homes);
            let range = mtr.commit();
            self.let_go(pin, range);
        }
    }

    /// A page was freed by a mini-transaction with this range: it keeps no slot. A reader that still searches for a record there finds none.
    fn let_go(&self, page: Pin, range: LsnRange) {
        if !self.space.id().is_temporary() {
            self.pages.freed(&[Freed::Here { pin: page, lsn: range.end }], range);
        }
    }

    /// Rewinds an idle stream of one page whose records are not needed, so that it does not grow.
    pub fn rewind(&self, number: usize, upto: Mark) -> Result<()> {
        let found = {
            let mut idle = self.idle.lock();
            let at =
                idle.iter().position(|s| s.number() == number && s.end() == upto && upto.end > PAGE_SIZE / 2);
            at.map(|i| idle.remove(i))
        };
        let Some(found) = found else { return Ok(()) };
        let mut stream = self.bring(found)?;
        let done = self.rewind_to(&mut stream, upto.page);
        self.give_back(stream);
        done
    }

    fn rewind_to(&self, stream: &mut Stream, page: u32) -> Result<()> {
        let mut mtr = self.pages.begin(PAGE_LOG, 0, Urgency::Reserve)?;
        let tail = mtr.write_pinned(&stream.tail);
        let directory = mtr.write_pinned(&self.directory);
        mtr.page_mut(tail).write_u16(END, RECORDS as u16);
        write_directory(&mut mtr, directory, stream.number, Mark { page, end: RECORDS });
        mtr.commit();
        stream.end = RECORDS;
        Ok(())
    }
}

fn write_directory(
    mtr: &mut Mtr<'_>,
    directory: terrace_tier::memory::mtr::PageNo,
    number: usize,
    mark: Mark,
) {
    let at = DIRECTORY_AT + number * DIRECTORY_ENTRY;
    let mut bytes = [0; 6];
    bytes[..4].copy_from_slice(&mark.page.to_le_bytes());
    bytes[4..].copy_from_slice(&(mark.end as u16).to_le_bytes());
    mtr.page_mut(directory).write(at, &bytes);
}

impl Stream {
    /// Where the next record will be. Room was made.
    pub fn next(&self) -> RollPtr {
        RollPtr::new(self.tail.id().page, self.end as u16)
    }

    /// Writes a record at the end, in a change's mini-transaction; counted by [`Stream::appended`]
    /// once that is committed.
    pub fn append(&self, mtr: &mut Mtr<'_>, record: &[u8]) {
        let tail = mtr.write_pinned(&self.tail);
        let mut page = mtr.page_mut(tail);
        page.write(self.end, record);
        page.write_u16(END, (self.end + record.len()) as u16);
    }

    pub fn appended(&mut self, len: usize) {
        self.end += len;
    }

    /// Takes the last record off, in the mini-transaction that undoes it.
    pub fn take_off(&self, mtr: &mut Mtr<'_>, at: RollPtr) {
        assert_eq!(self.tail.id().page, at.page());
        let tail = mtr.write_pinned(&self.tail);
        mtr.page_mut(tail).write_u16(END, at.at() as u16);
    }

    pub fn taken_off(&mut self, at: RollPtr) {
        self.end = at.at();
    }

    /// The page that a Begin record of this transaction is on, if it is the last one.
    pub fn tail(&self) -> &Pin {
        &self.tail
    }

    /// Writes a Begin record's state in place. `page` holds the record.
    pub fn write_state(mtr: &mut Mtr<'_>, page: &Pin, at: RollPtr, state: record::TxnStatus, csn: u64) {
        let no = mtr.write_pinned(page);
        mtr.page_mut(no).write(at.at() + record::STATE_AT, &record::encode_state(state, csn));
    }

    /// Notes in a Load record that its tree is published. `page` holds the record.
    pub fn write_published(mtr: &mut Mtr<'_>, page: &Pin, at: RollPtr) {
        let no = mtr.write_pinned(page);
        mtr.page_mut(no).write_u8(at.at() + record::PUBLISHED_AT, 1);
    }

    /// Writes how many page numbers an Extent record still has. `page` holds the record.
    pub fn write_count(mtr: &mut Mtr<'_>, page: &Pin, at: RollPtr, count: u32) {
        let no = mtr.write_pinned(page);
        mtr.page_mut(no).write_u32(at.at() + record::COUNT_AT, count);
    }
}

// --- for the checker, which reads pages itself ------------------------------------------------

/// Where the directory is.
pub(crate) const DIRECTORY_PAGE: u32 = DIRECTORY;

/// Where each stream that has pages begins, by the directory's page.
pub(crate) fn heads(directory: PageRef<'_>) -> Vec<(usize, Mark)> {
    let head = |number: usize| {
        let at = DIRECTORY_AT + number * DIRECTORY_ENTRY;
        Mark { page: directory.u32(at), end: usize::from(directory.u16(at + 4)) }
    };
    (0..STREAMS).map(|number| (number, head(number))).filter(|(_, head)| head.page != 0).collect()
}

/// The bytes of a page's records, up to their end, and where in the page they begin. None: the page says nothing sensible.
pub(crate) fn records(page: PageRef<'_>) -> Option<(usize, &[u8])> {
    let end = usize::from(page.u16(END));
    let sensible = page.kind() == PageKind::Undo as u8 && (RECORDS..=PAGE_SIZE).contains(&end);
    sensible.then(|| (RECORDS, page.bytes(RECORDS, end - RECORDS)))
}

/// The pages before and after this one, 0 if none.
pub(crate) fn neighbours(page: PageRef<'_>) -> (u32, u32) {
    (page.u32(BEFORE), page.u32(NEXT))
}
