//! A server in a process of its own, which can be killed, with a storage tier or without one.

use super::Client;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use terrace_io::real::disk::RealDisk;
use terrace_kv::storage::Storage;
use terrace_kv::storage::engine::EngineStorage;

const DIR: &str = "TERRACE_KV_TEST_DIR";
/// Settings, each `name=value`, a line each. Asks for the server.
const SETTINGS: &str = "TERRACE_KV_TEST_SETTINGS";

/// What the child process does: it runs the test `serves_in_a_process_of_its_own`.
pub fn serve_if_asked() {
    let Ok(settings) = std::env::var(SETTINGS) else { return };
    let mut config = terrace_kv::config::Config::default();
    for (name, value) in settings.lines().filter_map(|line| line.split_once('=')) {
        config.load(name, value).unwrap();
    }
    let storage = std::env::var(DIR).ok().map(|dir| {
        let settings = terrace::Config::new(&dir).log(16 << 20).memory(16 << 20);
        let db = terrace::Db::open_with(settings).unwrap();
        let log = RealDisk::open(std::path::Path::new(&dir).join("write-back")).unwrap();
        EngineStorage::open_with_log(db, Some(Arc::new(log))).unwrap() as Arc<dyn Storage>
    });
    let any = "127.0.0.1:0".parse().unwrap();
    let world = terrace_io::real::world();
    let listening = terrace_kv::run::listen(world, config, &[any], storage, None).unwrap();
    println!("\nlistens {}", listening.addresses()[0]);
    listening.run().unwrap();
}

pub struct Process {
    pub address: SocketAddr,
    child: Child,
    /// Kept open: the child writes to it as it ends.
    _output: BufReader<ChildStdout>,
}

impl Process {
    pub fn start(dir: &Path, fsync: &str) -> Process {
        Process::start_with(Some(dir), &[("appendfsync", fsync)])
    }

    pub fn start_with(dir: Option<&Path>, settings: &[(&str, &str)]) -> Process {
        let settings: String = settings.iter().map(|(name, value)| format!("{name}={value}\n")).collect();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "serves_in_a_process_of_its_own", "--nocapture", "--test-threads=1"])
            .env(SETTINGS, settings)
            .stdout(Stdio::piped());
        if let Some(dir) = dir {
            command.env(DIR, dir);
        }
        let mut child = command.spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let address = loop {
            let mut line = String::new();
            assert!(output.read_line(&mut line).unwrap() > 0, "the server listens");
            if let Some(address) = line.trim_end().strip_prefix("listens ") {
                break address.parse().unwrap();
            }
        };
        Process { address, child, _output: output }
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn connect(&self) -> Client {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.set_nodelay(true).unwrap();
        Client::of(stream)
    }

    /// As `kill -9`.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// By SHUTDOWN.
    pub fn stop(mut self) {
        self.connect().send("SHUTDOWN");
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It has ended if the test succeeded.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
