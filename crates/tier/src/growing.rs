//! A table of things that never move: it is given its greatest size at the start and memory as it grows.
//!
//! Things are made once and never taken away, so who looks at one without a lock always sees one.

use std::sync::atomic::{AtomicUsize, Ordering};
use terrace_io::reserve::Reserved;

pub(crate) struct Growing<T> {
    place: Reserved,
    made: AtomicUsize,
    max: usize,
    _things: std::marker::PhantomData<T>,
}

impl<T: Send + Sync> Growing<T> {
    /// A table that can have up to `max` things, and has none. None: there are no such addresses.
    pub fn new(max: usize) -> Option<Growing<T>> {
        assert!(align_of::<T>() <= 4096);
        let place = Reserved::new(max.checked_mul(size_of::<T>())?)?;
        Some(Growing { place, made: AtomicUsize::new(0), max, _things: std::marker::PhantomData })
    }

    /// Things there are.
    pub fn len(&self) -> usize {
        self.made.load(Ordering::Acquire)
    }

    /// Makes things until there are `len`. False: the machine does not give the memory. One caller at a time.
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
            // SAFETY: committed above, within the reservation, and nobody sees it before `made` says so.
            unsafe { self.place.base().cast::<T>().add(at).write(thing()) };
        }
        self.made.store(len, Ordering::Release);
        true
    }

    #[inline]
    pub fn get(&self, at: usize) -> &T {
        assert!(at < self.made.load(Ordering::Relaxed));
        // SAFETY: made, never moved, and taken away only with the table.
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
                // SAFETY: made, and nobody has a reference any more.
                unsafe { std::ptr::drop_in_place(self.place.base().cast::<T>().add(at)) };
            }
        }
    }
}
