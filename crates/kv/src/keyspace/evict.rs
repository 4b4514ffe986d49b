//! Which keys of a database may be evicted: candidates by chance, and their marks.

use super::database::Keyspace;
use super::entry::Key;
use crate::tiering::evict::{Candidate, Mark, Policy, Verdict};

/// A key that may be evicted.
pub struct Sampled {
    pub key: Key,
    pub candidate: Candidate,
    /// Unix time in milliseconds at which it expires.
    pub at_ms: Option<i64>,
}

impl Keyspace {
    /// Marks every key anew for `policy`; `None`: by the seconds of its last access.
    pub fn set_policy(&mut self, policy: Option<Box<dyn Policy>>) {
        if policy.is_none() && self.policy.is_none() {
            return;
        }
        self.policy = policy;
        let (seed, now) = (self.seed, (self.now_ms / 1000) as u32);
        let policy = &mut self.policy;
        self.dictionary.for_each_mut(|entry| {
            entry.access = match policy {
                None => now,
                Some(policy) => policy.admitted(super::database::hash_with(seed, &entry.key)).0,
            }
        });
    }

    pub fn policy(&self) -> Option<&dyn Policy> {
        self.policy.as_deref()
    }

    /// A key chosen by chance, of those that expire if `expiring`.
    pub fn sample(&mut self, expiring: bool) -> Option<Sampled> {
        let entry = if expiring {
            let random = self.next_random();
            let (expiry, number) = self.expiries.at_random(random)?;
            let place = self.dictionary.find_by(expiry.hash, |entry| entry.expiry == number)?;
            self.dictionary.at(place)
        } else {
            let mut state = self.random;
            let entry = self.dictionary.random(|| super::database::next_random(&mut state));
            self.random = state;
            entry?
        };
        let candidate = Candidate { hash: self.hash(&entry.key), mark: Mark(entry.access) };
        Some(Sampled { key: entry.key.clone(), candidate, at_ms: self.expiries.at_ms(entry.expiry) })
    }

    /// What the policy says of candidates, which have to be of this database. Marks of those that are spared are taken over.
    pub fn choose(&mut self, sampled: &[Sampled]) -> Option<usize> {
        let candidates: Vec<Candidate> = sampled.iter().map(|sampled| sampled.candidate).collect();
        let policy = self.policy.as_mut()?;
        match policy.victim(&candidates) {
            Verdict::Evict(index) => Some(index),
            Verdict::Spare(marks) => {
                for (sampled, mark) in sampled.iter().zip(marks) {
                    if let Some(place) = self.dictionary.find(self.hash(&sampled.key), &sampled.key) {
                        self.dictionary.at_mut(place).access = mark.0;
                    }
                }
                None
            }
        }
    }

    /// Takes a key out of memory, which storage has: no change.
    pub fn evict(&mut self, sampled: &Sampled) {
        let hash = self.hash(&sampled.key);
        let Some(place) = self.dictionary.find(hash, &sampled.key) else { return };
        let policy = self.policy.take();
        self.take(place);
        self.policy = policy;
        if let Some(policy) = &mut self.policy {
            policy.evicted(sampled.candidate);
        }
    }
}
