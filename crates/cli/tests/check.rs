//! `terrace check` and `terrace status` on a real instance: sound, in part, then damaged in one place after another.
//! It names the damage, and changes nothing.

mod instance;

use instance::{Instance, PAGE, create, plain, plain_key};
use std::path::Path;
use std::process::Command;
use terrace_engine::Isolation;
use terrace_engine::config::{Bytes, Config};

#[test]
fn a_sound_instance_has_no_fault_closed_or_crashed() {
    for clean in [true, false] {
        let instance = Instance::new(if clean { "clean" } else { "crashed" }, clean);
        let (code, said) = instance.check();
        assert!(code == 0 && said.contains("no fault") && !said.contains("not checked"), "{said}");
        assert!(said.contains("3 trees with 8000 entries") && !said.contains("leaked"), "{said}");
        let status = instance.run("status", &[]);
        let said = String::from_utf8_lossy(&status.stdout).to_string();
        assert!(
            status.status.success() && said.contains(&format!("closed_cleanly          {clean}")),
            "{said}"
        );
        assert!(said.contains("d/t") && said.contains("plain"), "{said}");
    }
}

/// ALTER by copy and CREATE … SELECT fill a table that is dropped unless they complete: its allocations are not logged.
#[test]
fn pages_of_a_load_unwritten_at_a_crash_are_free_space_and_no_damage() {
    for logged in [true, false] {
        let instance = Instance::empty(if logged { "load-logged" } else { "load" });
        let engine = instance.open();
        let table = create(&engine);
        engine.set_bypass(!logged);
        let txn = engine.begin(Isolation::RepeatableRead);
        let mut load = engine.load(&table, &txn).unwrap();
        // Rows in order are in their pages at once.
        for n in 0..8000u64 {
            load.add(&n.to_be_bytes(), &[7; 300][..], &[plain(&plain_key(n))]).unwrap();
        }
        engine.core().storage.checkpoint().unwrap();
        let crashed = instance.copied();
        let (code, said) = crashed.check();
        assert!(code == 0 && said.contains("no fault") && said.contains("leaked"), "{said}");
        drop(load);
        txn.rollback().unwrap();
        engine.shutdown().unwrap();
    }
}

#[test]
fn status_says_what_the_instance_is_and_where_its_pages_are() {
    let instance = Instance::new("status", false);
    let status = instance.json("status", &["--flash", instance.at("flash").to_str().unwrap()]);
    let number = |name: &str| status[name].as_u64().unwrap_or_else(|| panic!("{name} in {status:#}"));
    assert!(number("format_version") == 17 && status["instance"].as_str().unwrap().len() == 32);
    assert!(number("superblock_age_seconds") < 3600 && number("checkpoint_lsn") <= number("log_end_lsn"));
    assert!(
        number("redo_bytes") == number("log_end_lsn") - number("checkpoint_lsn")
            && number("redo_bytes") > 100_000,
        "{status:#}"
    );
    assert!(number("redo_pages") > 10 && number("object_bytes") > 1 << 20, "{status:#}");
    let spaces = status["spaces"].as_array().unwrap();
    let pages = |tier: &str| spaces.iter().map(|space| space[tier].as_u64().unwrap()).sum::<u64>();
    assert_eq!(number("volume_bytes"), pages("volume") * PAGE as u64);
    assert!(pages("object") > 50 && spaces.iter().any(|space| space["index"] == "plain"), "{status:#}");
    assert!(status["flash_bytes"].is_u64() && status["unfinished_transactions"] == 0);
}

#[test]
fn a_setting_that_the_volume_overrules_is_named_and_others_are_not() {
    let instance = Instance::new("overruled", true);
    let file = instance.at("terrace.toml");
    let warned = |settings: &str| {
        std::fs::write(&file, settings).unwrap();
        let status = instance.run("status", &["--config", file.to_str().unwrap()]);
        assert!(status.status.success());
        String::from_utf8(status.stderr).unwrap()
    };
    // It was made with 8M, 1 and 16M. A larger object buffer takes effect at the next start.
    assert_eq!(warned(""), "");
    assert_eq!(warned("log = \"8M\"\nlog_partitions = 1\nobject_buffer = \"20M\"\nmemory = \"64M\""), "");
    let said = warned("log = \"96M\"\nlog_partitions = 3\nobject_buffer = \"8M\"");
    let words = [
        "warning: log = 96M is not in force: the volume was made with 8M\n",
        "warning: log_partitions = 3 is not in force: the volume was made with 1\n",
        "warning: object_buffer = 8M is not in force: the volume has 16M",
    ];
    assert!(words.iter().all(|word| said.contains(word)) && said.lines().count() == 3, "{said}");

    // A program that starts it finds the same in the notes.
    let notes = |change: fn(&mut Config)| {
        let engine = instance.open_with(change);
        let notes = engine.notes().into_iter().filter(|(name, _)| *name == "setting_overruled");
        let notes: Vec<String> = notes.map(|(_, text)| text).collect();
        engine.shutdown().unwrap();
        notes
    };
    assert_eq!(notes(|_| {}), [""; 0]);
    let said = notes(|config| (config.log, config.object_buffer) = (Bytes(4 << 20), Bytes(4 << 20)));
    assert!(
        said.len() == 2 && said[0].contains("log = 4M") && said[1].contains("object_buffer = 4M"),
        "{said:?}"
    );
    // It has more now, and that stays.
    assert_eq!(notes(|config| config.object_buffer = Bytes(32 << 20)), [""; 0]);
    let said = notes(|_| {});
    assert!(
        said.len() == 1 && said[0].contains("object_buffer = 16M is not in force: the volume has 32M"),
        "{said:?}"
    );
}

#[test]
fn without_its_objects_an_instance_is_checked_in_part_and_that_is_no_fault() {
    let mut instance = Instance::new("part", true);
    instance.with_object = false;
    let (code, said) = instance.check();
    assert!(code == 3 && said.contains("no fault") && !said.contains("leaked"), "{said}");
    let line = said.lines().find(|line| line.contains("pages in")).unwrap();
    assert!(line.starts_with("not checked: ") && line.ends_with(" objects, give --object"), "{line}");
    // What is damaged near is found all the same.
    instance.damage(|space, _| space == 3);
    let (code, said) = instance.check();
    assert!(
        code == 1 && said.contains("the catalog: page 3:1: on the volume") && said.contains("give --object"),
        "{said}"
    );
}

#[test]
fn a_missing_directory_is_refused_and_not_created() {
    let mut instance = Instance::new("absent", true);
    instance.with_object = false;
    for option in ["--object", "--flash"] {
        let absent = instance.at("absent");
        let (code, said) = instance.check_with(&[option, absent.to_str().unwrap()]);
        assert!(code == 2 && said.contains("absent"), "{option}: {code} {said}");
        assert!(!absent.exists(), "{option} was made");
    }
    // As a configuration names it.
    let config = instance.at("terrace.toml");
    std::fs::write(&config, format!("object = {:?}\n", instance.at("absent").to_str().unwrap())).unwrap();
    let (code, said) = instance.check_with(&["--config", config.to_str().unwrap()]);
    assert!(code == 2 && said.contains("absent"), "{code} {said}");
    // An empty directory is not the store, and stays empty.
    std::fs::create_dir(instance.at("empty")).unwrap();
    let (code, said) = instance.check_with(&["--object", instance.at("empty").to_str().unwrap()]);
    assert!(code == 2 && said.contains("holds nothing of this instance"), "{code} {said}");
    let other = Instance::new("other", true);
    let (code, said) = instance.check_with(&["--object", other.at("objects").to_str().unwrap()]);
    assert!(code == 2 && said.contains("belongs to instance"), "{code} {said}");
}

#[test]
fn each_damage_is_named_and_the_walk_goes_on() {
    let instance = Instance::new("damaged", true);
    let object = instance.an_object();
    instance.flip(&object, 1024 + 5 * 16384 + 77);
    let (code, said) = instance.check();
    assert!(code == 1 && said.contains("object") && said.contains("of table d/t"), "{said}");
    instance.flip(&object, 1024 + 5 * 16384 + 77);

    std::fs::rename(&object, instance.at("gone")).unwrap();
    let (code, said) = instance.check();
    assert!(code == 1 && said.contains("does not exist"), "{said}");
    std::fs::rename(instance.at("gone"), &object).unwrap();

    // Every page on the volume: each is named once.
    let whole = instance.damage(|_, _| true);
    let report = instance.json("check", &[]);
    let faults: Vec<&str> =
        report["faults"]["first"].as_array().unwrap().iter().map(|fault| fault.as_str().unwrap()).collect();
    let pages = report["pages_volume"].as_u64().unwrap() as usize;
    let named =
        faults.iter().filter(|fault| fault.contains("on the volume") && fault.contains("is corrupt")).count();
    assert!(report["exit"] == 1 && named == pages && pages > 20, "{report:#}");
    assert!(report["leaked"]["count"] == 0, "{report:#}");
    instance.restore(&whole);

    // One copy of the superblock may be lost, both may not.
    let superblock = instance.at("volume").join("superblock");
    instance.flip(&superblock, 100);
    let (code, said) = instance.check();
    assert!(code == 0 && said.contains("note: copy 0 of the superblock"), "{said}");
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
fn several_damaged_pages_of_one_tree_are_all_named_once() {
    let instance = Instance::new("several", true);
    let (_, sound) = instance.check();
    let before: u64 = entries(&sound);
    // The secondary index was changed last: much of it is on the volume.
    instance.damage(|space, page| space == 18 && [3, 5, 8].contains(&page));
    let (code, said) = instance.check();
    assert_eq!(code, 1, "{said}");
    for page in [3, 5, 8] {
        assert_eq!(said.matches(&format!("page 18:{page} ")).count(), 1, "{said}");
    }
    assert!(said.contains("3 faults"), "{said}");
    // The rest of the tree was walked, and nothing that follows from the damage is called a fault or leaked.
    let after = entries(&said);
    assert!(after < before && after > before / 2 && !said.contains("leaked"), "{said}");
    assert!(said.contains("not checked: table d/t index plain against the table's rows"), "{said}");
}

fn entries(said: &str) -> u64 {
    let (before, _) = said.split_once(" entries: ").unwrap();
    before.rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
fn damage_in_undo_or_the_catalog_does_not_end_the_walk() {
    let instance = Instance::new("frame", true);
    let whole = instance.damage(|space, page| space == 2 && page > 1);
    let (code, said) = instance.check();
    assert!(code == 1 && said.contains("of the undo on the volume"), "{said}");
    assert!(said.contains("3 trees with 8000 entries"), "{said}");
    instance.restore(&whole);

    // The undo's header, then its directory.
    for page in [0, 1] {
        let whole = instance.damage(|space, number| space == 2 && number == page);
        let (code, said) = instance.check();
        assert!(code == 1 && said.contains("3 trees with 8000 entries"), "{said}");
        instance.restore(&whole);
    }

    // The catalog's root: the tables' trees are walked without their names.
    let whole = instance.damage(|space, page| space == 3 && page == 1);
    let (code, said) = instance.check();
    assert!(
        code == 1 && said.contains("the catalog: page 3:1: on the volume") && said.contains("3 trees with"),
        "{said}"
    );
    assert!(said.contains("space 18 may be a table's") && !said.contains("leaked"), "{said}");
    instance.restore(&whole);
    // Its header alone: the tables are still found.
    let whole = instance.damage(|space, page| space == 3 && page == 0);
    let (code, said) = instance.check();
    assert!(code == 1 && said.contains("3 trees with 8000 entries"), "{said}");
    instance.restore(&whole);
    assert_eq!(instance.check().0, 0);
}

#[test]
fn quick_reads_checksums_only() {
    let instance = Instance::new("quick", true);
    let (code, said) = instance.check_with(&["--quick"]);
    assert!(code == 0 && said.contains("1 tree with 0 entries"), "{said}");
    let whole = instance.damage(|space, page| space == 18 && page == 3);
    let (code, said) = instance.check_with(&["--quick"]);
    assert!(code == 1 && said.contains("page 18:3 of table d/t index plain"), "{said}");
    instance.restore(&whole);
}

#[test]
fn copies_on_flash_are_verified_if_asked_and_are_never_faults() {
    let instance = Instance::new("flash", true);
    let flash = instance.at("flash");
    let with_flash = ["--flash", flash.to_str().unwrap()];
    // Real images, as flash has them: one current, one of another time, one damaged, holes between.
    let pages = std::fs::read(instance.at("volume").join("pages")).unwrap();
    let images: Vec<&[u8]> = pages.chunks_exact(PAGE).filter(|image| image[4..6] == *b"TP").collect();
    let mut file = vec![0; 16 * PAGE];
    for (slot, image) in [(2, 0), (7, 1), (11, 2)] {
        file[slot * PAGE..(slot + 1) * PAGE].copy_from_slice(images[image]);
    }
    file[11 * PAGE + 500] ^= 1;
    std::fs::write(flash.join("bpe"), &file).unwrap();
    let (code, said) = instance.check_with(&with_flash);
    assert!(code == 0 && said.contains("note: the copy in slot 11 on flash is damaged"), "{said}");
    let report = instance.json("check", &with_flash);
    let flash = &report["flash"];
    assert!(flash["copies"] == 3 && flash["damaged"] == 1, "{report:#}");
    assert_eq!(flash["current"].as_u64().unwrap() + flash["stale"].as_u64().unwrap(), 2);
    assert!(instance.json("check", &[])["flash"].is_null());
}

#[test]
fn a_missing_and_a_running_instance_are_refused() {
    let instance = Instance::new("running", true);
    let output = Command::new(env!("CARGO_BIN_EXE_terrace"))
        .args(["check", "--volume", "/nonexistent"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no Terrace instance"));
    assert!(!Path::new("/nonexistent").exists());
    let engine = instance.open();
    let output = instance.run_once("check", &[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("another instance"), "{output:?}");
    let output = instance.run_once("check", &["--json"]);
    assert_eq!(serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()["exit"], 2);
    engine.shutdown().unwrap();
}

/// It said that a curve of the last run does not exist, and of one that runs only that it does.
#[test]
fn advise_explains_why_it_has_no_advice() {
    let instance = Instance::empty("advise");
    let engine = instance.open();
    let said = |out: std::process::Output| {
        assert_eq!(out.status.code(), Some(2));
        String::from_utf8(out.stderr).unwrap()
    };
    let running = said(instance.run("advise", &[]));
    assert!(
        running.contains("another instance runs") && running.contains("information_schema.TERRACE_ADVICE"),
        "{running}"
    );
    engine.shutdown().unwrap();
    drop(engine);
    let short = said(instance.run("advise", &[]));
    assert!(
        short.starts_with("error: there is nothing to advise from: ") && short.contains("1000 reads"),
        "{short}"
    );
    assert!(!short.contains("does not exist"), "{short}");
}
