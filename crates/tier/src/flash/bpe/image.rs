//! A page's image proves itself: by its checksum, its page number and its tag.

use crate::flash::key::{Key, Validity, Verdict, mark};
use crate::page::{self, BadImage, PageId, PageRef, Tag};

impl Key for PageId {
    #[inline]
    fn spread(self) -> u64 {
        page::spread(self)
    }
}

/// What the buffer pool extension holds.
pub(super) struct PageImages;

impl Validity for PageImages {
    type Key = PageId;
    type Version = Tag;

    #[inline]
    fn check(image: &[u8], id: PageId, expected: Option<Tag>) -> Verdict {
        match page::check(image, id, expected) {
            Ok(()) => Verdict::Current,
            Err(BadImage::Name { .. }) => Verdict::OtherKey { mark: mark(PageRef::new(image).id()) },
            Err(BadImage::Tag { .. }) => Verdict::OtherVersion,
            Err(_) => Verdict::Corrupt,
        }
    }
}
