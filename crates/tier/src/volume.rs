//! The durable tier on the volume: the object buffer's slots, the map that says where each page lives, and the flush.
//!
//! Beside the usual path:
//!
//! * Pages of freed large values, merged leaves, undone loads and undo are not written any more. Their slots, and objects without references, are
//!   released as soon as the freeing is durable. Free pages of a space are a bitmap (`flush/forget.rs`, `map/publish.rs`,
//!   `engine/src/tree/space/free.rs`, `space/run.rs`: `Flusher::forget`, `Map::clear`).
//! * A table with limits of writes: pages beyond them stay dirty and other tables' pages are flushed, until the log, frames or a waiting thread need
//!   them written. Its writers are slowed before that; builds wait before they write (`flush/limit.rs`, `sink/limit.rs`,
//!   `engine/src/txn/write_throttle.rs`: `Turns::admits`, `Flusher::wait_to_write`, `Core::throttle_write`).

pub mod bypass;
pub mod flush;
pub mod map;
pub mod object_buffer;
pub mod temporary;
