//! Claims that kube-controller-manager creates from a template and deletes with their pods.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::scenario::Scenario;

const CLASSES: &str = "/apis/resource.k8s.io/v1/deviceclasses";
const SLICES: &str = "/apis/resource.k8s.io/v1/resourceslices";

/// A node's two devices, a class that selects them, and a template of claims for one.
fn publish(scenario: &Scenario, node: &str) {
    let name = &scenario.namespace;
    let object = |kind: &str, metadata: Value, spec: Value| json!({ "apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": metadata, "spec": spec });
    let driver = format!("{name}.supercargo.dev");
    let selector = json!({ "cel": { "expression": format!("device.driver == \"{driver}\"") } });
    let class = object("DeviceClass", json!({ "name": name }), json!({ "selectors": [selector] }));
    scenario.create_global(CLASSES, &class);
    let slice = json!({
        "driver": driver,
        "pool": { "name": node, "generation": 1, "resourceSliceCount": 1 },
        "nodeName": node,
        "devices": [{ "name": "device-0" }, { "name": "device-1" }],
    });
    scenario.create_global(SLICES, &object("ResourceSlice", json!({ "name": name }), slice));
    let request = json!({ "name": "one", "exactly": { "deviceClassName": name } });
    let spec = json!({ "spec": { "devices": { "requests": [request] } } });
    scenario.create(&object("ResourceClaimTemplate", json!({ "name": "device" }), spec));
}

/// The pod that each claim belongs to and is reserved for, and the claim's device.
fn claims(scenario: &Scenario) -> BTreeMap<String, Option<(String, String)>> {
    let path = format!("/apis/resource.k8s.io/v1/namespaces/{}/resourceclaims", scenario.namespace);
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let claim = |claim: &Value| {
        let result = &claim["status"]["allocation"]["devices"]["results"][0];
        let (user, device) = (&claim["status"]["reservedFor"][0]["name"], &result["device"]);
        (text(&claim["metadata"]["ownerReferences"][0]["name"]).unwrap(), text(user).zip(text(device)))
    };
    scenario.cluster().list(&path).iter().map(claim).collect()
}

#[test]
fn claims_of_a_template_come_and_go_with_their_pods() {
    let Some(scenario) = Scenario::begin("claims") else { return };
    let nodes = scenario.nodes(2, 1000);
    publish(&scenario, &nodes[1]);
    let mut template = scenario.template("devices", 100);
    template["spec"]["resourceClaims"] = json!([{ "name": "device", "resourceClaimTemplateName": "device" }]);
    let reserved = |pod: &str, device: &str| (pod.to_owned(), Some((pod.to_owned(), device.to_owned())));
    for name in ["one", "two"] {
        scenario.pod(name, &template);
        assert_eq!(scenario.await_bound(name), nodes[1]);
    }
    assert_eq!(claims(&scenario), [reserved("one", "device-0"), reserved("two", "device-1")].into());

    scenario.pod("three", &template);
    let message = scenario.await_unschedulable("three");
    assert!(message.contains("2 cannot allocate all claims"), "{message}");
    scenario.delete(&format!("/api/v1/namespaces/{}/pods/one", scenario.namespace));
    assert_eq!(scenario.await_bound("three"), nodes[1]);
    scenario.eventually("the claim of the deleted pod is gone", || {
        let left = [reserved("two", "device-1"), reserved("three", "device-0")].into();
        (claims(&scenario) == left).then_some(())
    });
}
