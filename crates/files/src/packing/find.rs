//! Finding a packed file: staged, in a part that was read a moment ago, or by a read of flash that brings its neighbours.
//!
//! Readers of one part share its read: the first makes it, the others find the part in memory when it has ended.

use super::block::{self, Footer, Tail};
use super::index::{BlockNumber, Place};
use super::{Cache, Flight, Packs, State, count, mark_of};
use crate::planted;
use std::ops::Range;
use std::sync::Arc;
use terrace::flash::Part;
use terrace_io::disk::hedge;
use terrace_io::sched::Event;

/// Bytes at the end of a block that are read first: most footers are shorter.
const TAIL: usize = 128 << 10;

/// A part of a block that was read, with the block's footer.
pub struct Loaded {
    footer: Arc<Footer>,
    part: Part,
}

impl Loaded {
    fn range(&self) -> Range<usize> {
        self.part.at..self.part.at + self.part.len()
    }

    fn covers(&self, footer: &Footer, bytes: &Range<usize>) -> bool {
        let range = self.range();
        (self.footer.id, self.footer.generation) == (footer.id, footer.generation)
            && range.start <= bytes.start
            && bytes.end <= range.end
    }

    /// The bytes of an entry that lies in the part.
    pub fn bytes(&self, at: usize) -> Option<&[u8]> {
        let entry = self.footer.entry(at)?;
        self.part
            .get(entry.bytes.start.checked_sub(self.part.at)?..entry.bytes.end.checked_sub(self.part.at)?)
    }

    /// The files that lie in the part, each with its version and length, in the order of their paths.
    pub fn files(&self) -> impl Iterator<Item = (usize, String, u64, usize)> {
        let range = self.range();
        self.footer.entries_in(&range).filter_map(move |at| {
            let entry = self.footer.entry(at).filter(|entry| entry.bytes.end <= range.end)?;
            Some((at, self.footer.path(at)?, entry.version, entry.bytes.len()))
        })
    }

    /// Whether the entry's bytes are what was packed.
    pub fn proves(&self, at: usize, path: &str) -> bool {
        let entry = self.footer.entry(at);
        matches!((entry, self.bytes(at)), (Some(entry), Some(bytes)) if self.footer.proves(&entry, path, bytes))
    }
}

pub enum Found {
    Staged(Arc<[u8]>),
    /// Where the file is in the part; `is_new` for the reader that has read it.
    Packed {
        loaded: Arc<Loaded>,
        at: usize,
        is_new: bool,
    },
}

impl Found {
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Found::Staged(bytes) => Some(bytes),
            Found::Packed { loaded, at, .. } => loaded.bytes(*at),
        }
    }
}

/// What is to be done for an entry.
enum Next {
    Found(Arc<Loaded>),
    Wait(Arc<Event>, terrace_io::sched::Ticket),
    Read(Range<usize>, Arc<Event>),
}

impl Packs {
    /// This version of the file. May wait for flash, within the caller's bound ([`hedge`]); `reserve` is asked for room for what is read.
    pub fn find<R>(
        &self,
        cache: &Cache,
        path: &str,
        version: u64,
        reserve: impl Fn(usize) -> R,
    ) -> Option<Found> {
        let mark = mark_of(path);
        let began = self.world.clock.now();
        loop {
            // The reader has another copy, and goes there.
            if hedge::has_left() {
                return None;
            }
            let (place, generation, footer) = {
                let mut state = self.state.lock();
                if let Some(item) = state.stage.get(path) {
                    if item.version == version || planted::PACKED_VERSION_IGNORED.on() {
                        count(&self.counters.staged_hits, 1);
                        return Some(Found::Staged(item.bytes.clone()));
                    }
                    state.stage.remove(path);
                }
                let place = state.index.find(mark)?;
                let generation = state.index.block(place.block)?.generation;
                (place, generation, footer_of(&state, place.block, generation))
            };
            let footer = match footer {
                Some(footer) => footer,
                None => match self.read_footer(cache, place.block, Some(generation)) {
                    Some(footer) => footer,
                    None if hedge::has_left() => return None,
                    None => {
                        self.drop_block(cache, place.block, generation);
                        continue;
                    }
                },
            };
            let Some(entry) = footer.entry(place.at as usize) else {
                self.drop_block(cache, place.block, generation);
                continue;
            };
            if !footer.is_of(place.at as usize, path) {
                return None; // another path with the same hash
            }
            if entry.version != version && !planted::PACKED_VERSION_IGNORED.on() {
                count(&self.counters.stale, 1);
                self.state.lock().index.remove_from(mark, place);
                return None;
            }
            match self.next(&footer, place, &entry.bytes) {
                Next::Found(loaded) => {
                    if !loaded.proves(place.at as usize, path) {
                        self.drop_block(cache, place.block, generation);
                        continue;
                    }
                    count(&self.counters.recent_hits, 1);
                    return Some(Found::Packed { loaded, at: place.at as usize, is_new: false });
                }
                Next::Wait(event, seen) => {
                    let rest = hedge::bound()
                        .map(|bound| bound.saturating_sub(self.world.clock.now().saturating_sub(began)));
                    if rest == Some(0) {
                        return None;
                    }
                    self.world.sched.wait(&event, seen, rest);
                }
                Next::Read(range, ended) => {
                    let _room = reserve(range.len());
                    let loaded = self.read(cache, &footer, place, path, range, &ended);
                    let Some(loaded) = loaded else {
                        if hedge::has_left() {
                            return None;
                        }
                        self.drop_block(cache, place.block, generation);
                        continue;
                    };
                    count(&self.counters.read_hits, 1);
                    return Some(Found::Packed { loaded, at: place.at as usize, is_new: true });
                }
            }
        }
    }

    fn next(&self, footer: &Arc<Footer>, place: Place, bytes: &Range<usize>) -> Next {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        if let Some(loaded) = state.recent.iter().rev().find(|loaded| loaded.covers(footer, bytes)) {
            return Next::Found(loaded.clone());
        }
        let covers = |flight: &&Flight| {
            flight.block == place.block && flight.bytes.start <= bytes.start && bytes.end <= flight.bytes.end
        };
        if let Some(flight) = state.flights.iter().find(covers) {
            let ended = flight.ended.clone();
            let seen = ended.ticket();
            return Next::Wait(ended, seen);
        }
        let range = state.window.range(place.block, bytes, footer.body, self.bring_bytes);
        let ended = Arc::new(Event::new());
        state.flights.push(Flight { block: place.block, bytes: range.clone(), ended: ended.clone() });
        Next::Read(range, ended)
    }

    /// Reads a part of a block and ends the flight that was begun for it. None: flash has it no more, or has other bytes there.
    fn read(
        &self,
        cache: &Cache,
        footer: &Arc<Footer>,
        place: Place,
        path: &str,
        range: Range<usize>,
        ended: &Arc<Event>,
    ) -> Option<Arc<Loaded>> {
        let found = cache.peek(
            self.key(place.block),
            |_| range.clone(),
            |part| {
                let Some(entry) = footer.entry(place.at as usize) else { return false };
                let begin = entry.bytes.start.checked_sub(part.at);
                let bytes = begin.and_then(|begin| part.get(begin..begin + entry.bytes.len()));
                bytes.is_some_and(|bytes| footer.proves(&entry, path, bytes))
            },
        );
        let loaded = found.map(|part| Arc::new(Loaded { footer: footer.clone(), part }));
        count(&self.counters.reads, 1);
        count(&self.counters.read_bytes, range.len() as u64);
        let mut state = self.state.lock();
        state.flights.retain(|flight| !Arc::ptr_eq(&flight.ended, ended));
        if let Some(loaded) = &loaded {
            state.recent.push_back(loaded.clone());
            state.recent_bytes += loaded.part.len();
            while state.recent_bytes > self.shares.recent
                && let Some(oldest) = state.recent.pop_front()
            {
                state.recent_bytes -= oldest.part.len();
            }
        }
        drop(state);
        ended.notify();
        loaded
    }

    /// The footer of a block from flash. None: there is no such block, or its footer is not intact.
    pub(super) fn read_footer(
        &self,
        cache: &Cache,
        number: BlockNumber,
        generation: Option<u64>,
    ) -> Option<Arc<Footer>> {
        let mut tail = TAIL;
        // The second time for a footer that is longer.
        for _ in 0..2 {
            let mut found = None;
            count(&self.counters.footer_reads, 1);
            cache.peek(
                self.key(number),
                |len| len.saturating_sub(tail)..len,
                |part| {
                    found = Some(block::decode(u64::from(number), part.value_len, part));
                    matches!(found, Some(Tail::Whole(_) | Tail::Needs(_)))
                },
            )?;
            match found? {
                Tail::Whole(footer)
                    if generation.is_none_or(|generation| generation == footer.generation) =>
                {
                    let footer = Arc::new(footer);
                    Packs::remember_footer(&mut self.state.lock(), &footer, self.shares.footers);
                    return Some(footer);
                }
                Tail::Needs(more) => tail = more,
                Tail::Whole(_) | Tail::Invalid => return None,
            }
        }
        None
    }
}

fn footer_of(state: &State, number: BlockNumber, generation: u64) -> Option<Arc<Footer>> {
    let is_it = |footer: &&Arc<Footer>| (footer.id, footer.generation) == (u64::from(number), generation);
    state.footers.iter().rev().find(is_it).cloned()
}
