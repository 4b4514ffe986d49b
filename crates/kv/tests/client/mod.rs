//! A server in a thread, and a client that speaks the protocol.
#![allow(dead_code, reason = "each test file uses a part")]

pub mod durable;
pub mod faulty;
pub mod network;
pub mod redis;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

pub struct Server {
    pub address: SocketAddr,
    pub core: std::sync::Arc<parking_lot::Mutex<terrace_kv::server::Core>>,
    thread: Option<std::thread::JoinHandle<()>>,
    _dir: Option<tempfile::TempDir>,
    /// What is below it.
    _redis: Option<redis::RedisServer>,
    stop: Box<dyn Fn() + Send>,
}

impl Server {
    pub fn start() -> Server {
        Server::start_with(|_| {})
    }

    pub fn start_with(prepare: impl FnOnce(&mut terrace_kv::server::Core)) -> Server {
        // The same tests with a storage tier: what cannot be done with one differs.
        let asked = std::env::var("TERRACE_KV_TEST_STORAGE");
        if asked.as_deref() == Ok("redis") {
            let below = redis::RedisServer::start(&[]);
            let storage = below.storage();
            let mut server = Server::start_in(None, Some(storage), prepare);
            server._redis = Some(below);
            return server;
        }
        let dir = asked.ok().map(|_| tempfile::tempdir().unwrap());
        let storage = dir.as_ref().map(|dir| {
            let config = terrace::Config::new(dir.path()).log(8 << 20).memory(16 << 20);
            let db = terrace::Db::open_with(config).unwrap();
            terrace_kv::storage::engine::EngineStorage::open(db).unwrap()
                as std::sync::Arc<dyn terrace_kv::storage::Storage>
        });
        Server::start_in(dir, storage, prepare)
    }

    /// A server over a storage tier that the test has made.
    pub fn start_on(storage: std::sync::Arc<dyn terrace_kv::storage::Storage>) -> Server {
        Server::start_in(None, Some(storage), |_| {})
    }

    fn start_in(
        dir: Option<tempfile::TempDir>,
        storage: Option<std::sync::Arc<dyn terrace_kv::storage::Storage>>,
        prepare: impl FnOnce(&mut terrace_kv::server::Core),
    ) -> Server {
        let any = "127.0.0.1:0".parse().unwrap();
        let listening =
            terrace_kv::run::listen(terrace_io::real::world(), Default::default(), &[any], storage, None)
                .unwrap();
        let address = listening.addresses()[0];
        prepare(&mut listening.core.lock());
        let core = listening.core.clone();
        let stopped = core.clone();
        let stop = Box::new(move || stopped.lock().server.is_stopping = true);
        let thread = std::thread::spawn(move || listening.run().unwrap());
        Server { address, core, thread: Some(thread), stop, _dir: dir, _redis: None }
    }

    pub fn connect(&self) -> Client {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.set_nodelay(true).unwrap();
        Client { stream: BufReader::new(stream) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        (self.stop)();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[derive(Clone, PartialEq, Debug)]
pub enum Reply {
    Simple(String),
    Error(String),
    Int(i64),
    Bulk(Vec<u8>),
    Null,
    Array(Vec<Reply>),
    Map(Vec<Reply>),
    Set(Vec<Reply>),
    Push(Vec<Reply>),
    Double(String),
    Bool(bool),
    Verbatim(String),
    Big(String),
}

pub fn ok() -> Reply {
    simple("OK")
}

pub fn simple(text: &str) -> Reply {
    Reply::Simple(text.into())
}

pub fn error(text: &str) -> Reply {
    Reply::Error(text.into())
}

pub fn int(number: i64) -> Reply {
    Reply::Int(number)
}

pub fn bulk(text: &str) -> Reply {
    Reply::Bulk(text.as_bytes().to_vec())
}

pub fn nil() -> Reply {
    Reply::Null
}

pub fn bulks(texts: &[&str]) -> Reply {
    Reply::Array(texts.iter().map(|text| bulk(text)).collect())
}

pub struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    pub fn of(stream: TcpStream) -> Client {
        Client { stream: BufReader::new(stream) }
    }

    /// The next reply, or `None` if the connection ends before it does.
    pub fn reply_if_any(&mut self) -> Option<Reply> {
        match self.stream.fill_buf() {
            Ok([]) | Err(_) => return None,
            Ok(_) => {}
        }
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.reply())).ok()
    }

    pub fn try_send(&mut self, command: &str) -> bool {
        let words: Vec<&str> = command.split(' ').collect();
        let mut bytes = format!("*{}\r\n", words.len());
        words.iter().for_each(|word| bytes.push_str(&format!("${}\r\n{word}\r\n", word.len())));
        self.stream.get_mut().write_all(bytes.as_bytes()).is_ok()
    }

    /// Sends a command whose words are separated by spaces.
    pub fn send(&mut self, command: &str) {
        self.send_args(&command.split(' ').map(str::as_bytes).collect::<Vec<_>>());
    }

    pub fn send_args(&mut self, args: &[&[u8]]) {
        let mut bytes = format!("*{}\r\n", args.len()).into_bytes();
        for arg in args {
            bytes.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
            bytes.extend_from_slice(arg);
            bytes.extend_from_slice(b"\r\n");
        }
        self.send_raw(&bytes);
    }

    pub fn send_raw(&mut self, bytes: &[u8]) {
        self.stream.get_mut().write_all(bytes).unwrap();
    }

    pub fn ask(&mut self, command: &str) -> Reply {
        self.send(command);
        self.reply()
    }

    pub fn ask_args(&mut self, args: &[&[u8]]) -> Reply {
        self.send_args(args);
        self.reply()
    }

    pub fn is_closed(&mut self) -> bool {
        let mut rest = Vec::new();
        matches!(self.stream.read_to_end(&mut rest), Ok(0) | Err(_))
    }

    pub fn reply(&mut self) -> Reply {
        let mut line = String::new();
        self.stream.read_line(&mut line).unwrap();
        let (kind, text) = line.trim_end().split_at(1);
        let number = || text.parse::<i64>().unwrap();
        match kind {
            "+" => simple(text),
            "-" => error(text),
            ":" => int(number()),
            "_" => Reply::Null,
            "$" | "*" if text == "-1" => Reply::Null,
            "$" => Reply::Bulk(self.bytes(number() as usize)),
            "=" => Reply::Verbatim(String::from_utf8(self.bytes(number() as usize)).unwrap()),
            "*" => Reply::Array(self.replies(number())),
            "~" => Reply::Set(self.replies(number())),
            ">" => Reply::Push(self.replies(number())),
            "%" => Reply::Map(self.replies(2 * number())),
            "," => Reply::Double(text.into()),
            "#" => Reply::Bool(text == "t"),
            "(" => Reply::Big(text.into()),
            _ => panic!("reply {line:?}"),
        }
    }

    fn replies(&mut self, count: i64) -> Vec<Reply> {
        (0..count).map(|_| self.reply()).collect()
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count + 2];
        self.stream.read_exact(&mut bytes).unwrap();
        bytes.truncate(count);
        bytes
    }
}
