//! A network between two processes that can hold back what was sent: the bytes of present connections arrive late, even after the sender has closed them. New ones pass.

use parking_lot::{Condvar, Mutex};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Default)]
struct State {
    /// Connections with smaller numbers are held.
    held_below: Mutex<u64>,
    changed: Condvar,
    /// Connections that were made, and whose senders' bytes have all arrived.
    made: AtomicU64,
    ended: Mutex<u64>,
    /// Pieces that were held back and have arrived since.
    late: AtomicU64,
}

pub struct Network {
    pub port: u16,
    state: Arc<State>,
}

impl Network {
    /// One before a port of this machine.
    pub fn before(port: u16) -> Network {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let own = listener.local_addr().unwrap().port();
        let state = Arc::new(State::default());
        let shared = state.clone();
        std::thread::spawn(move || {
            for near in listener.incoming() {
                let (Ok(near), Ok(far)) = (near, TcpStream::connect(("127.0.0.1", port))) else { continue };
                let number = shared.made.fetch_add(1, Ordering::SeqCst);
                let (from, to) = (near.try_clone().unwrap(), far.try_clone().unwrap());
                let state = shared.clone();
                std::thread::spawn(move || state.pass(from, to, number));
                std::thread::spawn(move || back(far, near));
            }
        });
        Network { port: own, state }
    }

    /// What is sent on present connections stays on its way.
    pub fn hold(&self) {
        *self.state.held_below.lock() = self.state.made.load(Ordering::SeqCst);
    }

    /// It arrives. Waits until the connections that were held have ended, and returns how many pieces came late.
    pub fn deliver(&self) -> u64 {
        let held = std::mem::take(&mut *self.state.held_below.lock());
        self.state.changed.notify_all();
        let mut ended = self.state.ended.lock();
        while *ended < held {
            self.state.changed.wait(&mut ended);
        }
        self.state.late.load(Ordering::SeqCst)
    }
}

impl State {
    fn pass(&self, mut from: TcpStream, mut to: TcpStream, number: u64) {
        let mut chunk = [0; 4096];
        loop {
            let count = from.read(&mut chunk).unwrap_or(0);
            let mut held = self.held_below.lock();
            let is_late = number < *held;
            while number < *held {
                self.changed.wait(&mut held);
            }
            drop(held);
            if count == 0 || to.write_all(&chunk[..count]).is_err() {
                break;
            }
            self.late.fetch_add(u64::from(is_late), Ordering::SeqCst);
        }
        // The other side may be gone.
        let _ = to.shutdown(Shutdown::Write);
        *self.ended.lock() += 1;
        self.changed.notify_all();
    }
}

fn back(mut from: TcpStream, mut to: TcpStream) {
    // Either side may end it.
    let _ = std::io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Write);
}
