//! The program on a real API server with only the permissions of its service account.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use supercargo_controlplane::{ControlPlane, Method};

use super::audit::{Request, requests_of};
use super::cluster::{
    apply, cluster_or_skip, create_namespace, delete, eventually, get, kubeconfig_of, post, send, user_name,
    within_patience,
};
use super::manifests::{self, collection, text};
use super::process::Scheduler;
use super::rules::{Access, allowed, allowed_for_scheduling, is_seen};
use super::work::{claim_with, complete_claim, create_class, create_priority, create_volume, device_with};

pub(super) const NODES: &str = "/api/v1/nodes";
pub(super) const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";

/// A node with 4 CPUs and the label `chosen`.
pub(super) fn node(name: &str, is_chosen: bool) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"chosen": is_chosen.to_string()}},
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}},
    })
}

/// A pod for supercargo.
pub(super) fn pod(name: &str, cpu: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "schedulerName": "supercargo",
            "containers": [{"name": "main", "image": "none", "resources": {"requests": {"cpu": cpu}}}],
        },
    })
}

pub(super) fn pods(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/pods")
}

fn wait_until_bound(plane: &ControlPlane, namespace: &str, name: &str) {
    eventually(&format!("{name} is bound"), || {
        let pod = get(plane, &format!("{}/{name}", pods(namespace)));
        pod["spec"]["nodeName"].is_string().then_some(())
    });
}

/// The events of a pod with a reason.
fn events(plane: &ControlPlane, namespace: &str, pod: &str, reason: &str) -> Vec<Value> {
    let list = get(plane, &format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events"));
    let items = list["items"].as_array().expect("a list has items");
    let matches = |event: &&Value| event["regarding"]["name"] == pod && event["reason"] == reason;
    items.iter().filter(matches).cloned().collect()
}

/// A lease with a holder that does not renew it.
pub(super) fn lease(name: &str, holder: &str, seconds: u32) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": seconds},
    })
}

/// Makes the scheduler wait for a lease to expire, acquire it, renew it, and create it again.
fn have_it_elected(plane: &ControlPlane, scheduler: &Scheduler) {
    let path = format!("{LEASES}/supercargo");
    eventually("it leads", || (scheduler.count("scheduling begins") > 0).then_some(()));
    let lease = get(plane, &path);
    assert_eq!(lease["spec"]["leaseTransitions"], 1, "{lease}");
    delete(plane, &path);
    let made_anew = || plane.request(Method::Get, &path, None).unwrap().status == 200;
    eventually("the lease is there again", || made_anew().then_some(()));
}

/// Binds a pod, which creates a binding and an event.
fn have_a_pod_bound(plane: &ControlPlane, namespace: &str) {
    post(plane, &pods(namespace), &pod("fits", "1"));
    wait_until_bound(plane, namespace, "fits");
    let event = eventually("the event Scheduled", || events(plane, namespace, "fits", "Scheduled").pop());
    let note = text(&event["note"]);
    assert!(note.starts_with(&format!("Successfully assigned {namespace}/fits to ")), "{note}");
}

/// Makes a pod fail until its event repeats, which patches its status, creates an event and patches
/// it.
fn have_a_pod_fail_again_and_again(plane: &ControlPlane, scheduler: &Scheduler, namespace: &str) {
    const FAILED: &str = "unable to schedule: 0/2 nodes are available";
    let mut big = pod("too-big", "100");
    big["spec"]["nodeSelector"] = json!({"chosen": "true"});
    post(plane, &pods(namespace), &big);
    eventually("a first failure", || (scheduler.count(FAILED) >= 1).then_some(()));
    let condition = eventually("the condition PodScheduled", || {
        let pod = get(plane, &format!("{}/too-big", pods(namespace)));
        pod["status"]["conditions"]
            .as_array()?
            .iter()
            .find(|condition| condition["type"] == "PodScheduled")
            .cloned()
    });
    assert_eq!((&condition["status"], &condition["reason"]), (&json!("False"), &json!("Unschedulable")));
    // A new matching node requeues the pod. The message stays the same, so from the second attempt
    // on, neither the condition nor the pod's version changes, and the third failure repeats the
    // second event.
    for failures in 2..=3 {
        delete(plane, &format!("{NODES}/chosen"));
        post(plane, NODES, &node("chosen", true));
        eventually("another failure", || (scheduler.count(FAILED) >= failures).then_some(()));
    }
    eventually("an event FailedScheduling that counts to 2", || {
        let events = events(plane, namespace, "too-big", "FailedScheduling");
        events.into_iter().find(|event| event["series"]["count"] == 2)
    });
    delete(plane, &format!("{}/too-big", pods(namespace)));
}

/// Makes the API server answer 500 to every binding in a namespace. Deleting the object at the
/// returned path ends this.
pub(super) fn break_bindings(plane: &ControlPlane, namespace: &str) -> String {
    const WEBHOOKS: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    // The webhook cannot be reached on port 1, so the API server answers 500.
    let webhook = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": namespace},
        "webhooks": [{
            "name": "nobody.there.example",
            "clientConfig": {"url": "https://127.0.0.1:1/"},
            "failurePolicy": "Fail",
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            "rules": [{
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "operations": ["CREATE"],
                "resources": ["pods/binding"],
            }],
        }],
    });
    post(plane, WEBHOOKS, &webhook);
    let binding = json!({
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "nobody"},
        "target": {"kind": "Node", "name": "nowhere"},
    });
    let path = format!("{}/nobody/binding?dryRun=All", pods(namespace));
    eventually("the webhook is asked", || {
        let answer = plane.request(Method::Post, &path, Some(&binding)).unwrap();
        (answer.status == 500).then_some(())
    });
    format!("{WEBHOOKS}/{namespace}")
}

/// Makes the result of a binding unknown, so that the scheduler reads the pod, and gives its claim
/// back.
fn have_a_binding_of_unknown_fate(plane: &ControlPlane, user: &str, namespace: &str) {
    let webhook = break_bindings(plane, namespace);
    device_with(plane, namespace, "doubtful.example.com", pod("doubtful", "1"));
    let is_read = |request: &Request| request.access.2 == "get" && request.uri.ends_with("/doubtful");
    eventually("the scheduler looks whether the pod is bound", || {
        requests_of(plane, user).into_iter().find(is_read)
    });
    delete(plane, &webhook);
    wait_until_bound(plane, namespace, "doubtful");
}

/// Binds an existing volume, and one that is provisioned for a claim.
fn have_volumes_bound(plane: &ControlPlane, namespace: &str) {
    create_class(plane, "there", "kubernetes.io/no-provisioner");
    create_volume(plane, "ready", "there");
    claim_with(plane, namespace, "there", pod("static", "10m"));
    complete_claim(plane, namespace, "static", "there", Some("ready"));
    wait_until_bound(plane, namespace, "static");
    create_class(plane, "made", "example.com/none");
    claim_with(plane, namespace, "made", pod("dynamic", "10m"));
    complete_claim(plane, namespace, "dynamic", "made", None);
    wait_until_bound(plane, namespace, "dynamic");
}

/// Makes a pod preempt another.
fn have_a_pod_preempted(plane: &ControlPlane, namespace: &str) {
    create_priority(plane, "important");
    let mut small = node("small", false);
    small["metadata"]["labels"] = json!({"chosen": "small"});
    post(plane, NODES, &small);
    let on_small = |name: &str| {
        let mut pod = pod(name, "3");
        pod["spec"]["nodeSelector"] = json!({"chosen": "small"});
        pod
    };
    post(plane, &pods(namespace), &on_small("victim"));
    wait_until_bound(plane, namespace, "victim");
    let mut important = on_small("important");
    important["spec"]["priorityClassName"] = json!("important");
    post(plane, &pods(namespace), &important);
    let victim = format!("{}/victim", pods(namespace));
    eventually("the victim is deleted", || {
        get(plane, &victim)["metadata"]["deletionTimestamp"].is_string().then_some(())
    });
    // No kubelet terminates it.
    let now = json!({"gracePeriodSeconds": 0});
    send(plane, Method::Delete, &victim, Some(&now));
    wait_until_bound(plane, namespace, "important");
}

#[test]
fn service_account_suffices_and_every_rule_is_used() {
    let Some(plane) = cluster_or_skip() else { return };
    let account = manifests::object("ServiceAccount");
    let user = user_name(&account);
    create_namespace(plane, "rules");
    create_namespace(plane, "unknown-fate");
    post(plane, NODES, &node("other", false));
    post(plane, NODES, &node("chosen", true));
    post(plane, LEASES, &lease("supercargo", "predecessor", 5));
    let mut scheduler = Scheduler::start(plane, &manifests::config(), &kubeconfig_of(plane, &account));
    have_it_elected(plane, &scheduler);

    have_a_pod_bound(plane, "rules");
    have_a_pod_fail_again_and_again(plane, &scheduler, "rules");
    have_a_binding_of_unknown_fate(plane, &user, "unknown-fate");
    have_volumes_bound(plane, "rules");
    device_with(plane, "rules", "device.example.com", pod("with-device", "10m"));
    wait_until_bound(plane, "rules", "with-device");
    have_a_pod_preempted(plane, "rules");
    let status = scheduler.terminate();
    assert!(status.success(), "{status}");

    let roles =
        [allowed_for_scheduling(&manifests::object("ClusterRole")), allowed(&manifests::object("Role"))];
    let may: BTreeSet<Access> = roles.into_iter().flatten().collect();
    let requests = || {
        requests_of(plane, &user)
            .into_iter()
            .filter(|request| !request.is_discovery() && !request.is_lookup())
    };
    let done = || -> BTreeSet<Access> {
        requests().filter(Request::is_success).map(|request| request.access).collect()
    };
    // A watch is logged when it ends, which is just after the scheduler has ended.
    let seen: BTreeSet<Access> = may.iter().filter(|access| is_seen(access)).cloned().collect();
    within_patience(|| done().is_superset(&seen));
    let (mut done, mut expected) = (done(), may.clone());
    done.retain(is_seen);
    expected.retain(is_seen);
    assert_eq!(done, expected, "left: done by the audit log, right: allowed by the role");
    let denied: Vec<Request> =
        requests().filter(|request| request.is_denied() || !may.contains(&request.access)).collect();
    assert!(denied.is_empty(), "{denied:#?}");
    // The client logs the 500 of the binding as an error.
    let is_ours = |entry: &Value| !text(&entry["target"]).starts_with("kube_client");
    let complaints: Vec<Value> =
        scheduler.entries().into_iter().filter(|entry| entry["level"] == "ERROR" && is_ours(entry)).collect();
    assert!(complaints.is_empty(), "{complaints:#?}");
}

#[test]
fn without_rules_scheduler_reports_missing_permissions() {
    let Some(plane) = cluster_or_skip() else { return };
    let mut account = manifests::object("ServiceAccount");
    let mut role = manifests::object("ClusterRole");
    let mut binding = manifests::object("ClusterRoleBinding");
    let rules = role["rules"].take();
    role["rules"] = json!([]);
    for object in [&mut account, &mut role, &mut binding] {
        object["metadata"]["name"] = json!("powerless");
    }
    binding["roleRef"]["name"] = json!("powerless");
    binding["subjects"][0]["name"] = json!("powerless");
    for object in [&account, &role, &binding] {
        apply(plane, object);
    }
    // The scheduler must not take pods of other tests after it gets the permission.
    let config = manifests::config_of_one("powerless");
    let scheduler = Scheduler::start(plane, &config, &kubeconfig_of(plane, &account));

    for resource in ["pods", "nodes"] {
        eventually("it says what it may not do", || {
            let error = format!("User \"{}\" cannot list resource \"{resource}\"", user_name(&account));
            let says = |entry: &Value| entry["error"].as_str().is_some_and(|text| text.contains(&error));
            scheduler.entries().into_iter().find(says)
        });
    }
    assert!(!scheduler.has_synced());

    let path = format!("{}/powerless", collection(&role));
    send(plane, Method::Patch, &path, Some(&json!({ "rules": rules })));
    eventually("it starts once it may", || scheduler.has_synced().then_some(()));
}
