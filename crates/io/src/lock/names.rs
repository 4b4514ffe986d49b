//! The names of locks: what somebody sees who asks where threads wait for one another.

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
    /// Mutexes.
    Mutexes:
    /// Tables by name.
    Catalog "catalog",
    /// One definition change at a time.
    Definitions "definitions",
    /// Ids for tables and spaces.
    CatalogIds "catalog_ids",
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
    RowIds "row_ids",
    /// The next automatic value of one table, kept in its header.
    AutoIncrement "auto_increment",
    /// What others change beside the build of an index.
    Watch "watch",
    /// The file of sorts.
    Sorts "sorts",
    /// Free pages of one space.
    SpacePages "space_pages",
    /// Places in the log.
    LogOrder "log_order",
    /// Who wants to be told when the log is durable.
    LogPromises "log_promises",
    /// The superblock, and where a checkpoint is.
    Checkpoint "checkpoint",
    /// Changed pages of a crash that are not applied yet.
    Pending "pending",
    /// Sinks that give way to sessions.
    GiveWay "give_way",
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
    PoolLoans "pool_loans",
    /// Samples for the miss-ratio curve.
    PoolSamples "pool_samples",
    /// What the flusher copies, writes and maps.
    Flush "flush",
    /// The index of the flash cache.
    Flash "flash",
    /// What sinks.
    Sink "sink",
    /// Objects that are read and collected.
    Objects "objects",
    /// Reads of neighbouring pages of one object that go together.
    ObjectReads "object_reads",
    /// States of the codecs.
    Codecs "codecs",
    /// Who has the store.
    Fence "fence",
    /// A table's share of requests and bytes.
    Limits "limits",
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
    /// Transactions: who is active, who committed when.
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
