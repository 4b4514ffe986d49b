//! The files that a running server is told to read and write.

use std::fs::File;
use std::io::{BufReader, ErrorKind, Read, Result, Write};
use std::path::{Path, PathBuf};
use terrace_kv::config::files::{Files, NewFile};

pub struct LocalFiles;

impl Files for LocalFiles {
    fn read(&self, path: &str) -> Result<Vec<u8>> {
        std::fs::read(path)
    }

    fn replace(&self, path: &str, contents: &[u8]) -> Result<()> {
        let mut file = Replacement::begin(Path::new(path))?;
        file.write_all(contents)?;
        Box::new(file).finish()
    }

    fn begin(&self, path: &str) -> Result<Box<dyn NewFile>> {
        Ok(Box::new(Replacement::begin(Path::new(path))?))
    }

    fn open(&self, path: &str) -> Result<Option<(Box<dyn Read>, u64)>> {
        match File::open(path) {
            Ok(file) => {
                let length = file.metadata()?.len();
                Ok(Some((Box::new(BufReader::with_capacity(1 << 20, file)), length)))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// A file beside `path` that takes its name.
pub struct Replacement {
    file: File,
    new: PathBuf,
    path: PathBuf,
    is_finished: bool,
}

impl Replacement {
    pub fn begin(path: &Path) -> Result<Replacement> {
        let mut new = path.as_os_str().to_owned();
        new.push(".new");
        let new = PathBuf::from(new);
        Ok(Replacement { file: File::create(&new)?, new, path: path.to_owned(), is_finished: false })
    }
}

impl Write for Replacement {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> Result<()> {
        self.file.flush()
    }
}

impl NewFile for Replacement {
    fn finish(mut self: Box<Self>) -> Result<()> {
        self.file.sync_all()?;
        std::fs::rename(&self.new, &self.path)?;
        self.is_finished = true;
        let parent = self.path.parent().filter(|parent| !parent.as_os_str().is_empty());
        File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
    }
}

impl Drop for Replacement {
    fn drop(&mut self) {
        if !self.is_finished {
            // What remains is overwritten by the next one.
            let _ = std::fs::remove_file(&self.new);
        }
    }
}
