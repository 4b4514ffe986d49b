//! Digests and signatures for the object store crate, from RustCrypto.
//!
//! The crate's own providers are licensed under Apache-2.0 alone and can't be linked into a GPL-2.0
//! server. SHA-256 and HMAC sign requests to S3 and Azure; RSA signs the token request of a Google
//! service account.

use hmac::{Hmac, KeyInit, Mac};
use object_store::client::{
    CryptoProvider, DigestAlgorithm, DigestContext, HmacContext, Signer, SigningAlgorithm,
};
use object_store::{Error, Result};
use rsa::pkcs1::DecodeRsaPrivateKey;
use rsa::pkcs8::DecodePrivateKey;
use rsa::{Pkcs1v15Sign, RsaPrivateKey};
use sha2::{Digest, Sha256};

#[derive(Debug)]
pub(crate) struct RustCrypto;

fn unsupported(what: &str) -> Error {
    Error::NotSupported { source: what.to_string().into() }
}

impl CryptoProvider for RustCrypto {
    fn digest(&self, algorithm: DigestAlgorithm) -> Result<Box<dyn DigestContext>> {
        match algorithm {
            DigestAlgorithm::Sha256 => Ok(Box::new(Sha(Sha256::new(), [0; 32]))),
            _ => Err(unsupported("no such digest")),
        }
    }
    fn hmac(&self, algorithm: DigestAlgorithm, secret: &[u8]) -> Result<Box<dyn HmacContext>> {
        match algorithm {
            DigestAlgorithm::Sha256 => {
                let mac = Hmac::<Sha256>::new_from_slice(secret).map_err(|e| unsupported(&e.to_string()))?;
                Ok(Box::new(HmacSha(mac, [0; 32])))
            }
            _ => Err(unsupported("no such digest")),
        }
    }
    fn sign(&self, algorithm: SigningAlgorithm, pem: &[u8]) -> Result<Box<dyn Signer>> {
        if algorithm != SigningAlgorithm::RS256 {
            return Err(unsupported("no such signature"));
        }
        // The cause is not passed on: a parser's message may quote the key.
        let text = std::str::from_utf8(pem).map_err(|_| unsupported("the private key is not PEM"))?;
        let key = RsaPrivateKey::from_pkcs8_pem(text)
            .ok()
            .or_else(|| RsaPrivateKey::from_pkcs1_pem(text).ok())
            .ok_or_else(|| unsupported("the private key is not an RSA key in PEM"))?;
        Ok(Box::new(Rsa(key)))
    }
}

struct Sha(Sha256, [u8; 32]);

impl DigestContext for Sha {
    fn update(&mut self, data: &[u8]) {
        self.0.update(data);
    }
    fn finish(&mut self) -> Result<&[u8]> {
        self.1 = self.0.finalize_reset().into();
        Ok(&self.1)
    }
}

struct HmacSha(Hmac<Sha256>, [u8; 32]);

impl HmacContext for HmacSha {
    fn update(&mut self, data: &[u8]) {
        self.0.update(data);
    }
    fn finish(&mut self) -> Result<&[u8]> {
        self.1 = self.0.clone().finalize().into_bytes().into();
        Ok(&self.1)
    }
}

struct Rsa(RsaPrivateKey);

/// The ASN.1 that says “a SHA-256 digest follows” (RFC 8017 §9.2).
const SHA256_PREFIX: [u8; 19] = [
    0x30, 0x31, 0x30, 0x0d, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x01, 0x05, 0x00,
    0x04, 0x20,
];

impl Signer for Rsa {
    fn sign(&self, text: &[u8]) -> Result<Vec<u8>> {
        let padding = Pkcs1v15Sign { hash_len: Some(32), prefix: SHA256_PREFIX.into() };
        self.0.sign(padding, &Sha256::digest(text)).map_err(|e| unsupported(&format!("signing: {e}")))
    }
}

#[cfg(test)]
mod tests;
