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
fn a_waiter_goes_on_when_a_place_is_given_back() {
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
    assert_eq!(has_entered.recv_timeout(Duration::from_secs(10)), Ok(1));
    waiter.join().unwrap();
}
