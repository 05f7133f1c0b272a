//! A pod that no event requeues is retried after five minutes, and PreEnqueue plugins are asked
//! again about a gated pod. In memory only, because kube-scheduler would take these minutes.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use supercargo_framework::EventResource;

use super::memory::{self, Memory};
use super::observe::PodSeen;
use super::scenario::Scenario;
use super::scheduler::Scheduler;
use super::{alterations, print_failure, run};

/// A pod that could be scheduled, and a plugin whose queueing hints miss the reason.
struct Case {
    /// Its pod is `p`; the canary shows that the scheduler knows the change.
    scenario: &'static str,
    /// The plugin that ignores events of this kind.
    plugin: &'static str,
    resource: EventResource,
    /// The reasons of the pod's events before it is retried.
    before: &'static [&'static str],
    /// The node that it gets.
    node: &'static str,
}

const MISSED_NODE: Case = Case {
    scenario: "
about: A node comes that nobody hears of.
nodes:
  - {name: a, allocatable: {cpu: 1}}
  - {name: b, labels: {disk: ssd}}
pods:
  - {name: p, requests: {cpu: 2}, expect: failed}
  - {name: canary, spec: {nodeSelector: {disk: ssd}}, expect: failed}
steps:
  - create: node/b
    expect: {canary: {bound: b}}
",
    plugin: "NodeResourcesFit",
    resource: EventResource::Node,
    before: &["FailedScheduling"],
    node: "b",
};

const MISSED_GATE: Case = Case {
    scenario: "
about: A gate is removed, and nobody hears of it.
nodes:
  - {name: a}
pods:
  - {name: p, gates: [example.com/one]}
  - {name: canary}
steps:
  - patch: pod/p
    with: {spec: {schedulingGates: []}}
  - create: pod/canary
    expect: {canary: {bound: a}}
",
    plugin: "SchedulingGates",
    resource: EventResource::TargetPod,
    before: &[],
    node: "a",
};

/// Every 30 seconds, the scheduler checks which pods have waited longer than five minutes.
const TIMES: [(u64, bool); 2] = [(295, false), (335, true)];

#[test]
fn pod_without_requeueing_event_is_retried_after_five_minutes() {
    for (seconds, tried) in TIMES {
        print_failure(waits(&MISSED_NODE, seconds, tried));
    }
}

#[test]
fn gates_are_asked_again_after_five_minutes() {
    for (seconds, tried) in TIMES {
        print_failure(waits(&MISSED_GATE, seconds, tried));
    }
}

fn waits(case: &Case, seconds: u64, tried: bool) -> Result<()> {
    let mut text = format!("{}  - elapse: {}\n", case.scenario, seconds * 1000);
    if tried {
        writeln!(text, "  - expect: {{p: {{bound: {}}}}}", case.node)?;
    }
    let scenario = Scenario::parse("flush", &text)?;
    let config = alterations::ignoring(&*memory::config()?, case.plugin, case.resource.clone())?;
    let (memory, embedded) = Memory::start(&Arc::new(config))?;
    run::prepare(&memory)?;
    let outcome = run::scenario(&memory, &mut Scheduler::Embedded(embedded), &scenario)?;
    assert!(outcome.stopped.is_none(), "{:?}", outcome.stopped);
    let PodSeen { node, events, .. } = &outcome.seen.pods["p"];
    let reasons: Vec<_> = events.iter().map(|event| &*event.reason).collect();
    let scheduled = tried.then_some("Scheduled");
    let expected: Vec<_> = case.before.iter().copied().chain(scheduled).collect();
    assert_eq!((node.as_deref(), reasons), (tried.then_some(case.node), expected), "after {seconds} seconds");
    // Other scenarios must not last so long.
    assert!(!tried || outcome.flaw().is_some(), "after {:?}", outcome.took);
    let skipped = memory.skipped();
    assert!(
        skipped + Duration::from_secs(5) >= Duration::from_secs(seconds),
        "only {skipped:?} were skipped"
    );
    Ok(())
}
