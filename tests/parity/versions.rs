//! The scenarios on the API servers of other releases of Kubernetes, with supercargo only: it must come to what
//! upstream's scheduler of the baseline did on a server of its own release.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use supercargo_controlplane::{Assets, ControlPlane, Method, Options, Program, Release, required};

use super::cluster::{Cluster as _, Real};
use super::compare::{Meant, MeantDifference};
use super::scenario::Scenario;
use super::side::{Scheduler, Side};
use super::{Expected, Results, asked_for, hold, is_recording, judge, run, turn};

/// What comes from the server: a closed list.
const VERSIONS: &str = include_str!("versions.yaml");

/// The releases whose servers were not there when the results were recorded.
pub(super) const OTHERS: [Release; 2] = [Release::Oldest, Release::Newest];

/// What comes from the API server of one release.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Exceptions {
    /// Scenarios that the server does not carry: they are run, and must not come to the recorded results.
    pub(super) not_carried: Vec<NotCarried>,
    /// What else differs.
    pub(super) differences: Vec<Otherwise>,
}

/// Scenarios that a server does not carry, and why.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NotCarried {
    pub(super) scenarios: BTreeSet<String>,
    pub(super) reason: String,
}

/// A field that a server makes otherwise in some scenarios, and why.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Otherwise {
    pub(super) scenarios: BTreeSet<String>,
    pub(super) field: String,
    pub(super) reason: String,
}

impl Exceptions {
    /// Those of a release.
    pub(super) fn of(release: Release) -> Result<Self> {
        let mut all = Self::read()?;
        all.remove(release.minor()).with_context(|| format!("versions.yaml does not have {release}"))
    }

    /// The scenarios that the server does not carry.
    pub(super) fn not_carried(&self) -> BTreeSet<&str> {
        self.not_carried.iter().flat_map(|entry| &entry.scenarios).map(String::as_str).collect()
    }

    /// The scenarios in which something else differs.
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
fn exceptions_are_of_releases_and_scenarios_that_are_there_and_have_a_reason() {
    let all = Exceptions::read().unwrap();
    let releases: Vec<&str> = all.keys().map(String::as_str).collect();
    assert_eq!(releases, OTHERS.map(Release::minor));
    let known = Scenario::all(&super::folder("scenarios"), None).unwrap();
    for exceptions in all.values() {
        let (carried, differing) = (exceptions.not_carried(), exceptions.differing());
        for scenario in carried.union(&differing) {
            assert!(known.iter().any(|known| known.name == *scenario), "there is no {scenario}");
        }
        assert!(carried.is_disjoint(&differing));
        let reasons = exceptions.not_carried.iter().map(|entry| &entry.reason);
        let mut reasons = reasons.chain(exceptions.differences.iter().map(|entry| &entry.reason));
        assert!(reasons.all(|reason| reason.len() > 10));
    }
}

#[test]
fn scenarios_match_their_recorded_expectations_on_other_releases() {
    if is_recording() {
        eprintln!("SKIPPED: the expectations are being recorded");
        return;
    }
    hold(all());
}

/// Runs the scenarios on all servers at once: most of the time goes by waiting.
fn all() -> Result<()> {
    let releases: Vec<Release> = OTHERS.into_iter().filter(|release| is_there(*release)).collect();
    let _turn = turn();
    let scenarios = asked_for()?;
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

/// Whether the server of a release is there or can be built; says on stderr why not.
///
/// # Panics
///
/// When it is not and [`required`].
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

fn on(release: Release, scenarios: &[Scenario]) -> Result<()> {
    let exceptions = Exceptions::of(release)?;
    let not_carried = exceptions.not_carried();
    let began = Instant::now();
    let cluster = Real::new(ControlPlane::start(Options { release, ..Options::default() })?);
    check_version(&cluster, release)?;
    run::prepare(&cluster)?;
    let mut ours = Scheduler::start(&cluster.plane, Side::Supercargo)?;
    let started = began.elapsed();

    let mut results = Results::new(Meant::read()?.and(exceptions.meant()));
    for scenario in scenarios {
        let name = &scenario.name;
        let found = judge(name, Expected::read(name)?.pods, run::scenario(&cluster, &mut ours, scenario)?);
        if !not_carried.contains(name.as_str()) {
            results.add(name, found);
        } else if found.is_empty() {
            results.complain(format!("versions.yaml: {name} is carried by {release}, so delete it"));
        }
    }
    println!(
        "{release}: {} scenarios in {:.1?}, {started:.1?} of it to start",
        scenarios.len(),
        began.elapsed()
    );
    results.verdict()
}

/// Fails when the server is not of the release that it is meant to be of.
fn check_version(cluster: &Real, release: Release) -> Result<()> {
    let version = cluster.request(Method::Get, "/version", None)?.json()?;
    let found = version["gitVersion"].as_str().unwrap_or_default();
    let is_given = Assets::locate()?.is_given(Program::KubeApiserver(release));
    let minor = format!("v{}.", release.minor());
    ensure!(
        found == release.version() || is_given && found.starts_with(&minor),
        "the API server says that it is {found}"
    );
    Ok(())
}
