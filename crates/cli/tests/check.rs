//! `terrace check` and `terrace status` on a real instance: sound, then damaged in one place after another. It names
//! the damage, and changes nothing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use terrace_engine::config::{Bytes, Config};
use terrace_engine::{Engine, Entry, IndexDef, Isolation, Parts, TableDef};
use terrace_io::object;
use terrace_io::real::disk::RealDisk;
use terrace_io::real::world;

struct Instance {
    root: PathBuf,
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.root);
    }
}

impl Instance {
    /// A table with rows, a secondary index and large values; most of it in objects. Cleanly closed or not.
    fn new(name: &str, clean: bool) -> Instance {
        let root = std::env::temp_dir().join(format!("terrace-check-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&root);
        let instance = Instance { root };
        let store = object::open(&object::Settings::new(instance.at("objects").to_str().unwrap())).unwrap();
        let volume = Arc::new(RealDisk::open(instance.at("volume")).unwrap());
        let config = Config { memory: Bytes(16 << 20), log: Bytes(8 << 20), object_buffer: Bytes(16 << 20), ..Config::default() };
        let parts = Parts { world: world(), volume, flash: None, store: Some(store) };
        let engine = Engine::open(config, parts).unwrap();
        let index = |name: &str, unique| IndexDef { name: name.into(), unique };
        let def = TableDef { indexes: vec![index("PRIMARY", true), index("plain", false)], properties: Vec::new() };
        let table = engine.create_table("d/t", &def).unwrap();
        let cold = engine.core().storage.cold.clone().unwrap();
        for part in 0..4u64 {
            let txn = engine.begin(Isolation::RepeatableRead);
            for n in part * 1000..(part + 1) * 1000 {
                let row = vec![n as u8; if n % 100 == 0 { 20_000 } else { 300 }];
                let plain = [&(n % 97).to_be_bytes()[..], &n.to_be_bytes()].concat();
                let entry = Entry { index: 1, key: &plain, unique_len: None, primary_at: 8, value: b"" };
                txn.insert(&table, &n.to_be_bytes(), &row, &[entry]).unwrap();
            }
            txn.commit().unwrap().wait().unwrap();
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

    fn at(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    fn run(&self, command: &str) -> Output {
        Command::new(env!("CARGO_BIN_EXE_terrace"))
            .args([command, "--volume", self.at("volume").to_str().unwrap(), "--object", self.at("objects").to_str().unwrap()])
            .output()
            .unwrap()
    }

    /// Runs `check`, which must change nothing; returns its exit code and all it said.
    fn check(&self) -> (i32, String) {
        let before = files(&self.root);
        let output = self.run("check");
        assert!(before == files(&self.root), "check has changed something");
        let said = String::from_utf8_lossy(&output.stdout).to_string() + &String::from_utf8_lossy(&output.stderr);
        (output.status.code().unwrap(), said)
    }

    fn flip(&self, path: &Path, at: usize) {
        let mut bytes = std::fs::read(path).unwrap();
        bytes[at] ^= 4;
        std::fs::write(path, bytes).unwrap();
    }

    fn an_object(&self) -> PathBuf {
        let mut objects: Vec<PathBuf> = files(&self.at("objects")).into_keys().collect();
        objects.retain(|path| path.file_name().unwrap() != "epoch");
        objects.remove(0)
    }
}

fn files(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(root).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            let bytes = std::fs::read(&path).unwrap();
            found.insert(path, bytes);
        }
    }
    found
}

#[test]
fn a_sound_instance_has_no_fault_closed_or_crashed() {
    for clean in [true, false] {
        let instance = Instance::new(if clean { "clean" } else { "crashed" }, clean);
        let (code, said) = instance.check();
        assert!(code == 0 && said.contains("no fault") && !said.contains("not checked"), "{said}");
        assert!(said.contains("2 trees with 8000 entries"), "{said}");
        let status = instance.run("status");
        let said = String::from_utf8_lossy(&status.stdout).to_string();
        assert!(status.status.success() && said.contains(&format!("closed_cleanly          {clean}")), "{said}");
        assert!(said.contains("d/t") && said.contains("plain"), "{said}");
    }
}

#[test]
fn each_damage_is_named_and_the_walk_goes_on() {
    let instance = Instance::new("damaged", true);
    let object = instance.an_object();
    instance.flip(&object, 1024 + 5 * 16384 + 77);
    let (code, said) = instance.check();
    assert!(code == 1 && said.contains("object") && said.contains("of d/t"), "{said}");
    instance.flip(&object, 1024 + 5 * 16384 + 77);

    std::fs::rename(&object, instance.at("gone")).unwrap();
    let (code, said) = instance.check();
    assert!(code == 1 && said.contains("does not exist"), "{said}");
    std::fs::rename(instance.at("gone"), &object).unwrap();

    // Slots in use: a flip in each sixteenth page hits some.
    let pages = instance.at("volume").join("pages");
    let whole = std::fs::read(&pages).unwrap();
    let mut bytes = whole.clone();
    (0..bytes.len() / 16384).for_each(|n| bytes[n * 16384 + 300] ^= 1);
    std::fs::write(&pages, bytes).unwrap();
    let (code, said) = instance.check();
    assert!(code == 1 && (said.contains("volume") || said.contains("corrupt")), "{said}");
    std::fs::write(&pages, whole).unwrap();

    // One copy of the superblock may be lost, both may not.
    let superblock = instance.at("volume").join("superblock");
    instance.flip(&superblock, 100);
    assert_eq!(instance.check().0, 0);
    instance.flip(&superblock, 4196);
    let (code, said) = instance.check();
    assert!(code == 1 && said.contains("superblock"), "{said}");
    instance.flip(&superblock, 100);
    instance.flip(&superblock, 4196);

    // Both homes of the first map page.
    let map = instance.at("volume").join("map");
    instance.flip(&map, 500);
    instance.flip(&map, 16384 + 500);
    let (code, said) = instance.check();
    assert!(code == 1 && said.contains("map"), "{said}");
    instance.flip(&map, 500);
    instance.flip(&map, 16384 + 500);
    assert_eq!(instance.check().0, 0);
}

#[test]
fn a_missing_and_a_running_instance_are_refused() {
    let instance = Instance::new("running", true);
    let output = Command::new(env!("CARGO_BIN_EXE_terrace")).args(["check", "--volume", "/nonexistent"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no Terrace instance"));
    let volume = Arc::new(RealDisk::open(instance.at("volume")).unwrap());
    let store = object::open(&object::Settings::new(instance.at("objects").to_str().unwrap())).unwrap();
    let parts = Parts { world: world(), volume, flash: None, store: Some(store) };
    let config = Config { memory: Bytes(16 << 20), ..Config::default() };
    let engine = Engine::open(config, parts).unwrap();
    let output = instance.run("check");
    assert_eq!(output.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&output.stderr).contains("another instance"), "{output:?}");
    engine.shutdown().unwrap();
}
