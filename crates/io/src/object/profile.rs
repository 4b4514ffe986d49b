//! The credentials file of the AWS command line: read when the environment names no key.
//!
//! `AWS_SHARED_CREDENTIALS_FILE` or `~/.aws/credentials`, section `AWS_PROFILE` or `default`.

use std::path::PathBuf;

/// A key pair. Never printed.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Keys {
    pub(crate) id: String,
    pub(crate) secret: String,
    pub(crate) token: Option<String>,
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Keys(redacted)")
    }
}

/// The keys of the chosen profile, if there is such a file and section.
pub(crate) fn keys(env: &dyn Fn(&str) -> Option<String>) -> Option<Keys> {
    let file = match env("AWS_SHARED_CREDENTIALS_FILE") {
        Some(file) => PathBuf::from(file),
        None => PathBuf::from(env("HOME")?).join(".aws/credentials"),
    };
    let profile = env("AWS_PROFILE").unwrap_or_else(|| "default".into());
    parse(&std::fs::read_to_string(file).ok()?, &profile)
}

fn parse(text: &str, profile: &str) -> Option<Keys> {
    let mut is_chosen = false;
    let (mut id, mut secret, mut token) = (None, None, None);
    for line in text.lines().map(str::trim) {
        if let Some(section) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            is_chosen = section.trim() == profile;
        } else if let Some((name, value)) =
            line.split_once('=').filter(|_| is_chosen && !line.starts_with('#'))
        {
            let value = Some(value.trim().to_string());
            match name.trim() {
                "aws_access_key_id" => id = value,
                "aws_secret_access_key" => secret = value,
                "aws_session_token" => token = value,
                _ => {}
            }
        }
    }
    Some(Keys { id: id?, secret: secret?, token })
}

#[cfg(test)]
mod tests;
