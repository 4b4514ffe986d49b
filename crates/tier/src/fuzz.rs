//! Fuzz targets: what reads bytes from a volume, flash or a store gets any bytes.
//!
//! A target is a function of bytes that panics when a promise is broken: reading never panics, never runs
//! on, and what is accepted is what would be written. It repairs checksums itself, so that the fields behind
//! them are reached. The same functions are called by `cargo test` ([`soak`]: samples changed field by field,
//! repeatable by seed) and by the targets under `fuzz/` (libFuzzer, guided by coverage).
// The watchdog of a fuzz target watches the real process, by the real clock.
#![allow(clippy::disallowed_methods)]

mod flash;
pub mod mutate;
mod targets;

use mutate::Dice;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

pub use targets::TARGETS;

/// A valid input to begin with.
pub struct Sample {
    pub bytes: Vec<u8>,
    /// Headers whose fields are worth changing: their period and their length, in bytes.
    pub headers: (usize, usize),
}

/// What a fuzzer calls.
pub struct Target {
    pub name: &'static str,
    /// Panics if a promise is broken.
    pub run: fn(&[u8]),
    pub samples: fn() -> Vec<Sample>,
    /// Rounds of [`soak`] unless `TERRACE_FUZZ_ROUNDS` says otherwise: a second or two.
    pub rounds: u64,
}

/// A round that takes longer runs on for ever.
const ROUND_MAX: Duration = Duration::from_secs(60);
/// Address space by which the process may grow, in KiB.
const GROWTH_MAX: u64 = 1 << 20;

fn env(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|s| s.parse().ok())
}

/// Set in a process that [`soak_alone`] made.
const ALONE: &str = "TERRACE_FUZZ_ALONE";

/// [`soak`] of the test at hand, in a process of its own: what other tests map beside it is not this target's memory.
pub fn soak_alone(target: &Target) {
    let thread = std::thread::current();
    // A test's thread has its name, unless tests run one after the other in the first thread.
    let test = thread.name().filter(|name| *name != "main");
    let (Some(test), None) = (test, std::env::var_os(ALONE)) else { return soak(target) };
    let program = std::env::current_exe().expect("the program of the tests");
    let mut alone = std::process::Command::new(program);
    let done = alone.args([test, "--exact", "--nocapture"]).env(ALONE, "1").output().expect("a process");
    let said = String::from_utf8_lossy(&done.stdout);
    print!("{said}");
    eprint!("{}", String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "fuzz {}: {}", target.name, done.status);
    assert!(said.contains(&started(target)), "fuzz {}: nothing was run", target.name);
}

fn started(target: &Target) -> String {
    format!("fuzz {}: rounds ", target.name)
}

/// Runs the target on changed samples. A failure prints the seed: `TERRACE_FUZZ_SEED` with
/// `TERRACE_FUZZ_ROUNDS=1` repeats it.
pub fn soak(target: &Target) {
    let (first, rounds) =
        (env("TERRACE_FUZZ_SEED").unwrap_or(1), env("TERRACE_FUZZ_ROUNDS").unwrap_or(target.rounds));
    let samples = (target.samples)();
    samples.iter().for_each(|sample| (target.run)(&sample.bytes));
    println!("{}{rounds} from seed {first}", started(target));
    let (at, done) = (Arc::new(AtomicU64::new(first)), Arc::new(AtomicBool::new(false)));
    let watch = watch(target.name, at.clone(), done.clone());
    let before = address_space();
    for seed in first..first.saturating_add(rounds) {
        at.store(seed, Ordering::SeqCst);
        let mut dice = Dice::new(seed);
        let sample = &samples[dice.below(samples.len())];
        let mut bytes = sample.bytes.clone();
        mutate::mutate(&mut dice, &mut bytes, sample.headers);
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| (target.run)(&bytes))) {
            eprintln!("fuzz {}: TERRACE_FUZZ_SEED={seed} TERRACE_FUZZ_ROUNDS=1 repeats this", target.name);
            done.store(true, Ordering::SeqCst);
            resume_unwind(panic);
        }
    }
    done.store(true, Ordering::SeqCst);
    watch.thread().unpark();
    let _ = watch.join();
    if let (Some(before), Some(after)) = (before, address_space()) {
        assert!(
            after < before + GROWTH_MAX,
            "fuzz {}: memory grew from {before} to {after} KiB",
            target.name
        );
    }
}

/// Ends the process if one round runs on for ever: no panic can be sent to its thread.
fn watch(name: &'static str, at: Arc<AtomicU64>, done: Arc<AtomicBool>) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        let (mut seen, mut since) = (0, std::time::Instant::now());
        while !done.load(Ordering::SeqCst) {
            std::thread::park_timeout(Duration::from_millis(200));
            let now = at.load(Ordering::SeqCst);
            if now != seen {
                (seen, since) = (now, std::time::Instant::now());
            } else if since.elapsed() > ROUND_MAX {
                eprintln!("fuzz {name}: seed {seen} runs on for ever");
                std::process::abort();
            }
        }
    })
}

/// The most address space that the process ever had, in KiB.
fn address_space() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    status
        .lines()
        .find_map(|line| line.strip_prefix("VmPeak:")?.trim().trim_end_matches(" kB").trim().parse().ok())
}

#[cfg(test)]
mod tests;
