//! `terrace clone`: a writable instance whose old objects stay in the store of the one that it was made of.

use crate::instance::{self, Fault};
use crate::location::Location;
use crate::{exit, output};
use clap::Args;
use serde_json::json;
use std::sync::Arc;
use terrace_engine::Error;
use terrace_engine::offline::clone;
use terrace_io::disk::Disk;
use terrace_io::object;
use terrace_io::real::disk::RealDisk;
use terrace_io::real::world;
use terrace_io::store::ObjectStore;

pub const AFTER_HELP: &str = "A clone is made of a volume that does not change: that of a stopped instance, or the copy that a running server made of its own \
                              (SET GLOBAL terrace_copy_to). The volume is copied, objects are not: a snapshot in the source's object store keeps those that \
                              the clone needs. Its id is the clone's; remove it (terrace snapshot remove) when the clone is deleted.\n\nExit codes: 0 done; \
                              1 the source is damaged; 2 wrong usage, or a place cannot be used";

#[derive(Args)]
pub struct Clone {
    /// The source's volume: that of a stopped instance, or a copy
    #[arg(long)]
    volume: String,
    /// The source's object store, if it has one
    #[arg(long)]
    object: Option<String>,
    /// URL of its server, if it is not the provider's own
    #[arg(long)]
    object_endpoint: Option<String>,
    /// An empty directory, which becomes the clone's volume
    #[arg(long)]
    to_volume: String,
    /// An empty place, which becomes the clone's object store
    #[arg(long)]
    to_object: Option<String>,
    /// URL of its server, if it is not the provider's own
    #[arg(long)]
    to_object_endpoint: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Returns the exit code.
pub fn run(command: &Clone) -> Result<u8, Fault> {
    let store = |url: &Option<String>, endpoint: &Option<String>| {
        let open = |url: &String| -> Result<Arc<dyn ObjectStore>, Fault> {
            let settings = object::Settings { endpoint: endpoint.clone(), ..object::Settings::new(url) };
            object::open(&settings).map_err(|error| Fault::new(exit::UNUSABLE, error.to_string()))
        };
        url.as_ref().map(open).transpose()
    };
    let look = instance::open(&Location::of_volume(&command.volume))?.look;
    let from = store(&command.object, &command.object_endpoint)?;
    let from = from.as_ref().map(|store| clone::Objects { store, endpoint: command.object_endpoint.clone() });
    let to = store(&command.to_object, &command.to_object_endpoint)?;
    let volume = &command.to_volume;
    let disk = RealDisk::open(volume).map_err(|error| Error::Invalid(format!("{volume}: {error}")))?;
    let disk: Arc<dyn Disk> = Arc::new(disk);
    let world = world();
    let made_ms = world.clock.unix_ms();
    let done = clone::clone(&look, from, &disk, to.as_ref(), &*world.random, made_ms, &mut output::progress)?;
    output::end_progress();
    let id = format!("{:032x}", done.instance);
    if command.json {
        let snapshot = done.snapshot.map(|id| format!("{id:032x}"));
        let value =
            json!({"instance": id, "objects": done.objects, "bytes": done.bytes, "copy_snapshot": snapshot});
        output::text(&format!("{value:#}"));
        return Ok(exit::SOUND);
    }
    let mut lines = format!(
        "volume          {:.1} MiB were copied\nobjects         {} stay in the source's object store, where snapshot {id} keeps them\n\
         instance        {id}, of its own: start a server on this volume and this object store",
        done.bytes as f64 / 1_048_576.0,
        done.objects
    );
    if let Some(copy) = done.snapshot {
        lines += &format!(
            "\nsnapshot        {copy:032x}, the copy's own, stays, too: the copy can be cloned again, or backed up"
        );
    }
    output::text(&lines);
    Ok(exit::SOUND)
}
