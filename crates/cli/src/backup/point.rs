//! `terrace restore --at`: a backup, brought to a point by the archived log.

use super::{Restore, definitions, find, mib, store, tell};
use crate::instance::Fault;
use crate::{exit, output};
use clap::Args;
use serde_json::json;
use std::sync::Arc;
use terrace_engine::calendar::{self, milliseconds};
use terrace_engine::offline::backup::attach::Attach;
use terrace_engine::offline::backup::point::{Goal, Point, choose, replay, settle};
use terrace_engine::offline::backup::restore::{Way, restore_for};
use terrace_engine::{Error, Parts};
use terrace_io::disk::Disk;
use terrace_io::real::disk::RealDisk;
use terrace_io::real::world;

/// Where to, and what leads there.
#[derive(Args)]
pub struct To {
    /// The point to restore: a time in UTC ('2026-11-20 10:00:00', milliseconds are allowed), a position of the log (a number), or latest
    #[arg(long, value_parser = point, requires = "archive")]
    pub at: Option<Point>,
    /// The object store in which the log is archived: that of the instance that was backed up
    #[arg(long, requires = "at")]
    archive: Option<String>,
    /// URL of its server, if it is not the provider's own
    #[arg(long, requires = "archive")]
    archive_endpoint: Option<String>,
}

fn point(text: &str) -> Result<Point, String> {
    if text == "latest" {
        return Ok(Point::Latest);
    }
    if let Ok(position) = text.parse() {
        return Ok(Point::Glsn(position));
    }
    let time = calendar::parse(text).map(Point::At);
    time.ok_or_else(|| {
        format!("{text} is no time, as '2026-11-20 10:00:00' (UTC), no position of the log, and not latest")
    })
}

/// Returns the exit code.
pub fn restore(command: &Restore) -> Result<u8, Fault> {
    let Restore { place, name, volume, object, object_endpoint, attach, attach_rate, to, .. } = command;
    command.definitions.as_deref().map(definitions::check_place).transpose()?;
    let (Some(at), Some(url)) = (to.at, &to.archive) else {
        return Err(Error::Invalid("--at needs --archive".into()).into());
    };
    let repository = place.open(!attach)?;
    let archive = store(url, to.archive_endpoint.as_deref(), true)?;
    let disk = RealDisk::open(volume).map_err(|error| Error::Invalid(format!("{volume}: {error}")))?;
    let disk: Arc<dyn Disk> = Arc::new(disk);
    let unfinished = replay::unfinished(&*disk)?;
    let (goal, manifest, time) = match &unfinished {
        // It goes on to where it meant to.
        Some(goal) => {
            let same = match at {
                Point::Latest => true,
                _ => choose(&repository, &*archive, Some(&goal.backup), at, &milliseconds)?.upto == goal.upto,
            };
            if !same {
                let what = format!(
                    "{volume} is being brought to another point, {}: repeat that command, or empty the directory and its object store",
                    goal.upto
                );
                return Err(Error::Invalid(what).into());
            }
            (goal.clone(), find(&repository, Some(&goal.backup))?, None)
        }
        None => {
            let chosen = choose(&repository, &*archive, name.as_deref(), at, &milliseconds)?;
            let time = (!matches!(at, Point::Glsn(_))).then_some(chosen.reached_ms);
            (Goal::of(&chosen), chosen.manifest, time)
        }
    };
    let segment = goal.segment(&*archive)?;
    let own = object.as_deref().map(|url| store(url, object_endpoint.as_deref(), false)).transpose()?;
    let endpoint = place.repository_endpoint.clone();
    let attach = attach.then(|| Attach { endpoint, rate: attach_rate.unwrap_or(0) });
    if unfinished.is_none() {
        let way = Way { attach: attach.as_ref(), goal: Some(&goal) };
        let random = world().random;
        restore_for(&repository, &manifest, (&disk, own.as_ref()), &*random, &way, &mut output::progress)?;
    }
    let parts = Parts { world: world(), volume: disk, flash: None, store: own };
    let done = replay::replay(&parts, &goal, &segment, &*archive, &mut output::progress)?;
    let settled = settle::settle(&parts)?;
    let defined = command.define()?;
    let value = json!({
        "definitions": defined.as_ref().map(definitions::Written::json), "name": manifest.name, "position": done.end, "time_ms": time, "ranges": done.ranges, "bytes": done.bytes,
        "rolled_back": settled.rolled_back, "prepared": settled.prepared.len(),
    });
    let reached = time.map_or(String::new(), |ms| format!(", all that was done by {}", milliseconds(ms)));
    let mut lines = format!(
        "backup          {}, whose log ends at {}\n\
         replayed        {} mini-transactions, {} of changes\n\
         point           position {}{reached}\n\
         rolled back     {} transactions that had not committed",
        manifest.name,
        goal.base,
        done.ranges,
        mib(done.bytes),
        done.end,
        settled.rolled_back,
    );
    if !settled.prepared.is_empty() {
        lines +=
            &format!("\nprepared        {} transactions of clients (XA RECOVER)", settled.prepared.len());
    }
    lines +=
        "\ninstance        of its own: start a server on this volume and this object store, and back it up";
    lines += &defined.as_ref().map_or(String::new(), |one| format!("\n{}", one.lines()));
    tell(place.json, &value, &lines);
    Ok(defined.map_or(exit::SOUND, |one| one.exit()))
}
