//! `terrace`: looks at an instance that is not running. Nothing it does changes a byte: the instance is
//! recovered in memory, over an overlay.
//!
//! Exit codes: 0 all is well, 1 something is wrong with the instance, 2 wrong usage or configuration,
//! 3 it could not be looked at.

mod bench;
mod instance;
mod output;

use clap::{Args, Parser, Subcommand};
use std::process::ExitCode;
use terrace_engine::check;

#[derive(Parser)]
#[command(name = "terrace", version, about = "Looks at a Terrace instance that is not running")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Verify every structure: map, pages on the volume, objects, trees
    Check(Place),
    /// What the instance is, its tables, and where their pages are
    Status(Place),
    /// Measure the devices and the engine on them, in empty places
    Bench(bench::Settings),
    /// Print every setting with its default, or check a configuration file
    Config {
        /// A file to check; nothing is opened
        #[arg(long)]
        check: Option<std::path::PathBuf>,
    },
}

/// Where the instance is.
#[derive(Args)]
pub struct Place {
    /// The configuration file (TOML), as terrace_config names it
    #[arg(long)]
    config: Option<std::path::PathBuf>,
    /// The volume's directory (in MariaDB by default the directory `terrace` in the data directory)
    #[arg(long)]
    volume: Option<String>,
    /// The object store: s3://bucket/prefix or a directory
    #[arg(long)]
    object: Option<String>,
    /// URL of an S3 server that is not Amazon's
    #[arg(long)]
    object_endpoint: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Check(place) => with(&place, |engine| {
            let report = check::check(engine, &mut output::progress);
            output::check(&report, place.json);
            if report.faults.is_empty() { 0 } else { 1 }
        }),
        Command::Status(place) => with(&place, |engine| {
            output::status(engine, place.json);
            0
        }),
        Command::Bench(settings) => match bench::run(&settings) {
            Ok(()) => ExitCode::SUCCESS,
            Err(message) => {
                eprintln!("error: {message}");
                ExitCode::from(2)
            }
        },
        Command::Config { check: None } => {
            output::text(&terrace_sql::config::document());
            ExitCode::SUCCESS
        }
        Command::Config { check: Some(path) } => match instance::config_faults(&path) {
            Ok(()) => {
                output::text(&format!("{}: well-formed", path.display()));
                ExitCode::SUCCESS
            }
            Err(fault) => fault.exit(),
        },
    }
}

/// Opens the instance for looking, runs `work` and leaves with its exit code.
fn with(place: &Place, work: impl FnOnce(&terrace_engine::Engine) -> u8) -> ExitCode {
    match instance::open(place) {
        Ok(engine) => {
            let code = work(&engine);
            engine.core().storage.stop();
            ExitCode::from(code)
        }
        Err(fault) => fault.exit(),
    }
}
