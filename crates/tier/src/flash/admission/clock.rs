//! A rule of admission before a CLOCK, as the engine has it (`bpe`): a hit sets or counts up a page's bits; the
//! hand counts them down, and the page that it finds without leaves.

use super::Admission;
use super::filter::{Filter, Memory, Rule};
use super::policy::{Fate, Policy};
use super::sketch::Sketch;
use super::slots::{Slot, Slots};
use crate::flash::key::{Key, mark};

/// When less than one slot in this many is free, flash counts as full for admission.
const ROOM: usize = 16;
/// Number of pages that `sampled` examines.
const SAMPLE: usize = 16;

/// Which page is evicted.
enum Order {
    /// The hand's next page without uses; a page's uses are counted up to the number.
    Clock { most: u8 },
    /// The page with the lowest estimate of a sample; the state of the generator (SplitMix64).
    Sampled(u64),
}

pub(super) struct Clocked<K> {
    filter: Filter<K>,
    held: Resident<K>,
    /// The filter's leniency while flash is not full: a flash of a few slots has none.
    room: bool,
}

/// The pages on flash, and their order of eviction.
struct Resident<K> {
    slots: Slots<K>,
    uses: Vec<u8>,
    hand: Slot,
    order: Order,
}

impl<K: Key> Clocked<K> {
    pub fn new(pages: usize, rule: Rule, bits: u8, memory: Memory) -> Clocked<K> {
        Clocked::with(pages, rule, memory, Order::Clock { most: (1 << bits) - 1 })
    }

    /// A CLOCK without bits that admits all is a FIFO.
    pub fn fifo(pages: usize) -> Clocked<K> {
        Clocked::with(pages, Rule::AdmitAll, Memory::default(), Order::Clock { most: 0 })
    }

    pub fn sampled(pages: usize, rule: Rule, memory: Memory, seed: u64) -> Clocked<K> {
        Clocked::with(pages, rule, memory, Order::Sampled(seed))
    }

    fn with(pages: usize, rule: Rule, memory: Memory, order: Order) -> Clocked<K> {
        Clocked {
            filter: Filter::new(rule, pages, memory),
            held: Resident { slots: Slots::new(pages), uses: vec![0; pages], hand: 0, order },
            room: pages >= ROOM,
        }
    }
}

impl<K: Key> Resident<K> {
    /// The next victim of a full flash: all slots are in use.
    fn victim(&mut self, sketch: Option<&Sketch>) -> Slot {
        let len = self.slots.len() as Slot;
        match (&mut self.order, sketch) {
            (Order::Sampled(state), Some(sketch)) => {
                let mut draw = || {
                    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
                    let x = (*state ^ (*state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
                    let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
                    ((u128::from(x ^ (x >> 31)) * u128::from(len)) >> 64) as Slot
                };
                let sample = (0..SAMPLE).map(|_| draw());
                sample.min_by_key(|slot| sketch.estimate(mark(self.slots.page(*slot)))).unwrap_or(0)
            }
            _ => loop {
                let slot = self.hand;
                self.hand = if slot + 1 == len { 0 } else { slot + 1 };
                match self.uses[slot as usize].checked_sub(1) {
                    Some(left) => self.uses[slot as usize] = left,
                    None => return slot,
                }
            },
        }
    }
}

impl<K: Key> Policy<K> for Clocked<K> {
    fn read(&mut self, id: K) -> bool {
        self.filter.missed(id);
        let Some(slot) = self.held.slots.find(id) else { return false };
        if let Order::Clock { most } = self.held.order {
            let uses = &mut self.held.uses[slot as usize];
            *uses = (*uses + 1).min(most);
        }
        true
    }

    fn left(&mut self, id: K, accesses: u8, may_write: bool) -> Fate {
        let held = &mut self.held;
        if held.slots.find(id).is_some() {
            return Fate::Kept;
        }
        let capacity = held.slots.capacity();
        if capacity == 0 {
            return Fate::Declined;
        }
        let has_room = self.room && held.slots.len() < capacity / ROOM * (ROOM - 1);
        let full = held.slots.is_full();
        let mut victim = None;
        let admission = self.filter.judge(id, accesses, has_room, |sketch| {
            victim = full.then(|| held.victim(Some(sketch)));
            victim.map(|slot| mark(held.slots.page(slot)))
        });
        if admission == Admission::Remember {
            return Fate::Declined;
        }
        if !may_write {
            self.filter.remember(id);
            return Fate::Dropped;
        }
        if full {
            let victim = victim.unwrap_or_else(|| held.victim(None));
            held.slots.remove(victim);
        }
        let slot = held.slots.insert(id);
        held.uses[slot as usize] = 0;
        Fate::Written
    }

    fn invalidate(&mut self, id: K) -> bool {
        let Some(slot) = self.held.slots.find(id) else { return false };
        self.held.slots.remove(slot);
        self.filter.remember(id);
        true
    }

    fn has(&self, id: K) -> bool {
        self.held.slots.find(id).is_some()
    }
    fn pages(&self) -> usize {
        self.held.slots.len()
    }
    fn bytes(&self) -> usize {
        self.filter.bytes() + self.held.slots.bytes() + self.held.uses.capacity()
    }
}
