//! The object store: objects of blocks, sinking into them, collection of superseded ones, and the fence against a second writer.
//!
//! Beside the usual path:
//!
//! * While many requests to the store are in flight, one GET serves several misses of one object (`object/coalesce.rs`).
//! * A read that the store does not answer marks the store as troubled until any request succeeds. While nothing reads, the collector probes it
//!   (`object/outage.rs`, `collect.rs`: `Objects::failed`, `Collector::ask_again`).
//! * When a block has cooled or slots run low, the policy picks blocks: first those whose slots will stay free for long (`sink/policy.rs`: `choose`,
//!   `worth`).
//! * Pages are gathered: changed ones from memory or their slots, the others from the old object in stored form, or all from memory and flash. They
//!   are packed a few at a time, one object is put, the map is updated (`sink/gather.rs`, `mover.rs`: `Mover::sink`).
//! * Pages are compressed one by one, by the table's option (`object/codec.rs`: `Packer::pack`).
//! * If few pages of a block changed, only those are put, together with what the block's last patch has of others: a patch object beside the block's
//!   own (`sink/policy.rs`, `gather.rs`, `map/entry.rs`, `map/publish.rs`: `form`, `Map::publish_patch`).
//! * A page that was read in its slot, or was worth a copy when it was evicted, is offered to flash when its block sinks (`sink/gather.rs`:
//!   `Mover::offer`).
//! * Superseded objects are deleted by workers of their own, once the superseding record is durable (`collect.rs`: `CollectWorker`,
//!   `Collector::step`).
//! * The fence: which instance owns the store and may write to it; adopting it on a person's request (`fence.rs`, `fence/adopt.rs`:
//!   `Fence::keep_up`, `check`, `adopt`).
//! * Attached sources: an instance that was restored or cloned by its metadata alone reads its old objects elsewhere, and copies them in the background
//!   (`attached.rs`, `attached/fill.rs`: `Attached::place`, `Filler::step`).
//! * The archive of the log: the format of its stretches and which of them follow each other (`archive.rs`, `archive/chain.rs`).
//! * Snapshots: the boundary up to which superseded objects stay, recorded in the store (`snapshots.rs`: `Snapshots::hold`, `add`, `name`).

pub mod archive;
pub mod attached;
pub mod collect;
pub mod fence;
pub mod lines;
pub mod object;
pub mod sink;
pub mod snapshots;
