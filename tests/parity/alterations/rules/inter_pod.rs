//! Constraints between pods: PodTopologySpread and InterPodAffinity.

use supercargo_framework::event::QueueingHint::{Queue, Skip};
use supercargo_framework::labels::Labels;
use supercargo_framework::plugin::Normalize;
use supercargo_framework::pod_affinity::{PodAffinity, PodAffinityTerm};
use supercargo_framework::topology_spread::TopologySpreadConstraint;
use supercargo_framework::{ActionType, EventResource, Indexed, LabelSelector, PodInfo};

use super::super::alteration::{Alteration, Change};
use super::super::altered_plugin::{
    filter, hints, ignores, ignores_add_pod, ignores_remove_pod, normalized, pod, score, wakes_on,
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
            "no domain exceeds the global minimum by more than maxSkew (5.14)",
            plugin(NAME, filter(passes)),
            &["topology-spread/max-skew-exceeded"],
        ),
        alter(
            "PodTopologySpread: another message",
            "the reason is \"node(s) didn't match pod topology spread constraints\" (5.14)",
            plugin(NAME, filter(reworded)),
            &["topology-spread/max-skew-exceeded"],
        ),
        alter(
            "PodTopologySpread: a missing label may be resolved",
            "preemption does not add a label to a node (5.14)",
            plugin(NAME, filter(resolvable)),
            &["topology-spread/missing-topology-key-unresolvable"],
        ),
        alter(
            "PodTopologySpread: rejections marked unresolvable",
            "deleting a pod reduces the skew (5.14)",
            plugin(NAME, filter(unresolvable)),
            &["topology-spread/preempts-to-reduce-skew"],
        ),
        alter(
            "PodTopologySpread: RemovePod ignored",
            "a dry run removes the victims from the count (5.14)",
            plugin(NAME, ignores_remove_pod()),
            &["topology-spread/preempts-to-reduce-skew"],
        ),
        alter(
            "PodTopologySpread: minDomains ignored",
            "with fewer domains than minDomains the global minimum is 0 (5.14)",
            plugin(NAME, pod(|pod| constraints(pod, |it| it.min_domains = None))),
            &["topology-spread/min-domains-not-reached"],
        ),
        alter(
            "PodTopologySpread: maxSkew of one for all",
            "maxSkew is the allowed difference between domains (5.14)",
            plugin(NAME, pod(|pod| constraints(pod, |it| it.max_skew = 1))),
            &["topology-spread/max-skew-of-two"],
        ),
        alter(
            "PodTopologySpread: nodeAffinityPolicy ignored",
            "domains that the node affinity excludes count with nodeAffinityPolicy Ignore (5.14)",
            plugin(NAME, pod(|pod| constraints(pod, |it| it.honors_affinity = true))),
            &["topology-spread/node-affinity-policy-ignore"],
        ),
        alter(
            "PodTopologySpread: node affinity not honored",
            "domains that the node affinity excludes do not count (5.14)",
            plugin(NAME, pod(|pod| constraints(pod, |it| it.honors_affinity = false))),
            &["topology-spread/node-affinity-policy-honor"],
        ),
        alter(
            "PodTopologySpread: nodeTaintsPolicy ignored",
            "domains whose nodes have taints do not count with nodeTaintsPolicy Honor (5.14)",
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
            "PodTopologySpread: ScheduleAnyway filters",
            "ScheduleAnyway rejects no node (5.14)",
            plugin(NAME, pod(|pod| constraints(pod, |it| it.hard = true))),
            &["topology-spread/schedule-anyway-rejects-nothing"],
        ),
        alter(
            "PodTopologySpread: DoNotSchedule does not filter",
            "DoNotSchedule rejects nodes (5.14)",
            plugin(NAME, pod(|pod| constraints(pod, |it| it.hard = false))),
            &["topology-spread/max-skew-exceeded"],
        ),
        alter(
            "PodTopologySpread: default constraints ignored",
            "a pod without constraints has the default ones (5.14)",
            Change::Built(NAME, |args, _| {
                args.insert("defaultingType".to_owned(), "List".into());
                args.insert("defaultConstraints".to_owned(), Vec::<String>::new().into());
            }),
            &["topology-spread-defaults/do-not-schedule"],
        ),
        alter(
            "PodTopologySpread: scores nothing",
            "domains with fewer matching pods score higher (5.14)",
            plugin(NAME, score(|_| 0)),
            &["topology-spread-score/emptier-zone"],
        ),
        alter(
            "PodTopologySpread: not reversed",
            "the fullest domain scores lowest (5.14)",
            plugin(NAME, normalized(Normalize::ByMax { reverse: false })),
            &["topology-spread-score/emptier-zone"],
        ),
        alter(
            "PodTopologySpread: pod updates never requeue",
            "a matching pod that is added or deleted requeues the pod (5.2)",
            plugin(NAME, hints(EventResource::AssignedPod, Skip)),
            &["topology-spread-hints/pod-delete-reduces-skew-requeues"],
        ),
        alter(
            "PodTopologySpread: every pod update requeues",
            "a pod of another namespace does not requeue the pod (5.2)",
            plugin(NAME, hints(EventResource::AssignedPod, Queue)),
            &["topology-spread-hints/pod-add-in-other-namespace-skips"],
        ),
        alter(
            "PodTopologySpread: every node update requeues",
            "a label that is no topology key does not requeue the pod (5.2)",
            plugin(NAME, hints(EventResource::Node, Queue)),
            &["topology-spread-hints/unrelated-node-label-skips"],
        ),
        alter(
            "PodTopologySpread: every uncordoned node requeues",
            "a node whose taints stay the same does not requeue the pod (5.2)",
            plugin(NAME, hints(EventResource::Node, Queue)),
            &["topology-spread-hints/uncordon-skips"],
        ),
        alter(
            "PodTopologySpread: ignores events of labels of nodes",
            "a node that changes zones requeues the pod (5.2)",
            plugin(NAME, ignores(EventResource::Node, ActionType::UPDATE_NODE_LABEL)),
            &["topology-spread-hints/node-changes-zone-requeues"],
        ),
        alter(
            "PodTopologySpread: ignores events of tolerations",
            "with nodeTaintsPolicy Honor a new toleration requeues the pod (5.2)",
            plugin(NAME, ignores(EventResource::TargetPod, ActionType::UPDATE_POD_TOLERATION)),
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

/// Changes each preferred term of the pod.
fn preferred(pod: &mut PodInfo, change: fn(&mut PodAffinityTerm)) {
    terms(pod, |affinity| {
        affinity.preferred_affinity.iter_mut().for_each(|it| change(&mut it.term));
        affinity.preferred_anti_affinity.iter_mut().for_each(|it| change(&mut it.term));
    });
}

/// Makes a namespaceSelector that matches namespaces without labels match every namespace.
fn widen(term: &mut PodAffinityTerm) {
    let none = Labels::default();
    let selector = term.namespace_selector.take();
    term.namespace_selector =
        selector.map(|it| if it.matches(&none) { LabelSelector::default() } else { it });
}

fn affinity() -> Vec<Alteration> {
    const NAME: &str = "InterPodAffinity";
    vec![
        alter(
            "InterPodAffinity: Filter passes",
            "required affinity filters nodes (5.15)",
            plugin(NAME, filter(passes)),
            &["inter-pod-affinity/affinity-without-match-unresolvable"],
        ),
        alter(
            "InterPodAffinity: another message",
            "the reason is \"node(s) didn't match pod affinity rules\" (5.15)",
            plugin(NAME, filter(reworded)),
            &["inter-pod-affinity/affinity-without-match-unresolvable"],
        ),
        alter(
            "InterPodAffinity: rejections marked resolvable",
            "preemption does not add matching pods (5.15)",
            plugin(NAME, filter(resolvable)),
            &["inter-pod-affinity/affinity-without-match-unresolvable"],
        ),
        alter(
            "InterPodAffinity: rejections marked unresolvable",
            "preempting the pods of the anti-affinity helps (5.15)",
            plugin(NAME, filter(unresolvable)),
            &["inter-pod-affinity/preempts-anti-affinity-match"],
        ),
        alter(
            "InterPodAffinity: RemovePod ignored",
            "a dry run removes the victims from the matching pods (5.15)",
            plugin(NAME, ignores_remove_pod()),
            &["inter-pod-affinity/preempts-anti-affinity-match"],
        ),
        alter(
            "InterPodAffinity: AddPod ignored",
            "a dry run that reprieves a pod adds it to the matching pods (5.15)",
            plugin(NAME, ignores_add_pod()),
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
            "required anti-affinity filters nodes (5.15)",
            plugin(NAME, pod(|pod| terms(pod, |affinity| affinity.required_anti_affinity = Box::default()))),
            &["inter-pod-affinity/anti-affinity-in-every-zone-resolvable"],
        ),
        alter(
            "InterPodAffinity: labels ignored",
            "anti-affinity of existing pods filters nodes (5.15)",
            plugin(NAME, pod(|pod| pod.labels = Labels::default())),
            &["inter-pod-affinity/existing-anti-affinity-rejects"],
        ),
        alter(
            "InterPodAffinity: namespaces ignored",
            "a term applies to the namespaces that it names (5.15)",
            plugin(NAME, pod(|pod| required(pod, |term| term.namespaces = Indexed::default()))),
            &["inter-pod-affinity-namespaces/names"],
        ),
        alter(
            "InterPodAffinity: namespaceSelector ignored",
            "a term applies to the namespaces that it selects (5.15)",
            plugin(NAME, pod(|pod| required(pod, |term| term.namespace_selector = None))),
            &["inter-pod-affinity-namespaces/empty-selector-selects-all"],
        ),
        alter(
            "InterPodAffinity: negative namespaceSelectors select every namespace",
            "a namespaceSelector selects the namespaces that match it (5.15)",
            plugin(NAME, pod(|pod| required(pod, widen))),
            &[
                "inter-pod-affinity-namespaces/negative-selector-spares-the-excluded-namespace",
                "inter-pod-affinity-namespaces/absent-label-selector-spares-labelled-namespaces",
            ],
        ),
        alter(
            "InterPodAffinity: negative namespaceSelectors beside names select every namespace",
            "a term applies to the namespaces that it names and those that it selects (5.15)",
            plugin(NAME, pod(|pod| required(pod, widen))),
            &["inter-pod-affinity-namespaces/names-and-negative-selector"],
        ),
        alter(
            "InterPodAffinity: negative namespaceSelectors of preferences select every namespace",
            "a preference applies to the namespaces that it selects (5.15)",
            plugin(NAME, pod(|pod| preferred(pod, widen))),
            &["inter-pod-affinity-score/absent-label-selector"],
        ),
        alter(
            "InterPodAffinity: deleted pods never requeue",
            "a pod that matches one of two anti-affinity terms requeues the pod when it goes (5.2)",
            plugin(NAME, ignores(EventResource::AssignedPod, ActionType::DELETE)),
            &[
                "inter-pod-affinity-hints/delete-matching-one-of-two-anti-affinity-terms-requeues",
                "inter-pod-affinity-hints/delete-matching-one-of-two-existing-terms-requeues",
            ],
        ),
        alter(
            "InterPodAffinity: pods of other namespaces never requeue when they go",
            "terms of another namespace apply to the waiting pod (5.2)",
            plugin(NAME, ignores(EventResource::AssignedPod, ActionType::DELETE)),
            &["inter-pod-affinity-hints/delete-of-anti-affine-pod-in-other-namespace-requeues"],
        ),
        alter(
            "InterPodAffinity: pods of excluded namespaces never requeue when they go",
            "hints match namespaceSelectors with empty labels (5.2)",
            plugin(NAME, ignores(EventResource::AssignedPod, ActionType::DELETE)),
            &["inter-pod-affinity-hints/delete-in-excluded-namespace-requeues"],
        ),
        alter(
            "InterPodAffinity: every deleted pod requeues",
            "hints match namespaceSelectors with empty labels, so a pod of a selected namespace skips (5.2)",
            plugin(NAME, wakes_on(EventResource::AssignedPod, ActionType::DELETE)),
            &["inter-pod-affinity-hints/delete-in-selected-namespace-skips"],
        ),
        alter(
            "InterPodAffinity: every label of a pod requeues",
            "a pod that still matches one of the anti-affinity terms does not requeue the pod (5.2)",
            plugin(NAME, wakes_on(EventResource::AssignedPod, ActionType::UPDATE_POD_LABEL)),
            &["inter-pod-affinity-hints/label-change-keeps-one-of-two-matches-skips"],
        ),
        alter(
            "InterPodAffinity: pod updates never requeue",
            "a new matching pod requeues the pod (5.2)",
            plugin(NAME, hints(EventResource::AssignedPod, Skip)),
            &["inter-pod-affinity-hints/add-of-affinity-match-requeues"],
        ),
        alter(
            "InterPodAffinity: every pod update requeues",
            "a pod that matches one of two terms does not requeue the pod (5.2)",
            plugin(NAME, hints(EventResource::AssignedPod, Queue)),
            &["inter-pod-affinity-hints/add-matching-one-of-two-terms-skips"],
        ),
        alter(
            "InterPodAffinity: every node update requeues",
            "a label that is no topology key does not requeue the pod (5.2)",
            plugin(NAME, hints(EventResource::Node, Queue)),
            &["inter-pod-affinity-hints/unrelated-node-label-skips"],
        ),
        alter(
            "InterPodAffinity: ignores events of labels of nodes",
            "a node that changes zones requeues the pod (5.2)",
            plugin(NAME, ignores(EventResource::Node, ActionType::UPDATE_NODE_LABEL)),
            &["inter-pod-affinity-hints/node-changes-zone-requeues-affinity"],
        ),
        alter(
            "InterPodAffinity: ignores events of labels of pods",
            "a pod whose labels match now requeues the pod (5.2)",
            plugin(NAME, ignores(EventResource::AssignedPod, ActionType::UPDATE_POD_LABEL)),
            &["inter-pod-affinity-hints/label-change-to-match-requeues"],
        ),
    ]
}
