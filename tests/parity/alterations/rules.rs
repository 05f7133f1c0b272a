//! The rules that are altered, and who must notice.

mod company;
mod nodes;
mod others;
mod preemption;
mod queue;
mod scores;
mod volumes;

use supercargo_framework::plugin::PreFilter;
use supercargo_framework::{Code, PodInfo, PodSpec, Status};

use super::alteration::{Alteration, Change};
use super::twist::Twist;

pub(super) fn all() -> Vec<Alteration> {
    let all = [
        nodes::all(),
        scores::all(),
        queue::all(),
        preemption::all(),
        company::all(),
        volumes::all(),
        others::all(),
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

fn plugin(name: &'static str, twist: Twist) -> Change {
    Change::Plugin(name, twist)
}

/// Whatever it is, it is no objection.
fn passes(_: Status) -> Status {
    Status::success()
}

/// An objection in other words.
fn reworded(status: Status) -> Status {
    if status.is_rejected() { Status::new(status.code(), "node(s) were not good enough") } else { status }
}

/// An objection that the removal of pods does not help.
fn unresolvable(status: Status) -> Status {
    if status.is_rejected() { recoded(&status, Code::UnschedulableAndUnresolvable) } else { status }
}

/// An objection that the removal of pods might help.
fn resolvable(status: Status) -> Status {
    if status.is_rejected() { recoded(&status, Code::Unschedulable) } else { status }
}

fn recoded(status: &Status, code: Code) -> Status {
    Status::with_reasons(code, status.reasons().iter().cloned().collect())
}

/// The first reason only.
fn first_reason(status: Status) -> Status {
    let first = status.reasons().iter().take(1).cloned().collect();
    if status.is_rejected() { Status::with_reasons(status.code(), first) } else { status }
}

/// An objection before any node is looked at is none.
fn admits(answer: PreFilter) -> PreFilter {
    if matches!(answer, PreFilter::Reject(_)) { PreFilter::AllNodes } else { answer }
}

/// No node is ruled out beforehand.
fn opens_all_nodes(answer: PreFilter) -> PreFilter {
    if matches!(answer, PreFilter::Nodes(_)) { PreFilter::AllNodes } else { answer }
}

fn with_spec(pod: &mut PodInfo, change: impl FnOnce(&mut PodSpec)) {
    let mut spec = PodSpec::clone(&pod.spec);
    change(&mut spec);
    pod.spec = spec.into();
}
