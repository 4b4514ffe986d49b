//! How far a build is: counted as it goes, reported from time to time to a listener, which may end it.

use super::{LOOK_EVERY, go_on};
use crate::error::{Error, Result};

/// Is told how many entries of how many are built; false ends the build.
pub type OnStep<'a> = &'a mut dyn FnMut(u64, u64) -> bool;

pub(super) struct Steps<'a> {
    done: u64,
    /// What there is to do, as far as it is known.
    all: u64,
    tell: OnStep<'a>,
}

impl<'a> Steps<'a> {
    pub fn new(all: u64, tell: OnStep<'a>) -> Steps<'a> {
        Steps { done: 0, all, tell }
    }

    /// One more entry.
    pub fn one(&mut self) -> Result<()> {
        self.done += 1;
        if self.done.is_multiple_of(LOOK_EVERY) { self.look() } else { Ok(()) }
    }

    /// Tells how far it is, and looks whether to go on.
    pub fn look(&mut self) -> Result<()> {
        go_on()?;
        if (self.tell)(self.done, self.all.max(self.done)) { Ok(()) } else { Err(Error::Cancelled) }
    }
}
