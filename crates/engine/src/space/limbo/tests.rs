use super::Limbo;

#[test]
fn a_page_waits_for_the_traversals_that_began_before_it_was_freed() {
    let limbo = Limbo::default();
    let visit = limbo.visit();
    limbo.add(7);
    for _ in 0..5 {
        assert!(limbo.waiting().contains(&7));
    }
    drop(visit);
    assert!(!limbo.waiting().contains(&7));
}

#[test]
fn a_page_does_not_wait_for_later_traversals_for_ever() {
    let limbo = Limbo::default();
    limbo.add(7);
    let mut visit = limbo.visit();
    let mut left = false;
    for _ in 0..4 {
        left |= !limbo.waiting().contains(&7);
        let next = limbo.visit();
        drop(std::mem::replace(&mut visit, next));
    }
    assert!(left);
}

#[test]
fn another_page_does_not_wait() {
    let limbo = Limbo::default();
    let _visit = limbo.visit();
    limbo.add(7);
    assert!(!limbo.waiting().contains(&8));
}
