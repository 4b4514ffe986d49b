//! Where a server that speaks Redis's protocol is, as text.

/// `redis://[[user]:password@]host[:port][/]`, or `host[:port]`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Address {
    pub host: String,
    pub port: u16,
    pub user: Option<String>,
    pub password: Option<String>,
}

impl std::str::FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Address, String> {
        let rest = match text.split_once("://") {
            Some(("redis", rest)) => rest.strip_suffix('/').unwrap_or(rest),
            Some((scheme, _)) => return Err(format!("{scheme}:// is not supported: use redis://host:port")),
            None => text,
        };
        let (login, place) =
            rest.rsplit_once('@').map_or((None, rest), |(login, place)| (Some(login), place));
        let (user, password) = match login.map(|login| login.split_once(':').unwrap_or(("", login))) {
            Some(("", password)) => (None, Some(password.to_owned())),
            Some((user, password)) => (Some(user.to_owned()), Some(password.to_owned())),
            None => (None, None),
        };
        let (host, port) = match place.rsplit_once(':') {
            // The colons of an IPv6 address without a port.
            Some((host, _)) if host.contains(':') && !host.ends_with(']') => (place, 6379),
            Some((host, port)) => (host, port.parse().map_err(|_| format!("{port:?} is not a port"))?),
            None => (place, 6379),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() || host.contains('/') {
            return Err("an address is like redis://host:port".into());
        }
        Ok(Address { host: host.to_owned(), port, user, password })
    }
}

/// Without the login.
impl std::fmt::Display for Address {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}:{}", self.host, self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::Address;

    #[test]
    fn addresses_have_logins_and_ports_or_not() {
        let parse = |text: &str| text.parse::<Address>();
        let of = |host: &str, port, user: Option<&str>, password: Option<&str>| {
            let (user, password) = (user.map(str::to_owned), password.map(str::to_owned));
            Ok(Address { host: host.to_owned(), port, user, password })
        };
        assert_eq!(parse("localhost"), of("localhost", 6379, None, None));
        assert_eq!(parse("redis://h:1/"), of("h", 1, None, None));
        assert_eq!(parse("redis://:p@ss@h:1"), of("h", 1, None, Some("p@ss")));
        assert_eq!(parse("redis://u:p@[::1]:2"), of("::1", 2, Some("u"), Some("p")));
        for wrong in ["", "redis://", "rediss://h", "h:x", "h:1/x"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
