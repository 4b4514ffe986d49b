//! One contract, kept by every backend.

use super::*;
use crate::SECTOR;
use crate::disk::{Class, Disk, File, FileWrite};
use crate::real::disk::RealDisk;
use std::path::PathBuf;
use std::sync::Arc;

struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The backends that this machine has: containers often refuse rings.
fn here() -> impl Iterator<Item = Backend> {
    Backend::ALL.into_iter().filter(|backend| match Carrier::of(*backend) {
        Ok(_) => true,
        Err(cause) => {
            eprintln!("not tested through {}: {cause}", backend.name());
            false
        }
    })
}

/// Runs the test on an empty disk of each backend.
fn each_backend(test: &str, run: impl Fn(&RealDisk)) {
    for backend in here() {
        let name = format!("terrace-batch-{}-{test}-{}", std::process::id(), backend.name());
        let scratch = Scratch(std::env::temp_dir().join(name));
        let _ = std::fs::remove_dir_all(&scratch.0);
        eprintln!("through {}", backend.name());
        let disk = RealDisk::open_through(&scratch.0, backend).unwrap();
        assert_eq!(disk.batches(), Some(backend.name()));
        run(&disk);
    }
}

/// A file whose sector `i` holds the byte `i`, wrapping.
fn numbered(disk: &dyn Disk, name: &str, sectors: usize) -> Arc<dyn File> {
    let file = disk.create(name).unwrap();
    let mut bytes = AlignedBuf::zeroed(sectors * SECTOR);
    bytes.chunks_mut(SECTOR).enumerate().for_each(|(i, part)| part.fill(i as u8));
    file.write(Class::PageFlush, 0, &bytes).unwrap();
    file
}

fn at(sector: usize) -> u64 {
    (sector * SECTOR) as u64
}

#[test]
fn a_batch_longer_than_a_ring_is_done_whole_and_in_place() {
    each_backend("long", |disk| {
        let count = 3 * super::super::ring::DEPTH + 5;
        let file = numbered(disk, "f", count);
        // Odd sectors are written anew, even ones read, every third out of unaligned memory.
        let mut bufs: Vec<Vec<u8>> = (0..count).map(|i| vec![0x80 ^ i as u8; SECTOR + 1]).collect();
        let mut aligned: Vec<AlignedBuf> =
            bufs.iter().map(|b| AlignedBuf::from_slice(&b[..SECTOR])).collect();
        let mut ops: Vec<Op<'_>> = Vec::new();
        for (i, (odd, even)) in bufs.iter_mut().zip(&mut aligned).enumerate() {
            let buf = if i % 3 == 0 { &mut odd[1..] } else { &mut even[..] };
            ops.push(match i % 2 {
                1 => Op::Write { offset: at(i), buf },
                _ => Op::Read { offset: at(i), buf },
            });
        }
        let results = file.batch(Class::PageFlush, &mut ops);
        assert!(results.len() == count && results.iter().all(Result::is_ok), "{results:?}");
        for (i, op) in ops.iter().enumerate().step_by(2) {
            let Op::Read { buf, .. } = op else { unreachable!() };
            assert!(buf.iter().all(|b| *b == i as u8), "read {i}");
        }
        let mut back = AlignedBuf::zeroed(count * SECTOR);
        file.read(Class::PageRead, 0, &mut back).unwrap();
        for (i, part) in back.chunks(SECTOR).enumerate() {
            let expected = if i % 2 == 1 { 0x80 ^ i as u8 } else { i as u8 };
            assert!(part.iter().all(|b| *b == expected), "sector {i}");
        }
        let counted = disk.stats().unwrap().of(Class::PageFlush);
        assert_eq!((counted.requests, counted.errors), (count as u64 + 1, 0));
    });
}

#[test]
fn a_request_that_fails_fails_alone() {
    each_backend("nth", |disk| {
        for (count, nth) in [(1, 0), (2, 1), (17, 0), (40, 13), (100, 99)] {
            let file = numbered(disk, &format!("f{count}"), count);
            for wrong in [at(count), at(nth) + 512] {
                let mut bufs: Vec<AlignedBuf> = (0..count).map(|_| AlignedBuf::zeroed(SECTOR)).collect();
                let place = |i| if i == nth { wrong } else { at(i) };
                let mut ops: Vec<Op<'_>> =
                    bufs.iter_mut().enumerate().map(|(i, buf)| Op::Read { offset: place(i), buf }).collect();
                let results = file.batch(Class::PageRead, &mut ops);
                assert_eq!(results.len(), count);
                for (i, (result, buf)) in results.iter().zip(&bufs).enumerate() {
                    match result {
                        Ok(()) => assert!(i != nth && buf.iter().all(|b| *b == i as u8), "{i} of {count}"),
                        Err(DiskError::Failed { what: "read", offset, len, .. }) => {
                            assert_eq!((i, *offset, *len), (nth, wrong, SECTOR as u64));
                        }
                        Err(other) => panic!("{other}"),
                    }
                }
            }
        }
    });
}

#[test]
fn requests_not_in_whole_sectors_are_refused_and_change_nothing() {
    each_backend("unaligned", |disk| {
        let file = numbered(disk, "f", 4);
        let buf = vec![0xee; SECTOR];
        for (offset, len) in [(1, SECTOR), (512, SECTOR), (0, SECTOR - 512), (at(1) - 1, 1)] {
            assert!(file.write(Class::PageFlush, offset, &buf[..len]).is_err());
            assert!(file.read(Class::PageRead, offset, &mut vec![0; len]).is_err());
            let mut ops = [Op::Write { offset, buf: &buf[..len] }, Op::Write { offset: at(3), buf: &buf }];
            let results = file.batch(Class::PageFlush, &mut ops);
            assert!(matches!(results[..], [Err(DiskError::Failed { what: "write", .. }), Ok(())]));
        }
        let mut back = AlignedBuf::zeroed(4 * SECTOR);
        file.read(Class::PageRead, 0, &mut back).unwrap();
        let seen: Vec<u8> = back.chunks(SECTOR).map(|part| part[part.len() / 2]).collect();
        assert_eq!(seen, [0, 1, 2, 0xee]);
        assert!(file.batch(Class::PageRead, &mut []).is_empty());
    });
}

#[test]
fn batches_of_many_threads_keep_apart() {
    each_backend("many", |disk| {
        let threads = super::super::ring::RINGS + 6;
        let (file, region) = (disk.create("f").unwrap(), 70);
        file.grow(at(threads * region), false).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let file = &file;
                scope.spawn(move || {
                    for round in 0..4 {
                        let count = [2, 17, region, 5][(thread + round) % 4];
                        let fill = |i: usize| (thread * 31 + round * 7 + i) as u8;
                        let mut bufs: Vec<AlignedBuf> =
                            (0..count).map(|i| AlignedBuf::from_slice(&[fill(i); SECTOR])).collect();
                        let place = |i| at(thread * region + i);
                        let mut ops: Vec<Op<'_>> = bufs
                            .iter()
                            .enumerate()
                            .map(|(i, buf)| Op::Write { offset: place(i), buf })
                            .collect();
                        assert!(file.batch(Class::PageFlush, &mut ops).iter().all(Result::is_ok));
                        bufs.iter_mut().for_each(|buf| buf.fill(0));
                        let mut ops: Vec<Op<'_>> = bufs
                            .iter_mut()
                            .enumerate()
                            .map(|(i, buf)| Op::Read { offset: place(i), buf })
                            .collect();
                        assert!(file.batch(Class::PageRead, &mut ops).iter().all(Result::is_ok));
                        for (i, buf) in bufs.iter().enumerate() {
                            assert!(buf.iter().all(|b| *b == fill(i)), "thread {thread}, round {round}, {i}");
                        }
                    }
                });
            }
        });
    });
}

#[test]
fn files_written_and_synced_together_answer_for_themselves() {
    each_backend("together", |disk| {
        let files: Vec<Arc<dyn File>> = (0..4).map(|i| numbered(disk, &format!("f{i}"), 4)).collect();
        let bufs: Vec<AlignedBuf> = (0..8u8).map(|i| AlignedBuf::from_slice(&[100 + i; SECTOR])).collect();
        // Two writes to each; the third file has one in the wrong place.
        let writes = |wrong: Option<usize>| -> Vec<FileWrite<'_>> {
            let place = move |i: usize| if wrong == Some(i) { 7 } else { at(3) };
            let ops = |i: usize| {
                vec![
                    Op::Write { offset: 0, buf: &bufs[2 * i] },
                    Op::Write { offset: place(i), buf: &bufs[2 * i + 1] },
                ]
            };
            files.iter().enumerate().map(|(i, file)| FileWrite { file: &**file, ops: ops(i) }).collect()
        };
        let results = disk.write_synced(Class::LogWrite, &mut writes(Some(2)));
        assert!(matches!(
            results[..],
            [Ok(()), Ok(()), Err(DiskError::Failed { what: "write", .. }), Ok(())]
        ));
        let stats = disk.stats().unwrap();
        assert_eq!(
            (stats.syncs().requests, stats.syncs().errors),
            (3, 0),
            "what was not written is not synced"
        );
        assert_eq!((stats.of(Class::LogWrite).requests, stats.of(Class::LogWrite).errors), (8, 1));

        assert!(disk.write_synced(Class::LogWrite, &mut writes(None)).iter().all(Result::is_ok));
        assert!(disk.write_synced(Class::LogWrite, &mut []).is_empty());
        assert_eq!(disk.stats().unwrap().syncs_of(Class::LogWrite).requests, 7);
        for (i, file) in files.iter().enumerate() {
            let mut back = AlignedBuf::zeroed(4 * SECTOR);
            file.read(Class::LogRead, 0, &mut back).unwrap();
            let seen: Vec<u8> = back.chunks(SECTOR).map(|part| part[9]).collect();
            assert_eq!(seen, [100 + 2 * i as u8, 1, 2, 101 + 2 * i as u8]);
        }
    });
}

#[test]
fn the_kernels_errors_come_through() {
    for backend in here() {
        let dev = RealDisk::open_through("/dev", backend).unwrap();
        let (full, null) = (dev.open("full").unwrap(), dev.open("null").unwrap());
        let bufs: Vec<AlignedBuf> = (0..20).map(|_| AlignedBuf::zeroed(SECTOR)).collect();
        let ops = || bufs.iter().map(|buf| Op::Write { offset: 0, buf }).collect::<Vec<_>>();
        let results = full.batch(Class::PageFlush, &mut ops());
        assert!(results.len() == 20 && results.iter().all(|r| matches!(r, Err(DiskError::Full { .. }))));
        // A file that has no sync, beside one whose write failed.
        let mut writes = [FileWrite { file: &*full, ops: ops() }, FileWrite { file: &*null, ops: ops() }];
        let results = dev.write_synced(Class::LogWrite, &mut writes);
        assert!(matches!(
            results[..],
            [Err(DiskError::Full { what: "write", .. }), Err(DiskError::Failed { what: "sync", .. })]
        ));
        let results = dev.sync_all(Class::LogWrite, &[&*null, &*full]);
        assert!(
            results.iter().all(|r| matches!(r, Err(DiskError::Failed { what: "sync", .. }))),
            "{results:?}"
        );
        assert_eq!(results.len(), 2);
    }
}

#[test]
fn a_short_request_is_repeated_whole() {
    each_backend("short", |disk| {
        let file = numbered(disk, "f", 4);
        let file = (&*file as &dyn std::any::Any).downcast_ref::<RealFile>().unwrap();
        for done in [Done::Not, Done::Moved(0), Done::Moved(512)] {
            let mut buf = AlignedBuf::zeroed(2 * SECTOR);
            let mut op = Op::Read { offset: at(2), buf: &mut buf };
            finish(&mut Piece { file, op: &mut op }, None, done).unwrap();
            assert_eq!((buf[0], buf[SECTOR]), (2, 3));
        }
        let fresh = AlignedBuf::from_slice(&[9; SECTOR]);
        let mut op = Op::Write { offset: at(4), buf: &fresh };
        finish(&mut Piece { file, op: &mut op }, None, Done::Moved(512)).unwrap();
        assert_eq!(file.len(), at(5));
        let mut past = AlignedBuf::zeroed(2 * SECTOR);
        let mut op = Op::Read { offset: at(4), buf: &mut past };
        assert!(finish(&mut Piece { file, op: &mut op }, None, Done::Moved(SECTOR)).is_err(), "past the end");
    });
}

#[test]
fn a_file_that_is_too_short_says_where_it_ends_and_how_much_is_missing() {
    each_backend("ends", |disk| {
        let file = numbered(disk, "f", 4);
        for (sector, missing) in [(3, SECTOR), (4, 2 * SECTOR), (9, 2 * SECTOR)] {
            let text = format!(
                "read f at {} for {} bytes: the file ends at {}: {missing} bytes are missing",
                at(sector),
                2 * SECTOR,
                4 * SECTOR
            );
            let mut buf = AlignedBuf::zeroed(2 * SECTOR);
            let one = file.read(Class::PageRead, at(sector), &mut buf).unwrap_err();
            let mut ops = [Op::Read { offset: at(sector), buf: &mut buf }];
            let batch = file.batch(Class::PageRead, &mut ops).remove(0).unwrap_err();
            let mut unaligned = vec![0; 2 * SECTOR + 1];
            let bounced = file.read(Class::PageRead, at(sector), &mut unaligned[1..]).unwrap_err();
            for error in [one, batch, bounced] {
                assert_eq!(error.to_string(), text);
            }
        }
    });
}

/// `io_uring_setup` is refused to this thread, as container runtimes do.
fn refuse_rings() {
    let instruction = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let mut filter = [
        instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, libc::SYS_io_uring_setup as u32),
        instruction(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        instruction(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: numbers only, then a filter that the kernel copies; both are for this thread.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &program), 0);
    }
}

#[test]
fn where_rings_are_refused_threads_take_over_unless_rings_were_asked_for() {
    let refused = std::thread::spawn(|| {
        refuse_rings();
        Rings::open().map_err(|e| e.to_string())
    });
    let rings = refused.join().unwrap();
    assert!(rings.is_err());
    assert_eq!(choose(None, &rings).unwrap(), Backend::Threads);
    for backend in Backend::ALL {
        let chosen = choose(Some(backend.name().into()), &rings);
        assert_eq!(chosen.ok(), (backend != Backend::Rings).then_some(backend));
    }
    let wrong = choose(Some("uring".into()), &rings).unwrap_err();
    assert!(wrong.to_string().contains("io_uring, threads, in-turn"), "{wrong}");
    if let Ok(rings) = Rings::open() {
        assert_eq!(choose(None, &Ok(rings)).unwrap(), Backend::Rings);
    }
}
