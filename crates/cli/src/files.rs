//! `terrace files`: the file cache over an object store, and what one asks of it while it runs.

use crate::output;
use clap::{Args, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use terrace_files::client::Client;
use terrace_files::config::{self, Config};
use terrace_files::run::{self, Daemon};
use terrace_files::wire::BATCH_MAX;

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
    /// Clients at a time
    #[arg(long, default_value_t = config::CLIENTS_MAX)]
    clients: usize,
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

fn serve(options: Files) -> Result<(), String> {
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
    config.packing = options.packing == "on";
    let store = run::open_store(&config)?;
    let stop: &'static AtomicBool = run::stop_on_signals();
    let daemon = Daemon::start(terrace_io::real::world(), &config, store)?;
    if let Some(off) = daemon.files.flash.as_ref().and_then(|flash| flash.status().off) {
        eprintln!("warning: flash is not used: {off}");
    }
    eprintln!("terrace files: serving {} on {}", daemon.files.store.name(), daemon.socket.display());
    daemon.run(stop)
}

fn answer(ask: Ask) -> Result<(), terrace_files::client::Error> {
    let connect = |at: &Socket| Client::connect(&at.socket, "");
    match ask {
        Ask::Status(at) => output::text(&connect(&at)?.status()?),
        Ask::Ls { at, folder, recursive } => {
            for entry in connect(&at)?.list(folder.trim_matches('/'), recursive)? {
                match entry.is_folder {
                    true => output::text(&format!("{:>14}  {}/", "", entry.path)),
                    false => output::text(&format!("{:>14}  {}", entry.length, entry.path)),
                }
            }
        }
        Ask::Warm { at, paths } => warm(&connect(&at)?, &paths)?,
        Ask::Evict { at, prefix } => {
            let count = connect(&at)?.evict(&prefix)?;
            output::text(&format!("{count} files evicted"));
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
