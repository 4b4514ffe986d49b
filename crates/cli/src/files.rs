//! `terrace files`: the file cache over an object store, and what one asks of it while it runs.

use crate::output;
use clap::{Args, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use terrace_files::client::Client;
use terrace_files::config::{self, Config};
use terrace_files::peers::{Members, PATIENCE, Settings, read_secret};
use terrace_files::run::{self, Daemon};
use terrace_files::wire::BATCH_MAX;
use terrace_files_s3::Door;

pub const AFTER_HELP: &str = "Example: terrace files --store s3://bucket --memory 2G --flash /nvme/cache:200G\n\
     then, from Python: fsspec.filesystem(\"terrace\", target=\"s3://bucket\")";

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Files {
    #[command(subcommand)]
    ask: Option<Ask>,
    /// The store: s3://bucket/prefix, gs://…, az://… or a directory
    #[arg(long, required = true)]
    store: Option<String>,
    /// URL of a server that is not the provider's own
    #[arg(long)]
    store_endpoint: Option<String>,
    /// Memory for all, such as 2G
    #[arg(long, required = true, value_parser = config::bytes)]
    memory: Option<u64>,
    /// A directory on local flash and how much of it, such as /nvme/cache:200G
    #[arg(long, value_parser = config::flash)]
    flash: Option<(PathBuf, u64)>,
    /// Where clients connect
    #[arg(long, default_value_os_t = config::default_socket())]
    socket: PathBuf,
    /// How long a file's version holds: immutable, always (each read asks the store) or ttl=30s
    #[arg(long, default_value = "ttl=60s", value_parser = config::freshness)]
    freshness: terrace_files::catalogue::Freshness,
    /// Requests to the store at a time
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u16).range(1..=1024))]
    requests: u16,
    /// Requests to the store a second; 0: no limit
    #[arg(long, default_value_t = 0)]
    requests_per_second: u64,
    /// Memory for objects, of all of it; without it an eighth
    #[arg(long, value_parser = config::bytes)]
    objects: Option<u64>,
    /// Whether small files are packed on flash: off is for comparison
    #[arg(long, default_value = "on", value_parser = ["on", "off"])]
    packing: String,
    /// The part, 0 to 1, of blocks on flash that the store may serve when flash is busy. Each is a request to the store
    #[arg(long, default_value_t = 0.0, value_parser = config::weight)]
    store_weight: f64,
    /// Milliseconds that a read of flash may take at least before the store is asked for the block
    #[arg(long, default_value_t = config::FLASH_TIMEOUT / 1_000_000, value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    flash_timeout: u64,
    /// Clients at a time
    #[arg(long, default_value_t = config::CLIENTS_MAX)]
    clients: usize,
    /// Be one cache with other nodes' daemons: where they connect, such as 10.0.0.5:9500
    #[arg(long, requires = "peer_secret")]
    peer_listen: Option<std::net::SocketAddr>,
    /// What the other nodes know this one by, and connect to; without it as --peer-listen
    #[arg(long, requires = "peer_listen")]
    peer_address: Option<String>,
    /// All nodes of the cache, this one too, by their addresses: a:9500,b:9500
    #[arg(long, requires = "peer_listen", conflicts_with = "etcd", value_delimiter = ',')]
    peers: Vec<String>,
    /// The nodes register in etcd: its URLs, such as http://10.0.0.1:2379
    #[arg(long, requires = "peer_listen", value_delimiter = ',')]
    etcd: Vec<String>,
    /// The nodes' keys in etcd begin with this
    #[arg(long, default_value = "/terrace/files")]
    etcd_prefix: String,
    /// A file of the secret that all nodes share; readable by its owner alone
    #[arg(long, requires = "peer_listen")]
    peer_secret: Option<PathBuf>,
    /// Bytes a second that are given to a node that joins; 0: no limit
    #[arg(long, default_value = "512M", value_parser = config::bytes)]
    peer_rate: u64,
    /// Serve the bucket as an S3 endpoint, too, at this address, such as 127.0.0.1:9400
    #[arg(long)]
    s3_listen: Option<std::net::SocketAddr>,
    /// A file of the keys that clients of the endpoint sign with: a line for each, its id and its secret; readable by its owner alone
    #[arg(long, requires = "s3_listen")]
    s3_keys: Option<PathBuf>,
}

#[derive(Args)]
struct Socket {
    /// Where the daemon listens
    #[arg(long, default_value_os_t = config::default_socket())]
    socket: PathBuf,
}

#[derive(Subcommand)]
enum Ask {
    /// Print the daemon's figures as JSON
    Status(Socket),
    /// List a folder of the store
    Ls {
        #[command(flatten)]
        at: Socket,
        #[arg(default_value = "")]
        folder: String,
        /// Everything below it
        #[arg(short, long)]
        recursive: bool,
    },
    /// Bring files, and all below folders, into memory
    Warm {
        #[command(flatten)]
        at: Socket,
        #[arg(required = true)]
        paths: Vec<String>,
    },
    /// Keep files, and all below folders, in memory until they are unpinned
    Pin {
        #[command(flatten)]
        at: Socket,
        #[arg(required = true)]
        paths: Vec<String>,
    },
    /// Let files that were pinned be evicted again
    Unpin {
        #[command(flatten)]
        at: Socket,
        #[arg(required = true)]
        paths: Vec<String>,
    },
    /// Drop what is cached of files whose path starts with a prefix
    Evict {
        #[command(flatten)]
        at: Socket,
        prefix: String,
    },
}

pub fn run(options: Files) -> ExitCode {
    let result = match options.ask {
        Some(ask) => answer(ask).map_err(|error| error.to_string()),
        None => serve(options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::from(2)
        }
    }
}

/// None: this daemon is alone.
fn peers(options: &Files) -> Result<Option<Settings>, String> {
    let (Some(listen), Some(secret)) = (options.peer_listen, &options.peer_secret) else { return Ok(None) };
    let address = options.peer_address.clone().unwrap_or_else(|| listen.to_string());
    if options.peer_address.is_none() && listen.ip().is_unspecified() {
        return Err(format!(
            "{listen} is no address that other nodes can connect to: --peer-address is needed"
        ));
    }
    let members = match (options.peers.is_empty(), options.etcd.is_empty()) {
        (false, true) => Members::Listed(options.peers.clone()),
        (true, false) => Members::Etcd { urls: options.etcd.clone(), prefix: options.etcd_prefix.clone() },
        _ => return Err("--peers or --etcd is needed with --peer-listen".into()),
    };
    if let Members::Listed(list) = &members
        && !list.contains(&address)
    {
        return Err(format!("--peers does not name this node, {address}: all nodes have the same list"));
    }
    let (secret, rate) = (read_secret(secret)?, options.peer_rate);
    Ok(Some(Settings { listen, address, members, secret, patience: PATIENCE, rate }))
}

fn serve(options: Files) -> Result<(), String> {
    let peers = peers(&options)?;
    let missing = || "--store and --memory are needed".to_string();
    let mut config = Config::new(&options.store.ok_or_else(missing)?, options.memory.ok_or_else(missing)?);
    config.endpoint = options.store_endpoint;
    config.flash = options.flash;
    config.socket = options.socket;
    config.freshness = options.freshness;
    config.requests = options.requests.into();
    config.requests_per_second = options.requests_per_second;
    config.clients = options.clients;
    config.objects = options.objects;
    config.store_weight = options.store_weight;
    config.flash_timeout = options.flash_timeout * 1_000_000;
    config.packing = options.packing == "on";
    config.peers = peers;
    config.has_front = options.s3_listen.is_some();
    let store = run::open_store(&config)?;
    let keys =
        options.s3_keys.map(|file| terrace_files_s3::read_keys(&file)).transpose()?.unwrap_or_default();
    let stop: &'static AtomicBool = run::stop_on_signals();
    let daemon = Daemon::start(terrace_io::real::world(), &config, store)?;
    if let Some(off) = daemon.files.flash.as_ref().and_then(|flash| flash.status().off) {
        eprintln!("warning: flash is not used: {off}");
    }
    let endpoint = match options.s3_listen {
        Some(listen) => {
            let socket = config.socket.clone();
            let (freshness, memory) = (config.freshness, config.shares()?.front);
            let settings = terrace_files_s3::Settings { listen, keys, freshness, socket, memory };
            Some(Door::open(daemon.files.clone(), run::open_passage(&config)?, settings)?)
        }
        None => None,
    };
    let beside =
        endpoint.as_ref().map(|endpoint| format!(" and http://{}", endpoint.listen)).unwrap_or_default();
    eprintln!("terrace files: serving {} on {}{beside}", daemon.files.store.name(), daemon.socket.display());
    let result = daemon.run(stop);
    drop(endpoint);
    result
}

fn answer(ask: Ask) -> Result<(), terrace_files::client::Error> {
    let connect = |at: &Socket| Client::connect(&at.socket, "");
    match ask {
        Ask::Status(at) => output::text(&connect(&at)?.status()?),
        Ask::Ls { at, folder, recursive } => {
            let client = connect(&at)?;
            let pins = client.pins()?;
            let is_pinned = |path: &str| {
                let below = |pin: &String| {
                    path.strip_prefix(pin.as_str())
                        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
                };
                pins.iter().any(below)
            };
            for entry in client.list(folder.trim_matches('/'), recursive)? {
                let pinned = if is_pinned(&entry.path) { "  pinned" } else { "" };
                match entry.is_folder {
                    true => output::text(&format!("{:>14}  {}/{pinned}", "", entry.path)),
                    false => output::text(&format!("{:>14}  {}{pinned}", entry.length, entry.path)),
                }
            }
        }
        Ask::Pin { at, paths } => {
            let paths: Vec<&str> = paths.iter().map(|path| path.trim_matches('/')).collect();
            let count = connect(&at)?.pin(&paths)?;
            output::text(&format!("{count} files pinned"));
        }
        Ask::Unpin { at, paths } => {
            let paths: Vec<&str> = paths.iter().map(|path| path.trim_matches('/')).collect();
            let count = connect(&at)?.unpin(&paths)?;
            output::text(&format!("{count} files unpinned"));
        }
        Ask::Warm { at, paths } => warm(&connect(&at)?, &paths)?,
        Ask::Evict { at, prefix } => {
            let count = connect(&at)?.evict(&prefix)?;
            output::text(&format!("{count} files evicted"));
            if count == 0 {
                output::text(&format!(
                    "The daemon knows no file whose path starts with `{prefix}`. Files that flash has from before its start, and that were not read since, are evicted by their whole paths"
                ));
            }
        }
    }
    Ok(())
}

/// Names each file that could not be read. The daemon fetches at most as much of a long file as it leases at a time, so it is asked for in steps.
fn warm(client: &Client, paths: &[String]) -> Result<(), terrace_files::client::Error> {
    const STEP: u64 = 8 << 20;
    let mut files = Vec::new();
    for path in paths {
        let path = path.trim_matches('/');
        let below = client.list(path, true)?;
        match below.is_empty() {
            true => files.push(path.to_string()),
            false => files.extend(below.into_iter().map(|entry| entry.path)),
        }
    }
    let (mut bytes, mut failed) = (0, 0);
    for files in files.chunks(BATCH_MAX) {
        let ranges: Vec<(&str, u64, u64)> = files.iter().map(|path| (path.as_str(), 0, STEP)).collect();
        let mut rest = Vec::new();
        client.warm(&ranges, |index, result| match result {
            Ok(info) => {
                bytes += info.length;
                rest.extend(
                    (1..info.length.div_ceil(STEP)).map(|block| (files[index].as_str(), block * STEP, STEP)),
                );
            }
            Err(fault) => {
                failed += 1;
                eprintln!("{}: {fault}", files[index]);
            }
        })?;
        client.warm(&rest, |index, result| {
            if let Err(fault) = result {
                failed += 1;
                eprintln!("{}: {fault}", rest[index].0);
            }
        })?;
    }
    output::text(&format!("{} files, {bytes} bytes; {failed} failures", files.len()));
    Ok(())
}
