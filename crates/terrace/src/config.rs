//! Settings of an instance.

use crate::error::{Error, ErrorKind, Result};
use std::path::Path;
use toml::{Table, Value};

/// Where an instance keeps its data, and with how much of each tier.
///
/// Every setting has a default but the directory. Faults are named all at once, by [`Db::open_with`](crate::Db::open_with).
/// `terrace config` prints every setting with its meaning.
///
/// ```
/// let dir = tempfile::tempdir()?;
/// let config = terrace::Config::new(dir.path().join("volume"))
///     .memory(64 << 20)
///     .log(8 << 20)
///     .flash(dir.path().join("flash"), 64 << 20)
///     .object(dir.path().join("store").to_str().unwrap());
/// let db = terrace::Db::open_with(config)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    table: Table,
    /// What is wrong with paths: settings are text.
    faults: Vec<String>,
}

impl Config {
    /// An instance on a directory, which is made if it is not there. It should be on a durable volume.
    ///
    /// ```
    /// let dir = tempfile::tempdir()?;
    /// let db = terrace::Db::open_with(terrace::Config::new(dir.path()).log(4 << 20))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn new(volume: impl AsRef<Path>) -> Config {
        let mut config = Config { table: Table::new(), faults: Vec::new() };
        config.insert_path("volume_path", volume.as_ref());
        config
    }

    /// The settings of a file's text, as `terrace config` prints it.
    ///
    /// ```
    /// let dir = tempfile::tempdir()?;
    /// let text = format!("volume_path = {:?}\nmemory = \"32M\"\nlog = \"4M\"", dir.path());
    /// let db = terrace::Db::open_with(terrace::Config::from_toml(&text)?)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn from_toml(text: &str) -> Result<Config> {
        let table = text.parse::<Table>().map_err(|error| {
            Error::new(ErrorKind::Invalid, format!("configuration: {}", error.to_string().trim_end()))
        })?;
        Ok(Config { table, faults: Vec::new() })
    }

    fn insert(&mut self, name: &str, value: impl Into<Value>) {
        self.table.insert(name.into(), value.into());
    }

    fn insert_path(&mut self, name: &str, path: &Path) {
        match path.to_str() {
            Some(text) => self.insert(name, text),
            None => self.faults.push(format!("{name} = {} is not Unicode", path.display())),
        }
    }

    fn bytes(mut self, name: &str, bytes: u64) -> Config {
        self.insert(name, i64::try_from(bytes).unwrap_or(i64::MAX));
        self
    }

    /// All memory that the instance may use, in bytes: buffer pool, log buffers, locks, indexes. 128 MiB by default.
    ///
    /// ```
    /// let dir = tempfile::tempdir()?;
    /// let config = terrace::Config::new(dir.path()).log(4 << 20).memory(16 << 20);
    /// let db = terrace::Db::open_with(config)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn memory(self, bytes: u64) -> Config {
        self.bytes("memory", bytes)
    }

    /// Size of the log, in bytes, from the day the instance is made. 96 MiB by default.
    ///
    /// ```
    /// let dir = tempfile::tempdir()?;
    /// let db = terrace::Db::open_with(terrace::Config::new(dir.path()).log(4 << 20))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn log(self, bytes: u64) -> Config {
        self.bytes("log", bytes)
    }

    /// Room for pages on the volume, in bytes. Without an object store it bounds the data. 8 GiB by default; it is taken as it is used.
    ///
    /// ```
    /// let dir = tempfile::tempdir()?;
    /// let db = terrace::Db::open_with(terrace::Config::new(dir.path()).log(4 << 20).pages(1 << 40 >> 4))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn pages(self, bytes: u64) -> Config {
        self.bytes("object_buffer", bytes)
    }

    /// A directory on local flash for copies of pages, and its size in bytes. It may be lost at any time.
    ///
    /// ```
    /// let dir = tempfile::tempdir()?;
    /// let config = terrace::Config::new(dir.path().join("v")).log(4 << 20).flash(dir.path().join("f"), 16 << 20);
    /// let db = terrace::Db::open_with(config)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn flash(mut self, path: impl AsRef<Path>, bytes: u64) -> Config {
        self.insert_path("flash_path", path.as_ref());
        self.bytes("flash", bytes)
    }

    /// Where cold pages go: `s3://bucket/prefix`, `gs://…`, `az://…`, or a directory. Credentials come from the provider's own chain.
    ///
    /// ```
    /// let dir = tempfile::tempdir()?;
    /// let store = dir.path().join("store");
    /// let config = terrace::Config::new(dir.path().join("v")).log(4 << 20).object(store.to_str().unwrap());
    /// let db = terrace::Db::open_with(config)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn object(mut self, url: &str) -> Config {
        self.insert("object", url);
        self
    }

    /// Any other setting by its name. A number may be given as text, a size with a unit.
    ///
    /// ```
    /// let dir = tempfile::tempdir()?;
    /// let config = terrace::Config::new(dir.path()).set("log", "4M").set("lock_wait_timeout_ms", "500");
    /// let db = terrace::Db::open_with(config)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set(mut self, name: &str, value: &str) -> Config {
        match value.parse::<i64>() {
            Ok(number) => self.insert(name, number),
            Err(_) => self.insert(name, value),
        }
        self
    }

    pub(crate) fn text(&self) -> Result<String> {
        match self.faults.is_empty() {
            true => Ok(self.table.to_string()),
            false => {
                Err(Error::new(ErrorKind::Invalid, format!("configuration: {}", self.faults.join("; "))))
            }
        }
    }
}
