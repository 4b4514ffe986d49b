//! The stores under test, set up alike: the same memory, the same durability.

use heed::types::Bytes as HeedBytes;
use std::path::Path;
use std::sync::Arc;
use terrace_engine::Parts;
use terrace_engine::config::{Bytes, Config};
use terrace_io::real::disk::RealDisk;
use terrace_io::real::world;
use terrace_workload::{Result, Store, Terrace};

/// The engine on one directory.
pub fn terrace(directory: &Path, memory: u64) -> Terrace {
    let config = Config {
        memory: Bytes(memory),
        log: Bytes(1 << 30),
        object_buffer: Bytes(4 << 30),
        ..Config::default()
    };
    let volume = RealDisk::open(directory).expect("the directory opens");
    let parts = Parts { world: world(), volume: Arc::new(volume), flash: None, store: None };
    Terrace::on(config, parts).expect("the engine opens")
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
    fn put(&self, pairs: &[([u8; 16], &[u8])], durable: bool) -> Result<()> {
        let mut options = rocksdb::WriteOptions::default();
        options.set_sync(durable);
        let mut batch = rocksdb::WriteBatch::default();
        pairs.iter().for_each(|(key, value)| batch.put(key, value));
        self.0.write_opt(batch, &options).map_err(|e| e.to_string())
    }
    fn get(&self, key: &[u8; 16], into: &mut Vec<u8>) -> Result<bool> {
        into.clear();
        let found = self.0.get_pinned(key).expect("RocksDB reads");
        Ok(found.inspect(|value| into.extend_from_slice(value)).is_some())
    }
    fn scan(&self, key: &[u8; 16], n: usize) -> Result<usize> {
        let mut iterator = self.0.raw_iterator();
        iterator.seek(key);
        let mut bytes = 0;
        for _ in 0..n {
            let Some((key, value)) = iterator.item() else { break };
            bytes += key.len() + value.len();
            iterator.next();
        }
        Ok(bytes)
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
        // SAFETY: no other process or environment has these files open.
        let environment = unsafe { options.open(directory) }.expect("LMDB opens");
        let mut txn = environment.write_txn().expect("LMDB begins");
        let database = environment.create_database(&mut txn, None).expect("LMDB makes its database");
        txn.commit().expect("LMDB commits");
        Lmdb { environment, database }
    }
}

impl Store for Lmdb {
    fn put(&self, pairs: &[([u8; 16], &[u8])], _durable: bool) -> Result<()> {
        let mut txn = self.environment.write_txn().expect("LMDB begins");
        for (key, value) in pairs {
            self.database.put(&mut txn, key, value).expect("LMDB writes");
        }
        txn.commit().map_err(|e| e.to_string())
    }
    fn get(&self, key: &[u8; 16], into: &mut Vec<u8>) -> Result<bool> {
        let txn = self.environment.read_txn().expect("LMDB begins");
        into.clear();
        let found = self.database.get(&txn, key).expect("LMDB reads");
        Ok(found.inspect(|value| into.extend_from_slice(value)).is_some())
    }
    fn scan(&self, key: &[u8; 16], n: usize) -> Result<usize> {
        let txn = self.environment.read_txn().expect("LMDB begins");
        let from = (std::ops::Bound::Included(&key[..]), std::ops::Bound::Unbounded);
        let pairs = self.database.range(&txn, &from).expect("LMDB seeks");
        Ok(pairs
            .take(n)
            .map(|pair| pair.expect("LMDB reads"))
            .map(|(key, value)| key.len() + value.len())
            .sum())
    }
}
