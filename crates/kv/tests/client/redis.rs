//! A real redis-server in a process of its own, which can be killed, stopped and started again, as storage below a server.

use super::Client;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use terrace_io::disk::Disk;
use terrace_kv::storage::StorageError;
use terrace_kv::storage::redis::{Options, RedisStorage};

/// The program, installed if need be.
fn program() -> &'static str {
    static PROGRAM: OnceLock<String> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/redis-server.sh");
        let found = Command::new(script).stderr(Stdio::inherit()).output().expect("the script runs");
        assert!(found.status.success(), "there is no redis-server");
        String::from_utf8(found.stdout).unwrap().trim_end().to_owned()
    })
}

pub struct RedisServer {
    pub port: u16,
    args: Vec<String>,
    child: Child,
    dir: tempfile::TempDir,
}

impl RedisServer {
    /// One that keeps what it acknowledges.
    pub fn start(args: &[&str]) -> RedisServer {
        let dir = tempfile::tempdir().unwrap();
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        // Another process may take the port before the server does.
        for _ in 0..20 {
            let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let port = free.local_addr().unwrap().port();
            drop(free);
            if let Some(child) = run(port, &args, dir.path()) {
                return RedisServer { port, args, child, dir };
            }
        }
        panic!("redis-server does not start");
    }

    /// As `kill -9`.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts it again on its port, with its data.
    pub fn start_again(&mut self) {
        self.child = run(self.port, &self.args, self.dir.path()).expect("it starts again");
    }

    /// It stands still until `go_on`.
    pub fn stand_still(&self) {
        self.signal(libc::SIGSTOP);
    }

    pub fn go_on(&self) {
        self.signal(libc::SIGCONT);
    }

    fn signal(&self, signal: i32) {
        // SAFETY: it has no conditions; the child was not waited for, so its number is its own.
        assert_eq!(unsafe { libc::kill(self.child.id() as i32, signal) }, 0);
    }

    pub fn connect(&self) -> Client {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Client::of(stream)
    }

    pub fn options(&self) -> Options {
        Options {
            address: format!("redis://127.0.0.1:{}", self.port).parse().unwrap(),
            databases: 16,
            timeout: Duration::from_secs(20),
            log_disk: None,
        }
    }

    /// The storage in it.
    pub fn storage(&self) -> Arc<RedisStorage> {
        open(self.options()).unwrap()
    }

    pub fn storage_with_log(&self, log: Arc<dyn Disk>) -> Arc<RedisStorage> {
        open(Options { log_disk: Some(log), ..self.options() }).unwrap()
    }
}

pub fn open(options: Options) -> Result<Arc<RedisStorage>, StorageError> {
    RedisStorage::open(&terrace_io::real::world(), options)
}

/// Runs it until it answers; `None`: it has ended.
fn run(port: u16, args: &[String], dir: &Path) -> Option<Child> {
    let mut child = Command::new(program())
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""])
        .args(["--appendonly", "yes", "--appendfsync", "always"])
        .args(args)
        .current_dir(dir)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    loop {
        if let Ok(stream) = TcpStream::connect(("127.0.0.1", port)) {
            stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            let mut client = Client::of(stream);
            client.send("PING");
            match client.reply_if_any() {
                Some(super::Reply::Error(text)) if text.starts_with("LOADING") => {}
                // It may want a password first.
                Some(_) => return Some(child),
                None => {}
            }
        }
        if child.try_wait().unwrap().is_some() {
            return None;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.go_on_if_there();
        // It has ended if the test killed it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl RedisServer {
    fn go_on_if_there(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            self.go_on();
        }
    }
}
