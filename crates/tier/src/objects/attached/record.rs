//! The object `attached` of an instance's store: the sources from which it reads objects that it has not. Text, a line an item, closed as a backup's
//! manifest is.
//!
//! ```text
//! terrace attached 1
//! id 00…                         the instance, 32 hexadecimal digits: the name of its reference in each source
//! fill 104857600                 bytes a second at which objects are copied; `no`: they stay where they are
//! releasing                      all was copied, and the references are being removed; otherwise there is no such line
//! repository monday file:///srv/backups
//! instance s3://bucket/live      the one kind or the other
//! endpoint http://host:9000      of the source before it, if it has one
//! lineage 00…                    whose objects are in the source before it
//! end 6 1a2b3c4d                 lines before this one, and their CRC-32C
//! ```

use crate::address::ObjectKey;
use crate::objects::lines::{open, seal};

/// The key of the object.
pub const KEY: &str = "attached";
/// In a repository: references of attached instances, by their ids.
pub const REFERENCES: &str = "attached";
const FIRST: &str = "terrace attached 1";
/// Sources of an instance at most: a clone of a clone has those of its source, too.
pub const SOURCES_MAX: usize = 16;

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Backups are there; the objects are those of this one.
    Repository { backup: String },
    /// The object store of an instance.
    Instance,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Source {
    pub kind: Kind,
    pub url: String,
    pub endpoint: Option<String>,
    pub lineages: Vec<u128>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    pub id: u128,
    /// Bytes a second; None: objects are not copied.
    pub fill: Option<u64>,
    pub releasing: bool,
    pub sources: Vec<Source>,
}

/// Where a repository has an object.
pub fn key_in_repository(key: &ObjectKey) -> String {
    format!("objects/{key}")
}

impl Source {
    /// The object's key there.
    pub fn key(&self, key: &ObjectKey) -> String {
        match self.kind {
            Kind::Repository { .. } => key_in_repository(key),
            Kind::Instance => key.to_string(),
        }
    }

    /// What keeps the objects there for the instance.
    pub fn reference(&self, id: u128) -> String {
        match self.kind {
            Kind::Repository { .. } => format!("{REFERENCES}/{id:032x}"),
            Kind::Instance => snapshots_key(),
        }
    }

    /// For people.
    pub fn describe(&self) -> String {
        match &self.kind {
            Kind::Repository { backup } => format!("{} (backup {backup})", self.url),
            Kind::Instance => format!("{} (the store of another instance)", self.url),
        }
    }
}

fn snapshots_key() -> String {
    crate::objects::snapshots::KEY.to_string()
}

impl Record {
    /// Fails if a place cannot be written in a line.
    pub fn check(&self) -> Result<(), &'static str> {
        let is_plain = |text: &str| !text.is_empty() && !text.chars().any(char::is_control);
        for source in &self.sources {
            let name_fits = match &source.kind {
                Kind::Repository { backup } => is_plain(backup) && !backup.contains(' '),
                Kind::Instance => true,
            };
            if !name_fits || !is_plain(&source.url) || !source.endpoint.as_deref().is_none_or(is_plain) {
                return Err("a place has characters that it cannot have");
            }
            if source.lineages.is_empty() {
                return Err("a source has no objects");
            }
        }
        if self.sources.is_empty() || self.sources.len() > SOURCES_MAX {
            return Err("it has no sources, or too many");
        }
        Ok(())
    }

    pub fn encode(&self) -> Vec<u8> {
        let fill = self.fill.map_or("no".to_string(), |rate| rate.to_string());
        let mut lines = vec![FIRST.to_string(), format!("id {:032x}", self.id), format!("fill {fill}")];
        if self.releasing {
            lines.push("releasing".into());
        }
        for source in &self.sources {
            lines.push(match &source.kind {
                Kind::Repository { backup } => format!("repository {backup} {}", source.url),
                Kind::Instance => format!("instance {}", source.url),
            });
            lines.extend(source.endpoint.iter().map(|endpoint| format!("endpoint {endpoint}")));
            lines.extend(source.lineages.iter().map(|lineage| format!("lineage {lineage:032x}")));
        }
        seal(&lines)
    }

    /// Accepts any bytes.
    pub fn decode(bytes: &[u8]) -> Result<Record, &'static str> {
        let lines = open(bytes)?;
        let id = |text: &str| u128::from_str_radix(text, 16).map_err(|_| "an id is wrong");
        let mut lines = lines.into_iter();
        if lines.next() != Some(FIRST) {
            return Err("its format is not known");
        }
        let missing = "a line is missing";
        let of = id(lines.next().and_then(|line| line.strip_prefix("id ")).ok_or(missing)?)?;
        let fill = match lines.next().and_then(|line| line.strip_prefix("fill ")).ok_or(missing)? {
            "no" => None,
            rate => Some(rate.parse().map_err(|_| "a number is wrong")?),
        };
        let mut found = Record { id: of, fill, releasing: false, sources: Vec::new() };
        for line in lines {
            let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
            let last = found.sources.last_mut();
            let source =
                |kind, url: &str| Source { kind, url: url.into(), endpoint: None, lineages: Vec::new() };
            match (word, last) {
                ("releasing", None) => found.releasing = true,
                ("repository", _) => {
                    let (backup, url) = rest.split_once(' ').ok_or(missing)?;
                    found.sources.push(source(Kind::Repository { backup: backup.into() }, url));
                }
                ("instance", _) => found.sources.push(source(Kind::Instance, rest)),
                ("endpoint", Some(last)) => last.endpoint = Some(rest.into()),
                ("lineage", Some(last)) => last.lineages.push(id(rest)?),
                _ => return Err("it has a line of an unknown kind"),
            }
        }
        found.check()?;
        if found.encode() == bytes { Ok(found) } else { Err("it has text that nobody writes") }
    }
}

#[cfg(test)]
mod tests;
