//! Commands that took long, newest first; their latency as figures is in `latency`.

pub mod latency;

use std::collections::VecDeque;

/// Arguments of a command that are kept, and bytes of one.
const ARGS_MAX: usize = 32;
const ARG_BYTES_MAX: usize = 128;

pub struct Slow {
    pub id: u64,
    /// Unix time in seconds.
    pub at: i64,
    pub micros: u64,
    pub args: Vec<Vec<u8>>,
    pub address: String,
    pub name: Vec<u8>,
}

#[derive(Default)]
pub struct SlowLog {
    list: VecDeque<Slow>,
    next_id: u64,
}

impl SlowLog {
    pub fn add(&mut self, at: i64, micros: u64, args: &[&[u8]], address: &str, name: &[u8], len_max: usize) {
        let kept = if args.len() > ARGS_MAX { ARGS_MAX - 1 } else { args.len() };
        let mut texts: Vec<Vec<u8>> = args[..kept].iter().map(|arg| shorten(arg)).collect();
        if args.len() > ARGS_MAX {
            texts.push(format!("... ({} more arguments)", args.len() - kept).into_bytes());
        }
        let (id, address, name) = (self.next_id, address.to_owned(), name.to_vec());
        self.list.push_front(Slow { id, at, micros, args: texts, address, name });
        self.next_id += 1;
        self.list.truncate(len_max);
    }

    pub fn newest(&self, count: usize) -> impl ExactSizeIterator<Item = &Slow> {
        self.list.iter().take(count)
    }

    pub fn len(&self) -> usize {
        self.list.len()
    }

    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub fn clear(&mut self) {
        self.list.clear();
    }
}

fn shorten(arg: &[u8]) -> Vec<u8> {
    if arg.len() <= ARG_BYTES_MAX {
        return arg.to_vec();
    }
    let mut text = arg[..ARG_BYTES_MAX].to_vec();
    text.extend_from_slice(format!("... ({} more bytes)", arg.len() - ARG_BYTES_MAX).as_bytes());
    text
}
