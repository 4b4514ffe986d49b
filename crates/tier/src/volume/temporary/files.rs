//! The files of the spill space: on flash, if there is one, and on the volume.

use super::FILE;
use crate::address::Tier;
use std::sync::Arc;
use terrace_io::disk::{Disk, DiskError, File};

/// A device's file, created when it is first needed.
pub(super) struct SpillFile {
    pub disk: Arc<dyn Disk>,
    pub tier: Tier,
    pub file: Option<Arc<dyn File>>,
    /// Slots that the file has space for.
    pub grown: u32,
}

impl SpillFile {
    pub fn open(&mut self) -> Result<Arc<dyn File>, DiskError> {
        match &self.file {
            Some(file) => Ok(file.clone()),
            None => Ok(self.file.insert(self.disk.create(FILE)?).clone()),
        }
    }
}
