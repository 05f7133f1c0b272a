//! Programs of this crate beside upstream's: generated expressions on generated devices, and those
//! of upstream's own tests (`upstream/expressions.txt`). Results, errors with their texts, and
//! costs must be the same.
//!
//! `SUPERCARGO_CEL_EXPRESSIONS` and `SUPERCARGO_CEL_SEED` set the number of generated expressions
//! and the first seed. Not compared are, each for its reason:
//!
//! * what the crate refuses, as listed in its documentation
//! * the text of a syntax error: upstream's parser continues after the first one
//! * the numbers of type variables in messages: upstream counts them in the random order of a Go
//!   map
//! * an answer that upstream does not always give: it walks over maps in random order
#![allow(
    unreachable_pub,
    clippy::disallowed_macros,
    clippy::unwrap_used,
    clippy::format_push_string,
    clippy::format_collect,
    clippy::unnecessary_wraps,
    clippy::disallowed_methods,
    clippy::print_stderr
)] // a test may read its environment and report

#[path = "upstream/arguments.rs"]
mod arguments;
#[path = "upstream/compare.rs"]
mod compare;
#[path = "upstream/generate.rs"]
mod generate;
#[path = "upstream/question.rs"]
mod question;

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use supercargo_cel::{Program, Reads};
use supercargo_controlplane::Oracle;

use compare::{Difference, compare, is_left_out};
use generate::Generator;
use question::{Answer, Question};

/// The number of generated expressions without `SUPERCARGO_CEL_EXPRESSIONS`.
const EXPRESSIONS: u64 = 20_000;
/// Functions that few templates have; enough of the expressions that succeed must call each.
const RARE: &[&str] = &[
    "url(",
    "isURL(",
    "getQuery(",
    "getHost(",
    ".validate(",
    "format.named(",
    ".format(",
    "\\\\p",
    "\\\\B",
    "double('0x",
];
/// How often upstream is asked before a difference counts.
const ATTEMPTS: usize = 20;
/// The questions that shrinking one difference may take.
const MAX_SHRINKING: usize = 1_000;
/// The kinds of differences that are reported.
const MAX_REPORTED: usize = 12;

fn ask(oracle: &mut Oracle, question: &Question) -> Result<Answer> {
    let answer = oracle.ask(&serde_json::to_string(question)?)?;
    serde_json::from_str(&answer).with_context(|| format!("read {answer}"))
}

/// The difference, if there is one however often upstream is asked: it walks over maps in random
/// order.
fn difference(oracle: &mut Oracle, question: &Question) -> Result<Option<Difference>> {
    let mut found = None;
    for _ in 0..ATTEMPTS {
        found = compare(question, &ask(oracle, question)?);
        if found.is_none() {
            break;
        }
    }
    Ok(found)
}

/// Removes what the difference does not need, with a limit of questions.
fn shrink(
    oracle: &mut Oracle,
    mut question: Question,
    mut found: Difference,
) -> Result<(Question, Difference)> {
    let mut goes_on = true;
    let mut left = MAX_SHRINKING;
    while goes_on {
        goes_on = false;
        for smaller in question.smaller() {
            if left == 0 {
                return Ok((question, found));
            }
            left -= 1;
            if let Some(difference) = difference(oracle, &smaller)?
                && difference.kind == found.kind
            {
                (question, found) = (smaller, difference);
                goes_on = true;
                break;
            }
        }
    }
    Ok((question, found))
}

#[derive(Default)]
struct Report {
    asked: u64,
    compiled: u64,
    evaluated: u64,
    matched: u64,
    left_out: u64,
    /// Of [`RARE`], how many expressions have it and an evaluation without an error.
    rare: BTreeMap<&'static str, u64>,
    faults: BTreeMap<String, (u64, Question, Difference)>,
}

impl Report {
    fn add(&mut self, oracle: &mut Oracle, question: Question) -> Result<()> {
        let answer = ask(oracle, &question)?;
        self.asked += 1;
        self.compiled += u64::from(answer.compile_error.is_empty() && answer.compile_panic.is_empty());
        self.evaluated +=
            answer.evaluations.iter().filter(|evaluation| evaluation.error.is_empty()).count() as u64;
        self.matched += answer.evaluations.iter().filter(|evaluation| evaluation.is_match).count() as u64;
        self.left_out += u64::from(is_left_out(&question, &answer));
        if answer.evaluations.iter().any(|evaluation| evaluation.error.is_empty()) {
            for name in RARE.iter().filter(|name| question.expression.contains(**name)) {
                *self.rare.entry(name).or_default() += 1;
            }
        }
        if compare(&question, &answer).is_some()
            && let Some(difference) = difference(oracle, &question)?
        {
            let entry = self.faults.entry(difference.kind.clone());
            let known = entry.or_insert_with(|| (0, question.clone(), difference.clone()));
            known.0 += 1;
            // The shortest tells most.
            if question.expression.len() < known.1.expression.len() {
                (known.1, known.2) = (question, difference);
            }
        }
        Ok(())
    }

    fn finish(self, oracle: &mut Oracle) -> Result<()> {
        eprintln!(
            "{} expressions, {} compiled, {} not compared whole; {} evaluations without an error, {} matches; \
             {} kinds of differences",
            self.asked,
            self.compiled,
            self.left_out,
            self.evaluated,
            self.matched,
            self.faults.len()
        );
        let mut text = String::new();
        let total: u64 = self.faults.values().map(|(count, ..)| count).sum();
        let mut faults: Vec<_> = self.faults.into_values().collect();
        faults.sort_by_key(|(count, ..)| std::cmp::Reverse(*count));
        for (count, question, found) in faults.into_iter().take(MAX_REPORTED) {
            let (question, found) = shrink(oracle, question, found)?;
            text += &format!(
                "\n{count} times: {}\n{}\n{found}\n",
                question.expression,
                serde_json::to_string(&question.devices)?
            );
        }
        assert!(text.is_empty(), "{total} differences\n{text}");
        Ok(())
    }
}

#[test]
fn generated_expressions_match_upstream() -> Result<()> {
    let Some(mut oracle) = Oracle::start_devices_or_skip() else { return Ok(()) };
    let number =
        |name: &str, default| std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default);
    let count = number("SUPERCARGO_CEL_EXPRESSIONS", EXPRESSIONS);
    let first = number("SUPERCARGO_CEL_SEED", 0);
    let mut report = Report::default();
    for seed in first..first + count {
        report.add(&mut oracle, Generator::new(seed).question())?;
    }
    assert!(
        report.compiled > count / 4 && report.evaluated > count / 4,
        "the generator makes too few valid ones"
    );
    assert!(report.left_out < count / 40, "{} of {count} are not compared whole", report.left_out);
    let rare = std::mem::take(&mut report.rare);
    report.finish(&mut oracle)?;
    for name in RARE {
        let found = rare.get(name).copied().unwrap_or_default();
        assert!(found > count / 1_000, "{found} of {count} succeed with {name}");
    }
    Ok(())
}

#[test]
fn a_device_for_a_program_answers_as_a_whole_one() {
    let generated = (0..10_000).map(|seed| Generator::new(seed).question());
    let listed = question::listed().map(|expression| {
        let devices = question::listed_devices();
        Question { expression, devices }
    });
    let (mut partial, mut evaluated) = (0, 0);
    for Question { expression, devices } in generated.chain(listed) {
        let Ok(program) = Program::compile(&expression) else { continue };
        partial += u32::from(*program.reads() != Reads::everything());
        for device in devices {
            let answer = |reads: &Reads| device.device(reads).map(|it| program.matches_with_cost(&it));
            assert_eq!(answer(program.reads()), answer(&Reads::everything()), "{expression}");
            evaluated += 1;
        }
    }
    assert!(partial > 1_000 && evaluated > 5_000, "{partial} programs, {evaluated} evaluations");
}

#[test]
fn expressions_of_upstreams_tests_match_upstream() -> Result<()> {
    let Some(mut oracle) = Oracle::start_devices_or_skip() else { return Ok(()) };
    let mut report = Report::default();
    for (index, expression) in question::listed().enumerate() {
        let mut devices = question::listed_devices();
        devices.push(Generator::new(index as u64).device());
        report.add(&mut oracle, Question { expression, devices })?;
    }
    report.finish(&mut oracle)
}

#[test]
fn functions_match_upstream_on_every_argument() -> Result<()> {
    let Some(mut oracle) = Oracle::start_devices_or_skip() else { return Ok(()) };
    let mut report = Report::default();
    let devices = &question::listed_devices()[..1];
    for expression in arguments::expressions() {
        report.add(&mut oracle, Question { expression, devices: devices.to_vec() })?;
    }
    assert!(report.asked > 3_000 && report.compiled > report.asked / 2, "most of them compile");
    report.finish(&mut oracle)
}
