//! Volumes that are found or provisioned once the pod's node is chosen.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::scenario::Scenario;
use crate::support::{name_of, node_of};

/// The provisioner of a class whose volumes the test provisions.
const PROVISIONER: &str = "supercargo.dev/e2e";
const CLASSES: &str = "/apis/storage.k8s.io/v1/storageclasses";
const VOLUMES: &str = "/api/v1/persistentvolumes";
const SELECTED: &str = "volume.kubernetes.io/selected-node";

fn class(scenario: &Scenario, name: &str, provisioner: &str) -> String {
    let name = format!("{}-{name}", scenario.namespace);
    scenario.create_global(
        CLASSES,
        &json!({
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": { "name": name },
            "provisioner": provisioner,
            "volumeBindingMode": "WaitForFirstConsumer",
        }),
    );
    name
}

/// A volume on one node.
fn volume(scenario: &Scenario, name: &str, class: &str, node: &str, claim: Option<&Value>) {
    let on_node = json!({ "key": "kubernetes.io/hostname", "operator": "In", "values": [node] });
    let annotations = match claim {
        Some(_) => json!({ "pv.kubernetes.io/provisioned-by": PROVISIONER }),
        None => json!({}),
    };
    let claim = claim.map(|claim| {
        let meta = &claim["metadata"];
        json!({
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": meta["namespace"],
            "name": meta["name"],
            "uid": meta["uid"],
        })
    });
    scenario.create_global(
        VOLUMES,
        &json!({
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {
                "name": name,
                "annotations": annotations,
            },
            "spec": {
                "capacity": { "storage": "1Gi" },
                "accessModes": ["ReadWriteOnce"],
                "persistentVolumeReclaimPolicy": "Retain",
                "storageClassName": class,
                "local": { "path": "/nothing" },
                "nodeAffinity": { "required": { "nodeSelectorTerms": [{ "matchExpressions": [on_node] }] } },
                "claimRef": claim,
            },
        }),
    );
}

fn claims(scenario: &Scenario) -> Vec<Value> {
    scenario.cluster().list(&format!("/api/v1/namespaces/{}/persistentvolumeclaims", scenario.namespace))
}

/// Provisions volumes for claims with a selected node.
fn provision(scenario: &Scenario, class: &str, made: &mut BTreeSet<String>) {
    for claim in claims(scenario) {
        let name = format!("{}-{}", scenario.namespace, name_of(&claim));
        let Some(node) = claim["metadata"]["annotations"][SELECTED].as_str() else { continue };
        if claim["spec"]["storageClassName"] == class && made.insert(name.clone()) {
            volume(scenario, &name, class, node, Some(&claim));
        }
    }
}

#[test]
fn stateful_set_pods_follow_their_volumes() {
    let Some(scenario) = Scenario::begin("statefulset") else { return };
    let nodes = scenario.nodes(4, 1000);
    let found = class(&scenario, "found", "kubernetes.io/no-provisioner");
    let made = class(&scenario, "made", PROVISIONER);
    // Existing volumes on three of the four nodes.
    for node in &nodes[1..] {
        volume(&scenario, &format!("{node}-found"), &found, node, None);
    }
    let claim = |name: &str, class: &str| {
        json!({
            "metadata": { "name": name },
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": class,
                "resources": { "requests": { "storage": "1Gi" } },
            },
        })
    };
    let more = json!({
        "replicas": 3,
        "serviceName": "db",
        "volumeClaimTemplates": [claim("found", &found), claim("made", &made)],
    });
    let set = scenario.workload("StatefulSet", "db", &scenario.template("db", 250), &more);
    let mut provisioned = BTreeSet::new();
    let mut await_all = || {
        let pods = scenario.eventually("three pods run, with their volumes", || {
            provision(&scenario, &made, &mut provisioned);
            let pods = scenario.pods_of("db");
            let running = pods.iter().filter(|pod| pod["status"]["phase"] == "Running").count();
            (running == 3).then_some(pods)
        });
        let place = |pod: &Value| Some((name_of(pod).to_owned(), node_of(pod)?.to_owned()));
        pods.iter().filter_map(place).collect::<BTreeMap<_, _>>()
    };
    let places = await_all();
    let used: BTreeSet<_> = places.values().cloned().collect();
    assert_eq!(used, nodes[1..].iter().cloned().collect(), "one volume on each of these");
    assert!(claims(&scenario).iter().all(|claim| claim["status"]["phase"] == "Bound"));

    scenario.scale(&set, 0);
    scenario.eventually("no pod is left", || scenario.pods_of("db").is_empty().then_some(()));
    scenario.scale(&set, 3);
    assert_eq!(await_all(), places);
    assert_eq!(provisioned.len(), 3, "a volume was made twice");
}
