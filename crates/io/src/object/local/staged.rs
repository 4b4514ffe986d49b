//! What puts leave that a kill cut off: the crate writes `<key>#<number>` and then gives it the key as its
//! name. No listing shows such a file, and no object is in it.
//!
//! Before one is removed, it must be certain that no writer uses it any more. For the epoch object the lock on the root
//! says so; for others the caller, by the writer epoch in the key. A removal is not synced: what power loss
//! brings back the next start removes.

use std::io::{ErrorKind, Result};
use std::path::{Path, PathBuf};

/// The name of the object that the file was to become, if it is a staged one.
fn staged_for(name: &str) -> Option<&str> {
    let (name, number) = name.rsplit_once('#')?;
    let is_number = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
    (is_number && !name.is_empty()).then_some(name)
}

fn is_gone(error: &std::io::Error) -> bool {
    error.kind() == ErrorKind::NotFound
}

/// Removes what puts of the object `file` left. No put of it is under way.
pub(super) fn remove_of(file: &Path) -> Result<()> {
    let (Some(dir), Some(name)) = (file.parent(), file.file_name()) else { return Ok(()) };
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_name().to_str().and_then(staged_for).is_some_and(|of| of == name) {
            std::fs::remove_file(entry.path()).or_else(|e| if is_gone(&e) { Ok(()) } else { Err(e) })?;
        }
    }
    Ok(())
}

/// The staged files below `dir`, each with its key: `key` is the directory's, ended by a slash if it has one.
/// What goes away meanwhile is passed over.
pub(super) fn below(dir: &Path, key: &str, found: &mut Vec<(String, PathBuf)>) -> Result<()> {
    let entries = match std::fs::read_dir(dir) {
        Err(error) if is_gone(&error) => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        match entry.file_type() {
            Err(error) if is_gone(&error) => {}
            Err(error) => return Err(error),
            Ok(kind) if kind.is_dir() => below(&entry.path(), &format!("{key}{name}/"), found)?,
            Ok(kind) if kind.is_file() => {
                found.extend(staged_for(name).map(|name| (format!("{key}{name}"), entry.path())));
            }
            Ok(_) => {}
        }
    }
    Ok(())
}
