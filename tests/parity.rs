//! Parity with kube-scheduler. The scenarios of `scenarios/` run through both schedulers on a real
//! control plane, and through supercargo on the API server in memory. `README.md` describes the
//! format and how to run, add and record scenarios.

mod alterations;
mod behaviours;
mod claims;
mod cluster;
mod compare;
mod expected;
mod files;
mod flush;
mod in_memory;
mod memory;
mod namespace;
mod observe;
mod report;
mod run;
mod scenario;
mod scheduler;
mod scheduler_kind;
mod skipping;
mod versions;
mod workers;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime};

use anyhow::{Result, bail, ensure};
use supercargo_controlplane::{ControlPlane, Handle, ManagerOptions, Options, assets_or_skip};

use cluster::Real;
use compare::{Difference, Meant};
use expected::Expected;
use observe::Seen;
use run::Outcome;
use scenario::Scenario;
use scheduler::Scheduler;
use scheduler_kind::{Gates, SchedulerKind};

/// The number of control planes at a time. A run mostly waits.
const PLANES: usize = 2;
/// The days in which all scenarios run beside kube-scheduler.
const DAYS: u64 = 3;

#[test]
fn every_scenario_is_valid_and_recorded() {
    let scenarios = Scenario::all().unwrap();
    assert!(scenarios.len() >= 500, "only {} scenarios", scenarios.len());
    Meant::read().unwrap();
    if is_recording() {
        return;
    }
    for scenario in scenarios {
        scenario.expected().unwrap();
    }
}

pub(crate) fn scenarios_match_kube_scheduler() {
    print_failure(parity());
}

/// Fails with the message as it is, without escapes.
fn print_failure(result: Result<()>) {
    if let Err(error) = result {
        panic!("{error:#}");
    }
}

/// Runs the scenarios through both schedulers and fails with every difference. The results of
/// kube-scheduler must be those that are recorded; with [`is_recording`], they are recorded instead
/// and supercargo does not run.
fn parity() -> Result<()> {
    if assets_or_skip().is_none() {
        return Ok(());
    }
    let _turn = turn();
    let scenarios = if is_recording() { requested()? } else { requested_or_of_today()? };
    let version = scheduler::upstream_version()?;
    let mut by_needs: BTreeMap<_, Vec<&Scenario>> = BTreeMap::new();
    for scenario in scenarios {
        by_needs.entry((&scenario.gates, &scenario.controllers)).or_default().push(scenario);
    }
    let mut results = Results::new(Meant::read()?);
    for ((gates, controllers), scenarios) in by_needs {
        let start = || Pair::start(gates, controllers);
        let outcomes =
            workers::on_threads(PLANES, &scenarios, start, |pair, scenario| pair.run(scenario, &version))?;
        for (scenario, (found, complaint)) in scenarios.iter().zip(outcomes) {
            results.add(&scenario.name, found);
            if let Some(complaint) = complaint {
                results.complain(complaint);
            }
        }
    }
    results.verdict()
}

/// A control plane with groups of pods, which are off by default, and more.
fn with_gates(gates: &Gates) -> Options {
    let mut versions = vec!["scheduling.k8s.io/v1beta1=true"];
    if gates.on.contains("CompositePodGroup") {
        versions.push("scheduling.k8s.io/v1alpha3=true");
    }
    Options {
        feature_gates: gates.of_server(),
        apiserver_args: vec![format!("--runtime-config={}", versions.join(","))],
        ..Options::default()
    }
}

/// Both schedulers on a control plane of their own: nodes belong to the whole cluster.
struct Pair {
    upstream: Scheduler,
    ours: Option<Scheduler>,
    _manager: Option<Handle>,
    // Last: the others end before their control plane.
    cluster: Real,
}

impl Pair {
    fn start(gates: &Gates, controllers: &BTreeSet<String>) -> Result<Self> {
        let cluster = Real::new(ControlPlane::start(with_gates(gates))?);
        run::prepare(&cluster)?;
        let manager = || {
            cluster.plane.start_controller_manager_with(&ManagerOptions {
                controllers: controllers.iter().cloned().collect(),
                extra_args: vec![format!("--feature-gates={}", gates.of_schedulers())],
            })
        };
        let manager = (!controllers.is_empty()).then(manager).transpose()?;
        let start = |side| Scheduler::start(&cluster.plane, side, gates);
        let ours = (!is_recording()).then(|| start(SchedulerKind::Supercargo)).transpose()?;
        Ok(Self { upstream: start(SchedulerKind::Upstream)?, ours, _manager: manager, cluster })
    }

    /// The differences of one scenario, and a complaint about the record or the run of
    /// kube-scheduler.
    fn run(&mut self, scenario: &Scenario, version: &str) -> Result<(Vec<Difference>, Option<String>)> {
        let (name, began) = (&scenario.name, Instant::now());
        let mut upstream = run::scenario(&self.cluster, &mut self.upstream, scenario)?;
        if let Some(why) = self.doubt(&upstream, scenario, version)? {
            // On a busy machine, kube-scheduler now and then tries a pod once more than it must, or
            // leaves it to its flush after five minutes.
            println!("{name}: kube-scheduler runs again: {why}");
            upstream = run::scenario(&self.cluster, &mut self.upstream, scenario)?;
        }
        if let Some(why) = upstream.flaw() {
            let complaint = format!("{name}: kube-scheduler did not complete the scenario: {why}");
            return Ok((Vec::new(), Some(complaint)));
        }
        let seen = upstream.seen;
        let half = began.elapsed();
        let Some(ours) = &mut self.ours else {
            Expected::write(name, version, &seen)?;
            return Ok((Vec::new(), None));
        };
        let complaint = scenario.expected()?.complaint(name, version, &seen);
        let found = judge(name, seen, run::scenario(&self.cluster, ours, scenario)?);
        let (whole, half) = (began.elapsed().as_millis(), half.as_millis());
        println!("{name}: kube-scheduler {half} ms, supercargo {} ms", whole - half);
        Ok((found, complaint))
    }

    /// Why a run of kube-scheduler may be one by chance, if anything speaks for it.
    fn doubt(&self, run: &Outcome, scenario: &Scenario, version: &str) -> Result<Option<String>> {
        if run.flaw().is_some() || self.ours.is_none() {
            return Ok(run.flaw());
        }
        Ok(scenario.expected()?.complaint(&scenario.name, version, &run.seen))
    }
}

/// The scenarios to run: all, or those that `SUPERCARGO_PARITY` selects.
fn requested() -> Result<Vec<&'static Scenario>> {
    let filter = std::env::var("SUPERCARGO_PARITY").unwrap_or_default();
    let all = Scenario::all()?.iter();
    let is_named = |scenario: &&Scenario| filter.split(',').any(|text| scenario.name.contains(text));
    let scenarios: Vec<&Scenario> = all.filter(is_named).collect();
    ensure!(!scenarios.is_empty(), "no scenario matches {filter:?}");
    Ok(scenarios)
}

/// The scenarios that `SUPERCARGO_PARITY` selects; without it another third each day.
///
/// What kube-scheduler does is recorded, and supercargo runs all scenarios in memory. This repeats
/// the records.
fn requested_or_of_today() -> Result<Vec<&'static Scenario>> {
    let mut scenarios = requested()?;
    if std::env::var_os("SUPERCARGO_PARITY").is_none() {
        let today = SystemTime::UNIX_EPOCH.elapsed()?.as_secs() / (24 * 60 * 60);
        let mut number = today % DAYS;
        scenarios.retain(|_| {
            number += 1;
            number.is_multiple_of(DAYS)
        });
    }
    Ok(scenarios)
}

/// The differences between the expected outcome and supercargo's.
fn judge(name: &str, mut expected: Seen, outcome: Outcome) -> Vec<Difference> {
    let mut differences = Vec::new();
    if let Some(ours) = outcome.flaw() {
        // Pods that it did not come to say nothing more.
        expected.pods.retain(|pod, _| outcome.seen.pods.contains_key(pod));
        differences.push(Difference {
            scenario: name.to_owned(),
            pod: String::new(),
            field: "steps",
            upstream: "ran to the end".to_owned(),
            ours,
        });
    }
    differences.extend(compare::differences(name, &expected, &outcome.seen));
    differences
}

/// The results of several scenarios.
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

    /// Adds the differences of a scenario that has run.
    fn add(&mut self, scenario: &str, found: Vec<Difference>) {
        self.ran.push(scenario.to_owned());
        self.found.extend(found);
    }

    /// Adds another fault.
    fn complain(&mut self, complaint: String) {
        self.complaints.push(complaint);
    }

    /// Fails on every difference that is not on purpose.
    fn verdict(self) -> Result<()> {
        let Self { meant, found, mut complaints, ran } = self;
        let known: Vec<String> = Scenario::all()?.iter().map(|scenario| scenario.name.clone()).collect();
        let (faults, unused) = meant.excuse(found, &ran, &known);
        complaints.extend(unused);
        if faults.is_empty() && complaints.is_empty() {
            return Ok(());
        }
        bail!(
            "{} differences from upstream, {} other faults\n{}{}",
            faults.len(),
            complaints.len(),
            compare::show_all(&faults),
            complaints.join("\n")
        )
    }
}

fn is_recording() -> bool {
    std::env::var_os("SUPERCARGO_PARITY_RECORD").is_some_and(|value| value == "1")
}

fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}
