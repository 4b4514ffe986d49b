//! `terrace definitions`, and `terrace restore --definitions`: the server's definition files, as the instance keeps them, written into a data directory.

use crate::instance::{self, Fault};
use crate::location::Location;
use crate::{exit, output};
use clap::Args;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Write};
use std::path::Path;
use terrace_engine::Error;
use terrace_engine::offline::definitions;

pub const AFTER_HELP: &str = "A server keeps the definitions of its tables, views, triggers and databases in the instance when it copies its volume, while it archives its log, \
                              and when it is shut down with an object store. DIR is the data directory of a server that does not run.\n\nExit codes: 0 done; \
                              1 the definition of a table is missing or not the one of its rows; 2 wrong usage, or a place cannot be used";

#[derive(Args)]
pub struct Command {
    #[command(flatten)]
    location: Location,
    /// The data directory into which they are written. Files there stay as they are
    #[arg(long, value_name = "DIR")]
    into: String,
}

/// What was written.
pub struct Written {
    files: usize,
    troubles: Vec<String>,
}

impl Written {
    pub fn json(&self) -> Value {
        json!({"files": self.files, "troubles": self.troubles})
    }

    pub fn lines(&self) -> String {
        let mut lines = format!("definitions     {} files", self.files);
        self.troubles.iter().for_each(|one| lines += &format!("\ntrouble         {one}"));
        lines
    }

    pub fn exit(&self) -> u8 {
        if self.troubles.is_empty() { exit::SOUND } else { exit::FAULTS }
    }
}

/// Returns the exit code.
pub fn run(command: &Command) -> Result<u8, Fault> {
    let written = write(&command.location, &command.into)?;
    match command.location.json {
        true => output::text(&format!("{:#}", written.json())),
        false => output::text(&written.lines()),
    }
    Ok(written.exit())
}

/// Refuses a place in which they cannot be, before anything is restored.
pub fn check_place(into: &str) -> Result<(), Fault> {
    match fs::metadata(into) {
        Ok(found) if found.is_dir() => Ok(()),
        Ok(_) => Err(Error::Invalid(format!("{into} is no directory")).into()),
        Err(error) => Err(Error::Invalid(format!(
            "{into}: {error}; the definitions are written into the data directory of the restored server, as mariadb-install-db makes it"
        ))
        .into()),
    }
}

/// Writes the definitions that the instance keeps. Fails before it writes anything if a file exists with other bytes.
pub fn write(location: &Location, into: &str) -> Result<Written, Fault> {
    check_place(into)?;
    let look = instance::open(location)?.look;
    let Some(found) = definitions::read(&look)? else {
        return Err(Error::Invalid(
            "the instance keeps no definitions: copy the databases' directories (.frm, .par, db.opt) from the data directory".into(),
        )
        .into());
    };
    let into = Path::new(into);
    let mut new: BTreeMap<&str, &Vec<u8>> = BTreeMap::new();
    for (path, bytes) in &found.files {
        match fs::read(into.join(path)) {
            Ok(there) if there == *bytes => {}
            Ok(_) => {
                let what = format!(
                    "{} is there, and is another one: nothing was written",
                    into.join(path).display()
                );
                return Err(Error::Invalid(what).into());
            }
            Err(error) if error.kind() == ErrorKind::NotFound => _ = new.insert(path, bytes),
            Err(error) => return Err(failed(&into.join(path), &error)),
        }
    }
    for (path, bytes) in new {
        put(into, path, bytes).map_err(|error| failed(&into.join(path), &error))?;
    }
    Ok(Written { files: found.files.len(), troubles: found.troubles })
}

fn failed(path: &Path, error: &std::io::Error) -> Fault {
    Error::Invalid(format!("{}: {error}", path.display())).into()
}

/// Durable when it returns.
fn put(into: &Path, path: &str, bytes: &[u8]) -> std::io::Result<()> {
    let file = into.join(path);
    let directory = file.parent().unwrap_or(into);
    if !directory.is_dir() {
        fs::create_dir(directory)?;
        fs::File::open(into)?.sync_all()?;
    }
    let mut to = fs::File::create_new(&file)?;
    to.write_all(bytes)?;
    to.sync_all()?;
    fs::File::open(directory)?.sync_all()
}
