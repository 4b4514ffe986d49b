//! What nothing names: spaces that are no table's, objects that no map entry has.

use super::{Progress, Report, Tables};
use crate::offline::instance::OfflineInstance;
use hashbrown::HashSet;
use terrace_io::store::Purpose;
use terrace_tier::address::ObjectKey;
use terrace_tier::page::SpaceId;

/// Map entries of spaces that do not exist. A crash amid DROP or CREATE leaves them, and the next start
/// forgets them.
pub(super) fn spaces(look: &OfflineInstance, tables: &Tables, report: &mut Report) {
    let named: HashSet<SpaceId> =
        tables.listed.iter().flat_map(|table| table.indexes.iter().map(|(space, _)| *space)).collect();
    let counts = look.map.counts();
    let mut nobodys: Vec<SpaceId> = look.map.spaces();
    nobodys.retain(|space| ![SpaceId::UNDO, SpaceId::CATALOG].contains(space) && !named.contains(space));
    for space in nobodys {
        let count = counts.get(&space).copied().unwrap_or_default();
        let (volume, objects) = (count.volume, count.objects);
        if !space.sinks() {
            report.faults.add(format!(
                "map: space {space} does not exist, but {} of its pages are named",
                count.pages
            ));
        } else if tables.whole {
            let what = format!(
                "space {space} is no table's: {volume} pages on the volume, {objects} objects; the next start forgets it"
            );
            report.leaked.add(what);
        } else {
            report.unchecked.add(format!("space {space} may be a table's that the damaged catalog has lost"));
        }
    }
}

/// Objects of the instance's lineage that the map does not name: superseded, or put and never published.
pub(super) fn objects(look: &OfflineInstance, progress: Progress<'_>, report: &mut Report) {
    let Some(objects) = &look.objects else { return };
    progress("listing the object store", 0, 1);
    report.begin_part();
    let named: HashSet<ObjectKey> = look.map.objects().into_iter().collect();
    let (mut unnamed, mut bytes, mut strangers) = (Vec::new(), 0, Vec::new());
    let prefix = format!("{:032x}/", look.superblock.lineage);
    let listed =
        objects.store().list(Purpose::Scrub, &prefix, &mut |text, size| match ObjectKey::parse(text) {
            Some(key) if named.contains(&key) => {}
            Some(key) => {
                unnamed.push(key);
                bytes += size;
            }
            None => strangers.push(text.to_string()),
        });
    if let Err(error) = listed {
        report.unchecked.add(format!("whether the store has objects that nothing names: {error}"));
        return;
    }
    if !unnamed.is_empty() {
        let all = unnamed.len() as u64;
        let what = |key: &ObjectKey| format!("object {key} is named by nothing; the next start deletes it");
        report.leaked.add_of(all, unnamed.iter().map(what));
        report.leaked_object_bytes = bytes;
    }
    let what = |key: &String| format!("object {key} is not one of ours, below our lineage's prefix");
    report.leaked.add_of(strangers.len() as u64, strangers.iter().map(what));
}
