//! Event loops that come and go: starting them, giving them connections, ending them. How many there are is `elastic`'s to say.
//!
//! The first loop decides: it sets how many are `wanted`. Each loop sees that at the end of a turn, when none of its connections is being executed, and
//! acts on it: if one was added, it gives it its share of connections; if it is itself too many, it gives all of them to the first loop and ends. The number
//! is changed only after all loops have acted on the last change, so no loop gives connections to one that ends.
//!
//! A connection is in one loop or in one inbox, with the requests that were read and the output that was not sent, so the client sees no difference: its
//! commands are executed and answered in order. Its client has no token meanwhile; the loop that adopts it looks at it at once, so output that others wrote to the
//! client in between is sent.
//!
//! An inbox is a lock-free queue, and a pipe of events (`mio::Waker`) wakes its loop.

use super::connection::Connection;
use crate::server::Core;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

/// How to reach an event loop.
pub struct Post {
    inbox: Sender<Box<Connection>>,
    waker: Arc<mio::Waker>,
    /// Nanoseconds of work, without waits for sockets and for the core.
    pub worked: AtomicU64,
    /// The last number of wanted loops that it has acted on.
    seen: AtomicUsize,
    has_ended: AtomicBool,
}

impl Post {
    pub fn new(waker: Arc<mio::Waker>, wanted: usize) -> (Arc<Post>, Receiver<Box<Connection>>) {
        let (inbox, receiver) = channel();
        let post = Post {
            inbox,
            waker,
            worked: AtomicU64::new(0),
            seen: AtomicUsize::new(wanted),
            has_ended: AtomicBool::new(false),
        };
        (Arc::new(post), receiver)
    }

    pub fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }
}

/// What a loop has to do about a changed number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    Nothing,
    /// Give the loop `to` one of `parts` equal parts of the connections.
    Share {
        to: usize,
        parts: usize,
    },
    /// Give everything to the first loop and end.
    End,
}

pub struct Crew {
    wanted: AtomicUsize,
    posts: Mutex<Vec<Arc<Post>>>,
}

impl Crew {
    /// A crew of one loop.
    pub fn new(first: Arc<Post>) -> Crew {
        Crew { wanted: AtomicUsize::new(1), posts: Mutex::new(vec![first]) }
    }

    /// How many loops are wanted.
    pub fn wanted(&self) -> usize {
        self.wanted.load(Ordering::Acquire)
    }

    /// Adds the next loop, which runs already, with a post that was made for one more than are wanted now. As [`Crew::rest`].
    pub fn add(&self, post: Arc<Post>) {
        assert!(self.is_settled(), "a loop has not acted on the last change");
        let mut posts = self.posts.lock();
        posts.push(post);
        self.wanted.store(posts.len(), Ordering::Release);
        posts.iter().for_each(|post| _ = post.waker.wake());
    }

    /// Takes those that have ended off the list.
    pub fn remove_ended(&self) {
        self.posts.lock().retain(|post| !post.has_ended());
    }

    pub fn posts(&self) -> Vec<Arc<Post>> {
        self.posts.lock().clone()
    }

    /// Whether all loops have acted on the present number.
    pub fn is_settled(&self) -> bool {
        let wanted = self.wanted();
        self.posts.lock().iter().all(|post| post.seen.load(Ordering::Acquire) == wanted)
    }

    /// Ends all loops but the first. Only the first loop calls this, when [`Crew::is_settled`].
    pub fn rest(&self) {
        assert!(self.is_settled(), "a loop has not acted on the last change");
        self.wanted.store(1, Ordering::Release);
        self.posts.lock().iter().for_each(|post| _ = post.waker.wake());
    }

    /// What the loop `index` has to do now.
    pub fn order(&self, index: usize, post: &Post) -> Order {
        let (seen, wanted) = (post.seen.load(Ordering::Relaxed), self.wanted());
        if index >= wanted {
            return if post.has_ended() { Order::Nothing } else { Order::End };
        }
        match wanted > seen {
            true => Order::Share { to: wanted - 1, parts: wanted },
            false => {
                post.seen.store(wanted, Ordering::Release);
                Order::Nothing
            }
        }
    }

    /// The loop has done what it was ordered.
    pub fn obeyed(&self, post: &Post, ends: bool) {
        post.has_ended.store(ends, Ordering::Release);
        post.seen.store(self.wanted(), Ordering::Release);
    }

    /// Gives connections to a loop.
    pub fn hand_over(&self, core: &Mutex<Core>, to: usize, given: Vec<Box<Connection>>) {
        let Some(post) = self.posts.lock().get(to).cloned() else { return };
        {
            let mut core = core.lock();
            for connection in &given {
                if let Some(client) = core.server.clients.get_mut(connection.client) {
                    (client.event_loop, client.token) = (to, usize::MAX);
                }
            }
        }
        // The receiver is there: see above.
        given.into_iter().for_each(|connection| _ = post.inbox.send(connection));
        let _ = post.waker.wake();
    }
}
