//! Planted bugs: each breaks one rule, so that the harness can show that it would find it.
//!
//! Where there are no debug assertions, as in all that ships, each switch is a constant `false`, unless the feature
//! `planted-bugs` is on. A switch is the process's: a test that turns one on is `#[ignore]`d, and run among such tests alone.

#[cfg(any(debug_assertions, feature = "planted-bugs"))]
pub struct Switch(std::sync::atomic::AtomicBool);

#[cfg(any(debug_assertions, feature = "planted-bugs"))]
impl Switch {
    pub const fn new() -> Switch {
        Switch(std::sync::atomic::AtomicBool::new(false))
    }
    pub fn on(&self) -> bool {
        self.0.load(std::sync::atomic::Ordering::Relaxed)
    }
    pub fn set(&self, on: bool) {
        self.0.store(on, std::sync::atomic::Ordering::Relaxed);
    }
}

#[cfg(not(any(debug_assertions, feature = "planted-bugs")))]
pub struct Switch;

#[cfg(not(any(debug_assertions, feature = "planted-bugs")))]
impl Switch {
    pub const fn new() -> Switch {
        Switch
    }
    #[inline(always)]
    pub fn on(&self) -> bool {
        false
    }
    pub fn set(&self, _: bool) {
        panic!("no bugs are planted in this build: it takes the feature `planted-bugs`");
    }
}

/// A page is written when its own log partition is durable, not the global horizon.
pub static OWN_HORIZON_ONLY: Switch = Switch::new();
/// Commits are acknowledged before the log is synced.
pub static ACK_BEFORE_SYNC: Switch = Switch::new();
/// Recovery does not cut at the end of a mini-transaction.
pub static HALF_RANGE_KEPT: Switch = Switch::new();
/// A sync does not pad: the next write goes on in a block that holds acknowledged records.
pub static BLOCK_REWRITTEN: Switch = Switch::new();
/// A log that ends below what was acknowledged is taken for whole.
pub static ATTESTED_IGNORED: Switch = Switch::new();
/// A record of an epoch that did not own its place counts.
pub static EPOCH_IGNORED: Switch = Switch::new();
