//! Planted bugs: each breaks one rule, so that the tests can show that they would find it.
//!
//! A crate declares its own bugs, each a [`Switch`]. Where there are no debug assertions, as in all that ships, each switch is a constant
//! `false`, unless the feature `planted-bugs` is on. A switch is the process's: a test that turns one on is `#[ignore]`d, and run among
//! such tests alone.

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
