//! `terrace kv`: the server that speaks Redis's protocol.
//!
//! A configuration file of Redis is taken first, then the options; a directive that means nothing here is named once on standard error.

use clap::Args;
use std::io::Write;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use terrace_kv::storage::Storage;
use terrace_kv::storage::engine::EngineStorage;

/// The engine's share of the memory, as a divisor, and the least that it runs with.
const ENGINE_SHARE: u64 = 4;
const ENGINE_BYTES_MIN: u64 = 8 << 20;

#[derive(Args)]
pub struct Kv {
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
    /// Memory of the process, such as 1gb: the directive maxmemory
    #[arg(long)]
    memory: Option<String>,
}

pub fn run(options: &Kv) -> ExitCode {
    match serve(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::from(2)
        }
    }
}

fn serve(options: &Kv) -> Result<(), String> {
    let mut config = terrace_kv::config::Config::default();
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
    if let Some(memory) = &options.memory {
        set("maxmemory", memory)?;
    }
    for line in config.broken_promises() {
        eprintln!("warning: {line}");
    }
    let storage = match config.text("dir") {
        "" => None,
        dir => Some(open_storage(dir, config.text("object"), config.size("maxmemory"))?),
    };
    let kept = storage.as_ref().map_or("memory alone".to_owned(), |_| config.text("dir").to_owned());
    let addresses = addresses(config.text("bind"), config.number("port") as u16)?;
    let world = terrace_io::real::world();
    let listening = terrace_kv::run::listen(
        world,
        config,
        &addresses,
        storage.clone().map(|storage| storage as Arc<dyn Storage>),
        Some(Box::new(LocalFiles)),
    )
    .map_err(|error| format!("{addresses:?}: {error}"))?;
    for address in listening.addresses() {
        eprintln!("terrace kv: ready to accept connections on {address}; data is kept in {kept}");
    }
    listening.run().map_err(|error| error.to_string())?;
    match storage {
        Some(storage) => storage.db().sync().map_err(|error| error.to_string()),
        None => Ok(()),
    }
}

/// The files that a running server is told to read and write.
struct LocalFiles;

impl terrace_kv::config::files::Files for LocalFiles {
    fn read(&self, path: &str) -> std::io::Result<Vec<u8>> {
        std::fs::read(path)
    }

    fn replace(&self, path: &str, contents: &[u8]) -> std::io::Result<()> {
        let new = format!("{path}.new");
        let mut file = std::fs::File::create(&new)?;
        file.write_all(contents)?;
        file.sync_all()?;
        std::fs::rename(&new, path)?;
        let parent = std::path::Path::new(path).parent().filter(|parent| !parent.as_os_str().is_empty());
        std::fs::File::open(parent.unwrap_or(std::path::Path::new(".")))?.sync_all()
    }
}

/// Opens the instance that keeps the data, or makes it.
fn open_storage(dir: &str, object: &str, memory: usize) -> Result<Arc<EngineStorage>, String> {
    let mut config = terrace::Config::new(dir);
    if !object.is_empty() {
        config = config.object(object);
    }
    if memory > 0 {
        config = config.memory((memory as u64 / ENGINE_SHARE).max(ENGINE_BYTES_MIN));
    }
    let db = terrace::Db::open_with(config).map_err(|error| format!("{dir}: {error}"))?;
    EngineStorage::open(db).map_err(|error| format!("{dir}: {error}"))
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
