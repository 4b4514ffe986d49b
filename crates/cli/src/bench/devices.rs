//! What each tier's device does with the requests that the engine makes of it, one after the other: a log write with
//! its sync, a page read, a large write, an object's put and a page's range read.

use super::Result;
use std::sync::Arc;
use std::time::{Duration, Instant};
use terrace_engine::Parts;
use terrace_io::AlignedBuf;
use terrace_io::disk::{Class, Disk, DiskError, File};
use terrace_io::random::Random;
use terrace_io::store::{Bytes, ObjectStore, Purpose};

const NAME: &str = "terrace-bench";
const FILE: u64 = 64 << 20;
const PAGE: usize = 16 << 10;
const LARGE: usize = 1 << 20;
/// Each kind of request is repeated until a number of requests or a time is reached.
const TIMES: usize = 500;
const PATIENCE: Duration = Duration::from_secs(3);

/// One kind of request on one device.
pub struct Figure {
    pub what: String,
    /// Latencies, in microseconds.
    pub p50: f64,
    pub p99: f64,
    /// Bytes moved for the time taken, in MB/s.
    pub rate: f64,
}

fn repeat(what: String, bytes: usize, mut request: impl FnMut(usize) -> Result<()>) -> Result<Figure> {
    let started = Instant::now();
    let mut latencies: Vec<f64> = Vec::new();
    while latencies.len() < TIMES && (started.elapsed() < PATIENCE || latencies.is_empty()) {
        let before = Instant::now();
        request(latencies.len())?;
        latencies.push(before.elapsed().as_secs_f64() * 1e6);
    }
    let took: f64 = latencies.iter().sum::<f64>() / 1e6;
    let rate = (bytes * latencies.len()) as f64 / took / 1e6;
    latencies.sort_by(f64::total_cmp);
    let at = |q: usize| latencies[(latencies.len() * q / 100).min(latencies.len() - 1)];
    Ok(Figure { what, p50: at(50), p99: at(99), rate })
}

fn text(error: DiskError) -> String {
    error.to_string()
}

fn disk(
    tier: &str,
    disk: &Arc<dyn Disk>,
    random: &dyn Random,
    write: Class,
    read: Class,
    out: &mut Vec<Figure>,
) -> Result<()> {
    let file = disk.create(NAME).map_err(text)?;
    let done = on_file(tier, &*file, random, (write, read), out);
    drop(file);
    let removed = disk.remove(NAME).and_then(|()| disk.sync_dir()).map_err(text);
    done.and(removed)
}

fn on_file(
    tier: &str,
    file: &dyn File,
    random: &dyn Random,
    class: (Class, Class),
    out: &mut Vec<Figure>,
) -> Result<()> {
    let (write, read) = class;
    let mut buf = AlignedBuf::zeroed(LARGE);
    for chunk in buf.chunks_exact_mut(8) {
        chunk.copy_from_slice(&random.next_u64().to_le_bytes());
    }
    file.grow(FILE, true).and_then(|()| file.sync(write)).map_err(text)?;
    out.push(repeat(format!("{tier}: write and sync 4 KiB"), 4096, |i| {
        file.write(write, (i * 4096) as u64 % FILE, &buf[..4096])
            .and_then(|()| file.sync(write))
            .map_err(text)
    })?);
    out.push(repeat(format!("{tier}: write 1 MiB and sync"), LARGE, |i| {
        file.write(write, (i * LARGE) as u64 % FILE, &buf).and_then(|()| file.sync(write)).map_err(text)
    })?);
    out.push(repeat(format!("{tier}: read 16 KiB anywhere"), PAGE, |_| {
        let offset = random.below(FILE / PAGE as u64) * PAGE as u64;
        file.read(read, offset, &mut buf[..PAGE]).map_err(text)
    })?);
    Ok(())
}

fn objects(store: &dyn ObjectStore, random: &dyn Random, out: &mut Vec<Figure>) -> Result<()> {
    let body: Vec<u8> = (0..LARGE / 8).flat_map(|_| random.next_u64().to_le_bytes()).collect();
    let key = |i: usize| format!("{NAME}/{i}");
    let mut put = 0;
    out.push(repeat("object store: put 1 MiB".into(), LARGE, |i| {
        put = i + 1;
        store
            .put_if_absent(Purpose::Sink, &key(i), &[Bytes::copy_from_slice(&body)])
            .map(drop)
            .map_err(|e| e.to_string())
    })?);
    let mut page = vec![0; PAGE];
    out.push(repeat("object store: get 16 KiB of it".into(), PAGE, |_| {
        let (object, at) = (random.below(put as u64) as usize, random.below((LARGE / PAGE) as u64));
        store
            .get_range(Purpose::PageMiss, &key(object), at * PAGE as u64, &mut page)
            .map_err(|e| e.to_string())
    })?);
    out.push(repeat("object store: delete".into(), 0, |i| {
        store.delete(Purpose::Collect, &key(i % put)).map_err(|e| e.to_string())
    })?);
    (0..put).try_for_each(|i| store.delete(Purpose::Collect, &key(i)).map_err(|e| e.to_string()))
}

/// Measures every device of these parts. Leaves nothing on them.
pub fn measure(parts: &Parts, progress: impl Fn(&str)) -> Result<Vec<Figure>> {
    let random = &*parts.world.random;
    let mut out = Vec::new();
    progress("measuring the volume");
    disk("volume", &parts.volume, random, Class::LogWrite, Class::PageRead, &mut out)?;
    if let Some(flash) = &parts.flash {
        progress("measuring the flash");
        disk("flash", flash, random, Class::BpeFill, Class::BpeRead, &mut out)?;
    }
    if let Some(store) = &parts.store {
        progress("measuring the object store");
        objects(&**store, random, &mut out)?;
    }
    Ok(out)
}
