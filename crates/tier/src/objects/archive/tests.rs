use super::*;
use crate::page::{PageId, SpaceId};
use terrace_log::record::{RecordHeader, share};
use terrace_log::{Glsn, Mark};

fn key(epoch: u32, began: Glsn, first: Glsn, end: Glsn) -> StretchKey {
    StretchKey { lineage: 7, first, end, epoch, began, since_ms: first, until_ms: end }
}

fn segments(keys: &[StretchKey]) -> Vec<(Glsn, Glsn, u64)> {
    chain(keys.to_vec()).iter().map(|one| (one.first, one.end, one.until_ms)).collect()
}

#[test]
fn a_key_reads_back_and_no_other_text_is_one() {
    let one = StretchKey { lineage: 1 << 100, ..key(3, 10, 20, 30) };
    let text = one.to_string();
    assert_eq!(StretchKey::parse(&text), Some(one));
    for bad in [
        text.replace("log/", "lag/"),
        format!("{text}-0"),
        format!("{text}x"),
        text.replace("00000014-", "+0000014-"),
        text.to_uppercase(),
        key(3, 10, 30, 20).to_string(),
        text[..text.len() - 1].to_string(),
    ] {
        assert_eq!(StretchKey::parse(&bad), None, "{bad}");
    }
}

#[test]
fn stretches_that_join_are_one_segment_and_a_gap_begins_another() {
    let keys =
        [key(1, 0, 0, 10), key(1, 0, 10, 20), key(1, 0, 25, 30), key(2, 30, 30, 30), key(2, 30, 30, 40)];
    assert_eq!(segments(&keys), [(0, 20, 20), (25, 40, 40)]);
    // A writer that went on where its predecessor's last stretch, of which it did not know, had begun.
    assert_eq!(segments(&[key(1, 0, 0, 10), key(1, 0, 10, 20), key(2, 20, 5, 30)]), [(0, 30, 30)]);
}

#[test]
fn what_a_writer_put_beyond_the_beginning_of_the_next_does_not_count() {
    // The second began at 15, where the log of the first was cut.
    let keys = [key(1, 0, 0, 10), key(1, 0, 10, 20), key(1, 0, 20, 40), key(2, 15, 15, 15)];
    assert_eq!(segments(&keys), [(0, 15, 15)]);
    let parts = &chain([&keys[..], &[key(2, 15, 15, 30)]].concat())[0];
    assert_eq!((parts.first, parts.end, parts.until_ms), (0, 30, 30));
    assert_eq!(parts.parts.iter().map(|part| part.end).collect::<Vec<_>>(), [10, 15, 15, 30]);
    // One of between them, on another copy of the volume, began later.
    let keys = [key(1, 0, 0, 10), key(2, 10, 10, 30), key(3, 8, 8, 8), key(3, 8, 8, 12)];
    assert_eq!(segments(&keys), [(0, 12, 12)]);
}

fn stretch() -> Stretch {
    let mut stretch = Stretch::new(key(3, 100, 1000, 0));
    let mut own = 1000;
    for n in 0..20u8 {
        let ops = [vec![n; 30], vec![n; usize::from(n)]];
        let length: u64 = ops.iter().map(|ops| share(ops.len())).sum();
        let first = own;
        let range: Vec<(RecordHeader, Vec<u8>)> = ops
            .into_iter()
            .map(|ops| {
                let id = PageId::new(SpaceId(16), u32::from(n));
                let header =
                    RecordHeader { own, first, length: length as u32, ops_len: ops.len() as u32, id };
                own = header.own_end();
                (header, ops)
            })
            .collect();
        stretch.push(&range);
    }
    stretch.marks = vec![Mark { ms: 1500, end: 1100 }, Mark { ms: 1501, end: own }];
    (stretch.key.until_ms, stretch.transactions, stretch.spaces) = (5000, 77, 19);
    stretch
}

#[test]
fn a_stretch_reads_back_as_it_was_written() {
    let one = stretch();
    let bytes = one.encode().unwrap();
    let back = Stretch::decode(one.key, &bytes).unwrap();
    assert_eq!(back, one);
    let (mut end, mut ranges) = (one.key.first, 0);
    back.each_range(&mut |range| -> Result<bool, BadStretch> {
        assert!(range.len() == 2 && range[0].0.own == end);
        (end, ranges) = (range[1].0.end(), ranges + 1);
        Ok(true)
    })
    .unwrap();
    assert_eq!((end, ranges), (one.key.end, 20));
}

#[test]
fn a_changed_or_shortened_stretch_is_none() {
    let one = stretch();
    let bytes = one.encode().unwrap();
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 1 << (at % 8);
        assert!(Stretch::decode(one.key, &changed).is_err(), "byte {at}");
        assert!(Stretch::decode(one.key, &bytes[..at]).is_err(), "{at} bytes");
    }
    let other = StretchKey { until_ms: one.key.until_ms + 1, ..one.key };
    assert!(Stretch::decode(other, &bytes).unwrap_err().to_string().contains("than its key says"));
}
