//! TLS: the settings of a listener, and a socket that speaks it.
//!
//! Settings have Redis's names and are read once, at the start: `tls-port`, `tls-cert-file`, `tls-key-file`, `tls-ca-cert-file`, `tls-auth-clients`,
//! `tls-protocols`. As in Redis, clients need a certificate unless `tls-auth-clients` says otherwise.

use crate::config::Config;
use crate::config::files::Files;
use mio::net::TcpStream;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, SupportedProtocolVersion};
use std::io::{Error, ErrorKind, Read, Write};
use std::sync::Arc;

fn invalid(why: String) -> Error {
    Error::new(ErrorKind::InvalidInput, why)
}

/// The file that a setting names.
fn file(config: &Config, files: &dyn Files, name: &str) -> std::io::Result<Vec<u8>> {
    let path = config.text(name);
    if path.is_empty() {
        return Err(invalid(format!("tls-port is set and {name} is not")));
    }
    files.read(path).map_err(|error| invalid(format!("{name} {path}: {error}")))
}

fn certificates(
    config: &Config,
    files: &dyn Files,
    name: &str,
) -> std::io::Result<Vec<CertificateDer<'static>>> {
    let text = file(config, files, name)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let found = found.map_err(|error| invalid(format!("{name} {}: {error}", config.text(name))))?;
    if found.is_empty() {
        return Err(invalid(format!("{name} {}: it has no certificate", config.text(name))));
    }
    Ok(found)
}

fn versions(text: &str) -> std::io::Result<Vec<&'static SupportedProtocolVersion>> {
    let version = |word: &str| match word.to_ascii_lowercase().as_str() {
        "tlsv1.2" => Ok(&rustls::version::TLS12),
        "tlsv1.3" => Ok(&rustls::version::TLS13),
        _ => Err(invalid(format!("tls-protocols {word}: only TLSv1.2 and TLSv1.3 are spoken"))),
    };
    match text {
        "" => Ok(rustls::ALL_VERSIONS.to_vec()),
        text => text.split_ascii_whitespace().map(version).collect(),
    }
}

/// What a listener needs, by the settings.
pub fn server_config(config: &Config, files: &dyn Files) -> std::io::Result<Arc<ServerConfig>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let chain = certificates(config, files, "tls-cert-file")?;
    let key = PrivateKeyDer::from_pem_slice(&file(config, files, "tls-key-file")?)
        .map_err(|error| invalid(format!("tls-key-file {}: {error}", config.text("tls-key-file"))))?;
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&versions(config.text("tls-protocols"))?)
        .map_err(|error| invalid(format!("tls-protocols: {error}")))?;
    let authenticates = config.text("tls-auth-clients");
    let builder = if authenticates == "no" {
        builder.with_no_client_auth()
    } else {
        let mut roots = RootCertStore::empty();
        for root in certificates(config, files, "tls-ca-cert-file")? {
            roots.add(root).map_err(|error| invalid(format!("tls-ca-cert-file: {error}")))?;
        }
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        let verifier = if authenticates == "optional" { verifier.allow_unauthenticated() } else { verifier };
        let verifier = verifier.build().map_err(|error| invalid(format!("tls-ca-cert-file: {error}")))?;
        builder.with_client_cert_verifier(verifier)
    };
    let built = builder.with_single_cert(chain, key);
    built.map(Arc::new).map_err(|error| invalid(format!("tls-cert-file and tls-key-file: {error}")))
}

/// A socket that speaks TLS.
pub struct TlsStream {
    pub stream: TcpStream,
    session: ServerConnection,
}

impl TlsStream {
    pub fn new(stream: TcpStream, config: Arc<ServerConfig>) -> std::io::Result<TlsStream> {
        let session = ServerConnection::new(config).map_err(|error| invalid(error.to_string()))?;
        Ok(TlsStream { stream, session })
    }

    /// Sends what the session has to send.
    pub fn flush(&mut self) -> std::io::Result<()> {
        while self.session.wants_write() {
            if self.session.write_tls(&mut self.stream)? == 0 {
                return Err(ErrorKind::WriteZero.into());
            }
        }
        Ok(())
    }

    /// Whether the session has something to send, as in a handshake.
    pub fn wants_write(&self) -> bool {
        self.session.wants_write()
    }

    /// Tells the client that nothing follows. The connection is closed whether or not that arrives.
    pub fn say_end(&mut self) {
        self.session.send_close_notify();
        let _ = self.flush();
    }
}

impl Read for TlsStream {
    fn read(&mut self, space: &mut [u8]) -> std::io::Result<usize> {
        loop {
            match self.session.reader().read(space) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // A client that closes its socket without saying so in TLS.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(0),
                other => return other,
            }
            if self.session.read_tls(&mut self.stream)? == 0 {
                return Ok(0);
            }
            if let Err(error) = self.session.process_new_packets() {
                // The client is told why, if it listens.
                let _ = self.flush();
                return Err(Error::new(ErrorKind::InvalidData, error));
            }
            match self.flush() {
                Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error),
                _ => {}
            }
        }
    }
}

impl Write for TlsStream {
    /// Encrypts and sends. What it has taken and could not send goes out with the next [`TlsStream::flush`].
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.flush()?;
        let taken = self.session.writer().write(bytes)?;
        match self.flush() {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
            _ => Ok(taken),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        TlsStream::flush(self)
    }
}
