//! Pages that will be asked for next, fetched from the object store side by side: a store that takes long for a request
//! takes many at a time.
//!
//! What fails here is not kept and nothing is said of it: it is asked for again when its turn comes.

use super::{BUDGET, OfflineInstance};
use hashbrown::HashMap;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use terrace_io::AlignedBuf;
use terrace_io::observe;
use terrace_io::store::Purpose;
use terrace_tier::address::ObjectKey;
use terrace_tier::address::{InObject, Located};
use terrace_tier::objects::object::Objects;
use terrace_tier::objects::object::PageObjects;
use terrace_tier::page::{BLOCK_PAGES, PAGE_SIZE, PageId};

/// Requests to the store at a time.
pub(crate) const AT_ONCE: usize = 16;
/// An object of which at least this many pages are wanted is read whole.
const WHOLE: usize = 8;

/// Does `work` for each item, [`AT_ONCE`] at a time, this thread among those that work. Results in the items' order.
// It reads an instance that is not running, on real threads only: the simulation never comes here.
#[allow(clippy::disallowed_methods)]
pub(crate) fn side_by_side<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let run = || {
        let mut done = Vec::new();
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(i) else { return done };
            done.push((i, work(item)));
        }
    };
    let mut all = thread::scope(|scope| {
        // Without some of the threads it takes longer.
        let shown = || {
            let _shown = observe::thread("look");
            run()
        };
        let start = |_| thread::Builder::new().spawn_scoped(scope, shown).ok();
        let others: Vec<_> = (1..items.len().min(AT_ONCE)).filter_map(start).collect();
        let mut all = run();
        for other in others {
            all.extend(other.join().unwrap_or_else(|panic| resume_unwind(panic)));
        }
        all
    });
    all.sort_unstable_by_key(|(i, _)| *i);
    all.into_iter().map(|(_, result)| result).collect()
}

enum Wanted {
    Whole(ObjectKey),
    Page(PageId, InObject),
}

enum Got {
    Whole(ObjectKey, Vec<u8>),
    Page(PageId, AlignedBuf),
    Nothing,
}

impl OfflineInstance {
    pub(super) fn fetch_ahead(&self, ids: &[PageId]) {
        let Some(objects) = self.objects.as_ref().filter(|_| !self.gave_up.load(Ordering::Relaxed)) else {
            return;
        };
        for part in self.wanted(ids).chunks(AT_ONCE) {
            let got = side_by_side(part, |one| fetch(objects, one));
            if got.iter().all(|got| matches!(got, Got::Nothing)) {
                return; // The store may be dead: let one request find out.
            }
            let mut recent = self.recent.lock();
            for got in got {
                match got {
                    Got::Whole(key, bytes) => recent.keep(key, bytes),
                    Got::Page(id, image) => _ = recent.pages.insert(id, image),
                    Got::Nothing => {}
                }
            }
        }
    }

    /// What to fetch for these pages, within the budget for objects and the one for pages.
    fn wanted(&self, ids: &[PageId]) -> Vec<Wanted> {
        let mut by_object: HashMap<ObjectKey, Vec<(PageId, InObject)>> = HashMap::new();
        let mut order = Vec::new();
        for id in ids {
            if let Located::At(home) = self.map.locate(*id)
                && let (None, Some(at)) = (home.slot, home.object)
            {
                let pages = by_object.entry(at.key).or_insert_with(|| {
                    order.push(at.key);
                    Vec::new()
                });
                pages.push((*id, at));
            }
        }
        let mut recent = self.recent.lock();
        if recent.pages.len() * PAGE_SIZE > BUDGET / 2 {
            // Left by walks that lost their way.
            recent.pages.clear();
        }
        let mut pages_left = BUDGET / 2 / PAGE_SIZE;
        let mut whole_left = BUDGET / 2 / (BLOCK_PAGES as usize * PAGE_SIZE);
        let mut wanted = Vec::new();
        for key in order.into_iter().filter(|key| !recent.has(key)) {
            let pages = &by_object[&key];
            if pages.len() >= WHOLE && whole_left > 0 {
                whole_left -= 1;
                wanted.push(Wanted::Whole(key));
            } else if pages.len() < WHOLE {
                let some = pages.iter().take(pages_left);
                let before = wanted.len();
                wanted.extend(some.map(|(id, at)| Wanted::Page(*id, *at)));
                pages_left -= wanted.len() - before;
            }
        }
        wanted
    }
}

fn fetch(objects: &Objects, wanted: &Wanted) -> Got {
    match wanted {
        Wanted::Whole(key) => match objects.read_block(Purpose::Scrub, key) {
            Ok((_, bytes)) => Got::Whole(*key, bytes),
            Err(_) => Got::Nothing,
        },
        Wanted::Page(id, at) => {
            let mut image = AlignedBuf::zeroed(PAGE_SIZE);
            match objects.read_page(at, &mut image) {
                Ok(()) => Got::Page(*id, image),
                Err(_) => Got::Nothing,
            }
        }
    }
}
