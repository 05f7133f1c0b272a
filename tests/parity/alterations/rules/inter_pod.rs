//! Constraints between pods: PodTopologySpread and InterPodAffinity.

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

/// Changes each constraint of the pod.
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
            &["topology-spread/max-skew-exceeded"],
        ),
        alter(
            "PodTopologySpread: another reason",
            "the reason is \"node(s) didn't match pod topology spread constraints\" (5.14)",
            plugin(NAME, filter(reworded)),
            &["topology-spread/max-skew-exceeded"],
        ),
        alter(
            "PodTopologySpread: a missing label may be resolved",
            "no removal of pods gives a node its label (5.14)",
            plugin(NAME, filter(resolvable)),
            &["topology-spread/missing-topology-key-unresolvable"],
        ),
        alter(
            "PodTopologySpread: its objection cannot be resolved",
            "who goes makes room by the skew (5.14)",
            plugin(NAME, filter(unresolvable)),
            &["topology-spread/preempts-to-reduce-skew"],
        ),
        alter(
            "PodTopologySpread: removed pods forgotten",
            "a trial takes the victims out of the count (5.14)",
            plugin(NAME, removed_forgotten()),
            &["topology-spread/preempts-to-reduce-skew"],
        ),
        alter(
            "PodTopologySpread: minDomains ignored",
            "with fewer domains than minDomains the least is 0 (5.14)",
            plugin(NAME, pod(|pod| constraints(pod, |it| it.min_domains = None))),
            &["topology-spread/min-domains-not-reached"],
        ),
        alter(
            "PodTopologySpread: a skew of one for all",
            "maxSkew is how much more a domain may have (5.14)",
            plugin(NAME, pod(|pod| constraints(pod, |it| it.max_skew = 1))),
            &["topology-spread/max-skew-of-two"],
        ),
        alter(
            "PodTopologySpread: nodeAffinityPolicy ignored",
            "domains out of the pod's reach count if it says so (5.14)",
            plugin(NAME, pod(|pod| constraints(pod, |it| it.honors_affinity = true))),
            &["topology-spread/node-affinity-policy-ignore"],
        ),
        alter(
            "PodTopologySpread: node affinity not honored",
            "domains out of the pod's reach do not count (5.14)",
            plugin(NAME, pod(|pod| constraints(pod, |it| it.honors_affinity = false))),
            &["topology-spread/node-affinity-policy-honor"],
        ),
        alter(
            "PodTopologySpread: nodeTaintsPolicy ignored",
            "domains whose nodes have taints do not count if it says so (5.14)",
            plugin(NAME, pod(|pod| constraints(pod, |it| it.honors_taints = false))),
            &["topology-spread/node-taints-policy-honor"],
        ),
        alter(
            "PodTopologySpread: taints honored",
            "domains whose nodes have taints count (5.14)",
            plugin(NAME, pod(|pod| constraints(pod, |it| it.honors_taints = true))),
            &["topology-spread/node-taints-policy-ignore"],
        ),
        alter(
            "PodTopologySpread: what should hold must",
            "ScheduleAnyway refuses no node (5.14)",
            plugin(NAME, pod(|pod| constraints(pod, |it| it.hard = true))),
            &["topology-spread/schedule-anyway-rejects-nothing"],
        ),
        alter(
            "PodTopologySpread: what must hold only should",
            "DoNotSchedule refuses nodes (5.14)",
            plugin(NAME, pod(|pod| constraints(pod, |it| it.hard = false))),
            &["topology-spread/max-skew-exceeded"],
        ),
        alter(
            "PodTopologySpread: default constraints left out",
            "a pod without constraints has those of the profile (5.14)",
            Change::Built(NAME, |args, _| {
                args.insert("defaultingType".to_owned(), "List".into());
                args.insert("defaultConstraints".to_owned(), Vec::<String>::new().into());
            }),
            &["topology-spread-defaults/do-not-schedule"],
        ),
        alter(
            "PodTopologySpread: scores nothing",
            "domains with fewer of the pod's like are better (5.14)",
            plugin(NAME, score(|_| 0)),
            &["topology-spread-score/emptier-zone"],
        ),
        alter(
            "PodTopologySpread: not reversed",
            "the fullest domain is the worst (5.14)",
            plugin(NAME, normalized(Normalize::ByMax { reverse: false })),
            &["topology-spread-score/emptier-zone"],
        ),
        alter(
            "PodTopologySpread: no change of a pod helps",
            "a pod of its like that comes or goes is worth another try (5.2)",
            plugin(NAME, hints(EventResource::Pod, Skip)),
            &["topology-spread-hints/pod-delete-reduces-skew-requeues"],
        ),
        alter(
            "PodTopologySpread: every change of a pod helps",
            "a pod of another namespace is not worth another try (5.2)",
            plugin(NAME, hints(EventResource::Pod, Queue)),
            &["topology-spread-hints/pod-add-in-other-namespace-skips"],
        ),
        alter(
            "PodTopologySpread: every change of a node helps",
            "a label that is no topology is not worth another try (5.2)",
            plugin(NAME, hints(EventResource::Node, Queue)),
            &["topology-spread-hints/unrelated-node-label-skips"],
        ),
        alter(
            "PodTopologySpread: deaf to labels of nodes",
            "a node that moves is worth another try (5.2)",
            plugin(NAME, deaf_to(EventResource::Node, ActionType::UPDATE_NODE_LABEL)),
            &["topology-spread-hints/node-changes-zone-requeues"],
        ),
        alter(
            "PodTopologySpread: deaf to tolerations",
            "with nodeTaintsPolicy Honor a new toleration is worth another try (5.2)",
            plugin(NAME, deaf_to(EventResource::Pod, ActionType::UPDATE_POD_TOLERATION)),
            &["topology-spread-hints/own-toleration-with-honor-requeues"],
        ),
    ]
}

/// Changes the affinity of the pod.
fn terms(pod: &mut PodInfo, change: impl FnOnce(&mut PodAffinity)) {
    with_spec(pod, |spec| {
        if let Some(affinity) = &mut spec.pod_affinity {
            change(affinity);
        }
    });
}

/// Changes each required term of the pod.
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
            &["inter-pod-affinity/affinity-without-match-unresolvable"],
        ),
        alter(
            "InterPodAffinity: another reason",
            "the reason is \"node(s) didn't match pod affinity rules\" (5.15)",
            plugin(NAME, filter(reworded)),
            &["inter-pod-affinity/affinity-without-match-unresolvable"],
        ),
        alter(
            "InterPodAffinity: its objection may be resolved",
            "no removal of pods brings company (5.15)",
            plugin(NAME, filter(resolvable)),
            &["inter-pod-affinity/affinity-without-match-unresolvable"],
        ),
        alter(
            "InterPodAffinity: its objection cannot be resolved",
            "the removal of those it must not be with helps (5.15)",
            plugin(NAME, filter(unresolvable)),
            &["inter-pod-affinity/preempts-anti-affinity-match"],
        ),
        alter(
            "InterPodAffinity: removed pods forgotten",
            "a trial takes the victims out of the company (5.15)",
            plugin(NAME, removed_forgotten()),
            &["inter-pod-affinity/preempts-anti-affinity-match"],
        ),
        alter(
            "InterPodAffinity: added pods forgotten",
            "a trial that spares a pod puts it back into the company (5.15)",
            plugin(NAME, added_forgotten()),
            &["inter-pod-affinity/preempts-anti-affinity-match"],
        ),
        alter(
            "InterPodAffinity: own affinity ignored",
            "the second pod of a group goes where the first is (5.15)",
            plugin(NAME, pod(|pod| terms(pod, |affinity| affinity.required_affinity = Box::default()))),
            &["inter-pod-affinity/second-pod-of-group-follows-first"],
        ),
        alter(
            "InterPodAffinity: own anti-affinity ignored",
            "a pod keeps away from those it must not be with (5.15)",
            plugin(NAME, pod(|pod| terms(pod, |affinity| affinity.required_anti_affinity = Box::default()))),
            &["inter-pod-affinity/anti-affinity-in-every-zone-resolvable"],
        ),
        alter(
            "InterPodAffinity: labels ignored",
            "the anti-affinity of those who are there keeps a pod away (5.15)",
            plugin(NAME, pod(|pod| pod.labels = Labels::default())),
            &["inter-pod-affinity/existing-anti-affinity-rejects"],
        ),
        alter(
            "InterPodAffinity: namespaces ignored",
            "a term means the namespaces that it names (5.15)",
            plugin(NAME, pod(|pod| required(pod, |term| term.namespaces = Box::default()))),
            &["inter-pod-affinity-namespaces/names"],
        ),
        alter(
            "InterPodAffinity: namespaceSelector ignored",
            "a term means the namespaces that it selects (5.15)",
            plugin(NAME, pod(|pod| required(pod, |term| term.namespace_selector = None))),
            &["inter-pod-affinity-namespaces/empty-selector-selects-all"],
        ),
        alter(
            "InterPodAffinity: no change of a pod helps",
            "company that comes is worth another try (5.2)",
            plugin(NAME, hints(EventResource::Pod, Skip)),
            &["inter-pod-affinity-hints/add-of-affinity-match-requeues"],
        ),
        alter(
            "InterPodAffinity: every change of a pod helps",
            "half the company is not worth another try (5.2)",
            plugin(NAME, hints(EventResource::Pod, Queue)),
            &["inter-pod-affinity-hints/add-matching-one-of-two-terms-skips"],
        ),
        alter(
            "InterPodAffinity: every change of a node helps",
            "a label that is no topology is not worth another try (5.2)",
            plugin(NAME, hints(EventResource::Node, Queue)),
            &["inter-pod-affinity-hints/unrelated-node-label-skips"],
        ),
        alter(
            "InterPodAffinity: deaf to labels of nodes",
            "a node that moves is worth another try (5.2)",
            plugin(NAME, deaf_to(EventResource::Node, ActionType::UPDATE_NODE_LABEL)),
            &["inter-pod-affinity-hints/node-changes-zone-requeues-affinity"],
        ),
        alter(
            "InterPodAffinity: deaf to labels of pods",
            "a pod that becomes company is worth another try (5.2)",
            plugin(NAME, deaf_to(EventResource::Pod, ActionType::UPDATE_POD_LABEL)),
            &["inter-pod-affinity-hints/label-change-to-match-requeues"],
        ),
    ]
}
