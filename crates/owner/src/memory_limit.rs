//! The memory that the process may use: the limit of its container.

use std::fs;
use std::path::Path;

/// The limit of the process' control group, in bytes; `None` if there is none.
pub(crate) fn of_container() -> Option<u64> {
    let group = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    limit(Path::new("/sys/fs/cgroup"), &group)
}

/// The lowest limit of the process' group and its ancestors. `groups` is the content of
/// `/proc/self/cgroup`. In a container, the root is usually its own group.
fn limit(root: &Path, groups: &str) -> Option<u64> {
    let group = groups.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
    let folders = Path::new(group).ancestors().map(|folder| root.join(folder));
    let files = folders.map(|folder| folder.join("memory.max"));
    // Version 1 of control groups. Without a limit, it has a number near the largest.
    let old = root.join("memory/memory.limit_in_bytes");
    let limits = files.chain([old]).filter_map(|file| fs::read_to_string(file).ok()?.trim().parse().ok());
    limits.min().filter(|limit| *limit < 1 << 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_limit_of_a_group_and_its_ancestors_applies() {
        type Files = &'static [(&'static str, &'static str)];
        let cases: [(&str, Files, &str, Option<u64>); 6] = [
            ("none", &[], "0::/\n", None),
            ("a container", &[("", "1073741824\n")], "0::/\n", Some(1 << 30)),
            ("no limit", &[("", "max\n")], "0::/\n", None),
            ("a service", &[("a/b", "300\n"), ("a", "200\n")], "1:cpu:/x\n0::/a/b\n", Some(200)),
            ("version 1", &[("memory/", "500\n")], "9:memory:/docker/1\n", Some(500)),
            ("version 1 without limit", &[("memory/", "9223372036854771712\n")], "9:memory:/\n", None),
        ];
        for (name, files, groups, expected) in cases {
            let root = tempfile::tempdir().unwrap();
            for (folder, content) in files {
                let folder = root.path().join(folder);
                fs::create_dir_all(&folder).unwrap();
                let file = if folder.ends_with("memory") { "memory.limit_in_bytes" } else { "memory.max" };
                fs::write(folder.join(file), content).unwrap();
            }
            assert_eq!(limit(root.path(), groups), expected, "{name}");
        }
    }
}
