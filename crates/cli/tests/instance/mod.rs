//! An instance on real files for the tests of the command, with functions that damage its files.
#![allow(dead_code)] // each test uses a part

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use terrace_engine::Engine;
use terrace_engine::Entry;
use terrace_engine::IndexDef;
use terrace_engine::Isolation;
use terrace_engine::Parts;
use terrace_engine::Table;
use terrace_engine::TableDef;
use terrace_engine::Txn;
use terrace_engine::config::{Bytes, Config};
use terrace_io::object;
use terrace_io::real::disk::RealDisk;
use terrace_io::real::world;
use terrace_tier::objects::object::codec::Codec;

pub const PAGE: usize = 16384;

pub struct Instance {
    pub root: PathBuf,
    /// Whether `check` is given the object store.
    pub with_object: bool,
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.root);
    }
}

/// The one entry of row `n` in the index `plain`.
pub fn plain_key(n: u64) -> Vec<u8> {
    [&(n % 97).to_be_bytes()[..], &n.to_be_bytes()].concat()
}

pub fn plain(key: &[u8]) -> Entry<'_> {
    Entry { index: 1, key, unique_len: None, primary_at: 8, value: b"" }
}

pub fn row(n: u64) -> Vec<u8> {
    vec![n as u8; if n.is_multiple_of(100) { 20_000 } else { 300 }]
}

pub fn insert(txn: &Arc<Txn>, table: &Table, n: u64) {
    txn.insert(table, &n.to_be_bytes(), &row(n), &[plain(&plain_key(n))]).unwrap();
}

pub fn commit(txn: Arc<Txn>) {
    txn.commit().unwrap().wait().unwrap();
}

impl Instance {
    pub fn empty(name: &str) -> Instance {
        let root = std::env::temp_dir().join(format!("terrace-check-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&root);
        Instance { root, with_object: true }
    }

    /// A table with rows, a secondary index and large values; most of it in objects. Cleanly closed or not.
    pub fn new(name: &str, clean: bool) -> Instance {
        let instance = Instance::empty(name);
        let engine = instance.open();
        let table = create(&engine);
        let cold = engine.core().storage.cold.clone().unwrap();
        for part in 0..4u64 {
            let txn = engine.begin(Isolation::RepeatableRead);
            (part * 1000..(part + 1) * 1000).for_each(|n| insert(&txn, &table, n));
            commit(txn);
            if part == 2 {
                engine.core().storage.checkpoint().unwrap();
                cold.sinker.sink_all().unwrap();
            }
        }
        if clean {
            engine.shutdown().unwrap();
        }
        drop(table);
        instance
    }

    /// A copy of all its files as they are now, as a crash at this moment leaves them.
    pub fn copied(&self) -> Instance {
        let copy = Instance { root: self.root.with_extension("copy"), with_object: self.with_object };
        let _ = std::fs::remove_dir_all(&copy.root);
        for (path, bytes) in files(&self.root) {
            let to = copy.root.join(path.strip_prefix(&self.root).unwrap());
            match path.is_dir() {
                true => std::fs::create_dir_all(to).unwrap(),
                false => {
                    std::fs::create_dir_all(to.parent().unwrap()).unwrap();
                    std::fs::write(to, bytes).unwrap();
                }
            }
        }
        copy
    }

    pub fn open(&self) -> Arc<Engine> {
        self.open_with(|_| {})
    }

    pub fn open_with(&self, change: impl FnOnce(&mut Config)) -> Arc<Engine> {
        let store = object::open(&object::Settings::new(self.at("objects").to_str().unwrap())).unwrap();
        let volume = Arc::new(RealDisk::open(self.at("volume")).unwrap());
        let flash = Arc::new(RealDisk::open(self.at("flash")).unwrap());
        let mut config = Config {
            memory: Bytes(16 << 20),
            log: Bytes(8 << 20),
            object_buffer: Bytes(16 << 20),
            flash: Bytes(64 << 20),
            compression: Codec::None, // an image is where its place says, whole
            ..Config::default()
        };
        change(&mut config);
        Engine::open(config, Parts { world: world(), volume, flash: Some(flash), store: Some(store) })
            .unwrap()
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Runs the command. An instance that runs is waited for: for one that is to be refused see `run_once`.
    pub fn run(&self, command: &str, more: &[&str]) -> Output {
        // The lock of an instance that this process closed is in the hands of each process that another test is about to
        // start, for the moment between its fork and its exec.
        for _ in 0..300 {
            let output = self.run_once(command, more);
            if !String::from_utf8_lossy(&output.stderr).contains("another instance runs on it") {
                return output;
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        self.run_once(command, more)
    }

    pub fn run_once(&self, command: &str, more: &[&str]) -> Output {
        let mut run = Command::new(env!("CARGO_BIN_EXE_terrace"));
        run.args([command, "--volume", self.at("volume").to_str().unwrap()]).args(more);
        if self.with_object {
            run.args(["--object", self.at("objects").to_str().unwrap()]);
        }
        run.output().unwrap()
    }

    /// Runs `check`, which must change nothing; returns its exit code and all it said.
    pub fn check(&self) -> (i32, String) {
        self.check_with(&[])
    }

    pub fn check_with(&self, more: &[&str]) -> (i32, String) {
        let before = files(&self.root);
        let output = self.run("check", more);
        assert!(before == files(&self.root), "check has changed something");
        let said =
            String::from_utf8_lossy(&output.stdout).to_string() + &String::from_utf8_lossy(&output.stderr);
        (output.status.code().unwrap(), said)
    }

    pub fn json(&self, command: &str, more: &[&str]) -> serde_json::Value {
        let output = self.run(command, &[more, &["--json"]].concat());
        serde_json::from_slice(&output.stdout).unwrap()
    }

    pub fn flip(&self, path: &Path, at: usize) {
        let mut bytes = std::fs::read(path).unwrap();
        bytes[at] ^= 4;
        std::fs::write(path, bytes).unwrap();
    }

    /// Flips a bit in every image on the volume of which `which` says so (by space and page number). Returns
    /// the file as it was.
    pub fn damage(&self, which: impl Fn(u32, u32) -> bool) -> Vec<u8> {
        let whole = std::fs::read(self.at("volume").join("pages")).unwrap();
        let mut bytes = whole.clone();
        let number = |image: &[u8], at: usize| u32::from_le_bytes(image[at..at + 4].try_into().unwrap());
        let images = bytes.chunks_exact_mut(PAGE);
        let hit: Vec<_> = images
            .filter(|image| image[4..6] == *b"TP" && which(number(image, 8), number(image, 12)))
            .collect();
        assert!(!hit.is_empty(), "there is no such page on the volume");
        hit.into_iter().for_each(|image| image[9000] ^= 1);
        std::fs::write(self.at("volume").join("pages"), bytes).unwrap();
        whole
    }

    pub fn restore(&self, pages: &[u8]) {
        std::fs::write(self.at("volume").join("pages"), pages).unwrap();
    }

    pub fn an_object(&self) -> PathBuf {
        let mut objects: Vec<PathBuf> = files(&self.at("objects")).into_keys().collect();
        objects.retain(|path| {
            path.is_file() && path.file_name().is_some_and(|name| name != "epoch" && name != "holder")
        });
        objects.remove(0)
    }
}

/// The table d/t: rows by number, and one secondary index.
pub fn create(engine: &Engine) -> Arc<Table> {
    let index = |name: &str, unique| IndexDef { name: name.into(), unique };
    let def =
        TableDef { indexes: vec![index("PRIMARY", true), index("plain", false)], properties: Vec::new() };
    engine.create_table("d/t", &def).unwrap()
}

pub fn files(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(root).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
            // An empty directory counts, too: none is to be made.
            found.insert(path, Vec::new());
        } else {
            let bytes = std::fs::read(&path).unwrap();
            found.insert(path, bytes);
        }
    }
    found
}
