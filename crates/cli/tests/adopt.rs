//! `terrace adopt` on real files: its output, its question to the user, and that the instance is whole afterwards.

mod instance;

use instance::{Instance, commit, files, insert, row};
use std::fs;
use terrace_engine::IndexDef;
use terrace_engine::Isolation;
use terrace_engine::Lock;
use terrace_engine::TableDef;

/// Yesterday's volume with the store of today, which has one more table. Today's volume is beside it.
fn put_back(name: &str) -> Instance {
    let instance = Instance::new(name, true);
    // Sinks what is not in objects yet: from here on no session touches the table.
    let engine = instance.open();
    engine.core().storage.checkpoint().unwrap();
    engine.core().storage.cold.clone().unwrap().sinker.sink_all().unwrap();
    engine.shutdown().unwrap();
    drop(engine);
    copy(&instance, "volume", "yesterday");
    let engine = instance.open();
    let indexes = vec![IndexDef { name: "PRIMARY".into(), unique: true }];
    let table = engine.create_table("d/since", &TableDef { indexes, properties: Vec::new() }).unwrap();
    let txn = engine.begin(Isolation::RepeatableRead);
    (0..2000u64).for_each(|n| txn.insert(&table, &n.to_be_bytes(), &row(n), &[]).unwrap());
    commit(txn);
    engine.core().storage.checkpoint().unwrap();
    engine.core().storage.cold.clone().unwrap().sinker.sink_all().unwrap();
    engine.shutdown().unwrap();
    drop((engine, table));
    fs::rename(instance.at("volume"), instance.at("today")).unwrap();
    copy(&instance, "yesterday", "volume");
    instance
}

fn copy(instance: &Instance, from: &str, to: &str) {
    fs::create_dir_all(instance.at(to)).unwrap();
    for (path, bytes) in files(&instance.at(from)) {
        fs::write(instance.at(to).join(path.file_name().unwrap()), bytes).unwrap();
    }
}

fn adopt(instance: &Instance, more: &[&str]) -> (i32, String) {
    let output = instance.run("adopt", more);
    let said = String::from_utf8_lossy(&output.stdout).to_string() + &String::from_utf8_lossy(&output.stderr);
    println!("{said}");
    (output.status.code().unwrap(), said)
}

#[test]
fn a_restored_volume_adopts_its_store_and_the_other_copy_is_then_the_foreign_one() {
    let instance = put_back("adopt");
    let before = files(&instance.root);
    let (code, said) = adopt(&instance, &[]);
    assert!(code == 2 && said.contains("no terminal") && said.contains("given up"), "{code}");
    let why = instance.json("adopt", &[]);
    assert!(why["error"].as_str().unwrap().contains("no terminal"), "{why}");
    assert!(before == files(&instance.root), "it has changed something without being told to");

    let holder = format!("another copy of this volume, process {} on ", std::process::id());
    assert!(said.contains(&holder), "the holder has no name");

    let (code, said) = adopt(&instance, &["--yes"]);
    assert!(code == 0 && said.contains("adopted: the object store is this volume's"), "{code}");
    let (code, said) = adopt(&instance, &["--yes"]);
    assert!(code == 0 && said.contains("nothing to adopt"), "{code}");

    let engine = instance.open();
    let table = engine.open_table("d/t").unwrap();
    assert!(engine.open_table("d/since").is_err());
    let txn = engine.begin(Isolation::RepeatableRead);
    for n in 0..4000u64 {
        let mut found = Vec::new();
        assert!(txn.get(&table, &n.to_be_bytes(), Lock::None, &mut found).unwrap() && found == row(n));
    }
    (4000..4500).for_each(|n| insert(&txn, &table, n));
    commit(txn);
    engine.core().storage.checkpoint().unwrap();
    let cold = engine.core().storage.cold.clone().unwrap();
    cold.sinker.sink_all().unwrap();
    assert_eq!(cold.trouble(), None);
    engine.shutdown().unwrap();
    drop((cold, table, engine));
    let (code, said) = instance.check();
    assert_eq!(code, 0, "{said}");

    fs::remove_dir_all(instance.at("volume")).unwrap();
    copy(&instance, "today", "volume");
    let fault = instance.json("status", &[])["object_store_fault"].to_string();
    assert!(fault.contains("another copy of this volume"), "{fault}");
}

#[test]
fn lost_objects_are_named_and_the_store_is_adopted_without_them_only_by_force() {
    let instance = put_back("adopt-lost");
    let named = {
        let look = terrace_engine::offline::instance::OfflineInstance::open(
            std::sync::Arc::new(
                terrace_io::real::disk::RealDisk::open_to_read(instance.at("volume")).unwrap(),
            ),
            None,
        );
        look.unwrap().map.objects()
    };
    fs::remove_file(instance.at("objects").join(named[0].to_string())).unwrap();
    let before = files(&instance.root);
    let (code, said) = adopt(&instance, &["--yes"]);
    assert!(code == 1 && said.contains("lost            table d/t index"), "{code}");
    let refused = instance.json("adopt", &["--yes"])["error"].to_string();
    assert!(refused.contains("table d/t index") && refused.contains("--force"), "{refused}");
    assert!(before == files(&instance.root), "it was refused, and has changed something");
    let whole = instance.json("adopt", &["--yes", "--force"]);
    assert!(whole["adopted"] == true && whole["lost"][0]["objects"] == 1, "{whole}");
    assert!(instance.json("status", &[])["object_store_fault"].is_null());
}

#[test]
fn adoption_by_the_owner_changes_nothing_and_fails_without_a_store() {
    let mut instance = Instance::new("adopt-own", true);
    let before = files(&instance.root);
    let (code, said) = adopt(&instance, &["--yes"]);
    assert!(code == 0 && said.contains("nothing to adopt"), "{code}");
    instance.with_object = false;
    let (code, said) = adopt(&instance, &["--yes"]);
    assert!(code == 2 && said.contains("which object store?"), "{code}");
    assert!(before == files(&instance.root));
}

#[test]
fn a_volume_and_a_store_in_use_name_the_process_that_has_them() {
    let instance = Instance::new("holder", true);
    let engine = instance.open();
    let name = format!("process {} on ", std::process::id());
    let told = |command: &str, more: &[&str]| {
        let output = instance.run(command, more);
        let said =
            String::from_utf8_lossy(&output.stdout).to_string() + &String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(&name) && said.contains(" since 20"), "{command}: {said}");
        said
    };
    let said = told("check", &[]);
    assert!(said.contains("in use: another instance runs on it, process"), "{said}");
    engine.shutdown().unwrap();
    drop(engine);
    assert_eq!(fs::read(instance.at("volume").join("lock")).unwrap(), b"", "the name is erased at the end");
    // The store's last writer is still named, by what looks at the store.
    let store = instance.at("objects");
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_terrace"))
        .args(["doctor", "--object"])
        .arg(store)
        .output();
    let said = String::from_utf8_lossy(&output.unwrap().stdout).to_string();
    assert!(said.contains("writer epoch") && said.contains(&name), "{said}");
}
