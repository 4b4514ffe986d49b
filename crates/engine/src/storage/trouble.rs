//! States of a running instance that a person should know of, and how urgent each is.
//!
//! The front writes each to the error log once, when it begins, and once more when it has ended. What is wrong in such a state may change while it lasts
//! (another page, another cause): that is in the text, which `SHOW ENGINE TERRACE STATUS` shows, and is no new state. A worker that fails because the
//! engine has stopped is in no state of its own.

use crate::error::{Error, Kind};

/// Ordered: the more urgent one is the greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Severity {
    /// The instance does with less, and goes back to normal by itself once the cause has gone.
    Degraded = 1,
    /// It stays so until a person acts.
    Act = 2,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// Ends in `_trouble`.
    pub name: &'static str,
    pub severity: Severity,
    /// What is wrong, and what to do if a person must act.
    pub text: String,
}

impl Trouble {
    pub fn degraded(name: &'static str, text: String) -> Trouble {
        Trouble { name, severity: Severity::Degraded, text }
    }
    pub fn act(name: &'static str, text: String) -> Trouble {
        Trouble { name, severity: Severity::Act, text }
    }

    /// Work in the background that fails with this error and is tried again; `text` has the error. None: the engine stopped, or was told to.
    pub fn of_work(name: &'static str, error: &Error, text: String) -> Option<Trouble> {
        match error.kind() {
            Kind::Poisoned => None,
            Kind::Corrupt => Some(Trouble::act(name, format!("{text}; {REBUILD}"))),
            _ => Some(Trouble::degraded(name, text)),
        }
    }
}

/// What to do where pages are damaged or lost.
pub const REBUILD: &str =
    "run terrace check on the stopped instance, and make the table it names anew from a copy";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_work_needs_a_person_only_if_its_cause_is_permanent() {
        let severity =
            |error: Error| Trouble::of_work("purge_trouble", &error, error.to_string()).map(|t| t.severity);
        assert_eq!(severity(Error::Unavailable("the store is dead".into())), Some(Severity::Degraded));
        assert_eq!(severity(Error::Full("no slot".into())), Some(Severity::Degraded));
        assert_eq!(severity(Error::Corrupt("page 7".into())), Some(Severity::Act));
        assert_eq!(severity(Error::Missing("object 7".into())), Some(Severity::Act));
        assert_eq!(severity(Error::Poisoned("the log".into())), None);
        assert!(Severity::Act > Severity::Degraded);
    }
}
