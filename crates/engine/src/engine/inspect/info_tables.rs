//! What is to be seen of an instance that runs, as tables: by index and by table what is where, what was read from where and what
//! it costs; the miss-ratio curve; advice. `docs/observability.md` explains every column.
//!
//! Counters are since the start, except what requests cost, which is by those of the last hour. A dropped space's go with it. Reading them looks at every frame and every
//! entry of the map; it blocks no session, and the figures need not be consistent.

pub mod locks;

use crate::engine::SpaceInfo;
use crate::txn::shared::Core;
use hashbrown::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use terrace_cost::{Observed, Prices, advice, prices};
use terrace_tier::flash::bpe::BpeStatus;
use terrace_tier::limits::by_space::covered;
use terrace_tier::memory::pool::Reads;
use terrace_tier::page::{PAGE_SIZE, SpaceId};

/// What stands in a column.
#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    Null,
    Number(u64),
    Real(f64),
    Text(String),
    /// A table's name as the front gave it.
    Table(String),
    /// Milliseconds since 1970.
    Time(u64),
}

/// What is known of one space, or of several together. Pages and bytes are of now, the rest is since the start.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub struct SpaceReport {
    pub pages_memory: u64,
    pub pages_flash: u64,
    pub pages_volume: u64,
    pub pages_object: u64,
    /// What the objects take, which may have pages that are also on the volume, or compressed ones.
    pub bytes_object: u64,
    pub reads: Reads,
    pub flash_admitted: u64,
    pub flash_remembered: u64,
    pub ghost_hits: u64,
    /// Pages flushed, by write policy, and the policy in force.
    pub writes: [u64; 3],
    pub write_policy: &'static str,
    pub sinks: u64,
    pub gets: u64,
    pub get_bytes: u64,
    pub puts: u64,
    pub put_bytes: u64,
    /// In the time that [`lately`] says.
    pub gets_lately: u64,
    pub puts_lately: u64,
}

/// Dollars a month.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub struct Cost {
    pub memory: f64,
    pub flash: f64,
    pub volume: f64,
    pub object: f64,
    /// If a month goes on as the last hour.
    pub requests: f64,
}

impl Cost {
    pub fn all(&self) -> f64 {
        self.memory + self.flash + self.volume + self.object + self.requests
    }
}

const fn bytes(pages: u64) -> u64 {
    pages * PAGE_SIZE as u64
}

impl SpaceReport {
    pub fn add(&mut self, other: &SpaceReport) {
        let reads = &mut self.reads;
        for (sum, more) in [
            (&mut self.pages_memory, other.pages_memory),
            (&mut self.pages_flash, other.pages_flash),
            (&mut self.pages_volume, other.pages_volume),
            (&mut self.pages_object, other.pages_object),
            (&mut self.bytes_object, other.bytes_object),
            (&mut reads.memory, other.reads.memory),
            (&mut reads.flash, other.reads.flash),
            (&mut reads.volume, other.reads.volume),
            (&mut reads.object, other.reads.object),
            (&mut reads.log, other.reads.log),
            (&mut reads.ahead, other.reads.ahead),
            (&mut self.flash_admitted, other.flash_admitted),
            (&mut self.flash_remembered, other.flash_remembered),
            (&mut self.ghost_hits, other.ghost_hits),
            (&mut self.sinks, other.sinks),
            (&mut self.gets, other.gets),
            (&mut self.get_bytes, other.get_bytes),
            (&mut self.puts, other.puts),
            (&mut self.put_bytes, other.put_bytes),
            (&mut self.gets_lately, other.gets_lately),
            (&mut self.puts_lately, other.puts_lately),
        ] {
            *sum += more;
        }
        self.writes.iter_mut().zip(other.writes).for_each(|(sum, more)| *sum += more);
        self.write_policy = other.write_policy; // a table's spaces have all the same
    }

    /// Shares of the reads that came so far that a tier had: (memory, flash, volume, store); None where nothing
    /// came so far. A page that was only in the log yet is counted for memory's misses alone.
    pub fn hit_ratios(&self) -> [Option<f64>; 4] {
        let r = &self.reads;
        let of = |had: u64, asked: u64| (asked > 0).then(|| had as f64 / asked as f64);
        let below_flash = r.volume + r.object;
        [
            of(r.memory, r.memory + r.flash + below_flash + r.log),
            of(r.flash, r.flash + below_flash),
            of(r.volume, below_flash),
            of(r.object, r.object),
        ]
    }

    /// `seconds`: see [`lately`].
    pub fn cost(&self, prices: &Prices, seconds: f64) -> Cost {
        Cost {
            memory: prices::storage(bytes(self.pages_memory), prices.memory),
            flash: prices::storage(bytes(self.pages_flash), prices.flash),
            volume: prices::storage(bytes(self.pages_volume), prices.volume),
            object: prices::storage(self.bytes_object, prices.object),
            requests: prices::requests(self.gets_lately, prices.gets, seconds)
                + prices::requests(self.puts_lately, prices.puts, seconds),
        }
    }

    fn values(&self, prices: &Prices, seconds: f64) -> Vec<Value> {
        let pages = [self.pages_memory, self.pages_flash, self.pages_volume, self.pages_object];
        let r = &self.reads;
        let mut row: Vec<Value> = pages.map(Value::Number).into();
        row.extend(pages[..3].iter().map(|pages| Value::Number(bytes(*pages))));
        row.push(Value::Number(self.bytes_object));
        row.extend([r.memory, r.flash, r.volume, r.object, r.log, r.ahead].map(Value::Number));
        row.extend(self.hit_ratios().map(|ratio| ratio.map_or(Value::Null, Value::Real)));
        row.extend(
            [self.flash_admitted, self.flash_remembered, self.ghost_hits, self.sinks].map(Value::Number),
        );
        row.push(Value::Text(self.write_policy.into()));
        row.extend(self.writes.map(Value::Number));
        row.extend([self.gets, self.get_bytes, self.puts, self.put_bytes].map(Value::Number));
        let cost = self.cost(prices, seconds);
        row.extend(
            [cost.memory, cost.flash, cost.volume, cost.object, cost.requests, cost.all()].map(Value::Real),
        );
        row
    }
}

/// Seconds since the start; at least a millisecond.
pub fn seconds(core: &Core) -> f64 {
    (core.storage.world.clock.now().saturating_sub(core.storage.since) as f64 / 1e9).max(1e-3)
}

/// Seconds that are lately: the last hour and up to five minutes, or since the start if that is shorter; at least a millisecond.
pub fn lately(core: &Core) -> f64 {
    (covered(core.storage.world.clock.now(), core.storage.since) as f64 / 1e9).max(1e-3)
}

/// What is known of each space, in the order of `spaces`.
pub fn by_index(core: &Core, spaces: &[SpaceInfo]) -> Vec<SpaceReport> {
    let s = &core.storage;
    let ids: Vec<SpaceId> = spaces.iter().map(|info| SpaceId(info.space)).collect();
    let mut reads = s.pages.pool().reads_by_space(&ids);
    let counts = s.map.counts();
    let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let now = s.world.clock.now();
    let one = |info: &SpaceInfo| {
        let id = SpaceId(info.space);
        let mut seen = SpaceReport {
            pages_memory: info.memory,
            pages_flash: info.flash,
            pages_volume: info.volume,
            pages_object: info.object,
            bytes_object: counts.get(&id).map_or(0, |counts| counts.object_bytes),
            reads: reads.remove(&id).unwrap_or_default(),
            ..SpaceReport::default()
        };
        if let Some(flash) = s.bpe.as_ref().and_then(|bpe| bpe.by_space.get(id)) {
            seen.flash_admitted = get(&flash.admitted);
            seen.flash_remembered = get(&flash.remembered);
            seen.ghost_hits = get(&flash.ghost_hits);
        }
        seen.write_policy = s.flusher.writes().in_force(id);
        if let Some(writes) = s.flusher.writes().by_space.get(id) {
            seen.writes = [get(&writes.clean), get(&writes.dual), get(&writes.single)];
        }
        if let Some(store) = s.cold.as_ref().and_then(|cold| cold.objects.by_space.get(id)) {
            seen.sinks = get(&store.sinks);
            (seen.gets, seen.get_bytes) = (get(&store.gets), get(&store.get_bytes));
            (seen.puts, seen.put_bytes) = (get(&store.puts), get(&store.put_bytes));
            (seen.gets_lately, seen.puts_lately) =
                (store.lately_gets.count(now), store.lately_puts.count(now));
        }
        seen
    };
    let all = spaces.iter().map(one).collect();
    sweep(core);
    all
}

/// Forgets what a late eviction or request counted for a space that was dropped meanwhile.
fn sweep(core: &Core) {
    let mut live = HashSet::new();
    // What is built first: it may get its name meanwhile.
    for core in core.of_temporary().into_iter().map(|core| &**core).chain([core]) {
        live.extend(core.catalog.coming());
        live.extend(core.catalog.spaces());
    }
    let keep = |space: SpaceId| space < SpaceId::FIRST_USER || live.contains(&space);
    core.storage.pages.pool().retain_reads(keep);
    core.storage.bpe.iter().for_each(|bpe| bpe.by_space.retain(keep));
    core.storage.flusher.writes().by_space.retain(keep);
    core.storage.cold.iter().for_each(|cold| cold.objects.by_space.retain(keep));
}

/// What advice needs to know.
pub fn observed(core: &Core) -> Observed {
    let s = &core.storage;
    let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let (volume, object) = (get(&s.path.counters.volume), get(&s.path.counters.object));
    let all =
        s.map.counts().values().fold((0, 0), |sum, c| (sum.0 + bytes(c.volume), sum.1 + c.object_bytes));
    // Of flash that has failed the size is the one that it has when it is used again.
    let size = |flash: BpeStatus| if flash.off.is_some() { s.flash_size().0 } else { bytes(flash.pages_max) };
    let flash = s.bpe.as_ref().map_or(0, |bpe| size(bpe.status()));
    Observed {
        seconds: seconds(core),
        memory: bytes(s.pages.pool().frames() as u64),
        flash,
        volume: all.0,
        object: all.1,
        page_bytes: PAGE_SIZE as u64,
        store_share: if volume + object == 0 { 0.0 } else { object as f64 / (volume + object) as f64 },
        puts: s.cold.as_ref().map_or(0, |cold| get(&cold.objects.counters.puts)),
    }
}

fn curve_rows(core: &Core) -> Vec<Vec<Value>> {
    let curve = core.storage.pages.pool().curve();
    let points = advice::points(&curve, &observed(core), &core.config.prices);
    let row = |p: advice::Point| {
        vec![
            Value::Number(p.memory),
            Value::Number(p.flash),
            Value::Number(u64::from(p.is_current)),
            Value::Real(p.memory_miss),
            Value::Real(p.miss),
            Value::Real(curve.first_ratio()),
            Value::Number(curve.reads() as u64),
            Value::Real(curve.rate()),
            Value::Real(p.storage),
            Value::Real(p.requests),
            Value::Real(p.dollars()),
        ]
    };
    points.into_iter().map(row).collect()
}

/// The rows of the table called `name`: `index_statistics`, `table_statistics`, `miss_ratio_curve` or `advice`.
pub fn rows(core: &Core, spaces: &[SpaceInfo], name: &str) -> Option<Vec<Vec<Value>>> {
    let (prices, seconds) = (&core.config.prices, lately(core));
    Some(match name {
        "index_statistics" => {
            let line = |(info, seen): (&SpaceInfo, SpaceReport)| {
                let mut row = vec![Value::Table(info.table.clone()), Value::Text(info.index.clone())];
                row.extend(seen.values(prices, seconds));
                row
            };
            spaces.iter().zip(by_index(core, spaces)).map(line).collect()
        }
        "table_statistics" => {
            let mut order: Vec<&str> = Vec::new();
            let mut tables: HashMap<&str, SpaceReport> = HashMap::new();
            for (info, seen) in spaces.iter().zip(by_index(core, spaces)) {
                let sum = tables.entry(&info.table).or_insert_with(|| {
                    order.push(&info.table);
                    SpaceReport::default()
                });
                sum.add(&seen);
            }
            let line = |table: &str| {
                let mut row = vec![Value::Table(table.to_string())];
                row.extend(tables[table].values(prices, seconds));
                row
            };
            order.into_iter().map(line).collect()
        }
        "miss_ratio_curve" => curve_rows(core),
        "advice" => {
            let curve = core.storage.pages.pool().curve();
            let off = core.storage.bpe.as_ref().and_then(|bpe| bpe.status().off);
            let lines = advice::advise(&curve, &observed(core), prices, off.as_deref());
            let numbered = lines.into_iter().zip(1u64..);
            numbered.map(|(line, n)| vec![Value::Number(n), Value::Text(line)]).collect()
        }
        _ => return None,
    })
}
