//! The scheduling queue.

use std::time::Duration;

use supercargo_framework::event::QueueingHint::Skip;
use supercargo_framework::plugin::Queued;
use supercargo_framework::{ActionType, EventResource};

use super::super::alteration::{Alteration, Change};
use super::super::altered_plugin::{hints, ignores, less, pre_enqueue};
use super::{alter, passes, plugin};

pub(super) fn all() -> Vec<Alteration> {
    [gates(), order(), backoff(), plugins()].into_iter().flatten().collect()
}

fn gates() -> Vec<Alteration> {
    const NAME: &str = "SchedulingGates";
    vec![
        alter(
            "SchedulingGates: PreEnqueue passes",
            "a pod with gates is not tried (5.3)",
            plugin(NAME, pre_enqueue(passes)),
            &["scheduling-gates/gated-pod-is-not-tried"],
        ),
        alter(
            "SchedulingGates: ignores events of removed gates",
            "a pod without gates is tried (5.2)",
            plugin(
                NAME,
                ignores(EventResource::TargetPod, ActionType::UPDATE_POD_SCHEDULING_GATES_ELIMINATED),
            ),
            &["scheduling-gates/last-gate-removed"],
        ),
        alter(
            "SchedulingGates: its hint skips",
            "removing a pod's last gate requeues it (5.2)",
            plugin(NAME, hints(EventResource::TargetPod, Skip)),
            &["scheduling-gates/last-gate-removed"],
        ),
    ]
}

fn order() -> Vec<Alteration> {
    const NAME: &str = "PrioritySort";
    fn by_age(a: Queued<'_>, b: Queued<'_>) -> bool {
        a.timestamp < b.timestamp
    }
    vec![
        alter(
            "PrioritySort: priority ignored",
            "a higher priority goes first (5.3)",
            plugin(NAME, less(|_, a, b| by_age(a, b))),
            &["queue-order/priority"],
        ),
        alter(
            "PrioritySort: the latest first",
            "of equal priorities, the pod that waits longest goes first (5.3)",
            plugin(NAME, less(|_, a, b| (a.pod.priority, a.timestamp) > (b.pod.priority, b.timestamp))),
            &["queue-order/equal-priority-oldest-first"],
        ),
        alter(
            "PrioritySort: negative priorities count as zero",
            "a negative priority is below zero (5.3)",
            plugin(
                NAME,
                less(|_, a, b| {
                    let order = |it: Queued<'_>| std::cmp::Reverse(it.pod.priority.max(0));
                    (order(a), a.timestamp) < (order(b), b.timestamp)
                }),
            ),
            &["queue-order/negative-priority-comes-last"],
        ),
    ]
}

fn backoff() -> Vec<Alteration> {
    vec![alter(
        "the queue: a long backoff",
        "the first backoff takes a second (2.3)",
        Change::Config(|config| {
            config.pod_initial_backoff = Duration::from_mins(5);
            config.pod_max_backoff = Duration::from_mins(5);
        }),
        &["queueing-hints/first-node-add-requeues"],
    )]
}

fn plugins() -> Vec<Alteration> {
    vec![
        alter(
            "the profile: Filter in another order",
            "the first rejecting plugin reports its reason (5.1)",
            Change::Plugins(|plugins| plugins.filter.reverse()),
            &["failure-messages/first-plugin-only"],
        ),
        alter(
            "the profile: NodeResourcesFit disabled",
            "enabled plugins run (5.1)",
            Change::Plugins(|plugins| plugins.filter.retain(|name| name != "NodeResourcesFit")),
            &["pod-requests/containers-add-up"],
        ),
        alter(
            "the profile: another name",
            "each profile schedules the pods that name it (6.1)",
            Change::Config(|config| {
                let names: Vec<_> =
                    config.profiles.iter().map(|profile| profile.scheduler_name.clone()).collect();
                for (profile, name) in config.profiles.iter_mut().zip(names.into_iter().rev()) {
                    profile.scheduler_name = name;
                }
            }),
            &["assigned-pods/other-profiles-count"],
        ),
    ]
}
