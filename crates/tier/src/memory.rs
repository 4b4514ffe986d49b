//! The buffer pool: frames, the page table, eviction, and the mini-transactions that change pages in it.

pub mod evict;
pub mod frame;
pub(crate) mod huge;
pub mod lower_tiers;
pub mod misses;
pub mod mtr;
pub mod pages;
pub mod pool;
pub mod prefetch;
pub(crate) mod queues;
