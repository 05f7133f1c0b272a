//! The test of the tests: for each of many rules a scheduler that does not keep it, and a scenario that notices.
//!
//! An alteration changes the configuration that supercargo runs with, or wraps a plugin. The scenarios that should
//! notice it run on the API server in memory. One whose scenarios are all as recorded fails the test: then either
//! they look away, or the rule decides nothing.

mod alteration;
mod rules;
mod twist;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use supercargo::config::Config;
use supercargo_framework::{ActionType, EventResource};

use super::compare::{Difference, Meant};
use super::scenario::Scenario;
use super::{folder, hold, in_memory, is_recording, memory, show};
use alteration::{Alteration, Change, wrapped};

/// So many servers at a time.
const SERVERS: usize = 2;
/// They take less than a minute, unless many others share the machine.
const LONGEST: Duration = Duration::from_mins(5);

#[test]
fn whatever_rule_is_altered_a_scenario_notices() {
    if is_recording() {
        eprintln!("SKIPPED: the expectations are being recorded");
        return;
    }
    hold(all());
}

/// The configuration of a scheduler that does not see when a node helps a pod that lacks resources.
pub(super) fn deaf_to_nodes(config: &Config) -> Result<Config> {
    let what = "NodeResourcesFit: deaf to nodes";
    let change = Change::Plugin("NodeResourcesFit", twist::deaf_to(EventResource::Node, ActionType::ALL));
    Alteration { what, rule: "", change, noticed_by: &[] }.apply(config)
}

/// What became of an alteration.
struct Report {
    what: &'static str,
    rule: &'static str,
    /// The scenarios that differ.
    noticed_by: Vec<String>,
    /// The first thing that differs.
    how: String,
}

fn all() -> Result<()> {
    let began = Instant::now();
    let config = memory::config()?;
    let scenarios = Scenario::all(&folder("scenarios"), None)?;
    let filter = std::env::var("SUPERCARGO_PARITY").ok();
    let mut alterations = rules::all();
    let names: BTreeSet<&str> = alterations.iter().map(|alteration| alteration.what).collect();
    ensure!(names.len() == alterations.len(), "two alterations have one name");
    ensure!(alterations.len() >= 45, "only {} alterations", alterations.len());
    if let Some(filter) = filter {
        alterations.retain(|alteration| alteration.what.contains(&filter));
    }

    let unaltered = unaltered(&alterations, &scenarios, &config)?;
    ensure!(unaltered.is_empty(), "the wrapping alone is noticed:\n{}", show(&unaltered));
    let reports = side_by_side(&alterations, |alteration| try_one(alteration, &scenarios, &config))?;
    println!("{}", table(&reports));
    println!("{} alterations in {:.1?}", reports.len(), began.elapsed());
    let unnoticed: Vec<&str> =
        reports.iter().filter(|report| report.noticed_by.is_empty()).map(|report| report.what).collect();
    if !unnoticed.is_empty() {
        bail!("nobody notices {} alterations:\n{}", unnoticed.len(), unnoticed.join("\n"));
    }
    ensure!(began.elapsed() < LONGEST, "{} alterations took {:?}", reports.len(), began.elapsed());
    Ok(())
}

/// What differs where every plugin is wrapped and none altered, in all scenarios that are to notice something.
fn unaltered(alterations: &[Alteration], scenarios: &[Scenario], config: &Config) -> Result<Vec<Difference>> {
    let config = Arc::new(wrapped(config));
    let asked = alterations.iter().flat_map(|alteration| alteration.noticed_by);
    let asked: BTreeSet<&str> = asked.copied().collect();
    let concerned: Vec<&Scenario> =
        scenarios.iter().filter(|scenario| asked.contains(scenario.name.as_str())).collect();
    Ok(side_by_side(&concerned, |scenario| run(scenario, &config))?.into_iter().flatten().collect())
}

/// Runs the scenarios that are to notice the alteration, until one does.
fn try_one(alteration: &Alteration, scenarios: &[Scenario], config: &Config) -> Result<Report> {
    let Alteration { what, rule, noticed_by, .. } = *alteration;
    let config = Arc::new(alteration.apply(config)?);
    let mut report = Report { what, rule, noticed_by: Vec::new(), how: String::new() };
    for name in noticed_by {
        let scenario = scenarios.iter().find(|scenario| scenario.name == *name);
        let scenario = scenario.with_context(|| format!("{what}: there is no scenario {name}"))?;
        let found = run(scenario, &config).with_context(|| format!("{what}: {name}"))?;
        if let Some(first) = found.first() {
            report.noticed_by.push(scenario.name.clone());
            report.how = first.to_string();
            break;
        }
    }
    Ok(report)
}

/// In what a scenario differs from what is recorded, and is not meant to.
fn run(scenario: &Scenario, config: &Arc<Config>) -> Result<Vec<Difference>> {
    let found = in_memory::one(scenario, config)?.found;
    Ok(Meant::read()?.excuse(found, &[], &[]).0)
}

/// Does something with each of them, on several threads; the answers are in their order.
fn side_by_side<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> Result<R> + Sync) -> Result<Vec<R>> {
    let next = AtomicUsize::new(0);
    let some = || -> Result<Vec<(usize, R)>> {
        let mut done = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(number) else { return Ok(done) };
            done.push((number, work(item)?));
        }
    };
    let done: Vec<Result<Vec<(usize, R)>>> = thread::scope(|scope| {
        let workers: Vec<_> = (0..SERVERS).map(|_| scope.spawn(some)).collect();
        workers.into_iter().map(|worker| worker.join().expect("a worker does not panic")).collect()
    });
    let done: Vec<Vec<(usize, R)>> = done.into_iter().collect::<Result<_>>()?;
    let mut done: Vec<(usize, R)> = done.into_iter().flatten().collect();
    done.sort_by_key(|(number, _)| *number);
    Ok(done.into_iter().map(|(_, answer)| answer).collect())
}

/// Alterations, rules, and who noticed.
fn table(reports: &[Report]) -> String {
    let mut text = String::from("| Altered | The rule | Noticed by |\n|---|---|---|\n");
    for Report { what, rule, noticed_by, how } in reports {
        let noticed_by = if noticed_by.is_empty() { "NOBODY".to_owned() } else { noticed_by.join(", ") };
        writeln!(text, "| {what} | {rule} | {noticed_by} |").expect("writing to a String cannot fail");
        for line in how.lines().filter(|_| std::env::var_os("SUPERCARGO_PARITY_HOW").is_some()) {
            writeln!(text, "      {line}").expect("writing to a String cannot fail");
        }
    }
    text
}
