//! `terrace`: looks at an instance that is not running. But for `adopt`, it makes and changes nothing, in no tier.
//!
//! Exit codes: [`exit`].

mod adopt;
mod bench;
mod instance;
mod output;

use clap::{Args, Parser, Subcommand};
use instance::Instance;
use std::process::ExitCode;
use terrace_engine::check::{self, Options, Verdict};
use terrace_engine::kept_curve::Kept;

/// What the command leaves with.
pub mod exit {
    /// All was looked at, and nothing is wrong. Leaked room and damaged spare copies don't count as wrong.
    pub const SOUND: u8 = 0;
    /// Something is wrong with the instance.
    pub const FAULTS: u8 = 1;
    /// Wrong usage or configuration, or the instance cannot be opened (it runs, or it is another's store).
    pub const UNUSABLE: u8 = 2;
    /// Nothing is wrong in what was looked at, but not all could be: pages in objects without `--object`, a
    /// store that does not answer.
    pub const INCOMPLETE: u8 = 3;
}

#[derive(Parser)]
#[command(name = "terrace", version, about = "Looks at a Terrace instance that is not running")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXIT_CODES: &str = "Exit codes: 0 sound; 1 faults; 2 wrong usage, or the instance cannot be opened; 3 no fault, but not \
                          all could be looked at (see `not checked`)";

#[derive(Subcommand)]
enum Command {
    /// Verify every structure and every checksum, and name what is wrong
    #[command(after_help = EXIT_CODES)]
    Check {
        #[command(flatten)]
        place: Place,
        /// Checksums and the map only: no trees, no undo, no rows against entries
        #[arg(long)]
        quick: bool,
    },
    /// What the instance is, its tables, and where their pages are
    Status {
        #[command(flatten)]
        place: Place,
        /// Print metrics as Prometheus reads them
        #[arg(long, conflicts_with = "json")]
        prometheus: bool,
    },
    /// What more or less flash would bring, by the curve that the last run left
    Advise(Place),
    /// Make a volume that was put back the owner of its object store, because the copy that went on is lost
    #[command(after_help = adopt::AFTER_HELP)]
    Adopt(adopt::Adopt),
    /// Measure the devices and the engine on them, in empty places
    Bench(bench::Bench),
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
    /// The object store: s3://bucket/prefix, gs://…, az://… or a directory
    #[arg(long)]
    object: Option<String>,
    /// URL of a server that is not the provider's own
    #[arg(long)]
    object_endpoint: Option<String>,
    /// The flash directory: look at the copies there, too
    #[arg(long)]
    flash: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Check { place, quick } => with(&place, |instance| {
            let options = Options { quick, flash: instance.flash };
            let report = check::check(&instance.look, &options, &mut output::progress);
            let code = match report.verdict() {
                Verdict::Sound => exit::SOUND,
                Verdict::Faulty => exit::FAULTS,
                Verdict::Incomplete => exit::INCOMPLETE,
            };
            output::check(&report, code, place.json);
            code
        }),
        Command::Status { place, prometheus: true } => with(&place, |instance| {
            output::prometheus(&instance, &place);
            exit::SOUND
        }),
        Command::Status { place, prometheus: false } => with(&place, |instance| {
            output::status(&instance, &place);
            exit::SOUND
        }),
        Command::Advise(place) => advise(&place),
        Command::Adopt(adopt) => match adopt::run(&adopt) {
            Ok(code) => ExitCode::from(code),
            Err(fault) => leave(&adopt.place, fault),
        },
        Command::Bench(bench) => match bench::run(&bench) {
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
        Command::Config { check: Some(path) } => match instance::check_config(&path) {
            Ok(names_volume) => {
                let left = if names_volume { "" } else { "; it leaves volume_path to the server's variable" };
                output::text(&format!("{}: well-formed{left}", path.display()));
                ExitCode::SUCCESS
            }
            Err(fault) => fault.exit(),
        },
    }
}

/// Opens the instance for looking, runs `work` and leaves with its exit code.
fn with(place: &Place, work: impl FnOnce(Instance) -> u8) -> ExitCode {
    match instance::open(place) {
        Ok(instance) => ExitCode::from(work(instance)),
        Err(fault) => leave(place, fault),
    }
}

fn advise(place: &Place) -> ExitCode {
    let kept = instance::open(place).and_then(|instance| Ok(Kept::load(&*instance.look.volume)?));
    match kept {
        Ok(kept) => {
            output::advice(&kept, place.json);
            ExitCode::from(exit::SOUND)
        }
        Err(mut fault) => {
            if fault.is_busy {
                fault.message += "; of a server that runs ask information_schema.TERRACE_ADVICE";
            }
            leave(place, fault)
        }
    }
}

fn leave(place: &Place, fault: instance::Fault) -> ExitCode {
    if place.json {
        output::error(&fault.message, fault.code);
    }
    fault.exit()
}
