use super::*;
use crate::page::{PageId, PageKind, SpaceId, format, seal};

const CODECS: [Codec; 2] = [Codec::Lz4, Codec::Zstd];

/// A leaf of rows that are alike, or one of noise.
fn image(rows: bool) -> Vec<u8> {
    let mut image = vec![0; PAGE_SIZE];
    format(&mut image, PageId::new(SpaceId(20), 9), PageKind::Leaf, 0);
    let mut random = 88172645463325252u64;
    for (i, part) in image[64..].chunks_mut(8).enumerate() {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let value = if rows { (i as u64 / 12) << 32 | 7 } else { random };
        part.copy_from_slice(&value.to_le_bytes()[..part.len()]);
    }
    seal(&mut image);
    image
}

fn pack(codec: Codec, image: &[u8]) -> Vec<u8> {
    let mut body = image.to_vec();
    let len = Packer::default().pack(codec, &mut body);
    body.truncate(len);
    body
}

fn unpack(body: &[u8]) -> Result<Vec<u8>, BadBody> {
    let mut image = vec![0xEE; PAGE_SIZE];
    Packer::default().unpack(body, &mut image).map(|()| image)
}

/// A body around these compressed bytes, with the right checksum.
fn body(codec: u8, bytes: &[u8]) -> Vec<u8> {
    let mut body = vec![codec, 0];
    body.extend_from_slice(&(bytes.len() as u16).to_le_bytes());
    body.extend_from_slice(&[0; 4]);
    body.extend_from_slice(bytes);
    body.resize(body.len().next_multiple_of(LENGTH_UNIT), 0);
    let crc = crc32c::crc32c(&body);
    body[4..8].copy_from_slice(&crc.to_le_bytes());
    body
}

#[test]
fn a_page_comes_back_and_is_smaller() {
    let image = image(true);
    for codec in CODECS {
        let body = pack(codec, &image);
        assert!(
            body.len() < PAGE_SIZE / 2 && body.len().is_multiple_of(LENGTH_UNIT),
            "{codec:?}: {}",
            body.len()
        );
        assert_eq!(body[0], codec as u8);
        assert!(unpack(&body).unwrap() == image);
    }
}

#[test]
fn a_page_that_does_not_shrink_is_stored_as_it_is() {
    let noise = image(false);
    for codec in [Codec::None, Codec::Lz4, Codec::Zstd] {
        assert!(pack(codec, &noise) == noise, "{codec:?}");
    }
    assert!(unpack(&noise).unwrap() == noise);
    assert!(pack(Codec::None, &image(true)) == image(true));
    // Half a sixteenth of it could be saved: still not.
    let mut nearly = noise.clone();
    nearly[PAGE_SIZE - PAGE_SIZE / 32..].fill(0);
    for codec in CODECS {
        assert!(pack(codec, &nearly) == nearly, "{codec:?}");
    }
}

#[test]
fn any_flipped_bit_is_named() {
    for codec in CODECS {
        let good = pack(codec, &image(true));
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(unpack(&bad), Err(BadBody::Checksum { .. })), "{codec:?}, bit {bit}");
        }
    }
}

#[test]
fn a_compressed_body_that_expands_beyond_a_page_is_refused() {
    // Compressed well: a gigabyte in some kilobytes, and a page and one byte.
    let large = vec![0; 1 << 24];
    let zstd = zstd::bulk::compress(&large, 3).unwrap();
    assert!(zstd.len() < PAYS / 2);
    let lz4 = lz4_flex::block::compress(&vec![0; PAGE_SIZE + 1]);
    let one_more = zstd::bulk::compress(&vec![0; PAGE_SIZE + 1], 3).unwrap();
    let one_less = zstd::bulk::compress(&vec![0; PAGE_SIZE - 1], 3).unwrap();
    // A frame that asks for a window of gigabytes, and the size of a page that is a lie.
    let window = [0x28, 0xB5, 0x2F, 0xFD, 0x00, 0xF8, 0x01, 0x00, 0x00];
    let mut claims = vec![0x28, 0xB5, 0x2F, 0xFD, 0xE0];
    claims.extend_from_slice(&(1u64 << 60).to_le_bytes());
    claims.extend_from_slice(&[0x01, 0x00, 0x00]);
    for (codec, bytes) in [
        (2, &zstd[..]),
        (1, &lz4),
        (2, &one_more),
        (2, &one_less),
        (2, &window),
        (2, &claims),
        (1, &[0xff; 200]),
        (2, b"no frame at all"),
    ] {
        assert!(matches!(unpack(&body(codec, bytes)), Err(BadBody::Unpack(_))), "{codec} {:?}", &bytes[..9]);
    }
}

#[test]
fn invalid_objects_are_refused() {
    let image = image(true);
    let good = pack(Codec::Zstd, &image);
    let again = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bad = good.clone();
        change(&mut bad);
        bad[4..8].fill(0);
        let crc = crc32c::crc32c(&bad);
        bad[4..8].copy_from_slice(&crc.to_le_bytes());
        unpack(&bad).unwrap_err()
    };
    assert_eq!(again(&|b| b[0] = 0), BadBody::Codec(0));
    assert_eq!(again(&|b| b[0] = 3), BadBody::Codec(3));
    assert_eq!(again(&|b| b[1] = 1), BadBody::Stray);
    assert!(matches!(again(&|b| b.resize(b.len() + 64, 0)), BadBody::Compressed(_)));
    assert!(matches!(again(&|b| b[2..4].fill(0)), BadBody::Compressed(0)));
    assert!(matches!(again(&|b| b[2..4].fill(0xff)), BadBody::Compressed(65535)));
    for len in [0, 63, 65, PAYS + 64, PAGE_SIZE - 1, PAGE_SIZE + 64] {
        assert_eq!(unpack(&vec![1; len]), Err(BadBody::Length(len)));
    }
}

#[test]
fn a_space_without_a_codec_of_its_own_has_the_default() {
    let codecs = Codecs::new(Codec::Zstd);
    codecs.set(SpaceId(20), Some(Codec::None));
    assert_eq!((codecs.of(SpaceId(20)), codecs.of(SpaceId(21))), (Codec::None, Codec::Zstd));
    codecs.set_fallback(Codec::Lz4);
    assert_eq!((codecs.of(SpaceId(20)), codecs.of(SpaceId(21))), (Codec::None, Codec::Lz4));
    codecs.set(SpaceId(20), None);
    assert_eq!(codecs.of(SpaceId(20)), Codec::Lz4);
    for (name, codec) in Codec::NAMES {
        assert_eq!((Codec::named(name), Codec::numbered(codec as u8)), (Some(codec), Some(codec)));
        assert_eq!(codec.name(), name);
    }
}

/// What the memory's budget counts is what the library takes for pages.
#[test]
fn states_of_zstd_take_as_much_memory_as_is_counted() {
    let (packer, mut image) = (Packer::default(), [7; PAGE_SIZE]);
    for (i, byte) in image.iter_mut().enumerate() {
        *byte = (i * i / 31) as u8;
    }
    let length = packer.pack(Codec::Zstd, &mut image.clone());
    assert!(length < PAGE_SIZE, "it is not compressed: {length}");
    let mut kept = packer.packers.lock();
    let pack = kept[0].context_mut().sizeof();
    let mut body = image;
    let length = {
        drop(kept);
        packer.pack(Codec::Zstd, &mut body)
    };
    let mut context = zstd::zstd_safe::DCtx::create();
    let mut out = [0; PAGE_SIZE];
    let stored = usize::from(u16::from_le_bytes([body[2], body[3]]));
    assert!(HEAD + stored <= length);
    context.decompress(&mut out[..], &body[HEAD..HEAD + stored]).unwrap();
    assert!(out == image);
    let unpack = context.sizeof();
    println!("{pack} and {unpack} bytes");
    assert!((PACK_STATE / 2..=PACK_STATE).contains(&pack), "{pack} bytes");
    assert!((UNPACK_STATE / 2..=UNPACK_STATE).contains(&unpack), "{unpack} bytes");
}
