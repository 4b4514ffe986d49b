//! `terrace bench` on real directories: it measures every tier, runs the workloads, and leaves nothing behind.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

struct Root(PathBuf);

impl Root {
    fn new(name: &str) -> Root {
        let root = std::env::temp_dir().join(format!("terrace-bench-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&root);
        std::fs::create_dir_all(&root).unwrap();
        Root(root)
    }
    fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
    fn bench(&self, more: &[&str]) -> Output {
        let at = |name: &str| self.at(name).to_str().unwrap().to_string();
        Command::new(env!("CARGO_BIN_EXE_terrace"))
            .args(["bench", "--volume", &at("volume"), "--flash", &at("flash"), "--object", &at("objects")])
            .args(["--records", "5000", "--seconds", "1", "--threads", "2", "--workloads", "b,e", "--json"])
            .args(["--set", "memory=16M", "--set", "log=8M", "--set", "flash=64M"])
            .args(more)
            .output()
            .unwrap()
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn files_below(path: &Path) -> usize {
    let Ok(entries) = std::fs::read_dir(path) else { return 0 };
    entries.flatten().map(|e| if e.path().is_dir() { files_below(&e.path()) } else { 1 }).sum()
}

#[test]
fn the_benchmark_measures_and_leaves_no_files() {
    let root = Root::new("clean");
    std::fs::create_dir(root.at("flash")).unwrap();
    let output = root.bench(&[]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let figures: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let devices = figures["devices"].as_array().unwrap();
    assert_eq!(devices.len(), 9, "three requests of each tier");
    assert!(devices.iter().all(|d| d["p50_us"].as_f64().unwrap() > 0.0), "{devices:?}");
    let workloads = figures["workloads"].as_array().unwrap();
    assert_eq!(workloads.len(), 3, "the load and two workloads");
    assert!(workloads.iter().all(|w| w["per_s"].as_f64().unwrap() > 0.0), "{workloads:?}");
    assert!(workloads[1]["reads"]["memory"].as_u64().unwrap() > 0);
    assert!(!root.at("volume").exists(), "it was made by the run");
    assert!(root.at("flash").exists(), "it was not made by the run");
    assert_eq!(files_below(&root.0), 0);
}

#[test]
fn a_directory_that_is_not_empty_is_refused_and_unchanged() {
    let root = Root::new("taken");
    for tier in ["volume", "flash", "objects"] {
        std::fs::create_dir_all(root.at(tier)).unwrap();
        std::fs::write(root.at(tier).join("precious"), b"x").unwrap();
        let output = root.bench(&[]);
        assert_eq!(output.status.code(), Some(2));
        let message = String::from_utf8_lossy(&output.stderr).to_string();
        assert!(message.contains("of its own"), "{message}");
        assert_eq!(std::fs::read(root.at(tier).join("precious")).unwrap(), b"x");
        std::fs::remove_file(root.at(tier).join("precious")).unwrap();
    }
    let output = root.bench(&["--workloads", "z"]);
    assert_eq!(output.status.code(), Some(2));
    let output = root.bench(&["--set", "memory=12"]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(files_below(&root.0), 0);
}

#[test]
fn a_trace_is_replayed_through_each_policy() {
    let root = Root::new("cache");
    let trace = root.at("t.csv");
    let uses: String = (0..3000)
        .map(|n: u64| format!("{},{}\n", n * n % 97, if n.is_multiple_of(10) { "write" } else { "read" }))
        .collect();
    std::fs::write(&trace, format!("key,op\n{uses}")).unwrap();
    let cache = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_terrace"));
        command.args(["bench", "cache"]).args(more).output().unwrap()
    };
    let file = trace.to_str().unwrap();
    let out = cache(&[
        "--trace",
        file,
        "--policy",
        "lru,ghost/2@50,optimal",
        "--size",
        "20%,100",
        "--memory",
        "4",
        "--json",
    ]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let json: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    let rows = json[0]["rows"].as_array().unwrap();
    assert_eq!((json[0]["accesses"].as_u64(), json[0]["objects"].as_u64()), (Some(3000), Some(49)));
    let names: Vec<&str> = rows.iter().map(|row| row["policy"].as_str().unwrap()).collect();
    assert_eq!(names, ["lru", "ghost/2@50", "optimal", "lru", "ghost/2@50", "optimal"]);
    let of = |row: usize, what: &str| rows[row][what].as_f64().unwrap();
    // Room for all: each object misses once, except after a write that removes it; no policy hits more often than the one that knows the future.
    assert_eq!((of(0, "flash_pages"), of(3, "flash_pages")), (10.0, 100.0));
    assert_eq!(of(5, "flash_reads") - of(5, "flash_hits"), 49.0);
    assert!(of(2, "flash_hits") >= of(0, "flash_hits") && of(2, "flash_hits") >= of(1, "flash_hits"));
    assert!(of(1, "flash_writes") < of(0, "flash_writes"));
    assert_eq!(of(0, "bytes_written"), of(0, "flash_writes") * 16384.0);
    // The same as a table; wrong arguments are refused with an error.
    let table = cache(&["--trace", file, "zipf:1:100:1000", "--policy", "fifo"]);
    let text = String::from_utf8_lossy(&table.stdout).into_owned();
    assert!(
        text.contains("3000 accesses of 49 objects, 300 change them") && text.contains("1000 accesses of"),
        "{text}"
    );
    for wrong in [
        &["--trace", "none.csv"][..],
        &["--trace", file, "--policy", "mru"],
        &["--trace", file, "--size", "101%"],
        &[],
    ] {
        let out = cache(wrong);
        assert_eq!(out.status.code(), Some(2), "{wrong:?}");
        assert!(!out.stderr.is_empty());
    }
}
