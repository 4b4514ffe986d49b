//! A table's limits of reads in use: a reader that waits for tokens delays no other, and can be cancelled.

mod rig;

use rig::{Rig, fill};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace_io::AlignedBuf;
use terrace_io::cancel::Cancel;
use terrace_io::clock::Nanos;
use terrace_io::disk::Class;
use terrace_io::sched::{Event, Sched, Step, Worker};
use terrace_tier::flash::Leaving;
use terrace_tier::limits::quota::{Limit, Placement, Rules, TableRule};
use terrace_tier::memory::lower_tiers::{Below as _, ReadError, TurnNo};
use terrace_tier::memory::pool::Access;
use terrace_tier::page::{PAGE_SIZE, PageId, SpaceId};

const SECOND: Nanos = 1_000_000_000;
const FREE: SpaceId = SpaceId(SpaceId::FIRST_USER.0 + 1);

fn limited(n: u32) -> PageId {
    PageId::new(SpaceId::FIRST_USER, n)
}

/// Pages of two tables on the volume, one of which may be read once a second.
fn rig(seed: u64) -> (Rig, Arc<Rules>) {
    let rig = Rig::new(seed, 512);
    for n in 0..40 {
        assert!(rig.flush(limited(n)) && rig.flush(PageId::new(FREE, n)));
    }
    let rules = Arc::new(Rules::default());
    rules.set(once_a_second(1));
    rig.run.path.set_rules(rig.sim.world(), rules.clone());
    (rig, rules)
}

fn once_a_second(requests: u64) -> Vec<(u32, TableRule, Vec<(SpaceId, Placement)>)> {
    let rule = TableRule { volume_limit: Limit { requests, bytes: 0 }, ..TableRule::default() };
    vec![(1, rule, vec![(SpaceId::FIRST_USER, Placement::Default)])]
}

fn now(rig: &Rig) -> Nanos {
    rig.sim.world().clock.now()
}

fn from_volume(rig: &Rig) -> u64 {
    rig.run.path.counters.volume.load(Ordering::Relaxed)
}

/// Does `work` once, as soon as a thread waits, and records when it was done.
struct Once<F: FnMut() + Send> {
    work: Option<F>,
    clock: Arc<dyn terrace_io::clock::Clock>,
    done: Arc<AtomicU64>,
}

impl<F: FnMut() + Send> Worker for Once<F> {
    fn name(&self) -> &'static str {
        "once"
    }
    fn step(&mut self) -> Step {
        let Some(mut work) = self.work.take() else { return Step::Idle };
        work();
        self.done.store(self.clock.now(), Ordering::SeqCst);
        Step::Worked
    }
    fn wake_event(&self) -> Arc<Event> {
        Arc::new(Event::new())
    }
}

/// The reads of a statement: they can be cancelled, and wait for their turn.
fn read(rig: &Rig, cancel: &Arc<Cancel>, n: u32) -> (Result<(), ReadError>, Nanos) {
    let _scope = cancel.scope();
    let since = now(rig);
    let result = rig.run.pages.read(limited(n), Access::Normal).map(drop);
    (result, now(rig) - since)
}

/// Runs `work` while the first reader waits for page 1; returns when the work was done and how long the reader waited.
fn while_one_waits(rig: &Rig, work: impl FnMut() + Send + 'static) -> (Nanos, Nanos) {
    let cancel = Arc::new(Cancel::default());
    read(rig, &cancel, 0).0.unwrap();
    let (clock, done) = (rig.sim.world().clock, Arc::new(AtomicU64::new(0)));
    let _worker = rig.sim.sched.spawn(Box::new(Once { work: Some(work), clock, done: done.clone() }));
    let since = now(rig);
    let (result, waited) = read(rig, &cancel, 1);
    result.unwrap();
    (done.load(Ordering::SeqCst) - since, waited)
}

#[test]
fn a_reader_waits_for_tokens_without_a_frame_or_claim_and_others_go_on() {
    let (rig, _) = rig(1);
    let pages = rig.run.pages.clone();
    let free = pages.pool().free_frames() - 1; // the first page is there
    let (after, waited) = while_one_waits(&rig, move || {
        assert_eq!(pages.pool().free_frames(), free, "he holds a frame");
        (0..40).for_each(|n| drop(pages.read(PageId::new(FREE, n), Access::Normal).unwrap()));
    });
    assert!(after < SECOND / 10, "others were done after {after} ns");
    assert!((SECOND / 2..SECOND * 3 / 2).contains(&waited), "he waited for {waited} ns");
}

/// The waiting reader had claimed the page: a simulation ended here, because no thread could continue.
#[test]
fn a_background_read_of_a_page_also_serves_a_reader_that_waits_for_tokens() {
    let (rig, _) = rig(2);
    let pages = rig.run.pages.clone();
    let (after, waited) = while_one_waits(&rig, move || {
        drop(pages.read(limited(1), Access::Internal).unwrap());
    });
    assert!(after < SECOND / 10 && waited < SECOND / 5, "after {after} ns and {waited} ns");
    assert_eq!(from_volume(&rig), 2);
    // The tokens that the reader would have taken are left to the next one.
    let (result, waited) = read(&rig, &Arc::default(), 2);
    result.unwrap();
    assert!((SECOND / 2..SECOND * 3 / 2).contains(&waited), "{waited} ns");
}

#[test]
fn several_readers_of_one_page_wait_for_one_token() {
    let (rig, _) = rig(3);
    let rig = Arc::new(rig);
    let again = rig.clone();
    let took = Arc::new(AtomicU64::new(0));
    let took_too = took.clone();
    let (_, waited) = while_one_waits(&rig, move || {
        let (result, waited) = read(&again, &Arc::default(), 1);
        result.unwrap();
        took_too.store(waited, Ordering::SeqCst);
    });
    let other = took.load(Ordering::SeqCst);
    assert!(waited < SECOND * 3 / 2 && (SECOND / 2..SECOND * 3 / 2).contains(&other), "{waited}, {other} ns");
    assert_eq!(from_volume(&rig), 2);
    let (result, waited) = read(&rig, &Arc::default(), 2);
    result.unwrap();
    assert!((SECOND / 2..SECOND * 3 / 2).contains(&waited), "the next waited for {waited} ns");
}

#[test]
fn a_killed_wait_for_tokens_ends_at_once_and_leaves_its_tokens_to_others() {
    let (rig, _) = rig(4);
    let cancel = Arc::new(Cancel::default());
    read(&rig, &cancel, 0).0.unwrap();
    for n in 1..6 {
        let (clock, killer) = (rig.sim.world().clock, cancel.clone());
        let kill = Once { work: Some(move || killer.cancel()), clock, done: Arc::default() };
        let _worker = rig.sim.sched.spawn(Box::new(kill));
        let (result, waited) = read(&rig, &cancel, n);
        assert!(matches!(result, Err(ReadError::Cancelled)), "{result:?}");
        assert!(waited <= 2 * terrace_io::cancel::LOOK, "{waited} ns");
        cancel.clear();
        rig.sim.clock.advance(1_000_000);
    }
    let (result, waited) = read(&rig, &cancel, 30);
    result.unwrap();
    assert!(waited < SECOND * 3 / 2, "{waited} ns after five who went");
    assert_eq!(from_volume(&rig), 2);
}

#[test]
fn lifting_a_limit_releases_waiting_readers() {
    let (rig, rules) = rig(5);
    let (_, waited) = while_one_waits(&rig, move || rules.set(Vec::new()));
    assert!(waited <= 2 * terrace_io::cancel::LOOK, "{waited} ns");
}

/// A reader at work on one page, without threads: what `Pool` does between its waits.
struct Reader {
    id: PageId,
    mine: Option<TurnNo>,
    wakes: Nanos,
}

/// Readers share pages, are killed, find that another has loaded their page, and see the limit lifted and set again. Each reader
/// that leaves returns its tokens, so in the long run the table is read as often as it may be, no more and hardly less.
#[test]
fn readers_that_start_and_give_up_neither_lose_nor_create_tokens() {
    const RATE: u64 = 50;
    for seed in 10..16 {
        let (rig, rules) = rig(seed);
        let (path, clock, random) = (rig.run.path.clone(), rig.sim.clock.clone(), rig.sim.world().random);
        rules.set(once_a_second(RATE));
        let cancel = Arc::new(Cancel::default());
        let _scope = cancel.scope();
        let draw = |n: u64| random.next_u64() % n;
        let mut image = AlignedBuf::zeroed(PAGE_SIZE);
        let mut readers: Vec<Reader> = Vec::new();
        let (since, before) = (now(&rig), from_volume(&rig));
        let (mut for_nothing, mut rules_set) = (0, 0);
        while now(&rig) - since < 60 * SECOND {
            while readers.len() < 12 {
                readers.push(Reader { id: limited(draw(40) as u32), mine: None, wakes: now(&rig) });
            }
            let i = draw(readers.len() as u64) as usize;
            let reader = &mut readers[i];
            let goes = match draw(200) {
                0..4 => true, // killed
                4 if seed % 2 == 0 => {
                    // A background reader fetches it, without tokens.
                    for_nothing += 1;
                    let _shield = terrace_io::cancel::shield();
                    path.fetch(reader.id, &mut image).unwrap();
                    true
                }
                _ if reader.wakes > now(&rig) => false,
                _ => match path.turn(reader.id, &mut reader.mine) {
                    0 => {
                        path.fetch(reader.id, &mut image).unwrap();
                        true
                    }
                    wait => {
                        reader.wakes = now(&rig) + wait;
                        false
                    }
                },
            };
            if goes {
                let gone = readers.swap_remove(i);
                gone.mine.iter().for_each(|no| path.end_turn(gone.id, *no));
            }
            if seed % 3 == 0 && draw(1000) == 0 {
                // Another option of the table: waiting readers queue for tokens again.
                let mut changed = once_a_second(RATE);
                changed[0].1.flash.min = draw(2);
                rules.set(changed);
                rules_set += 1;
            }
            clock.advance(draw(2_000_000));
        }
        let seconds = (now(&rig) - since) / SECOND;
        let read = from_volume(&rig) - before;
        let told = format!("seed {seed}: {read} in {seconds} s, {for_nothing} in the background");
        println!("{told}");
        assert!(read >= RATE * seconds * 19 / 20, "{told}");
        // A new rule begins with a full bucket: a tenth of a second's tokens.
        let most = RATE * (seconds + 1) + rules_set * RATE / 10;
        assert!(read <= most, "{told}: at most {most}");
        for gone in readers {
            gone.mine.iter().for_each(|no| path.end_turn(gone.id, *no));
        }
    }
}

#[test]
fn pages_prefetched_from_flash_are_charged_to_later_reads() {
    let (mut rig, rules) = rig(7);
    let rule = TableRule { flash_limit: Limit { requests: 4, bytes: 0 }, ..TableRule::default() };
    rules.set(vec![(1, rule, vec![(SpaceId::FIRST_USER, Placement::Default)])]);
    for n in 0..24 {
        let (image, _) = rig::image(limited(n), rig.version(limited(n)).unwrap());
        rig.run.bpe.evicted(limited(n), &image, Leaving::used(3));
        fill(&mut rig.run);
    }
    let cancel = Arc::new(Cancel::default());
    let (_scope, since) = (cancel.scope(), now(&rig));
    (0..24).for_each(|n| drop(rig.run.pages.read(limited(n), Access::Scan).unwrap()));
    // One page, then five times four, and three: the last ones waited for the tokens of 22.
    let took = now(&rig) - since;
    assert!((4 * SECOND..6 * SECOND).contains(&took), "{took} ns");
    assert_eq!(rig.flash.requests(Class::BpeRead), 7);
    assert_eq!(rig.run.path.counters.flash.load(Ordering::Relaxed), 24);
}
