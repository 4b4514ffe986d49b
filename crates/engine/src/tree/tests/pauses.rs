//! A structure change held between its two steps blocks no other thread.

use super::*;
use parking_lot::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use terrace_io::clock::Nanos;
use terrace_io::sched::{Event, Sched, Ticket, Woken, Worker, WorkerHandle};

/// Holds the first thread that comes to a named point until it is told to go on.
struct Pausing {
    inner: Arc<dyn Sched>,
    at: &'static str,
    gate: Mutex<Option<(Sender<()>, Receiver<()>)>>,
}

impl Sched for Pausing {
    fn wait(&self, event: &Event, seen: Ticket, timeout: Option<Nanos>) -> Woken {
        self.inner.wait(event, seen, timeout)
    }
    fn spawn(&self, worker: Box<dyn Worker>) -> Box<dyn WorkerHandle> {
        self.inner.spawn(worker)
    }
    fn point(&self, name: &'static str) {
        if name == self.at {
            let gate = self.gate.lock().take();
            if let Some((arrived, go_on)) = gate {
                arrived.send(()).unwrap();
                go_on.recv().unwrap();
            }
        }
    }
}

fn key(n: u64) -> [u8; 8] {
    (n * 10).to_be_bytes()
}

/// Runs `first` until it comes to the point `at`, then `meanwhile` to its end, then the rest of `first`.
fn paused(at: &'static str, first: impl FnOnce(&Tree) + Send, meanwhile: impl FnOnce(&Tree)) {
    let (arrived, has_arrived) = channel();
    let (go_on, may_go_on) = channel();
    let mut world = testing::world();
    let gate = Mutex::new(None);
    let sched = Arc::new(Pausing { inner: world.sched.clone(), at, gate });
    world.sched = sched.clone();
    let pages = Arc::new(Pages::new(world, 1000, Arc::<MemoryBelow>::default(), Arc::<MemoryLog>::default()));
    let tree = Tree::create(&pages, SPACE, Urgency::Normal).unwrap();
    for n in 0..2_000 {
        tree.put(&key(n), &[1; 100]).unwrap();
    }
    *sched.gate.lock() = Some((arrived, may_go_on));
    std::thread::scope(|scope| {
        let first = scope.spawn(|| first(&tree));
        has_arrived.recv().unwrap();
        meanwhile(&tree);
        go_on.send(()).unwrap();
        first.join().unwrap();
    });
    assert!(checked(&tree).unposted.is_empty());
}

fn change_everywhere(tree: &Tree) {
    for n in 0..2_000 {
        tree.put(&(n * 10 + 5u64).to_be_bytes(), &[2; 100]).unwrap();
        assert!(tree.get(&key(n), Access::Normal, |v| v.is_some()).unwrap() || (500..1500).contains(&n));
    }
    for n in (0..2_000u64).rev() {
        assert!(tree.remove(&(n * 10 + 5).to_be_bytes()).unwrap());
    }
}

#[test]
fn inserts_everywhere_finish_while_a_split_is_held_before_its_posting() {
    let grow = |tree: &Tree| (0..150u64).for_each(|n| drop(tree.put(&(10_000 + n).to_be_bytes(), &[3; 100])));
    paused("split: not posted", grow, change_everywhere);
}

#[test]
fn changes_everywhere_finish_while_a_merge_is_held_after_its_unposting() {
    let shrink = |tree: &Tree| {
        for n in 500..1500 {
            assert!(tree.remove(&key(n)).unwrap());
        }
    };
    paused("merge: unposted", shrink, change_everywhere);
}

#[test]
fn a_page_that_is_about_to_be_merged_may_split_and_grow_again() {
    let shrink = |tree: &Tree| {
        for n in 500..1500 {
            assert!(tree.remove(&key(n)).unwrap());
        }
    };
    let grow = |tree: &Tree| {
        for n in 5_000..15_000u64 {
            tree.put(&n.to_be_bytes(), &[4; 200]).unwrap();
        }
    };
    paused("merge: unposted", shrink, grow);
}

#[test]
fn a_delayed_traversal_does_not_reach_a_reused_page() {
    let look = |tree: &Tree| {
        let found = tree.get(&key(1000), Access::Normal, |value| value.is_some());
        assert!(!found.expect("its page was freed, and not used anew"));
    };
    let free_and_use = |tree: &Tree| {
        for n in 500..1500 {
            assert!(tree.remove(&key(n)).unwrap());
        }
        let free = tree.space().counts().free;
        assert!(free > 3);
        for n in 0..2_000u64 {
            tree.put(&(1_000_000 + n).to_be_bytes(), &[5; 200]).unwrap();
        }
        assert!(tree.space().counts().free >= free);
    };
    paused("descend: between two latches", look, free_and_use);
}
