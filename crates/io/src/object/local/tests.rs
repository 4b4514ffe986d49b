use super::*;

/// The directory goes away while a put is under way: it makes none in that place, or takes it away again, and the directory comes back
/// to where it was.
#[test]
fn a_put_under_way_leaves_nothing_in_the_place_of_a_moved_directory() {
    let scratch = std::env::temp_dir().join(format!("terrace-local-{}", std::process::id()));
    let (root, away) = (scratch.join("store"), scratch.join("away"));
    let _ = std::fs::remove_dir_all(&scratch);
    let local = Local::open(&root, 4, false).unwrap();
    assert!(!local.is_mount);
    // Past the look at the root that a request begins with.
    let put = |key: &str| {
        let (path, file) = local.path(key).unwrap();
        local.put(key, &path, &file, PutPayload::from_static(b"one"), PutMode::Create)
    };
    put("a/b/c-1").unwrap();
    std::fs::rename(&root, &away).unwrap();
    for key in ["a/b/c-2", "a/new/c-3", "d"] {
        let failed = put(key).unwrap_err();
        assert!(!failed.is_answer(), "{failed:?}");
        assert!(!root.exists(), "{key}");
    }
    // Files that do not belong to the store stay, and so does the directory below a mount.
    std::fs::create_dir(&root).unwrap();
    std::fs::write(root.join("theirs"), b"").unwrap();
    assert!(put("a/b/c-4").is_err());
    assert_eq!(std::fs::read_dir(&root).unwrap().count(), 1);
    std::fs::remove_file(root.join("theirs")).unwrap();
    let mounted = Local { is_mount: true, ..Local::open(&away, 4, false).unwrap() };
    let mounted =
        Local { root: root.clone(), inner: LocalFileSystem::new_with_prefix(&root).unwrap(), ..mounted };
    let (path, file) = mounted.path("a/b").unwrap();
    assert!(mounted.put("a/b", &path, &file, PutPayload::from_static(b"one"), PutMode::Create).is_err());
    assert_eq!(std::fs::read_dir(&root).unwrap().count(), 0);
    std::fs::remove_dir(&root).unwrap();
    std::fs::rename(&away, &root).unwrap();
    put("a/b/c-5").unwrap();
    std::fs::remove_dir_all(&scratch).unwrap();
}
