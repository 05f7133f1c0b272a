//! Claims that others change while a scheduler binds its pods, and bindings that fail after claims
//! are written: supercargo and kube-scheduler send the same requests and report the same.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::Duration;

use serde_json::{Value, json};
use supercargo_controlplane::{ControlPlane, SchedulerOptions};

use crate::support::{Cluster, Extender, Supercargo, eventually, node, own_plane, pod};

/// The user of both schedulers.
const USER: &str = "system:kube-scheduler";
/// An extended resource that only the extender manages.
const MANAGED: &str = "example.com/managed";
const FINALIZER: &str = "resource.kubernetes.io/delete-protection";

/// The races, by the name of the pod and its claim, and how many events each ends with.
const RACES: [(&str, usize); 5] = [
    ("conflict-on-finalizer", 1),
    ("conflict-on-status", 1),
    ("allocated-elsewhere", 2),
    ("claim-deleted-in-prebind", 1),
    ("bind-fails", 2),
];

fn claim_path(namespace: &str, name: &str) -> String {
    format!("/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/{name}")
}

/// Does what the name of the claim says, after the scheduler has read it.
fn interfere(cluster: &Cluster, namespace: &str, name: &str) {
    let path = claim_path(namespace, name);
    match name {
        "conflict-on-finalizer" | "conflict-on-status" => {
            cluster.patch(&path, &json!({ "metadata": { "labels": { "changed": "yes" } } }));
        }
        "allocated-elsewhere" => {
            let device =
                json!({ "request": "one", "driver": "gpu.example.com", "pool": "n1", "device": "gpu-9" });
            // Without a time, it could not be reserved.
            let time = "2026-01-01T00:00:00Z";
            let allocation = json!({ "devices": { "results": [device] }, "allocationTimestamp": time });
            cluster.patch(&format!("{path}/status"), &json!({ "status": { "allocation": allocation } }));
        }
        "claim-deleted-in-prebind" => drop(cluster.request("DELETE", &path, None).unwrap()),
        "bind-fails" => {}
        other => panic!("{other}"),
    }
}

/// An extender that interferes when it is first asked about a pod: after PreFilter, which reads
/// claims, and before PreBind, which writes them. It refuses the first binding of `bind-fails`.
fn extender(plane: &ControlPlane) -> Extender {
    let cluster = Cluster::of(plane);
    let seen = Mutex::new(BTreeSet::new());
    Extender::start(move |verb, body| {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        if verb == "filter" {
            let metadata = &body["Pod"]["metadata"];
            let (namespace, name) = (text(&metadata["namespace"]), text(&metadata["name"]));
            if seen.lock().unwrap().insert((verb.to_owned(), namespace.clone(), name.clone())) {
                interfere(&cluster, &namespace, &name);
            }
            return (200, json!({ "Nodes": body["Nodes"] }));
        }
        let (namespace, name) = (text(&body["PodNamespace"]), text(&body["PodName"]));
        let is_first = seen.lock().unwrap().insert((verb.to_owned(), namespace.clone(), name.clone()));
        if name == "bind-fails" && is_first {
            return (200, json!({ "Error": "not yet" }));
        }
        let binding = json!({
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": { "name": name, "namespace": namespace, "uid": body["PodUID"] },
            "target": { "kind": "Node", "name": body["Node"] },
        });
        cluster.try_create(&binding).unwrap();
        (200, json!({}))
    })
}

fn config(scheduler_name: &str, url: &str) -> Value {
    json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "extenders": [{
            "urlPrefix": url,
            "filterVerb": "filter",
            "bindVerb": "bind",
            "httpTimeout": "30s",
            "managedResources": [{ "name": MANAGED, "ignoredByScheduler": true }],
        }],
        "profiles": [{ "schedulerName": scheduler_name }],
    })
}

/// The events of a race, its claim in the end, and the requests for it in their order.
fn race(
    plane: &ControlPlane,
    cluster: &Cluster,
    scheduler_name: &str,
    (name, count): (&str, usize),
) -> String {
    let namespace = scheduler_name;
    let finalizers: &[&str] = match name {
        "conflict-on-status" => &[FINALIZER],
        // kube-scheduler fails in Reserve if it already sees that the claim is gone.
        "claim-deleted-in-prebind" => &["example.com/held"],
        _ => &[],
    };
    cluster.create(&json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": { "name": name, "namespace": namespace, "finalizers": finalizers },
        "spec": { "devices": { "requests": [{ "name": "one", "exactly": { "deviceClassName": "gpu" } }] } },
    }));
    let claims = json!([{ "name": "c", "resourceClaimName": name }]);
    let pod = pod(name).within(namespace).by(scheduler_name).asking(MANAGED, "1");
    let pod = cluster.create(&pod.spec("resourceClaims", claims).build());
    let events = || {
        let mut events = cluster.events(namespace, name);
        events.sort_by_key(|event| event["eventTime"].to_string());
        let are_all = events.len() >= count;
        events.truncate(count);
        are_all.then_some(events)
    };
    let state = || format!("{} {:?}", cluster.pod(namespace, name), cluster.events(namespace, name));
    let events = eventually(&format!("{name} ends"), Duration::from_mins(1), events, state);
    let told = events.iter().map(|event| format!("{} {}", event["reason"], event["note"]));
    let path = claim_path(namespace, name);
    let claim = cluster.find(&path).map_or_else(String::new, |claim| {
        // The next race finds its device free.
        cluster.patch(&path, &json!({ "metadata": { "finalizers": null } }));
        drop(cluster.request("DELETE", &path, None));
        let (metadata, status) = (&claim["metadata"], &claim["status"]);
        let (devices, users) = (&status["allocation"]["devices"], &status["reservedFor"]);
        format!("{} {} {devices} {users}", metadata["labels"], metadata["finalizers"])
    });
    cluster.delete_pod(namespace, name);
    let requests = requests(plane, namespace, name);
    let all: Vec<String> = told.chain([claim]).chain(requests).collect();
    let uid = pod["metadata"]["uid"].as_str().unwrap();
    format!("{name}:\n{}\n", all.join("\n")).replace(uid, "{uid}").replace(namespace, "{namespace}")
}

/// The scheduler's requests for a claim, as the audit log has them.
fn requests(plane: &ControlPlane, namespace: &str, name: &str) -> Vec<String> {
    let log = plane.audit_log().unwrap();
    let of_claim = log.iter().filter(|event| {
        let object = &event["objectRef"];
        let is_claim = object["resource"] == "resourceclaims" && object["namespace"] == namespace;
        is_claim && object["name"] == name && event["user"]["username"] == USER
    });
    let request = |event: &Value| {
        let (verb, subresource) = (&event["verb"], &event["objectRef"]["subresource"]);
        format!("{verb} {subresource} {}", event["responseStatus"]["code"])
    };
    of_claim.map(request).collect()
}

#[test]
fn races_for_claims_end_as_with_kube_scheduler() {
    let Some(plane) = own_plane() else { return };
    let cluster = Cluster::of(&plane);
    let (ours, theirs) = ("supercargo", "upstream");
    cluster.namespace(ours);
    cluster.namespace(theirs);
    cluster.create(&node("n1", &[], &[("cpu", "4"), ("memory", "4Gi")]));
    let resource = |kind: &str, name: &str, spec: Value| json!({ "apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": { "name": name }, "spec": spec });
    cluster.create(&resource("DeviceClass", "gpu", json!({})));
    let devices: Vec<Value> = (0..10).map(|number| json!({ "name": format!("gpu-{number}") })).collect();
    let pool = json!({ "name": "n1", "generation": 1, "resourceSliceCount": 1 });
    let spec = json!({ "driver": "gpu.example.com", "pool": pool, "nodeName": "n1", "devices": devices });
    cluster.create(&resource("ResourceSlice", "n1", spec));
    let extender = extender(&plane);
    let races = |scheduler_name: &str| -> String {
        RACES.iter().map(|one| race(&plane, &cluster, scheduler_name, *one)).collect()
    };

    let mut upstream = config(theirs, &extender.url());
    upstream["clientConnection"] = json!({ "kubeconfig": "{kubeconfig}" });
    let options = SchedulerOptions { config_yaml: Some(upstream.to_string()), ..SchedulerOptions::default() };
    let upstream = plane.start_kube_scheduler(&options).unwrap();
    let expected = races(theirs);
    drop(upstream);
    assert_eq!(expected.matches(" 409\n").count(), 4, "four races conflict: {expected}");

    let config = config(ours, &extender.url()).to_string();
    let supercargo = Supercargo::on(&plane, Some(&config));
    assert_eq!(races(ours), expected, "{expected}");
    supercargo.stop();
}
