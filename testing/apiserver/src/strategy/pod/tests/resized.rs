//! Resized pods, and pods with ephemeral containers.

use super::bound::{compare, outcome, patched};
use super::*;

#[test]
fn resizes_have_the_recorded_outcomes() {
    compare(include_str!("resized.json"), |case| {
        let old = created(&case["spec"]);
        let mut new = patched(&old, "spec", &case["change"]);
        new["metadata"]["labels"] = json!({"a": "b"});
        Pods.default(&mut new);
        resize::prepare(&mut new, &old);
        let causes = resize::validate(&new, &old);
        if causes.is_empty() {
            assert_eq!((&new["status"], new["metadata"].get("labels")), (&old["status"], None));
        }
        let found = json!([200, new["metadata"]["generation"], new["spec"]]);
        outcome(case, &causes, found, json!([case["code"], case["generation"], case["changed"]]))
    });
}

#[test]
fn pods_on_nodes_without_support_are_not_resized() {
    let mut old = created(&json!({}));
    old["status"]["containerStatuses"] = json!([{"name": "c", "state": {"running": {}}}]);
    let causes = resize::validate(&old, &old);
    assert_eq!(
        triples(&causes),
        json!([["FieldValueForbidden", "spec", "Forbidden: Pod running on node without support for resize"]])
    );
    old["status"]["containerStatuses"][0]["resources"] = json!({});
    assert_eq!(resize::validate(&old, &old), []);
}

#[test]
fn ephemeral_containers_can_only_be_added() {
    let old = created(&json!({}));
    let change = |old: &Value, own: Value| {
        let mut new = old.clone();
        new["spec"]["ephemeralContainers"] = own;
        new["spec"]["nodeName"] = "not looked at".into();
        Pods.default(&mut new);
        resize::prepare_ephemeral(&mut new, old);
        (resize::validate_ephemeral(&new, old), new)
    };
    let one = json!({"name": "e", "image": "i"});
    let (causes, old) = change(&old, json!([one]));
    assert_eq!(causes, []);
    assert_eq!((&old["metadata"]["generation"], old["spec"].get("nodeName")), (&json!(2), None));
    let refused = |own| change(&old, own).0.into_iter().map(|cause| cause.message).collect::<Vec<_>>();
    assert_eq!(refused(json!([])), ["Forbidden: existing ephemeral containers \"e\" may not be removed\n"]);
    let other = refused(json!([{"name": "e", "image": "j"}]));
    assert!(
        other[0].starts_with("Forbidden: existing ephemeral containers \"e\" may not be changed\n@@ -1,"),
        "{other:?}"
    );
    let second =
        json!({"name": "c", "image": "i", "targetContainerName": "z", "ports": [{"containerPort": 1}]});
    assert_eq!(
        refused(json!([one, second])),
        ["Duplicate value: \"c\"", "Not found: \"z\"", "Forbidden: cannot be set for an Ephemeral Container"]
    );
}
