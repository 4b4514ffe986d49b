//! The names of locks, as an operator sees them in the list of waits.

/// An enumeration with the list of its values and the name of each.
macro_rules! named {
    ($(#[$all:meta])* $names:ident: $($(#[$one:meta])* $value:ident $name:literal,)*) => {
        $(#[$all])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(u8)]
        pub enum $names {
            $($(#[$one])* $value,)*
        }

        impl $names {
            pub const ALL: &'static [$names] = &[$($names::$value,)*];

            pub fn name(self) -> &'static str {
                match self {
                    $($names::$value => $name,)*
                }
            }
        }
    };
}

named! {
    /// Mutexes. Some share a name: the server has room for some two hundred classes of them, with its own and InnoDB's.
    Mutexes:
    /// Tables by name.
    Catalog "catalog",
    /// One definition change at a time.
    Definitions "definitions",
    /// Ids for tables and spaces.
    CatalogIds "catalog",
    /// Tables' rules of placement, as they are defined.
    Rules "rules",
    /// The row and gap locks, and who waits for them.
    RowLocks "row_locks",
    /// Which session runs which transaction and waits for which.
    Sessions "sessions",
    /// One transaction: its session and those who look at it.
    Transaction "transaction",
    /// One commit number after the other.
    CommitOrder "commit_order",
    /// Open views.
    Views "views",
    /// Places in undo, and those that are free.
    UndoStreams "undo_streams",
    /// Committed transactions that purge has not come to.
    History "history",
    /// Row ids of one table without a primary key.
    RowIds "auto_values",
    /// The next automatic value of one table, kept in its header.
    AutoIncrement "auto_values",
    /// What others change beside the build of an index.
    Watch "builds",
    /// The file of sorts.
    Sorts "builds",
    /// Free pages of one space.
    SpacePages "space_pages",
    /// Places in the log.
    LogOrder "log_order",
    /// Waiters for the durable end of the log.
    LogPromises "log_promises",
    /// The superblock, and where a checkpoint is.
    Checkpoint "checkpoint",
    /// Changed pages of a crash that are not applied yet.
    Pending "checkpoint",
    /// Sinks that yield to sessions.
    BulkThrottle "sink",
    /// A shard of the table of pages in memory.
    PoolTable "pool_table",
    /// Free frames.
    PoolFree "pool_free",
    /// The order in which pages leave memory.
    PoolQueues "pool_queues",
    /// Changed pages by age.
    PoolDirty "pool_dirty",
    /// Pages that move from frame to frame.
    PoolMoves "pool_moves",
    /// Scans, and what is fetched ahead of them.
    PoolScans "pool_scans",
    /// Frames whose memory is lent.
    PoolLoans "pool_moves",
    /// What open cursors borrow.
    Cursors "pool_moves",
    /// Samples for the miss-ratio curve.
    PoolSamples "pool_scans",
    /// What the flusher copies, writes and maps.
    Flush "flush",
    /// The index of the flash cache.
    Flash "flash",
    /// The next probe of a device that divided reads avoid.
    SplitProbe "flash",
    /// What sinks.
    Sink "sink",
    /// Objects that are read and collected.
    Objects "objects",
    /// Reads of neighbouring pages of one object that go together.
    ObjectReads "objects",
    /// States of the codecs.
    Codecs "objects",
    /// The right to write to the store.
    Fence "fence",
    /// A table's share of requests and bytes.
    Limits "rules",
    /// Places of temporary pages.
    Temporary "temporary",
}

named! {
    /// Read-write locks.
    RwLocks:
    /// The latch of a page in memory.
    Page "page",
    /// Where pages have their place below.
    Map "map",
    /// Transactions: which are active, and when the others committed.
    Transactions "transactions",
    /// One table: its name, its indexes, its properties.
    Table "table",
    /// What is counted by space.
    Spaces "spaces",
    /// Tables' rules of placement, by space.
    Rules "rules",
    /// Tables' codecs.
    Codecs "codecs",
    /// Temporary pages that are read.
    Temporary "temporary",
}

/// What a thread waits for, and how it wants to have it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wanted {
    Mutex(Mutexes),
    Shared(RwLocks),
    Exclusive(RwLocks),
}
