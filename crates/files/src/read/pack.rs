//! The worker that packs small files for flash (`packing`).

use super::Files;
use std::sync::Arc;
use terrace_io::sched::{Event, Step, Worker};

pub(super) struct Packer {
    files: Arc<Files>,
    wake: Arc<Event>,
}

impl Packer {
    pub fn new(files: Arc<Files>) -> Packer {
        let wake = files.flash.as_ref().and_then(|flash| flash.pack_wake());
        Packer { files, wake: wake.unwrap_or_default() }
    }
}

impl Worker for Packer {
    fn name(&self) -> &'static str {
        "files-pack"
    }
    fn step(&mut self) -> Step {
        self.files.flash.as_ref().map_or(Step::Idle, |flash| flash.pack_some())
    }
    fn wake_event(&self) -> Arc<Event> {
        self.wake.clone()
    }
}
