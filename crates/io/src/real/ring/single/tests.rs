use super::*;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::sync::mpsc::channel;

/// A read of an empty pipe is a device that hangs until something is written.
fn pipe() -> (OwnedFd, File) {
    let mut ends = [0; 2];
    // SAFETY: two descriptors are written.
    assert_eq!(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) }, 0);
    // SAFETY: they are new, and owned here alone.
    unsafe { (OwnedFd::from_raw_fd(ends[0]), File::from(OwnedFd::from_raw_fd(ends[1]))) }
}

fn has_rings() -> bool {
    let can = IoUring::new(1).is_ok_and(|ring| ring.params().is_feature_ext_arg());
    if !can {
        eprintln!("not tested: no io_uring with a time limit here");
    }
    can
}

fn read(fd: &OwnedFd, bound: Nanos) -> (Single, Option<hedge::LeftRead>) {
    hedge::bounded(Some(bound), || {
        ALL.read(fd.as_fd(), u64::MAX, AlignedBuf::zeroed(4096), 4096, hedge::bound().unwrap())
    })
}

#[test]
fn a_read_that_hangs_is_left_behind_and_its_answer_is_told_later() {
    if !has_rings() {
        return;
    }
    let (hung, mut writer) = pipe();
    let (outcome, left) = read(&hung, 3_000_000);
    assert!(matches!(outcome, Single::Overdue));
    let (tell, told) = channel();
    left.unwrap().on_answer(move |latency, came| tell.send((latency, came)).unwrap());
    assert!(told.try_recv().is_err());
    writer.write_all(&[7; 4096]).unwrap();
    let (latency, came) = told.recv().unwrap();
    assert!(came && latency >= 3_000_000);
}

#[test]
fn a_read_that_is_answered_in_time_has_its_bytes_and_one_of_a_lost_device_its_error() {
    if !has_rings() {
        return;
    }
    let (fd, mut writer) = pipe();
    writer.write_all(&[9; 4096]).unwrap();
    let (outcome, left) = read(&fd, Nanos::MAX / 2);
    let Single::Read(buf, Ok(4096)) = outcome else { panic!("it was not read") };
    assert!(left.is_none() && buf.iter().all(|byte| *byte == 9));
    let directory = File::open("/").unwrap().into();
    assert!(matches!(read(&directory, Nanos::MAX / 2).0, Single::Read(_, Err(_))));
}

#[test]
fn when_many_reads_hang_a_further_one_is_not_begun_and_all_come_back() {
    if !has_rings() {
        return;
    }
    let (hung, mut writer) = pipe();
    let (tell, told) = channel();
    let mut behind = 0;
    while let (Single::Overdue, Some(left)) = read(&hung, 1_000) {
        behind += 1;
        let tell = tell.clone();
        left.on_answer(move |_, _| tell.send(()).unwrap());
        assert!(behind <= LEFT_MAX);
    }
    // Other tests of this process have reads behind as well, at most one each.
    assert!(behind >= LEFT_MAX - 2);
    for _ in 0..behind {
        writer.write_all(&[7; 4096]).unwrap();
        told.recv().unwrap();
    }
    writer.write_all(&[7; 4096]).unwrap();
    assert!(matches!(read(&hung, Nanos::MAX / 2).0, Single::Read(_, Ok(4096))));
}
