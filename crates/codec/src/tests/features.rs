//! Feature gates that affect requests and tolerations.

use serde_json::{Value, json};
use supercargo_framework::taint::TolerationOperator;
use supercargo_framework::{Feature, Features, PodInfo};

use crate::PodKind;

fn decoded(pod: &Value, features: Features) -> PodInfo {
    let none: [&str; 0] = [];
    PodKind::new(none).features(features).decode(pod.to_string().as_bytes()).unwrap()
}

/// The CPU request of a pod with a feature on and off.
fn cpu(pod: &Value, feature: Feature) -> (i64, i64) {
    let with = |on| decoded(pod, Features::default().with(feature, on)).requests().resource.milli_cpu;
    (with(true), with(false))
}

fn pod() -> Value {
    json!({
        "metadata": {"name": "p", "namespace": "ns", "uid": "u"},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]},
    })
}

#[test]
fn pod_level_requests_require_their_feature() {
    let mut pod = pod();
    pod["spec"]["resources"] = json!({"requests": {"cpu": "3"}});
    assert_eq!(cpu(&pod, Feature::PodLevelResources), (3000, 1000));
    pod["status"] = json!({"resources": {"requests": {"cpu": "5"}}, "allocatedResources": {"cpu": "4"}});
    assert_eq!(cpu(&pod, Feature::InPlacePodLevelResourcesVerticalScaling), (5000, 3000));
    assert_eq!(cpu(&pod, Feature::PodLevelResources), (5000, 5000), "the sum is reported as well");
}

#[test]
fn kubelet_reports_require_in_place_resize() {
    let mut pod = pod();
    pod["status"] = json!({"containerStatuses": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]});
    assert_eq!(cpu(&pod, Feature::InPlacePodVerticalScaling), (2000, 1000));
    pod["status"] = json!({"resources": {"requests": {"cpu": "2"}}, "allocatedResources": {"cpu": "2"}});
    assert_eq!(cpu(&pod, Feature::InPlacePodVerticalScaling), (2000, 1000));
}

#[test]
fn toleration_comparison_requires_its_feature() {
    let mut pod = pod();
    pod["spec"]["tolerations"] = json!([{"key": "k", "operator": "Gt", "value": "1"}]);
    let operator = |on| {
        let features = Features::default().with(Feature::TaintTolerationComparisonOperators, on);
        decoded(&pod, features).spec.tolerations[0].operator
    };
    assert_eq!((operator(true), operator(false)), (TolerationOperator::Gt, TolerationOperator::Unknown));
}
