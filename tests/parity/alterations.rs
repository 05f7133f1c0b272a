//! Mutation tests of the scenarios: for each of many rules, a scheduler that breaks it and a
//! scenario that fails.
//!
//! An alteration changes supercargo's configuration or wraps a plugin. The scenarios that should
//! detect it run on the API server in memory. If all of them reach their recorded results, the test
//! fails: either a scenario is missing, or the rule has no effect.

mod alteration;
mod altered_plugin;
mod rules;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use supercargo::config::Config;
use supercargo_framework::{ActionType, EventResource};

use super::compare::{Difference, Meant, show_all};
use super::scenario::Scenario;
use super::{in_memory, is_recording, memory, print_failure, workers};
use alteration::{Alteration, Change, wrapped};

/// The number of servers at a time.
const SERVERS: usize = 2;

#[test]
fn every_altered_rule_fails_a_scenario() {
    if is_recording() {
        eprintln!("SKIPPED: recording");
        return;
    }
    print_failure(all());
}

/// The configuration of a scheduler whose plugin ignores all events of a kind.
pub(super) fn ignoring(config: &Config, plugin: &'static str, resource: EventResource) -> Result<Config> {
    let change = Change::Plugin(plugin, altered_plugin::ignores(resource, ActionType::ALL));
    Alteration { what: "a plugin ignores events", rule: "", change, detected_by: &[] }.apply(config)
}

/// The result of an alteration.
struct Report {
    what: &'static str,
    rule: &'static str,
    /// The scenarios that detect it.
    detected_by: Vec<String>,
    /// The first difference.
    how: String,
}

fn all() -> Result<()> {
    let began = Instant::now();
    let scenarios = Scenario::all()?;
    let filter = std::env::var("SUPERCARGO_PARITY").ok();
    let mut alterations = rules::all();
    let names: BTreeSet<&str> = alterations.iter().map(|alteration| alteration.what).collect();
    ensure!(names.len() == alterations.len(), "two alterations have one name");
    ensure!(alterations.len() >= 45, "only {} alterations", alterations.len());
    if let Some(filter) = filter {
        alterations.retain(|alteration| alteration.what.contains(&filter));
    }

    let unaltered = unaltered(&alterations, scenarios)?;
    ensure!(unaltered.is_empty(), "wrapping the plugins changes results:\n{}", show_all(&unaltered));
    let reports = workers::on_threads(SERVERS, &alterations, memory::config, |config, alteration| {
        try_one(alteration, scenarios, config)
    })?;
    println!("{}", table(&reports));
    println!("{} alterations in {:.1?}", reports.len(), began.elapsed());
    let undetected: Vec<&str> =
        reports.iter().filter(|report| report.detected_by.is_empty()).map(|report| report.what).collect();
    if !undetected.is_empty() {
        bail!("no scenario detects {} alterations:\n{}", undetected.len(), undetected.join("\n"));
    }
    Ok(())
}

/// The differences with every plugin wrapped and none altered, in all scenarios that should detect
/// an alteration.
fn unaltered(alterations: &[Alteration], scenarios: &[Scenario]) -> Result<Vec<Difference>> {
    let asked = alterations.iter().flat_map(|alteration| alteration.detected_by);
    let asked: BTreeSet<&str> = asked.copied().collect();
    let concerned: Vec<&Scenario> =
        scenarios.iter().filter(|scenario| asked.contains(scenario.name.as_str())).collect();
    let start = || memory::config().map(|config| Arc::new(wrapped(&config)));
    let found = workers::on_threads(SERVERS, &concerned, start, |config, scenario| run(scenario, config))?;
    Ok(found.into_iter().flatten().collect())
}

/// Runs the scenarios that should detect the alteration, until one does.
fn try_one(alteration: &Alteration, scenarios: &[Scenario], config: &Config) -> Result<Report> {
    let Alteration { what, rule, detected_by, .. } = *alteration;
    let config = Arc::new(alteration.apply(config)?);
    let mut report = Report { what, rule, detected_by: Vec::new(), how: String::new() };
    for name in detected_by {
        let scenario = scenarios.iter().find(|scenario| scenario.name == *name);
        let scenario = scenario.with_context(|| format!("{what}: there is no scenario {name}"))?;
        let found = run(scenario, &config).with_context(|| format!("{what}: {name}"))?;
        if let Some(first) = found.first() {
            report.detected_by.push(scenario.name.clone());
            report.how = first.to_string();
            break;
        }
    }
    Ok(report)
}

/// The differences of a scenario from its record that are not on purpose.
fn run(scenario: &Scenario, config: &Arc<Config>) -> Result<Vec<Difference>> {
    let found = in_memory::one(scenario, config)?.found;
    Ok(Meant::read()?.excuse(found, &[], &[]).0)
}

/// A table of alterations, rules and detecting scenarios.
fn table(reports: &[Report]) -> String {
    let mut text = String::from("| Altered | Rule | Detected by |\n|---|---|---|\n");
    for Report { what, rule, detected_by, how } in reports {
        let detected_by =
            if detected_by.is_empty() { "NO SCENARIO".to_owned() } else { detected_by.join(", ") };
        writeln!(text, "| {what} | {rule} | {detected_by} |").expect("writing to a String cannot fail");
        for line in how.lines().filter(|_| std::env::var_os("SUPERCARGO_PARITY_HOW").is_some()) {
            writeln!(text, "      {line}").expect("writing to a String cannot fail");
        }
    }
    text
}
