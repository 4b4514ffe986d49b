//! The event loop.
//!
//! Sockets are registered edge-triggered: a client that was not read to the end, because its turn was over or a limit was reached, is read
//! again without an event.

use super::client::{Client, Flow};
use super::commit;
use super::objects;
use super::serve::Turn;
use crate::catalogue::Done;
use crate::memory::index::VOUCHED;
use crate::objects::IDLE_TIME;
use crate::pins;
use crate::read::{Files, Outcome, Reply};
use crate::unix;
use crate::wire::{Put, status};
use mio::net::UnixListener;
use mio::{Events, Interest, Poll, Token, Waker};
use std::io::{ErrorKind, Result, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use terrace_io::clock::Nanos;
use terrace_io::sched::Event;

const LISTENER: usize = usize::MAX - 1;
const WAKER: usize = usize::MAX;
/// The longest sleep, in milliseconds: a daemon that was told to stop by a signal finds out.
const SLEEP_MS: u64 = 100;
/// Between two looks for groups that are overdue, in nanoseconds.
const LOOK: Nanos = 1_000_000_000;

pub struct EventLoop {
    files: Arc<Files>,
    poll: Poll,
    listener: UnixListener,
    socket: PathBuf,
    pub(super) clients: Vec<Option<Client>>,
    free: Vec<usize>,
    clients_max: usize,
    /// Makes the ids of clients unique: an answer for one that is gone must not reach its successor.
    generation: u64,
    again: Vec<usize>,
    /// For groups of files whose clients did not come back.
    next_look: Nanos,
    is_ending: bool,
}

/// The place of a client in the table.
fn place_of(client: u64) -> usize {
    (client & 0xFFFF_FFFF) as usize
}

impl EventLoop {
    pub fn new(files: Arc<Files>, socket: &Path, clients_max: usize) -> Result<EventLoop> {
        let poll = Poll::new()?;
        let (listener, died) = unix::listen(socket)?;
        if died {
            // Its clients may go on reading by its index until it no longer vouches for it.
            let never = Event::new();
            files.world.sched.wait(&never, never.ticket(), Some(VOUCHED));
        }
        listener.set_nonblocking(true)?;
        let mut listener = UnixListener::from_std(listener);
        poll.registry().register(&mut listener, Token(LISTENER), Interest::READABLE)?;
        let waker = Waker::new(poll.registry(), Token(WAKER))?;
        // A wake-up that fails is made up for by the end of the sleep.
        files.on_answer(Box::new(move || drop(waker.wake())));
        Ok(EventLoop {
            files,
            poll,
            listener,
            socket: socket.to_path_buf(),
            clients: Vec::new(),
            free: Vec::new(),
            clients_max,
            generation: 0,
            again: Vec::new(),
            next_look: 0,
            is_ending: false,
        })
    }

    /// Serves clients until `stop` is set. Then the socket is gone and all clients are closed.
    pub fn run(mut self, stop: &AtomicBool) -> Result<()> {
        let mut events = Events::with_capacity(1024);
        while !stop.load(Ordering::SeqCst) {
            let now = self.files.world.clock.now();
            self.files.index.vouch(now);
            if now >= self.next_look {
                self.next_look = now + LOOK;
                self.files.objects.lock().delete_idle(now.saturating_sub(IDLE_TIME));
                objects::remove_dropped(&self.files);
                self.files.look_at_pins(now);
                for name in self.files.groups.overdue(now) {
                    if let Ok((members, record)) = self.files.groups.end(name, None) {
                        self.files.submit(commit::abort(name, members, record, None));
                    }
                }
            }
            let deadline = {
                let mut objects = self.files.objects.lock();
                let over = objects.expire(now);
                let deadline = objects.next_deadline();
                drop(objects);
                over.into_iter().for_each(|answer| objects::deliver(&self.files, answer));
                deadline
            };
            let wait_ms = deadline.map_or(SLEEP_MS, |at| at.saturating_sub(now).div_ceil(1_000_000));
            let sleep = if self.again.is_empty() { SLEEP_MS.min(wait_ms) } else { 0 };
            match self.poll.poll(&mut events, Some(Duration::from_millis(sleep))) {
                Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
            let mut ready = std::mem::take(&mut self.again);
            for event in &events {
                match event.token().0 {
                    WAKER => {}
                    LISTENER => self.accept(),
                    place => {
                        if event.is_writable()
                            && let Some(Some(client)) = self.clients.get_mut(place)
                        {
                            client.send();
                        }
                        ready.push(place);
                    }
                }
            }
            self.turn(ready);
        }
        self.files.index.end();
        let _ = unix::unlink(&self.socket);
        // Groups of files that are not committed wait on flash for their clients.
        self.is_ending = true;
        (0..self.clients.len()).for_each(|place| self.close(place));
        Ok(())
    }

    fn accept(&mut self) {
        loop {
            let mut stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                // After an error such as too many open files, the next connection tries again.
                Err(_) => return,
            };
            if self.clients.len() - self.free.len() >= self.clients_max {
                let mut out = Vec::new();
                let message = format!("{} clients are connected, which is the limit", self.clients_max);
                Put::new(&mut out, 0, status::BUSY).text(&message);
                // It is refused whether or not it reads why.
                let _ = stream.write(&out);
                continue;
            }
            let place = self.free.pop().unwrap_or(self.clients.len());
            let interest = Interest::READABLE | Interest::WRITABLE;
            if place == self.clients.len() {
                self.clients.push(None);
            }
            if self.poll.registry().register(&mut stream, Token(place), interest).is_err() {
                self.free.push(place);
                continue;
            }
            self.generation += 1;
            self.clients[place] = Some(Client::new(self.generation << 32 | place as u64, stream));
            self.again.push(place);
        }
    }

    fn turn(&mut self, mut ready: Vec<usize>) {
        ready.append(&mut self.again);
        ready.sort_unstable();
        ready.dedup();
        let mut turn = Turn::default();
        for place in &ready {
            let Some(Some(client)) = self.clients.get_mut(*place) else { continue };
            if !client.has_room() {
                client.is_paused = true;
                continue;
            }
            match client.receive() {
                Flow::Closed => client.closes = true,
                Flow::More => self.again.push(*place),
                Flow::Drained => {}
            }
            turn.requests(&self.files, client);
        }
        let answers = self.files.take_answers();
        let mut touched = ready;
        for done in answers.done.into_iter().chain(turn.carry_out(&self.files)) {
            touched.push(place_of(done.client));
            self.deliver(done);
        }
        for reply in answers.replies {
            touched.push(place_of(reply.client));
            self.reply(reply);
        }
        touched.sort_unstable();
        touched.dedup();
        for place in touched {
            let Some(Some(client)) = self.clients.get_mut(place) else { continue };
            client.send();
            if client.closes {
                self.close(place);
            } else if client.is_paused && client.has_room() {
                client.is_paused = false;
                self.again.push(place);
            }
        }
    }

    fn client(&mut self, id: u64) -> Option<&mut Client> {
        self.clients.get_mut(place_of(id))?.as_mut().filter(|client| client.id == id)
    }

    fn deliver(&mut self, done: Done) {
        let Done { client: id, request, item, answer, .. } = done;
        if id == pins::CLIENT {
            let now = self.files.world.clock.now();
            return self.files.hold(self.files.pins.taken(request, answer, now));
        }
        let Some(client) = self.client(id) else {
            // It is gone, and its lease with it.
            if let Ok((_, parts)) = answer {
                self.files.tell(|catalogue, _| parts.iter().for_each(|part| catalogue.release(part.block)));
            }
            return;
        };
        if let Ok((_, parts)) = &answer {
            client.hold(parts);
        }
        Turn::deliver(client, request, item, answer);
    }

    fn reply(&mut self, reply: Reply) {
        let files = self.files.clone();
        match (self.client(reply.client), reply.outcome) {
            (Some(client), Outcome::Frames(frames)) => {
                client.output.extend_from_slice(&frames);
                client.pending.remove(&reply.request);
            }
            (Some(client), Outcome::ObjectRoom { name, len, at_once }) => {
                client.pending.remove(&reply.request);
                objects::create(&files, client, reply.request, name, len, at_once);
            }
            (Some(client), Outcome::Written(step)) => Turn::stepped(&files, client, reply.request, step),
            (None, Outcome::Written(crate::write::Step::Begun(Ok(upload)))) => {
                files.submit(Box::new(move |files| files.store.abort(&upload)));
            }
            (None, _) => {}
        }
    }

    fn close(&mut self, place: usize) {
        let Some(mut client) = self.clients.get_mut(place).and_then(Option::take) else { return };
        let _ = self.poll.registry().deregister(&mut client.stream);
        self.files.objects.lock().client_gone(client.id);
        objects::remove_dropped(&self.files);
        let leases = client.leases();
        self.files.tell(|catalogue, _| leases.into_iter().for_each(|block| catalogue.release(block)));
        for (handle, mut writer) in std::mem::take(&mut client.writers) {
            let actions = writer.abort();
            Turn::write(&self.files, &mut client, handle, &writer, actions);
        }
        let groups = if self.is_ending { Vec::new() } else { self.files.groups.of_client(client.id) };
        for name in groups {
            if let Ok((members, record)) = self.files.groups.end(name, Some(client.id)) {
                self.files.submit(commit::abort(name, members, record, None));
            }
        }
        self.free.push(place);
    }
}
