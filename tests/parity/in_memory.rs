//! The scenarios on the API server in memory, with supercargo in this process: no other program is needed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use supercargo::config::Config;

use super::compare::{Difference, Meant};
use super::memory::{self, Memory};
use super::scenario::Scenario;
use super::side::Scheduler;
use super::{Results, asked_for, hold, is_recording, judge, run};

/// So many servers at a time.
const SERVERS: usize = 2;
/// They take half a minute, and longer where many others share the machine.
const LONGEST: Duration = Duration::from_mins(10);

/// How a scenario went.
pub(super) struct Report {
    name: String,
    pub(super) found: Vec<Difference>,
    took: Duration,
    /// How much of the scheduler's time was skipped: that is what it would have waited for a backoff.
    skipped: Duration,
}

#[test]
fn scenarios_match_their_recorded_expectations_on_the_server_in_memory() {
    if is_recording() {
        eprintln!("SKIPPED: the expectations are being recorded");
        return;
    }
    hold(all());
}

/// Runs each scenario on a server of its own.
fn all() -> Result<()> {
    let (scenarios, config) = (asked_for()?, memory::config()?);
    let (began, next) = (Instant::now(), AtomicUsize::new(0));
    let work = || -> Result<Vec<Report>> {
        let mut reports = Vec::new();
        while let Some(scenario) = scenarios.get(next.fetch_add(1, Ordering::Relaxed)) {
            reports.push(one(scenario, &config)?);
        }
        Ok(reports)
    };
    let reports: Vec<Result<Vec<Report>>> = thread::scope(|scope| {
        let workers: Vec<_> = (0..SERVERS).map(|_| scope.spawn(work)).collect();
        workers.into_iter().map(|worker| worker.join().expect("a worker does not panic")).collect()
    });
    let reports: Vec<Vec<Report>> = reports.into_iter().collect::<Result<_>>()?;
    let mut reports: Vec<Report> = reports.into_iter().flatten().collect();
    let total = began.elapsed();
    tell(&mut reports, total);
    ensure!(total < LONGEST, "{} scenarios took {total:?}", reports.len());

    let mut results = Results::new(Meant::read()?);
    for report in reports {
        results.add(&report.name, report.found);
    }
    results.verdict()
}

pub(super) fn one(scenario: &Scenario, config: &Arc<Config>) -> Result<Report> {
    let began = Instant::now();
    let expected = scenario.expected()?.pods.clone();
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

/// Prints how long each took, the median and the whole.
fn tell(reports: &mut [Report], total: Duration) {
    reports.sort_by(|one, other| one.name.cmp(&other.name));
    for Report { name, took, skipped, .. } in &*reports {
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
