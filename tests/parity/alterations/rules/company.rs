//! Which pods keep each other company, and which keep apart.

use std::sync::Arc;

use supercargo_framework::event::QueueingHint::{Queue, Skip};
use supercargo_framework::labels::Labels;
use supercargo_framework::plugin::Normalize;
use supercargo_framework::pod_affinity::{PodAffinity, PodAffinityTerm};
use supercargo_framework::topology_spread::TopologySpreadConstraint;
use supercargo_framework::{ActionType, EventResource, PodInfo};

use super::super::alteration::{Alteration, Change};
use super::super::twist::{
    added_forgotten, deaf_to, filter, hints, normalized, pod, removed_forgotten, score,
};
use super::{alter, passes, plugin, resolvable, reworded, unresolvable, with_spec};

pub(super) fn all() -> Vec<Alteration> {
    [spread(), affinity()].into_iter().flatten().collect()
}

/// Each constraint of the pod is another.
fn constraints(pod: &mut PodInfo, change: fn(&mut TopologySpreadConstraint)) {
    with_spec(pod, |spec| spec.topology_spread.iter_mut().for_each(change));
}

fn spread() -> Vec<Alteration> {
    const NAME: &str = "PodTopologySpread";
    vec![
        alter(
            "PodTopologySpread: Filter passes",
            "no domain has more than maxSkew above the least (5.14)",
            plugin(NAME, filter(passes)),
            &["spread/beyond-the-skew"],
        ),
        alter(
            "PodTopologySpread: another reason",
            "the reason is \"node(s) didn't match pod topology spread constraints\" (5.14)",
            plugin(NAME, filter(reworded)),
            &["spread/beyond-the-skew"],
        ),
        alter(
            "PodTopologySpread: a missing label may be resolved",
            "no removal of pods gives a node its label (5.14)",
            plugin(NAME, filter(resolvable)),
            &["spread/missing-label"],
        ),
        alter(
            "PodTopologySpread: its objection cannot be resolved",
            "who goes makes room by the skew (5.14)",
            plugin(NAME, filter(unresolvable)),
            &["spread/a-victim-makes-room-in-a-zone"],
        ),
        alter(
            "PodTopologySpread: removed pods forgotten",
            "a trial takes the victims out of the count (5.14)",
            plugin(NAME, removed_forgotten()),
            &["spread/a-victim-makes-room-in-a-zone"],
        ),
        alter(
            "PodTopologySpread: minDomains ignored",
            "with fewer domains than minDomains the least is 0 (5.14)",
            plugin(NAME, pod(|pod| constraints(pod, |it| it.min_domains = None))),
            &["spread/too-few-domains"],
        ),
        alter(
            "PodTopologySpread: a skew of one for all",
            "maxSkew is how much more a domain may have (5.14)",
            plugin(NAME, pod(|pod| constraints(pod, |it| it.max_skew = 1))),
            &["spread/within-a-skew-of-two"],
        ),
        alter(
            "PodTopologySpread: nodeAffinityPolicy ignored",
            "domains out of the pod's reach count if it says so (5.14)",
            plugin(NAME, pod(|pod| constraints(pod, |it| it.honors_affinity = true))),
            &["spread/nodes-out-of-reach-count-if-affinity-is-ignored"],
        ),
        alter(
            "PodTopologySpread: node affinity not honored",
            "domains out of the pod's reach do not count (5.14)",
            plugin(NAME, pod(|pod| constraints(pod, |it| it.honors_affinity = false))),
            &["spread/nodes-out-of-reach-do-not-count"],
        ),
        alter(
            "PodTopologySpread: nodeTaintsPolicy ignored",
            "domains whose nodes have taints do not count if it says so (5.14)",
            plugin(NAME, pod(|pod| constraints(pod, |it| it.honors_taints = false))),
            &["spread/tainted-nodes-do-not-count-if-taints-are-honored"],
        ),
        alter(
            "PodTopologySpread: taints honored",
            "domains whose nodes have taints count (5.14)",
            plugin(NAME, pod(|pod| constraints(pod, |it| it.honors_taints = true))),
            &["spread/tainted-nodes-count"],
        ),
        alter(
            "PodTopologySpread: what should hold must",
            "ScheduleAnyway refuses no node (5.14)",
            plugin(NAME, pod(|pod| constraints(pod, |it| it.hard = true))),
            &["spread/a-preference-refuses-nobody"],
        ),
        alter(
            "PodTopologySpread: what must hold only should",
            "DoNotSchedule refuses nodes (5.14)",
            plugin(NAME, pod(|pod| constraints(pod, |it| it.hard = false))),
            &["spread/beyond-the-skew"],
        ),
        alter(
            "PodTopologySpread: default constraints left out",
            "a pod without constraints has those of the profile (5.14)",
            Change::Built(NAME, |args, _| {
                args.insert("defaultingType".to_owned(), "List".into());
                args.insert("defaultConstraints".to_owned(), Vec::<String>::new().into());
            }),
            &["spread-defaults/a-strict-one"],
        ),
        alter(
            "PodTopologySpread: scores nothing",
            "domains with fewer of the pod's like are better (5.14)",
            plugin(NAME, score(|_| 0)),
            &["spread-score/emptier-zone"],
        ),
        alter(
            "PodTopologySpread: not reversed",
            "the fullest domain is the worst (5.14)",
            plugin(NAME, normalized(Normalize::ByMax { reverse: false })),
            &["spread-score/emptier-zone"],
        ),
        alter(
            "PodTopologySpread: no change of a pod helps",
            "a pod of its like that comes or goes is worth another try (5.2)",
            plugin(NAME, hints(EventResource::Pod, Skip)),
            &["spread-hints/a-pod-goes"],
        ),
        alter(
            "PodTopologySpread: every change of a pod helps",
            "a pod of another namespace is not worth another try (5.2)",
            plugin(NAME, hints(EventResource::Pod, Queue)),
            &["spread-hints/a-pod-of-another-namespace-comes"],
        ),
        alter(
            "PodTopologySpread: every change of a node helps",
            "a label that is no topology is not worth another try (5.2)",
            plugin(NAME, hints(EventResource::Node, Queue)),
            &["spread-hints/another-label-of-a-node"],
        ),
        alter(
            "PodTopologySpread: deaf to labels of nodes",
            "a node that moves is worth another try (5.2)",
            plugin(NAME, deaf_to(EventResource::Node, ActionType::UPDATE_NODE_LABEL)),
            &["spread-hints/a-node-changes-zones"],
        ),
        alter(
            "PodTopologySpread: deaf to tolerations",
            "with nodeTaintsPolicy Honor a new toleration is worth another try (5.2)",
            plugin(NAME, deaf_to(EventResource::Pod, ActionType::UPDATE_POD_TOLERATION)),
            &["spread-hints/its-own-toleration"],
        ),
    ]
}

/// The affinity of the pod is another.
fn terms(pod: &mut PodInfo, change: impl FnOnce(&mut PodAffinity)) {
    with_spec(pod, |spec| {
        if let Some(affinity) = &mut spec.pod_affinity {
            change(affinity);
        }
    });
}

/// Each required term of the pod is another.
fn required(pod: &mut PodInfo, change: fn(&mut PodAffinityTerm)) {
    terms(pod, |affinity| {
        affinity.required_affinity.iter_mut().for_each(change);
        affinity.required_anti_affinity.iter_mut().for_each(change);
    });
}

fn affinity() -> Vec<Alteration> {
    const NAME: &str = "InterPodAffinity";
    vec![
        alter(
            "InterPodAffinity: Filter passes",
            "a pod goes where those are that it must be with (5.15)",
            plugin(NAME, filter(passes)),
            &["affinity/nobody-to-be-with"],
        ),
        alter(
            "InterPodAffinity: another reason",
            "the reason is \"node(s) didn't match pod affinity rules\" (5.15)",
            plugin(NAME, filter(reworded)),
            &["affinity/nobody-to-be-with"],
        ),
        alter(
            "InterPodAffinity: its objection may be resolved",
            "no removal of pods brings company (5.15)",
            plugin(NAME, filter(resolvable)),
            &["affinity/nobody-to-be-with"],
        ),
        alter(
            "InterPodAffinity: its objection cannot be resolved",
            "the removal of those it must not be with helps (5.15)",
            plugin(NAME, filter(unresolvable)),
            &["affinity/a-victim-was-not-wanted"],
        ),
        alter(
            "InterPodAffinity: removed pods forgotten",
            "a trial takes the victims out of the company (5.15)",
            plugin(NAME, removed_forgotten()),
            &["affinity/a-victim-was-not-wanted"],
        ),
        alter(
            "InterPodAffinity: added pods forgotten",
            "a trial that spares a pod puts it back into the company (5.15)",
            plugin(NAME, added_forgotten()),
            &["affinity/a-victim-was-not-wanted"],
        ),
        alter(
            "InterPodAffinity: own affinity ignored",
            "the second pod of a group goes where the first is (5.15)",
            plugin(NAME, pod(|pod| terms(pod, |affinity| affinity.required_affinity = Box::default()))),
            &["affinity/not-the-first-of-a-group"],
        ),
        alter(
            "InterPodAffinity: own anti-affinity ignored",
            "a pod keeps away from those it must not be with (5.15)",
            plugin(NAME, pod(|pod| terms(pod, |affinity| affinity.required_anti_affinity = Box::default()))),
            &["affinity/nowhere-to-be-alone"],
        ),
        alter(
            "InterPodAffinity: labels ignored",
            "the anti-affinity of those who are there keeps a pod away (5.15)",
            plugin(NAME, pod(|pod| pod.labels = Labels::default())),
            &["affinity/not-wanted"],
        ),
        alter(
            "InterPodAffinity: namespaces ignored",
            "a term means the namespaces that it names (5.15)",
            plugin(NAME, pod(|pod| required(pod, |term| term.namespaces = Box::default()))),
            &["affinity-namespaces/by-name"],
        ),
        alter(
            "InterPodAffinity: namespaceSelector ignored",
            "a term means the namespaces that it selects (5.15)",
            plugin(NAME, pod(|pod| required(pod, |term| term.namespace_selector = None))),
            &["affinity-namespaces/all"],
        ),
        alter(
            "InterPodAffinity: no change of a pod helps",
            "company that comes is worth another try (5.2)",
            plugin(NAME, hints(EventResource::Pod, Skip)),
            &["affinity-hints/company-comes"],
        ),
        alter(
            "InterPodAffinity: every change of a pod helps",
            "half the company is not worth another try (5.2)",
            plugin(NAME, hints(EventResource::Pod, Queue)),
            &["affinity-hints/half-the-company-comes"],
        ),
        alter(
            "InterPodAffinity: every change of a node helps",
            "a label that is no topology is not worth another try (5.2)",
            plugin(NAME, hints(EventResource::Node, Queue)),
            &["affinity-hints/another-label-of-a-node"],
        ),
        alter(
            "InterPodAffinity: deaf to labels of nodes",
            "a node that moves is worth another try (5.2)",
            plugin(NAME, deaf_to(EventResource::Node, ActionType::UPDATE_NODE_LABEL)),
            &["affinity-hints/a-node-changes-zones"],
        ),
        alter(
            "InterPodAffinity: deaf to labels of pods",
            "a pod that becomes company is worth another try (5.2)",
            plugin(NAME, deaf_to(EventResource::Pod, ActionType::UPDATE_POD_LABEL)),
            &["affinity-hints/a-pod-becomes-company"],
        ),
    ]
}
