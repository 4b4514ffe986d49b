//! `terrace kv`: the server that speaks Redis's protocol.
//!
//! A configuration file of Redis is taken first, then the options; a directive that means nothing here is named once on standard error.

mod below;
mod client;
mod copy;
mod files;
mod import;
mod top;

use clap::{Args, Subcommand};
use files::LocalFiles;
use std::io::ErrorKind;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use terrace::open::Listener;
use terrace_engine::engine::inspect::metrics::running;
use terrace_io::World;
use terrace_io::real::disk::RealDisk;
use terrace_kv::config::Config;
use terrace_kv::server::signals::Signals;
use terrace_kv::storage::engine::EngineStorage;
use terrace_kv::storage::redis::RedisStorage;
use terrace_kv::storage::{Storage, journal};

/// The engine's share of the memory, as a divisor, and the least that it runs with.
const ENGINE_SHARE: u64 = 4;
const ENGINE_BYTES_MIN: u64 = 8 << 20;

#[derive(Subcommand)]
enum Tool {
    /// Load an RDB file into an instance or a running server
    #[command(after_help = import::AFTER_HELP)]
    Import(import::Import),
    /// Copy the data of a live server, and prove that both sides have the same
    #[command(after_help = copy::AFTER_HELP)]
    Copy(copy::Copy),
    /// Show what a running server does
    Top(top::Top),
}

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Kv {
    #[command(subcommand)]
    tool: Option<Tool>,
    /// A configuration file of Redis: known directives are taken, others are named and ignored
    config: Option<PathBuf>,
    /// The addresses to listen on
    #[arg(long, value_delimiter = ',')]
    bind: Vec<String>,
    /// The port to listen on
    #[arg(long)]
    port: Option<u16>,
    /// The directory of the data: without it, data is kept in memory alone
    #[arg(long)]
    dir: Option<String>,
    /// The object store for data that has cooled: s3://bucket/prefix, gs://…, az://… or a directory
    #[arg(long, requires = "dir")]
    object: Option<String>,
    /// Another server as storage: redis://[[user]:password@]host:port. With --dir, the log of write-back is there
    #[arg(long, conflicts_with = "object")]
    storage: Option<String>,
    /// Memory of the process, such as 1gb: the directive maxmemory
    #[arg(long)]
    memory: Option<String>,
    /// A loopback address such as 127.0.0.1:9186 on which metrics for Prometheus are served
    #[arg(long, value_parser = loopback)]
    metrics_listen: Option<SocketAddr>,
}

/// Metrics have no access control.
fn loopback(text: &str) -> Result<SocketAddr, String> {
    let address: SocketAddr = text.parse().map_err(|_| "an address is like 127.0.0.1:9186")?;
    match address.ip().is_loopback() {
        true => Ok(address),
        false => Err("the address is not a loopback address, and metrics have no access control".into()),
    }
}

pub fn run(options: &Kv) -> ExitCode {
    match &options.tool {
        Some(Tool::Import(import)) => return import::run(import),
        Some(Tool::Copy(copy)) => return copy::run(copy),
        Some(Tool::Top(top)) => return top::run(top),
        None => {}
    }
    match serve(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::from(2)
        }
    }
}

fn serve(options: &Kv) -> Result<(), String> {
    let mut config = Config::default();
    if let Some(path) = &options.config {
        let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let path_text = path.to_str().ok_or_else(|| format!("{}: the path is not UTF-8", path.display()))?;
        config.file = Some(path_text.to_owned());
        let ignored = config.load_file(&text).map_err(|error| format!("{}: {error}", path.display()))?;
        if !ignored.is_empty() {
            eprintln!("{}: ignored, as they mean nothing here: {}", path.display(), ignored.join(", "));
        }
    }
    let mut set =
        |name: &str, value: &str| config.load(name, value).map(drop).map_err(|error| error.to_string());
    if !options.bind.is_empty() {
        set("bind", &options.bind.join(" "))?;
    }
    if let Some(port) = options.port {
        set("port", &port.to_string())?;
    }
    if let Some(dir) = &options.dir {
        set("dir", dir)?;
    }
    if let Some(object) = &options.object {
        set("object", object)?;
    }
    if let Some(storage) = &options.storage {
        set("storage", storage)?;
    }
    if let Some(memory) = &options.memory {
        set("maxmemory", memory)?;
    }
    for line in config.broken_promises() {
        eprintln!("warning: {line}");
    }
    let world = terrace_io::real::world();
    let storage = Opened::open(&world, &config)?;
    if matches!(storage, Opened::Redis(_)) {
        // Its snapshots are not ours to take; it was warned of.
        config.load("save", "").map_err(|error| error.to_string())?;
    }
    let kept = storage.place(&config);
    let addresses = addresses(config.text("bind"), config.number("port") as u16)?;
    let listening =
        terrace_kv::run::listen(world, config, &addresses, storage.storage(), Some(Box::new(LocalFiles)))
            .map_err(|error| match error.kind() {
                ErrorKind::InvalidData | ErrorKind::InvalidInput => error.to_string(),
                _ => format!("{addresses:?}: {error}"),
            })?;
    listening.obey(Signals::install());
    let metrics = options.metrics_listen.map(|address| {
        let (core, engine) = (listening.core.clone(), storage.engine());
        Listener::start(address, move || {
            let engine = engine.as_ref().map_or(String::new(), |storage| running(storage.db().engine()));
            terrace_kv::command::metrics::text(&core) + &engine
        })
        .map_err(|error| error.to_string())
    });
    let _metrics = metrics.transpose()?;
    if let Some(address) = options.metrics_listen {
        eprintln!("terrace kv: metrics are at http://{address}/metrics");
    }
    for address in listening.addresses() {
        eprintln!("terrace kv: ready to accept connections on {address}; data is kept in {kept}");
    }
    listening.run().map_err(|error| error.to_string())?;
    match storage.engine() {
        Some(storage) => storage.db().sync().map_err(|error| error.to_string()),
        None => Ok(()),
    }
}

/// The storage tier of a server.
enum Opened {
    Memory,
    Engine(Arc<EngineStorage>),
    Redis(Arc<RedisStorage>),
}

impl Opened {
    fn open(world: &World, config: &Config) -> Result<Opened, String> {
        if !config.text("storage").is_empty() {
            return below::open(world, config).map(Opened::Redis);
        }
        match config.text("dir") {
            "" => Ok(Opened::Memory),
            dir => {
                let storage = open_storage(dir, config.text("object"), config.size("maxmemory"))?;
                Ok(Opened::Engine(storage))
            }
        }
    }

    fn storage(&self) -> Option<Arc<dyn Storage>> {
        match self {
            Opened::Memory => None,
            Opened::Engine(storage) => Some(storage.clone()),
            Opened::Redis(storage) => Some(storage.clone()),
        }
    }

    fn engine(&self) -> Option<Arc<EngineStorage>> {
        match self {
            Opened::Engine(storage) => Some(storage.clone()),
            _ => None,
        }
    }

    /// Where data is kept, for a person.
    fn place(&self, config: &Config) -> String {
        match self {
            Opened::Memory => "memory alone".into(),
            Opened::Engine(_) => config.text("dir").to_owned(),
            Opened::Redis(storage) => storage.place().to_owned(),
        }
    }
}

/// Opens the instance that keeps the data, or makes it.
fn open_storage(dir: &str, object: &str, memory: usize) -> Result<Arc<EngineStorage>, String> {
    below::refuse_other(dir)?;
    let mut config = terrace::Config::new(dir);
    if !object.is_empty() {
        config = config.object(object);
    }
    if memory > 0 {
        config = config.memory((memory as u64 / ENGINE_SHARE).max(ENGINE_BYTES_MIN));
    }
    let db = terrace::Db::open_with(config).map_err(|error| format!("{dir}: {error}"))?;
    let log = RealDisk::open(std::path::Path::new(dir).join(below::LOG));
    let log = log.map_err(|error| format!("{dir}: {error}"))?;
    let storage = EngineStorage::open_with_log(db, Some(Arc::new(log)));
    let storage = storage.map_err(|error| format!("{dir}: {error}"))?;
    // What a server with write-back has left behind.
    journal::replay::catch_up(&*storage).map_err(|error| format!("{dir}: {error}"))?;
    Ok(storage)
}

/// The addresses of `bind`. One with `-` before it may be missing on this machine.
fn addresses(bind: &str, port: u16) -> Result<Vec<SocketAddr>, String> {
    let mut found = Vec::new();
    for name in bind.split_whitespace() {
        let (name, is_optional) = name.strip_prefix('-').map_or((name, false), |name| (name, true));
        let name = if name == "*" { "0.0.0.0" } else { name };
        match (name, port).to_socket_addrs() {
            Ok(addresses) => found.extend(addresses.take(1)),
            Err(_) if is_optional => {}
            Err(error) => return Err(format!("bind {name}: {error}")),
        }
    }
    Ok(found)
}
