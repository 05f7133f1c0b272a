//! The rules, their alterations, and the scenarios that should detect them.

mod devices;
mod framework;
mod inter_pod;
mod nodes;
mod preemption;
mod queue;
mod requests;
mod scores;
mod taints;
mod volumes;

use supercargo_framework::plugin::PreFilter;
use supercargo_framework::{Code, Feature, Features, PodInfo, PodSpec, Status};

use super::alteration::{Alteration, Change};
use super::altered_plugin::AlterPoints;

pub(super) fn all() -> Vec<Alteration> {
    let all = [
        nodes::all(),
        scores::all(),
        queue::all(),
        preemption::all(),
        inter_pod::all(),
        volumes::all(),
        devices::all(),
        framework::all(),
        requests::all(),
        taints::all(),
    ];
    all.into_iter().flatten().collect()
}

fn alter(
    what: &'static str,
    rule: &'static str,
    change: Change,
    detected_by: &'static [&'static str],
) -> Alteration {
    Alteration { what, rule, change, detected_by }
}

fn plugin(name: &'static str, alter: AlterPoints) -> Change {
    Change::Plugin(name, alter)
}

fn switch_off(features: &mut Features, feature: Feature) {
    *features = features.clone().with(feature, false);
}

/// Turns any rejection into success.
fn passes(_: Status) -> Status {
    Status::success()
}

/// Rejects with another message.
fn reworded(status: Status) -> Status {
    if status.is_rejected() { Status::new(status.code(), "node(s) were not good enough") } else { status }
}

/// Makes a rejection unresolvable by preemption.
fn unresolvable(status: Status) -> Status {
    if status.is_rejected() { recoded(&status, Code::UnschedulableAndUnresolvable) } else { status }
}

/// Makes a rejection resolvable by preemption.
fn resolvable(status: Status) -> Status {
    if status.is_rejected() { recoded(&status, Code::Unschedulable) } else { status }
}

fn recoded(status: &Status, code: Code) -> Status {
    Status::with_reasons(code, status.reasons().iter().cloned().collect())
}

/// Keeps only the first reason.
fn first_reason(status: Status) -> Status {
    let first = status.reasons().iter().take(1).cloned().collect();
    if status.is_rejected() { Status::with_reasons(status.code(), first) } else { status }
}

/// Turns a rejection in PreFilter into success.
fn admits(answer: PreFilter) -> PreFilter {
    if matches!(answer, PreFilter::Reject(_)) { PreFilter::AllNodes } else { answer }
}

/// Makes PreFilter return all nodes.
fn opens_all_nodes(answer: PreFilter) -> PreFilter {
    if matches!(answer, PreFilter::Nodes(_)) { PreFilter::AllNodes } else { answer }
}

fn with_spec(pod: &mut PodInfo, change: impl FnOnce(&mut PodSpec)) {
    let mut spec = PodSpec::clone(&pod.spec);
    change(&mut spec);
    pod.spec = spec.into();
}
