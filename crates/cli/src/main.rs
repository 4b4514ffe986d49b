//! `terrace`: inspects a stopped instance, measures devices (`bench`), serves Redis clients (`kv`) and caches files (`files`). It changes nothing of an instance in any
//! tier, except with `adopt`; `restore` and `clone` make one, and `snapshot` removes what protects objects. `convert` prints SQL.
//!
//! Exit codes: [`exit`].
#![forbid(unsafe_code)]

mod adopt;
mod backup;
mod bench;
mod clone;
mod convert;
mod doctor;
mod exit;
mod files;
mod instance;
mod kv;
mod location;
mod output;

/// Its figures bound the memory of `terrace kv`.
#[global_allocator]
static ALLOCATOR: terrace_kv::memory::Allocator = terrace_kv::memory::Allocator;

use clap::{Parser, Subcommand};
use instance::Instance;
use location::Location;
use std::process::ExitCode;
use terrace_engine::engine::inspect::kept_curve::KeptCurve;
use terrace_engine::offline::check::{self, Options, Verdict};

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
        location: Location,
        /// Checksums and the map only: no trees, no undo, no rows against entries
        #[arg(long)]
        quick: bool,
    },
    /// What the instance is, its tables, and where their pages are
    Status {
        #[command(flatten)]
        location: Location,
        /// Print metrics as Prometheus reads them
        #[arg(long, conflicts_with = "json")]
        prometheus: bool,
    },
    /// What more or less flash would bring, by the curve that the last run left
    Advise(Location),
    /// Make a volume that was put back the owner of its object store, because the copy that went on is lost
    #[command(after_help = adopt::AFTER_HELP)]
    Adopt(adopt::Adopt),
    /// Make, verify, list and remove backups of copied or stopped volumes
    #[command(subcommand, after_help = backup::AFTER_HELP)]
    Backup(backup::Backup),
    /// Make an instance of a backup, in an empty directory and an empty object store
    #[command(after_help = backup::AFTER_HELP)]
    Restore(backup::Restore),
    /// Write the server's definitions of tables, views and triggers, which an instance keeps, into a data directory
    #[command(after_help = backup::definitions::AFTER_HELP)]
    Definitions(backup::definitions::Command),
    /// Make a writable instance of another one, whose objects stay where they are
    #[command(after_help = clone::AFTER_HELP)]
    Clone(clone::Clone),
    /// Print the SQL that moves the InnoDB tables of schemas to Terrace, with the foreign keys among them
    #[command(after_help = convert::AFTER_HELP)]
    Convert(convert::Convert),
    /// List and remove the snapshots that keep objects for copies
    #[command(subcommand)]
    Snapshot(backup::Snapshot),
    /// Probe an object store for what the engine needs
    #[command(after_help = doctor::AFTER_HELP)]
    Doctor(doctor::Doctor),
    /// Measure the devices and the engine on them, in empty places
    Bench(bench::Bench),
    /// Serve clients of Redis, with data in memory
    Kv(kv::Kv),
    /// Cache the files of an object store for the processes of this machine
    #[command(after_help = files::AFTER_HELP)]
    Files(files::Files),
    /// Print every setting with its default, or check a configuration file
    Config {
        /// A file to check; nothing is opened
        #[arg(long)]
        check: Option<std::path::PathBuf>,
    },
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Check { location, quick } => with(&location, |instance| {
            let options = Options { quick, flash: instance.flash };
            let report = check::check(&instance.look, &options, &mut output::progress);
            let code = match report.verdict() {
                Verdict::Sound => exit::SOUND,
                Verdict::Faulty => exit::FAULTS,
                Verdict::Incomplete => exit::INCOMPLETE,
            };
            output::check(&report, code, location.json);
            code
        }),
        Command::Status { location, prometheus: true } => with(&location, |instance| {
            output::prometheus(&instance, &location);
            exit::SOUND
        }),
        Command::Status { location, prometheus: false } => with(&location, |instance| {
            output::status(&instance, &location);
            exit::SOUND
        }),
        Command::Advise(location) => advise(&location),
        Command::Adopt(adopt) => match adopt::run(&adopt) {
            Ok(code) => ExitCode::from(code),
            Err(fault) => leave(&adopt.location, fault),
        },
        Command::Backup(command) => ended(backup::run(&command)),
        Command::Restore(command) => ended(backup::restore(&command)),
        Command::Definitions(command) => ended(backup::definitions::run(&command)),
        Command::Clone(command) => ended(clone::run(&command)),
        Command::Convert(convert) => convert::run(&convert),
        Command::Snapshot(command) => ended(backup::snapshot(&command)),
        Command::Doctor(doctor) => ended(doctor::run(&doctor)),
        Command::Bench(bench) => match bench::run(&bench) {
            Ok(()) => ExitCode::SUCCESS,
            Err(message) => {
                eprintln!("error: {message}");
                ExitCode::from(2)
            }
        },
        Command::Kv(kv) => kv::run(&kv),
        Command::Files(files) => files::run(files),
        Command::Config { check: None } => {
            output::text(&terrace::open::document());
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

/// Opens the instance read-only, runs `work` and exits with its exit code.
fn with(location: &Location, work: impl FnOnce(Instance) -> u8) -> ExitCode {
    match instance::open(location) {
        Ok(instance) => ExitCode::from(work(instance)),
        Err(fault) => leave(location, fault),
    }
}

fn advise(location: &Location) -> ExitCode {
    let kept = instance::open(location).and_then(|instance| Ok(KeptCurve::load(&*instance.look.volume)?));
    match kept {
        Ok(kept) => {
            output::advice(&kept, location.json);
            ExitCode::from(exit::SOUND)
        }
        Err(mut fault) => {
            if fault.is_busy {
                fault.message += "; of a server that runs ask information_schema.TERRACE_ADVICE";
            }
            leave(location, fault)
        }
    }
}

fn ended(result: Result<u8, instance::Fault>) -> ExitCode {
    match result {
        Ok(code) => ExitCode::from(code),
        Err(fault) => {
            output::end_progress();
            fault.exit()
        }
    }
}

fn leave(location: &Location, fault: instance::Fault) -> ExitCode {
    if location.json {
        output::error(&fault.message, fault.code);
    }
    fault.exit()
}
