//! The allocator beside upstream's, on generated clusters: same devices, same errors, same number
//! of steps.
//!
//! `SUPERCARGO_DEVICES_CASES` and `SUPERCARGO_DEVICES_SEED` set the number of cases and the first
//! seed. Not compared are, each for its reason:
//!
//! * identities of shares, which are random
//! * cases in which upstream panics: this crate refuses them, as its documentation says
//! * an answer that upstream does not always give: it walks over maps in random order
//! * cases that take more than 5,000 steps
#![allow(
    unreachable_pub,
    missing_docs,
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::needless_for_each,
    clippy::new_without_default,
    clippy::format_push_string,
    clippy::print_stderr,
    clippy::wildcard_imports,
    clippy::default_trait_access,
    clippy::match_same_arms
)] // a test may read its environment and report

#[path = "upstream/shared.rs"]
mod shared;
#[path = "upstream/shrink.rs"]
mod shrink;

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use serde::Deserialize;
use supercargo_controlplane::Oracle;

use case::{Case, Outcome, normalize};
use shared::case;
use shared::generate::Generator;

/// The number of cases without `SUPERCARGO_DEVICES_CASES`.
const CASES: u64 = 20_000;
/// How often upstream is asked before a difference counts: it walks over maps in random order.
const ATTEMPTS: usize = 10;
/// The same for its allocator `stable`, which tries the second one of two pools first in one of
/// eight attempts.
const STABLE_ATTEMPTS: usize = 200;
/// The questions that shrinking one difference may take.
const MAX_SHRINKING: usize = 300;
/// The differences that are reported.
const MAX_REPORTED: usize = 3;

/// Why cases are not compared.
const TOO_MANY_STEPS: &str = "too many steps";
const UPSTREAM_PANICS: &str = "upstream panics";
/// How many of a thousand cases may be left out for each reason.
const MAX_LEFT_OUT: u64 = 20;

#[derive(Deserialize)]
struct Answer {
    #[serde(default)]
    error: String,
    #[serde(default)]
    nodes: Vec<Outcome>,
}

fn ask(oracle: &mut Oracle, case: &Case) -> Result<Vec<Outcome>> {
    let answer = oracle.ask(&case.question())?;
    let mut answer: Answer = serde_json::from_str(&answer).with_context(|| format!("read {answer}"))?;
    anyhow::ensure!(answer.error.is_empty(), "{}", answer.error);
    answer.nodes.iter_mut().for_each(normalize);
    Ok(answer.nodes)
}

/// A node about which the allocators differ however often upstream is asked.
fn difference(oracle: &mut Oracle, case: &Case, here: &[Outcome]) -> Result<Option<String>> {
    let mut open: Vec<usize> = (0..here.len()).collect();
    let mut found = None;
    let attempts = if case.features.is_stable() { STABLE_ATTEMPTS } else { ATTEMPTS };
    for _ in 0..attempts {
        let there = ask(oracle, case)?;
        open.retain(|node| there[*node].panic.is_empty() && here[*node] != there[*node]);
        let Some(node) = open.first() else { return Ok(None) };
        found = Some(format!("here:  {:?}\nthere: {:?}", here[*node], there[*node]));
    }
    Ok(found)
}

fn shrink(oracle: &mut Oracle, mut case: Case, mut found: String) -> Result<(Case, String)> {
    let mut left = MAX_SHRINKING;
    'again: loop {
        for smaller in shrink::smaller(&case) {
            let Some(here) = smaller.ask_here() else { continue };
            if left == 0 {
                break 'again;
            }
            left -= 1;
            if let Some(difference) = difference(oracle, &smaller, &here)? {
                (case, found) = (smaller, difference);
                continue 'again;
            }
        }
        break;
    }
    Ok((case, found))
}

/// What marks an answer in which something is used.
const MARKS: [(&str, &str); 6] = [
    ("with a share", "shareID"),
    ("with an alternative", "/s"),
    ("with admin access", "adminAccess"),
    ("with conditions", "bindingConditions"),
    ("with a configuration", "FromClaim"),
    ("with a selector", "matchExpressions"),
];

/// What kinds of answers there were.
#[derive(Default)]
struct Report {
    kinds: BTreeMap<&'static str, u64>,
    errors: BTreeMap<String, u64>,
    steps: u64,
}

impl Report {
    fn count(&mut self, kind: &'static str) {
        *self.kinds.entry(kind).or_default() += 1;
    }

    /// Fails if the cases show too little of something, or if too many are not compared.
    fn check(&self, cases: u64) {
        for kind in [TOO_MANY_STEPS, UPSTREAM_PANICS] {
            let count = self.kinds.get(kind).copied().unwrap_or_default();
            assert!(count * 1000 <= cases * MAX_LEFT_OUT, "not compared: {count} of {cases}, {kind}");
        }
        let wanted = ["allocated", "does not fit", "invalid pools", "errors"];
        for kind in wanted.into_iter().chain(MARKS.map(|(kind, _)| kind)) {
            let count = self.kinds.get(kind).copied().unwrap_or_default();
            assert!(count >= 100, "{count} answers: {kind}");
        }
    }

    fn add(&mut self, outcome: &Outcome) {
        self.steps += outcome.steps;
        if !outcome.results.is_empty() {
            self.count("allocated");
        } else if outcome.error.is_empty() {
            self.count("does not fit");
        } else {
            self.count(if outcome.node_only { "invalid pools" } else { "errors" });
            *self.errors.entry(kind_of(&outcome.error)).or_default() += 1;
        }
        let text = |name: &str| outcome.results.iter().any(|result| result.to_string().contains(name));
        for (kind, name) in MARKS {
            if text(name) {
                self.count(kind);
            }
        }
    }
}

/// An error without its names and numbers.
fn kind_of(error: &str) -> String {
    let words = error
        .split([' ', '/', '"', '\n'])
        .filter(|word| word.len() > 2 && word.chars().all(|c| c.is_ascii_lowercase() || ",:".contains(c)));
    words.take(14).collect::<Vec<_>>().join(" ")
}

#[test]
fn generated_clusters_match_upstream() -> Result<()> {
    let Some(mut oracle) = Oracle::start_devices_or_skip() else { return Ok(()) };
    let number = |name, default| std::env::var(name).map_or(default, |value| value.parse().unwrap());
    let (cases, seed) = (number("SUPERCARGO_DEVICES_CASES", CASES), number("SUPERCARGO_DEVICES_SEED", 0));
    let mut report = Report::default();
    let mut differing = Vec::new();
    for seed in seed..seed + cases {
        let case = Generator::new(seed).case();
        let Some(here) = case.ask_here() else {
            report.count(TOO_MANY_STEPS);
            continue;
        };
        let there = ask(&mut oracle, &case)?;
        for (outcome, upstream) in here.iter().zip(&there) {
            report.add(outcome);
            if !upstream.panic.is_empty() {
                report.count(UPSTREAM_PANICS);
            }
        }
        if here != there
            && let Some(found) = difference(&mut oracle, &case, &here)?
        {
            differing.push((seed, case, found));
        }
    }
    eprintln!("{cases} cases, {} steps: {:#?}\n{:#?}", report.steps, report.kinds, report.errors);
    if cases >= CASES {
        report.check(cases);
    }
    let total = differing.len();
    let mut text = String::new();
    for (seed, case, found) in differing.into_iter().take(MAX_REPORTED) {
        let (case, found) = shrink(&mut oracle, case, found)?;
        text += &format!("\nseed {seed}:\n{}\n{found}\n", case.question());
    }
    assert!(text.is_empty(), "{total} differences\n{text}");
    Ok(())
}
