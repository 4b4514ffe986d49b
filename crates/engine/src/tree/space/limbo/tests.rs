use super::Limbo;
use terrace_tier::epoch::Visits;

#[test]
fn a_page_waits_for_the_traversals_that_began_before_it_was_freed() {
    let (limbo, visits) = (Limbo::default(), Visits::default());
    let visit = visits.begin();
    limbo.add(&visits, 7);
    for _ in 0..5 {
        assert!(limbo.waiting(&visits).contains(&7));
    }
    drop(visit);
    assert!(!limbo.waiting(&visits).contains(&7));
}

#[test]
fn a_page_does_not_wait_for_later_traversals_for_ever() {
    let (limbo, visits) = (Limbo::default(), Visits::default());
    limbo.add(&visits, 7);
    let mut visit = visits.begin();
    let mut left = false;
    for _ in 0..4 {
        left |= !limbo.waiting(&visits).contains(&7);
        let next = visits.begin();
        drop(std::mem::replace(&mut visit, next));
    }
    assert!(left);
}

#[test]
fn another_page_does_not_wait() {
    let (limbo, visits) = (Limbo::default(), Visits::default());
    let _visit = visits.begin();
    limbo.add(&visits, 7);
    assert!(!limbo.waiting(&visits).contains(&8));
}
