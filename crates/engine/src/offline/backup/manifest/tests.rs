use super::*;
use terrace_tier::page::SpaceId;

fn some() -> Manifest {
    let key = |sequence| ObjectKey { lineage: 3, space: SpaceId(16), block: 1, epoch: 2, sequence };
    let chunk = |number| ChunkEntry { number, length: CHUNK as u64, crc: 77 };
    Manifest {
        name: "monday".into(),
        made_ms: 5,
        instance: 1,
        lineage: 2,
        log: Some((9, 12_345)),
        files: vec![
            FileEntry {
                name: "superblock".into(),
                length: 8192,
                chunks: vec![ChunkEntry { number: 0, length: 8192, crc: 1 }],
            },
            FileEntry { name: "log.0".into(), length: 4 * CHUNK as u64, chunks: vec![chunk(0), chunk(3)] },
        ],
        objects: vec![
            ObjectEntry { key: key(4), length: 2000, crc: Some(9) },
            ObjectEntry { key: key(5), length: 3000, crc: Some(u32::MAX) },
        ],
    }
}

#[test]
fn a_manifest_is_read_as_it_was_written() {
    let one = some();
    assert_eq!(Manifest::decode(&one.encode()), Ok(one.clone()));
    assert_eq!((one.object_bytes(), one.volume_bytes()), (5000, 8192 + 2 * CHUNK as u64));
}

/// Older builds read what older builds could have written.
#[test]
fn the_format_is_a_newer_one_only_if_a_checksum_is_missing() {
    let mut one = some();
    assert!(one.encode().starts_with(b"terrace backup 2\n"));
    one.objects[1].crc = None;
    assert!(one.encode().starts_with(b"terrace backup 3\n"));
    assert_eq!(Manifest::decode(&one.encode()), Ok(one));
}

#[test]
fn a_manifest_that_is_cut_off_or_changed_is_none() {
    let bytes = some().encode();
    for i in 0..bytes.len() {
        assert!(Manifest::decode(&bytes[..i]).is_err(), "cut at {i}");
        let mut bad = bytes.clone();
        bad[i] ^= 1;
        assert!(Manifest::decode(&bad).is_err(), "a flipped bit in byte {i} is not noticed");
    }
}

/// A checksum can be right for lines that make no sense.
#[test]
fn lines_that_lead_out_of_a_volume_or_a_file_are_refused() {
    let refused = |change: &dyn Fn(&mut Manifest)| {
        let mut one = some();
        change(&mut one);
        Manifest::decode(&one.encode()).unwrap_err()
    };
    assert!(refused(&|one| one.files[0].name = "../x".into()).contains("name"));
    assert!(refused(&|one| one.files[0].name = "log.x".into()).contains("name"));
    assert!(refused(&|one| one.files[1].chunks[1].number = 4).contains("place"));
    assert!(refused(&|one| one.files[1].chunks[1].number = u64::MAX).contains("place"));
    assert!(refused(&|one| one.files[1].chunks[0].length = 1).contains("place"));
    assert!(refused(&|one| one.files[1].chunks.swap(0, 1)).contains("place"));
    assert!(refused(&|one| one.objects.swap(0, 1)).contains("order"));
}
