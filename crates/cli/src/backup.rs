//! `terrace backup`, `terrace restore` and `terrace snapshot`: backups of copied or stopped volumes with their objects, in a directory or a
//! bucket, and the snapshots that protect the objects of a copy. `docs/backup.md` is the page for operators.

use crate::instance::{self, Fault};
use crate::location::Location;
use crate::{exit, output};
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use std::sync::Arc;
use terrace_engine::Error;
use terrace_engine::calendar::{seconds as time, utc};
use terrace_engine::offline::backup::attach::{Attach, Reference};
use terrace_engine::offline::backup::manifest::Manifest;
use terrace_engine::offline::backup::point as engine_point;
use terrace_engine::offline::backup::{Repository, create, prune, restore, verify};
use terrace_engine::offline::instance::OfflineInstance;
use terrace_io::disk::Disk;
use terrace_io::object;
use terrace_io::real::disk::RealDisk;
use terrace_io::real::world;
use terrace_io::store::ObjectStore;
use terrace_tier::objects::snapshots;

pub mod definitions;
mod point;

pub const AFTER_HELP: &str = "A backup is made of a volume that does not change: the copy that a running server made of its own (SET GLOBAL \
                              terrace_copy_to, or mariabackup), or the volume of a stopped one.\n\nExit codes: 0 done; 1 the backup is damaged or incomplete, \
                              or objects are missing; 2 wrong usage, or a place cannot be used";

/// Where backups are.
#[derive(Args)]
pub struct Place {
    /// Where the backups are: a directory, s3://bucket/prefix, gs://… or az://…
    #[arg(long)]
    repository: String,
    /// URL of the repository's server, if it is not the provider's own
    #[arg(long)]
    repository_endpoint: Option<String>,
    /// Bytes a second that are copied to or from it at most, as 50M
    #[arg(long, value_parser = rate)]
    rate: Option<u64>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Place {
    fn open(&self, read_only: bool) -> Result<Repository, Fault> {
        let store = store(&self.repository, self.repository_endpoint.as_deref(), read_only)?;
        let repository = Repository::open(store)?;
        Ok(match self.rate {
            Some(rate) => repository.paced(world(), rate),
            None => repository,
        })
    }
}

#[derive(Subcommand)]
pub enum Backup {
    /// Make a backup of a copied or stopped volume and the objects that it names
    Create {
        #[command(flatten)]
        place: Place,
        /// The volume: the copy's directory, or that of a stopped instance
        #[arg(long)]
        volume: String,
        /// The object store of the instance, if it has one
        #[arg(long)]
        object: Option<String>,
        /// URL of its server, if it is not the provider's own
        #[arg(long)]
        object_endpoint: Option<String>,
        /// The backup's name; by default the time, as 20261128T173000Z
        #[arg(long)]
        name: Option<String>,
        /// Leave the copy's snapshot in the object store: the copy can then be backed up elsewhere, too
        #[arg(long)]
        keep_snapshot: bool,
    },
    /// Read a whole backup back and check it
    Verify {
        #[command(flatten)]
        place: Place,
        /// By default the newest
        #[arg(long)]
        name: Option<String>,
        /// Also read the archived log that leads on from it, in the object store of the instance that was backed up
        #[arg(long)]
        archive: Option<String>,
        /// URL of its server, if it is not the provider's own
        #[arg(long, requires = "archive")]
        archive_endpoint: Option<String>,
    },
    /// The backups of a repository
    List {
        #[command(flatten)]
        place: Place,
    },
    /// Remove all but the newest backups, and objects that none of them names. A backup that an attached instance reads stays
    #[command(group(clap::ArgGroup::new("what").required(true).multiple(true)))]
    Prune {
        #[command(flatten)]
        place: Place,
        /// How many stay, at least; 1 without it
        #[arg(long, group = "what")]
        keep: Option<usize>,
        /// Those stay, too, that are not older than this many days
        #[arg(long, group = "what")]
        keep_days: Option<u64>,
    },
    /// Forget an attached instance that is lost, so that its backup can be removed
    Forget {
        #[command(flatten)]
        place: Place,
        /// As `list` prints it
        #[arg(long)]
        instance: String,
    },
    /// Remove the lock of a command that does not run any more
    Unlock {
        #[command(flatten)]
        place: Place,
    },
}

#[derive(Args)]
pub struct Restore {
    #[command(flatten)]
    place: Place,
    /// By default the newest; with --at the newest from which the point can be reached
    #[arg(long)]
    name: Option<String>,
    /// An empty directory, which becomes the volume
    #[arg(long)]
    volume: String,
    /// An empty place, which becomes the object store
    #[arg(long)]
    object: Option<String>,
    /// URL of its server, if it is not the provider's own
    #[arg(long)]
    object_endpoint: Option<String>,
    /// Leave the objects in the repository: the server reads them there, and copies them while it runs
    #[arg(long)]
    attach: bool,
    /// Bytes a second at which the server copies them, as 50M; by default as fast as they come
    #[arg(long, requires = "attach", value_parser = rate)]
    attach_rate: Option<u64>,
    /// The data directory of the restored server, into which the definitions are written that the instance keeps
    #[arg(long, value_name = "DIR")]
    definitions: Option<String>,
    #[command(flatten)]
    to: point::To,
}

impl Restore {
    /// Writes the definitions, if they are asked for.
    fn define(&self) -> Result<Option<definitions::Written>, Fault> {
        let Some(into) = &self.definitions else { return Ok(None) };
        let (object, object_endpoint) = (self.object.clone(), self.object_endpoint.clone());
        let location = Location { object, object_endpoint, ..Location::of_volume(&self.volume) };
        let write = definitions::write(&location, into).map(Some);
        write.map_err(|fault| Fault {
            message: format!(
                "the instance was restored, but its definitions were not written (terrace definitions does that alone): {}",
                fault.message
            ),
            ..fault
        })
    }
}

fn rate(text: &str) -> Result<u64, String> {
    let (digits, unit) = text.split_at(text.trim_end_matches(['K', 'M', 'G']).len());
    let shift = match unit {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        _ => return Err(format!("{text} is not a number with K, M or G")),
    };
    let found = digits.parse::<u64>().ok().and_then(|n| n.checked_mul(1 << shift)).filter(|n| *n > 0);
    found.ok_or_else(|| format!("{text} is not a number of bytes above 0, as 50M"))
}

#[derive(Args)]
pub struct Store {
    /// The object store of an instance
    #[arg(long)]
    object: String,
    /// URL of its server, if it is not the provider's own
    #[arg(long)]
    object_endpoint: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Subcommand)]
pub enum Snapshot {
    /// The snapshots that keep superseded objects in an object store
    List(Store),
    /// Remove a snapshot: the server deletes within minutes what only it named
    Remove {
        #[command(flatten)]
        store: Store,
        /// As `list` prints it
        #[arg(long)]
        id: String,
    },
}

fn store(url: &str, endpoint: Option<&str>, read_only: bool) -> Result<Arc<dyn ObjectStore>, Fault> {
    let endpoint = endpoint.map(str::to_string);
    let settings = object::Settings { endpoint, read_only, ..object::Settings::new(url) };
    object::open(&settings).map_err(|error| Fault::new(exit::UNUSABLE, error.to_string()))
}

fn name_of(ms: u64) -> String {
    let (year, month, day, hour, minute, second) = utc(ms);
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z")
}

fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / 1_048_576.0)
}

/// As JSON, or as lines for people.
fn tell(as_json: bool, value: &Value, lines: &str) {
    output::end_progress();
    if as_json { output::text(&format!("{value:#}")) } else { output::text(lines) }
}

/// The backup of the name, or the newest.
fn find(repository: &Repository, name: Option<&str>) -> Result<Manifest, Fault> {
    if let Some(name) = name {
        return Ok(repository.complete(name)?);
    }
    let none = || Error::Invalid(format!("there is no complete backup in {}", repository.store.describe()));
    Ok(repository.list()?.0.pop().ok_or_else(none)?)
}

/// Returns the exit code.
pub fn run(command: &Backup) -> Result<u8, Fault> {
    match command {
        Backup::Create { place, volume, object, object_endpoint, name, keep_snapshot } => {
            let source =
                object.as_deref().map(|url| store(url, object_endpoint.as_deref(), false)).transpose()?;
            let location = Location::of_volume(volume);
            let opened: OfflineInstance = instance::open(&location)?.look;
            let repository = place.open(false)?;
            let now = world().clock.unix_ms();
            let name = name.clone().unwrap_or_else(|| name_of(now));
            let made =
                create::create(&opened, source.as_ref(), &repository, &name, now, &mut output::progress)?;
            let manifest = &made.manifest;
            let released = match (&made.snapshot, &source) {
                (Some(snapshot), Some(source)) if !keep_snapshot => {
                    snapshots::remove(&**source, snapshot.id).map_err(Error::from)?
                }
                _ => false,
            };
            let value = json!({
                "name": name, "objects": manifest.objects.len(), "object_bytes": manifest.object_bytes(),
                "volume_bytes": manifest.volume_bytes(), "copied_objects": made.copied, "copied_bytes": made.copied_bytes,
                "copied_within": made.copied_within,
                "snapshot_removed": released,
            });
            let mut lines = format!(
                "backup          {name} in {}\n\
                 volume          {}\n\
                 objects         {} of {}; {} of {} were copied now, the others were there",
                repository.store.describe(),
                mib(manifest.volume_bytes()),
                manifest.objects.len(),
                mib(manifest.object_bytes()),
                made.copied,
                mib(made.copied_bytes),
            );
            if made.copied_within > 0 {
                lines += &format!(
                    "\n                {} of them by the store itself: terrace backup verify reads them",
                    made.copied_within
                );
            }
            if released {
                lines +=
                    "\nsnapshot        removed: the copy's directory is of no more use, and can be deleted";
            } else if made.snapshot.is_some() {
                lines += "\nsnapshot        kept: its objects stay in the object store (terrace snapshot)";
            }
            tell(place.json, &value, &lines);
            Ok(exit::SOUND)
        }
        Backup::Verify { place, name, archive, archive_endpoint } => {
            let repository = place.open(true)?;
            let manifest = find(&repository, name.as_deref())?;
            let found = verify::verify(&repository, &manifest, &mut output::progress)?;
            let archive =
                archive.as_deref().map(|url| store(url, archive_endpoint.as_deref(), true)).transpose()?;
            let followed = archive
                .map(|archive| engine_point::follow(&manifest, &*archive, &mut output::progress))
                .transpose()?;
            let mut faults = found.faults;
            let log = followed.as_ref().map(|log| {
                json!({"stretches": log.stretches, "bytes": log.bytes, "end": log.end, "until_ms": log.until_ms})
            });
            let (sound, name) = (
                faults.is_empty() && followed.as_ref().is_none_or(|log| log.faults.is_empty()),
                &manifest.name,
            );
            let log_line = followed.as_ref().map(|log| match log.until_ms {
                0 => "\narchived log    nothing from the end of this backup on".to_string(),
                until => format!(
                    "\narchived log    {} stretches, {}, up to {} and position {}",
                    log.stretches,
                    mib(log.bytes),
                    time(until),
                    log.end
                ),
            });
            faults.extend(followed.into_iter().flat_map(|log| log.faults));
            let value = json!({
                "name": name, "sound": sound, "objects": found.objects, "chunks": found.chunks, "bytes": found.bytes,
                "faults": faults, "log": log,
            });
            let mut lines = format!(
                "backup          {name}, made {}\nread            {} objects and {} chunks of the volume, {}",
                time(manifest.made_ms),
                found.objects,
                found.chunks,
                mib(found.bytes)
            );
            lines += &log_line.unwrap_or_default();
            faults.iter().for_each(|fault| lines += &format!("\nfault           {fault}"));
            lines += if sound { "\nsound" } else { "\nDAMAGED" };
            tell(place.json, &value, &lines);
            Ok(if sound { exit::SOUND } else { exit::FAULTS })
        }
        Backup::List { place } => {
            let repository = place.open(true)?;
            let (complete, others) = repository.list()?;
            let backups: Vec<Value> = complete
                .iter()
                .map(|one| {
                    json!({
                        "name": one.name, "made_ms": one.made_ms, "objects": one.objects.len(),
                        "object_bytes": one.object_bytes(), "volume_bytes": one.volume_bytes(),
                    })
                })
                .collect();
            let mut lines = Vec::new();
            for one in &complete {
                let (objects, volume) = (mib(one.object_bytes()), mib(one.volume_bytes()));
                let made = time(one.made_ms);
                lines.push(format!(
                    "{:<24} {made}  volume {volume}, {} objects of {objects}",
                    one.name,
                    one.objects.len()
                ));
            }
            lines.extend(others.iter().map(|name| format!("{name:<24} not complete")));
            if lines.is_empty() {
                lines.push(format!("no backup in {}", repository.store.describe()));
            }
            let references = repository.references()?;
            lines.extend(references.iter().map(|one| {
                format!(
                    "{:<24} is read by instance {:032x}, which is attached to it",
                    one.backup, one.instance
                )
            }));
            let attached: Vec<Value> = references.iter().map(reference).collect();
            let value = json!({"backups": backups, "incomplete": others, "attached": attached});
            tell(place.json, &value, &lines.join("\n"));
            Ok(exit::SOUND)
        }
        Backup::Prune { place, keep, keep_days } => {
            let newest = keep.unwrap_or(1);
            let keep = match keep_days {
                Some(days) => prune::Keep::of_days(newest, *days, world().clock.unix_ms()),
                None => prune::Keep::newest(newest),
            };
            let done = prune::prune(&place.open(false)?, keep, &mut output::progress)?;
            let value = json!({
                "backups": done.backups, "incomplete": done.incomplete, "objects": done.objects, "bytes": done.bytes,
                "attached": done.attached.iter().map(reference).collect::<Vec<_>>(),
            });
            let mut lines: Vec<String> =
                done.backups.iter().map(|name| format!("removed         {name}")).collect();
            lines.extend(
                done.incomplete.iter().map(|name| format!("removed         {name}, which was not complete")),
            );
            lines.extend(done.attached.iter().map(|one| {
                format!(
                    "kept            {}, because instance {:032x} is attached to it",
                    one.backup, one.instance
                )
            }));
            lines.push(format!("objects         {} of {} removed", done.objects, mib(done.bytes)));
            tell(place.json, &value, &lines.join("\n"));
            Ok(exit::SOUND)
        }
        Backup::Forget { place, instance } => {
            let id = u128::from_str_radix(instance, 16)
                .map_err(|_| Error::Invalid(format!("{instance} is not an instance's id")))?;
            let removed = place.open(false)?.forget(id)?;
            let said = if removed { "forgotten" } else { "no such instance is attached" };
            tell(place.json, &json!({"removed": removed}), said);
            Ok(if removed { exit::SOUND } else { exit::UNUSABLE })
        }
        Backup::Unlock { place } => {
            let held = place.open(false)?.unlock()?;
            let said = held
                .as_ref()
                .map_or("there was no lock".to_string(), |held| format!("removed the lock: {held}"));
            tell(place.json, &json!({"removed": held}), &said);
            Ok(exit::SOUND)
        }
    }
}

fn reference(one: &Reference) -> Value {
    json!({"backup": one.backup, "instance": format!("{:032x}", one.instance)})
}

/// Returns the exit code.
pub fn restore(command: &Restore) -> Result<u8, Fault> {
    if command.to.at.is_some() {
        return point::restore(command);
    }
    let Restore { place, name, volume, object, object_endpoint, attach, attach_rate, .. } = command;
    command.definitions.as_deref().map(definitions::check_place).transpose()?;
    let repository = place.open(!attach)?;
    let endpoint = place.repository_endpoint.clone();
    let attach = attach.then(|| Attach { endpoint, rate: attach_rate.unwrap_or(0) });
    let manifest = find(&repository, name.as_deref())?;
    let store = object.as_deref().map(|url| store(url, object_endpoint.as_deref(), false)).transpose()?;
    let disk = RealDisk::open(volume).map_err(|error| Error::Invalid(format!("{volume}: {error}")))?;
    let disk: Arc<dyn Disk> = Arc::new(disk);
    let random = world().random;
    let (store_too, attached) = (store.as_ref(), attach.as_ref());
    let done = restore::restore(
        &repository,
        &manifest,
        &disk,
        store_too,
        &*random,
        attached,
        &mut output::progress,
    )?;
    let defined = command.define()?;
    let value = json!({
        "name": manifest.name, "instance": format!("{:032x}", done.instance), "objects": done.objects, "bytes": done.bytes,
        "definitions": defined.as_ref().map(definitions::Written::json),
    });
    let what = match attach.is_some() && done.objects > 0 {
        true => format!(
            "the volume; {} objects stay in the repository until the server has copied them",
            done.objects
        ),
        false => format!("{} objects and the volume", done.objects),
    };
    let mut lines = format!(
        "backup          {}, made {}\n\
         restored        {what}, {}\n\
         instance        {:032x}, of its own: start a server on this volume{}",
        manifest.name,
        time(manifest.made_ms),
        mib(done.bytes),
        done.instance,
        if store.is_some() { " and this object store" } else { "" }
    );
    lines += &defined.as_ref().map_or(String::new(), |one| format!("\n{}", one.lines()));
    tell(place.json, &value, &lines);
    Ok(defined.map_or(exit::SOUND, |one| one.exit()))
}

/// Returns the exit code.
pub fn snapshot(command: &Snapshot) -> Result<u8, Fault> {
    match command {
        Snapshot::List(Store { object, object_endpoint, json: as_json }) => {
            let store = store(object, object_endpoint.as_deref(), true)?;
            let found = snapshots::read(&*store).map_err(Error::from)?.0.snapshots;
            let list: Vec<Value> = found
                .iter()
                .map(|one| json!({"id": format!("{:032x}", one.id), "made_ms": one.made_ms, "epoch": one.epoch, "sequence": one.sequence}))
                .collect();
            let mut lines: Vec<String> = found
                .iter()
                .map(|one| {
                    format!(
                        "{:032x}  {}  up to object {:08x}-{:016x}",
                        one.id,
                        time(one.made_ms),
                        one.epoch,
                        one.sequence
                    )
                })
                .collect();
            if lines.is_empty() {
                lines.push(format!("no snapshot in {}", store.describe()));
            }
            tell(*as_json, &json!({"snapshots": list}), &lines.join("\n"));
            Ok(exit::SOUND)
        }
        Snapshot::Remove { store: Store { object, object_endpoint, json: as_json }, id } => {
            let id = u128::from_str_radix(id, 16)
                .map_err(|_| Error::Invalid(format!("{id} is not a snapshot's id")))?;
            let store = store(object, object_endpoint.as_deref(), false)?;
            let removed = snapshots::remove(&*store, id).map_err(Error::from)?;
            let said = if removed { "removed" } else { "there is no such snapshot" };
            tell(*as_json, &json!({"removed": removed}), said);
            Ok(if removed { exit::SOUND } else { exit::UNUSABLE })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::name_of;

    #[test]
    fn a_backup_is_named_after_its_time() {
        assert_eq!(name_of(1_795_887_015_000), "20261128T173015Z");
    }
}
