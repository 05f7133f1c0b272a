//! Plugins that filter nodes: verdicts, messages and queueing hints.

use supercargo_framework::event::QueueingHint::{Queue, Skip};
use supercargo_framework::indexed::Keyed;
use supercargo_framework::ports::{HostPort, Protocol};
use supercargo_framework::{ActionType, EventResource, Feature, Indexed, Labels, PodInfo, Toleration};

use super::super::alteration::{Alteration, Change};
use super::super::altered_plugin::{deaf_to_new_nodes, filter, hints, ignores, pod, pre_filter, wakes_on};
use super::{
    admits, alter, first_reason, opens_all_nodes, passes, plugin, resolvable, reworded, switch_off,
    unresolvable, with_spec,
};

pub(super) fn all() -> Vec<Alteration> {
    let all = [unschedulable(), name(), taints(), affinity(), ports(), resources(), features()];
    all.into_iter().flatten().collect()
}

/// Changes each host port of the pod.
fn with_ports(pod: &mut PodInfo, change: fn(&mut HostPort)) {
    with_spec(pod, |spec| spec.host_ports = changed(&spec.host_ports, change));
}

/// Changes each toleration of the pod.
fn with_tolerations(pod: &mut PodInfo, change: fn(&mut Toleration)) {
    with_spec(pod, |spec| spec.tolerations = changed(&spec.tolerations, change));
}

fn changed<T: Keyed + Clone>(list: &Indexed<T>, change: fn(&mut T)) -> Indexed<T> {
    let mut items = list.to_vec();
    items.iter_mut().for_each(change);
    Indexed::new(items)
}

fn unschedulable() -> Vec<Alteration> {
    const NAME: &str = "NodeUnschedulable";
    vec![
        alter(
            "NodeUnschedulable: Filter passes",
            "a cordoned node rejects pods (5.3)",
            plugin(NAME, filter(passes)),
            &["node-unschedulable/cordoned"],
        ),
        alter(
            "NodeUnschedulable: another message",
            "the reason is \"node(s) were unschedulable\" (5.3)",
            plugin(NAME, filter(reworded)),
            &["node-unschedulable/cordoned"],
        ),
        alter(
            "NodeUnschedulable: tolerations ignored",
            "a pod that tolerates the unschedulable taint fits a cordoned node (5.3)",
            plugin(NAME, pod(|pod| with_spec(pod, |spec| spec.tolerations = Indexed::default()))),
            &["node-unschedulable/tolerated"],
        ),
        alter(
            "NodeUnschedulable: node updates never requeue",
            "an uncordoned node requeues the pod (5.2)",
            plugin(NAME, hints(EventResource::Node, Skip)),
            &["queueing-hints/unschedulable-uncordon-requeues"],
        ),
        alter(
            "NodeUnschedulable: ignores events of tolerations",
            "a new toleration requeues the pod (5.2)",
            plugin(NAME, ignores(EventResource::TargetPod, ActionType::UPDATE_POD_TOLERATION)),
            &["queueing-hints/unschedulable-toleration-added-requeues"],
        ),
    ]
}

/// A pod with a node name is never scheduled, so NodeName's Filter never rejects in practice. A
/// Filter that passes, or one that ignores new nodes, cannot be detected; whether the plugin runs
/// at all can.
fn name() -> Vec<Alteration> {
    const NAME: &str = "NodeName";
    vec![
        alter(
            "NodeName: every pod names another node",
            "a pod that names a node fits no other (5.3)",
            plugin(NAME, pod(|pod| pod.node_name = Some("elsewhere".into()))),
            &["node-resources-fit/exact-fit"],
        ),
        alter(
            "NodeName: every pod names the node b",
            "a pod that names a node fits that one (5.3)",
            plugin(NAME, pod(|pod| pod.node_name = Some("b".into()))),
            &["scores/image-locality-half-of-maximum"],
        ),
    ]
}

fn taints() -> Vec<Alteration> {
    const NAME: &str = "TaintToleration";
    vec![
        alter(
            "TaintToleration: Filter passes",
            "an untolerated taint rejects pods (5.4)",
            plugin(NAME, filter(passes)),
            &["taint-toleration/no-schedule"],
        ),
        alter(
            "TaintToleration: another message",
            "the reason is \"node(s) had untolerated taint(s)\" (5.4)",
            plugin(NAME, filter(reworded)),
            &["taint-toleration/no-schedule"],
        ),
        alter(
            "TaintToleration: tolerations ignored",
            "a toleration of the taint lets the pod fit (5.4)",
            plugin(NAME, pod(|pod| with_spec(pod, |spec| spec.tolerations = Indexed::default()))),
            &["taint-toleration/exists-matches-any-value"],
        ),
        alter(
            "TaintToleration: the effect of a toleration ignored",
            "a toleration counts for its effect only (5.4)",
            plugin(
                NAME,
                pod(|pod| {
                    with_tolerations(pod, |it| it.effect = None);
                }),
            ),
            &["scores/prefer-no-schedule-tolerated"],
        ),
        alter(
            "TaintToleration: rejections marked resolvable",
            "preemption does not remove a taint (5.4)",
            plugin(NAME, filter(resolvable)),
            &["preemption/message-counts-unhelpful-nodes"],
        ),
        alter(
            "TaintToleration: node updates never requeue",
            "a removed taint requeues the pod (5.2)",
            plugin(NAME, hints(EventResource::Node, Skip)),
            &["queueing-hints/taint-removed-requeues"],
        ),
        alter(
            "TaintToleration: ignores events of tolerations",
            "a new toleration requeues the pod (5.2)",
            plugin(NAME, ignores(EventResource::TargetPod, ActionType::UPDATE_POD_TOLERATION)),
            &["queueing-hints/taint-toleration-added-requeues"],
        ),
        alter(
            "TaintToleration: every node update requeues",
            "a replaced taint does not requeue the pod (5.2)",
            plugin(NAME, hints(EventResource::Node, Queue)),
            &["queueing-hints/taint-replaced-skips-untolerated"],
        ),
    ]
}

fn affinity() -> Vec<Alteration> {
    const NAME: &str = "NodeAffinity";
    vec![
        alter(
            "NodeAffinity: Filter passes",
            "required terms filter nodes (5.5)",
            plugin(NAME, filter(passes)),
            &["node-affinity/selector-unmatched"],
        ),
        alter(
            "NodeAffinity: another message",
            "the reason is \"node(s) didn't match Pod's node affinity/selector\" (5.5)",
            plugin(NAME, filter(reworded)),
            &["node-affinity/selector-unmatched"],
        ),
        alter(
            "NodeAffinity: nodeSelector ignored",
            "all of nodeSelector must match (5.5)",
            plugin(NAME, pod(|pod| with_spec(pod, |spec| spec.node_selector = Labels::default()))),
            &["node-affinity/selector-unmatched"],
        ),
        alter(
            "NodeAffinity: required terms ignored",
            "one of the required terms must match, beside nodeSelector (5.5)",
            plugin(NAME, pod(|pod| with_spec(pod, |spec| spec.node_affinity = None))),
            &["node-affinity/selector-and-affinity"],
        ),
        alter(
            "NodeAffinity: addedAffinity ignored",
            "addedAffinity filters nodes for all pods (5.5)",
            Change::Built(NAME, |args, _| args.clear()),
            &["node-affinity/added-affinity"],
        ),
        alter(
            "NodeAffinity: rejections marked resolvable",
            "preemption does not change a node's labels (5.5)",
            plugin(NAME, filter(resolvable)),
            &["preemption/node-selector-mismatch-unresolvable"],
        ),
        alter(
            "NodeAffinity: PreFilter returns all nodes",
            "terms that name nodes exclude all others, with their own message (5.5)",
            plugin(NAME, pre_filter(opens_all_nodes)),
            &["node-affinity/field-names-a-full-node"],
        ),
        alter(
            "NodeAffinity: contradictions accepted",
            "contradicting terms are rejected in PreFilter (5.5)",
            plugin(NAME, pre_filter(admits)),
            &["node-affinity/fields-contradict"],
        ),
        alter(
            "NodeAffinity: ignores events of labels",
            "a label that makes a node match requeues the pod (5.2)",
            plugin(NAME, ignores(EventResource::Node, ActionType::UPDATE_NODE_LABEL)),
            &["queueing-hints/node-affinity-label-added-requeues"],
        ),
        alter(
            "NodeAffinity: every node update requeues",
            "a node that does not match does not requeue the pod (5.2)",
            plugin(NAME, hints(EventResource::Node, Queue)),
            &["queueing-hints/node-affinity-other-label-skips"],
        ),
        alter(
            "NodeAffinity: a new node never requeues",
            "a node that matches requeues the pod (5.2)",
            plugin(NAME, hints(EventResource::Node, Skip)),
            &["queueing-hints/node-affinity-matching-node-add-requeues"],
        ),
    ]
}

fn ports() -> Vec<Alteration> {
    const NAME: &str = "NodePorts";
    vec![
        alter(
            "NodePorts: Filter passes",
            "a host port is used once per node (5.6)",
            plugin(NAME, filter(passes)),
            &["node-ports/conflict"],
        ),
        alter(
            "NodePorts: another message",
            "the reason is \"node(s) didn't have free ports for the requested pod ports\" (5.6)",
            plugin(NAME, filter(reworded)),
            &["node-ports/conflict"],
        ),
        alter(
            "NodePorts: every port on every address",
            "ports of two addresses do not conflict (5.6)",
            plugin(
                NAME,
                pod(|pod| {
                    with_ports(pod, |port| port.ip = "".into());
                }),
            ),
            &["node-ports/different-host-ips"],
        ),
        alter(
            "NodePorts: one protocol for all",
            "ports of two protocols do not conflict (5.6)",
            plugin(
                NAME,
                pod(|pod| {
                    with_ports(pod, |port| port.protocol = Protocol::Udp);
                }),
            ),
            &["node-ports/different-protocols"],
        ),
        alter(
            "NodePorts: rejections marked unresolvable",
            "preemption frees host ports (5.6)",
            plugin(NAME, filter(unresolvable)),
            &["preemption/preempts-for-host-port"],
        ),
        alter(
            "NodePorts: ignores events of deleted pods",
            "a freed port requeues the pod (5.2)",
            plugin(NAME, ignores(EventResource::AssignedPod, ActionType::DELETE)),
            &["queueing-hints/ports-released-requeues"],
        ),
        alter(
            "NodePorts: every deleted pod requeues",
            "a pod without the port does not requeue the pod (5.2)",
            plugin(NAME, hints(EventResource::AssignedPod, Queue)),
            &["queueing-hints/ports-other-port-released-skips"],
        ),
        alter(
            "NodePorts: ignores events of new nodes",
            "a new node requeues the pod (5.2)",
            plugin(NAME, deaf_to_new_nodes()),
            &["queueing-hints/ports-node-add-requeues"],
        ),
    ]
}

fn resources() -> Vec<Alteration> {
    const NAME: &str = "NodeResourcesFit";
    vec![
        alter(
            "NodeResourcesFit: Filter passes",
            "requests must fit into what is free (5.7)",
            plugin(NAME, filter(passes)),
            &["node-resources-fit/cpu"],
        ),
        alter(
            "NodeResourcesFit: another message",
            "the reasons are \"Insufficient …\" and \"Too many pods\" (5.7)",
            plugin(NAME, filter(reworded)),
            &["node-resources-fit/too-many-pods"],
        ),
        alter(
            "NodeResourcesFit: the first reason only",
            "every insufficient resource is reported (5.7)",
            plugin(NAME, filter(first_reason)),
            &["node-resources-fit/all-reasons-of-one-node"],
        ),
        alter(
            "NodeResourcesFit: ignoredResources not ignored",
            "ignoredResources are not checked (5.7)",
            Change::Built(NAME, |args, _| {
                args.remove("ignoredResources");
            }),
            &["node-resources-fit/ignored-resources"],
        ),
        alter(
            "NodeResourcesFit: ignoredResourceGroups not ignored",
            "ignoredResourceGroups are not checked (5.7)",
            Change::Built(NAME, |args, _| {
                args.remove("ignoredResourceGroups");
            }),
            &["node-resources-fit/ignored-resources"],
        ),
        alter(
            "NodeResourcesFit: rejections marked unresolvable",
            "preemption frees resources (5.7)",
            plugin(NAME, filter(unresolvable)),
            &["preemption/victim-is-deleted"],
        ),
        alter(
            "NodeResourcesFit: every rejection marked resolvable",
            "preemption does not exceed the allocatable resources (5.7)",
            plugin(NAME, filter(resolvable)),
            &["preemption/failed-preemption-clears-nomination"],
        ),
        alter(
            "NodeResourcesFit: every pod update requeues",
            "a pod that scales down another resource does not requeue the pod (5.2)",
            plugin(NAME, hints(EventResource::AssignedPod, Queue)),
            &["queueing-hints/fit-other-resource-scaled-down-skips"],
        ),
        alter(
            "NodeResourcesFit: ignores events of deleted pods",
            "freed resources are worth another try (5.2)",
            plugin(NAME, ignores(EventResource::AssignedPod, ActionType::DELETE)),
            &["queueing-hints/fit-pod-deleted-requeues"],
        ),
        alter(
            "NodeResourcesFit: ignores events of scaled-down pods",
            "a smaller pod requeues the pod (5.2)",
            plugin(NAME, ignores(EventResource::AssignedPod, ActionType::UPDATE_POD_SCALE_DOWN)),
            &["queueing-hints/fit-pod-resized-down-requeues"],
        ),
        alter(
            "NodeResourcesFit: ignores events of allocatable",
            "more of a resource requeues the pod (5.2)",
            plugin(NAME, ignores(EventResource::Node, ActionType::UPDATE_NODE_ALLOCATABLE)),
            &["queueing-hints/fit-allocatable-raised-requeues"],
        ),
        alter(
            "NodeResourcesFit: every node update requeues",
            "a node that is too small even when empty does not requeue the pod (5.2)",
            plugin(NAME, hints(EventResource::Node, Queue)),
            &["queueing-hints/fit-small-node-add-skips"],
        ),
        alter(
            "NodeResourcesFit: requeues on a label",
            "a label does not requeue the pod (5.2)",
            plugin(NAME, wakes_on(EventResource::Node, ActionType::UPDATE_NODE_LABEL)),
            &["queueing-hints/fit-node-label-skips"],
        ),
        alter(
            "NodeResourcesFit: ignores events of new nodes",
            "a new node requeues the pod (5.2)",
            plugin(NAME, deaf_to_new_nodes()),
            &["queueing-hints/fit-large-node-add-requeues"],
        ),
        alter(
            "NodeResourcesFit: requeues on a larger pod",
            "a pod that grows does not requeue the pod (5.2)",
            plugin(NAME, wakes_on(EventResource::AssignedPod, ActionType::UPDATE_POD_SCALE_UP)),
            &["queueing-hints/fit-pod-resized-up-skips"],
        ),
        alter(
            "NodeResourcesFit: requeues on any update of a pod",
            "a deferred resize does not requeue the pod (5.2)",
            plugin(NAME, wakes_on(EventResource::AssignedPod, ActionType::UPDATE)),
            &["queueing-hints/fit-resize-deferred-skips"],
        ),
        alter(
            "NodeResourcesFit: ignores events of the pod's own smaller requests",
            "a pod that is resized to less is requeued (5.2)",
            plugin(NAME, ignores(EventResource::TargetPod, ActionType::UPDATE_POD_SCALE_DOWN)),
            &["queueing-hints/fit-own-resize-requeues-only-that-pod"],
        ),
        alter(
            "NodeResourcesFit: requeues on the pod's own larger status",
            "a pod whose status reports more is not requeued (5.2)",
            plugin(NAME, wakes_on(EventResource::TargetPod, ActionType::UPDATE_POD_SCALE_UP)),
            &["queueing-hints/fit-own-status-shrinks-requeues"],
        ),
    ]
}

fn features() -> Vec<Alteration> {
    const NAME: &str = "NodeDeclaredFeatures";
    vec![
        alter(
            "NodeDeclaredFeatures: Filter passes",
            "undeclared features reject pods (5.19)",
            plugin(NAME, filter(passes)),
            &["node-declared-features/not-declared-unresolvable"],
        ),
        alter(
            "NodeDeclaredFeatures: another message",
            "the reason is \"node(s) didn't match Pod's required features\" (5.19)",
            plugin(NAME, filter(reworded)),
            &["node-declared-features/not-declared-unresolvable"],
        ),
        alter(
            "NodeDeclaredFeatures: rejections marked resolvable",
            "preemption does not declare a feature (5.19)",
            plugin(NAME, filter(resolvable)),
            &["node-declared-features/not-declared-unresolvable"],
        ),
        alter(
            "NodeDeclaredFeatures: every pod needs a feature",
            "a pod without needed features fits every node (5.19)",
            plugin(NAME, pod(|pod| with_spec(pod, |spec| spec.required_features = ["X".into()].into()))),
            &["node-declared-features/container-restart-rule-needs-no-feature"],
        ),
        alter(
            "NodeDeclaredFeatures: the gate is off",
            "the plugin works while its gate is on (5.19)",
            Change::Built(NAME, |_, features| switch_off(features, Feature::NodeDeclaredFeatures)),
            &["node-declared-features/not-declared-unresolvable"],
        ),
        alter(
            "NodeDeclaredFeatures: node updates never requeue",
            "a declared feature requeues the pod (5.2)",
            plugin(NAME, hints(EventResource::Node, Skip)),
            &["node-declared-features/declared"],
        ),
        alter(
            "NodeDeclaredFeatures: ignores events of what is declared",
            "any change of declared features requeues the pod (5.2)",
            plugin(NAME, ignores(EventResource::Node, ActionType::UPDATE_NODE_DECLARED_FEATURE)),
            &["node-declared-features/hint-declared-features-change-requeues"],
        ),
        alter(
            "NodeDeclaredFeatures: requeues on a label",
            "a label does not requeue the pod (5.2)",
            plugin(NAME, wakes_on(EventResource::Node, ActionType::UPDATE_NODE_LABEL)),
            &["node-declared-features/hint-label-skips-node-add-requeues"],
        ),
        alter(
            "NodeDeclaredFeatures: every update of the pod requeues",
            "a pod that still needs the same features is not requeued by its own labels (5.2)",
            plugin(NAME, hints(EventResource::TargetPod, Queue)),
            &["node-declared-features/hint-own-label-skips"],
        ),
    ]
}
