//! Checks `crates/informer/docs/client-go.md`, which lists client-go's mechanisms with their
//! counterparts and tests: no row is missing, and every test that it names exists and runs.
#![allow(clippy::unwrap_used, reason = "the failure of a test is a panic")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::tidy;

const DOCUMENT: &str = "crates/informer/docs/client-go.md";

/// The number of rows of the first table, one per mechanism.
const MECHANISMS: usize = 87;

/// The chapters after it, with their minimum number of rows: one per scenario of client-go's own
/// tests, of the changes since the first analysis, of the wire traces, of protobuf, and of random
/// histories.
const CHAPTERS: &[(&str, usize)] = &[
    ("B", 20),
    ("D1", 17),
    ("D2", 13),
    ("D3", 3),
    ("D4", 22),
    ("D5", 13),
    ("D6", 8),
    ("D7", 15),
    ("D8", 10),
    ("D9", 8),
    ("F", 2),
    ("G", 8),
    ("Q", 3),
];

/// A row of a table: its first cell, and the tests in its last cell.
struct Row {
    first: String,
    item: String,
    tests: Vec<String>,
    last: String,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The rows of all tables in the document, without headings.
fn rows(document: &str) -> Vec<Row> {
    let cells = |line: &str| -> Vec<String> {
        line.trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned()).collect()
    };
    let lines = document
        .lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("| #") && !line.starts_with("| |"));
    lines
        .map(|line| {
            let cells = cells(line);
            let last = cells.last().unwrap().clone();
            Row {
                first: cells[0].clone(),
                item: cells.get(2).cloned().unwrap_or_default(),
                tests: last.split('`').skip(1).step_by(2).map(str::to_owned).collect(),
                last,
            }
        })
        .collect()
}

/// The names of functions with a test attribute, including property tests.
fn tests_in(source: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let mut is_test = false;
    for line in source.lines().map(str::trim) {
        if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            is_test = true;
        } else if line.starts_with("#[ignore") {
            is_test = false;
        } else if let Some((_, rest)) = line.split_once("fn ")
            && std::mem::take(&mut is_test)
        {
            names.push(rest.split(['(', '<']).next().unwrap());
        }
    }
    names
}

/// The tests of the informer crate, with the number of tests of each name.
fn informer_tests() -> BTreeMap<String, usize> {
    let mut tests = BTreeMap::new();
    for file in ["crates/informer/src", "crates/informer/tests"].into_iter().flat_map(tidy::sources) {
        for name in tests_in(&fs::read_to_string(root().join(file)).unwrap()) {
            *tests.entry(name.to_owned()).or_default() += 1;
        }
    }
    tests
}

/// The fault in a test's name, if any. Valid are a test of the crate, `folder/file.rs::name`
/// elsewhere, and a `compile_fail` example of a source file.
fn fault(name: &str, own: &BTreeMap<String, usize>) -> Option<String> {
    let read = |file: &str| fs::read_to_string(root().join(file)).unwrap_or_default();
    match name.split_once("::") {
        None => match own.get(name) {
            Some(1) => None,
            Some(_) => Some(format!("{name}: there is more than one")),
            None => Some(format!("{name}: there is no such test")),
        },
        Some((file, "compile_fail")) => {
            (!read(file).contains("```compile_fail")).then(|| format!("{name}: no such example"))
        }
        Some((file, test)) => {
            (!tests_in(&read(file)).contains(&test)).then(|| format!("{name}: there is no such test"))
        }
    }
}

#[test]
fn every_mechanism_of_client_go_has_its_counterpart_and_a_test() {
    let document = fs::read_to_string(root().join(DOCUMENT)).unwrap();
    let rows = rows(&document);
    let own = informer_tests();
    let mut faults = Vec::new();

    let numbers: Vec<usize> = rows.iter().filter_map(|row| row.first.parse().ok()).collect();
    assert_eq!(numbers, (1..=MECHANISMS).collect::<Vec<_>>(), "every row, once, in order");
    for row in rows.iter().filter(|row| row.first.parse::<usize>().is_ok()) {
        if row.tests.is_empty() {
            faults.push(format!("row {} names no test", row.first));
        }
        if row.item.is_empty() {
            faults.push(format!("row {} does not say what stands for it", row.first));
        }
    }
    for (chapter, at_least) in CHAPTERS {
        let count = rows.iter().filter(|row| row.first == *chapter).count();
        if count < *at_least {
            faults.push(format!("{chapter} has {count} rows of {at_least}"));
        }
    }
    for row in &rows {
        // A scenario without a test states a reason instead.
        if row.tests.is_empty() && !row.last.starts_with('–') {
            faults.push(format!("{} {}: neither a test nor a reason", row.first, row.item));
        }
        faults.extend(row.tests.iter().filter_map(|name| fault(name, &own)));
    }
    let known: BTreeSet<&str> = CHAPTERS.iter().map(|(chapter, _)| *chapter).collect();
    let strange =
        rows.iter().filter(|row| row.first.parse::<usize>().is_err() && !known.contains(&*row.first));
    faults.extend(strange.map(|row| format!("{}: no such chapter", row.first)));
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn missing_ignored_and_duplicate_tests_are_found() {
    let source = "#[test]\nfn one() {}\n#[tokio::test(start_paused = true)]\nasync fn two() {}\nfn helper() {}\n\
        #[test]\n#[ignore = \"slow\"]\nfn three() {}\n    #[test]\n    fn four(\n";
    assert_eq!(tests_in(source), ["one", "two", "four"]);
    let own = BTreeMap::from([("one".to_owned(), 1), ("two".to_owned(), 2)]);
    assert_eq!(fault("one", &own), None);
    for name in
        ["two", "none", "tests/mechanisms.rs::none", "tests/none.rs::one", "tests/tidy.rs::compile_fail"]
    {
        assert!(fault(name, &own).is_some(), "{name}");
    }
    assert_eq!(fault("tests/mechanisms.rs::missing_ignored_and_duplicate_tests_are_found", &own), None);
    assert_eq!(fault("crates/informer/src/handler.rs::compile_fail", &own), None);
}
