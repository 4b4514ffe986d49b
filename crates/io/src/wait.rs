//! The kinds of waits: what a cancel handle refuses ([`crate::cancel`]) and an observer shows ([`crate::observe`]).

/// What a thread waits for, beside bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Wait {
    /// Another transaction's row or gap.
    RowLock,
    /// That another thread makes the log durable.
    LogSync,
    /// Room in the log: a checkpoint.
    LogRoom,
    /// A page that another thread brings.
    Page,
    /// A free frame.
    Frame,
    /// That changed pages are flushed.
    Flush,
    /// Room in the object buffer: a sink.
    Slots,
    /// Purge, which is behind.
    Purge,
    /// A stream of undo records: all are in use.
    UndoStream,
}

impl Wait {
    pub const ALL: [Wait; 9] = [
        Wait::RowLock,
        Wait::LogSync,
        Wait::LogRoom,
        Wait::Page,
        Wait::Frame,
        Wait::Flush,
        Wait::Slots,
        Wait::Purge,
        Wait::UndoStream,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Wait::RowLock => "row_lock",
            Wait::LogSync => "log_sync",
            Wait::LogRoom => "log_room",
            Wait::Page => "page",
            Wait::Frame => "frame",
            Wait::Flush => "flush",
            Wait::Slots => "slots",
            Wait::Purge => "purge",
            Wait::UndoStream => "undo_stream",
        }
    }
}
