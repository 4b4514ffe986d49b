//! What can go wrong in a space or a tree.

use terrace_tier::memory::lower_tiers::ReadError;
use terrace_tier::memory::mtr::MtrError;
use terrace_tier::page::{PageId, SpaceId};

#[derive(Debug, Clone, thiserror::Error)]
pub enum TreeError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Mtr(#[from] MtrError),
    /// The bytes are intact, but not what their place in the structure asks for.
    #[error("page {page} is corrupt: {what}")]
    Corrupt { page: PageId, what: &'static str },
    #[error("a key of {len} bytes; at most {max}")]
    KeyTooLong { len: usize, max: usize },
    #[error("a key and value of {len} bytes; at most {max} without overflow pages")]
    EntryTooLarge { len: usize, max: usize },
    #[error("space {0} has used all its page numbers")]
    SpaceFull(SpaceId),
    /// A crash has left a part of a large value without its bytes: its transaction was not committed, and is going back.
    #[error("page {page} is corrupt: its part of a large value was lost in a crash")]
    Hollow { page: PageId },
    /// A large value was freed since its reference was read.
    #[error("page {page} belongs to another value now")]
    Gone { page: PageId },
    /// A bulk build was given keys that do not ascend, or a tree that is not empty.
    #[error("bulk build: {0}")]
    Bulk(&'static str),
}

impl TreeError {
    /// No tier has the page, nor has the log. For a tree's page whose number was carried without a latch: it was freed meanwhile, and let go of.
    pub(crate) fn is_absent(&self) -> bool {
        matches!(self, TreeError::Read(ReadError::Absent(_)))
    }

    /// The page that could not be read.
    pub fn page(&self) -> Option<PageId> {
        match self {
            TreeError::Read(error) => error.page(),
            _ => None,
        }
    }
}

pub type Result<T> = std::result::Result<T, TreeError>;
