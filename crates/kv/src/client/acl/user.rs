//! A user: passwords, flags and selectors, and applying the rules of ACL SETUSER.

use super::catalogue::{Catalogue, Request};
use super::selector::{Denied, Selector};
use sha2::{Digest, Sha256};

/// Why a rule is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RuleError {
    Unknown,
    Syntax,
    AfterAllKeys,
    AfterAllChannels,
    NoSuchPassword,
    BadHash,
    FirstArgumentOfSubcommand,
}

impl RuleError {
    pub fn text(self) -> &'static str {
        match self {
            RuleError::Unknown => "Unknown command or category name in ACL",
            RuleError::Syntax => "Syntax error",
            RuleError::AfterAllKeys => {
                "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not have any effect. Try 'resetkeys' to start with an empty list of patterns"
            }
            RuleError::AfterAllChannels => {
                "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and does not have any effect. Try 'resetchannels' to start with an empty list of channels"
            }
            RuleError::NoSuchPassword => "The password you are trying to remove from the user does not exist",
            RuleError::BadHash => {
                "The password hash must be exactly 64 characters and contain only lowercase hexadecimal characters"
            }
            RuleError::FirstArgumentOfSubcommand => "Allowing first-arg of a subcommand is not supported",
        }
    }
}

/// Whether the payload of RESTORE is checked: it always is here, the flag is only kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sanitize {
    Unsaid,
    Skipped,
    Checked,
}

#[derive(Clone, Debug)]
pub struct User {
    catalogue: &'static Catalogue,
    pub name: Vec<u8>,
    pub is_on: bool,
    pub needs_no_password: bool,
    pub sanitize: Sanitize,
    /// SHA-256 of each, in hexadecimal.
    pub passwords: Vec<String>,
    pub root: Selector,
    pub others: Vec<Selector>,
    is_unlimited: bool,
}

fn hash(password: &[u8]) -> String {
    Sha256::digest(password).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn checked_hash(text: &[u8]) -> Result<String, RuleError> {
    let is_hex = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if text.len() != 64 || !text.iter().all(is_hex) {
        return Err(RuleError::BadHash);
    }
    Ok(String::from_utf8_lossy(text).into_owned())
}

impl User {
    /// A user without rights that is off.
    pub fn new(name: &[u8], all_channels: bool, catalogue: &'static Catalogue) -> User {
        let mut root = Selector::none(catalogue);
        if all_channels {
            // The rule is one that is known.
            let _ = root.apply(b"allchannels");
        }
        User {
            catalogue,
            name: name.to_vec(),
            is_on: false,
            needs_no_password: false,
            sanitize: Sanitize::Unsaid,
            passwords: Vec::new(),
            root,
            others: Vec::new(),
            is_unlimited: false,
        }
    }

    /// A user that may do all without a password.
    pub fn open(name: &[u8], catalogue: &'static Catalogue) -> User {
        User {
            is_on: true,
            needs_no_password: true,
            root: Selector::open(catalogue),
            is_unlimited: true,
            ..User::new(name, true, catalogue)
        }
    }

    pub fn set_only_password(&mut self, password: &[u8]) {
        self.passwords.clear();
        self.needs_no_password = password.is_empty();
        if !password.is_empty() {
            self.passwords.push(hash(password));
        }
    }

    /// Whether the user is on and the password is one of its own.
    pub fn accepts(&self, password: &[u8]) -> bool {
        if !self.is_on {
            return false;
        }
        let given = hash(password);
        // All are compared, and each whole, so that the time tells nothing.
        let differs =
            |known: &String| known.bytes().zip(given.bytes()).fold(0, |sum, (a, b)| sum | (a ^ b)) != 0;
        let matching = self.passwords.iter().filter(|known| !differs(known)).count();
        self.needs_no_password || matching > 0
    }

    /// Nothing is refused: nothing has to be checked.
    pub fn is_unlimited(&self) -> bool {
        self.is_unlimited
    }

    pub fn check(&self, request: &Request<'_>) -> Result<(), Denied> {
        let mut worst = match self.root.check(request) {
            Ok(()) => return Ok(()),
            Err(denied) => denied,
        };
        for selector in &self.others {
            match selector.check(request) {
                Ok(()) => return Ok(()),
                Err(denied) => worst = worst.max(denied),
            }
        }
        Err(worst)
    }

    /// Whether one selector alone allows reading every key.
    pub fn reads_all_keys(&self) -> bool {
        std::iter::once(&self.root).chain(&self.others).any(Selector::reads_all_keys)
    }

    pub fn allows_channel(&self, name: &[u8], is_pattern: bool) -> bool {
        std::iter::once(&self.root)
            .chain(&self.others)
            .any(|selector| selector.allows_channel(name, is_pattern))
    }

    /// Applies a rule; a selector in parentheses is one rule. `all_channels`: what `reset` leaves.
    pub fn apply(&mut self, rule: &[u8], all_channels: bool) -> Result<(), RuleError> {
        let is = |word: &str| rule.eq_ignore_ascii_case(word.as_bytes());
        match rule {
            [] => {}
            _ if is("on") => self.is_on = true,
            _ if is("off") => self.is_on = false,
            _ if is("skip-sanitize-payload") => self.sanitize = Sanitize::Skipped,
            _ if is("sanitize-payload") => self.sanitize = Sanitize::Checked,
            _ if is("nopass") => (self.needs_no_password, self.passwords) = (true, Vec::new()),
            _ if is("resetpass") => (self.needs_no_password, self.passwords) = (false, Vec::new()),
            _ if is("clearselectors") => self.others.clear(),
            _ if is("reset") => {
                *self = User {
                    sanitize: Sanitize::Checked,
                    ..User::new(&self.name, all_channels, self.catalogue)
                };
            }
            [b'>', password @ ..] => self.add_password(hash(password)),
            [b'#', text @ ..] => self.add_password(checked_hash(text)?),
            [b'<', password @ ..] => self.remove_password(&hash(password))?,
            [b'!', text @ ..] => self.remove_password(&checked_hash(text)?)?,
            [b'(', rules @ .., b')'] => {
                let mut selector = Selector::none(self.catalogue);
                if all_channels {
                    selector.apply(b"allchannels")?;
                }
                let rules = rules.split(|&byte| byte == b' ').filter(|rule| !rule.is_empty());
                rules.into_iter().try_for_each(|rule| selector.apply(rule))?;
                self.others.push(selector);
            }
            _ => self.root.apply(rule)?,
        }
        self.is_unlimited = self.root.allows_all();
        Ok(())
    }

    fn add_password(&mut self, hash: String) {
        if !self.passwords.contains(&hash) {
            self.passwords.push(hash);
        }
        self.needs_no_password = false;
    }

    fn remove_password(&mut self, hash: &str) -> Result<(), RuleError> {
        let at = self.passwords.iter().position(|known| known == hash).ok_or(RuleError::NoSuchPassword)?;
        self.passwords.remove(at);
        Ok(())
    }

    /// As ACL GETUSER names them.
    pub fn flags(&self) -> Vec<&'static str> {
        let mut all = vec![if self.is_on { "on" } else { "off" }];
        if self.needs_no_password {
            all.push("nopass");
        }
        match self.sanitize {
            Sanitize::Unsaid => {}
            Sanitize::Skipped => all.push("skip-sanitize-payload"),
            Sanitize::Checked => all.push("sanitize-payload"),
        }
        all
    }

    /// A line of a configuration file.
    pub fn line(&self) -> Vec<u8> {
        let mut parts = vec![b"user".to_vec(), self.name.clone()];
        parts.extend(self.flags().iter().map(|flag| flag.as_bytes().to_vec()));
        parts.extend(self.passwords.iter().map(|hash| format!("#{hash}").into_bytes()));
        parts.push(self.root.describe());
        parts.extend(self.others.iter().map(|other| [b"(", other.describe().as_slice(), b")"].concat()));
        parts.join(&b' ')
    }
}
