//! An array of items that never move: it reserves addresses for its maximum length at the start, and commits memory as it grows.
//!
//! Items are created once and never removed, so a thread that reads one without a lock always finds it initialised.

use std::sync::atomic::{AtomicUsize, Ordering};
use terrace_io::memory::reserve::Reserved;

pub(crate) struct Growing<T> {
    place: Reserved,
    made: AtomicUsize,
    max: usize,
    _things: std::marker::PhantomData<T>,
}

impl<T: Send + Sync> Growing<T> {
    /// An empty array for up to `max` items. Returns None if the addresses cannot be reserved.
    pub fn new(max: usize) -> Option<Growing<T>> {
        assert!(align_of::<T>() <= 4096);
        let place = Reserved::new(max.checked_mul(size_of::<T>())?)?;
        Some(Growing { place, made: AtomicUsize::new(0), max, _things: std::marker::PhantomData })
    }

    /// The number of items.
    pub fn len(&self) -> usize {
        self.made.load(Ordering::Acquire)
    }

    /// Creates items until there are `len`. Returns false if the operating system does not give the memory. One caller at a time.
    pub fn make(&self, len: usize, thing: impl Fn() -> T) -> bool {
        let made = self.len();
        if len <= made {
            return true;
        }
        let size = size_of::<T>();
        if len > self.max || !self.place.commit(made * size, len * size) {
            return false;
        }
        self.place.ask_huge(made * size, len * size);
        for at in made..len {
            // SAFETY: committed above, within the reservation, and no other thread reads it before `made` includes it.
            unsafe { self.place.base().cast::<T>().add(at).write(thing()) };
        }
        self.made.store(len, Ordering::Release);
        true
    }

    #[inline]
    pub fn get(&self, at: usize) -> &T {
        assert!(at < self.made.load(Ordering::Relaxed));
        // SAFETY: created, never moved, and dropped only with the array.
        unsafe { &*self.place.base().cast::<T>().add(at) }
    }

    pub fn iter(&self) -> impl Iterator<Item = &T> {
        (0..self.len()).map(|at| self.get(at))
    }
}

impl<T> Drop for Growing<T> {
    fn drop(&mut self) {
        if std::mem::needs_drop::<T>() {
            for at in 0..*self.made.get_mut() {
                // SAFETY: created, and no reference to it remains.
                unsafe { std::ptr::drop_in_place(self.place.base().cast::<T>().add(at)) };
            }
        }
    }
}
