//! The archive of the log in the object store: *stretches* of it, each an object, from which an instance is brought to any point between two of them.
//!
//! A stretch has the log's records of a range of positions, without gaps and from the beginning of a mini-transaction to the end of one, merged from the
//! log's partitions, with the times at which they were appended. Its key says all that choosing needs ([`StretchKey`]), so that a listing is the catalogue:
//! positions, times, the writer's epoch and where that epoch began. An object is put once, never changed, and named by nothing else.
//!
//! **Writers are kept apart by lineage and epoch** (invariants 4 and 8). A writer that lost the store may put stretches of its own for a while. They do not
//! count from where the next writer began: [`chain`] cuts each epoch where a later one that is in the archive begins. A writer puts a stretch as soon as
//! it has taken the store, an empty one if need be, so that its predecessors are cut.
//!
//! **A gap** is where a stretch does not begin where the one before ended. Nothing needs to record it.
//!
//! Not here: reading the log and putting stretches (`terrace_engine`'s `storage::archive`), replaying them (`offline::backup::point`).

mod chain;
mod stretch;

pub use chain::{Part, Segment, chain};
pub use stretch::{BadStretch, Stretch, StretchKey};

use terrace_io::store::{ObjectStore, Purpose, StoreError};
use terrace_io::traffic::Urgency;

/// All stretches, of all lineages, are below it.
pub const FOLDER: &str = "log/";

/// Requests for the archive, counted apart from others.
pub fn purpose() -> Purpose {
    Purpose::register("archive", Urgency::Background).unwrap_or(Purpose::Scrub)
}

/// The stretches of a lineage (None: of all), in the order of their keys.
pub fn list(
    store: &dyn ObjectStore,
    lineage: Option<u128>,
    each: &mut dyn FnMut(StretchKey),
) -> Result<(), StoreError> {
    let prefix = match lineage {
        Some(lineage) => format!("{FOLDER}{lineage:032x}/"),
        None => FOLDER.to_string(),
    };
    store.list(purpose(), &prefix, &mut |key, _| StretchKey::parse(key).into_iter().for_each(&mut *each))
}

#[cfg(test)]
mod tests;
