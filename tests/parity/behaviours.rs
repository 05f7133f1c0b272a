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
        return fs::read_to_string(root.join(file)).is_ok_and(|text| has_test(&text, name));
    }
    let (scenarios, name) = match name.strip_prefix("oracle/") {
        Some(name) => (root.join("tests").join("oracle").join("scenarios"), name),
        None => (folder("scenarios"), name),
    };
    scenarios.join(format!("{name}.yaml")).is_file()
}

/// Whether a source file has a test of this name, or a case of a test: its quoted name.
fn has_test(source: &str, name: &str) -> bool {
    let is_test = |line: &str| {
        let rest = line.trim_start().strip_prefix("fn ").and_then(|rest| rest.strip_prefix(name));
        rest.is_some_and(|rest| rest.starts_with(['(', '<']))
    };
    source.contains(&format!("\"{name}\"")) || source.lines().any(is_test)
}

#[test]
fn part_of_a_name_is_no_test() {
    let source = "#[test]\nfn it_waits() {}\n    fn property(\n const CASE: &str = \"late-pod\"; // it_goes";
    for (name, is_test) in [
        ("it_waits", true),
        ("property", true),
        ("late-pod", true),
        ("it_wait", false),
        ("waits", false),
        ("late", false),
        ("it_goes", false),
    ] {
        assert_eq!(has_test(source, name), is_test, "{name}");
    }
}
