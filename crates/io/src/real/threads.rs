//! Waiting and working on real threads: one thread a worker, joined when its handle is dropped.

use crate::clock::Nanos;
use crate::observe;
use crate::sched::{Event, Sched, Step, Ticket, Woken, Worker, WorkerHandle};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

pub struct Threads;

struct Handle {
    stop: Arc<AtomicBool>,
    wake: Arc<Event>,
    thread: Option<JoinHandle<()>>,
}

impl WorkerHandle for Handle {
    fn ask_to_stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
        self.wake.notify();
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.ask_to_stop();
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
            && thread.join().is_err()
        {
            eprintln!("terrace: a worker panicked");
        }
    }
}

impl Sched for Threads {
    fn wait(&self, event: &Event, seen: Ticket, timeout: Option<Nanos>) -> Woken {
        event.park(seen, timeout.map(Duration::from_nanos), 0)
    }

    fn wait_for(&self, event: &Event, seen: Ticket, timeout: Option<Nanos>, group: u64) -> Woken {
        event.park(seen, timeout.map(Duration::from_nanos), group)
    }

    fn process(&self) -> String {
        super::holder::process()
    }

    fn spawn(&self, worker: Box<dyn Worker>) -> Box<dyn WorkerHandle> {
        // A process that cannot start a thread at its start cannot run an engine.
        self.try_spawn(worker).unwrap_or_else(|error| panic!("terrace: no thread for a worker: {error}"))
    }

    fn try_spawn(&self, mut worker: Box<dyn Worker>) -> std::io::Result<Box<dyn WorkerHandle>> {
        let stop = Arc::new(AtomicBool::new(false));
        let wake = worker.wake_event();
        let (stop_seen, event) = (stop.clone(), wake.clone());
        let name = format!("terrace-{}", worker.name());
        let body = move || {
            let _shown = observe::thread(worker.name());
            while !stop_seen.load(Ordering::SeqCst) {
                let ticket = event.ticket();
                match worker.step() {
                    Step::Worked => {}
                    Step::Idle => wait_unless(&event, ticket, &stop_seen, None),
                    Step::IdleFor(nanos) => wait_unless(&event, ticket, &stop_seen, Some(nanos)),
                }
            }
        };
        let thread = Some(std::thread::Builder::new().name(name).spawn(body)?);
        Ok(Box::new(Handle { stop, wake, thread }))
    }
}

fn wait_unless(event: &Event, ticket: Ticket, stop: &AtomicBool, nanos: Option<Nanos>) {
    if !stop.load(Ordering::SeqCst) {
        event.park(ticket, nanos.map(Duration::from_nanos), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use std::sync::mpsc::{Receiver, Sender, channel};

    /// Its step tells that it has begun and ends when it is told to.
    struct Gated {
        begun: Sender<()>,
        go_on: Arc<Mutex<Receiver<()>>>,
    }

    impl Worker for Gated {
        fn name(&self) -> &'static str {
            "gated"
        }
        fn step(&mut self) -> Step {
            self.begun.send(()).unwrap();
            // An error: the test is over.
            let _ = self.go_on.lock().unwrap().recv();
            Step::Worked
        }
        fn wake_event(&self) -> Arc<Event> {
            Arc::default()
        }
    }

    #[test]
    fn workers_that_are_asked_to_stop_take_no_other_step() {
        let ((begun, steps), (go_on, gate)) = (channel(), channel());
        let gate = Arc::new(Mutex::new(gate));
        let worker = || Threads.spawn(Box::new(Gated { begun: begun.clone(), go_on: gate.clone() }));
        let workers = [worker(), worker(), worker()];
        workers.iter().for_each(|_| steps.recv().unwrap());
        workers.iter().for_each(|worker| worker.ask_to_stop());
        workers.iter().for_each(|_| go_on.send(()).unwrap());
        drop(workers);
        assert!(steps.try_recv().is_err(), "one of them went on");
    }
}
