use super::*;
use crate::objects::object::codec::Packer;
use crate::page::{PageId, PageKind, format, seal};
use dice::Dice;

/// Random numbers without a dependency.
mod dice {
    use crate::page::spread;
    use crate::page::{PageId, SpaceId};
    pub struct Dice(pub u64);
    impl Dice {
        pub fn below(&mut self, n: usize) -> usize {
            self.0 += 1;
            (spread(PageId::new(SpaceId((self.0 >> 32) as u32), self.0 as u32)) % n as u64) as usize
        }
    }
}

fn key() -> ObjectKey {
    ObjectKey { lineage: 0xAB << 100 | 7, space: SpaceId(20), block: 3, epoch: 9, sequence: 77 }
}

fn object(indexes: &[usize]) -> (Header, Vec<u8>) {
    object_with(Codec::None, indexes)
}

fn object_with(codec: Codec, indexes: &[usize]) -> (Header, Vec<u8>) {
    let images: Vec<(usize, Tag, Vec<u8>)> = indexes
        .iter()
        .map(|i| {
            let mut image = vec![0; PAGE_SIZE];
            format(&mut image, PageId::new(SpaceId(20), 3 * BLOCK_PAGES + *i as u32), PageKind::Leaf, 0);
            image[100..200].fill(*i as u8);
            let tag = seal(&mut image);
            let len = Packer::default().pack(codec, &mut image);
            image.truncate(len);
            (*i, tag, image)
        })
        .collect();
    let bodies: Vec<_> = images.iter().map(|(i, tag, image)| (*i, *tag, &image[..])).collect();
    let header = Header::new(key(), 5, &bodies);
    let mut bytes = header.encode().to_vec();
    bodies.iter().for_each(|(_, _, body)| bytes.extend_from_slice(body));
    (header, bytes)
}

#[test]
fn an_object_is_read_back_as_it_was_written() {
    let (header, bytes) = object(&[0, 1, 5, 127]);
    assert_eq!(Header::decode(&bytes).unwrap(), header);
    assert_eq!(check(&key(), &bytes).unwrap(), header);
    assert_eq!(header.object_len(), bytes.len());
    assert_eq!(header.shape().lengths[5] as usize, PAGE_SIZE);
}

#[test]
fn an_object_without_pages_is_an_object() {
    let (header, bytes) = object(&[]);
    assert_eq!(bytes.len(), HEADER);
    assert_eq!(check(&key(), &bytes).unwrap(), header);
}

#[test]
fn an_object_of_compressed_pages_is_read_back_as_it_was_written() {
    for codec in [Codec::Lz4, Codec::Zstd] {
        let (header, bytes) = object_with(codec, &[0, 1, 5, 127]);
        assert!(bytes.len() < HEADER + 4 * 1024, "{codec:?}: {}", bytes.len());
        assert_eq!(check(&key(), &bytes).unwrap(), header);
        assert_eq!((header.codecs[5], header.codecs[6]), (codec, Codec::None));
    }
}

/// So objects that were put before pages were compressed are read, and those without such pages by builds of then.
#[test]
fn only_an_object_with_a_compressed_page_has_the_version_that_knows_them() {
    let signed = |mut bytes: Vec<u8>| {
        bytes[CRC..CRC + 4].fill(0);
        let crc = crc32c::crc32c(&bytes[..HEADER]);
        bytes[CRC..CRC + 4].copy_from_slice(&crc.to_le_bytes());
        bytes
    };
    let (raw, packed) = (object(&[3]).1, object_with(Codec::Zstd, &[3]).1);
    assert_eq!((raw[8], packed[8]), (1, 2));
    let swap = |bytes: &[u8], version: u8| {
        let mut bytes = bytes.to_vec();
        bytes[8] = version;
        Header::decode(&signed(bytes)).unwrap_err()
    };
    assert_eq!(swap(&raw, 2), BadObject::Stray);
    assert_eq!(swap(&packed, 1), BadObject::Stray);
    assert_eq!(swap(&packed, 3), BadObject::Version(3));
    let mut unknown = packed;
    unknown[CODECS + 3] = 3;
    let found = Header::decode(&signed(unknown));
    assert_eq!(found, Err(BadObject::Page { index: 3, what: "its codec is not known" }));
}

#[test]
fn any_flipped_bit_is_found() {
    for codec in [Codec::None, Codec::Lz4, Codec::Zstd] {
        flip_bits(&object_with(codec, &[0, 9]).1);
    }
}

fn flip_bits(good: &[u8]) {
    let mut dice = Dice(1);
    for round in 0..400 {
        let mut bytes = good.to_vec();
        // Header and bodies alike.
        let at = if round % 2 == 0 { dice.below(HEADER) } else { dice.below(bytes.len()) };
        bytes[at] ^= 1 << dice.below(8);
        assert!(check(&key(), &bytes).is_err(), "byte {at}");
    }
}

#[test]
fn an_object_under_another_name_is_not_it() {
    let (_, bytes) = object(&[4]);
    let other = ObjectKey { sequence: 78, ..key() };
    assert_eq!(check(&other, &bytes), Err(BadObject::Name(key())));
    let cut = &bytes[..bytes.len() - 64];
    assert!(matches!(check(&key(), cut), Err(BadObject::Length { .. })));
}

#[test]
fn garbage_is_an_error_and_never_a_panic() {
    let (_, good) = object(&[1, 2, 3]);
    let mut dice = Dice(99);
    for _ in 0..3000 {
        let mut bytes = good[..dice.below(good.len())].to_vec();
        for _ in 0..dice.below(20) {
            if !bytes.is_empty() {
                let at = dice.below(bytes.len().min(HEADER));
                bytes[at] = dice.below(256) as u8;
            }
        }
        // With a valid checksum the fields themselves must stand the look.
        if bytes.len() >= HEADER {
            bytes[CRC..CRC + 4].fill(0);
            let crc = crc32c::crc32c(&bytes[..HEADER]);
            bytes[CRC..CRC + 4].copy_from_slice(&crc.to_le_bytes());
        }
        if let Ok(header) = Header::decode(&bytes) {
            assert!(header.object_len() <= HEADER + PAGES * PAGE_SIZE);
        }
        _ = check(&key(), &bytes);
    }
}

#[test]
fn the_content_hash_depends_on_everything() {
    let (a, _) = object(&[1, 2]);
    let (b, _) = object(&[1, 3]);
    assert_ne!(a.content, b.content);
    let other = Header::new(ObjectKey { sequence: 78, ..key() }, 5, &[] as &[(usize, Tag, &[u8])]);
    let snapshot = Header::new(ObjectKey { sequence: 78, ..key() }, 6, &[] as &[(usize, Tag, &[u8])]);
    assert_ne!(other.content, snapshot.content);
}
