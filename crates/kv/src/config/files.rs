//! Files that the server reads and writes when it is told to: the ACL file, the configuration file, snapshots. Commands do no input or output
//! of their own, so whoever starts the server provides this.

use std::io::{Read, Result, Write};

pub trait Files: Send {
    fn read(&self, path: &str) -> Result<Vec<u8>>;
    /// Replaces a file whole: after a crash it is the old one or the new one.
    fn replace(&self, path: &str, contents: &[u8]) -> Result<()>;
    /// Begins a file that will take the place of `path`.
    fn begin(&self, path: &str) -> Result<Box<dyn NewFile>>;
    /// Opens a file, with its length. `None`: there is none.
    fn open(&self, path: &str) -> Result<Option<(Box<dyn Read>, u64)>>;
}

/// A file that is being written. Dropped before it is finished, it is removed.
pub trait NewFile: Write + Send {
    /// Makes the contents durable, then gives the file its name: after a crash there is the old file or the new one.
    fn finish(self: Box<Self>) -> Result<()>;
}
