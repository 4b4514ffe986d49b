//! What rules name: the commands by number, and the categories. The table of commands makes it.

use std::collections::HashMap;

pub struct Command {
    /// `get`, or `config|get`.
    pub full_name: String,
    pub is_subcommand: bool,
    /// Its subcommands have the numbers that follow its own.
    pub subcommands: usize,
    /// A bit each.
    pub categories: u32,
}

pub struct Catalogue {
    pub commands: Vec<Command>,
    by_name: HashMap<String, usize>,
    pub categories: Vec<(u32, &'static str)>,
}

impl Catalogue {
    pub fn new(commands: Vec<Command>, categories: Vec<(u32, &'static str)>) -> Catalogue {
        let by_name =
            commands.iter().enumerate().map(|(number, one)| (one.full_name.clone(), number)).collect();
        Catalogue { commands, by_name, categories }
    }

    pub fn len(&self) -> usize {
        self.commands.len()
    }

    pub fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    /// The number of a command, or of a subcommand as `config|get`.
    pub fn find(&self, name: &[u8]) -> Option<usize> {
        self.by_name.get(&std::str::from_utf8(name).ok()?.to_ascii_lowercase()).copied()
    }

    pub fn category(&self, name: &[u8]) -> Option<u32> {
        let known = self.categories.iter().find(|(_, known)| name.eq_ignore_ascii_case(known.as_bytes()))?;
        Some(known.0)
    }
}

impl std::fmt::Debug for Catalogue {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} commands", self.len())
    }
}

/// What a command asks for, as its user's rules see it.
pub struct Request<'a> {
    /// The number of the command.
    pub number: usize,
    /// Everyone may run it.
    pub is_free: bool,
    pub args: &'a [&'a [u8]],
    /// Positions of the keys, and whether each is read and changed.
    pub keys: Vec<(usize, bool, bool)>,
    /// Positions of the channels.
    pub channels: std::ops::Range<usize>,
    pub are_patterns: bool,
}
