//! A space that grows past the bits of its header: values on both sides of a further bitmap page (a home), and that page itself, are whole
//! after a crash at any time, over an object store that is dead now and then, and every deleted page is free in the end.

#[path = "../kit/mod.rs"]
mod kit;

use kit::Machine;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use terrace_engine::Access;
use terrace_engine::Engine;
use terrace_engine::Entry;
use terrace_engine::Error;
use terrace_engine::Isolation;
use terrace_engine::Lock;
use terrace_engine::Row;
use terrace_engine::Seek;
use terrace_engine::Table;
use terrace_engine::config::Config;
use terrace_engine::tree::space::{bits, run};
use terrace_log::Urgency;

type Model = BTreeMap<u8, Vec<u8>>;

const NO_ENTRY: [Entry<'static>; 0] = [];
/// Pages that stay free before the home: a few values'.
const BEFORE: u32 = 20;
const CHANGES: u32 = 60;

struct Run {
    on: Machine,
    /// What may be in the table: what was acknowledged, or is in doubt.
    may: Vec<Model>,
}

fn row(serial: u32, len: usize) -> Vec<u8> {
    (0..len as u32).map(|i| (i.wrapping_mul(2_654_435_761).wrapping_add(serial * 7919) >> 11) as u8).collect()
}

impl Run {
    fn open(&self) -> Result<(Arc<Engine>, Arc<Table>), Error> {
        let config = Config { log_partitions: 3, ..kit::config(10 << 20, 9 << 20, 8 << 20) };
        let engine = self.on.open(config)?;
        let table = match engine.open_table("db/t") {
            Err(Error::Absent(_)) => {
                let table = engine.create_table("db/t", &kit::primary())?;
                // Nearly all pages for which the header has bits are in use.
                let tree = table.tree(0)?;
                let taken = bits::INLINE - BEFORE - tree.space().counts().pages;
                run::take(tree.space(), taken, 0, Urgency::Normal, |_, _| ())?;
                engine.core().storage.checkpoint()?;
                table
            }
            other => other?,
        };
        Ok((engine, table))
    }

    fn pause(&self) {
        self.on.pass(3, 10_000_000, 150);
    }

    fn commit(
        &mut self,
        engine: &Arc<Engine>,
        table: &Arc<Table>,
        key: u8,
        new: Option<Vec<u8>>,
    ) -> Result<(), Error> {
        let mut model = self.may[0].clone();
        let txn = engine.begin(Isolation::RepeatableRead);
        match (model.contains_key(&key), &new) {
            (false, Some(new)) => txn.insert(table, &[key], Row::from(new), &NO_ENTRY)?,
            (true, Some(new)) => txn.update(table, &[key], Row::from(new), &NO_ENTRY, &NO_ENTRY)?,
            (true, None) => txn.delete(table, &[key], &NO_ENTRY)?,
            (false, None) => return Ok(()),
        }
        match new {
            Some(new) => _ = model.insert(key, new),
            None => _ = model.remove(&key),
        }
        self.may.push(model.clone());
        txn.commit()?.wait()?;
        self.may = vec![model];
        Ok(())
    }

    fn work(&mut self, engine: &Arc<Engine>, table: &Arc<Table>, seed: u32) -> Result<(), Error> {
        let mut n = seed;
        for serial in 0..CHANGES {
            n = n.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let (key, len) = ((n >> 8) as u8 % 24, 30_000 + (n >> 16) as usize % 60_000);
            let new = ((n >> 28) != 0).then(|| row(seed * 1000 + serial, len));
            self.commit(engine, table, key, new)?;
            self.pause();
            if serial % 16 == 15 {
                engine.core().storage.checkpoint()?;
                let sinker = &engine.core().storage.cold.as_ref().unwrap().sinker;
                sinker.sink_all().map_err(|error| Error::Unavailable(error.to_string()))?;
            }
        }
        Ok(())
    }

    fn rows(&self, engine: &Arc<Engine>, table: &Arc<Table>) -> Result<Model, Error> {
        let txn = engine.begin(Isolation::RepeatableRead);
        let mut cursor = txn.cursor(table, 0, Lock::None, Access::Scan)?;
        let (mut found, mut row) = (Model::new(), Vec::new());
        let mut valid = cursor.seek(&[], Seek::First)?;
        while valid {
            cursor.row(&mut row)?;
            found.insert(cursor.primary_key()[0], row.clone());
            valid = cursor.next()?;
        }
        Ok(found)
    }

    /// Opens, works, and loses power after `steps` I/O steps, if given. Returns how many steps it took.
    fn live(&mut self, seed: u32, steps: Option<u64>) -> u64 {
        let (engine, table) = self.open().unwrap();
        let rows = self.rows(&engine, &table).unwrap();
        assert!(self.may.contains(&rows), "seed {seed}: the table has {:?}", rows.keys());
        self.may = vec![rows];
        let began = self.on.sim.steps();
        if let Some(steps) = steps {
            self.on.sim.crash_at(began + steps);
        }
        let worked = self.work(&engine, &table, seed);
        assert!(worked.is_ok() || self.on.sim.crashed(), "seed {seed}: {worked:?}");
        let took = self.on.sim.steps() - began;
        drop((table, engine));
        self.on.power_cycle();
        took
    }

    /// In the end all is deleted: what is not free is the run, the header, the root and the home.
    fn end(&mut self) {
        let (engine, table) = self.open().unwrap();
        let rows = self.rows(&engine, &table).unwrap();
        assert!(self.may.contains(&rows));
        self.may = vec![rows.clone()];
        let counts = || table.tree(0).unwrap().space().counts();
        assert!(counts().pages > bits::INLINE + 1, "the space has not grown: {:?}", counts());
        rows.keys().for_each(|key| self.commit(&engine, &table, *key, None).unwrap());
        let used = || counts().pages - counts().free;
        let taken = bits::INLINE - BEFORE - 2;
        for _ in 0..400 {
            self.pause();
        }
        assert_eq!(used(), taken + 3, "{:?}", counts());
        drop(table);
        engine.shutdown().unwrap();
    }
}

#[test]
fn a_space_beyond_its_headers_bits_survives_crashes_and_leaks_nothing() {
    for seed in 0..8u32 {
        let on = Machine::new(u64::from(seed) + 40).and_store();
        let mut run = Run { on, may: vec![Model::new()] };
        let took = run.live(seed, None);
        for cut in 1..4 {
            run.live(seed + 100 * cut, Some(took * u64::from(cut * 3 + seed) % took));
        }
        // The store may be dead at the restart: then freed pages have to wait.
        run.on.store().faults.dead.store(seed % 2 == 1, Ordering::SeqCst);
        let opened = run.open();
        assert!(opened.is_ok() || seed % 2 == 1);
        run.pause();
        run.on.store().faults.dead.store(false, Ordering::SeqCst);
        run.pause();
        drop(opened);
        run.on.power_cycle();
        run.end();
    }
}
