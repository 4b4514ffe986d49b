//! Users in configuration files: a line each, `user NAME RULE…`.

use super::catalogue::Catalogue;
use super::user::User;

/// Joins the words of selectors in parentheses, which a split at spaces has torn apart. Fails with the beginning of one that is not closed.
pub fn join_selectors<'a>(words: impl IntoIterator<Item = &'a [u8]>) -> Result<Vec<Vec<u8>>, Vec<u8>> {
    let mut joined = Vec::new();
    let mut open: Option<Vec<u8>> = None;
    for word in words {
        match &mut open {
            None if word.first() == Some(&b'(') && word.last() != Some(&b')') => open = Some(word.to_vec()),
            None => joined.push(word.to_vec()),
            Some(begun) => {
                begun.push(b' ');
                begun.extend_from_slice(word);
                if word.last() == Some(&b')') {
                    joined.extend(open.take());
                }
            }
        }
    }
    match open {
        Some(begun) => Err(begun),
        None => Ok(joined),
    }
}

pub fn is_name(name: &[u8]) -> bool {
    !name.iter().any(|&byte| byte.is_ascii_whitespace() || byte == 0)
}

/// The user that the words after `user` describe, or what is wrong with them.
pub fn user(words: &[&[u8]], all_channels: bool, catalogue: &'static Catalogue) -> Result<User, String> {
    let [name, rules @ ..] = words else { return Err("a user needs a name".into()) };
    if !is_name(name) {
        return Err(format!("username '{}' contains invalid characters", String::from_utf8_lossy(name)));
    }
    let mut user = User::new(name, all_channels, catalogue);
    let rules = join_selectors(rules.iter().copied())
        .map_err(|_| "Unmatched parenthesis in selector definition".to_owned())?;
    for rule in rules {
        user.apply(&rule, all_channels).map_err(|error| {
            format!("Error in applying operation '{}': {}", String::from_utf8_lossy(&rule), error.text())
        })?;
    }
    Ok(user)
}

/// The users of an ACL file. Fails with everything that is wrong with it.
pub fn file(
    path: &str,
    text: &[u8],
    all_channels: bool,
    catalogue: &'static Catalogue,
) -> Result<Vec<User>, String> {
    let (mut users, mut errors) = (Vec::<User>::new(), String::new());
    for (at, line) in text.split(|&byte| byte == b'\n').enumerate() {
        let at = at + 1;
        let words: Vec<&[u8]> =
            line.split(|byte| byte.is_ascii_whitespace()).filter(|word| !word.is_empty()).collect();
        match words.split_first() {
            None => {}
            Some((first, _)) if first.starts_with(b"#") => {}
            Some((&b"user", rest)) if !rest.is_empty() => match user(rest, all_channels, catalogue) {
                Ok(user) if users.iter().any(|known| known.name == user.name) => {
                    let name = String::from_utf8_lossy(&user.name).into_owned();
                    errors.push_str(&format!("WARNING: Duplicate user '{name}' found on line {at}. "));
                }
                Ok(user) => users.push(user),
                Err(why) => errors.push_str(&format!("{path}:{at}: {why}. ")),
            },
            Some(_) => {
                errors.push_str(&format!(
                    "{path}:{at} should start with user keyword followed by the username. "
                ));
            }
        }
    }
    if errors.is_empty() {
        Ok(users)
    } else {
        Err(errors
            + "WARNING: ACL errors detected, no change to the previously active ACL rules was performed")
    }
}
