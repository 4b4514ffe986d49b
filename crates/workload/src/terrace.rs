//! The engine as a key-value store: one table without secondary indexes.

use crate::{Result, Store};
use std::sync::Arc;
use terrace_engine::Access;
use terrace_engine::Engine;
use terrace_engine::Error;
use terrace_engine::IndexDef;
use terrace_engine::Isolation;
use terrace_engine::Lock;
use terrace_engine::Parts;
use terrace_engine::Seek;
use terrace_engine::Table;
use terrace_engine::TableDef;
use terrace_engine::Txn;
use terrace_engine::config::Config;

pub struct Terrace {
    pub engine: Arc<Engine>,
    table: Arc<Table>,
}

impl Terrace {
    /// Opens the engine in an empty place and makes the table.
    pub fn on(config: Config, parts: Parts) -> std::result::Result<Terrace, Error> {
        let engine = Engine::open(config, parts)?;
        let def = TableDef {
            indexes: vec![IndexDef { name: "PRIMARY".into(), unique: true }],
            properties: Vec::new(),
        };
        let table = engine.create_table("bench/kv", &def)?;
        Ok(Terrace { engine, table })
    }

    fn begin(&self) -> Arc<Txn> {
        let txn = self.engine.begin(Isolation::ReadCommitted);
        txn.statement_begin();
        txn
    }

    /// One transaction that does `each` with every pair.
    fn write(
        &self,
        pairs: &[([u8; 16], &[u8])],
        durable: bool,
        each: impl Fn(&Txn, &[u8], &[u8]) -> std::result::Result<(), Error>,
    ) -> std::result::Result<(), Error> {
        let txn = self.begin();
        for (key, value) in pairs {
            txn.statement_begin();
            each(&txn, key, value)?;
        }
        let ticket = txn.commit()?;
        if durable { ticket.wait() } else { Ok(()) }
    }
}

fn text(error: Error) -> String {
    error.to_string()
}

impl Store for Terrace {
    fn put(&self, pairs: &[([u8; 16], &[u8])], durable: bool) -> Result<()> {
        let put = |txn: &Txn, key: &[u8], value: &[u8]| {
            // The change itself finds out and locks; a thread that loses a race against another insert tries again.
            loop {
                let done = match txn.update(&self.table, key, value, &[], &[]) {
                    Err(Error::Absent(_)) => txn.insert(&self.table, key, value, &[]),
                    done => done,
                };
                if !matches!(done, Err(Error::Duplicate { .. })) {
                    return done;
                }
            }
        };
        self.write(pairs, durable, put).map_err(text)
    }

    /// A blind insert: an existing key is an error.
    fn insert(&self, pairs: &[([u8; 16], &[u8])], durable: bool) -> Result<()> {
        self.write(pairs, durable, |txn, key, value| txn.insert(&self.table, key, value, &[])).map_err(text)
    }

    fn get(&self, key: &[u8; 16], into: &mut Vec<u8>) -> Result<bool> {
        into.clear();
        self.begin().get(&self.table, key, Lock::None, into).map_err(text)
    }

    fn scan(&self, key: &[u8; 16], n: usize) -> Result<usize> {
        let scan = || {
            let mut cursor = self.begin().cursor(&self.table, 0, Lock::None, Access::Normal)?;
            let mut valid = cursor.seek(key, Seek::AtLeast)?;
            let mut bytes = 0;
            for _ in 0..n {
                if !valid {
                    break;
                }
                bytes += cursor.key().len() + cursor.value().len();
                valid = cursor.next()?;
            }
            Ok(bytes)
        };
        scan().map_err(text)
    }
}

impl Drop for Terrace {
    /// With STATUS in the environment: prints the engine's counters, to explain a figure.
    fn drop(&mut self) {
        if std::env::var("STATUS").is_ok() {
            self.engine.status().iter().for_each(|(name, value)| eprintln!("{name} {value}"));
            eprintln!("{:?}", self.engine.spaces());
        }
    }
}
