use super::*;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};

fn pipe() -> (OwnedFd, File) {
    let mut ends = [0; 2];
    // SAFETY: two descriptors are written.
    assert_eq!(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) }, 0);
    // SAFETY: they are new, and owned here alone.
    unsafe { (OwnedFd::from_raw_fd(ends[0]), File::from(OwnedFd::from_raw_fd(ends[1]))) }
}

/// None, and a line that says so, on a machine that refuses rings.
fn open() -> Option<Rings> {
    Rings::open().map_err(|e| eprintln!("not tested: no io_uring here ({e})")).ok()
}

/// From now on the kernel refuses to enter the ring.
fn spoil(ring: &IoUring) {
    let null = File::open("/dev/null").unwrap();
    // SAFETY: both are open; the ring's number stays its own.
    assert!(unsafe { libc::dup2(null.as_raw_fd(), ring.as_raw_fd()) } >= 0);
}

#[test]
fn a_ring_that_fails_begins_nothing_and_is_not_used_again() {
    let Some(rings) = open() else { return };
    spoil(&rings.idle.lock()[0]);
    let (read, _write) = pipe();
    let mut bytes = [0; 8];
    let mut requests = [Request::Read { fd: read.as_fd(), offset: u64::MAX, buf: &mut bytes }];
    let done = rings.run(&mut requests).unwrap();
    assert!(matches!(done[..], [Done::Not]));
    assert!(rings.idle.lock().is_empty() && rings.made.load(Ordering::SeqCst) == 0);
}

#[test]
fn requests_that_the_kernel_has_taken_are_waited_for_though_the_ring_fails() {
    let Some(mut ring) = open().and_then(|rings| rings.take()) else { return };
    let (read, mut write) = pipe();
    let mut bytes = [0; 8];
    let mut requests = [Request::Read { fd: read.as_fd(), offset: u64::MAX, buf: &mut bytes }];
    let mut done = [Done::Not];
    let mut drive = Drive::new(&mut ring);
    drive.give(&mut requests);
    assert_eq!(drive.ring.submit().unwrap(), 1);
    spoil(drive.ring);
    let writer = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        write.write_all(b"too late").unwrap();
    });
    assert!(!drive.all(&mut requests, &mut done));
    assert!(matches!(done[0], Done::Moved(8)));
    assert_eq!(&bytes, b"too late");
    writer.join().unwrap();
}

#[test]
fn rings_are_bounded_and_come_back() {
    let Some(rings) = open() else { return };
    let taken: Vec<IoUring> = (0..RINGS).map(|_| rings.take().unwrap()).collect();
    assert!(rings.run(&mut []).is_none());
    rings.idle.lock().extend(taken);
    assert!(rings.run(&mut []).is_some());
    assert_eq!((rings.idle.lock().len(), rings.made.load(Ordering::SeqCst)), (RINGS, RINGS));
}

#[test]
fn an_interruption_is_no_failure() {
    assert!(matches!(Done::of(-libc::EINTR), Done::Not));
    assert!(matches!(Done::of(-libc::EAGAIN), Done::Not));
    assert!(matches!(Done::of(4096), Done::Moved(4096)));
    assert!(matches!(Done::of(-libc::EIO), Done::Failed(e) if e.raw_os_error() == Some(libc::EIO)));
}
