//! The log alone: room, order, group commit, poison. What survives a crash is in `recovery/tests.rs`.

mod handed;
mod held;
pub(crate) mod rig;
mod threads;

use super::*;
use crate::SpaceId;
use crate::block::{self, BLOCK, BlockHeader, PAYLOAD};
use crate::record::{self, Decoded, RecordHeader};
use rig::Rig;
use std::sync::atomic::Ordering;
use terrace_io::random::Random;
use terrace_sim::SimWorld;

fn id(n: u64) -> PageId {
    PageId::new(SpaceId(16), n as u32)
}

#[test]
fn decoding_random_bytes_never_panics() {
    let sim = SimWorld::new(1);
    let mut bytes = vec![0; BLOCK];
    for round in 0..20_000 {
        let len = sim.random.below(BLOCK as u64 + 1) as usize;
        bytes[..len].chunks_mut(8).for_each(|c| {
            let word = sim.random.next_u64().to_le_bytes();
            c.copy_from_slice(&word[..c.len()]);
        });
        if round % 2 == 0 {
            // Small numbers get further.
            bytes[..len].iter_mut().skip(1).step_by(2).for_each(|b| *b = 0);
        }
        match record::decode(&bytes[..len], round) {
            Decoded::Record(header, ops, head) => {
                assert!(header.own >= header.first.max(round) && header.own_end() <= header.end());
                assert_eq!((ops.len(), ops), (header.ops_len as usize, &bytes[head..head + ops.len()]));
            }
            Decoded::Short | Decoded::Nonsense => {}
        }
        assert!(block::decode(&bytes[..len]).is_none());
        // An intact frame around random content.
        bytes[4..8].copy_from_slice(b"TLG2");
        let crc = crc32c::crc32c(&bytes[4..]);
        bytes[..4].copy_from_slice(&crc.to_le_bytes());
        if let Some((header, payload)) = block::decode(&bytes) {
            assert!(payload.len() <= PAYLOAD && header.first.is_none_or(|f| usize::from(f) < payload.len()));
        }
    }
}

#[test]
fn records_read_back_as_they_were_written_and_are_small() {
    let random = SimWorld::new(2).random.clone();
    let (mut records, mut written, mut after) = (Vec::new(), Vec::new(), 40);
    for n in 0..3000u64 {
        // Numbers of every length.
        let number = |bits: u64| {
            if random.one_in(3) { 0 } else { random.next_u64() >> (64 - random.below(bits + 1)).min(63) }
        };
        let (gap, back, rest, ops_len) = (number(50), number(30), number(30), number(12));
        let own = after + gap;
        let back = back.min(own - 1);
        let length = (back + record::share(ops_len as usize) + rest) as u32;
        let id = PageId::new(SpaceId(number(32) as u32), number(32) as u32);
        let header = RecordHeader { own, first: own - back, length, ops_len: ops_len as u32, id };
        record::encode(&header, &vec![n as u8; ops_len as usize], after, &mut records);
        after = header.own_end();
        written.push(header);
    }
    let (mut at, mut after) = (0, 40);
    for (n, header) in written.iter().enumerate() {
        let ops = vec![n as u8; header.ops_len as usize];
        let Decoded::Record(found, found_ops, head) = record::decode(&records[at..], after) else { panic!() };
        assert!((found, found_ops) == (*header, &ops[..]));
        assert!((head + ops.len()) as u64 <= record_bound(ops.len()));
        let whole = head + ops.len();
        let cut = random.below(whole as u64) as usize;
        assert_eq!(record::decode(&records[at..at + cut], after), Decoded::Short);
        (at, after) = (at + whole, header.own_end());
    }
    assert_eq!(at, records.len());

    // The longest header, and a usual one.
    let most = RecordHeader {
        own: u64::MAX - u64::from(u32::MAX),
        first: u64::MAX - (1 << 32) - (1 << 31),
        length: u32::MAX,
        ops_len: 0,
        id: PageId::new(SpaceId(u32::MAX), u32::MAX),
    };
    let usual = RecordHeader { own: 1090, first: 1000, length: 200, ops_len: 60, id: id(1 << 20) };
    for (header, after, ops, len) in [(most, 0, &[][..], 31), (usual, 1090, &[1; 60][..], 8)] {
        let mut bytes = Vec::new();
        record::encode(&header, ops, after, &mut bytes);
        assert_eq!(record::decode(&bytes, after), Decoded::Record(header, ops, len), "{}", bytes.len());
    }
}

/// One way to write each record; positions that lead nowhere.
#[test]
fn a_record_with_a_non_canonical_encoding_is_refused() {
    let header = RecordHeader { own: 10, first: 10, length: 9, ops_len: 1, id: id(3) };
    let mut good = Vec::new();
    record::encode(&header, &[5], 10, &mut good);
    assert_eq!(
        (&good[..], record::decode(&good, 10)),
        (&[8, 16, 3, 5][..], Decoded::Record(header, &[5], 3))
    );
    for bytes in [
        &[8, 0x90, 0, 3, 5][..],                       // a number that is longer than it needs
        &[9, 0, 16, 3, 5],                             // a gap of 0
        &[10, 11, 16, 3, 5],                           // begins before any position
        &[8, 0xFF, 0xFF, 0xFF, 0xFF, 0x1F, 3, 5],      // a space of more than 32 bits
        &[12, 0xFF, 0xFF, 0xFF, 0xFF, 0x0F, 16, 3, 5], // a range of more than 32 bits
        &[9, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 2], // a number of more than 64 bits
        &[9, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 1, 16, 3, 5], // behind all positions
    ] {
        assert_eq!(record::decode(bytes, 10), Decoded::Nonsense, "{bytes:?}");
    }
}

#[test]
fn a_block_with_any_bit_flipped_is_not_a_block() {
    let header = RecordHeader { own: 10, first: 10, length: 108, ops_len: 100, id: id(3) };
    let mut records = Vec::new();
    record::encode(&header, &[7; 100], 8, &mut records);
    let mut image = vec![0; BLOCK];
    let (partition, sequence) = (3, 4);
    let written =
        BlockHeader { instance: 1, epoch: 2, partition, sequence, attested: 5, first: None, after: 8 };
    block::encode(written, &records, 0, &mut image);
    let (found, payload) = block::decode(&image).unwrap();
    assert_eq!((found, payload), (BlockHeader { first: Some(0), ..written }, &records[..]));
    for bit in (0..BLOCK * 8).step_by(7) {
        image[bit / 8] ^= 1 << (bit % 8);
        assert!(block::decode(&image).is_none(), "bit {bit}");
        image[bit / 8] ^= 1 << (bit % 8);
    }
}

#[test]
fn blocks_say_where_their_first_record_begins() {
    let mut records = Vec::new();
    let (mut begins, mut after) = (Vec::new(), 5);
    for (n, len) in [(0u64, 3000), (1, 9000), (2, 10), (3, 500)] {
        begins.push((records.len(), after));
        // Others' records lie between.
        let header = RecordHeader { own: after + n, first: 1, length: u32::MAX, ops_len: len, id: id(n) };
        record::encode(&header, &vec![n as u8; len as usize], after, &mut records);
        after = header.own_end();
    }
    let blocks = block::blocks_for(records.len() as u64) as usize;
    let mut image = vec![0; blocks * BLOCK];
    let (first, after) = (None, 5);
    let header = BlockHeader { instance: 1, epoch: 1, partition: 0, sequence: 0, attested: 0, first, after };
    block::encode(header, &records, 0, &mut image);
    for (i, block) in image.chunks_exact(BLOCK).enumerate() {
        let range = i * PAYLOAD..(i + 1) * PAYLOAD;
        let expected = begins.iter().find(|(at, _)| range.contains(at));
        let expected = expected.map(|(at, after)| ((at - range.start) as u16, *after));
        let found = block::decode(block).unwrap().0;
        assert_eq!(
            (found.first, found.after),
            (expected.map(|e| e.0), expected.map_or(0, |e| e.1)),
            "block {i}"
        );
    }
}

#[test]
fn ranges_are_gapless_and_the_horizon_follows() {
    let mut rig = Rig::new(3, 4, 512);
    let log = rig.open().log;
    let mut end = log.appended();
    for n in 0..200 {
        let range = rig::append(&log, &[(id(n), 20), (id(n + 1), 30), (id(7), 4)], Urgency::Normal).unwrap();
        assert_eq!(range.first, end);
        end = range.end;
        assert_eq!(log.appended(), end);
        assert!(log.durable() <= range.first, "nothing was synced");
        if n % 3 == 0 {
            log.make_durable(range.end).unwrap();
            assert_eq!(log.durable(), end);
        }
    }
}

/// It is what checkpoints and attestations are made of: both must lie between two ranges.
#[test]
fn the_horizon_never_lies_inside_a_range() {
    let mut rig = Rig::new(4, 4, 512);
    let log = rig.open().log;
    let random = rig.sim.random.clone();
    let mut ends = std::collections::BTreeSet::from([log.appended()]);
    for _ in 0..2000 {
        let pages: Vec<_> = (0..1 + random.below(4)).map(|_| (id(random.below(50)), 30)).collect();
        ends.insert(rig::append(&log, &pages, Urgency::Normal).unwrap().end);
        let upto = log.appended();
        let chosen = random.below(4) as usize;
        let shares = log.take(|number, ring| number == chosen && ring.can_write(upto));
        if !shares.is_empty() {
            log.write(shares, Until::Durable).unwrap();
        }
        assert!(ends.contains(&log.durable()));
        if log.wants_checkpoint() {
            let durable = log.durable();
            rig.checkpoint(&log, durable, log.starts_for(durable));
        }
        if log.usage().0 > 400 {
            log.make_durable(log.appended()).unwrap();
        }
    }
}

#[test]
fn an_idle_partition_holds_nothing_back() {
    let mut rig = Rig::new(4, 8, 512);
    let log = rig.open().log;
    let range = rig::append(&log, &[(id(1), 50)], Urgency::Normal).unwrap();
    let before = rig.disk.syncs();
    log.make_durable(range.end).unwrap();
    assert_eq!((log.durable(), rig.disk.syncs() - before), (range.end, 1));
}

/// Tiny commits, each synced, each padding a block: rings of 64 blocks go round hundreds of times.
#[test]
fn rings_wrap_many_times_and_never_overflow() {
    for partitions in [1, 3] {
        let mut rig = Rig::new(5, partitions, 64);
        let log = rig.open().log;
        let random = rig.sim.random.clone();
        for n in 0..20_000 {
            let pages: Vec<_> = (0..1 + random.below(3))
                .map(|_| (id(random.below(50)), random.below(2000) as usize))
                .collect();
            let room = log.clone().reserve(rig::bytes(&pages), Urgency::Normal).unwrap();
            let range = rig::append_in(&log, room, &pages);
            if random.one_in(3) {
                log.make_durable(range.end).unwrap();
            }
            if log.wants_checkpoint() {
                log.make_durable(range.end).unwrap();
                let starts = log.starts_for(range.end);
                rig.checkpoint(&log, range.end, starts);
            }
            let (used, blocks) = log.usage();
            assert!(used <= blocks, "step {n}: {used} of {blocks}");
        }
        assert!(log.counters.blocks.load(Ordering::Relaxed) > 100 * 64);
    }
}

#[test]
fn without_a_checkpoint_the_log_fills_and_each_urgency_has_its_share() {
    let mut rig = Rig::new(6, 2, 64);
    let log = rig.open().log;
    let fill = |urgency| {
        let mut appended = 0;
        loop {
            match rig::append(&log, &[(id(1), 3000)], urgency) {
                Ok(range) => log.make_durable(range.end).unwrap(),
                Err(LogError::Full { .. }) => return appended,
                Err(error) => panic!("{error}"),
            }
            appended += 1;
        }
    };
    let (normal, reserve, checkpoint) =
        (fill(Urgency::Normal), fill(Urgency::Reserve), fill(Urgency::Checkpoint));
    assert!(normal > 40 && reserve > 0 && checkpoint > 0, "{normal}, {reserve}, {checkpoint}");
    assert_eq!(normal + reserve + checkpoint, 64);
    // A checkpoint makes room again.
    let end = log.appended();
    rig.checkpoint(&log, end, log.starts_for(end));
    rig::append(&log, &[(id(1), 3000)], Urgency::Normal).unwrap();
}

#[test]
fn a_reservation_larger_than_the_log_fails_at_once() {
    let mut rig = Rig::new(6, 1, 64);
    let log = rig.open().log;
    let before = rig.sim.world().clock.now();
    assert!(matches!(log.clone().reserve(64 * BLOCK as u64, Urgency::Normal), Err(LogError::Full { .. })));
    assert_eq!(rig.sim.world().clock.now(), before);
}

#[test]
fn unused_reserved_room_is_released() {
    let mut rig = Rig::new(6, 1, 64);
    let log = rig.open().log;
    for _ in 0..1000 {
        drop(log.clone().reserve(20 * BLOCK as u64, Urgency::Normal).unwrap());
        let room = log.clone().reserve(20 * BLOCK as u64, Urgency::Normal).unwrap();
        let range = rig::append_in(&log, room, &[(id(1), 10)]);
        rig.checkpoint(&log, range.first, log.starts_for(range.first));
    }
}

#[test]
fn a_failed_sync_poisons_for_good() {
    let mut rig = Rig::new(7, 2, 256);
    let log = rig.open().log;
    let durable = rig::append(&log, &[(id(1), 10)], Urgency::Normal).unwrap().end;
    log.make_durable(durable).unwrap();
    let room = log.clone().reserve(200, Urgency::Normal).unwrap();
    let range = rig::append(&log, &[(id(1), 10), (id(2), 10)], Urgency::Normal).unwrap();
    rig.disk.faults().write_errors.store(true, Ordering::SeqCst);
    assert!(matches!(log.make_durable(range.end), Err(LogError::Poisoned(_))));
    rig.disk.faults().write_errors.store(false, Ordering::SeqCst);
    let syncs = rig.disk.syncs();
    assert!(matches!(log.make_durable(range.end), Err(LogError::Poisoned(_))));
    assert!(matches!(log.clone().reserve(100, Urgency::Checkpoint), Err(LogError::Poisoned(_))));
    // What was under way may still append to memory, and what was durable stays so.
    rig::append_in(&log, room, &[(id(3), 10)]);
    log.make_durable(durable).unwrap();
    assert_eq!((log.durable(), rig.disk.syncs()), (durable, syncs), "nothing retries a sync");
}

#[test]
fn pages_are_stamped_before_the_appended_end_moves() {
    let mut rig = Rig::new(8, 1, 256);
    let log = rig.open().log;
    let mut room = log.clone().reserve(200, Urgency::Normal).unwrap();
    let before = log.appended();
    let ops = [1u8, 1, 0];
    let mut seen = None;
    let range = log.append(&mut room, &[PageRedo { id: id(1), ops: &ops }], &mut |range| {
        seen = Some((range, log.appended()));
    });
    assert_eq!(seen, Some((range, before)));
}

#[test]
fn callbacks_report_commits_durable_before_the_log_stopped() {
    let mut rig = Rig::new(1, 2, 64);
    let log = rig.open().log;
    let (told, answers) = std::sync::mpsc::channel();
    let want = |upto| {
        let told = told.clone();
        log.when_durable(upto, Box::new(move |answer| told.send((upto, answer.is_ok())).unwrap()));
    };
    let first = rig::append(&log, &[(id(1), 100)], Urgency::Normal).unwrap().end;
    want(first);
    log.make_durable(first).unwrap();
    let second = rig::append(&log, &[(id(2), 100)], Urgency::Normal).unwrap().end;
    want(second);
    rig.disk.faults().fail_class(terrace_io::disk::Class::LogWrite, true);
    assert!(log.keep_promises());
    assert_eq!(answers.try_iter().collect::<Vec<_>>(), [(first, true), (second, false)]);
}
