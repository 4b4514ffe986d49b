//! `terrace adopt`: a volume that was put back becomes the owner of its object store. The one command that changes an instance: it
//! says first what it will do, and asks.

use crate::instance::{Fault, Instance, change, open};
use crate::location::Location;
use crate::{exit, output};
use clap::Args;
use serde_json::json;
use std::io::{BufRead, IsTerminal, Write};
use std::path::Path;
use std::time::SystemTime;
use terrace_engine::Error;
use terrace_engine::offline::adopt::{Adoption, Lost};
use terrace_engine::superblock;
use terrace_io::real::world;

#[derive(Args)]
pub struct Adopt {
    #[command(flatten)]
    pub location: Location,
    /// Do not ask
    #[arg(long)]
    yes: bool,
    /// Also if the store has lost objects that the volume needs: their pages are lost then
    #[arg(long)]
    force: bool,
}

/// Tables and indexes that a refusal names; people see all of them before it.
const NAMED_MAX: usize = 5;

pub const AFTER_HELP: &str = "A volume that was put back from a backup is fenced for ever from an object store that another copy of it has written to \
                              since. If that other copy is lost, this makes the volume the store's owner. Stop the other copy first, if it runs \
                              anywhere.\n\nExit codes: 0 adopted, or there was nothing to adopt; 1 objects are lost (without --force, nothing was \
                              changed); 2 wrong usage, not confirmed, or the instance cannot be opened or changed";

/// Returns the exit code.
pub fn run(adopt: &Adopt) -> Result<u8, Fault> {
    let Instance { look, .. } = open(&adopt.location)?;
    let as_json = adopt.location.json;
    let Some(mut adoption) = Adoption::examine(&look, &mut output::progress)? else {
        let what = "no other copy of this volume has the object store: there is nothing to adopt";
        if as_json {
            output::text(&format!("{:#}", json!({"adopted": false, "why": what})))
        } else {
            output::text(what)
        }
        return Ok(exit::SOUND);
    };
    output::end_progress();
    if !as_json {
        say(&look.volume.describe(), look.superblock.epoch, &adoption, adopt.location.object.as_deref());
    }
    if !adoption.lost.is_empty() && !adopt.force {
        return Err(Fault::new(exit::FAULTS, why_not(&adoption.lost)));
    }
    if !adopt.yes {
        confirm()?;
    }
    let places = change(&adopt.location)?;
    let store = places.store.ok_or_else(|| Error::Invalid("there is no object store".into()))?;
    let before = adoption.lost.clone();
    let nonce = world().random.next_u64().max(1);
    let done = adoption.carry_out((places.volume, store), nonce, adopt.force, &mut output::progress);
    output::end_progress();
    done.map_err(|error| {
        Fault::new(
            exit::UNUSABLE,
            format!("{error} (`terrace status` says whether another copy still has the store; if not, the next start takes it)"),
        )
    })?;
    let more = adoption.lost != before;
    if as_json {
        let lost: Vec<_> = adoption
            .lost
            .iter()
            .map(|lost| json!({"of": lost.of, "pages": lost.pages, "objects": lost.objects}))
            .collect();
        let (objects, bytes) = adoption.unnamed;
        let unnamed = json!({"objects": objects, "bytes": bytes});
        output::text(&format!("{:#}", json!({"adopted": true, "lost": lost, "unnamed": unnamed})));
    } else {
        if more {
            output::text("the other copy has deleted objects in the meantime:");
            say_lost(&adoption);
        }
        output::text(
            "adopted: the object store is this volume's; start the instance, and never the other copy",
        );
    }
    Ok(if more { exit::FAULTS } else { exit::SOUND })
}

/// What is there, and what would become of it.
fn say(volume: &str, epoch: u32, adoption: &Adoption<'_>, object: Option<&str>) {
    let known = adoption
        .known
        .last()
        .map_or("none".to_string(), |taker| format!("{}, mark {}", taker.epoch, taker.mark));
    let holder = adoption.holder;
    let store = object.unwrap_or("of the configuration file");
    let (objects, bytes) = adoption.unnamed;
    output::text(&format!(
        "this volume     {volume}: writer epoch {epoch}, {}\n\
         object store    {store}\n\
         has it          writer epoch {}, mark {}: another copy of this volume{}\n\
         as this knows   writer epoch {known}\n\
         named           {} objects by this volume's map\n\
         not named       {objects} objects of {bytes} bytes: what the other copy put since",
        age(volume),
        holder.writer.epoch,
        holder.mark,
        adoption.name.as_ref().map_or(String::new(), |who| format!(", {who}")),
        adoption.named,
    ));
    say_lost(adoption);
    output::text(
        "\nIf this volume adopts the store, all that the other copy has changed since this one was made is given up: the next start\n\
         deletes its objects that are not named. The other copy is fenced, should it come back. This cannot be undone.",
    );
}

fn say_lost(adoption: &Adoption<'_>) {
    for lost in &adoption.lost {
        output::text(&format!(
            "lost            {}: {} pages in {} objects",
            lost.of, lost.pages, lost.objects
        ));
    }
}

/// What is lost, and what can be done about it, in a sentence that also a script gets.
fn why_not(lost: &[Lost]) -> String {
    let mut named: Vec<String> =
        lost.iter().take(NAMED_MAX).map(|lost| format!("{} ({} pages)", lost.of, lost.pages)).collect();
    if lost.len() > NAMED_MAX {
        named.push(format!("{} more", lost.len() - NAMED_MAX));
    }
    format!(
        "nothing was changed: the store has no longer what this volume needs of {}. A newer backup of the volume may need less of it; \
         without one, start the instance as it is and dump what can be read, then adopt with `--force`: a statement that comes to a \
         lost page ends in an error until its table or index is made anew",
        named.join(", ")
    )
}

/// When the superblock was written last, which a copy may not tell.
fn age(volume: &str) -> String {
    let written = Path::new(volume).join(superblock::FILE).metadata().and_then(|meta| meta.modified()).ok();
    match written.and_then(|at| SystemTime::now().duration_since(at).ok()) {
        Some(age) => format!("its superblock {} hours old by the file's time", age.as_secs() / 3600),
        None => "its superblock of unknown age".into(),
    }
}

/// Err: there is no terminal to ask on, or the answer was no.
fn confirm() -> Result<(), Fault> {
    let no = |message: &str| Err(Fault::new(exit::UNUSABLE, message.into()));
    if !std::io::stdin().is_terminal() {
        return no("nothing was changed: there is no terminal to ask on; `--yes` adopts without being asked");
    }
    let mut terminal = std::io::stderr();
    let _ = write!(terminal, "Adopt the object store? (yes) ");
    let _ = terminal.flush();
    let mut answer = String::new();
    let _ = std::io::stdin().lock().read_line(&mut answer);
    if answer.trim() == "yes" { Ok(()) } else { no("nothing was changed") }
}
