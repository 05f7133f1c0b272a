//! Updates, binding and deletion of pods.

use super::super::super::path::Path;
use super::*;
use crate::json::{remove, set_default};

/// Applies a merge patch to one field of an object.
pub(super) fn patched(object: &Value, field: &str, change: &Value) -> Value {
    let mut new = object.clone();
    merge(&mut new[field], change);
    new
}

fn merge(object: &mut Value, change: &Value) {
    let Some(changes) = change.as_object() else {
        object.clone_from(change);
        return;
    };
    if !object.is_object() {
        *object = json!({});
    }
    for (key, value) in changes {
        if value.is_null() {
            remove(object, key);
        } else {
            merge(&mut object[key], value);
        }
    }
}

pub(super) fn first_lines(causes: &[StatusCause]) -> Value {
    let line = |cause: &StatusCause| cause.message.lines().next().unwrap_or_default().to_owned();
    causes.iter().map(|cause| json!([cause.reason, cause.field, line(cause)])).collect()
}

pub(super) fn cases(text: &str) -> Vec<Value> {
    serde_json::from_str(text).expect("cases")
}

/// Runs each case of a file. `check` returns our outcome and the real server's.
pub(super) fn compare(text: &str, check: impl Fn(&Value) -> (Value, Value)) {
    let mut wrong: Vec<String> = Vec::new();
    for case in cases(text) {
        let (found, expected) = check(&case);
        if found != expected {
            wrong.push(format!("\n{}\n  here: {found}\n  real: {expected}\n", case["case"]));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.concat());
}

/// The outcome of a change, here and on the real server: the causes if there are any, otherwise the
/// object.
pub(super) fn outcome(case: &Value, causes: &[StatusCause], found: Value, expected: Value) -> (Value, Value) {
    if causes.is_empty() {
        (found, expected)
    } else {
        // The status drops duplicates.
        let causes = StatusCause::union(Vec::new(), causes.to_vec());
        (json!([422, first_lines(&causes)]), json!([case["code"], case["causes"]]))
    }
}

#[test]
fn pod_updates_have_the_recorded_outcomes() {
    compare(include_str!("updated.json"), |case| {
        let old = created(&case["spec"]);
        let mut new = patched(&old, "spec", &case["change"]);
        Pods.default(&mut new);
        Pods.prepare_for_update(&mut new, &old);
        let causes = Pods.validate_update(&new, &old);
        let found = json!([200, new["metadata"]["generation"]]);
        outcome(case, &causes, found, json!([case["code"], case["generation"]]))
    });
}

#[test]
fn status_updates_have_the_recorded_outcomes() {
    compare(include_str!("status.json"), |case| {
        let old = created(&case["spec"]);
        let mut new = patched(&old, "status", &case["change"]);
        new["spec"]["priority"] = 7.into();
        new["metadata"]["generation"] = 9.into();
        Pods.default(&mut new);
        Pods.prepare_for_status_update(&mut new, &old);
        assert_eq!((&new["spec"], &new["metadata"]), (&old["spec"], &old["metadata"]));
        let causes = Pods.validate_status_update(&new, &old);
        let found = json!([200, new["status"]]);
        outcome(case, &causes, found, json!([case["code"], case["status"]]))
    });
}

#[test]
fn negative_grace_period_may_become_one() {
    let mut old = created(&json!({}));
    old["spec"]["terminationGracePeriodSeconds"] = (-1).into();
    let mut new = old.clone();
    new["spec"]["terminationGracePeriodSeconds"] = 1.into();
    assert_eq!(Pods.validate_update(&new, &old), []);
    new["spec"]["terminationGracePeriodSeconds"] = 2.into();
    assert_eq!(Pods.validate_update(&new, &old).len(), 1);
}

#[test]
fn rejected_change_is_shown_as_a_difference() {
    let old = created(&json!({}));
    let new = patched(&old, "spec", &json!({"nodeName": "n1"}));
    let causes = Pods.validate_update(&new, &old);
    let [cause] = causes.as_slice() else { panic!("{causes:?}") };
    assert!(cause.message.contains("(allow it to be set to 1 if it was previously negative)\n@@ -"));
    assert!(cause.message.contains("\n+ \"NodeName\": \"n1\""), "{}", cause.message);
}

fn node() -> Objects {
    let labels =
        json!({"topology.kubernetes.io/zone": "z", "topology.kubernetes.io/region": "r", "other": "x"});
    Objects::system().with("", "nodes", json!({"metadata": {"name": "n", "labels": labels}}))
}

fn binding() -> Value {
    json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}})
}

#[test]
fn bound_pod_gets_the_node_and_its_topology_labels() {
    let mut pod = created(&json!({}));
    pod["status"]["nominatedNodeName"] = "n".into();
    pod["status"]["conditions"] = json!([{
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "m",
        "lastProbeTime": null, "lastTransitionTime": "2020-01-01T00:00:00Z",
    }]);
    pod["metadata"]["labels"] = json!({"topology.kubernetes.io/zone": "old", "a": "b"});
    let mut binding = binding();
    binding["metadata"]["annotations"] = json!({"c": "d"});
    binding["metadata"]["labels"] = json!({"e": "f"});
    binding::bind(&mut pod, &binding, &node(), NOW).expect("bound");
    assert_eq!(pod["spec"]["nodeName"], "n");
    assert_eq!(pod["status"].get("nominatedNodeName"), None);
    assert_eq!(pod["metadata"]["annotations"], json!({"c": "d"}));
    assert_eq!(
        pod["metadata"]["labels"],
        json!({"topology.kubernetes.io/zone": "z", "topology.kubernetes.io/region": "r", "a": "b", "e": "f"})
    );
    let conditions = pod["status"]["conditions"].as_array().expect("conditions");
    let [condition] = conditions.as_slice() else { panic!("{conditions:?}") };
    assert_eq!((&condition["status"], condition.get("reason")), (&json!("True"), None));
    assert_ne!(condition["lastTransitionTime"], "2020-01-01T00:00:00Z");
    assert_eq!(pod["metadata"]["generation"], 1);
}

#[test]
fn target_without_a_kind_is_a_node_whose_labels_stay_its_own() {
    let mut pod = created(&json!({}));
    let mut binding = binding();
    remove(&mut binding["target"], "kind");
    binding::bind(&mut pod, &binding, &node(), NOW).expect("bound");
    assert_eq!((&pod["spec"]["nodeName"], pod["metadata"].get("labels")), (&json!("n"), None));
}

#[test]
fn invalid_bindings_have_the_recorded_errors() {
    const CONFLICT: &str = "Operation cannot be fulfilled on pods/binding \"p\": pod p ";
    let stale = |what: &str| {
        format!(
            "Operation cannot be fulfilled on pods \"p\": StorageError: invalid object, Code: 4, Key: \
             /registry/pods/default/p, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: {what}"
        )
    };
    let table: [(&str, Value, Value, u16, String); 9] = [
        (
            "another name",
            json!({}),
            json!({"metadata": {"name": "q"}}),
            400,
            "name in URL does not match name in Binding object".to_owned(),
        ),
        (
            "another kind and no name",
            json!({}),
            json!({"target": {"kind": "X"}}),
            500,
            "[target.kind: Unsupported value: \"X\": supported values: \"Node\", \"<empty>\", target.name: Required value]"
                .to_owned(),
        ),
        ("no target", json!({}), json!({"target": null}), 500, "target.name: Required value".to_owned()),
        (
            "another uid",
            json!({"uid": "u"}),
            json!({"metadata": {"name": "p", "uid": "v"}}),
            409,
            stale("UID in precondition: v, UID in object meta: u"),
        ),
        (
            "another version",
            json!({"resourceVersion": "2"}),
            json!({"metadata": {"name": "p", "resourceVersion": "1"}}),
            409,
            stale("ResourceVersion in precondition: 1, ResourceVersion in object meta: 2"),
        ),
        (
            "being deleted",
            json!({"deletionTimestamp": "2020-01-01T00:00:00Z"}),
            json!({}),
            409,
            format!("{CONFLICT}is being deleted, cannot be assigned to a host"),
        ),
        (
            "bound",
            json!({"nodeName": "m"}),
            json!({}),
            409,
            format!("{CONFLICT}is already assigned to node \"m\""),
        ),
        (
            "gated",
            json!({"schedulingGates": [{"name": "a"}]}),
            json!({}),
            409,
            format!("{CONFLICT}has non-empty .spec.schedulingGates"),
        ),
        ("nothing at all", json!({}), json!({"metadata": null}), 400, "name in URL does not match name in Binding object".to_owned()),
    ];
    for (case, fields, change, code, message) in table {
        let mut pod = created(&json!({}));
        for (key, value) in fields.as_object().expect("a map") {
            let part =
                if matches!(key.as_str(), "nodeName" | "schedulingGates") { "spec" } else { "metadata" };
            pod[part][key] = value.clone();
        }
        let mut binding = binding();
        for (key, value) in change.as_object().expect("a map") {
            binding[key] = value.clone();
        }
        let before = pod.clone();
        let refusal = binding::bind(&mut pod, &binding, &node(), NOW).expect_err(case);
        assert_eq!((refusal.code.as_u16(), refusal.message), (code, message), "{case}");
        assert_eq!(pod, before, "{case}");
    }
}

#[test]
fn new_pod_with_a_node_gets_its_topology_labels() {
    let mut pod = json!({
        "metadata": {"name": "p", "namespace": "default"},
        "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]},
    });
    create(&mut pod, &node()).expect("a sound pod");
    assert_eq!(pod["metadata"]["labels"]["topology.kubernetes.io/zone"], "z");
}

fn class(name: &str, value: i64, is_default: bool) -> Value {
    json!({"metadata": {"name": name}, "value": value, "globalDefault": is_default, "preemptionPolicy": "Never"})
}

#[test]
fn lowest_default_priority_class_applies() {
    const GROUP: &str = "scheduling.k8s.io";
    let objects = Objects::system()
        .with(GROUP, "priorityclasses", class("high", 9, true))
        .with(GROUP, "priorityclasses", class("low", 3, true))
        .with(GROUP, "priorityclasses", class("none", 1, false));
    let mut pod = json!({
        "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]},
    });
    create(&mut pod, &objects).expect("a sound pod");
    assert_eq!(pod["spec"]["priorityClassName"], "low");
    assert_eq!((&pod["spec"]["priority"], &pod["spec"]["preemptionPolicy"]), (&json!(3), &json!("Never")));
}

#[test]
fn runtime_class_sets_overhead_and_node_selector() {
    let scheduling = json!({"nodeSelector": {"r": "s"}, "tolerations": [{"key": "t", "operator": "Exists"}]});
    let class = json!({
        "metadata": {"name": "fast"}, "overhead": {"podFixed": {"cpu": "100m"}}, "scheduling": scheduling,
    });
    let objects = Objects::system().with("node.k8s.io", "runtimeclasses", class);
    let spec = json!({"runtimeClassName": "fast", "containers": [{"name": "c", "image": "i"}]});
    let sound = json!({"metadata": {"name": "p"}, "spec": spec});
    let mut pod = sound.clone();
    create(&mut pod, &objects).expect("a sound pod");
    assert_eq!(pod["spec"]["overhead"], json!({"cpu": "100m"}));
    assert_eq!(pod["spec"]["nodeSelector"], json!({"r": "s"}));
    assert_eq!(pod["spec"]["tolerations"].as_array().map(Vec::len), Some(3));
    let refused = |field: &str, value: Value| {
        let mut pod = sound.clone();
        pod["spec"][field] = value;
        create(&mut pod, &objects).expect_err("refused").message
    };
    assert!(
        refused("overhead", json!({"cpu": "1"})).contains("doesn't match RuntimeClass's defined Overhead")
    );
    assert!(
        refused("nodeSelector", json!({"r": "x"}))
            .contains("nodeSelector[r] = s; pod.spec.nodeSelector[r] = x")
    );
}

#[test]
fn unbound_and_completed_pods_are_deleted_at_once() {
    let mut pod = created(&json!({"terminationGracePeriodSeconds": 7}));
    assert_eq!((grace_period(&pod, None), grace_period(&pod, Some(5))), (0, 0));
    pod["spec"]["nodeName"] = "n".into();
    assert_eq!((grace_period(&pod, None), grace_period(&pod, Some(5))), (7, 5));
    assert_eq!(grace_period(&pod, Some(-1)), 1);
    pod["status"]["phase"] = "Succeeded".into();
    assert_eq!(grace_period(&pod, Some(5)), 0);
}

#[test]
fn selectable_fields_have_values() {
    let mut pod = created(&json!({"nodeName": "n", "serviceAccountName": "sa"}));
    set_default(&mut pod["status"], "podIPs", json!([{"ip": "10.0.0.1"}, {"ip": "::1"}]));
    let values: Vec<String> = Pods.selectable_fields().iter().map(|field| Pods.field(&pod, field)).collect();
    assert_eq!(values, ["n", "Always", "default-scheduler", "sa", "false", "Pending", "10.0.0.1", ""]);
}

#[test]
fn template_skips_pod_only_defaults_and_checks() {
    let mut spec = json!({"hostNetwork": true, "containers": [{"name": "c", "image": " i", "ports": [{"containerPort": 1}]}]});
    defaults::pod_spec(&mut spec);
    assert_eq!(
        (spec["containers"][0]["ports"][0].get("hostPort"), spec.get("enableServiceLinks")),
        (None, None)
    );
    let mut causes = Vec::new();
    validate::spec(&spec, spec::SpecOwner { pod: None }, &Path::root("spec"), &mut causes);
    assert_eq!(causes, []);
}

#[test]
fn empty_equals_missing() {
    let same = super::super::update::same;
    assert!(same(&json!({"a": [], "b": {"c": ""}}), &json!({"b": {}, "d": null})));
    assert!(same(&json!([{"a": false}]), &json!([{}])));
    assert!(!same(&json!({"a": 0}), &json!({})));
    assert!(!same(&json!({}), &json!({"a": {"b": [1]}})));
    assert!(!same(&json!([1]), &json!([1, null])));
}
