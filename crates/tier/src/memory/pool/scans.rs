//! Continuing scans: the pages that a scan will read next, judging by its history, are fetched before it reaches them.
//!
//! A miss during a scan reads the next pages along (`ahead`) and begins a stream: the scan's last known page, and where the next
//! stretch begins. The middle of each stretch is its mark. When the scan passes the mark, the next stretch is requested, twice as
//! long as the one before, up to a run of blocks or the number of frames kept free. So one stretch is being fetched while the one
//! before is read, however fast the scan is, and a scan that ends early has cost little. A stretch is requested in pieces, which
//! several prefetchers fetch in parallel. Pages are fetched like any others: by one loader, with a claim.
//!
//! A scan goes up or down. For a descending scan, pages are counted from the highest page number downwards; all else is the same.
//!
//! A slow scan may find that prefetched pages were evicted before it reached them: other pages came meanwhile, the rows of an index's entries say. It
//! would fetch each stretch twice, and evict what others use. So if requested pages are missed the stretches of their stream are halved, and each
//! stretch lets them grow by an eighth again. A single page that is missed among others that came doesn't count: it is in another object than they.
//!
//! A stream is forgotten when enough others have begun since and it has not continued.
//!
//! Locks: `streams` and `queue`, for memory work only.

use super::ScanDirection;
use crate::memory::prefetch::PREFETCH_MAX;
use crate::page::{BLOCK_PAGES, PageId, SpaceId};
use crate::sync::{Mutex, Mutexes};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use terrace_io::sched::Event;

/// Number of scans that are followed at a time.
const STREAMS: usize = 16;
/// Maximum number of pages of a stretch: a block, or a run of four if there is memory for it.
const STRETCH_MAX: (u32, u32) = (BLOCK_PAGES, 4 * BLOCK_PAGES);
/// Maximum number of pages of a piece: no piece needs a second request, or extends into the next block.
const PIECE: u32 = PREFETCH_MAX as u32;
/// Maximum number of requested pieces that no prefetcher has begun; further ones are refused.
const QUEUE_MAX: usize = 64;
/// Matches no page.
const NO_MARK: u64 = 0;

/// Pages to be fetched: `count` pages from `from` on, up or down, as far as they exist.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stretch {
    pub from: PageId,
    pub count: u32,
    pub way: ScanDirection,
}

impl Stretch {
    /// The same pages, in the same order, split into pieces.
    fn pieces(self) -> impl Iterator<Item = Stretch> {
        let Stretch { from, count, way } = self;
        let first = along(way, from.page);
        let mut done = 0;
        std::iter::from_fn(move || {
            let at = first.checked_add(done).filter(|_| done < count)?;
            let piece = (PIECE - at % PIECE).min(count - done);
            done += piece;
            Some(Stretch { from: PageId::new(from.space, along(way, at)), count: piece, way })
        })
    }
}

/// A page's distance from where all scans in this direction begin; its own inverse.
fn along(way: ScanDirection, page: u32) -> u32 {
    match way {
        ScanDirection::Up => page,
        ScanDirection::Down => u32::MAX - page,
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Stream {
    space: SpaceId,
    way: ScanDirection,
    /// The first page not yet requested, as [`along`] the direction.
    next: u32,
    /// Pages of the last stretch.
    length: u32,
    /// Maximum number of pages of a stretch.
    limit: u32,
}

/// The streams as a pure structure: which scans pass a mark and what is requested then.
#[derive(Default)]
struct Streams {
    all: [Option<Stream>; STREAMS],
    /// The index of the stream that began last.
    last: usize,
}

impl Streams {
    /// A scan missed `from` and fetches `count` pages from there on itself; `alone` means that the page after `from` is in memory. Returns the
    /// stream's index and mark.
    fn missed(&mut self, from: PageId, count: u32, way: ScanDirection, alone: bool) -> (usize, PageId) {
        let (space, first) = (from.space, along(way, from.page));
        let next = first.saturating_add(count);
        let known = self.all.iter().position(|one| {
            one.is_some_and(|one| {
                // Behind the mark there are two stretches, the first at most as long as the second.
                (one.space, one.way) == (space, way)
                    && first <= one.next
                    && one.next - first <= 2 * one.length
            })
        });
        let (place, length, limit) = match known.and_then(|place| Some((place, self.all[place]?))) {
            // The page was requested, and is not in memory: it was evicted, or no frame was free for it.
            Some((place, one)) if first < one.next && !alone => {
                let limit = (one.length.min(one.limit) / 2).max(count);
                (place, limit.min(one.length), limit)
            }
            // The scan has passed what was prefetched for it, or reads a page in another object: its stretches continue from its position.
            Some((place, one)) => (place, one.length.max(count), one.limit),
            None => {
                self.last = (self.last + 1) % STREAMS;
                (self.last, count, u32::MAX)
            }
        };
        self.all[place] = Some(Stream { space, way, next, length, limit });
        (place, PageId::new(space, along(way, first.saturating_add(count / 2))))
    }

    /// The scan of the stream with this index has reached its mark. Returns what to fetch, at most `most` pages, and the next
    /// mark.
    fn passed(&mut self, place: usize, most: u32) -> Option<(Stretch, PageId)> {
        let one = self.all[place].as_mut()?;
        // The last stretch of a descending scan ends before page 0, a space's header.
        let there = u32::MAX - one.next;
        let count = (2 * one.length).min(most).min(one.limit);
        one.limit = one.limit.saturating_add(one.limit / 8);
        let count = if one.way == ScanDirection::Down { count.min(there) } else { count };
        if count == 0 {
            return None;
        }
        let (way, first) = (one.way, one.next);
        (one.next, one.length) = (first.checked_add(count)?, count);
        let at = |page| PageId::new(one.space, along(way, page));
        Some((Stretch { from: at(first), count, way }, at(first + count / 2)))
    }
}

pub(crate) struct Scans {
    streams: Mutex<Streams, { Mutexes::PoolScans as u8 }>,
    /// The mark of each stream, and the number of marks: read for each page of a scan, without the lock.
    marks: [AtomicU64; STREAMS],
    marked: AtomicUsize,
    queue: Mutex<VecDeque<Stretch>, { Mutexes::PoolScans as u8 }>,
    /// Maximum number of pages of a stretch.
    stretch_max: AtomicU32,
    /// A piece of a stretch is to be fetched.
    pub wanted: Arc<Event>,
}

fn packed(id: PageId) -> u64 {
    u64::from(id.space.0) << 32 | u64::from(id.page)
}

impl Scans {
    /// For a pool that keeps `kept_free` frames free ahead of need.
    pub fn new(kept_free: usize) -> Scans {
        let scans = Scans {
            streams: Mutex::default(),
            marks: std::array::from_fn(|_| AtomicU64::new(NO_MARK)),
            marked: AtomicUsize::new(0),
            queue: Mutex::default(),
            stretch_max: AtomicU32::new(0),
            wanted: Arc::default(),
        };
        scans.resize(kept_free);
        scans
    }

    /// Sets how many pages a stretch may have: as many as the pool has free frames for when scans are the only readers.
    pub fn resize(&self, kept_free: usize) {
        let (least, most) = STRETCH_MAX;
        self.stretch_max.store((kept_free as u32).clamp(least, most), Ordering::Relaxed);
    }

    fn set_mark(&self, place: usize, mark: u64) {
        let before = self.marks[place].swap(mark, Ordering::Relaxed);
        match (before, mark) {
            (NO_MARK, NO_MARK) => {}
            (NO_MARK, _) => _ = self.marked.fetch_add(1, Ordering::Relaxed),
            (_, NO_MARK) => _ = self.marked.fetch_sub(1, Ordering::Relaxed),
            _ => {}
        }
    }

    /// A scan that missed `from` fetches `count` pages from there on. `alone`: the page after `from` is in memory.
    pub fn missed(&self, from: PageId, count: u32, way: ScanDirection, alone: bool) {
        let mut streams = self.streams.lock();
        let (place, mark) = streams.missed(from, count, way, alone);
        self.set_mark(place, packed(mark));
    }

    /// A scan reads this page, which is in memory.
    #[inline]
    pub fn read(&self, id: PageId) {
        if self.marked.load(Ordering::Relaxed) > 0 {
            self.look(packed(id));
        }
    }

    fn look(&self, id: u64) {
        let Some(place) = self.marks.iter().position(|mark| mark.load(Ordering::Relaxed) == id) else {
            return;
        };
        // If several threads pass at the same time, one of them continues.
        if self.marks[place].compare_exchange(id, NO_MARK, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            return;
        }
        self.marked.fetch_sub(1, Ordering::Relaxed);
        // All streams share the frames that are kept free.
        let among = 1 + self.marked.load(Ordering::Relaxed) as u32;
        let most = (self.stretch_max.load(Ordering::Relaxed) / among).max(STRETCH_MAX.0);
        let mut streams = self.streams.lock();
        let Some((stretch, mark)) = streams.passed(place, most) else { return };
        self.set_mark(place, packed(mark));
        drop(streams);
        stretch.pieces().all(|piece| self.ask(piece));
    }

    /// Hands pages to a prefetcher. Returns false if too many requests are queued already.
    pub fn ask(&self, stretch: Stretch) -> bool {
        let mut queue = self.queue.lock();
        if queue.len() >= QUEUE_MAX {
            return false;
        }
        queue.push_back(stretch);
        drop(queue);
        self.wanted.notify_one();
        true
    }

    pub fn take(&self) -> Option<Stretch> {
        self.queue.lock().pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    const SPACE: SpaceId = SpaceId(20);

    fn page(n: u32) -> PageId {
        PageId::new(SPACE, n)
    }

    fn up(from: PageId, count: u32) -> Stretch {
        Stretch { from, count, way: ScanDirection::Up }
    }

    /// Streams that request at most a block.
    fn in_little_memory() -> Scans {
        Scans::new(0)
    }

    /// The next stretch requested, its pieces joined.
    fn take_whole(scans: &Scans) -> Option<Stretch> {
        let mut whole = scans.take()?;
        while let Some(piece) = scans.take() {
            assert_eq!(
                (along(piece.way, piece.from.page), piece.way),
                (along(whole.way, whole.from.page) + whole.count, whole.way),
                "pieces join"
            );
            assert_eq!(along(piece.way, piece.from.page) % PIECE, 0);
            whole.count += piece.count;
        }
        Some(whole)
    }

    /// The requests of a scan of pages `0..upto` that misses pages not requested: each with the page at which it was made.
    fn scan(scans: &Scans, upto: u32) -> Vec<(u32, Stretch)> {
        let (mut there, mut asked) = (0, Vec::new());
        for n in 0..upto {
            if n < there {
                scans.read(page(n));
            } else {
                scans.missed(page(n), 32, ScanDirection::Up, false);
                there = n + 32;
            }
            while let Some(stretch) = take_whole(scans) {
                assert_eq!(stretch.from, page(there), "stretches join");
                there += stretch.count;
                asked.push((n, stretch));
            }
        }
        asked
    }

    #[test]
    fn a_scan_that_goes_on_is_a_stretch_ahead_and_stretches_grow_to_a_block() {
        let asked = scan(&in_little_memory(), 1000);
        let lengths: Vec<u32> = asked.iter().map(|(_, stretch)| stretch.count).collect();
        assert_eq!(lengths[..3], [64, 128, 128]);
        for (at, stretch) in asked {
            assert!(stretch.from.page > at + 15, "page {at} asks for what it is at: {stretch:?}");
        }
    }

    #[test]
    fn where_there_is_memory_stretches_grow_to_a_run_of_blocks_in_pieces_of_a_request() {
        for (kept_free, most) in [(100, 128), (300, 300), (5000, 512)] {
            let asked = scan(&Scans::new(kept_free), 4000);
            let lengths: Vec<u32> = asked.iter().map(|(_, stretch)| stretch.count).collect();
            assert_eq!((&lengths[..2], lengths.iter().max()), (&[64, 128][..], Some(&most)));
        }
        let scans = Scans::new(300);
        scans.missed(page(10), 32, ScanDirection::Up, false);
        scans.read(page(26));
        let piece = |from, count| Some(Stretch { from: page(from), count, way: ScanDirection::Up });
        assert_eq!([scans.take(), scans.take(), scans.take()], [piece(42, 22), piece(64, 42), None]);
        scans.resize(0);
        scans.read(page(74));
        assert_eq!(
            [scans.take(), scans.take(), scans.take(), scans.take()],
            [piece(106, 22), piece(128, 64), piece(192, 42), None]
        );
    }

    #[test]
    fn several_scans_share_what_one_would_have_ahead() {
        for (others, most) in [(0, 512), (1, 256), (3, 128), (10, 128)] {
            let scans = Scans::new(5000);
            (0..others).for_each(|n| scans.missed(page(100_000 * (n + 1)), 32, ScanDirection::Up, false));
            let asked = scan(&scans, 4000);
            assert_eq!(asked.iter().map(|(_, stretch)| stretch.count).max(), Some(most), "{others} others");
        }
    }

    #[test]
    fn a_scan_that_ends_early_asks_for_nothing() {
        assert!(scan(&in_little_memory(), 16).is_empty());
    }

    #[test]
    fn parallel_scans_have_their_own_streams_and_a_lost_one_restarts() {
        let scans = in_little_memory();
        for n in 0..STREAMS as u32 + 1 {
            scans.missed(page(n * 10_000), 32, ScanDirection::Up, false);
        }
        scans.read(page(16)); // the first one's: forgotten
        assert_eq!(scans.take(), None);
        for n in 1..STREAMS as u32 + 1 {
            scans.read(page(n * 10_000 + 16));
            assert_eq!(take_whole(&scans), Some(up(page(n * 10_000 + 32), 64)));
            scans.read(page(n * 10_000 + 16)); // by another scan: once is enough
            assert_eq!(scans.take(), None);
        }
    }

    #[test]
    fn a_scan_that_outruns_its_stretches_goes_on_from_its_position() {
        let scans = in_little_memory();
        scans.missed(page(0), 32, ScanDirection::Up, false);
        scans.read(page(16));
        assert_eq!(take_whole(&scans), Some(up(page(32), 64)));
        // It was faster than the prefetchers' frames came: it misses the first page that was not requested.
        scans.missed(page(96), 32, ScanDirection::Up, false);
        scans.read(page(112));
        assert_eq!(take_whole(&scans), Some(up(page(128), 128)));
        // The stretch was not fetched, for want of frames: it misses the first page of it.
        scans.missed(page(128), 32, ScanDirection::Up, false);
        scans.read(page(144));
        assert_eq!(take_whole(&scans), Some(up(page(160), 64)));
        assert!(scans.streams.lock().all.iter().flatten().count() == 1);
    }

    /// A scan beside other reads, which evict a page after the scan has read `lasts` further pages. Returns the number of pages
    /// that are fetched for it.
    fn fetched_for_slow(scans: &Scans, pages: u32, lasts: u32) -> usize {
        let mut came = HashMap::new();
        let mut fetched = 0;
        for n in 0..pages {
            let stays = came.get(&n).is_some_and(|at| n - at < lasts);
            let mut fetch = |from: u32, count: u32| {
                let new = (from..from + count)
                    .filter(|page| came.get(page).is_none_or(|at| n - at >= lasts))
                    .collect::<Vec<_>>();
                fetched += new.len();
                came.extend(new.into_iter().map(|page| (page, n)));
            };
            if stays {
                scans.read(page(n));
            } else {
                fetch(n, 16);
                scans.missed(page(n), 16, ScanDirection::Up, false);
            }
            while let Some(Stretch { from, count, .. }) = scans.take() {
                fetch(from.page, count);
            }
        }
        fetched
    }

    #[test]
    fn a_page_that_is_missed_among_others_that_came_makes_stretches_no_shorter() {
        let scans = in_little_memory();
        scans.missed(page(0), 32, ScanDirection::Up, false);
        scans.read(page(16));
        assert_eq!(take_whole(&scans), Some(up(page(32), 64)));
        scans.missed(page(40), 20, ScanDirection::Up, true);
        scans.read(page(50));
        assert_eq!(take_whole(&scans), Some(up(page(60), 128)));
    }

    #[test]
    fn a_slow_scan_whose_prefetched_pages_are_evicted_asks_for_fewer() {
        for lasts in [20, 40, 80, 160] {
            let fetched = fetched_for_slow(&Scans::new(400), 3000, lasts);
            assert!(
                (3000..4000).contains(&fetched),
                "{fetched} pages were fetched where each lasts for {lasts}"
            );
        }
    }

    #[test]
    fn no_read_goes_beyond_the_last_page_number() {
        let scans = in_little_memory();
        scans.missed(page(u32::MAX - 40), 32, ScanDirection::Up, false);
        scans.read(page(u32::MAX - 24));
        assert_eq!(scans.take(), None);
    }

    /// The same as `scan`, from page `last` down to 1.
    #[test]
    fn a_scan_down_is_a_stretch_ahead_too_and_ends_before_the_header() {
        let (scans, last) = (in_little_memory(), 700);
        let (mut there, mut lengths) = (last + 1, Vec::new());
        for n in (1..=last).rev() {
            if n >= there {
                scans.read(page(n));
            } else {
                assert_eq!(n, last, "page {n} was not asked for in time");
                scans.missed(page(n), 32, ScanDirection::Down, false);
                there = n - 31;
            }
            while let Some(Stretch { from, count, way }) = take_whole(&scans) {
                assert_eq!((from, way), (page(there - 1), ScanDirection::Down), "stretches join");
                assert!(n > from.page + 15 || from.page < 16, "page {n} asks for what it is at: {from:?}");
                there -= count;
                lengths.push(count);
            }
        }
        assert_eq!((there, &lengths[..3]), (1, &[64, 128, 128][..]));
    }

    #[test]
    fn scans_up_and_down_of_the_same_pages_are_two() {
        let scans = in_little_memory();
        scans.missed(page(100), 32, ScanDirection::Up, false);
        scans.missed(page(131), 32, ScanDirection::Down, false);
        scans.read(page(116));
        assert_eq!(take_whole(&scans), Some(up(page(132), 64)));
        scans.read(page(115));
        assert_eq!(take_whole(&scans), Some(Stretch { from: page(99), count: 64, way: ScanDirection::Down }));
    }
}
