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

use anyhow::Result;
use shared::case::{Outcome, normalize};
use shared::notation;
use supercargo_controlplane::Oracle;

const BEHAVIOURS: &str = include_str!("upstream/behaviours.txt");

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
