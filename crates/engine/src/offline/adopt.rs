//! Adopting the object store: a volume that was put back, and that the store's mark fences for ever, becomes the
//! store's owner, because a person says that the copy that went on is lost.
//!
//! [`Adoption::examine`] only reads: which writer has the store, and what of the volume's map the store has no longer. [`Adoption::carry_out`]
//! does it: the writer that was found and the new one are noted in the volume's superblock, with an epoch above both
//! copies'; then the store's epoch object names the new one. From then on the other copy is fenced, wherever it is, and
//! so deletes nothing. The next start of this volume is a start like any other: it takes the store from the writer that
//! adopted it, and its scrub deletes what the other copy put since, for the map does not name it.
//!
//! A crash leaves the volume fenced as it was, or one that takes the store at its next start (`terrace_tier::objects::fence::adopt`).
//!
//! The log, the map and all pages stay as they are.

use crate::error::Error;
use crate::offline::check::{self, Progress, Tables};
use crate::offline::instance::OfflineInstance;
use crate::superblock::{self, Superblock};
use hashbrown::HashSet;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use terrace_io::disk::Disk;
use terrace_io::store::{ObjectStore, Purpose, StoreError};
use terrace_tier::address::ObjectKey;
use terrace_tier::objects::fence::{
    EpochContent, Fence, Taker, Takers, Writer, adopt, holder as fence_holder,
};
use terrace_tier::objects::snapshots;

/// Pages that the volume's map names in objects that are no longer in the store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lost {
    /// "table d/t index x", or whose space it is.
    pub of: String,
    pub pages: u64,
    pub objects: u64,
}

/// A volume that could adopt its store, and what that would mean.
pub struct Adoption<'a> {
    look: &'a OfflineInstance,
    tables: Tables,
    /// The store belongs to another copy of the volume.
    pub holder: EpochContent,
    /// Which process it is or was, if it has said so.
    pub name: Option<String>,
    /// The store's owners as far as the volume knows, in the order of their starts.
    pub known: Vec<Taker>,
    /// Objects that the volume's map names.
    pub named: u64,
    pub lost: Vec<Lost>,
    /// Objects that it does not name, and their bytes: the next start after the adoption deletes them.
    pub unnamed: (u64, u64),
}

impl<'a> Adoption<'a> {
    /// Looks at the volume and its store. None: no other copy of the volume has the store, so there is nothing to adopt.
    pub fn examine(look: &'a OfflineInstance, progress: Progress<'_>) -> Result<Option<Adoption<'a>>, Error> {
        if look.objects.is_none() {
            return Err(match &look.store_trouble {
                Some(trouble) => Error::Unavailable(trouble.clone()),
                None => Error::Invalid("which object store? It is to be named".into()),
            });
        }
        let Some(holder) = look.passed_by else {
            return match &look.store_fault {
                Some(fault) => Err(Error::Corrupt(fault.clone())),
                None => Ok(None),
            };
        };
        let tables = check::read_tables(look);
        let known = look.superblock.known_takers();
        let named = look.map.objects().len() as u64;
        let name =
            look.objects.as_ref().and_then(|objects| fence_holder::of(&**objects.store(), &holder.writer));
        let mut found =
            Adoption { look, tables, holder, name, known, named, lost: Vec::new(), unnamed: (0, 0) };
        found.count(progress)?;
        Ok(Some(found))
    }

    /// Lists the store and compares it with the map.
    fn count(&mut self, progress: Progress<'_>) -> Result<(), Error> {
        let Some(objects) = &self.look.objects else { return Ok(()) };
        progress("listing the object store", 0, 1);
        let mut missing: HashSet<ObjectKey> = self.look.map.objects().into_iter().collect();
        let mut unnamed = (0, 0);
        // Those of a restored instance are of former lineages, too.
        let own = self.look.superblock.lineage;
        let former = snapshots::read(&**objects.store()).map_err(Error::from)?.0.lineages;
        for lineage in std::iter::once(own).chain(former) {
            objects.store().list(Purpose::Scrub, &format!("{lineage:032x}/"), &mut |text, size| {
                let key = ObjectKey::parse(text);
                if key.is_some_and(|key| !missing.remove(&key)) {
                    unnamed = (unnamed.0 + 1, unnamed.1 + size);
                }
            })?;
        }
        // An attached instance has some elsewhere.
        for one in objects.attached.load(&**objects.store())?.iter().flat_map(|sources| &sources.opened) {
            for key in missing.extract_if(|key| one.has(key)).collect::<Vec<_>>() {
                match one.store.head(Purpose::Scrub, &one.source.key(&key)) {
                    Ok(_) => {}
                    Err(StoreError::Absent { .. }) => _ = missing.insert(key),
                    Err(error) => return Err(error.into()),
                }
            }
        }
        let mut lost: BTreeMap<String, Lost> = BTreeMap::new();
        for block in self.look.map.blocks_with_objects() {
            let mut pages = check::in_object_only(self.look, block);
            pages.retain(|(.., at)| missing.contains(&at.key));
            let Some((first, ..)) = pages.first() else { continue };
            let objects: HashSet<ObjectKey> = pages.iter().map(|(.., at)| at.key).collect();
            let of = match self.tables.of(*first) {
                name if name.is_empty() => format!("space {}", block.space),
                name => name.trim_start_matches(" of ").to_string(),
            };
            let sum = lost.entry(of.clone()).or_insert(Lost { of, pages: 0, objects: 0 });
            sum.pages += pages.len() as u64;
            sum.objects += objects.len() as u64;
        }
        (self.lost, self.unnamed) = (lost.into_values().collect(), unnamed);
        Ok(())
    }

    /// Makes the volume the store's owner; both places are now opened to be changed. `nonce` is drawn anew, and not 0. With pages lost
    /// it is refused, unless `despite_loss`. Looks again when the other copy can delete nothing any more: `lost` is then what is true.
    pub fn carry_out(
        &mut self,
        (volume, store): (Arc<dyn Disk>, Arc<dyn ObjectStore>),
        nonce: u64,
        despite_loss: bool,
        progress: Progress<'_>,
    ) -> Result<(), Error> {
        if !self.lost.is_empty() && !despite_loss {
            let pages: u64 = self.lost.iter().map(|lost| lost.pages).sum();
            return Err(Error::Missing(format!(
                "{pages} pages of the volume are in objects that are no longer in the object store"
            )));
        }
        let superblock = &self.look.superblock;
        let epoch = adopt::epoch(superblock.epoch, &self.holder);
        let epoch = epoch.ok_or_else(|| Error::Full("there are no more writer epochs".into()))?;
        let writer = Writer { instance: superblock.instance, lineage: superblock.lineage, epoch, nonce };
        let kept = Arc::new(OnVolume { volume, epoch, superblock: Mutex::new(superblock.clone()) });
        Fence::new(store, writer, true, kept).adopt(&self.holder)?;
        self.count(progress)
    }
}

/// The superblock of a volume on which no instance runs.
struct OnVolume {
    volume: Arc<dyn Disk>,
    epoch: u32,
    superblock: Mutex<Superblock>,
}

impl Takers for OnVolume {
    fn known(&self) -> Vec<Taker> {
        self.superblock.lock().known_takers()
    }

    /// In both copies: the known writers must not go back if the newer one is damaged. What it knew before, counts no more.
    fn note(&self, takers: &[Taker]) -> Result<(), String> {
        let mut superblock = self.superblock.lock();
        (superblock.epoch, superblock.has_store) = (self.epoch, true);
        superblock.takers = takers.to_vec();
        let file = self.volume.open(superblock::FILE).map_err(|error| error.to_string())?;
        (0..2).try_for_each(|_| {
            superblock.generation += 1;
            superblock.write(&*file).map_err(|error| error.to_string())
        })
    }
}
