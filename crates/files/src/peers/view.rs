//! The members, which of them answer, the owner of each partition, and what is still to be fetched from which node. Pure.
//!
//! *Listed* are the members that the list or etcd names; *live* are those of them that answer this node, and always the node itself. A listed member is taken to be live until it was found
//! not to answer. Owners are computed over the live ones. Members may see each other differently for a while: then two nodes ask two owners, and the store is asked
//! once more; versions decide what is served, never this view.
//!
//! A partition that comes to this node from another live one is *pending*: what its former owner has of it is fetched, and it is asked for what has not come yet. At its
//! start a node takes each partition that it owns to come from any of the others: it asks them one after the other, in the order in which they would own the partition.
//! So one that joined at the same time, and has nothing yet, is not the only one that is asked.

use super::ring::{Partition, Set, owners, partition_of, ranked};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Owner {
    /// This node; the one from which what it has of the partition is being fetched.
    Me(Option<Arc<str>>),
    Other(Arc<str>),
}

fn is_first(sources: &VecDeque<Arc<str>>, source: &str) -> bool {
    sources.front().is_some_and(|first| &**first == source)
}

pub struct View {
    me: Arc<str>,
    listed: Vec<Arc<str>>,
    /// Members that were found not to answer.
    silent: Vec<Arc<str>>,
    live: Vec<Arc<str>>,
    owners: Vec<u16>,
    /// Those that may have something of a partition: the first is asked now.
    pending: HashMap<Partition, VecDeque<Arc<str>>>,
    /// Nodes from which something is being fetched at the moment.
    claimed: Vec<Arc<str>>,
}

impl View {
    pub fn new(me: &str, listed: Vec<Arc<str>>) -> View {
        let me: Arc<str> = me.into();
        let mut before: Vec<Arc<str>> = listed.iter().filter(|member| **member != me).cloned().collect();
        before.sort();
        before.dedup();
        let mut view = View {
            me,
            listed: Vec::new(),
            silent: Vec::new(),
            owners: owners(&before),
            live: before,
            pending: HashMap::new(),
            claimed: Vec::new(),
        };
        let others = view.live.clone();
        view.list(listed);
        for (partition, sources) in &mut view.pending {
            *sources = ranked(&others, *partition).into();
        }
        view
    }

    /// Returns true if something may have to be fetched now.
    pub fn list(&mut self, mut listed: Vec<Arc<str>>) -> bool {
        if !listed.contains(&self.me) {
            listed.push(self.me.clone());
        }
        listed.sort();
        listed.dedup();
        self.silent.retain(|member| listed.contains(member));
        self.listed = listed;
        self.look()
    }

    /// Returns true if something may have to be fetched now.
    pub fn heard(&mut self, member: &str, answers: bool) -> bool {
        let was_silent = self.silent.iter().any(|silent| &**silent == member);
        if was_silent != answers || member == &*self.me {
            return false;
        }
        match answers {
            true => self.silent.retain(|silent| &**silent != member),
            false => self.silent.push(member.into()),
        }
        self.look()
    }

    /// Owners are computed again if who is live has changed.
    fn look(&mut self) -> bool {
        let live: Vec<Arc<str>> =
            self.listed.iter().filter(|member| !self.silent.contains(member)).cloned().collect();
        if live == self.live {
            return false;
        }
        let owned = owners(&live);
        let name = |members: &[Arc<str>], owners: &[u16], partition: usize| {
            members.get(usize::from(*owners.get(partition)?)).cloned()
        };
        for (partition, _) in owned.iter().enumerate() {
            let key = partition as Partition;
            let (before, after) = (name(&self.live, &self.owners, partition), name(&live, &owned, partition));
            let comes = after.as_ref() == Some(&self.me) && before != after;
            if let Some(source) = before.filter(|source| comes && live.contains(source)) {
                self.pending.insert(key, VecDeque::from([source]));
            }
            let stays = self.pending.get_mut(&key).is_some_and(|sources| {
                sources.retain(|source| live.contains(source));
                !sources.is_empty()
            });
            if after.as_ref() != Some(&self.me) || !stays {
                self.pending.remove(&key);
            }
        }
        (self.live, self.owners) = (live, owned);
        !self.pending.is_empty()
    }

    fn owner_of(&self, partition: Partition) -> Option<&Arc<str>> {
        self.owners.get(usize::from(partition)).and_then(|at| self.live.get(usize::from(*at)))
    }

    pub fn is_mine(&self, partition: Partition) -> bool {
        self.owner_of(partition).is_none_or(|owner| *owner == self.me)
    }

    pub fn owner(&self, path: &str) -> Owner {
        let partition = partition_of(path);
        match self.owner_of(partition) {
            Some(owner) if *owner != self.me => Owner::Other(owner.clone()),
            _ => Owner::Me(self.pending.get(&partition).and_then(|sources| sources.front()).cloned()),
        }
    }

    /// Listed members other than this one.
    pub fn others(&self) -> Vec<Arc<str>> {
        self.listed.iter().filter(|member| **member != self.me).cloned().collect()
    }

    /// A former owner from which something is pending and nothing is being fetched yet: that is begun.
    pub fn claim(&mut self) -> Option<Arc<str>> {
        let first = self.pending.values().filter_map(VecDeque::front);
        let source = first.filter(|source| !self.claimed.contains(source)).min()?.clone();
        self.claimed.push(source.clone());
        Some(source)
    }
    /// The fetch has ended, or failed.
    pub fn unclaim(&mut self, source: &str) {
        self.claimed.retain(|claimed| &**claimed != source);
    }
    /// What is pending from it.
    pub fn pending_from(&self, source: &str) -> Set {
        let mut set = Set::default();
        let of_source = self.pending.iter().filter(|(_, sources)| is_first(sources, source));
        of_source.for_each(|(partition, _)| set.insert(*partition));
        set
    }
    /// It has given all that it has of these. Returns true if something may have to be fetched from others now.
    pub fn given(&mut self, source: &str, set: &Set) -> bool {
        self.pending.retain(|partition, sources| {
            if set.contains(*partition) && is_first(sources, source) {
                sources.pop_front();
            }
            !sources.is_empty()
        });
        !self.pending.is_empty()
    }

    /// Listed members and whether they answer; partitions that this node owns, and those that are pending.
    pub fn sizes(&self) -> (Vec<(Arc<str>, bool)>, usize, usize) {
        let members = self.listed.iter().map(|member| (member.clone(), self.live.contains(member)));
        let mine = self.live.iter().position(|member| *member == self.me);
        let owned = self.owners.iter().filter(|at| Some(usize::from(**at)) == mine).count();
        (members.collect(), owned, self.pending.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::ring::PARTITIONS;

    fn names(list: &[&str]) -> Vec<Arc<str>> {
        list.iter().map(|name| Arc::from(*name)).collect()
    }

    fn owned(view: &View) -> usize {
        view.sizes().1
    }
    fn pending(view: &View) -> usize {
        view.sizes().2
    }

    #[test]
    fn a_node_that_starts_fetches_what_it_owns_from_those_who_had_it() {
        let mut view = View::new("c", names(&["a", "b", "c"]));
        assert_eq!(pending(&view), owned(&view));
        let (from_a, from_b) = (view.pending_from("a"), view.pending_from("b"));
        assert_eq!(from_a.len() + from_b.len(), owned(&view));
        assert_eq!((view.claim(), view.claim(), view.claim()), (Some("a".into()), Some("b".into()), None));
        assert!(
            view.given("a", &from_a),
            "the other one may have joined before, or may have been the owner before"
        );
        view.unclaim("a");
        assert_eq!((pending(&view), view.pending_from("b").len()), (owned(&view), owned(&view)));
        assert_eq!(view.claim(), None, "it is being fetched from");
        assert!(view.given("b", &from_b));
        view.unclaim("b");
        assert_eq!(view.pending_from("a").len(), from_b.len());
        assert!(view.given("a", &from_b));
        assert_eq!(view.pending_from("b").len(), from_a.len());
        // The other one does not answer: the store has what it has.
        assert!(!view.heard("b", false), "nothing is fetched from the dead");
        assert_eq!(view.pending_from("b").len(), 0);
    }

    #[test]
    fn one_of_several_that_join_at_once_asks_all_that_were_there_before() {
        let mut view = View::new("d", names(&["a", "b", "c", "d"]));
        let mut asked = vec![Vec::new(); PARTITIONS];
        while let Some(source) = view.claim() {
            let set = view.pending_from(&source);
            (0..PARTITIONS)
                .filter(|at| set.contains(*at as Partition))
                .for_each(|at| asked[at].push(source.clone()));
            view.given(&source, &set);
            view.unclaim(&source);
        }
        let mine = asked.iter().filter(|sources| !sources.is_empty());
        let all: Vec<Vec<Arc<str>>> = mine
            .map(|sources| {
                let mut sources = sources.clone();
                sources.sort();
                sources
            })
            .collect();
        assert_eq!((all.len(), pending(&view)), (owned(&view), 0));
        assert!(all.iter().all(|sources| *sources == names(&["a", "b", "c"])));
    }

    #[test]
    fn what_a_dead_node_owned_belongs_to_the_others_and_returns_with_it() {
        let mut view = View::new("a", names(&["a", "b"]));
        let set = view.pending_from("b");
        view.given("b", &set);
        let before = owned(&view);
        assert!(!view.heard("b", false));
        assert_eq!((owned(&view), pending(&view)), (PARTITIONS, 0));
        assert!(!view.heard("b", false), "it is known");
        assert!(!view.heard("b", true), "it takes what it owns, and nothing comes here");
        assert_eq!((owned(&view), pending(&view)), (before, 0));
        let path = (0..).map(|i| format!("f{i}")).find(|path| view.owner(path) == Owner::Other("b".into()));
        view.heard("b", false);
        assert_eq!(view.owner(&path.unwrap()), Owner::Me(None));
    }

    #[test]
    fn a_partition_that_goes_on_to_a_third_node_is_pending_no_longer() {
        let mut view = View::new("b", names(&["a", "b"]));
        let before = pending(&view);
        assert!(before > 0 && view.list(names(&["a", "b", "c"])), "the rest is still to be fetched");
        assert!(pending(&view) < before && pending(&view) == owned(&view));
        // Those of the third node come here when it goes; it has nothing to give any more.
        view.list(names(&["a", "b"]));
        assert!(pending(&view) < owned(&view));
    }

    #[test]
    fn a_list_without_this_node_has_it_all_the_same() {
        let mut view = View::new("a", Vec::new());
        assert_eq!(owned(&view), PARTITIONS);
        view.list(names(&["b"]));
        assert!(owned(&view) < PARTITIONS && view.others() == names(&["b"]));
    }
}
