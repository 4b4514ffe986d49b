//! Planted bugs: each breaks one rule, so that the tests can show that they would find it.
//!
//! The switches are constant `false` where there are no debug assertions, as in all that ships. A switch is the process's: a test
//! that turns one on is `#[ignore]`d, and run among such tests alone.

#[cfg(debug_assertions)]
pub struct Switch(std::sync::atomic::AtomicBool);

#[cfg(debug_assertions)]
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

#[cfg(not(debug_assertions))]
pub struct Switch;

#[cfg(not(debug_assertions))]
impl Switch {
    pub const fn new() -> Switch {
        Switch
    }
    #[inline(always)]
    pub fn on(&self) -> bool {
        false
    }
    pub fn set(&self, _: bool) {
        panic!("no bugs are planted in this build: it takes debug assertions");
    }
}

/// A reader serves what it read without a look at its tag.
pub static TAG_NOT_CHECKED: Switch = Switch::new();
/// A device that gets no requests is not probed.
pub static IDLE_NOT_PROBED: Switch = Switch::new();
/// A limit falls also in a period in which the device was not filled to it.
pub static DIP_TAKEN_FOR_CONGESTION: Switch = Switch::new();
/// A device that hangs keeps its share of the requests.
pub static HANG_NOT_SUSPECTED: Switch = Switch::new();
/// A device keeps its requests although the others deliver more without it.
pub static BACKEND_NEVER_CLOSED: Switch = Switch::new();
