//! The pages of large values, as runs of neighbours: so that they can be freed without being read.
//!
//! For each value, in the order of the list that names them, as numbers of variable length: how many runs of neighbouring pages it has,
//! 0 if that is not known; and for each run how far it begins from where the one before ended (the first from the value's first
//! page; twice the distance, or twice its size less one if it lies before), and how many pages it has beyond one.

use super::Large;
use terrace_log::varint::{self, Numbers};

fn put(number: u64, out: &mut Vec<u8>) {
    let mut numbers = Numbers::<10>::new();
    numbers.put(number);
    out.extend_from_slice(numbers.bytes());
}

/// Appends the list, of at most `most` bytes: the pages of a value that does not fit any more are not known. Nothing, if none are.
pub fn append<'a>(values: impl ExactSizeIterator<Item = (Large, &'a [u32])>, most: usize, out: &mut Vec<u8>) {
    let (start, mut any, mut left) = (out.len(), false, values.len());
    if left > most {
        return;
    }
    for (large, pages) in values {
        let before = out.len();
        left -= 1;
        // Each that follows takes at least a byte.
        let room = start + most - left;
        let is_whole = pages.len() == large.pages() as usize && pages.first() == Some(&large.page);
        if is_whole && append_one(pages, room, out) {
            any = true;
        } else {
            out.truncate(before);
            out.push(0);
        }
    }
    if !any {
        out.truncate(start);
    }
}

/// False: they would end behind `room`.
fn append_one(pages: &[u32], room: usize, out: &mut Vec<u8>) -> bool {
    let runs = || pages.chunk_by(|one, next| one.checked_add(1) == Some(*next));
    // Each takes at least two bytes.
    let count = runs().take(room).count();
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

/// The pages of each value; none of those that are not known. None: the list makes no sense.
pub fn decode(larges: &[Large], mut list: &[u8]) -> Option<Vec<Vec<u32>>> {
    if list.is_empty() {
        return Some(vec![Vec::new(); larges.len()]);
    }
    let all = larges.iter().map(|large| decode_one(*large, &mut list)).collect::<Option<Vec<_>>>()?;
    list.is_empty().then_some(all)
}

fn decode_one(large: Large, list: &mut &[u8]) -> Option<Vec<u32>> {
    let runs = varint::take(list).ok()?;
    if runs == 0 {
        return Some(Vec::new());
    }
    let (count, mut pages, mut end) = (large.pages() as usize, Vec::new(), i64::from(large.page));
    for _ in 0..runs {
        let (distance, more) = (varint::take(list).ok()?, varint::take(list).ok()?);
        let first = end.checked_add((distance >> 1) as i64 ^ -((distance & 1) as i64))?;
        let first = u32::try_from(first).ok()?;
        let last = first.checked_add(u32::try_from(more).ok()?)?;
        if pages.len() + more as usize >= count {
            return None;
        }
        pages.extend(first..=last);
        end = i64::from(last) + 1;
    }
    (pages.len() == count && pages[0] == large.page).then_some(pages)
}

#[cfg(test)]
mod tests {
    use super::super::PAYLOAD;
    use super::*;

    const MOST: usize = 1024;

    fn value(page: u32, pages: usize) -> Large {
        Large { page, len: (pages * PAYLOAD) as u32, serial: 5 }
    }

    fn list(values: &[(Large, Vec<u32>)], most: usize) -> (Vec<Large>, Vec<u8>) {
        let mut out = Vec::new();
        append(values.iter().map(|(large, pages)| (*large, &pages[..])), most, &mut out);
        (values.iter().map(|(large, _)| *large).collect(), out)
    }

    #[test]
    fn lists_are_decoded_as_encoded() {
        let all = [
            (value(9, 3), vec![9, 10, 11]),
            (value(700, 4), vec![]),
            (value(900, 5), vec![900, 2, 3, u32::MAX, 1]),
            (value(4, 1), vec![4]),
        ];
        let (larges, out) = list(&all, MOST);
        assert!(out.len() < 30, "{out:?}");
        assert_eq!(decode(&larges, &out).unwrap(), all.clone().map(|(_, pages)| pages));
        for len in 1..out.len() {
            assert_eq!(decode(&larges, &out[..len]), None);
        }
        assert_eq!(decode(&larges, &[&out[..], &[0]].concat()), None);
        // A value has its own pages, and as many as it has.
        let (_, out) = list(&all[..1], MOST);
        assert_eq!(decode(&[value(9, 2)], &out), None);
        assert_eq!(decode(&[value(9, 4)], &out), None);
        // No list: nothing is known.
        assert_eq!(decode(&larges, &[]), Some(vec![vec![]; 4]));
    }

    #[test]
    fn unknown_or_too_long_runs_are_left_out() {
        assert!(list(&[(value(9, 3), vec![])], MOST).1.is_empty());
        assert!(list(&[(value(9, 3), vec![9, 11]), (value(9, 2), vec![10, 11])], MOST).1.is_empty());
        let scattered: Vec<u32> = (0..2000).map(|n| 9 + 3 * n).collect();
        let (larges, out) = list(&[(value(9, 2000), scattered), (value(4, 1), vec![4])], MOST);
        assert_eq!(decode(&larges, &out), Some(vec![vec![], vec![4]]));
        // Neighbours are few bytes, however many they are.
        let (larges, out) = list(&[(value(9, 2000), (9..2009).collect())], MOST);
        assert!(out.len() < 8 && decode(&larges, &out).unwrap()[0].len() == 2000);
    }

    #[test]
    fn no_list_is_longer_than_it_may_be() {
        let all: Vec<_> = (0..9).map(|n| (value(n * 50, 3), vec![n * 50, n * 50 + 20, n * 50 + 3])).collect();
        for most in 0..80 {
            let (larges, out) = list(&all, most);
            assert!(out.len() <= most, "{most}");
            let known = decode(&larges, &out).unwrap();
            assert!(known.iter().zip(&all).all(|(known, (_, pages))| known.is_empty() || known == pages));
            assert_eq!(known.iter().all(|known| known.is_empty()), out.is_empty());
        }
        assert!(!list(&all, 80).1.contains(&0) || all[0].1[0] == 0);
    }
}
