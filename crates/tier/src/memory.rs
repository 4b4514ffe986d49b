//! The buffer pool: frames, the page table, eviction, and the mini-transactions that change pages in it.
//!
//! Beside the usual path:
//!
//! * The first use of a frame makes the kernel build a huge page for its group of 128, although the server turned huge pages off (`huge.rs`,
//!   `io/src/reserve.rs`: `Parts::prepare`, `Reserved::take_huge`).
//! * A miss during a scan also reads the pages behind it (before it, in a descending scan); from flash only a few of them (`pool/ahead.rs`,
//!   `read/ahead.rs`: `Pool::claim_ahead`, `ReadPath::run`).
//! * A scan that continues, up or down, is prefetched: the next stretch, up to a run of blocks, by several prefetchers; what flash has of it in
//!   batches of 16 pages (`pool/scans.rs`, `pool/ahead.rs`, `prefetch.rs`, `bpe/find.rs`: `Scans::read`, `Pool::prefetch`, `Bpe::find_many`).
//! * An open cursor pins no page between calls: it remembers its leaf by frame and version, and searches its key again if the page left that frame
//!   or changed (`pages/weak.rs`, `engine/src/tree/cursor`: `Pages::read_weak`, `Pages::is_unchanged`, `Cursor::next`).
//! * Eviction: pages that the store delivered for an optimizer's estimate and that were not read since are admitted to flash, too (`pool/room.rs`:
//!   `Pool::evict_one`).
//! * Eviction: a prefetched page that was never used leaves no trace. While misses spend most of their time in the store, a page that has a slot is
//!   not admitted (`misses.rs`: `Bpe::evicted`).

pub mod evict;
pub mod frame;
pub(crate) mod huge;
pub mod lower_tiers;
pub mod misses;
pub mod mtr;
pub mod pages;
pub mod pool;
pub mod prefetch;
pub(crate) mod queues;
