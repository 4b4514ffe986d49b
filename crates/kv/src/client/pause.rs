//! CLIENT PAUSE: the end of the pause, and the clients that wait for it.

use super::ClientId;

#[derive(Default)]
pub struct Pause {
    /// Unix time in milliseconds at which it ends; 0 if there is none.
    pub until_ms: i64,
    /// Commands that only read go on.
    pub only_writes: bool,
    pub waiting: Vec<ClientId>,
}

impl Pause {
    /// Begins a pause, or lengthens the present one: it never becomes shorter or weaker.
    pub fn begin(&mut self, until_ms: i64, only_writes: bool, now_ms: i64) {
        if self.until_ms <= now_ms {
            *self = Pause { until_ms, only_writes, waiting: std::mem::take(&mut self.waiting) };
            return;
        }
        self.only_writes &= only_writes;
        self.until_ms = self.until_ms.max(until_ms);
    }

    pub fn end(&mut self) {
        self.until_ms = 0;
    }

    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub fn forget(&mut self, id: ClientId) {
        self.waiting.retain(|&waiting| waiting != id);
    }
}
