//! The permissions for groups suffice, and each is needed.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use supercargo_controlplane::{ControlPlane, assets_or_skip};

use super::audit::{Request, requests_of};
use super::cluster::{
    create_namespace, eventually, get, kubeconfig_of, post, start_with, user_name, within_patience,
};
use super::live::{NODES, node, pod, pods};
use super::manifests;
use super::needed::account_with;
use super::process::Scheduler;
use super::rules::{Access, allowed, in_words};
use crate::support::access::GROUP_ACCESS;

const GROUP: &str = "scheduling.k8s.io";
/// CompositePodGroup needs the two others.
const GATES: &[&str] =
    &["GenericWorkload=true", "TopologyAwareWorkloadScheduling=true", "CompositePodGroup=true"];

fn start() -> ControlPlane {
    let served = format!("--runtime-config={GROUP}/v1beta1=true,{GROUP}/v1alpha3=true");
    let plane = start_with(GATES, vec![served]).unwrap();
    post(&plane, NODES, &node("n", false));
    plane
}

/// The path of the groups of a namespace.
fn groups(version: &str, namespace: &str, plural: &str) -> String {
    format!("/apis/{GROUP}/{version}/namespaces/{namespace}/{plural}")
}

/// Starts a scheduler of this name with these permissions, and gives it a group of a tree that does
/// not fit.
fn start_with_group<'a>(
    plane: &ControlPlane,
    name: &str,
    permissions: impl Iterator<Item = &'a Access>,
) -> (Scheduler, String) {
    let account = account_with(plane, name, permissions);
    create_namespace(plane, name);
    let of_workload = |template: &str| json!({"workloadName": "job", "templateName": template});
    let object = |version: &str, kind: &str, name: &str, spec: Value| {
        let version = format!("{GROUP}/{version}");
        json!({"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec})
    };
    let spec = json!({"workloadRef": of_workload("job"), "schedulingPolicy": {"basic": {}}});
    let tree = object("v1alpha3", "CompositePodGroup", "job", spec);
    post(plane, &groups("v1alpha3", name, "compositepodgroups"), &tree);
    let group = object(
        "v1beta1",
        "PodGroup",
        "workers",
        json!({
            "parentCompositePodGroupName": "job",
            "workloadRef": of_workload("workers"),
            "schedulingPolicy": {"gang": {"minCount": 1}},
        }),
    );
    post(plane, &groups("v1beta1", name, "podgroups"), &group);
    let mut member = pod("worker", "100");
    member["spec"]["schedulerName"] = json!(name);
    member["spec"]["schedulingGroup"] = json!({"podGroupName": "workers"});
    post(plane, &pods(name), &member);
    let gates = format!("--feature-gates={}", GATES.join(","));
    let config = manifests::config_of_one(name);
    let scheduler = Scheduler::start_with(plane, &config, &kubeconfig_of(plane, &account), &[gates]);
    (scheduler, user_name(&account))
}

/// What the base allows, and what the role for groups allows.
fn all_permissions() -> Vec<Access> {
    let roles = [manifests::object("ClusterRole"), manifests::read("groups/clusterrole.yaml")];
    roles.iter().flat_map(allowed).collect()
}

/// The requests of a user, except those that need other roles.
fn requests(plane: &ControlPlane, user: &str) -> Vec<Request> {
    let mut requests = requests_of(plane, user);
    requests.retain(|request| !request.is_discovery() && !request.is_lookup());
    requests
}

#[test]
fn permissions_for_groups_suffice_and_each_is_used() {
    if assets_or_skip().is_none() {
        return;
    }
    let plane = &start();
    let (mut scheduler, user) = start_with_group(plane, "groups", all_permissions().iter());
    eventually("the group has a condition", || {
        let group = get(plane, &format!("{}/workers", groups("v1beta1", "groups", "podgroups")));
        group["status"]["conditions"][0]["reason"].is_string().then_some(())
    });
    let status = scheduler.terminate();
    assert!(status.success(), "{status}");
    let of_groups = || -> BTreeSet<Access> {
        let requests = requests(plane, &user).into_iter().filter(Request::is_success);
        requests.map(|request| request.access).filter(|access| access.0 == GROUP).collect()
    };
    let expected: BTreeSet<Access> = GROUP_ACCESS.iter().map(in_words).collect();
    // A watch is logged when it ends, which is just after the scheduler has ended.
    within_patience(|| of_groups() == expected);
    assert_eq!(of_groups(), expected, "left: done by the audit log, right: tests/support/access.rs");
    let denied: Vec<Request> = requests(plane, &user).into_iter().filter(Request::is_denied).collect();
    assert!(denied.is_empty(), "{denied:#?}");
}

#[test]
fn every_permission_for_groups_is_needed() {
    if assets_or_skip().is_none() {
        return;
    }
    let plane = &start();
    for (i, missing) in GROUP_ACCESS.iter().map(in_words).enumerate() {
        let name = format!("without-{i}");
        let permissions = all_permissions();
        let others = permissions.iter().filter(|access| **access != missing);
        let (_scheduler, user) = start_with_group(plane, &name, others);
        let refused = || requests(plane, &user).into_iter().filter(Request::is_denied);
        within_patience(|| refused().any(|request| request.access == missing));
        let refused: BTreeSet<Access> = refused().map(|request| request.access).collect();
        assert_eq!(refused, BTreeSet::from([missing]), "{name}");
    }
}
