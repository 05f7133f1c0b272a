//! What the allocator does in each situation that upstream's own tests name, in a short notation
//! (`upstream/behaviours.txt`). The expectations are what upstream answers.
//!
//! `SUPERCARGO_DEVICES_RECORD=1` prints the file with the answers of this crate.
#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::print_stderr,
    clippy::wildcard_imports
)] // a test may read its environment and report

#[path = "upstream/shared.rs"]
mod shared;

use std::collections::BTreeSet;

use anyhow::Result;
use shared::case::{Outcome, normalize};
use shared::notation;
use supercargo_controlplane::Oracle;

const BEHAVIOURS: &str = include_str!("upstream/behaviours.txt");
const CASES: &str = include_str!("upstream/cases.txt");

#[test]
fn named_behaviours_are_upstreams() {
    let mut wrong = Vec::new();
    for behaviour in notation::read(BEHAVIOURS) {
        let outcome = &behaviour.case.ask_here().unwrap()[0];
        let found = notation::write(outcome);
        if std::env::var_os("SUPERCARGO_DEVICES_RECORD").is_some() {
            eprintln!("{}: gives {found} ({} steps)", behaviour.name, outcome.steps);
        }
        if found != behaviour.expected || behaviour.steps.is_some_and(|steps| steps != outcome.steps) {
            let expected = (&behaviour.expected, behaviour.steps);
            wrong.push(format!("{}:\n  {expected:?}\n  {found} ({} steps)", behaviour.name, outcome.steps));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn expectations_are_what_upstream_answers() -> Result<()> {
    let Some(mut oracle) = Oracle::start_devices_or_skip() else { return Ok(()) };
    for behaviour in notation::read(BEHAVIOURS) {
        let answer = oracle.ask(&behaviour.case.question())?;
        let answer: serde_json::Value = serde_json::from_str(&answer)?;
        let mut outcome: Outcome = serde_json::from_value(answer["nodes"][0].clone())?;
        normalize(&mut outcome);
        assert_eq!(notation::write(&outcome), behaviour.expected, "{}", behaviour.name);
        if let Some(steps) = behaviour.steps {
            assert_eq!(outcome.steps, steps, "{}", behaviour.name);
        }
    }
    Ok(())
}

#[test]
fn behaviours_have_different_names() {
    let mut names: Vec<_> = notation::read(BEHAVIOURS).into_iter().map(|it| it.name).collect();
    let count = names.len();
    names.sort();
    names.dedup();
    assert_eq!((names.len(), count > 90), (count, true));
}

#[test]
fn every_case_of_upstreams_tables_has_a_behaviour() {
    let behaviours: BTreeSet<_> = notation::read(BEHAVIOURS).into_iter().map(|it| it.name).collect();
    let (mut cases, mut without) = (BTreeSet::new(), 0);
    for line in CASES.lines().filter(|line| !line.starts_with('#')) {
        let (case, behaviour) = line.split_once(": ").unwrap();
        assert!(cases.insert(case), "{case} is listed twice");
        if behaviour.starts_with("- ") {
            without += 1;
        } else {
            assert!(behaviours.contains(behaviour), "{case}: no behaviour {behaviour:?}");
        }
    }
    assert!(cases.len() >= 279, "upstream has 279 cases, and {} are listed", cases.len());
    assert!(without <= 45, "{without} cases have no behaviour");
}
