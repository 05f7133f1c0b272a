//! Runs the scenarios through supercargo on API servers of other Kubernetes releases, each on one
//! of them unless more are requested. It must reach the recorded results of the baseline.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use supercargo_controlplane::{Assets, ControlPlane, Method, Options, Program, Release, required};

use super::cluster::{Cluster as _, Real};
use super::compare::{Meant, MeantDifference};
use super::scenario::Scenario;
use super::scheduler::Scheduler;
use super::scheduler_kind::{Gates, SchedulerKind};
use super::{Results, is_recording, judge, print_failure, requested, run, turn};

/// The closed list of exceptions.
const VERSIONS: &str = include_str!("versions.yaml");

/// The exceptions for the API server of one release.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Exceptions {
    /// Scenarios that the server does not support. They run, and must not reach the recorded
    /// results.
    pub(super) unsupported: Vec<Unsupported>,
    /// Other differences.
    pub(super) differences: Vec<FieldDifference>,
}

/// Scenarios that a server does not support, with the reason.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Unsupported {
    pub(super) scenarios: BTreeSet<String>,
    pub(super) reason: String,
}

/// A field that differs in some scenarios, with the reason.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FieldDifference {
    pub(super) scenarios: BTreeSet<String>,
    pub(super) field: String,
    pub(super) reason: String,
}

impl Exceptions {
    /// The exceptions of a release.
    pub(super) fn of(release: Release) -> Result<Self> {
        let mut all = Self::read()?;
        all.remove(release.minor()).with_context(|| format!("versions.yaml lacks {release}"))
    }

    /// The scenarios that the server does not support.
    pub(super) fn unsupported(&self) -> BTreeSet<&str> {
        self.unsupported.iter().flat_map(|entry| &entry.scenarios).map(String::as_str).collect()
    }

    /// The scenarios with other differences.
    pub(super) fn differing(&self) -> BTreeSet<&str> {
        self.differences.iter().flat_map(|entry| &entry.scenarios).map(String::as_str).collect()
    }

    fn read() -> Result<BTreeMap<String, Self>> {
        serde_saphyr::from_str(VERSIONS).context("read versions.yaml")
    }

    fn meant(&self) -> Vec<MeantDifference> {
        let entries = self.differences.iter();
        let entries = entries.flat_map(|entry| entry.scenarios.iter().map(move |scenario| (scenario, entry)));
        entries.map(|(scenario, entry)| MeantDifference::new(scenario, &entry.field, &entry.reason)).collect()
    }
}

#[test]
fn exceptions_name_known_releases_and_scenarios_with_a_reason() {
    let all = Exceptions::read().unwrap();
    let releases: Vec<&str> = all.keys().map(String::as_str).collect();
    assert_eq!(releases, Release::EARLIER.map(Release::minor));
    let known = Scenario::all().unwrap();
    for exceptions in all.values() {
        let (unsupported, differing) = (exceptions.unsupported(), exceptions.differing());
        for scenario in unsupported.union(&differing) {
            assert!(known.iter().any(|known| known.name == *scenario), "there is no {scenario}");
        }
        assert!(unsupported.is_disjoint(&differing));
        let reasons = exceptions.unsupported.iter().map(|entry| &entry.reason);
        let mut reasons = reasons.chain(exceptions.differences.iter().map(|entry| &entry.reason));
        assert!(reasons.all(|reason| reason.len() > 10));
    }
}

/// How long a step of an unsupported scenario waits: mostly in vain.
const SHORT_PATIENCE: Duration = Duration::from_secs(5);

#[test]
fn scenarios_match_their_recorded_expectations_on_other_releases() {
    if is_recording() {
        eprintln!("SKIPPED: recording");
        return;
    }
    print_failure(all());
}

/// Runs the scenarios on all servers at once, because they mostly wait.
fn all() -> Result<()> {
    // Each API server takes minutes to build.
    let wanted = if runs_all() { &Release::EARLIER[..] } else { &Release::EARLIER[..1] };
    let releases: Vec<Release> = wanted.iter().copied().filter(|release| is_there(*release)).collect();
    let _turn = turn();
    let scenarios = requested()?;
    let outcomes: Vec<Result<()>> = thread::scope(|scope| {
        let runs: Vec<_> = releases
            .iter()
            .map(|release| {
                let scenarios = &scenarios;
                scope.spawn(move || on(*release, scenarios).with_context(|| format!("on {release}")))
            })
            .collect();
        runs.into_iter().map(|run| run.join().expect("a run does not panic")).collect()
    });
    let faults: Vec<String> =
        outcomes.into_iter().filter_map(|outcome| outcome.err().map(|error| format!("{error:#}"))).collect();
    ensure!(faults.is_empty(), "{}", faults.join("\n"));
    Ok(())
}

/// Whether the server of a release is available or can be built; if not, stderr says why.
///
/// # Panics
///
/// If it is not available and [`required`].
fn is_there(release: Release) -> bool {
    let program = Program::KubeApiserver(release);
    let path = Assets::locate().and_then(|assets| assets.path(Program::Etcd).and(assets.path(program)));
    match path {
        Ok(_) => true,
        Err(why) if required() => panic!("no API server of {release}: {why:#}"),
        Err(why) => {
            eprintln!("SKIPPED: no API server of {release}: {why:#}");
            false
        }
    }
}

fn on(release: Release, scenarios: &[&Scenario]) -> Result<()> {
    let exceptions = Exceptions::of(release)?;
    let (unsupported, differing) = (exceptions.unsupported(), exceptions.differing());
    let began = Instant::now();
    let cluster = Real::new(ControlPlane::start(Options { release, ..Options::default() })?);
    check_version(&cluster, release)?;
    run::prepare(&cluster)?;
    let mut ours = Scheduler::start(&cluster.plane, SchedulerKind::Supercargo, &Gates::default())?;
    let started = began.elapsed();

    let mut results = Results::new(Meant::read()?.and(exceptions.meant()));
    let runs_all = runs_all();
    let runs = |name: &str| runs_all || differing.contains(name) || is_in_sample(name);
    let fits = |scenario: &&&Scenario| scenario.runs_on_other_releases() && runs(&scenario.name);
    let scenarios: Vec<_> = scenarios.iter().filter(fits).collect();
    for scenario in &scenarios {
        let name = &scenario.name;
        let is_supported = !unsupported.contains(name.as_str());
        let outcome = if is_supported {
            run::scenario(&cluster, &mut ours, scenario)?
        } else {
            run::scenario_within(SHORT_PATIENCE, &cluster, &mut ours, scenario)?
        };
        let found = judge(name, scenario.expected()?.seen(), outcome);
        if is_supported {
            results.add(name, found);
        } else if found.is_empty() {
            results.complain(format!("versions.yaml: {release} supports {name}, so delete it"));
        }
    }
    println!(
        "{release}: {} scenarios in {:.1?}, of which {started:.1?} for the start",
        scenarios.len(),
        began.elapsed()
    );
    results.verdict()
}

/// Whether every scenario runs on every release, and not a third of them on the oldest one.
fn runs_all() -> bool {
    ["SUPERCARGO_PARITY", "SUPERCARGO_PARITY_RELEASES"].iter().any(|name| std::env::var_os(name).is_some())
}

/// Whether a scenario runs by default even if it does not differ on the release: all of them take
/// minutes, and one that a release does not support waits in vain.
fn is_in_sample(scenario: &str) -> bool {
    scenario.bytes().map(usize::from).sum::<usize>().is_multiple_of(3)
}

/// Fails if the server is of another release.
fn check_version(cluster: &Real, release: Release) -> Result<()> {
    let version = cluster.request(Method::Get, "/version", None)?.json()?;
    let found = version["gitVersion"].as_str().unwrap_or_default();
    let is_given = Assets::locate()?.is_given(Program::KubeApiserver(release));
    let minor = format!("v{}.", release.minor());
    ensure!(
        found == release.version() || is_given && found.starts_with(&minor),
        "the API server reports version {found}"
    );
    Ok(())
}
