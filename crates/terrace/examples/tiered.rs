//! A tiered store on directories: a little memory, flash, a volume and an object store. More is written than memory and the volume's page area
//! hold, so cold pages move to the object store; all of it is still one tree.
//!
//! `cargo run --release -p terrace --example tiered [DIRECTORY]`

use std::collections::HashMap;
use std::path::Path;
use terrace::{Batch, Config, Db, Durability, Result};

fn value(n: u64) -> Vec<u8> {
    // Half of it compresses.
    let mut value = vec![0; 2000];
    let mut state = n + 1;
    for byte in &mut value[..1000] {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        *byte = (state >> 33) as u8;
    }
    value
}

/// Where its reads came from.
#[derive(Debug)]
pub struct Reads {
    pub blocks_sunk: u64,
    pub from_volume: u64,
    pub from_objects: u64,
}

/// Writes `keys` pairs of 2 KB, closes, opens and reads all of them.
pub fn run(directory: &Path, keys: u64) -> Result<Reads> {
    let object = directory.join("objects");
    let config = || {
        Config::new(directory.join("volume"))
            .memory(16 << 20)
            .log(16 << 20)
            .pages(16 << 20)
            .flash(directory.join("flash"), 16 << 20)
            .object(&object.to_string_lossy())
    };
    let db = Db::open_with(config())?;
    let tree = db.tree("things")?;
    let mut batch = Batch::new();
    for n in 0..keys {
        batch.put(&tree, n.to_be_bytes(), value(n));
        if batch.len() == 100 {
            db.write_with(&batch, Durability::None)?;
            batch.clear();
        }
    }
    db.write(&batch)?;
    let sunk = status(&db)("sink_blocks");
    drop((tree, batch));
    db.close()?;

    let db = Db::open_with(config())?;
    let tree = db.tree("things")?;
    let mut range = tree.iter()?;
    let mut n = 0u64;
    while let Some((key, found)) = range.advance()? {
        assert!(key == n.to_be_bytes() && found == value(n), "pair {n}");
        n += 1;
    }
    assert_eq!(n, keys);
    drop((range, tree));
    let of = status(&db);
    let reads =
        Reads { blocks_sunk: sunk, from_volume: of("reads_volume"), from_objects: of("reads_object") };
    db.close()?;
    Ok(reads)
}

fn status(db: &Db) -> impl Fn(&str) -> u64 + use<> {
    let status: HashMap<String, u64> = db.status().into_iter().collect();
    move |name| status.get(name).copied().unwrap_or(0)
}

#[allow(dead_code)]
fn main() -> Result<()> {
    let directory = std::env::args().nth(1).unwrap_or_else(|| "tiered.db".into());
    println!("{:?}", run(directory.as_ref(), 40_000)?);
    Ok(())
}
