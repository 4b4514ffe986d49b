//! Reads a second of a real disk, by backend, batch length and threads; and what it takes to write
//! and sync several files together. Backends take turns in short slices, figures are medians of the
//! slices, so that a busy machine is as hard on one as on the other.
//!
//!     cargo run --release -p terrace-io --example disk_batches -- [directory] [seconds a figure]

use std::error::Error;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use terrace_io::AlignedBuf;
use terrace_io::disk::{Class, Disk, File, FileWrite, Op};
use terrace_io::real::batch::Backend;
use terrace_io::real::disk::RealDisk;

const PAGE: usize = 16 << 10;
const PAGES: u64 = 32 << 10;
/// The time of one figure is measured in this many slices.
const SLICES: u32 = 10;
const BATCHES: [usize; 6] = [1, 2, 4, 8, 16, 64];

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let dir = args.next().unwrap_or_else(|| "target/disk_batches".into());
    let seconds: f64 = args.next().map_or(Ok(1.0), |s| s.parse())?;
    let time = Duration::from_secs_f64(seconds);
    let disks: Vec<(Backend, RealDisk)> = Backend::ALL
        .into_iter()
        .filter_map(|backend| Some((backend, RealDisk::open_through(&dir, backend).ok()?)))
        .collect();
    let made = &disks[0].1;
    let _ = made.remove("pages");
    made.create("pages")?.grow(PAGES * PAGE as u64, true)?;

    println!("reads/s of {PAGE} bytes at random places of {} MiB", (PAGES * PAGE as u64) >> 20);
    println!(
        "{:>8} {:>6} {}",
        "threads",
        "batch",
        columns(&disks, |(backend, _)| backend.name().to_string())
    );
    let files: Vec<_> = disks.iter().map(|(_, disk)| disk.open("pages")).collect::<Result<_, _>>()?;
    for threads in [1, 4] {
        for batch in BATCHES {
            let mut slices = vec![Vec::new(); files.len()];
            for _ in 0..SLICES {
                for (file, slices) in files.iter().zip(&mut slices) {
                    slices.push(reads(&**file, threads, batch, time / SLICES)? as u128);
                }
            }
            println!("{threads:>8} {batch:>6} {}", columns(&slices, |s| at(s, 50).to_string()));
        }
    }
    drop(files);
    made.remove("pages")?;

    println!("\nmicroseconds to write {} bytes to each of several files and sync them, p50 / p99", 4096);
    for files in [1, 2, 4, 8] {
        let took = synced(&disks, files, time)?;
        println!("{files:>8} files  {}", columns(&took, |t| format!("{} / {}", at(t, 50), at(t, 99))));
    }
    Ok(std::fs::remove_dir(Path::new(&dir))?)
}

fn columns<T>(cells: impl IntoIterator<Item = T>, show: impl Fn(T) -> String) -> String {
    cells.into_iter().map(|cell| format!("{:>16}", show(cell))).collect()
}

fn at(figures: &[u128], percent: usize) -> u128 {
    let mut figures = figures.to_vec();
    figures.sort_unstable();
    figures[figures.len() * percent / 100]
}

fn reads(file: &dyn File, threads: u64, batch: usize, time: Duration) -> Result<f64, Box<dyn Error>> {
    let (done, started) = (AtomicU64::new(0), Instant::now());
    std::thread::scope(|scope| {
        let run = |seed: u64| {
            let mut state = seed + 1;
            let mut bufs: Vec<AlignedBuf> = (0..batch).map(|_| AlignedBuf::zeroed(PAGE)).collect();
            while started.elapsed() < time {
                let mut place = || {
                    state =
                        state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    (state >> 33) % PAGES * PAGE as u64
                };
                let mut ops: Vec<Op<'_>> =
                    bufs.iter_mut().map(|buf| Op::Read { offset: place(), buf }).collect();
                file.batch(Class::PageRead, &mut ops).into_iter().collect::<Result<(), _>>()?;
                done.fetch_add(batch as u64, Ordering::Relaxed);
            }
            Ok::<(), terrace_io::disk::DiskError>(())
        };
        let handles: Vec<_> = (0..threads).map(|seed| scope.spawn(move || run(seed))).collect();
        handles.into_iter().try_for_each(|handle| handle.join().expect("a reader came to its end"))
    })?;
    Ok(done.into_inner() as f64 / started.elapsed().as_secs_f64())
}

/// What each backend took, in microseconds.
fn synced(
    disks: &[(Backend, RealDisk)],
    count: usize,
    time: Duration,
) -> Result<Vec<Vec<u128>>, Box<dyn Error>> {
    const RING: u64 = 8 << 20;
    let names: Vec<String> = (0..count).map(|i| format!("log.{i}")).collect();
    for name in &names {
        let file = disks[0].1.create(name)?;
        file.grow(RING, true)?;
        file.sync(Class::LogWrite)?;
    }
    let mut files = Vec::new();
    for (_, disk) in disks {
        files.push(names.iter().map(|name| disk.open(name)).collect::<Result<Vec<_>, _>>()?);
    }
    let buf = AlignedBuf::from_slice(&[1; 4096]);
    let (mut took, started) = (vec![Vec::new(); disks.len()], Instant::now());
    while started.elapsed() < time * disks.len() as u32 {
        for (((_, disk), files), took) in disks.iter().zip(&files).zip(&mut took) {
            let offset = took.len() as u64 * 4096 % RING;
            let write = |file| FileWrite { file, ops: vec![Op::Write { offset, buf: &buf }] };
            let mut writes: Vec<FileWrite<'_>> = files.iter().map(|file| write(&**file)).collect();
            let before = Instant::now();
            disk.write_synced(Class::LogWrite, &mut writes).into_iter().collect::<Result<(), _>>()?;
            took.push(before.elapsed().as_micros());
        }
    }
    names.iter().try_for_each(|name| disks[0].1.remove(name))?;
    Ok(took)
}
