//! Pinning and unpinning: which files a path has is asked of the store; what `pins` decides is carried out.

use super::LISTED_MAX;
use super::client::{Client, Pending};
use super::serve::Decoded;
use crate::catalogue::Fault;
use crate::pins::{Next, PINS_MAX};
use crate::read::{Files, Outcome, Reply};
use crate::wire::{Fields, Malformed, Op, Put, check_path, put_fault, status as code};
use std::sync::Arc;
use terrace_io::clock::Nanos;
use terrace_io::store::Listed;

impl Files {
    /// Carries out what the pins decided.
    pub(super) fn hold(&self, next: Next) {
        let Next { reads, releases, ended } = next;
        if !reads.is_empty() || !releases.is_empty() {
            self.tell(|catalogue, now| {
                releases.into_iter().for_each(|block| catalogue.release(block));
                reads.into_iter().for_each(|read| catalogue.begin(read, now));
            });
        }
        for (client, request, result) in ended {
            let mut frames = Vec::new();
            match result {
                Ok(files) => drop(Put::new(&mut frames, request, code::OK).u64(files)),
                Err(fault) => put_fault(&mut frames, request, &fault),
            }
            self.reply(Reply { client, request, outcome: Outcome::Frames(frames) });
        }
    }

    /// The file of this path, or those below it, with their lengths.
    fn files_of(&self, path: &str) -> Result<Vec<(Arc<str>, u64)>, Fault> {
        match self.store.head(path) {
            Ok(meta) => return Ok(vec![(path.into(), meta.length)]),
            Err(Fault::Absent) => {}
            Err(fault) => return Err(fault),
        }
        let below = self.store.list(path, true, LISTED_MAX)?;
        let files = below.into_iter().filter_map(|listed| match listed {
            Listed::Object { key, length, .. } => Some((key.into(), length)),
            Listed::Folder(_) => None,
        });
        Ok(files.collect())
    }

    /// Once a second: pinned files that have to be looked at again.
    pub(super) fn look_at_pins(&self, now: Nanos) {
        let changes = self.tell(|catalogue, _| catalogue.counts.changed);
        self.hold(self.pins.look(changes, now));
        let Some(pins) = self.pins.unlisted(now) else { return };
        self.submit(Box::new(move |files| {
            let found: Result<Vec<_>, Fault> = pins.iter().map(|path| files.files_of(path)).collect();
            match found {
                Ok(found) => {
                    files.hold(files.pins.listed(found.into_iter().flatten().map(|(path, _)| path).collect()))
                }
                Err(_) => files.pins.not_listed(files.world.clock.now()),
            }
        }));
    }
}

pub fn pin(files: &Files, client: &mut Client, request: u64, op: Op, fields: &mut Fields<'_>) -> Decoded {
    if op == Op::Pins {
        fields.end()?;
        let names = files.pins.names();
        let mut frame = Put::new(&mut client.output, request, code::OK);
        frame.u32(names.len() as u32);
        names.iter().for_each(|name| {
            frame.text(name);
        });
        return Ok(());
    }
    let count = fields.count(4)?;
    if count == 0 || count > PINS_MAX {
        return Err(Malformed("it pins 1 to 1000 paths"));
    }
    let paths = (0..count).map(|_| fields.text().map(str::to_string)).collect::<Result<Vec<_>, _>>()?;
    fields.end()?;
    if let Err(fault) = paths.iter().try_for_each(|path| check_path(path)) {
        put_fault(&mut client.output, request, &fault);
        return Ok(());
    }
    if op == Op::Unpin {
        match files.pins.unpin(&paths) {
            Ok((released, next)) => {
                files.hold(next);
                Put::new(&mut client.output, request, code::OK).u64(released);
            }
            Err(fault) => put_fault(&mut client.output, request, &fault),
        }
        return Ok(());
    }
    client.pending.insert(request, Pending::Job);
    let id = client.id;
    files.submit(Box::new(move |files| {
        let found = paths.iter().map(|path| match files.files_of(path) {
            Ok(found) if found.is_empty() => {
                Err(Fault::Invalid(format!("`{path}` is neither a file nor a folder of files")))
            }
            found => found,
        });
        let found: Result<Vec<_>, Fault> = found.collect();
        let pinned = found
            .and_then(|found| files.pins.pin(&paths, found.into_iter().flatten().collect(), (id, request)));
        let failed = |fault| Next { ended: vec![(id, request, Err(fault))], ..Next::default() };
        files.hold(pinned.unwrap_or_else(failed));
    }));
    Ok(())
}
