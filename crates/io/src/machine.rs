//! How much memory there is for this process: what the machine has, or what its control groups allow, if that is less.
//!
//! A process in a container sees the memory of the whole machine, and is killed when it takes more than its group may. A
//! limit counts for all groups below it, so the least one on the way from the process's group up to the root does. Version 2
//! keeps it in `memory.max` ("max": none), version 1 in `memory.limit_in_bytes` (a number beyond any machine's memory: none); both
//! may be there at once. Where they are mounted, and which group is the process's, `/proc/self` says.

use std::path::{Component, Path, PathBuf};

/// No machine has this much: version 1's way to say that there is no limit.
const NO_LIMIT: u64 = 1 << 62;

/// Bytes of memory that this process may have; 0 if nothing says.
pub fn memory() -> u64 {
    // SAFETY: both only read numbers of the system's.
    let (pages, size) = unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    let machine = u64::try_from(pages).unwrap_or(0) * u64::try_from(size).unwrap_or(0);
    match memory_limit() {
        Some(limit) if machine == 0 => limit,
        limit => limit.unwrap_or(machine).min(machine),
    }
}

/// Bytes that the process's control groups allow; None: as many as there are.
pub fn memory_limit() -> Option<u64> {
    limit_below(Path::new("/"))
}

/// A hierarchy of control groups that can limit memory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

impl Version {
    fn file(self) -> &'static str {
        match self {
            Version::One => "memory.limit_in_bytes",
            Version::Two => "memory.max",
        }
    }
}

/// Where a hierarchy is mounted, and which of its groups is found there.
struct Mount {
    version: Version,
    group: PathBuf,
    place: PathBuf,
}

/// The same for a system whose files are below `root`.
fn limit_below(root: &Path) -> Option<u64> {
    let read = |path: &Path| std::fs::read_to_string(root.join(path.strip_prefix("/").unwrap_or(path))).ok();
    let mounts: Vec<Mount> = read(Path::new("/proc/self/mountinfo"))?.lines().filter_map(mount).collect();
    let groups = read(Path::new("/proc/self/cgroup"))?;
    let mut least = None;
    for (version, group) in groups.lines().filter_map(group) {
        let Some(mount) = mounts.iter().find(|mount| mount.version == version) else { continue };
        // A group outside of what is mounted cannot be seen: then what is mounted stands for it.
        let way = group.strip_prefix(&mount.group).unwrap_or(Path::new(""));
        let way =
            if way.components().all(|c| matches!(c, Component::Normal(_))) { way } else { Path::new("") };
        for above in way.ancestors() {
            let text = read(&mount.place.join(above).join(version.file()));
            let limit = text.and_then(|text| text.trim().parse().ok()).filter(|limit| *limit < NO_LIMIT);
            least = [least, limit].into_iter().flatten().min();
        }
    }
    least
}

/// A line of `/proc/self/cgroup`, `hierarchy:controllers:group`, if it is one that can limit memory.
fn group(line: &str) -> Option<(Version, &Path)> {
    let mut parts = line.splitn(3, ':');
    let (hierarchy, controllers, group) = (parts.next()?, parts.next()?, parts.next()?);
    let version = if hierarchy == "0" && controllers.is_empty() {
        Version::Two
    } else if controllers.split(',').any(|controller| controller == "memory") {
        Version::One
    } else {
        return None;
    };
    Some((version, Path::new(group)))
}

/// A line of `/proc/self/mountinfo`: `id parent device root place options … - kind source options`.
fn mount(line: &str) -> Option<Mount> {
    let (ours, kinds) = line.split_once(" - ")?;
    let mut kinds = kinds.split(' ');
    let version = match (kinds.next()?, kinds.nth(1)?) {
        ("cgroup2", _) => Version::Two,
        ("cgroup", options) if options.split(',').any(|option| option == "memory") => Version::One,
        _ => return None,
    };
    let mut ours = ours.split(' ').skip(3);
    Some(Mount { version, group: unescaped(ours.next()?), place: unescaped(ours.next()?) })
}

/// Blanks and the like are written as a backslash and three octal digits.
fn unescaped(field: &str) -> PathBuf {
    let mut text = String::new();
    let mut rest = field;
    while let Some((before, after)) = rest.split_once('\\') {
        text.push_str(before);
        let code = after.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        text.push(code.map_or('\\', char::from));
        rest = if code.is_some() { &after[3..] } else { after };
    }
    text.push_str(rest);
    PathBuf::from(text)
}

#[cfg(test)]
mod tests;
