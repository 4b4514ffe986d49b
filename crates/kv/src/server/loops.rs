//! The event loops as the core knows them: how to reach one whose clients got output from another's command, and who serves sockets while a script
//! holds the core.

use super::Server;
use crate::client::ClientId;
use crate::keyspace::Databases;
use parking_lot::Mutex;
use std::sync::Arc;
use terrace_io::clock::Nanos;

/// Sockets whose clients can be answered while a script runs.
pub trait ServesBusy: Send {
    /// Reads what has arrived and answers it: most of it with `BUSY`. `index` is the number of the event loop that has the sockets.
    fn serve_busy(&mut self, dbs: &mut Databases, server: &mut Server, index: usize);
}

/// An event loop that runs.
#[derive(Clone)]
pub struct Handle {
    pub sockets: Arc<Mutex<dyn ServesBusy>>,
    pub waker: Arc<mio::Waker>,
}

/// All event loops by their numbers. The first one always runs once the server has started.
#[derive(Default)]
pub struct Loops {
    handles: Vec<Option<Handle>>,
    /// Clients of each that got output or are to be closed.
    touched: Vec<Vec<ClientId>>,
    /// Until when the first one waits for its sockets at most.
    first_looks: Nanos,
}

impl Loops {
    pub fn add(&mut self, index: usize, handle: Handle) {
        if self.handles.len() <= index {
            self.handles.resize(index + 1, None);
            self.touched.resize_with(index + 1, Vec::new);
        }
        self.handles[index] = Some(handle);
    }

    /// An event loop has given its connections to the first one.
    pub fn remove(&mut self, index: usize) {
        if let Some(handle) = self.handles.get_mut(index) {
            *handle = None;
        }
        self.take_touched(index).into_iter().for_each(|id| self.touch(0, id));
    }

    /// The first loop waits until then, unless it is woken.
    pub fn first_looks_at(&mut self, at: Nanos) {
        self.first_looks = at;
    }

    /// Something is due at a time that the first loop does: wakes it if it would wait for longer. Returns whether it was woken.
    pub fn look_at(&mut self, at: Nanos, now: Nanos) -> bool {
        // Once that time has passed it is not known how long it waits.
        if at >= self.first_looks && now < self.first_looks {
            return false;
        }
        self.first_looks = at;
        if let Some(Some(handle)) = self.handles.first() {
            // A wake-up that fails delays what is due until the next look.
            let _ = handle.waker.wake();
        }
        true
    }

    /// Tells an event loop that one of its clients is to be looked at.
    pub fn touch(&mut self, index: usize, client: ClientId) {
        let Some(touched) = self.touched.get_mut(index) else { return };
        touched.push(client);
        if touched.len() == 1
            && let Some(handle) = &self.handles[index]
        {
            // A wake-up that fails delays the loop until its next look.
            let _ = handle.waker.wake();
        }
    }

    /// The clients that an event loop is to look at.
    pub fn take_touched(&mut self, index: usize) -> Vec<ClientId> {
        self.touched.get_mut(index).map(std::mem::take).unwrap_or_default()
    }

    /// Those that run, with their numbers.
    pub fn running(&self) -> Vec<(usize, Handle)> {
        self.handles
            .iter()
            .cloned()
            .enumerate()
            .filter_map(|(index, handle)| Some((index, handle?)))
            .collect()
    }

    pub fn len(&self) -> usize {
        self.handles.iter().flatten().count()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::Loops;

    #[test]
    fn the_first_loop_is_woken_for_what_is_due_before_it_looks() {
        let mut loops = Loops::default();
        loops.first_looks_at(100);
        assert!(!loops.look_at(100, 50) && !loops.look_at(130, 50));
        assert!(loops.look_at(80, 50));
        // It looks at 80 now.
        assert!(!loops.look_at(90, 60) && loops.look_at(70, 60));
        // It has looked, found nothing and waits again.
        assert!(loops.look_at(120, 110) && !loops.look_at(125, 110));
    }
}
