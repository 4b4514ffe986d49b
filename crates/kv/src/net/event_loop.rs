//! The event loop. A turn: wait for sockets; read and parse without the lock; take the lock of the core once and execute every command that
//! was parsed, connection by connection; release it and write the replies.
//!
//! A client's commands are executed in order, and while one of them waits, those behind it stay in the buffer. The output of a client that another
//! client's command wrote to (pub/sub, a list that was waited for) is sent in the same turn, or if another loop has its socket, in a turn of that one
//! (`server::loops`).
//!
//! The first loop also accepts, looks after time (expiry, waits, idle clients), takes up what storage has completed, and decides how many loops there are
//! (`crew`, `elastic`).

use super::connection::Connection;
use super::crew::{Crew, Order, Post};
use super::executing;
use super::sockets::{Listening, Sockets};
use super::tick::Chief;
use crate::attached::Mailbox;
use crate::server::Core;
use crate::server::loops::Handle;
use parking_lot::{Mutex, MutexGuard};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::time::Duration;
use terrace_io::World;
use terrace_io::sched::{Event, Step, Worker};

/// Time between two looks at expired keys and waits that are over.
pub const TICK_MS: u64 = 10;
/// How long the other loops wait for sockets.
const WAIT_MS: u64 = 1000;
/// How long the end of the server waits for storage.
const DRAIN_MS_MAX: u64 = 30_000;

pub struct EventLoop {
    index: usize,
    world: World,
    core: Arc<Mutex<Core>>,
    sockets: Arc<Mutex<Sockets>>,
    crew: Arc<Crew>,
    post: Arc<Post>,
    inbox: Receiver<Box<Connection>>,
    /// Connections of the present turn.
    ready: Vec<usize>,
    /// Connections that were accepted and may belong to another loop.
    fresh: Vec<usize>,
    /// Where storage leaves its results, if there is a storage tier.
    mailbox: Option<Arc<Mailbox>>,
    /// What only the first loop does.
    chief: Option<Box<Chief>>,
    /// How long the first loop may wait for sockets, and whether a client that is slowed goes on then.
    wait: Duration,
    is_due_then: bool,
    /// For its thread, which never waits for it while the loop runs.
    event: Arc<Event>,
}

/// What a turn came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Turn {
    GoesOn,
    /// The server stops.
    Stops,
}

impl EventLoop {
    /// The first loop, which listens on `addresses`.
    pub fn new(
        world: World,
        core: Arc<Mutex<Core>>,
        addresses: Vec<Listening>,
    ) -> std::io::Result<EventLoop> {
        let (sockets, waker) = Sockets::new(addresses)?;
        let mailbox = core.lock().server.tier.as_ref().map(|tier| tier.mailbox.clone());
        if let Some(mailbox) = &mailbox {
            mailbox.set_waker(waker.clone());
        }
        let (post, inbox) = Post::new(waker.clone(), 1);
        let sockets = Arc::new(Mutex::new(sockets));
        core.lock().server.loops.add(0, Handle { sockets: sockets.clone(), waker });
        Ok(EventLoop {
            index: 0,
            chief: Some(Box::new(Chief::new(world.clock.unix_ms()))),
            world,
            core,
            sockets,
            crew: Arc::new(Crew::new(post.clone())),
            post,
            inbox,
            ready: Vec::new(),
            fresh: Vec::new(),
            mailbox,
            wait: Duration::from_millis(TICK_MS),
            is_due_then: false,
            event: Arc::default(),
        })
    }

    /// Another loop; its number is that of those that run.
    fn another(&self, index: usize) -> std::io::Result<EventLoop> {
        let (sockets, waker) = Sockets::new(Vec::new())?;
        let (post, inbox) = Post::new(waker.clone(), index + 1);
        let sockets = Arc::new(Mutex::new(sockets));
        self.core.lock().server.loops.add(index, Handle { sockets: sockets.clone(), waker });
        Ok(EventLoop {
            index,
            world: self.world.clone(),
            core: self.core.clone(),
            sockets,
            crew: self.crew.clone(),
            post,
            inbox,
            ready: Vec::new(),
            fresh: Vec::new(),
            mailbox: None,
            chief: None,
            wait: Duration::from_millis(WAIT_MS),
            is_due_then: false,
            event: Arc::default(),
        })
    }

    /// Where it listens, with the ports that were chosen.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.sockets.lock().addresses()
    }

    /// Runs the first loop until the server stops.
    pub fn run(&mut self) -> std::io::Result<()> {
        let outcome = self.run_until_stopped();
        if let Some(chief) = &mut self.chief {
            chief.others.clear();
        }
        // The sockets are closed with their loops.
        self.core.lock().server.loops = Default::default();
        outcome
    }

    fn run_until_stopped(&mut self) -> std::io::Result<()> {
        while self.turn()? == Turn::GoesOn {
            self.spread();
            self.look_at_load();
        }
        if self.core.lock().server.stops_hard {
            return Ok(());
        }
        self.end_others()?;
        self.drain();
        Ok(())
    }

    fn turn(&mut self) -> std::io::Result<Turn> {
        let mut sockets = self.sockets.lock();
        sockets.wait(self.wait)?;
        let woken = self.world.clock.now();
        let mut adopted = Vec::new();
        while let Ok(connection) = self.inbox.try_recv() {
            let client = connection.client;
            adopted.extend(sockets.add(connection).map(|token| (client, token)));
        }
        sockets.read();
        std::mem::swap(&mut self.ready, &mut sockets.ready);
        let accepts = sockets.accepts;
        let is_woken = std::mem::take(&mut sockets.is_woken);
        let gone = std::mem::take(&mut sockets.gone);
        drop(sockets);

        let now_ms = self.world.clock.unix_ms();
        let ticks = self.chief.as_ref().is_some_and(|chief| chief.is_due(now_ms));
        let has_mail = self.mailbox.as_ref().is_some_and(|mailbox| !mailbox.is_empty());
        let is_idle =
            self.ready.is_empty() && adopted.is_empty() && gone.is_empty() && !has_mail && !is_woken;
        let before = self.world.clock.now();
        if is_idle && !ticks && !accepts && !self.is_due_then && self.chief.is_some() {
            self.post.worked.fetch_add(before.saturating_sub(woken), Ordering::Relaxed);
            return Ok(Turn::GoesOn);
        }
        // Cloned so that the loop's own fields can be changed under the lock.
        let core = self.core.clone();
        let mut core = core.lock();
        let locked = self.world.clock.now();
        core.server.meter.enter();
        core.dbs.set_now(now_ms as i64);
        core.server.loop_index = self.index;
        for (id, token) in adopted {
            if let Some(client) = core.server.clients.get_mut(id) {
                client.token = token;
            }
        }
        gone.into_iter().for_each(|id| core.server.forget_gone(id));
        if accepts {
            self.fresh.extend(executing::accept(&mut core, &self.sockets, &self.world, self.index));
        }
        if self.chief.is_some() {
            core.take_events();
            core.end_delays();
        }
        for at in 0..self.ready.len() {
            executing::execute(&mut core, &self.sockets, self.ready[at]);
        }
        if ticks && let Some(chief) = &mut self.chief {
            chief.tick(&mut core, now_ms);
        }
        self.settle(&mut core);
        let due_in = core.due_in();
        if self.chief.is_some() {
            self.is_due_then = due_in.is_some();
            self.wait = due_in.unwrap_or(Duration::MAX).min(Duration::from_millis(TICK_MS));
            core.server.loops.first_looks_at(self.world.clock.now() + self.wait.as_nanos() as u64);
        } else if let Some(due_in) = due_in {
            // The first loop ends delays: it may be waiting for longer than that.
            let now = self.world.clock.now();
            core.server.loops.look_at(now + due_in.as_nanos() as u64, now);
        }
        let stops = core.server.is_stopping;
        {
            let mut sockets = self.sockets.lock();
            let stats = &mut core.server.stats;
            stats.input_bytes += std::mem::take(&mut sockets.input_bytes);
            stats.output_bytes += std::mem::take(&mut sockets.output_bytes);
            sockets.query_buffer_bytes_max = core.server.config.limits.query_buffer_bytes_max;
        }
        drop(core);

        self.write_ready();
        let worked = self.world.clock.now().saturating_sub(locked) + before.saturating_sub(woken);
        self.post.worked.fetch_add(worked, Ordering::Relaxed);
        Ok(if stops { Turn::Stops } else { Turn::GoesOn })
    }

    fn write_ready(&mut self) {
        let mut sockets = self.sockets.lock();
        for token in self.ready.drain(..) {
            sockets.write(token);
        }
    }

    /// Carries on what waited and writes what was changed, until nothing is left to do at once.
    fn settle(&mut self, core: &mut Core) {
        let touched = core.server.loops.take_touched(self.index);
        core.server.clients.touched.extend(touched);
        loop {
            core.end_pause();
            core.broadcast_changes();
            self.collect_touched(core);
            core.begin_reads();
            core.write_changes();
            let resumed = core.resume_parked();
            if !resumed && core.server.clients.touched.is_empty() {
                return;
            }
        }
    }

    /// Adds the connections whose clients got output from others' commands, and executes what they sent meanwhile.
    fn collect_touched(&mut self, core: &mut Core) {
        while let Some(id) = core.server.clients.touched.pop() {
            let Some(client) = core.server.clients.get(id) else { continue };
            let (event_loop, token) = (client.event_loop, client.token);
            if event_loop != self.index {
                core.server.loops.touch(event_loop, id);
            } else if token != usize::MAX {
                self.ready.push(token);
                executing::execute(core, &self.sockets, token);
                self.sockets.lock().read_later(token);
            }
        }
    }

    /// Stores what was changed before the server ends.
    fn drain(&mut self) {
        let started_ms = self.world.clock.unix_ms();
        let core = self.core.clone();
        loop {
            let is_over = {
                let mut core: MutexGuard<'_, Core> = core.lock();
                core.take_events();
                core.write_changes();
                self.collect_touched(&mut core);
                core.write_changes();
                let waited_ms = self.world.clock.unix_ms().saturating_sub(started_ms);
                core.server.tier.as_ref().is_none_or(|tier| tier.is_drained()) || waited_ms > DRAIN_MS_MAX
            };
            self.write_ready();
            if is_over {
                return;
            }
            let mut sockets = self.sockets.lock();
            // What is to be read is not: only storage is waited for. A failure is a wait that ends early.
            sockets.again.clear();
            sockets.ready.clear();
            let _ = sockets.wait(Duration::from_millis(TICK_MS));
        }
    }

    /// Gives every loop its share of the connections that were accepted.
    fn spread(&mut self) {
        let loops = self.crew.wanted();
        if self.fresh.is_empty() || !self.crew.is_settled() {
            return;
        }
        for token in std::mem::take(&mut self.fresh) {
            let given = {
                let mut sockets = self.sockets.lock();
                let to = sockets.get(token).map_or(0, |connection| connection.client as usize % loops);
                if to == 0 { None } else { sockets.give(token).map(|connection| (to, connection)) }
            };
            if let Some((to, connection)) = given {
                self.crew.hand_over(&self.core, to, vec![connection]);
            }
        }
    }

    /// Starts and ends other loops as the load asks for.
    fn look_at_load(&mut self) {
        let Some(chief) = &mut self.chief else { return };
        let Some(grows) = chief.look_at_load(&self.crew, &self.core, self.world.clock.now()) else { return };
        if !grows {
            self.crew.rest();
        } else if let Ok(other) = self.another(self.crew.wanted()) {
            let (post, index) = (other.post.clone(), other.index);
            // Without a thread the server goes on as it is.
            match self.world.sched.try_spawn(Box::new(other)) {
                Ok(handle) => {
                    if let Some(chief) = &mut self.chief {
                        chief.others.push(handle);
                    }
                    self.crew.add(post);
                }
                Err(_) => self.core.lock().server.loops.remove(index),
            }
        }
        self.obey();
    }

    /// Ends the other loops and takes over their connections.
    fn end_others(&mut self) -> std::io::Result<()> {
        let mut is_asked = false;
        while self.crew.posts().len() > 1 {
            if !is_asked && self.crew.is_settled() {
                self.crew.rest();
                is_asked = true;
            }
            self.turn()?;
            self.obey();
            if is_asked && let Some(chief) = &mut self.chief {
                chief.remove_ended(&self.crew);
            }
        }
        // Adopts what they gave last.
        self.turn().map(drop)
    }

    /// Gives connections to other loops, if it has to.
    fn obey(&mut self) {
        let order = self.crew.order(self.index, &self.post);
        let (to, given) = match order {
            Order::Nothing => return,
            Order::Share { to, parts } => {
                let mut sockets = self.sockets.lock();
                let count = sockets.len() / parts;
                (to, sockets.give_away(count))
            }
            Order::End => (0, self.sockets.lock().give_away(usize::MAX)),
        };
        self.crew.hand_over(&self.core, to, given);
        if order == Order::End {
            let gone = std::mem::take(&mut self.sockets.lock().gone);
            let mut core = self.core.lock();
            gone.into_iter().for_each(|id| core.server.forget_gone(id));
            core.server.loops.remove(self.index);
        }
        self.crew.obeyed(&self.post, order == Order::End);
    }
}

/// A loop beside the first one: a turn is a step.
impl Worker for EventLoop {
    fn name(&self) -> &'static str {
        "terrace-kv-loop"
    }

    fn step(&mut self) -> Step {
        if self.post.has_ended() {
            return Step::Idle;
        }
        // A loop that cannot wait for sockets gives them back at once and tries again.
        if self.turn().is_err() {
            return Step::IdleFor(TICK_MS * 1_000_000);
        }
        self.obey();
        Step::Worked
    }

    fn wake_event(&self) -> Arc<Event> {
        self.event.clone()
    }
}
