//! Users and what each may do: commands, keys and channels.
//!
//! A user has a root selector and any number of others; a command runs if one of them allows all of it. Clients keep the rules of their user, and take them
//! anew when the rules of any user have changed (`generation`).
//!
//! | file | holds |
//! | --- | --- |
//! | `catalogue` | what rules name: commands and categories |
//! | `selector` | commands, keys and channels that a selector allows, and its description |
//! | `user` | a user: passwords, flags, selectors; applying a rule |
//! | `lines` | users in configuration files |
//! | `log` | what was refused |

pub mod catalogue;
pub mod lines;
pub mod log;
pub mod selector;
pub mod user;

pub use selector::Denied;
pub use user::{RuleError, User};

use catalogue::Catalogue;
use std::collections::BTreeMap;
use std::sync::Arc;

pub const DEFAULT_USER: &[u8] = b"default";

pub struct Acl {
    pub catalogue: &'static Catalogue,
    users: BTreeMap<Vec<u8>, Arc<User>>,
    /// Counts the changes of users.
    pub generation: u64,
    pub log: log::Log,
}

impl Acl {
    pub fn new(catalogue: &'static Catalogue) -> Acl {
        let mut acl = Acl { catalogue, users: BTreeMap::new(), generation: 0, log: log::Log::default() };
        acl.put(User::open(DEFAULT_USER, catalogue));
        acl
    }

    pub fn users(&self) -> impl ExactSizeIterator<Item = &Arc<User>> {
        self.users.values()
    }

    pub fn get(&self, name: &[u8]) -> Option<&Arc<User>> {
        self.users.get(name)
    }

    /// The user that clients have before they authenticate.
    pub fn default_user(&self) -> Arc<User> {
        self.users
            .get(DEFAULT_USER)
            .cloned()
            .unwrap_or_else(|| Arc::new(User::open(DEFAULT_USER, self.catalogue)))
    }

    /// Whether a client may do what the default user may without a password.
    pub fn is_open(&self) -> bool {
        self.users.get(DEFAULT_USER).is_some_and(|user| user.is_on && user.needs_no_password)
    }

    pub fn put(&mut self, user: User) {
        self.users.insert(user.name.clone(), Arc::new(user));
        self.generation += 1;
    }

    pub fn remove(&mut self, name: &[u8]) -> bool {
        self.generation += 1;
        self.users.remove(name).is_some()
    }

    /// Takes other users in place of all; without a default user among them, it becomes as it is at the start.
    pub fn replace(&mut self, users: Vec<User>) {
        self.users = users.into_iter().map(|user| (user.name.clone(), Arc::new(user))).collect();
        if !self.users.contains_key(DEFAULT_USER) {
            self.put(User::open(DEFAULT_USER, self.catalogue));
        }
        self.generation += 1;
    }

    /// The password of the default user, as `requirepass` sets it; empty: none is needed.
    pub fn set_default_password(&mut self, password: &[u8]) {
        let mut user = (*self.default_user()).clone();
        user.set_only_password(password);
        self.put(user);
    }
}
