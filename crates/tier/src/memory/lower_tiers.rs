//! What memory loads from and gives back to: the tiers below, as the pool sees them.

use crate::address::Home;
use crate::address::ObjectKey;
use crate::address::Tier;
use crate::memory::pool::ScanDirection;
use crate::page::{BadImage, Glsn, PageId};
use terrace_io::clock::Nanos;
use terrace_io::disk::DiskError;
use terrace_io::store::StoreError;

#[derive(Debug, Clone, thiserror::Error)]
pub enum ReadError {
    /// Neither the map nor the log knows the page.
    #[error("page {0} does not exist")]
    Absent(PageId),
    /// `key`: names the object that it is in.
    #[error("page {id} on {tier}{} is corrupt: {bad}", in_object(.key.as_ref()))]
    Corrupt { id: PageId, tier: Tier, key: Option<ObjectKey>, bad: BadImage },
    #[error("redo of page {id} cannot be applied: {cause}")]
    BadRedo { id: PageId, cause: String },
    #[error("page {id} on {tier}: {error}")]
    Disk { id: PageId, tier: Tier, error: DiskError },
    #[error("page {id}: {error}")]
    Store { id: PageId, error: StoreError },
    #[error(
        "no free frame: all {frames} are in use, {dirty} of them dirty, {pinned} held by what goes on just now"
    )]
    NoFrame { frames: usize, dirty: usize, pinned: usize },
    /// See [`terrace_io::cancel`].
    #[error("cancelled")]
    Cancelled,
}

impl ReadError {
    /// The page that is at issue.
    pub fn page(&self) -> Option<PageId> {
        match self {
            ReadError::Absent(id)
            | ReadError::Corrupt { id, .. }
            | ReadError::BadRedo { id, .. }
            | ReadError::Disk { id, .. }
            | ReadError::Store { id, .. } => Some(*id),
            ReadError::NoFrame { .. } | ReadError::Cancelled => None,
        }
    }
}

/// A block may have two objects: which of them it is.
pub(crate) fn in_object(key: Option<&ObjectKey>) -> String {
    key.map_or(String::new(), |key| format!(", in object {key},"))
}

/// For those who wait, before they go on.
pub(crate) fn not_cancelled() -> Result<(), ReadError> {
    if terrace_io::cancel::asked() { Err(ReadError::Cancelled) } else { Ok(()) }
}

/// For those who are about to wait or to do I/O: an error where their work must not.
pub(crate) fn may_wait(what: terrace_io::observe::Wait) -> Result<(), ReadError> {
    if terrace_io::cancel::refuses(what) { Err(ReadError::Cancelled) } else { Ok(()) }
}

/// An image that came from below.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fetched {
    pub from: Tier,
    /// Redo was applied on the way: the page is dirty since here.
    pub first_change: Option<Glsn>,
}

/// Whether there is an image of a page below memory, current or not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ImageBelow {
    Nowhere,
    /// On the volume, or in the spill space.
    InSlot,
    InObject,
}

/// The number of a page's turn.
pub type TurnNo = u64;

pub trait Below: Send + Sync {
    /// Before the page is claimed: how long to wait, in nanoseconds, before this is asked again; 0: it may be fetched now.
    /// A caller that has been given `mine` reports once that it no longer waits, whatever the outcome: [`Below::end_turn`].
    fn turn(&self, id: PageId, mine: &mut Option<TurnNo>) -> Nanos {
        let _ = (id, mine);
        0
    }
    fn end_turn(&self, id: PageId, no: TurnNo) {
        let _ = (id, no);
    }
    /// Fills `image` with the current image of `id`, checked. May wait for I/O.
    fn fetch(&self, id: PageId, image: &mut [u8]) -> Result<Fetched, ReadError>;
    /// Another reader is fetching the page. Where single-flight is left out, what it costs to fetch it again; whatever comes of it is dropped.
    fn fetch_again(&self, id: PageId) {
        let _ = id;
    }
    /// Where the current image of the page is, if the map names one.
    fn home(&self, id: PageId) -> Option<Home> {
        let _ = id;
        None
    }
    /// Whether the image lacks changes, which [`Below::fetch`] adds.
    fn has_pending(&self, id: PageId) -> bool {
        let _ = id;
        false
    }
    /// The pages behind `id`, or before it, that one request brings along with it, the nearest first, at most `max`. None where each
    /// page is a request of its own.
    fn ahead(&self, id: PageId, max: usize, way: ScanDirection) -> Vec<PageId> {
        let _ = (id, max, way);
        Vec::new()
    }
    /// As `fetch`, for a page and those that [`Below::ahead`] named: one result a page, in order.
    fn fetch_run(&self, ids: &[PageId], images: &mut [&mut [u8]]) -> Vec<Result<Fetched, ReadError>> {
        ids.iter().zip(images).map(|(id, image)| self.fetch(*id, image)).collect()
    }
    /// The existing pages of the block from `from` on, among the first `max`, in order, and grouped: the pages that one
    /// request brings stands together, also if some are left out. Each group is for [`Below::fetch_run`].
    fn stretch(&self, from: PageId, max: usize) -> Vec<Vec<PageId>> {
        let _ = (from, max);
        Vec::new()
    }
    /// The pages of its block among the `before` pages before `id` and the `after` behind it that are where it is, so that one request
    /// brings them with it, and itself: in order. None where each page is a request of its own.
    fn beside(&self, id: PageId, before: u32, after: u32) -> Vec<PageId> {
        let _ = (id, before, after);
        Vec::new()
    }
    /// Whether a request for both pages of a block, `next` behind `one`, brings little else: no more than `gap` pages from one to the
    /// other, as their numbers say, or where they are.
    fn are_close(&self, one: PageId, next: PageId, gap: u32) -> bool {
        next.page - one.page <= gap
    }
    /// What there is of the page. Does no I/O.
    fn held(&self, id: PageId) -> ImageBelow {
        let _ = id;
        ImageBelow::InSlot
    }
    /// Whether the page comes from the object store if it is fetched now, as far as can be told. Does no I/O.
    fn is_far(&self, id: PageId) -> bool {
        self.held(id) == ImageBelow::InObject
    }
    /// The page that was fetched with a first change is known dirty now.
    fn admitted(&self, id: PageId) {
        let _ = id;
    }
    /// A clean page that a session has read leaves memory. Never waits. `accesses` counts its uses since it was read,
    /// saturating at 3. `image` may be sealed in place.
    fn evicted(&self, id: PageId, image: &mut [u8], accesses: u8);
}
