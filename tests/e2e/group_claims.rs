//! kube-controller-manager creates the claim of a group from a template; supercargo allocates and
//! reserves it for the group.

use std::time::Duration;

use serde_json::{Value, json};
use supercargo_controlplane::{ControlPlane, ManagerOptions, Options, assets_or_skip};

use crate::support::{Cluster, Supercargo, eventually, node, pod};

const GATES: &str = "--feature-gates=GenericWorkload=true,DRAWorkloadResourceClaims=true";
const GROUPS: &str = "/apis/scheduling.k8s.io/v1beta1/namespaces/default/podgroups";
const CLAIMS: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";
const PATIENCE: Duration = Duration::from_mins(1);

fn resource(kind: &str, name: &str, spec: Value) -> Value {
    let metadata = match kind {
        "ResourceClaimTemplate" => json!({ "name": name, "namespace": "default" }),
        _ => json!({ "name": name }),
    };
    json!({ "apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": metadata, "spec": spec })
}

/// One device on one of two nodes, which all pods of a group `g` share.
fn create_devices_and_group(cluster: &Cluster) -> Value {
    for name in ["n1", "n2"] {
        cluster.create(&node(name, &[], &[("cpu", "4"), ("memory", "4Gi")]));
    }
    cluster.create(&resource("DeviceClass", "gpu", json!({})));
    let pool = json!({ "name": "n2", "generation": 1, "resourceSliceCount": 1 });
    let devices = json!([{ "name": "gpu-0" }]);
    let spec = json!({ "driver": "gpu.example.com", "pool": pool, "nodeName": "n2", "devices": devices });
    cluster.create(&resource("ResourceSlice", "n2", spec));
    let requests = json!([{ "name": "gpu", "exactly": { "deviceClassName": "gpu" } }]);
    let spec = json!({ "spec": { "devices": { "requests": requests } } });
    cluster.create(&resource("ResourceClaimTemplate", "gpu", spec));
    cluster.create(&json!({
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": { "name": "g", "namespace": "default" },
        "spec": {
            "schedulingPolicy": { "gang": { "minCount": 2 } },
            "resourceClaims": [{ "name": "gpu", "resourceClaimTemplateName": "gpu" }],
        },
    }))
}

#[test]
fn claim_of_a_group_is_made_from_its_template_and_goes_with_it() {
    if assets_or_skip().is_none() {
        return;
    }
    let plane = ControlPlane::start(Options {
        feature_gates: vec!["GenericWorkload=true".to_owned(), "DRAWorkloadResourceClaims=true".to_owned()],
        apiserver_args: vec!["--runtime-config=scheduling.k8s.io/v1beta1=true".to_owned()],
        ..Options::default()
    })
    .unwrap();
    let controllers =
        ["resourceclaim-controller", "podgroup-protection-controller", "garbage-collector-controller"];
    let _manager = plane
        .start_controller_manager_with(&ManagerOptions {
            controllers: controllers.map(String::from).to_vec(),
            extra_args: vec![GATES.to_owned()],
        })
        .unwrap();
    let cluster = Cluster::of(&plane);
    let group = create_devices_and_group(&cluster);
    let kubeconfig = plane.kubeconfig("system:kube-scheduler").unwrap();
    let supercargo = Supercargo::start(&kubeconfig, None, &[GATES]);
    supercargo.wait_until_scheduling();

    let claim = json!([{ "name": "gpu", "resourceClaimTemplateName": "gpu" }]);
    for name in ["g-0", "g-1"] {
        let member = pod(name).by("supercargo").spec("schedulingGroup", json!({ "podGroupName": "g" }));
        cluster.create(&member.spec("resourceClaims", claim.clone()).build());
    }
    for name in ["g-0", "g-1"] {
        assert_eq!(cluster.bound_node("default", name), "n2");
    }
    let claims = cluster.list(CLAIMS);
    let [claim] = &claims[..] else { panic!("{claims:#?}") };
    let uid = &group["metadata"]["uid"];
    assert_eq!(&claim["metadata"]["ownerReferences"][0]["uid"], uid);
    let reserved =
        json!([{ "apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": uid }]);
    assert_eq!(claim["status"]["reservedFor"], reserved);
    assert_eq!(claim["status"]["allocation"]["devices"]["results"][0]["device"], "gpu-0");

    for name in ["g-0", "g-1"] {
        cluster.delete_pod("default", name);
    }
    cluster.request("DELETE", &format!("{GROUPS}/g"), None).unwrap();
    let left = || cluster.list(CLAIMS);
    eventually(
        "the claim goes with its group",
        PATIENCE,
        || left().is_empty().then_some(()),
        || format!("{:#?}", left()),
    );
    supercargo.stop();
}
