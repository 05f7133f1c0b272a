//! Missing permissions and the messages about them.

use serde_json::json;

use crate::support::{Cluster, Supercargo, node, own_plane, pod};

#[test]
fn missing_permission_is_reported_and_recovered() {
    let Some(plane) = own_plane() else { return };
    let cluster = Cluster::of(&plane);
    cluster.create(&node("n1", &[], &[("cpu", "1")]));
    cluster.create(&pod("first").by("supercargo").build());
    let supercargo = Supercargo::start(&plane.kubeconfig("powerless").unwrap(), None, &[]);
    for resource in ["pods", "nodes"] {
        let line = supercargo.wait_for_line(&[
            "ERROR",
            "forbidden",
            "\"powerless\"",
            &format!("cannot list resource \"{resource}\""),
        ]);
        // What the server says is enough: no dump of its answer follows.
        assert!(line.len() < 400 && !line.contains('{'), "{line}");
    }
    // It may read now, but not bind.
    let verbs = json!(["get", "list", "watch"]);
    let rules = json!([{ "apiGroups": ["*"], "resources": ["*"], "verbs": verbs }]);
    cluster.allow("powerless", "reader", &rules);
    supercargo.wait_until_scheduling();
    supercargo
        .wait_for_line(&["running Bind plugin \"DefaultBinder\"", "cannot create resource \"pods/binding\""]);
    supercargo.wait_for_line(&["WARN", "cannot patch resource \"pods/status\""]);
    supercargo.wait_for_line(&["WARN", "cannot create resource \"events\""]);

    // The remaining permissions of the access table.
    cluster.allow_supercargo("powerless");
    assert_eq!(cluster.bound_node("default", "first"), "n1");
    supercargo.stop();
}
