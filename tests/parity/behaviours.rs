//! Checks `devices.txt` and `groups.txt`: something shows each behaviour that they list.

use std::fs;
use std::path::Path;

use super::files::folder;

#[test]
fn every_behaviour_of_devices_is_shown() {
    check(include_str!("devices.txt"), 100);
}

#[test]
fn every_behaviour_of_groups_is_shown() {
    check(include_str!("groups.txt"), 80);
}

/// Fails if the list does not have this number of behaviours, or names what does not exist.
fn check(list: &str, behaviours: usize) {
    let lines: Vec<&str> = list.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(lines.len(), behaviours);
    for (number, line) in (1..).zip(lines) {
        let (behaviour, shown) = line.split_once(": ").expect("a name, and what shows it");
        assert!(behaviour.starts_with(&format!("{number} ")), "{line} is not number {number}");
        for name in shown.split(' ') {
            assert!(exists(name), "{behaviour}: there is no {name}");
        }
    }
}

fn exists(name: &str) -> bool {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    if let Some((file, name)) = name.split_once("::") {
        return fs::read_to_string(root.join(file)).is_ok_and(|text| text.contains(name));
    }
    let (scenarios, name) = match name.strip_prefix("oracle/") {
        Some(name) => (root.join("tests").join("oracle").join("scenarios"), name),
        None => (folder("scenarios"), name),
    };
    scenarios.join(format!("{name}.yaml")).is_file()
}
