//! Which pages the large values have that a change drops: noted in its undo record, so that purge need not read them for that.
//!
//! The space that they are in, for the table may have another by the time it is purged. Then for each value, in the order of [`Change::larges_dropped`](super::record::Change::larges_dropped), as numbers of variable length: how many runs of
//! neighbouring pages it has, 0 if that is not known; of each run how far it begins from where the one before ended (the first from the value's first
//! page; twice the distance, or twice its size less one if it lies before), and how many pages it has beyond one.

use crate::btree::overflow::Large;
use crate::number::{self, Numbers};
use terrace_tier::page::SpaceId;

/// Bytes of a list at the most; a value that does not fit any more is not known.
pub const CHAINS_MAX: usize = 1024;

fn put(number: u64, out: &mut Vec<u8>) {
    let mut numbers = Numbers::<10>::new();
    numbers.put(number);
    out.extend_from_slice(numbers.bytes());
}

/// The list, empty if none of the values, which are in `space`, is known. `pages` gives those of a value, in its order.
pub fn append(
    space: SpaceId,
    larges: &[Large],
    mut pages: impl FnMut(Large, &mut dyn FnMut(&[u32])),
    out: &mut Vec<u8>,
) {
    let (start, mut any) = (out.len(), false);
    put(u64::from(space.0), out);
    for (at, large) in larges.iter().enumerate() {
        let before = out.len();
        // Each that follows takes a byte at the least.
        let room = start + CHAINS_MAX - (larges.len() - at - 1);
        let mut known = false;
        pages(*large, &mut |pages| {
            let is_whole = pages.len() == large.pages() as usize && pages.first() == Some(&large.page);
            known = is_whole && append_runs(pages, room, out);
        });
        if !known {
            out.truncate(before);
            out.push(0);
        } else {
            any = true;
        }
    }
    if !any {
        out.truncate(start);
    }
}

/// False: they would end behind `room`.
fn append_runs(pages: &[u32], room: usize, out: &mut Vec<u8>) -> bool {
    let runs = || pages.chunk_by(|one, next| one.checked_add(1) == Some(*next));
    // Each takes two bytes at the least.
    let count = runs().take(CHAINS_MAX).count();
    put(count as u64, out);
    if out.len() + 2 * count > room {
        return false;
    }
    let mut end = i64::from(pages[0]);
    for run in runs() {
        let distance = i64::from(run[0]) - end;
        put(((distance << 1) ^ (distance >> 63)) as u64, out);
        put(run.len() as u64 - 1, out);
        end = i64::from(run[0]) + run.len() as i64;
    }
    out.len() <= room
}

/// The pages of each value, as far as they are known. None: they are not in `space`, or the list makes no sense.
pub fn decode(space: SpaceId, larges: &[Large], mut list: &[u8]) -> Option<Vec<Option<Vec<u32>>>> {
    let list = &mut list;
    if number::take(list).ok()? != u64::from(space.0) {
        return None;
    }
    let all = larges.iter().map(|large| decode_one(*large, list)).collect::<Option<Vec<_>>>()?;
    list.is_empty().then_some(all)
}

fn decode_one(large: Large, list: &mut &[u8]) -> Option<Option<Vec<u32>>> {
    let runs = number::take(list).ok()?;
    if runs == 0 {
        return Some(None);
    }
    let (count, mut pages, mut end) = (large.pages() as usize, Vec::new(), i64::from(large.page));
    for _ in 0..runs {
        let (distance, more) = (number::take(list).ok()?, number::take(list).ok()?);
        let first = end.checked_add((distance >> 1) as i64 ^ -((distance & 1) as i64))?;
        let first = u32::try_from(first).ok()?;
        let last = first.checked_add(u32::try_from(more).ok()?)?;
        if pages.len() + more as usize >= count {
            return None;
        }
        pages.extend(first..=last);
        end = i64::from(last) + 1;
    }
    (pages.len() == count && pages[0] == large.page).then_some(Some(pages))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::btree::overflow::PAYLOAD;

    const SPACE: SpaceId = SpaceId(300);

    fn value(page: u32, pages: usize) -> Large {
        Large { page, len: (pages * PAYLOAD) as u32, serial: 5 }
    }

    fn list(values: &[(Large, Option<Vec<u32>>)]) -> (Vec<Large>, Vec<u8>) {
        let larges: Vec<Large> = values.iter().map(|(large, _)| *large).collect();
        let (mut out, mut at) = (Vec::new(), 0);
        append(
            SPACE,
            &larges,
            |_, look| {
                values[at].1.iter().for_each(|pages| look(pages));
                at += 1;
            },
            &mut out,
        );
        (larges, out)
    }

    #[test]
    fn lists_come_back_as_they_were() {
        let all = [
            (value(9, 3), Some(vec![9, 10, 11])),
            (value(700, 4), None),
            (value(900, 5), Some(vec![900, 2, 3, u32::MAX, 1])),
            (value(4, 1), Some(vec![4])),
        ];
        let (larges, out) = list(&all);
        assert!(out.len() < 30, "{out:?}");
        let read: Vec<_> = decode(SPACE, &larges, &out).unwrap();
        assert_eq!(read, all.clone().map(|(_, pages)| pages));
        for len in 0..out.len() {
            assert_eq!(decode(SPACE, &larges, &out[..len]), None);
        }
        assert_eq!(decode(SPACE, &larges, &[&out[..], &[0]].concat()), None);
        assert_eq!(decode(SpaceId(301), &larges, &out), None);
        // A value has its own pages, and as many as it has.
        assert_eq!(decode(SPACE, &[value(9, 2)], &list(&all[..1]).1), None);
        assert_eq!(decode(SPACE, &[value(9, 4)], &list(&all[..1]).1), None);
    }

    #[test]
    fn what_is_not_known_or_too_long_is_left_out() {
        assert!(list(&[(value(9, 3), None)]).1.is_empty());
        let scattered: Vec<u32> = (0..2000).map(|n| 9 + 3 * n).collect();
        let (larges, out) = list(&[(value(9, 2000), Some(scattered)), (value(4, 1), Some(vec![4]))]);
        assert_eq!(decode(SPACE, &larges, &out), Some(vec![None, Some(vec![4])]));
        // Neighbours are few bytes, however many they are.
        let (larges, out) = list(&[(value(9, 2000), Some((9..2009).collect()))]);
        assert!(out.len() < 8 && decode(SPACE, &larges, &out).unwrap()[0].as_ref().unwrap().len() == 2000);
    }
}
