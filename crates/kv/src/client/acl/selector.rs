//! A selector: the commands, keys and channels that it allows.

use super::RuleError;
use super::catalogue::{Catalogue, Request};
use crate::value::glob;

/// Why a command is refused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Denied {
    Command,
    /// The position of the argument.
    Key(usize),
    Channel(usize),
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct KeyPattern {
    reads: bool,
    writes: bool,
    pattern: Vec<u8>,
}

#[derive(Clone, Debug)]
pub struct Selector {
    catalogue: &'static Catalogue,
    /// By the number of the command.
    commands: Vec<bool>,
    /// Commands that a later version adds are allowed: the rules began with `+@all`.
    allows_future: bool,
    /// Commands that are allowed with a certain first argument.
    first_arguments: Vec<(usize, Vec<u8>)>,
    all_keys: bool,
    keys: Vec<KeyPattern>,
    all_channels: bool,
    channels: Vec<Vec<u8>>,
}

impl PartialEq for Selector {
    fn eq(&self, other: &Selector) -> bool {
        self.commands == other.commands
            && self.allows_future == other.allows_future
            && self.first_arguments == other.first_arguments
            && (self.all_keys, &self.keys) == (other.all_keys, &other.keys)
            && (self.all_channels, &self.channels) == (other.all_channels, &other.channels)
    }
}

impl Selector {
    /// Allows nothing.
    pub fn none(catalogue: &'static Catalogue) -> Selector {
        Selector {
            catalogue,
            commands: vec![false; catalogue.len()],
            allows_future: false,
            first_arguments: Vec::new(),
            all_keys: false,
            keys: Vec::new(),
            all_channels: false,
            channels: Vec::new(),
        }
    }

    /// Allows everything.
    pub fn open(catalogue: &'static Catalogue) -> Selector {
        Selector {
            commands: vec![true; catalogue.len()],
            allows_future: true,
            all_keys: true,
            all_channels: true,
            ..Selector::none(catalogue)
        }
    }

    pub fn allows_all(&self) -> bool {
        self.all_keys && self.all_channels && self.commands.iter().all(|&allowed| allowed)
    }

    pub fn reads_all_keys(&self) -> bool {
        self.all_keys || self.keys.iter().any(|known| known.reads && known.pattern == b"*")
    }

    pub fn check(&self, request: &Request<'_>) -> Result<(), Denied> {
        if !self.commands.get(request.number).copied().unwrap_or(false) && !request.is_free {
            let is_subcommand =
                self.catalogue.commands.get(request.number).is_some_and(|one| one.is_subcommand);
            let at = 1 + usize::from(is_subcommand);
            let is_first = |(number, first): &(usize, Vec<u8>)| {
                *number == request.number
                    && request.args.get(at).is_some_and(|arg| arg.eq_ignore_ascii_case(first))
            };
            if !self.first_arguments.iter().any(is_first) {
                return Err(Denied::Command);
            }
        }
        let allows = |at: usize, reads: bool, writes: bool| {
            self.keys.iter().any(|known| {
                (known.reads || !reads)
                    && (known.writes || !writes)
                    && glob::matches(&known.pattern, request.args[at])
            })
        };
        if !self.all_keys
            && let Some((at, ..)) =
                request.keys.iter().find(|(at, reads, writes)| !allows(*at, *reads, *writes))
        {
            return Err(Denied::Key(*at));
        }
        let is_denied = |at: &usize| !self.allows_channel(request.args[*at], request.are_patterns);
        match request.channels.clone().find(is_denied) {
            Some(at) => Err(Denied::Channel(at)),
            None => Ok(()),
        }
    }

    /// A pattern of channels is allowed only if it is among the patterns itself.
    pub fn allows_channel(&self, name: &[u8], is_pattern: bool) -> bool {
        self.all_channels
            || self.channels.iter().any(
                |known| {
                    if is_pattern { known == name } else { glob::matches(known, name) }
                },
            )
    }

    fn allow(&mut self, number: usize, allow: bool) {
        for number in number..=number + self.catalogue.commands[number].subcommands {
            self.commands[number] = allow;
            self.first_arguments.retain(|(of, _)| *of != number);
        }
    }

    fn allow_all(&mut self, allow: bool) {
        self.commands.fill(allow);
        self.allows_future = allow;
        self.first_arguments.clear();
    }

    fn allow_category(&mut self, category: u32, allow: bool) {
        for (number, command) in self.catalogue.commands.iter().enumerate() {
            if command.categories & category != 0 {
                self.allow(number, allow);
            }
        }
    }

    fn allow_named_category(&mut self, name: &[u8], allow: bool) -> Result<(), RuleError> {
        if name.eq_ignore_ascii_case(b"all") {
            self.allow_all(allow);
            return Ok(());
        }
        self.allow_category(self.catalogue.category(name).ok_or(RuleError::Unknown)?, allow);
        Ok(())
    }

    /// Applies a rule.
    pub fn apply(&mut self, rule: &[u8]) -> Result<(), RuleError> {
        let is = |word: &str| rule.eq_ignore_ascii_case(word.as_bytes());
        match rule {
            _ if is("allkeys") || rule == b"~*" => (self.all_keys, self.keys) = (true, Vec::new()),
            _ if is("resetkeys") => (self.all_keys, self.keys) = (false, Vec::new()),
            _ if is("allchannels") || rule == b"&*" => {
                (self.all_channels, self.channels) = (true, Vec::new())
            }
            _ if is("resetchannels") => (self.all_channels, self.channels) = (false, Vec::new()),
            _ if is("allcommands") => self.allow_all(true),
            _ if is("nocommands") => self.allow_all(false),
            [b'+', b'@', name @ ..] => self.allow_named_category(name, true)?,
            [b'-', b'@', name @ ..] => self.allow_named_category(name, false)?,
            [b'~', pattern @ ..] => self.add_keys(true, true, pattern)?,
            [b'%', rest @ ..] => {
                let at = memchr::memchr(b'~', rest).ok_or(RuleError::Syntax)?;
                let rights = rest[..at].to_ascii_uppercase();
                match rights.as_slice() {
                    b"R" => self.add_keys(true, false, &rest[at + 1..])?,
                    b"W" => self.add_keys(false, true, &rest[at + 1..])?,
                    b"RW" | b"WR" | b"" => {
                        self.add_keys(rights.len() == 2, rights.len() == 2, &rest[at + 1..])?
                    }
                    _ => return Err(RuleError::Syntax),
                }
            }
            [b'&', pattern @ ..] => {
                if self.all_channels {
                    return Err(RuleError::AfterAllChannels);
                }
                check_pattern(pattern)?;
                if !self.channels.iter().any(|known| known == pattern) {
                    self.channels.push(pattern.to_vec());
                }
            }
            [b'+', name @ ..] => self.allow_command(name)?,
            [b'-', name @ ..] => self.allow(self.catalogue.find(name).ok_or(RuleError::Unknown)?, false),
            _ => return Err(RuleError::Syntax),
        }
        Ok(())
    }

    fn add_keys(&mut self, reads: bool, writes: bool, pattern: &[u8]) -> Result<(), RuleError> {
        if self.all_keys {
            return Err(RuleError::AfterAllKeys);
        }
        check_pattern(pattern)?;
        match self.keys.iter_mut().find(|known| known.pattern == pattern) {
            Some(known) => {
                known.reads |= reads;
                known.writes |= writes;
            }
            None => self.keys.push(KeyPattern { reads, writes, pattern: pattern.to_vec() }),
        }
        Ok(())
    }

    /// Allows a command, a subcommand (`config|get`), or a command with a first argument (`select|0`).
    fn allow_command(&mut self, name: &[u8]) -> Result<(), RuleError> {
        let Some(at) = memchr::memrchr(b'|', name) else {
            self.allow(self.catalogue.find(name).ok_or(RuleError::Unknown)?, true);
            return Ok(());
        };
        let (of, first) = (self.catalogue.find(&name[..at]).ok_or(RuleError::Unknown)?, &name[at + 1..]);
        if self.catalogue.commands[of].is_subcommand {
            return Err(RuleError::FirstArgumentOfSubcommand);
        }
        if first.is_empty() {
            return Err(RuleError::Syntax);
        }
        if self.catalogue.commands[of].subcommands > 0 {
            self.allow(self.catalogue.find(name).ok_or(RuleError::Unknown)?, true);
        } else if !self.commands[of]
            && !self.first_arguments.iter().any(|(number, known)| *number == of && known == first)
        {
            self.first_arguments.push((of, first.to_ascii_lowercase()));
        }
        Ok(())
    }

    /// How many commands of a category are allowed, and how many are not.
    fn count(&self, category: u32) -> (usize, usize) {
        let (mut on, mut off) = (0, 0);
        for (command, allowed) in self.catalogue.commands.iter().zip(&self.commands) {
            if command.categories & category != 0 {
                *(if *allowed { &mut on } else { &mut off }) += 1;
            }
        }
        (on, off)
    }

    /// Rules that make these commands of none: categories that fit, then single commands.
    pub fn command_rules(&self) -> String {
        let mut made = Selector::none(self.catalogue);
        let mut rest = self.clone();
        let adds = !self.allows_future;
        let mut rules = vec![if adds { "-@all" } else { "+@all" }.to_owned()];
        made.allow_all(!adds);
        let mut left = self.catalogue.categories.clone();
        loop {
            let fits = left.iter().enumerate().filter_map(|(at, (category, _))| {
                let (on, off) = rest.count(*category);
                let (same, differs) = if adds { (on, off) } else { (off, on) };
                (same > differs).then_some((differs, std::cmp::Reverse(same), at))
            });
            let Some((.., at)) = fits.min() else { break };
            let (category, name) = left.remove(at);
            made.allow_category(category, adds);
            rest.allow_category(category, !adds);
            rules.push(format!("{}@{name}", if adds { '+' } else { '-' }));
        }
        for (number, command) in self.catalogue.commands.iter().enumerate() {
            let (wanted, name) = (self.commands[number], &command.full_name);
            if wanted != made.commands[number] {
                rules.push(format!("{}{name}", if wanted { '+' } else { '-' }));
                made.allow(number, wanted);
            }
            for (_, first) in self.first_arguments.iter().filter(|(of, _)| *of == number && !wanted) {
                rules.push(format!("+{name}|{}", String::from_utf8_lossy(first)));
            }
        }
        rules.join(" ")
    }

    pub fn key_rules(&self) -> Vec<u8> {
        if self.all_keys {
            return b"~*".to_vec();
        }
        let shown = |known: &KeyPattern| {
            let prefix: &[u8] = match (known.reads, known.writes) {
                (true, true) => b"~",
                (true, false) => b"%R~",
                (false, true) => b"%W~",
                (false, false) => b"%~",
            };
            [prefix, &known.pattern].concat()
        };
        self.keys.iter().map(shown).collect::<Vec<_>>().join(&b' ')
    }

    pub fn channel_rules(&self) -> Vec<u8> {
        if self.all_channels {
            return b"&*".to_vec();
        }
        self.channels.iter().map(|known| [b"&", known.as_slice()].concat()).collect::<Vec<_>>().join(&b' ')
    }

    /// The rules that make this selector.
    pub fn describe(&self) -> Vec<u8> {
        let mut parts = vec![self.key_rules()];
        if !self.all_channels {
            parts.push(b"resetchannels".to_vec());
        }
        parts.extend([self.channel_rules(), self.command_rules().into_bytes()]);
        parts.retain(|part| !part.is_empty());
        parts.join(&b' ')
    }
}

fn check_pattern(pattern: &[u8]) -> Result<(), RuleError> {
    let is_space = |byte: &u8| byte.is_ascii_whitespace() || matches!(byte, 0 | 11);
    if pattern.iter().any(is_space) { Err(RuleError::Syntax) } else { Ok(()) }
}
