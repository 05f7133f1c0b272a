//! Nodes that a real API server would reject, from a server that accepts everything.

use std::time::Duration;

use serde_json::json;

use crate::support::{FakeApi, Supercargo, config, node, pod};

const WITHIN: Duration = Duration::from_secs(20);

/// Bindings in the order of the requests: (pod, node).
fn bound(api: &FakeApi) -> Vec<(String, String)> {
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let bindings = api.received("/binding");
    let target = |body: &serde_json::Value| (text(&body["metadata"]["name"]), text(&body["target"]["name"]));
    bindings.iter().map(|request| target(&request.body)).collect()
}

#[test]
fn node_with_invalid_quantities_is_named_and_skipped() {
    let api = FakeApi::start();
    api.set_node(node("nonsense", &[], &[("cpu", "lots"), ("memory", "8Gi")]));
    api.set_node(node("good", &[], &[("cpu", "1"), ("memory", "8Gi")]));
    api.set_pod(pod("first").by("fake").asking("cpu", "600m").build());
    let supercargo = Supercargo::start(&api.kubeconfig(), Some(&config(&["fake"])), &[]);
    supercargo.wait_until_scheduling();
    supercargo.wait_for_line(&["ERROR", "node nonsense", "status.allocatable[cpu]", "\"lots\""]);
    let to_good = |pod: &str| (pod.to_owned(), "good".to_owned());
    supercargo
        .eventually("the first pod is bound", WITHIN, || (bound(&api) == [to_good("first")]).then_some(()));

    // A node that becomes invalid keeps its last valid state, and pods still fit there.
    api.set_node(node("good", &[], &[("cpu", "-"), ("memory", "8Gi")]));
    supercargo.wait_for_line(&["ERROR", "node good", "status.allocatable[cpu]"]);
    api.set_pod(pod("second").by("fake").asking("cpu", "600m").build());
    api.set_pod(pod("third").by("fake").asking("cpu", "300m").build());
    supercargo.eventually("the third pod is bound", WITHIN, || {
        (bound(&api) == [to_good("first"), to_good("third")]).then_some(())
    });

    // A node that becomes valid is used.
    api.set_node(node("nonsense", &[], &[("cpu", "1"), ("memory", "8Gi")]));
    supercargo.eventually("the second pod is bound", WITHIN, || {
        let last = bound(&api).pop();
        (last == Some(("second".to_owned(), "nonsense".to_owned()))).then_some(())
    });
    let patches = api.received("/pods/second/status");
    let condition = &patches[0].body["status"]["conditions"][0];
    let message = "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption \
                   victims found for incoming pod.";
    assert_eq!(condition["message"], message);
    supercargo.stop();
}

#[test]
fn undecodable_pods_are_named_and_others_scheduled() {
    let api = FakeApi::start();
    api.set_node(node("good", &[], &[("cpu", "1")]));
    api.set_pod(pod("nonsense").by("fake").asking("cpu", "1 core").build());
    let mut no_list = pod("no-list").by("fake").build();
    no_list["spec"]["containers"] = json!("main");
    api.set_pod(no_list);
    api.set_pod(pod("good").by("fake").asking("cpu", "100m").build());
    let supercargo = Supercargo::start(&api.kubeconfig(), Some(&config(&["fake"])), &[]);
    supercargo.wait_for_line(&[
        "ERROR",
        "pod default/nonsense",
        "spec.containers[0].resources.requests[cpu]",
    ]);
    supercargo.wait_for_line(&["ERROR", "pod default/no-list", "spec.containers"]);
    supercargo.eventually("the good pod is bound", WITHIN, || {
        (bound(&api) == [("good".to_owned(), "good".to_owned())]).then_some(())
    });
    supercargo.stop();
}
