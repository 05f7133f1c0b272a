//! Every rule is needed: without it, the API server rejects a request.

use serde_json::{Value, json};
use supercargo_controlplane::{ControlPlane, Method, assets_or_skip};

use super::audit::requests_of;
use super::cluster::{
    apply, cluster_or_skip, create_namespace, delete, eventually, kubeconfig_of, post, start, user_name,
    within_patience,
};
use super::live::{LEASES, NODES, break_bindings, lease, node, pod, pods};
use super::manifests;
use super::process::Scheduler;
use super::rules::{Access, allowed, allowed_for_scheduling, is_seen};
use super::work::{claim_with, create_class, create_priority, create_volume, device_with};

/// The priority of preemption victims.
const IMPORTANT: &str = "important";

/// Creates an account with all permissions of the role except one.
fn account_without(plane: &ControlPlane, name: &str, missing: &Access) -> Value {
    let allowed = allowed(&manifests::object("ClusterRole"));
    account_with(plane, name, allowed.iter().filter(|access| *access != missing))
}

/// Creates an account with these permissions.
pub(super) fn account_with<'a>(
    plane: &ControlPlane,
    name: &str,
    permissions: impl Iterator<Item = &'a Access>,
) -> Value {
    let mut account = manifests::object("ServiceAccount");
    let mut role = manifests::object("ClusterRole");
    let mut binding = manifests::object("ClusterRoleBinding");
    let rule = |(group, resource, verb): &Access| json!({"apiGroups": [group], "resources": [resource], "verbs": [verb]});
    role["rules"] = permissions.map(rule).collect();
    for object in [&mut account, &mut role, &mut binding] {
        object["metadata"]["name"] = json!(name);
    }
    binding["roleRef"]["name"] = json!(name);
    binding["subjects"][0]["name"] = json!(name);
    for object in [&account, &role, &binding] {
        apply(plane, object);
    }
    account
}

/// Makes the scheduler send every kind of request.
fn give_it_work(plane: &ControlPlane, scheduler: &Scheduler, name: &str) {
    let ours = |pod_name: &str, cpu: &str| {
        let mut pod = pod(pod_name, cpu);
        pod["spec"]["schedulerName"] = json!(name);
        pod
    };
    let mut big = ours("too-big", "100");
    big["spec"]["nodeSelector"] = json!({"chosen": "true"});
    post(plane, &pods(name), &big);
    // The third failure repeats the event of the second, as in the live test.
    for failures in 1..=3 {
        let failed = || scheduler.count("unable to schedule: 0/2 nodes are available") >= failures;
        eventually("it fails, or is not allowed to start", || {
            (failed() || scheduler.count("failed to list or watch") > 0).then_some(())
        });
        if !failed() {
            return;
        }
        delete(plane, &format!("{NODES}/chosen"));
        post(plane, NODES, &node("chosen", true));
    }
    post(plane, &pods(name), &ours("fits", "10m"));
    let broken = format!("{name}-broken");
    create_namespace(plane, &broken);
    break_bindings(plane, &broken);
    device_with(plane, &broken, &format!("{broken}.example.com"), ours("doubtful", "10m"));
    // No controller completes these, but it is enough that the first request is rejected.
    let (there, made) = (format!("{name}-there"), format!("{name}-made"));
    create_class(plane, &there, "kubernetes.io/no-provisioner");
    create_volume(plane, &there, &there);
    claim_with(plane, name, &there, ours("static", "10m"));
    create_class(plane, &made, "example.com/none");
    claim_with(plane, name, &made, ours("dynamic", "10m"));
    // A separate node, so that leftover pods do not count elsewhere.
    let mut small = node(name, false);
    small["metadata"]["labels"] = json!({"chosen": name});
    post(plane, NODES, &small);
    let mut victim = ours("victim", "3");
    victim["spec"]["nodeName"] = json!(name);
    post(plane, &pods(name), &victim);
    let mut important = ours("important", "3");
    important["spec"]["priorityClassName"] = json!(IMPORTANT);
    important["spec"]["nodeSelector"] = json!({"chosen": name});
    post(plane, &pods(name), &important);
}

#[test]
fn every_cluster_role_rule_is_needed() {
    if assets_or_skip().is_none() {
        return;
    }
    let plane = &start().unwrap();
    post(plane, NODES, &node("other", false));
    post(plane, NODES, &node("chosen", true));
    create_priority(plane, IMPORTANT);
    let rules = allowed_for_scheduling(&manifests::object("ClusterRole"));
    for (i, missing) in rules.iter().filter(|access| is_seen(access)).enumerate() {
        let name = format!("without-{i}");
        let account = account_without(plane, &name, missing);
        create_namespace(plane, &name);
        let config = manifests::config_of_one(&name);
        let scheduler = Scheduler::start(plane, &config, &kubeconfig_of(plane, &account));
        give_it_work(plane, &scheduler, &name);
        let refused = || {
            requests_of(plane, &user_name(&account))
                .into_iter()
                .filter(|request| request.is_denied() && !request.is_lookup())
        };
        within_patience(|| refused().any(|request| request.access == *missing));
        let refused: Vec<Access> = refused().map(|request| request.access).collect();
        assert!(
            !refused.is_empty() && refused.iter().all(|access| access == missing),
            "{missing:?}: {refused:?}"
        );
        // The pod may be missing if the scheduler did not start.
        let _ = plane.request(Method::Delete, &format!("{NODES}/{name}"), None).unwrap();
    }
}

/// Creates an account with all permissions for the lease of its name except one.
fn candidate_without(plane: &ControlPlane, name: &str, missing: &Access) -> Value {
    let account = account_without(plane, name, missing);
    let mut role = manifests::object("Role");
    role["metadata"]["name"] = json!(name);
    let rule = |(group, resource, verb): &Access| {
        let mut rule = json!({"apiGroups": [group], "resources": [resource], "verbs": [verb]});
        if verb != "create" {
            rule["resourceNames"] = json!([name]);
        }
        rule
    };
    role["rules"] = allowed(&role).iter().filter(|access| *access != missing).map(rule).collect();
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": role["metadata"],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": account["metadata"]["namespace"]}],
    });
    for object in [&role, &binding] {
        apply(plane, object);
    }
    account
}

#[test]
fn every_lease_rule_is_needed() {
    let Some(plane) = cluster_or_skip() else { return };
    for (i, missing) in allowed(&manifests::object("Role")).iter().enumerate() {
        let name = format!("candidate-{i}");
        let account = candidate_without(plane, &name, missing);
        // Creating needs an absent lease; getting and updating need an existing one.
        match &*missing.2 {
            "create" => {}
            "update" => drop(post(plane, LEASES, &lease(&name, "", 1))),
            _ => drop(post(plane, LEASES, &lease(&name, "somebody", 3600))),
        }
        let config =
            manifests::config().replace("schedulerName: supercargo", &format!("schedulerName: {name}"));
        let config = format!("{config}leaderElection: {{resourceName: {name}}}\n");
        let _scheduler = Scheduler::start(plane, &config, &kubeconfig_of(plane, &account));
        let refused = || {
            requests_of(plane, &user_name(&account))
                .into_iter()
                .filter(|request| request.is_denied() && !request.is_lookup())
        };
        within_patience(|| refused().next().is_some());
        let refused: Vec<Access> = refused().map(|request| request.access).collect();
        assert!(
            !refused.is_empty() && refused.iter().all(|access| access == missing),
            "{missing:?}: {refused:?}"
        );
    }
}
