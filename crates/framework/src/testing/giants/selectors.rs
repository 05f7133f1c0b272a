//! Objects with one enormous selector each, beside a pod.

use super::claims::lacks;
use super::key;
use crate::labels::Labels;
use crate::objects::{Body, Namespace, Object, PodDisruptionBudget, Service, Workload, resources};
use crate::selector::LabelSelector;
use crate::testing::object;

/// A Service that selects the giant by all of its labels.
pub(super) fn service(items: usize) -> Vec<Object> {
    let labels: Labels = (0..items).map(|i| (key(i), "")).collect();
    let selector = labels.into();
    vec![object(&resources::SERVICE, "default/giant", Body::Service(Service { selector }))]
}

/// A ReplicaSet that selects every pod by many requirements.
pub(super) fn replica_set(items: usize) -> Vec<Object> {
    let body = Workload { selector: every_pod(items) };
    vec![object(&resources::REPLICA_SET, "default/giant", Body::Workload(body))]
}

/// A budget for every pod by many requirements.
pub(super) fn budget(items: usize) -> Vec<Object> {
    vec![budget_of(PodDisruptionBudget { selector: every_pod(items), ..PodDisruptionBudget::default() })]
}

/// A budget for every pod that counts many disrupted ones.
pub(super) fn disruptions(items: usize) -> Vec<Object> {
    let disrupted_pods = (0..items).map(|i| key(i).into()).collect();
    vec![budget_of(PodDisruptionBudget {
        selector: every_pod(1),
        disrupted_pods,
        ..PodDisruptionBudget::default()
    })]
}

/// The giant's namespace, with many labels.
pub(super) fn namespace(items: usize) -> Vec<Object> {
    let labels: Labels = (0..items).map(|i| (key(i), "")).collect();
    vec![Object { labels, ..object(&resources::NAMESPACE, "default", Body::Namespace(Namespace {})) }]
}

fn budget_of(body: PodDisruptionBudget) -> Object {
    object(&resources::POD_DISRUPTION_BUDGET, "default/giant", Body::PodDisruptionBudget(body))
}

/// A selector that every pod meets.
fn every_pod(items: usize) -> Option<LabelSelector> {
    LabelSelector::parse(&Labels::default(), (0..items).map(lacks)).ok()
}
