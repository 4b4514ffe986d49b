//! The stores under test, set up alike: the same memory, the same durability.

use crate::workload::Store;
use heed::types::Bytes as HeedBytes;
use std::path::Path;
use std::sync::Arc;
use terrace_engine::config::{Bytes, Config};
use terrace_engine::{Access, Engine, Error, IndexDef, Isolation, Lock, Parts, Seek, Table, TableDef};
use terrace_io::real::disk::RealDisk;
use terrace_io::real::world;

pub struct Terrace {
    pub engine: Arc<Engine>,
    table: Arc<Table>,
}

impl Terrace {
    pub fn open(directory: &Path, memory: u64) -> Terrace {
        let config = Config { memory: Bytes(memory), log: Bytes(1 << 30), object_buffer: Bytes(4 << 30), ..Config::default() };
        let volume = RealDisk::open(directory).expect("the directory opens");
        Terrace::on(config, Parts { world: world(), volume: Arc::new(volume), flash: None, store: None })
    }

    pub fn on(config: Config, parts: Parts) -> Terrace {
        let engine = Engine::open(config, parts).expect("the engine opens");
        let def = TableDef { indexes: vec![IndexDef { name: "PRIMARY".into(), unique: true }], properties: Vec::new() };
        let table = engine.create_table("bench/kv", &def).expect("the table is made");
        Terrace { engine, table }
    }
}

impl Store for Terrace {
    fn put(&self, pairs: &[([u8; 16], &[u8])], durable: bool) {
        let txn = self.engine.begin(Isolation::ReadCommitted);
        for (key, value) in pairs {
            txn.statement_begin();
            // The change itself finds out and locks; who loses a race against another insert tries again.
            loop {
                let done = match txn.update(&self.table, key, value, &[], &[]) {
                    Err(Error::Absent(_)) => txn.insert(&self.table, key, value, &[]),
                    done => done,
                };
                if !matches!(done, Err(Error::Duplicate { .. })) {
                    break done.expect("the row is written");
                }
            }
        }
        let ticket = txn.commit().expect("the transaction commits");
        if durable {
            ticket.wait().expect("the commit is durable");
        }
    }

    /// Blindly, as the others write: a key that is there is an error.
    fn insert(&self, pairs: &[([u8; 16], &[u8])], durable: bool) {
        let txn = self.engine.begin(Isolation::ReadCommitted);
        for (key, value) in pairs {
            txn.statement_begin();
            txn.insert(&self.table, key, value, &[]).expect("the key is new");
        }
        let ticket = txn.commit().expect("the transaction commits");
        if durable {
            ticket.wait().expect("the commit is durable");
        }
    }

    fn get(&self, key: &[u8; 16], into: &mut Vec<u8>) -> bool {
        let txn = self.engine.begin(Isolation::ReadCommitted);
        txn.statement_begin();
        into.clear();
        txn.get(&self.table, key, Lock::None, into).expect("the key is read")
    }

    fn scan(&self, key: &[u8; 16], n: usize) -> usize {
        let txn = self.engine.begin(Isolation::ReadCommitted);
        txn.statement_begin();
        let mut cursor = txn.cursor(&self.table, 0, Lock::None, Access::Normal).expect("a cursor");
        let mut valid = cursor.seek(key, Seek::AtLeast).expect("the cursor moves");
        let mut bytes = 0;
        for _ in 0..n {
            if !valid {
                break;
            }
            bytes += cursor.key().len() + cursor.value().len();
            valid = cursor.next().expect("the cursor moves");
        }
        bytes
    }
}

impl Drop for Terrace {
    /// With STATUS in the environment: the engine's counters, for who looks into a figure.
    fn drop(&mut self) {
        if std::env::var("STATUS").is_ok() {
            self.engine.status().iter().for_each(|(name, value)| eprintln!("{name} {value}"));
            eprintln!("{:?}", self.engine.spaces());
        }
    }
}

pub struct Rocks(rocksdb::DB);

impl Rocks {
    pub fn open(directory: &Path, memory: u64) -> Rocks {
        let mut options = rocksdb::Options::default();
        options.create_if_missing(true);
        options.set_compression_type(rocksdb::DBCompressionType::None);
        options.set_use_fsync(false);
        // Three quarters for blocks, the rest for memtables.
        let mut table = rocksdb::BlockBasedOptions::default();
        let cache = rocksdb::Cache::new_lru_cache((memory / 4 * 3) as usize).expect("a cache");
        table.set_block_cache(&cache);
        table.set_bloom_filter(10.0, false);
        options.set_block_based_table_factory(&table);
        options.set_write_buffer_size((memory / 8) as usize);
        options.set_max_write_buffer_number(2);
        options.increase_parallelism(2);
        Rocks(rocksdb::DB::open(&options, directory).expect("RocksDB opens"))
    }
}

impl Store for Rocks {
    fn put(&self, pairs: &[([u8; 16], &[u8])], durable: bool) {
        let mut options = rocksdb::WriteOptions::default();
        options.set_sync(durable);
        let mut batch = rocksdb::WriteBatch::default();
        pairs.iter().for_each(|(key, value)| batch.put(key, value));
        self.0.write_opt(batch, &options).expect("RocksDB writes");
    }
    fn get(&self, key: &[u8; 16], into: &mut Vec<u8>) -> bool {
        into.clear();
        let found = self.0.get_pinned(key).expect("RocksDB reads");
        found.inspect(|value| into.extend_from_slice(value)).is_some()
    }
    fn scan(&self, key: &[u8; 16], n: usize) -> usize {
        let mut iterator = self.0.raw_iterator();
        iterator.seek(key);
        let mut bytes = 0;
        for _ in 0..n {
            let Some((key, value)) = iterator.item() else { break };
            bytes += key.len() + value.len();
            iterator.next();
        }
        bytes
    }
}

pub struct Lmdb {
    environment: heed::Env,
    database: heed::Database<HeedBytes, HeedBytes>,
}

impl Lmdb {
    /// LMDB decides on durability when it is opened.
    pub fn open(directory: &Path, durable: bool) -> Lmdb {
        let mut options = heed::EnvOpenOptions::new();
        options.map_size(8 << 30);
        if !durable {
            // SAFETY: a crash may lose commits, and there is none to survive in a benchmark.
            unsafe { options.flags(heed::EnvFlags::NO_SYNC | heed::EnvFlags::WRITE_MAP) };
        }
        // SAFETY: nobody else has these files open.
        let environment = unsafe { options.open(directory) }.expect("LMDB opens");
        let mut txn = environment.write_txn().expect("LMDB begins");
        let database = environment.create_database(&mut txn, None).expect("LMDB makes its database");
        txn.commit().expect("LMDB commits");
        Lmdb { environment, database }
    }
}

impl Store for Lmdb {
    fn put(&self, pairs: &[([u8; 16], &[u8])], _durable: bool) {
        let mut txn = self.environment.write_txn().expect("LMDB begins");
        for (key, value) in pairs {
            self.database.put(&mut txn, key, value).expect("LMDB writes");
        }
        txn.commit().expect("LMDB commits");
    }
    fn get(&self, key: &[u8; 16], into: &mut Vec<u8>) -> bool {
        let txn = self.environment.read_txn().expect("LMDB begins");
        into.clear();
        let found = self.database.get(&txn, key).expect("LMDB reads");
        found.inspect(|value| into.extend_from_slice(value)).is_some()
    }
    fn scan(&self, key: &[u8; 16], n: usize) -> usize {
        let txn = self.environment.read_txn().expect("LMDB begins");
        let from = (std::ops::Bound::Included(&key[..]), std::ops::Bound::Unbounded);
        let pairs = self.database.range(&txn, &from).expect("LMDB seeks");
        pairs.take(n).map(|pair| pair.expect("LMDB reads")).map(|(key, value)| key.len() + value.len()).sum()
    }
}
