use super::*;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[test]
fn digests_are_the_known_ones() {
    let mut digest = RustCrypto.digest(DigestAlgorithm::Sha256).unwrap();
    digest.update(b"a");
    digest.update(b"bc");
    let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    assert_eq!(hex(digest.finish().unwrap()), abc);
    // RFC 4231, test case 2.
    let mut hmac = RustCrypto.hmac(DigestAlgorithm::Sha256, b"Jefe").unwrap();
    hmac.update(b"what do ya want ");
    hmac.update(b"for nothing?");
    let known = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
    assert_eq!(hex(hmac.finish().unwrap()), known);
}

#[test]
fn an_invalid_key_is_refused_without_quoting_it() {
    let error = RustCrypto.sign(SigningAlgorithm::RS256, b"-----BEGIN hush-----").err().expect("no key");
    assert!(!error.to_string().contains("hush"), "{error}");
}

/// A signature is the padded digest, raised to the private exponent; the public one takes it back.
#[test]
fn a_signature_verifies() {
    let pem = include_str!("test_key.pem");
    let signature = RustCrypto.sign(SigningAlgorithm::RS256, pem.as_bytes()).unwrap().sign(b"text").unwrap();
    let key = RsaPrivateKey::from_pkcs8_pem(pem).unwrap().to_public_key();
    let padding = || Pkcs1v15Sign { hash_len: Some(32), prefix: SHA256_PREFIX.into() };
    key.verify(padding(), &Sha256::digest(b"text"), &signature).unwrap();
    assert!(key.verify(padding(), &Sha256::digest(b"other"), &signature).is_err());
}
