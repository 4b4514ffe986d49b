//! Probing an object store for what the engine needs of it, in a prefix of its own that is removed at the end.
//!
//! Each capability is one [`Finding`]. What an instance cannot do without makes the store *unfit*: whole and partial reads of what was put, lists that
//! are complete, deletions. Conditional puts are *needed for the fence*: without them two instances can both believe that they own the store, and only
//! the epoch in each object's key keeps their data apart (`terrace_tier::objects::fence`). Uploads in parts are used by `terrace files` alone.
//!
//! A request that fails is tried again a few times, so that one lost reply is no verdict. The prefix is drawn at random, so doctors don't meet; the
//! keys that were put are deleted one by one, also when a probe failed, and then the prefix is listed: what is still there is a finding.
//!
//! Nothing outside the prefix is changed. Whether an instance or backups are in the place is read and told.

use crate::offline::backup::{FOLDER, purpose};
use crate::offline::instance::side_by_side;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;
use terrace_io::World;
use terrace_io::clock::Nanos;
use terrace_io::store::{Bytes, Listed, ObjectStore, StoreError, Upload};
use terrace_tier::objects::fence::{self, EpochContent, holder};

/// What a capability turned out to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    Works,
    /// It is a fact, neither good nor bad.
    Note,
    /// It works, with a restriction that the text names.
    Weaker,
    Fails,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    pub what: &'static str,
    pub outcome: Outcome,
    pub text: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    Fit,
    /// Fit for one instance with some loss of protection or of a front: the findings say which.
    Restricted,
    Unfit,
}

#[derive(Debug)]
pub struct Diagnosis {
    pub findings: Vec<Finding>,
}

impl Diagnosis {
    pub fn verdict(&self) -> Verdict {
        let has = |outcome| self.findings.iter().any(|one| one.outcome == outcome);
        match (has(Outcome::Fails), has(Outcome::Weaker)) {
            (true, _) => Verdict::Unfit,
            (false, true) => Verdict::Restricted,
            (false, false) => Verdict::Fit,
        }
    }
}

/// Objects that are listed.
const LISTED: usize = 12;
/// Writers that put one key at the same time.
const RIVALS: usize = 4;
/// Requests of each kind that are timed.
const TIMED: usize = 7;
/// Attempts of a request that fails.
const TRIES: usize = 6;
/// Times that rivals put a key until each has an answer.
const ROUNDS: usize = 16;
/// A clock that is further off than this signs requests that providers refuse, in milliseconds.
const SKEW_MAX: i64 = 5 * 60 * 1000;
/// S3 wants all parts but the last to have this many bytes.
const PART: usize = 5 << 20;

struct Probe<'a> {
    store: &'a Arc<dyn ObjectStore>,
    world: &'a World,
    prefix: String,
    /// Keys that may exist.
    keys: Mutex<BTreeSet<String>>,
    uploads: Mutex<Vec<Upload>>,
}

/// Why a capability is not there, or how it is.
type Probed = Result<String, (Outcome, String)>;

fn fails<T>(text: impl Into<String>) -> Result<T, (Outcome, String)> {
    Err((Outcome::Fails, text.into()))
}

fn failed(error: &StoreError) -> (Outcome, String) {
    (Outcome::Fails, error.to_string())
}

/// Probes the store. An error says why the store could not be read or written, so that nothing was found out.
pub fn examine(store: &Arc<dyn ObjectStore>, world: &World) -> Result<Diagnosis, String> {
    let prefix = format!("doctor-{:016x}", world.random.next_u64());
    let probe = Probe { store, world, prefix, keys: Mutex::default(), uploads: Mutex::default() };
    let mut findings = vec![probe.place()?];
    let mut add = |what: &'static str, probed: Probed| {
        let is_there = probed.is_ok();
        let (outcome, text) = match probed {
            Ok(text) => (Outcome::Works, text),
            Err(other) => other,
        };
        findings.push(Finding { what, outcome, text });
        is_there
    };
    let put = probe.put();
    if let Err((_, why)) = &put {
        let left = probe.clean_up();
        let left = left.err().map_or(String::new(), |(_, why)| format!("; {why}"));
        return Err(format!("{} cannot be written to: {why}{left}", store.describe()));
    }
    add("put", put);
    add("get", probe.get());
    add("range", probe.range());
    add("head", probe.head());
    add("put if absent", probe.put_if_absent());
    add("one of several", probe.rivals());
    add("put if match", probe.put_if_match());
    add("list", probe.list());
    add("parts", probe.parts());
    add("delete", probe.delete());
    add("clock", probe.clock());
    add("latency", probe.latency());
    add("left behind", probe.clean_up());
    Ok(Diagnosis { findings })
}

impl Probe<'_> {
    /// A key that is removed at the end.
    fn key(&self, name: &str) -> String {
        let key = format!("{}/{name}", self.prefix);
        self.keys.lock().insert(key.clone());
        key
    }

    /// The answer of the store, if it gives one in a few attempts.
    fn ask<T>(&self, request: impl Fn() -> Result<T, StoreError>) -> Result<T, StoreError> {
        let mut last = request();
        for _ in 1..TRIES {
            match &last {
                Err(
                    StoreError::Unavailable { .. }
                    | StoreError::Unknown { .. }
                    | StoreError::Throttled { .. },
                ) => {
                    last = request();
                }
                _ => break,
            }
        }
        last
    }

    /// Puts a new object; a conflict after a lost reply is with ourselves.
    fn put_new(&self, key: &str, body: &Bytes) -> Result<(), StoreError> {
        let in_doubt = Mutex::new(false);
        self.ask(|| match self.store.put_if_absent(purpose(), key, std::slice::from_ref(body)) {
            Ok(_) => Ok(()),
            Err(StoreError::Conflict { .. }) if *in_doubt.lock() => Ok(()),
            Err(error) => {
                *in_doubt.lock() |= matches!(error, StoreError::Unknown { .. });
                Err(error)
            }
        })
    }

    fn read(&self, key: &str) -> Result<(Vec<u8>, terrace_io::store::Version), StoreError> {
        self.ask(|| self.store.get(purpose(), key))
    }

    /// What the place is used for.
    fn place(&self) -> Result<Finding, String> {
        let text = match self.ask(|| self.store.get(purpose(), fence::KEY)) {
            Ok((bytes, _)) => EpochContent::read(&bytes).map_or(
                "an instance, whose epoch object is damaged".into(),
                |held| {
                    let who = holder::of(&**self.store, &held.writer);
                    let who = who.map_or(String::new(), |who| format!(" ({who})"));
                    format!("instance {:032x}, writer epoch {}{who}", held.writer.instance, held.writer.epoch)
                },
            ),
            Err(StoreError::Absent { .. }) => {
                let mut backups = 0;
                let listed = self.store.list_folder(purpose(), FOLDER, &mut |one| {
                    backups += u64::from(matches!(one, Listed::Folder(_)));
                });
                match (listed, backups) {
                    (Err(error), _) => format!("no instance; it cannot be listed: {error}"),
                    (Ok(()), 0) => "no instance and no backups".to_string(),
                    (Ok(()), backups) => format!("a repository of {backups} backups"),
                }
            }
            Err(error) => return Err(format!("{} cannot be read: {error}", self.store.describe())),
        };
        Ok(Finding { what: "place", outcome: Outcome::Note, text })
    }

    fn body(&self) -> Bytes {
        let words = (0..8192_u64).flat_map(|n| (n.wrapping_mul(0x9E37_79B9_7F4A_7C15)).to_le_bytes());
        Bytes::from(words.collect::<Vec<u8>>())
    }

    fn put(&self) -> Probed {
        self.put_new(&self.key("object"), &self.body()).map_err(|error| failed(&error))?;
        Ok("an object of 64 KiB was put".into())
    }

    fn get(&self) -> Probed {
        let (found, _) = self.read(&self.key("object")).map_err(|error| failed(&error))?;
        if found != self.body() {
            return fails(format!(
                "other bytes come back than were put ({} of {})",
                found.len(),
                self.body().len()
            ));
        }
        match self.read(&self.key("never-put")) {
            Err(StoreError::Absent { .. }) => {
                Ok("the same bytes come back; what was never put is absent".into())
            }
            Ok(_) => fails("an object comes back that was never put"),
            Err(error) => fails(format!("an object that was never put is not told as absent: {error}")),
        }
    }

    fn range(&self) -> Probed {
        let (key, body) = (self.key("object"), self.body());
        for (from, len) in [(0, 512), (16_384, 16_384), (65_000, 536)] {
            let mut part = vec![0; len];
            let read = || {
                let mut part = vec![0; len];
                self.store.get_range(purpose(), &key, from as u64, &mut part).map(|()| part)
            };
            part.copy_from_slice(&self.ask(read).map_err(|error| failed(&error))?);
            if part != body[from..from + len] {
                return fails(format!(
                    "the range of {len} bytes from {from} on has other bytes than the object"
                ));
            }
        }
        let mut past = vec![0; 1024];
        match self.store.get_range(purpose(), &key, 65_000, &mut past) {
            Ok(()) => fails("a range past the end of an object is answered as if it were there"),
            Err(_) => Ok("ranges are read; one past the end is refused".into()),
        }
    }

    fn head(&self) -> Probed {
        let key = self.key("object");
        let (length, version) =
            self.ask(|| self.store.head(purpose(), &key)).map_err(|error| failed(&error))?;
        let (_, read) = self.read(&key).map_err(|error| failed(&error))?;
        if length != self.body().len() as u64 {
            return fails(format!("it says {length} bytes of an object of {}", self.body().len()));
        }
        match version == read {
            true => Ok("length and version agree with the object".into()),
            false => fails("it names another version than a read does"),
        }
    }

    fn put_if_absent(&self) -> Probed {
        let (key, other) = (self.key("object"), Bytes::from_static(b"another"));
        match self.ask(|| self.store.put_if_absent(purpose(), &key, std::slice::from_ref(&other))) {
            Err(StoreError::Conflict { .. }) => {}
            Ok(_) => {
                return self
                    .without("an object that exists is replaced although the put says only if absent");
            }
            Err(error) => return self.without(&error.to_string()),
        }
        match self.read(&key) {
            Ok((found, _)) if found == self.body() => {
                Ok("refused where an object exists, which stays".into())
            }
            Ok(_) => fails("it is refused where an object exists, and replaces it all the same"),
            Err(error) => Err(failed(&error)),
        }
    }

    /// Conditional puts do not work.
    fn without(&self, why: &str) -> Probed {
        let text = format!(
            "{why}: nothing keeps a second instance from taking this place; the writer epoch in each key keeps their objects apart"
        );
        Err((Outcome::Weaker, text))
    }

    /// Several put one key at the same time. With a lost reply it is not known who won: then another key is taken.
    fn rivals(&self) -> Probed {
        let bodies: Vec<Bytes> = (0..RIVALS).map(|n| Bytes::from(vec![n as u8 + 1; 32])).collect();
        for round in 0..ROUNDS {
            let key = self.key(&format!("rivals-{round}"));
            let put = |body: &Bytes| self.store.put_if_absent(purpose(), &key, std::slice::from_ref(body));
            let answers = match self.store.parallel_max() > 1 {
                true => side_by_side(&bodies, put),
                false => bodies.iter().map(put).collect(),
            };
            let in_doubt =
                |answer: &Result<_, StoreError>| answer.as_ref().is_err_and(|error| !error.is_answer());
            if answers.iter().any(in_doubt) {
                continue;
            }
            let won: Vec<usize> = (0..RIVALS).filter(|n| answers[*n].is_ok()).collect();
            let (found, _) = self.read(&key).map_err(|error| failed(&error))?;
            return match (bodies.iter().position(|body| *body == found), &won[..]) {
                (None, _) => fails("of several puts of one key at the same time none is there whole"),
                (Some(kept), [one]) if *one == kept => {
                    Ok(format!("of {RIVALS} puts of one key at the same time one succeeds"))
                }
                (_, won) => self
                    .without(&format!("{} of {RIVALS} puts of one key at the same time succeed", won.len())),
            };
        }
        fails("puts of one key at the same time have no answer")
    }

    fn put_if_match(&self) -> Probed {
        let key = self.key("match");
        self.put_new(&key, &Bytes::from_static(b"first")).map_err(|error| failed(&error))?;
        let (_, first) = self.read(&key).map_err(|error| failed(&error))?;
        let second = self.ask(|| match self.store.put_if_match(purpose(), &key, b"second", &first) {
            // The reply may have been lost, the effect not.
            Err(StoreError::Conflict { .. }) => match self.store.get(purpose(), &key)? {
                (found, _) if found == b"second" => Ok(()),
                _ => Err(StoreError::Conflict { key: key.clone() }),
            },
            other => other.map(|_| ()),
        });
        if let Err(error) = second {
            return self.without(&format!("replacing the version that is there: {error}"));
        }
        match self.ask(|| self.store.put_if_match(purpose(), &key, b"third", &first)) {
            Err(StoreError::Conflict { .. }) => {}
            Ok(_) => return self.without("an object is replaced although the put names an older version"),
            Err(error) => return self.without(&error.to_string()),
        }
        match self.read(&key) {
            Ok((found, _)) if found == b"second" => {
                Ok("the version that is there is replaced, an older one is refused; a read sees it at once"
                    .into())
            }
            Ok(_) => fails("a read after a replacement sees other bytes"),
            Err(error) => Err(failed(&error)),
        }
    }

    fn listed(&self, prefix: &str) -> Result<Vec<(String, u64)>, StoreError> {
        self.ask(|| {
            let mut found = Vec::new();
            self.store.list(purpose(), prefix, &mut |key, length| found.push((key.to_string(), length)))?;
            Ok(found)
        })
    }

    fn list(&self) -> Probed {
        let folder = format!("{}/list/", self.prefix);
        // Not in the order of their names.
        let names: Vec<String> = (0..LISTED).map(|n| format!("list/{:02x}/{n}", (n * 7) % LISTED)).collect();
        for (n, name) in names.iter().enumerate() {
            let body = Bytes::from(vec![b'x'; n + 1]);
            self.put_new(&self.key(name), &body).map_err(|error| failed(&error))?;
            let found = self.listed(&folder).map_err(|error| failed(&error))?;
            if !found.iter().any(|(key, length)| key.ends_with(&**name) && *length == n as u64 + 1) {
                return fails("an object that was just put is not listed with its length");
            }
            if found.len() != n + 1 {
                return fails(format!("{} of {} objects are listed", found.len(), n + 1));
            }
            if !found.is_sorted() {
                return fails("keys are not listed in their order");
            }
        }
        let gone = self.key(&names[LISTED / 2]);
        self.ask(|| self.store.delete(purpose(), &gone)).map_err(|error| failed(&error))?;
        let found = self.listed(&folder).map_err(|error| failed(&error))?;
        match found.iter().any(|(key, _)| *key == gone) {
            true => fails("an object that was deleted is still listed"),
            false => Ok(format!(
                "{LISTED} objects in order, each at once after its put, and no more after its deletion"
            )),
        }
    }

    /// For `terrace files` only.
    fn parts(&self) -> Probed {
        let key = self.key("parts");
        match self.upload(&key) {
            Ok(()) => {
                Ok("an upload in parts is whole at once, and one that is aborted leaves nothing".into())
            }
            Err(why) => {
                Err((Outcome::Weaker, format!("{why}: `terrace files` cannot write large files here")))
            }
        }
    }

    fn upload(&self, key: &str) -> Result<(), String> {
        let text = |error: StoreError| error.to_string();
        let begin = || {
            let upload = self.store.begin_upload(purpose(), key)?;
            self.uploads.lock().push(upload.clone());
            Ok(upload)
        };
        let upload = self.ask(begin).map_err(text)?;
        let bodies = [Bytes::from(vec![b'p'; PART]), Bytes::from_static(b"end")];
        let mut parts = Vec::new();
        for (number, body) in bodies.iter().enumerate() {
            let offset = (number * PART) as u64;
            let put = || self.store.put_part(purpose(), &upload, number as u32, offset, body);
            parts.push(self.ask(put).map_err(text)?);
        }
        match self.read(key) {
            Err(StoreError::Absent { .. }) => {}
            Ok(_) => return Err("an upload is seen before it is complete".into()),
            Err(error) => return Err(error.to_string()),
        }
        self.ask(|| match self.store.complete_upload(purpose(), &upload, &parts) {
            // The reply may have been lost, the effect not.
            Err(error) if !error.is_answer() && self.store.head(purpose(), key).is_ok() => Ok(()),
            other => other.map(|_| ()),
        })
        .map_err(text)?;
        self.uploads.lock().retain(|one| *one != upload);
        let read = || {
            let mut seam = vec![0; 6];
            self.store.get_range(purpose(), key, PART as u64 - 3, &mut seam).map(|()| seam)
        };
        if self.ask(read).map_err(text)? != b"pppend" {
            return Err("an upload has other bytes than its parts".into());
        }
        let again = self.ask(begin).map_err(text)?;
        self.ask(|| self.store.abort_upload(purpose(), &again)).map_err(text)?;
        self.uploads.lock().retain(|one| *one != again);
        Ok(())
    }

    fn delete(&self) -> Probed {
        let key = self.key("object");
        self.ask(|| self.store.delete(purpose(), &key)).map_err(|error| failed(&error))?;
        match self.read(&key) {
            Err(StoreError::Absent { .. }) => {}
            Ok(_) => return fails("an object is still read after its deletion"),
            Err(error) => return Err(failed(&error)),
        }
        match self.ask(|| self.store.delete(purpose(), &key)) {
            Ok(()) => Ok("what is deleted is absent at once; deleting it again is no error".into()),
            Err(error) => fails(format!("deleting what is absent: {error}")),
        }
    }

    /// The time at which the store says that an object was put, against ours.
    fn clock(&self) -> Probed {
        let key = self.key("clock");
        let before = self.world.clock.unix_ms() as i64;
        self.put_new(&key, &Bytes::from_static(b"tick")).map_err(|error| failed(&error))?;
        let after = self.world.clock.unix_ms() as i64;
        let listed = self.ask(|| {
            let mut put_at = None;
            self.store.list_folder(purpose(), &self.prefix, &mut |one| match one {
                Listed::Object { key: found, modified_ms, .. } if found == key && modified_ms > 0 => {
                    put_at = Some(modified_ms as i64);
                }
                _ => {}
            })?;
            Ok(put_at)
        });
        let Some(put_at) = listed.map_err(|error| failed(&error))? else {
            return Err((Outcome::Note, "the store does not say when an object was put".into()));
        };
        // Stores tell seconds.
        let skew = if put_at < before - 1000 { put_at - before } else { (put_at - after).max(0) };
        match skew.abs() > SKEW_MAX {
            false => Ok(format!("{:.0} s from this machine's", skew as f64 / 1000.0)),
            true => Err((
                Outcome::Weaker,
                format!(
                    "{:.0} s from this machine's: providers refuse requests that are signed so far off",
                    skew as f64 / 1000.0
                ),
            )),
        }
    }

    fn latency(&self) -> Probed {
        let clock = &self.world.clock;
        let body = self.body();
        let time = |request: &dyn Fn(usize) -> Result<(), StoreError>| -> Result<(Nanos, Nanos), StoreError> {
            let mut times = Vec::new();
            for n in 0..TIMED {
                let since = clock.now();
                request(n)?;
                times.push(clock.now() - since);
            }
            times.sort_unstable();
            Ok((times[TIMED / 2], times[TIMED - 1]))
        };
        let key = |n: usize| self.key(&format!("time/{n}"));
        let put = time(&|n| self.put_new(&key(n), &body)).map_err(|error| failed(&error))?;
        let get = time(&|n| {
            self.ask(|| {
                let mut page = vec![0; 16_384];
                self.store.get_range(purpose(), &key(n), 16_384, &mut page)
            })
        });
        let get = get.map_err(|error| failed(&error))?;
        let ms = |nanos: Nanos| nanos as f64 / 1e6;
        Ok(format!(
            "put of 64 KiB {:.1} ms (longest {:.1}), get of 16 KiB {:.1} ms (longest {:.1}), medians of {TIMED}",
            ms(put.0),
            ms(put.1),
            ms(get.0),
            ms(get.1)
        ))
    }

    fn clean_up(&self) -> Probed {
        let mut kept = Vec::new();
        for upload in std::mem::take(&mut *self.uploads.lock()) {
            if self.ask(|| self.store.abort_upload(purpose(), &upload)).is_err() {
                kept.push(format!("an upload of {}", upload.key));
            }
        }
        for key in std::mem::take(&mut *self.keys.lock()) {
            if let Err(error) = self.ask(|| self.store.delete(purpose(), &key)) {
                kept.push(format!("{key} ({error})"));
            }
        }
        match self.listed(&format!("{}/", self.prefix)) {
            Ok(found) => kept.extend(found.into_iter().map(|(key, _)| key)),
            Err(error) if kept.is_empty() => {
                kept.push(format!("whether anything is below {}: {error}", self.prefix))
            }
            Err(_) => {}
        }
        match kept.first() {
            None => Ok("nothing".into()),
            Some(first) => fails(format!("{} of the probe's objects: {first}", kept.len())),
        }
    }
}

#[cfg(test)]
mod tests;
