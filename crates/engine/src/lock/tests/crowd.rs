//! Twelve threads and all kinds of locks on a few rows: rows read to be changed, rows changed (their writer stands in them), gaps, inserts,
//! names that must be unique. They are victims of deadlocks, time out, give back some or all of what they have. A session that can
//! continue does so: otherwise a long wait ends in an error.

use super::*;
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64};

const KEYS: u64 = 6;
const THREADS: u64 = 12;
const TXNS: u64 = 200;
/// No waiter waits this long unless it was forgotten.
const LONG: u64 = 20_000_000_000;

struct Crowd {
    seed: u64,
    locks: Locks,
    /// Each row's last writer; the mutex is the leaf's latch.
    heads: Vec<parking_lot::Mutex<TxnId>>,
    active: parking_lot::Mutex<HashSet<TxnId>>,
    sessions: AtomicU64,
    stuck: AtomicBool,
}

/// A transaction, and one step of it at `at`.
struct One<'a> {
    crowd: &'a Crowd,
    session: u64,
    txn: TxnId,
    weight: u64,
    patience: u64,
    cancel: Cancel,
}

impl One<'_> {
    fn is_active(&self, txn: TxnId) -> bool {
        self.crowd.active.lock().contains(&txn)
    }

    fn request<'k>(&'k self, key: &'k [u8], want: WantedLock) -> Request<'k> {
        let locks = &self.crowd.locks;
        Request::new(locks, self.session, self.weight, (SPACE, key), want, self.patience, &self.cancel)
    }

    fn read(&self, at: usize, key: &[u8], mode: Mode) -> Result<()> {
        let mut request = self.request(key, WantedLock { mode, ..WantedLock::SHARED });
        loop {
            let got = {
                let head = self.crowd.heads[at].lock();
                match *head {
                    own if own == self.txn => return Ok(()),
                    other if self.is_active(other) => Err(InTheWay::Txn(other)),
                    _ => take(&self.crowd.locks, self.session, SPACE, key, mode)?,
                }
            };
            match got {
                Ok(_) => {
                    request.served();
                    return Ok(());
                }
                Err(way) => request.wait(&way, |txn| self.is_active(txn))?,
            }
        }
    }

    fn change(&self, at: usize, key: &[u8], inserts: bool) -> Result<()> {
        let want = WantedLock { inserts, ..WantedLock::EXCLUSIVE };
        let mut request = None;
        loop {
            let way = {
                let mut head = self.crowd.heads[at].lock();
                let owns = *head == self.txn;
                match owns || !self.is_active(*head) {
                    true => {
                        let way = self.crowd.locks.admit_writer(self.session, (SPACE, key), want, owns)?;
                        if way.is_none() {
                            *head = self.txn;
                        }
                        way
                    }
                    false => Some(InTheWay::Txn(*head)),
                }
            };
            let Some(way) = way else { return Ok(()) };
            let request = request.get_or_insert_with(|| self.request(key, want));
            request.wait(&way, |txn| self.is_active(txn))?;
        }
    }

    fn keep_unique(&self, key: &[u8]) -> Result<()> {
        let mut request = self.request(key, WantedLock::UNIQUE);
        while let Err(way) = self.crowd.locks.take_unique(self.session, SPACE, key)? {
            request.wait(&way, |txn| self.is_active(txn))?;
        }
        drop(request);
        std::thread::yield_now();
        self.crowd.locks.release_unique(self.session, SPACE, key);
        Ok(())
    }
}

impl Crowd {
    fn txn(&self, random: &mut impl FnMut(u64) -> u64) {
        let session = self.sessions.fetch_add(1, Ordering::SeqCst);
        let txn = 1_000_000 + session;
        self.active.lock().insert(txn);
        self.locks.bind(txn, session);
        let mut gaps = Vec::new();
        for weight in 0..1 + random(4) {
            let at = (random(KEYS) * random(KEYS) / 5) as usize % KEYS as usize;
            let key = [b'a' + at as u8];
            let hasty = random(20) == 0;
            let patience = if hasty { 100_000 } else { LONG };
            let one = One { crowd: self, session, txn, weight, patience, cancel: Cancel::default() };
            let kind = random(20);
            let mode = if kind == 0 { Mode::Shared } else { Mode::Exclusive };
            let got = match kind {
                0..=9 => one.read(at, &key, mode),
                10..=16 => one.change(at, &key, kind == 16),
                17 => self.locks.keep(session, SPACE, b"b", Some(b"d")).map(|_| gaps.push(SPACE)),
                _ => one.keep_unique(&key),
            };
            match got {
                Ok(()) if kind < 10 && random(6) == 0 => self.locks.release_row(session, SPACE, &key, mode),
                Err(Error::LockTimeout) if !hasty => self.stuck.store(true, Ordering::SeqCst),
                Ok(()) | Err(Error::LockTimeout) => {}
                Err(Error::Deadlock) => break,
                Err(error) => panic!("seed {}: {error}", self.seed),
            }
            if random(3) == 0 {
                std::thread::yield_now();
            }
        }
        if random(8) == 0 {
            self.locks.release_reads(session, &gaps);
            gaps.clear();
        }
        self.active.lock().remove(&txn);
        self.locks.release_all(session, &gaps);
        self.locks.unbind(txn);
    }

    fn thread(&self, number: u64) {
        let mut state = self.seed.wrapping_mul(1000).wrapping_add(number);
        let mut random = |below: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % below
        };
        for _ in 0..TXNS {
            if !self.stuck.load(Ordering::SeqCst) {
                self.txn(&mut random);
            }
        }
    }
}

#[test]
fn no_waiter_is_forgotten_among_locks_of_all_kinds() {
    let mut preferred = 0;
    for seed in 0..12 {
        let crowd = Crowd {
            seed,
            locks: locks(10_000),
            heads: (0..KEYS).map(|_| Default::default()).collect(),
            active: Default::default(),
            sessions: AtomicU64::new(100),
            stuck: AtomicBool::new(false),
        };
        std::thread::scope(|scope| {
            for number in 0..THREADS {
                let crowd = &crowd;
                scope.spawn(move || crowd.thread(number));
            }
        });
        let locks = &crowd.locks;
        let (starving, waiting) = (&locks.starving, &locks.waiting);
        assert!(!crowd.stuck.load(Ordering::SeqCst), "seed {seed}: somebody waited for nobody");
        let left = (starving.load(Ordering::SeqCst), waiting.load(Ordering::SeqCst), locks.held());
        assert_eq!(left, (0, 0, 0), "seed {seed}");
        preferred += locks.preferred();
    }
    assert!(preferred > 20, "{preferred} preferred");
}
