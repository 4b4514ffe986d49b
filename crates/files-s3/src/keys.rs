//! The keys that clients sign with. Secrets are never printed.

use s3s::auth::{S3Auth, SecretKey};
use s3s::{S3Result, s3_error};
use std::collections::HashMap;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Secrets by the key's id.
#[derive(Clone, Default)]
pub struct Keys(HashMap<String, SecretKey>);

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Keys({} of them)", self.0.len())
    }
}

impl Keys {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[async_trait::async_trait]
impl S3Auth for Keys {
    async fn get_secret_key(&self, id: &str) -> S3Result<SecretKey> {
        let unknown = || {
            s3_error!(InvalidAccessKeyId, "The AWS Access Key Id you provided does not exist in our records.")
        };
        self.0.get(id).cloned().ok_or_else(unknown)
    }
}

/// Reads a file of keys: a line for each, its id and its secret. It is refused if users other than its owner may read it.
pub fn read(path: &Path) -> Result<Keys, String> {
    let named = |error: std::io::Error| format!("{}: {error}", path.display());
    let mode = std::fs::metadata(path).map_err(named)?.permissions().mode();
    if mode & 0o077 != 0 {
        return Err(format!("{}: others can read the keys: chmod 600", path.display()));
    }
    // Once, at the start: it is no file of the data path.
    #[allow(clippy::disallowed_methods)]
    let text = std::fs::read_to_string(path).map_err(named)?;
    parse(&text).map_err(|why| format!("{}: {why}", path.display()))
}

fn parse(text: &str) -> Result<Keys, String> {
    let mut keys = HashMap::new();
    for (at, line) in text.lines().enumerate().map(|(at, line)| (at + 1, line.trim())) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        // The line is not quoted: it may have a secret in it.
        let (id, secret) = line
            .split_once(char::is_whitespace)
            .ok_or_else(|| format!("line {at} is not an id and a secret"))?;
        let secret = secret.trim();
        if secret.len() < 16 || secret.contains(char::is_whitespace) {
            return Err(format!("line {at}: a secret has 16 characters or more, without a space"));
        }
        if keys.insert(id.to_string(), SecretKey::from(secret.to_string())).is_some() {
            return Err(format!("line {at}: a second secret for one id"));
        }
    }
    match keys.is_empty() {
        true => Err("it has no keys".into()),
        false => Ok(Keys(keys)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_keys_is_read_and_errors_never_quote_a_secret() {
        let keys = parse("# for the loaders\nAKID1 0123456789abcdef\n\n AKID2\tfedcba9876543210 \n").unwrap();
        assert_eq!(keys.0.len(), 2);
        assert_eq!(keys.0["AKID2"].expose(), "fedcba9876543210");
        assert!(!format!("{keys:?}").contains("0123456789abcdef"));
        for bad in [
            "",
            "only-one-word-with-a-secret",
            "AKID short-secret",
            "A 0123456789abcdef\nA 0123456789abcdef",
            "A 0123456789abcdef x",
        ] {
            let error = parse(bad).unwrap_err();
            assert!(
                !error.contains("secret-") && !error.contains("0123456789") && !error.contains("-secret"),
                "{error}"
            );
        }
    }

    #[test]
    fn keys_that_others_can_read_are_refused() {
        let path = std::env::temp_dir().join(format!("terrace-keys-{}", std::process::id()));
        std::fs::write(&path, "AKID 0123456789abcdef\n").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(read(&path).unwrap_err().contains("chmod 600"));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        assert!(!read(&path).unwrap().is_empty());
        std::fs::remove_file(path).unwrap();
    }
}
