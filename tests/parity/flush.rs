//! A pod that no event requeues is retried after five minutes. In memory only, because
//! kube-scheduler would take these minutes.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;

use super::memory::{self, Memory};
use super::observe::PodSeen;
use super::scenario::Scenario;
use super::scheduler::Scheduler;
use super::{alterations, print_failure, run};

/// A new node fits a pod, but the scheduler's queueing hints ignore it. The canary shows that the
/// node is known.
const SCENARIO: &str = "
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
";

#[test]
fn pod_without_requeueing_event_is_retried_after_five_minutes() {
    // Every 30 seconds, the scheduler checks which pods have waited longer than that.
    for (seconds, tried) in [(295, false), (335, true)] {
        print_failure(waits(seconds, tried));
    }
}

fn waits(seconds: u64, tried: bool) -> Result<()> {
    let mut steps = format!("  - elapse: {}\n", seconds * 1000);
    if tried {
        steps.push_str("  - expect: {p: {bound: b}}\n");
    }
    let scenario = Scenario::parse("flush", &format!("{SCENARIO}{steps}"))?;
    let config = Arc::new(alterations::without_node_hints(&*memory::config()?)?);
    let (memory, embedded) = Memory::start(&config)?;
    run::prepare(&memory)?;
    let outcome = run::scenario(&memory, &mut Scheduler::Embedded(embedded), &scenario)?;
    assert!(outcome.stopped.is_none(), "{:?}", outcome.stopped);
    let PodSeen { node, events, .. } = &outcome.seen["p"];
    let reasons: Vec<_> = events.iter().map(|event| &*event.reason).collect();
    if tried {
        assert_eq!((node.as_deref(), reasons), (Some("b"), vec!["FailedScheduling", "Scheduled"]));
    } else {
        assert_eq!((node.as_deref(), reasons), (None, vec!["FailedScheduling"]), "after {seconds} seconds");
    }
    let skipped = memory.skipped();
    assert!(
        skipped + Duration::from_secs(5) >= Duration::from_secs(seconds),
        "only {skipped:?} were skipped"
    );
    Ok(())
}
