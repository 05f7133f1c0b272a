//! Runs the scenarios on the API server in memory, with supercargo in this process.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use supercargo_config::Config;

use super::compare::{Difference, Meant};
use super::memory::{self, Memory};
use super::scenario::Scenario;
use super::scheduler::Scheduler;
use super::{Results, is_recording, judge, print_failure, requested, run, workers};

/// The number of servers at a time.
const SERVERS: usize = 2;

/// The result of a scenario.
pub(super) struct Report {
    name: String,
    pub(super) found: Vec<Difference>,
    took: Duration,
    /// The time that the scheduler's clock has skipped instead of waiting for a backoff.
    skipped: Duration,
}

#[test]
fn scenarios_match_their_recorded_expectations() {
    if is_recording() {
        eprintln!("SKIPPED: recording");
        return;
    }
    print_failure(all());
}

/// Runs each scenario on its own server. Each worker has plugins of its own: they follow the
/// objects of one scheduler at a time.
fn all() -> Result<()> {
    let (mut scenarios, began) = (requested()?, Instant::now());
    scenarios.retain(|scenario| scenario.runs_in_memory());
    if scenarios.is_empty() {
        return Ok(());
    }
    let configs = || Ok(BTreeMap::<_, Arc<Config>>::new());
    let reports = workers::on_threads(SERVERS, &scenarios, configs, |configs, scenario| {
        let config = match configs.entry(&scenario.gates) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(memory::config_with(&scenario.gates)?),
        };
        one(scenario, config)
    })?;
    print(&reports, began.elapsed());

    let mut results = Results::new(Meant::read()?);
    for report in reports {
        results.add(&report.name, report.found);
    }
    results.verdict()
}

pub(super) fn one(scenario: &Scenario, config: &Arc<Config>) -> Result<Report> {
    let began = Instant::now();
    let expected = scenario.expected()?.seen();
    let (memory, embedded) = Memory::start(config)?;
    run::prepare(&memory)?;
    let outcome = run::scenario(&memory, &mut Scheduler::Embedded(embedded), scenario)?;
    Ok(Report {
        name: scenario.name.clone(),
        found: judge(&scenario.name, expected, outcome),
        took: began.elapsed(),
        skipped: memory.skipped(),
    })
}

/// Prints the time of each scenario, the median and the total.
fn print(reports: &[Report], total: Duration) {
    for Report { name, took, skipped, .. } in reports {
        let waited = if skipped.is_zero() { String::new() } else { format!(", skipped {skipped:.1?}") };
        println!("{name}: {took:.1?}{waited}");
    }
    let mut times: Vec<Duration> = reports.iter().map(|report| report.took).collect();
    times.sort();
    let (median, longest) = (times[times.len() / 2], times[times.len() - 1]);
    let waiting = reports.iter().filter(|report| !report.skipped.is_zero()).count();
    println!(
        "{} scenarios in {total:.1?}: median {median:.1?}, longest {longest:.1?}; {waiting} with time skipped",
        reports.len()
    );
}
