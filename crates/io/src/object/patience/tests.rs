use super::*;

fn patience(budget: &Budget) -> Patience<'_> {
    Patience { budget, attempts_max: 4, time_max: Duration::from_secs(60), waited_for: false }
}

#[test]
fn a_read_is_retried_when_the_store_asks_for_it() {
    let budget = Budget::new();
    let (asked, second) = (Some(Duration::from_secs(1)), Duration::from_secs(1));
    let read = || Patience { waited_for: true, ..patience(&budget) };
    for attempts in 1..50 {
        let next = read().next(attempts, second * attempts, asked, 0);
        assert!(matches!(next, Next::Wait(wait) if wait >= second), "attempt {attempts}");
    }
    assert_eq!(read().next(60, second * 59, asked, 0), Next::GiveUp, "there is no time left");
    assert_eq!(read().next(4, second, None, 0), Next::GiveUp, "nobody said when");
    assert_eq!(patience(&budget).next(4, second, asked, 0), Next::GiveUp);
}

#[test]
fn waits_grow_and_are_spread() {
    let budget = Budget::new();
    let mut before = Duration::ZERO;
    for attempts in 1..4 {
        let Next::Wait(shortest) = patience(&budget).next(attempts, Duration::ZERO, None, 0) else {
            panic!()
        };
        let Next::Wait(longest) = patience(&budget).next(attempts, Duration::ZERO, None, u64::MAX) else {
            panic!()
        };
        assert!(
            shortest >= before && longest > shortest && longest < shortest * 2 + FIRST,
            "{shortest:?} {longest:?}"
        );
        before = shortest;
    }
    assert_eq!(patience(&budget).next(4, Duration::ZERO, None, 0), Next::GiveUp);
}

#[test]
fn a_pause_that_the_store_asks_for_is_honoured_or_the_request_given_up() {
    let budget = Budget::new();
    let asked = Some(Duration::from_secs(7));
    assert_eq!(patience(&budget).next(1, Duration::ZERO, asked, 0), Next::Wait(Duration::from_secs(7)));
    assert_eq!(patience(&budget).next(1, Duration::from_secs(55), asked, 0), Next::GiveUp);
    let never = Some(Duration::from_secs(u64::MAX));
    assert_eq!(patience(&budget).next(1, Duration::from_secs(1), never, 0), Next::GiveUp);
}

#[test]
fn a_sick_store_gets_no_more_than_the_budget() {
    let budget = Budget::new();
    let retries =
        (0..1000).filter(|_| patience(&budget).next(1, Duration::ZERO, None, 0) != Next::GiveUp).count();
    assert_eq!(retries, TOKENS_MAX as usize);
    for _ in 0..11 {
        budget.succeeded();
    }
    assert_ne!(patience(&budget).next(1, Duration::ZERO, None, 0), Next::GiveUp, "successes earn retries");
    assert_eq!(patience(&budget).next(1, Duration::ZERO, None, 0), Next::GiveUp);
}
