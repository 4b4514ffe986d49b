//! Several daemons in the test's own process over one store whose requests are counted. Each is known to the others by a proxy that can delay, cut and corrupt.

#![allow(dead_code)]

use crate::rig::{HANG, Rigged, figure};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use terrace_files::client::Client;
use terrace_files::config::Config;
use terrace_files::peers::{Members, Secret, Settings};
use terrace_files::run::Daemon;

pub fn secret(text: &str) -> Secret {
    Secret::new(text.as_bytes()).unwrap()
}

/// An address that nothing listens at.
pub fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// Waits for an event, not for a time: the limit is that of a hang.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < end, "it never came: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[derive(Default)]
pub struct Faults {
    /// Connections are closed, and refused.
    pub cut: AtomicBool,
    /// Milliseconds that each piece of bytes is held back.
    pub delay_ms: AtomicU64,
    /// One of N long pieces has a changed byte; 0: none.
    pub corrupts: AtomicU64,
    /// A connection is closed after N bytes; 0: never.
    pub cuts_after: AtomicU64,
    pieces: AtomicU64,
    streams: Mutex<Vec<TcpStream>>,
}

impl Faults {
    pub fn cut(&self, is_cut: bool) {
        self.cut.store(is_cut, Ordering::SeqCst);
        if is_cut {
            self.streams.lock().unwrap().drain(..).for_each(|stream| _ = stream.shutdown(Shutdown::Both));
        }
    }

    fn pass(&self, mut from: TcpStream, mut to: TcpStream) {
        let mut piece = vec![0; 32 << 10];
        let mut passed = 0;
        while let Ok(count @ 1..) = from.read(&mut piece) {
            std::thread::sleep(Duration::from_millis(self.delay_ms.load(Ordering::SeqCst)));
            let corrupts = self.corrupts.load(Ordering::SeqCst);
            // Those that have more than a greeting or a request in them.
            let is_long = count > 1000;
            let number = self.pieces.fetch_add(u64::from(is_long), Ordering::SeqCst);
            if is_long && corrupts > 0 && number % corrupts == corrupts - 1 {
                piece[count / 2] ^= 0x20;
            }
            passed += count as u64;
            let cuts_after = self.cuts_after.load(Ordering::SeqCst);
            if self.cut.load(Ordering::SeqCst) || cuts_after > 0 && passed > cuts_after {
                break;
            }
            if to.write_all(&piece[..count]).is_err() {
                break;
            }
        }
        let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
    }
}

/// A proxy in front of `to`: its address and its faults. Its threads end with the process.
pub fn proxy(to: SocketAddr) -> (SocketAddr, Arc<Faults>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, faults) = (listener.local_addr().unwrap(), Arc::<Faults>::default());
    let of_threads = faults.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let faults = of_threads.clone();
            let Ok(target) = TcpStream::connect(to) else { continue };
            if faults.cut.load(Ordering::SeqCst) {
                continue;
            }
            let _ = (stream.set_nodelay(true), target.set_nodelay(true));
            let (back, forth) = (stream.try_clone().unwrap(), target.try_clone().unwrap());
            faults.streams.lock().unwrap().push(stream.try_clone().unwrap());
            let of_back = faults.clone();
            std::thread::spawn(move || faults.pass(stream, target));
            std::thread::spawn(move || of_back.pass(forth, back));
        }
    });
    (address, faults)
}

pub struct Node {
    pub config: Config,
    stop: Arc<AtomicBool>,
    running: Option<JoinHandle<Result<(), String>>>,
}

impl Node {
    pub fn client(&self) -> Client {
        Client::connect(&self.config.socket, "").unwrap()
    }
    pub fn figure(&self, name: &str) -> u64 {
        figure(&self.client(), name)
    }
    pub fn end(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(running) = self.running.take() {
            running.join().unwrap().unwrap();
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.end();
        }
    }
}

pub struct Cluster {
    pub store: Arc<Rigged>,
    pub scratch: tempfile::TempDir,
    pub listen: Vec<SocketAddr>,
    pub addresses: Vec<SocketAddr>,
    pub faults: Vec<Arc<Faults>>,
}

impl Cluster {
    pub fn of(count: usize) -> Cluster {
        let scratch = tempfile::tempdir().unwrap();
        let listen: Vec<SocketAddr> = (0..count).map(|_| free_address()).collect();
        let (addresses, faults) = listen.iter().map(|listen| proxy(*listen)).unzip();
        let store = Rigged::over(&Config::new(scratch.path().join("store").to_str().unwrap(), 256 << 20));
        Cluster { store, scratch, listen, addresses, faults }
    }

    pub fn directory(&self) -> PathBuf {
        self.scratch.path().join("store")
    }

    pub fn config(&self, at: usize) -> Config {
        let mut config = Config::new(self.directory().to_str().unwrap(), 256 << 20);
        config.socket = self.scratch.path().join(format!("socket-{at}"));
        config.requests = 16;
        // Tests count requests: on a busy machine the store is not to be asked as flash or a peer is late.
        config.flash_timeout = HANG;
        config.peers = Some(Settings {
            listen: self.listen[at],
            address: self.addresses[at].to_string(),
            members: Members::Listed(self.addresses.iter().map(SocketAddr::to_string).collect()),
            secret: secret("the secret of all of them"),
            patience: HANG,
            rate: 0,
        });
        config
    }

    pub fn flash(&self, at: usize) -> Option<(PathBuf, u64)> {
        Some((self.scratch.path().join(format!("flash-{at}")), 512 << 20))
    }

    pub fn start(&self, at: usize, change: impl FnOnce(&mut Config)) -> Node {
        let mut config = self.config(at);
        change(&mut config);
        if let Some((directory, _)) = &config.flash {
            std::fs::create_dir_all(directory).unwrap();
        }
        let daemon = Daemon::start(terrace_io::real::world(), &config, self.store.clone()).unwrap();
        let stop = Arc::<AtomicBool>::default();
        let of_thread = stop.clone();
        Node { config, stop, running: Some(std::thread::spawn(move || daemon.run(&of_thread))) }
    }

    /// Writes a file behind the daemons' backs, whole and at once.
    pub fn put(&self, path: &str, body: &[u8]) {
        let file = self.directory().join(path);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        let staged = self.scratch.path().join("staged");
        std::fs::write(&staged, body).unwrap();
        std::fs::rename(staged, file).unwrap();
    }

    pub fn requests(&self) -> u64 {
        self.store.gets.load(Ordering::SeqCst) + self.store.heads.load(Ordering::SeqCst)
    }
}

/// All of these nodes are connected to each other, and nothing is still to be moved.
pub fn settled(nodes: &[&Node]) {
    for node in nodes {
        until("the nodes are connected, and nothing is pending", || {
            let status = node.client().status().unwrap();
            let connected = status.matches("\"connected\": true").count() + 1;
            connected == nodes.len()
                && status.contains(&format!("\"peer_live\": {}", nodes.len()))
                && status.contains("\"peer_partitions_pending\": 0")
        });
    }
}

/// A daemon as another process runs it, over the same store, by what `Command` of [`spawned`] says.
pub fn run_as_told(told: &str) {
    let parts: Vec<&str> = told.split('|').collect();
    let [store, socket, listen, address, members] = parts[..] else { panic!("it was told {told}") };
    let mut config = Config::new(store, 256 << 20);
    config.socket = Path::new(socket).into();
    config.requests = 16;
    let members = match members.strip_prefix("etcd:") {
        Some(url) => Members::Etcd { urls: vec![url.into()], prefix: "/terrace/test".into() },
        None => Members::Listed(members.split(',').map(str::to_string).collect()),
    };
    config.peers = Some(Settings {
        listen: listen.parse().unwrap(),
        address: address.into(),
        members,
        secret: secret("the secret of all of them"),
        patience: HANG,
        rate: 0,
    });
    let store = terrace_files::run::open_store(&config).unwrap();
    let daemon = Daemon::start(terrace_io::real::world(), &config, store).unwrap();
    daemon.run(&AtomicBool::new(false)).unwrap();
}

/// A node in a process of its own, to be killed.
pub fn spawned(cluster: &Cluster, at: usize, members: &str) -> std::process::Child {
    let socket = cluster.scratch.path().join(format!("socket-{at}"));
    let told = [
        cluster.directory().to_str().unwrap(),
        socket.to_str().unwrap(),
        &cluster.listen[at].to_string(),
        &cluster.addresses[at].to_string(),
        members,
    ]
    .join("|");
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "a_node_of_another_process", "--nocapture"])
        .env("TERRACE_TEST_NODE", told)
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    until("the other process serves", || Client::connect(&socket, "").is_ok());
    child
}
