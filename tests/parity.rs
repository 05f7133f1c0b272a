//! Parity with upstream: the scenarios of `scenarios/` through kube-scheduler and through supercargo, on one
//! control plane, and through supercargo on the API server in memory. `README.md` has the format, and how to run,
//! add and record.

mod alterations;
mod cluster;
mod compare;
mod expected;
mod flush;
mod in_memory;
mod memory;
mod observe;
mod report;
mod run;
mod scenario;
mod side;
mod skipping;
mod versions;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use anyhow::{Result, bail, ensure};
use supercargo_controlplane::{ControlPlane, Options, assets_or_skip};

use cluster::Real;
use compare::{Difference, Meant};
use expected::Expected;
use observe::Seen;
use run::Outcome;
use scenario::Scenario;
use side::{Scheduler, Side};

#[test]
fn every_scenario_is_well_formed_and_has_its_recorded_expectations() {
    let scenarios = Scenario::all(&folder("scenarios"), None).unwrap();
    assert!(scenarios.len() >= 500, "only {} scenarios", scenarios.len());
    Meant::read().unwrap();
    if is_recording() {
        return;
    }
    for scenario in &scenarios {
        scenario.expected().unwrap();
    }
}

#[test]
fn scenarios_match_their_recorded_expectations() {
    if is_recording() {
        eprintln!("SKIPPED: the expectations are being recorded");
        return;
    }
    hold(parity(false));
}

#[test]
fn scenarios_match_upstream_run_beside() {
    hold(parity(true));
}

/// Fails with the message as it is written, not as Rust would show it.
fn hold(result: Result<()>) {
    if let Err(error) = result {
        panic!("{error:#}");
    }
}

/// Runs what is asked for and fails with everything that is not as it should be.
fn parity(beside: bool) -> Result<()> {
    if assets_or_skip().is_none() {
        return Ok(());
    }
    // One at a time: nodes belong to the whole control plane, and the machine may be small.
    let _turn = turn();
    let scenarios = asked_for()?;
    let cluster = Real::new(ControlPlane::start(Options::default())?);
    run::prepare(&cluster)?;
    let start = |side| Scheduler::start(&cluster.plane, side);
    let mut upstream = beside.then(|| start(Side::Upstream)).transpose()?;
    let mut ours = (!is_recording()).then(|| start(Side::Supercargo)).transpose()?;
    let version = if beside { side::upstream_version()? } else { String::new() };

    let mut results = Results::new(Meant::read()?);
    for scenario in &scenarios {
        let name = &scenario.name;
        let began = Instant::now();
        let expected = match &mut upstream {
            None => scenario.expected()?.pods.clone(),
            Some(upstream) => {
                let outcome = run::scenario(&cluster, upstream, scenario)?;
                if let Some(why) = outcome.stopped {
                    results.complain(format!("{name}: upstream did not run to the end: {why:#}"));
                    continue;
                }
                outcome.seen
            }
        };
        if is_recording() {
            Expected::write(name, &version, &expected)?;
        } else if upstream.is_some()
            && let Some(complaint) = scenario.expected()?.complaint(name, &version, &expected)
        {
            results.complain(complaint);
        }
        let half = began.elapsed();
        if let Some(ours) = &mut ours {
            let outcome = run::scenario(&cluster, ours, scenario)?;
            results.add(name, judge(name, expected, outcome));
        } else {
            results.add(name, Vec::new());
        }
        let (whole, half) = (began.elapsed().as_millis(), half.as_millis());
        println!("{name}: {half} ms upstream, {} ms ours", whole - half);
    }

    results.verdict()
}

/// The scenarios to run: all, unless the environment says which.
fn asked_for() -> Result<Vec<Scenario>> {
    let filter = std::env::var("SUPERCARGO_PARITY").ok();
    let scenarios = Scenario::all(&folder("scenarios"), filter.as_deref())?;
    ensure!(!scenarios.is_empty(), "no scenario is called {filter:?}");
    Ok(scenarios)
}

/// In what a scenario's outcome is not as it should be.
fn judge(name: &str, mut expected: Seen, outcome: Outcome) -> Vec<Difference> {
    let mut differences = Vec::new();
    if let Some(why) = outcome.stopped {
        // Pods that it did not come to say nothing more.
        expected.retain(|pod, _| outcome.seen.contains_key(pod));
        differences.push(Difference {
            scenario: name.to_owned(),
            pod: String::new(),
            field: "steps",
            upstream: "ran to the end".to_owned(),
            ours: format!("{why:#}"),
        });
    }
    differences.extend(compare::differences(name, &expected, &outcome.seen));
    differences
}

/// What scenarios have come to.
struct Results {
    meant: Meant,
    found: Vec<Difference>,
    complaints: Vec<String>,
    ran: Vec<String>,
}

impl Results {
    fn new(meant: Meant) -> Self {
        Self { meant, found: Vec::new(), complaints: Vec::new(), ran: Vec::new() }
    }

    /// A scenario has run, and this differs.
    fn add(&mut self, scenario: &str, found: Vec<Difference>) {
        self.ran.push(scenario.to_owned());
        self.found.extend(found);
    }

    /// Something else is wrong.
    fn complain(&mut self, complaint: String) {
        self.complaints.push(complaint);
    }

    /// Fails if anything was found that is not meant.
    fn verdict(self) -> Result<()> {
        let Self { meant, found, mut complaints, ran } = self;
        let known = Scenario::all(&folder("scenarios"), None)?;
        let known: Vec<String> = known.into_iter().map(|scenario| scenario.name).collect();
        let (faults, unused) = meant.excuse(found, &ran, &known);
        complaints.extend(unused);
        if faults.is_empty() && complaints.is_empty() {
            return Ok(());
        }
        bail!(
            "{} differences from upstream, {} other faults\n{}{}",
            faults.len(),
            complaints.len(),
            show(&faults),
            complaints.join("\n")
        )
    }
}

fn show(differences: &[Difference]) -> String {
    let mut text = String::new();
    for difference in differences {
        write!(text, "{difference}").expect("writing to a String cannot fail");
    }
    text
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join("parity").join(name)
}

fn is_recording() -> bool {
    std::env::var_os("SUPERCARGO_PARITY_RECORD").is_some_and(|value| value == "1")
}

fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}
