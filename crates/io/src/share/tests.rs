use super::*;
use std::sync::Arc;
use std::time::Duration;

#[test]
fn background_work_never_takes_the_last_places() {
    let share = Share::new(8, 3);
    let flush = share.enter(Urgency::Background, 10).unwrap();
    assert_eq!(flush.count, 3);
    let log = share.enter(Urgency::Urgent, 10).unwrap();
    assert_eq!(log.count, 5, "the rest is there for urgent work at once");
}

#[test]
fn a_waiter_goes_on_when_a_place_is_released() {
    let share = Arc::new(Share::new(4, 1));
    let first = share.enter(Urgency::Background, 1).unwrap();
    let (entered, has_entered) = std::sync::mpsc::channel();
    let waiter = std::thread::spawn({
        let share = share.clone();
        move || {
            let places = share.enter(Urgency::Background, 1).unwrap();
            entered.send(places.count).unwrap();
        }
    });
    assert!(has_entered.recv_timeout(Duration::from_millis(30)).is_err(), "entered beside the limit");
    drop(first);
    assert_eq!(has_entered.recv_timeout(Duration::from_secs(300)), Ok(1));
    waiter.join().unwrap();
}

#[test]
fn background_batches_go_in_pieces_within_the_limit_and_the_log_never_waits_for_them() {
    use crate::disk::Class;
    use std::sync::atomic::{AtomicUsize, Ordering};
    let share = Share::of_device();
    let (now, most, held) = (AtomicUsize::new(0), AtomicUsize::new(0), parking_lot::RwLock::new(()));
    std::thread::scope(|scope| {
        let hold = held.write();
        for _ in 0..4 {
            scope.spawn(|| {
                let mut items: Vec<usize> = (0..100).collect();
                let results = in_pieces(
                    &share,
                    Class::PageFlush,
                    &mut items,
                    |_| 1,
                    |piece| {
                        assert!(piece.len() <= DEVICE_BACKGROUND);
                        let there = now.fetch_add(piece.len(), Ordering::SeqCst) + piece.len();
                        most.fetch_max(there, Ordering::SeqCst);
                        drop(held.read());
                        now.fetch_sub(piece.len(), Ordering::SeqCst);
                        piece.iter().map(|item| item * 2).collect()
                    },
                );
                assert!(results.into_iter().eq((0..100).map(|item| item * 2)));
            });
        }
        while now.load(Ordering::SeqCst) < DEVICE_BACKGROUND {
            std::thread::yield_now();
        }
        // Every place of the background is taken, and stays so.
        let mut log = [1, 2, 3];
        assert_eq!(in_pieces(&share, Class::LogWrite, &mut log, |_| 1, |all| all.to_vec()), [1, 2, 3]);
        assert_eq!(
            in_pieces(&share, Class::PageRead, &mut [7; 99], |_| 1, |all| vec![all.len(); 99]),
            [99; 99]
        );
        drop(hold);
    });
    assert_eq!(most.load(Ordering::SeqCst), DEVICE_BACKGROUND);
    assert_eq!(now.load(Ordering::SeqCst), 0);
}

#[test]
fn a_long_request_takes_the_places_of_several() {
    use crate::disk::Class;
    assert_eq!([1, 16 << 10, (16 << 10) + 1, 256 << 10].map(places), [1, 1, 2, 16]);
    let share = Share::new(usize::MAX, 8);
    let mut pieces = Vec::new();
    in_pieces(
        &share,
        Class::PageFlush,
        &mut [3, 3, 3, 8, 20, 1, 7],
        |item| *item,
        |piece| {
            pieces.push(piece.to_vec());
            piece.to_vec()
        },
    );
    assert_eq!(
        pieces,
        [vec![3, 3], vec![3], vec![8], vec![20], vec![1, 7]],
        "what is larger than all goes alone"
    );
}
