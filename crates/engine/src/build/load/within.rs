//! The end of a load in a transaction.
//!
//! All trees are built except for their roots. Then, while no other session can put anything into the table, each becomes an
//! index's by its root: until the first of them the table is empty, for all sessions. If it is not empty any more, or there
//! are too few rows for trees to pay, the rows are inserted, as statements do it: first all rows, then the entries of each
//! index, some at a time where they need not be unique (`beside`).
//!
//! A load that has failed, or is dropped, gives back what it took for trees. Rows that it has inserted, and trees that it
//! has published, are the statement's to roll back.

use super::early::ROWS_MIN;
use super::{Kind, Load, Maker, Stage, Twice, each};
use crate::build::sort::Sorted;
use crate::build::steps::Steps;
use crate::error::{Error, Result};
use crate::tree::Tree;
use crate::tree::bulk::Whole;
use crate::txn::fill::Filling;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// One tree in the end.
struct LoadPart {
    filling: Option<Filling>,
    /// What was built: of all, or of what came in order before the sort's.
    whole: Option<Whole<Arc<Tree>>>,
    /// The whole holds what is in here, too.
    is_in_whole: bool,
    sorted: Sorted,
}

impl LoadPart {
    fn of(mut stage: Stage, steps: &mut Steps<'_>) -> Result<LoadPart> {
        let sorted = stage.take_sort().finish(&mut || steps.look())?;
        let whole = stage.bulk.take().map(|bulk| bulk.complete()).transpose()?;
        Ok(LoadPart { filling: stage.filling.take(), whole, is_in_whole: false, sorted })
    }

    /// The value at a key of the rows, before they are in the table.
    fn find(&mut self, wanted: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut found = None;
        if let Some(whole) = &self.whole {
            whole.each(|key, value| {
                if key == wanted {
                    found = Some(value.to_vec());
                }
                Ok(key < wanted)
            })?;
        }
        if found.is_none() {
            self.sorted.rewind()?;
            while self.sorted.advance()? {
                if self.sorted.key() == wanted {
                    return Ok(Some(self.sorted.value().to_vec()));
                }
            }
        }
        Ok(found)
    }
}

impl Load {
    /// Gives back what was taken for trees that are not published.
    pub(super) fn give_up(&mut self) {
        for mut stage in std::mem::take(&mut self.stages) {
            stage.bulk = None;
            if let Some(filling) = stage.filling.take() {
                // If it fails, the statement's rollback does it.
                let _ = filling.abandon();
            }
        }
    }

    pub(super) fn finish_within(&mut self, steps: &mut Steps<'_>) -> Result<()> {
        if self.stages.is_empty() {
            return Err(Error::Invalid("the load has failed, or is done".into()));
        }
        if self.insert_early()? {
            self.give_up();
            return Ok(());
        }
        let builds = match self.maker.kind {
            Kind::Beside => {
                let sorted = self.stages.iter().map(|stage| stage.sort.entries()).sum();
                self.maker.core.counters.sorted.fetch_add(sorted, Ordering::Relaxed);
                false
            }
            _ => self.builds()?,
        };
        let mut parts: Vec<LoadPart> = Vec::new();
        let done = (|| {
            for index in 0..self.stages.len() {
                let stage = self.stages.remove(0);
                let part = match builds {
                    true => self.build(index, stage, &mut parts, steps)?,
                    false => LoadPart::of(stage, steps)?,
                };
                parts.push(part);
            }
            if builds && self.publish(&parts)? {
                return self.insert(&mut parts, true, steps);
            }
            self.insert(&mut parts, false, steps)?;
            parts.iter().filter_map(|part| part.filling.as_ref()).try_for_each(Filling::abandon)
        })();
        if done.is_err() {
            self.give_up();
            for filling in parts.iter().filter_map(|part| part.filling.as_ref()) {
                let _ = filling.abandon(); // as above
            }
        }
        done
    }

    /// Whether trees are to be built: the table is empty still, and there are rows enough.
    fn builds(&self) -> Result<bool> {
        let has_begun = self.stages.iter().any(|stage| stage.bulk.is_some() || stage.sort.runs() > 0);
        let is_empty = |all: bool, stage: &Stage| Ok::<_, Error>(all && stage.tree.is_empty()?);
        Ok((has_begun || self.rows >= ROWS_MIN as u64) && self.stages.iter().try_fold(true, is_empty)?)
    }

    fn build(
        &mut self,
        index: usize,
        mut stage: Stage,
        parts: &mut [LoadPart],
        steps: &mut Steps<'_>,
    ) -> Result<LoadPart> {
        if stage.bulk.is_some() {
            return LoadPart::of(stage, steps);
        }
        let mut sorted = stage.take_sort().finish(&mut || steps.look())?;
        stage.begin()?;
        // An entry ends in its row's key: both come twice. If these rows did not come in order, it is not known yet.
        let mut same_row = false;
        let built = each(index, &mut sorted, steps, &mut |key, _, value| {
            same_row = stage.bulk.as_ref().is_some_and(|bulk| bulk.last_key() == Some(key));
            if same_row { Err(Error::Duplicate { index }) } else { stage.build(key, value) }
        });
        let failed = match built {
            Ok(()) => match stage.bulk.take().map(|bulk| bulk.complete()).transpose() {
                Ok(whole) => {
                    return Ok(LoadPart { filling: stage.filling.take(), whole, is_in_whole: true, sorted });
                }
                Err(error) => error,
            },
            Err((error, twice)) => {
                self.note_twice(index, twice, parts)?;
                if same_row { Error::Duplicate { index: 0 } } else { error }
            }
        };
        // Its pages go with those of the others.
        self.stages.push(stage);
        Err(failed)
    }

    fn note_twice(&mut self, index: usize, twice: Twice, parts: &mut [LoadPart]) -> Result<()> {
        let Some((key, value)) = twice else { return Ok(()) };
        let mut rows = parts.first_mut();
        self.note_duplicate(index, &key, &value, &mut |key| match &mut rows {
            Some(rows) => rows.find(key),
            None => Ok(None),
        })
    }

    /// Makes the trees the table's. False: it is not empty any more.
    fn publish(&self, parts: &[LoadPart]) -> Result<bool> {
        let Maker { table, owner, .. } = &*self.maker;
        let published = owner.while_empty(table, || {
            for part in parts {
                let (Some(filling), Some(whole)) = (&part.filling, &part.whole) else {
                    return Err(Error::Invalid("a tree was not built".into()));
                };
                if !filling.publish(whole)? {
                    return Err(Error::Unavailable("a table that is being filled is not empty".into()));
                }
            }
            Ok(())
        })?;
        Ok(published.is_some())
    }

    /// Inserts what is in no tree yet, one by one; unless the trees are published, what is in them, too.
    fn insert(&mut self, parts: &mut [LoadPart], published: bool, steps: &mut Steps<'_>) -> Result<()> {
        let Maker { table, owner, .. } = &*self.maker.clone();
        for index in 0..parts.len() {
            let part = &mut parts[index];
            if self.maker.inserts_together(index) && part.whole.is_none() {
                self.maker.insert_together(index, &mut part.sorted, steps)?;
                continue;
            }
            let mut twice: Twice = None;
            let mut insert = |key: &[u8], unique: Option<usize>, value: &[u8]| {
                steps.one()?;
                let inserted = owner.insert_value(table, index, key, unique, value);
                if let Err(Error::Duplicate { .. }) = inserted {
                    twice = Some((key.to_vec(), value.to_vec()));
                }
                inserted
            };
            let mut result = Ok(());
            if !published
                && !part.is_in_whole
                && let Some(whole) = &part.whole
            {
                // Nothing in it is unique but the rows' keys.
                result = whole.each(|key, value| insert(key, None, value).map(|()| true));
            }
            if result.is_ok() && !(published && part.is_in_whole) {
                part.sorted.rewind()?;
                result = (|| {
                    while part.sorted.advance()? {
                        let unique = part.sorted.unique().map(<[u8]>::len);
                        insert(part.sorted.key(), unique, part.sorted.value())?;
                    }
                    Ok(())
                })();
            }
            if let Some((key, value)) = twice {
                self.note_duplicate(index, &key, &value, &mut |_| Ok(None))?;
            }
            result?;
        }
        Ok(())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        if self.maker.within() {
            self.give_up();
        }
    }
}
