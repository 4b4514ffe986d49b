use super::*;

/// A directory that looks like a system's root; removed at the end.
struct Root(PathBuf);

impl Root {
    fn new(name: &str, cgroup: &str, mountinfo: &str) -> Root {
        let place = std::env::temp_dir().join(format!("terrace-machine-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&place);
        let root = Root(place);
        root.file("proc/self/cgroup", cgroup);
        root.file("proc/self/mountinfo", mountinfo);
        root
    }

    fn file(&self, path: &str, text: &str) {
        let path = self.0.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn limit(&self) -> Option<u64> {
        limit_below(&self.0)
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const V2: &str = "25 23 0:27 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
const V1: &str = "34 31 0:31 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
                  35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n";

#[test]
fn the_smallest_limit_on_the_path_to_the_root_counts() {
    let root = Root::new("way", "0::/system.slice/db.service/server\n", V2);
    assert_eq!(root.limit(), None, "no file says anything");
    root.file("sys/fs/cgroup/system.slice/db.service/server/memory.max", "max\n");
    root.file("sys/fs/cgroup/system.slice/memory.max", "8589934592\n");
    root.file("sys/fs/cgroup/other/memory.max", "1\n");
    assert_eq!(root.limit(), Some(8 << 30), "a parent's");
    root.file("sys/fs/cgroup/system.slice/db.service/memory.max", "2147483648\n");
    assert_eq!(root.limit(), Some(2 << 30), "a nearer parent's");
    root.file("sys/fs/cgroup/system.slice/db.service/server/memory.max", "4294967296\n");
    assert_eq!(root.limit(), Some(2 << 30), "the own one is more");
    root.file("sys/fs/cgroup/system.slice/db.service/server/memory.max", "1073741824\n");
    assert_eq!(root.limit(), Some(1 << 30), "the own one");
}

/// In a container the own group is what is mounted.
#[test]
fn a_container_with_a_name_space_of_its_own_has_its_limit_at_the_root() {
    let root = Root::new("container", "0::/\n", V2);
    root.file("sys/fs/cgroup/memory.max", "536870912\n");
    assert_eq!(root.limit(), Some(512 << 20));
}

#[test]
fn version_one_has_its_limits_in_other_files() {
    let root = Root::new("v1", "12:cpu,cpuacct:/a\n4:memory:/docker/abc\n", V1);
    root.file("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    root.file("sys/fs/cgroup/memory/docker/memory.limit_in_bytes", "9223372036854771712\n");
    root.file("sys/fs/cgroup/cpu,cpuacct/a/memory.limit_in_bytes", "1\n");
    assert_eq!(root.limit(), None, "numbers that nobody reaches");
    root.file("sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", "3221225472\n");
    assert_eq!(root.limit(), Some(3 << 30));
}

/// Without a name space of its own, a container sees the name of its group on the machine, and only its group is mounted.
#[test]
fn with_a_partial_mount_the_path_begins_at_the_mount() {
    let mounts = "40 39 0:32 /docker/abc /sys/fs/cgroup/memory\\040one ro - cgroup cgroup rw,memory\n";
    for (name, group, limit) in [
        ("own", "/docker/abc", 1),
        ("below", "/docker/abc/server", 7),
        ("outside", "/docker/other", 1),
        ("above", "/../..", 1),
    ] {
        let root = Root::new(name, &format!("4:memory:{group}\n"), mounts);
        root.file("sys/fs/cgroup/memory one/memory.limit_in_bytes", &(limit << 30).to_string());
        root.file("sys/fs/cgroup/memory one/server/memory.limit_in_bytes", &(7u64 << 30).to_string());
        assert_eq!(root.limit(), Some(limit << 30), "{name}");
    }
}

/// Both versions at once: the memory is limited by one of them, and the other has no such file.
#[test]
fn limits_of_both_hierarchy_versions_are_read_at_once() {
    let mounts = format!("{V1}41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
    let root = Root::new("both", "4:memory:/a\n0::/a/b\n", &mounts);
    root.file("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "6442450944\n");
    assert_eq!(root.limit(), Some(6 << 30));
    root.file("sys/fs/cgroup/unified/a/memory.max", "5368709120\n");
    assert_eq!(root.limit(), Some(5 << 30));
}

#[test]
fn an_unreadable_limit_is_ignored() {
    let odd = ("nonsense\n0:\n", "nonsense\n - \n1 2 3 - cgroup2\n");
    for (cgroup, mounts) in [("", V2), ("0::/a", ""), ("0::/a", V2), odd] {
        let root = Root::new("odd", cgroup, mounts);
        root.file("sys/fs/cgroup/memory.max", "");
        root.file("sys/fs/cgroup/a/memory.max", "-5 apples");
        assert_eq!(root.limit(), None, "{cgroup:?}, {mounts:?}");
    }
    assert_eq!(limit_below(Path::new("/proc/nowhere")), None);
}

#[test]
fn this_machine_has_memory() {
    assert!(memory() > 1 << 20);
}
