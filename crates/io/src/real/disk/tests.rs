use super::*;

use crate::disk::{Class, Disk, DiskError, Op};
use crate::{AlignedBuf, SECTOR};

fn scratch(name: &str) -> (PathBuf, RealDisk) {
    let path = std::env::temp_dir().join(format!("terrace-disk-{}-{name}", std::process::id()));
    let _ = fs::remove_dir_all(&path);
    let disk = RealDisk::open(&path).unwrap();
    (path, disk)
}

#[test]
fn written_bytes_are_read_back_aligned_or_not() {
    let (path, disk) = scratch("rw");
    let file = disk.create("a").unwrap();
    file.grow(8 * SECTOR as u64, true).unwrap();
    let odd = vec![7u8; 2 * SECTOR + 1];
    file.write(Class::PageFlush, SECTOR as u64, &odd[1..]).unwrap();
    file.sync(Class::PageFlush).unwrap();
    let mut back = vec![0u8; 2 * SECTOR];
    disk.open("a").unwrap().read(Class::PageRead, SECTOR as u64, &mut back).unwrap();
    assert_eq!(back, &odd[1..]);
    assert!(file.read(Class::PageRead, 8 * SECTOR as u64, &mut back).is_err(), "past the end");
    fs::remove_dir_all(path).unwrap();
}

#[test]
fn a_read_with_a_bound_has_the_bytes_and_the_errors_of_one_without() {
    let (path, disk) = scratch("bound");
    let file = disk.create("a").unwrap();
    let bytes: Vec<u8> = (0..32 * SECTOR).map(|at| (at / 7) as u8).collect();
    file.write(Class::PageFlush, 0, &bytes).unwrap();
    let (_, left) = crate::disk::hedge::bounded(Some(u64::MAX / 2), || {
        // The long one is longer than what is copied.
        for (offset, len) in [(0, SECTOR), (SECTOR, 2 * SECTOR), (SECTOR, 31 * SECTOR), (0, SECTOR)] {
            let mut back = vec![0; len];
            file.read(Class::PageRead, offset as u64, &mut back).unwrap();
            assert_eq!(back, bytes[offset..offset + len]);
            let owned = file.read_owned(Class::PageRead, offset as u64, AlignedBuf::zeroed(len)).unwrap();
            assert_eq!(owned[..], bytes[offset..offset + len]);
        }
        let past = 31 * SECTOR as u64;
        let (owned, mut buf) = (AlignedBuf::zeroed(2 * SECTOR), [0; 2 * SECTOR]);
        for error in [
            file.read_owned(Class::PageRead, past, owned).err().unwrap(),
            file.read(Class::PageRead, past, &mut buf).unwrap_err(),
        ] {
            assert!(error.to_string().contains("4096 bytes are missing"), "{error}");
        }
        assert!(file.read(Class::PageRead, 1, &mut buf).is_err(), "not aligned");
    });
    assert!(left.is_none());
    fs::remove_dir_all(path).unwrap();
}

#[test]
fn a_batch_does_all_its_requests() {
    let (path, disk) = scratch("batch");
    let file = disk.create("a").unwrap();
    let bufs: Vec<AlignedBuf> = (0..40u8).map(|i| AlignedBuf::from_slice(&[i; SECTOR])).collect();
    let mut ops: Vec<Op<'_>> =
        bufs.iter().enumerate().map(|(i, buf)| Op::Write { offset: (i * SECTOR) as u64, buf }).collect();
    assert!(file.batch(Class::PageFlush, &mut ops).iter().all(Result::is_ok));
    let mut back = AlignedBuf::zeroed(40 * SECTOR);
    file.read(Class::PageRead, 0, &mut back).unwrap();
    assert!(back.chunks(SECTOR).enumerate().all(|(i, part)| part.iter().all(|b| *b == i as u8)));
    fs::remove_dir_all(path).unwrap();
}

#[test]
fn names_and_locks_behave() {
    let (path, disk) = scratch("names");
    disk.create("a").unwrap();
    assert!(matches!(disk.create("a"), Err(DiskError::Exists { .. })));
    assert!(matches!(disk.open("b"), Err(DiskError::Absent { .. })));
    disk.rename("a", "b").unwrap();
    disk.sync_dir().unwrap();
    assert_eq!(disk.list().unwrap(), ["b"]);
    let lock = disk.lock().unwrap();
    assert!(matches!(disk.lock(), Err(DiskError::Locked { .. })));
    drop(lock);
    drop(disk.lock().unwrap());
    fs::remove_dir_all(path).unwrap();
}

#[test]
fn a_held_lock_names_its_holder_and_a_name_that_was_left_is_not_told() {
    let (path, disk) = scratch("holder");
    let holder = || match disk.lock().map(|_| ()) {
        Err(DiskError::Locked { by, .. }) => by,
        other => panic!("{other:?}"),
    };
    let held = disk.lock().unwrap();
    let by = holder().unwrap();
    assert!(
        by.who.starts_with(&format!("process {} on ", std::process::id())) && by.since_ms > 1 << 40,
        "{by:?}"
    );
    assert!(disk.lock().map(|_| ()).unwrap_err().to_string().contains(&by.who));
    let name = path.join(LOCK_FILE);
    let host = by.who.split(" on ").nth(1).unwrap();
    // A process that was killed here; one on another machine, which may live; bytes that are not a name.
    for (text, told) in [
        (format!("process 4194999 on {host}\n1\n"), None),
        ("process 4194999 on elsewhere\n1\n".to_string(), Some("process 4194999 on elsewhere")),
        ("process 1 on x".to_string(), None),
        ("\n\n".to_string(), None),
        (String::new(), None),
    ] {
        fs::write(&name, &text).unwrap();
        assert_eq!(holder().map(|by| by.who).as_deref(), told, "{text}");
    }
    // A reader has no name, and leaves none.
    drop(held);
    let _reading = RealDisk::open_to_read(&path).unwrap().lock().unwrap();
    assert_eq!(holder(), None);
    assert_eq!(fs::read(&name).unwrap(), b"");
    fs::remove_dir_all(path).unwrap();
}

/// Only a held lock says that an instance runs.
#[test]
fn a_failed_lock_means_another_owner_only_if_the_system_says_so() {
    let (path, disk) = scratch("locks");
    let lock = |number| disk.lock_error(&IoError::from_raw_os_error(number), None);
    assert!(matches!(lock(libc::EWOULDBLOCK), DiskError::Locked { .. }));
    for (number, says) in [
        (libc::ENOLCK, "No locks available"),
        (libc::EOPNOTSUPP, "not supported"),
        (libc::EBADF, "Bad file descriptor"),
    ] {
        let error = lock(number);
        assert!(matches!(&error, DiskError::Failed { cause, .. } if cause.contains(says)), "{error}");
    }
    fs::remove_dir_all(path).unwrap();
}

/// As of NFS.
#[test]
fn a_read_only_user_takes_a_shared_lock_where_an_exclusive_one_is_refused() {
    let asked = std::cell::RefCell::new(Vec::new());
    let nfs = |how| {
        asked.borrow_mut().push(how);
        if how == libc::LOCK_SH { Ok(()) } else { Err(IoError::from_raw_os_error(libc::EBADF)) }
    };
    assert!(take_lock(true, nfs).is_ok() && take_lock(false, nfs).is_err());
    assert_eq!(*asked.borrow(), [libc::LOCK_EX, libc::LOCK_SH, libc::LOCK_EX]);
    let taken = |_| Err(IoError::from_raw_os_error(libc::EWOULDBLOCK));
    assert_eq!(take_lock(true, taken).unwrap_err().kind(), ErrorKind::WouldBlock);
}

#[test]
fn a_directory_opened_to_read_is_not_made_and_nothing_in_it_changes() {
    let (path, disk) = scratch("read-only");
    assert!(RealDisk::open_to_read(path.join("absent")).is_err() && !path.join("absent").exists());
    disk.create("a").unwrap().grow(SECTOR as u64, true).unwrap();
    assert!(RealDisk::open_to_read(path.join("a")).is_err(), "a file is no directory");
    let seen = RealDisk::open_to_read(&path).unwrap();
    let file = seen.open("a").unwrap();
    assert!(file.write(Class::PageFlush, 0, &AlignedBuf::from_slice(&[1; SECTOR])).is_err());
    assert!(file.grow(2 * SECTOR as u64, false).is_err());
    assert!(seen.create("b").is_err() && seen.remove("a").is_err() && seen.rename("a", "c").is_err());
    // Without the lock's file no instance runs; with it, the lock's holder keeps readers out.
    drop(seen.lock().unwrap());
    assert_eq!(seen.list().unwrap(), ["a"]);
    assert!(!path.join(LOCK_FILE).exists());
    let held = disk.lock().unwrap();
    assert!(matches!(seen.lock(), Err(DiskError::Locked { .. })));
    drop(held);
    let _reading = seen.lock().unwrap();
    assert!(matches!(disk.lock(), Err(DiskError::Locked { .. })));
    fs::remove_dir_all(path).unwrap();
}

/// Both ways to a file see what the other wrote, whichever came last.
#[test]
fn buffered_and_direct_requests_to_one_file_see_each_others_bytes() {
    let (path, disk) = scratch("handed");
    let file = disk.create("a").unwrap();
    let page = 8 * SECTOR;
    file.grow(16 * page as u64, true).unwrap();
    file.sync(Class::LogWrite).unwrap();
    let full = |byte: u8| AlignedBuf::from_slice(&vec![byte; page]);
    let put = |at: usize, byte: u8, handed: bool| {
        let buf = full(byte);
        let ops = vec![Op::Write { offset: (at * page) as u64, buf: &buf }];
        let mut writes = [FileWrite { file: &*file, ops }];
        let results = match handed {
            true => disk.write_handed(Class::LogWrite, &mut writes),
            false => disk.write_all(Class::LogWrite, &mut writes),
        };
        assert!(results.iter().all(Result::is_ok));
    };
    let mut model = [0u8; 16];
    for round in 1..=200u8 {
        let at = usize::from(round) * 7 % 16;
        put(at, round, round % 3 != 0);
        model[at] = round;
        if round % 11 == 0 {
            file.sync(Class::LogWrite).unwrap();
        }
        // Another handle, as recovery's is after a kill.
        let reader = disk.open("a").unwrap();
        let mut back = AlignedBuf::zeroed(16 * page);
        reader.read(Class::LogRead, 0, &mut back[..16 * page]).unwrap();
        for (number, part) in back[..16 * page].chunks(page).enumerate() {
            assert!(part.iter().all(|byte| *byte == model[number]), "round {round}, page {number}");
        }
    }
    assert!(disk.stats().unwrap().of(Class::LogWrite).requests >= 200);
    fs::remove_dir_all(path).unwrap();
}
