//! Which pages the large values have that a change drops: noted in its undo record, so that purge need not read them for that.
//!
//! The space that they are in, for the table may have another by the time it is purged; then their runs, in the order of
//! [`Change::larges_dropped`](super::record::Change::larges_dropped).

use crate::tree::overflow::{Large, runs};
use terrace_log::varint::{self, Numbers};
use terrace_tier::page::SpaceId;

/// The most bytes of a list; the pages of a value that does not fit any more are not known.
pub const CHAINS_MAX: usize = 1024;
/// What a space takes in it.
const SPACE_MAX: usize = 5;

/// The list, empty if none of the values, which are in `space`, is known.
pub fn append<'a>(
    space: SpaceId,
    values: impl ExactSizeIterator<Item = (Large, &'a [u32])>,
    out: &mut Vec<u8>,
) {
    let start = out.len();
    let mut numbers = Numbers::<SPACE_MAX>::new();
    numbers.put(u64::from(space.0));
    out.extend_from_slice(numbers.bytes());
    let empty = out.len();
    runs::append(values, CHAINS_MAX - SPACE_MAX, out);
    if out.len() == empty {
        out.truncate(start);
    }
}

/// The pages of each value, none of one that is not known. None: they are not in `space`, or the list makes no sense.
pub fn decode(space: SpaceId, larges: &[Large], mut list: &[u8]) -> Option<Vec<Vec<u32>>> {
    let list = &mut list;
    if varint::take(list).ok()? != u64::from(space.0) {
        return None;
    }
    runs::decode(larges, list)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_of_its_space() {
        let large = Large { page: 9, len: 1, serial: 5 };
        for space in [SpaceId(3), SpaceId(300), SpaceId(u32::MAX)] {
            let mut out = Vec::new();
            append(space, [(large, &[9][..])].into_iter(), &mut out);
            assert_eq!(decode(space, &[large], &out), Some(vec![vec![9]]));
            assert_eq!(decode(SpaceId(301), &[large], &out), None);
            assert_eq!(decode(space, &[large], &out[..out.len() - 1]), None);
            out.clear();
            append(space, [(large, &[][..])].into_iter(), &mut out);
            assert!(out.is_empty());
        }
    }
}
