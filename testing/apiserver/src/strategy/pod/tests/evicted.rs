//! Eviction and disruption budgets.

use jiff::SignedDuration;

use super::*;

const REFUSED: &str = "Cannot evict pod as it would violate the pod's disruption budget.";

fn pod(name: &str, ready: bool) -> Value {
    let status = if ready { "True" } else { "False" };
    json!({
        "metadata": {"name": name, "namespace": "default", "labels": {"app": "e"}},
        "spec": {"nodeName": "n"},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": status}]},
    })
}

fn budget(name: &str, spec: &Value, status: &Value) -> Value {
    let mut budget = json!({
        "metadata": {"name": name, "namespace": "default", "generation": 1}, "spec": spec, "status": status,
    });
    budget["spec"]["selector"] = json!({"matchLabels": {"app": "e"}});
    budget
}

fn with(budgets: &[Value], pods: &[Value]) -> Objects {
    let objects = budgets
        .iter()
        .fold(Objects::default(), |objects, own| objects.with("policy", "poddisruptionbudgets", own.clone()));
    pods.iter().fold(objects, |objects, own| objects.with("", "pods", own.clone()))
}

fn kept(allowed: i64, current: i64, desired: i64) -> Value {
    json!({
        "observedGeneration": 1, "disruptionsAllowed": allowed, "currentHealthy": current,
        "desiredHealthy": desired, "expectedPods": 1,
    })
}

fn decide(pod: &Value, objects: &Objects) -> std::result::Result<eviction::Eviction, Status> {
    eviction::decide(pod, objects, Timestamp::UNIX_EPOCH)
}

fn refusal(pod: &Value, objects: &Objects) -> (u16, String, String, u32) {
    let status = decide(pod, objects).expect_err("refused");
    let cause = status.details.causes.first();
    let why = cause.map(|cause| format!("{} {}", cause.reason, cause.message)).unwrap_or_default();
    (status.code.as_u16(), status.message, why, status.details.retry_after_seconds)
}

#[test]
fn maintained_budgets_reject_as_recorded() {
    let failed = json!([{
        "type": "DisruptionAllowed", "status": "False", "reason": "SyncFailed", "message": "oops",
    }]);
    let mut failing = kept(0, 1, 1);
    failing["conditions"] = failed;
    let mut behind = kept(1, 2, 1);
    behind["observedGeneration"] = 0.into();
    let table = [
        (behind, "is still being processed by the server.", 10),
        (kept(0, 1, 1), "needs 1 healthy pods and has 1 currently", 0),
        (kept(0, 3, 1), "does not allow evicting pods currently", 0),
        (failing, "does not allow evicting pods currently because it failed sync: oops", 0),
    ];
    for (status, why, seconds) in table {
        let objects = with(&[budget("d", &json!({}), &status)], &[]);
        let expected = format!("DisruptionBudget The disruption budget d {why}");
        assert_eq!(refusal(&pod("p", true), &objects), (429, REFUSED.to_owned(), expected, seconds));
    }
}

#[test]
fn pod_may_have_only_one_budget() {
    let both = ["a", "b"].map(|name| budget(name, &json!({}), &kept(1, 2, 1)));
    let (code, message, ..) = refusal(&pod("p", true), &with(&both, &[]));
    assert_eq!(
        (code, message.as_str()),
        (
            500,
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        )
    );
}

#[test]
fn eviction_takes_from_the_budget() {
    let objects = with(&[budget("d", &json!({}), &kept(1, 2, 1))], &[]);
    let eviction = decide(&pod("p", true), &objects).expect("allowed");
    let status = &eviction.budget.expect("a budget")["status"];
    assert_eq!(status["disruptionsAllowed"], 0);
    assert!(status["disruptedPods"]["p"].is_string());
    assert_eq!(status["conditions"][0]["reason"], "InsufficientPods");
}

#[test]
fn inactive_pods_are_evicted_despite_the_budget() {
    let objects = with(&[budget("d", &json!({}), &kept(0, 1, 1))], &[]);
    for (phase, only_this_version) in [("Pending", true), ("Succeeded", false), ("Failed", false)] {
        let mut pod = pod("p", true);
        pod["status"]["phase"] = phase.into();
        let eviction = decide(&pod, &objects).expect(phase);
        assert_eq!(eviction, eviction::Eviction { budget: None, only_this_version });
    }
    let mut going = pod("p", true);
    going["metadata"]["deletionTimestamp"] = "2020-01-01T00:00:00Z".into();
    assert!(decide(&going, &objects).is_ok());
}

#[test]
fn unready_pods_follow_the_policy_of_the_budget() {
    let decide =
        |spec: Value, status: &Value| decide(&pod("p", false), &with(&[budget("d", &spec, status)], &[]));
    assert!(decide(json!({}), &kept(0, 0, 1)).is_err());
    let always = json!({"unhealthyPodEvictionPolicy": "AlwaysAllow"});
    assert!(decide(always, &kept(0, 0, 1)).expect("allowed").only_this_version);
    assert_eq!(decide(json!({}), &kept(0, 1, 1)).expect("allowed").budget, None);
}

#[test]
fn unmaintained_budget_is_computed_from_the_current_pods() {
    let spec = json!({"minAvailable": 1});
    let mut budget = budget("d", &spec, &json!({}));
    let pods = [pod("a", true), pod("b", true), pod("c", false)];
    let eviction = decide(&pods[0], &with(&[budget.clone()], &pods)).expect("allowed");
    budget = eviction.budget.expect("a budget");
    assert_eq!(budget["status"]["currentHealthy"], 2);
    // The first pod still exists, but counts as disrupted.
    let (_, _, why, _) = refusal(&pods[1], &with(&[budget.clone()], &pods));
    assert_eq!(why, "DisruptionBudget The disruption budget d needs 1 healthy pods and has 1 currently");
    // The pod is gone, and a new one exists.
    let objects = with(&[budget], &[pod("b", true), pod("d", true)]);
    assert!(decide(&pods[1], &objects).is_ok());
}

#[test]
fn evicted_pod_counts_as_disrupted_for_two_minutes() {
    let pods = [pod("a", true), pod("b", true)];
    let budget = budget("d", &json!({"minAvailable": 1}), &json!({}));
    // Neither time is that of the machine.
    let began = Timestamp::UNIX_EPOCH;
    let evicted = eviction::decide(&pods[0], &with(&[budget], &pods), began).expect("allowed");
    let objects = with(&[evicted.budget.expect("a budget")], &pods);
    let is_allowed =
        |seconds| eviction::decide(&pods[1], &objects, began + SignedDuration::from_secs(seconds)).is_ok();
    assert_eq!([0, 120, 121].map(is_allowed), [false, false, true]);
}

#[test]
fn budget_ignores_other_labels_and_namespaces() {
    let budget = budget("d", &json!({"minAvailable": 5}), &json!({}));
    let mut other = pod("p", true);
    other["metadata"]["labels"] = json!({"app": "f"});
    let mut elsewhere = pod("p", true);
    elsewhere["metadata"]["namespace"] = "other".into();
    for pod in [other, elsewhere] {
        assert_eq!(decide(&pod, &with(std::slice::from_ref(&budget), &[])).expect("allowed").budget, None);
    }
}

#[test]
fn percentages_refer_to_the_replicas_of_controllers() {
    let mut pods = [pod("a", true), pod("b", true), pod("c", true)];
    let owner = |kind: &str| json!([{"kind": kind, "apiVersion": "apps/v1", "name": "x", "uid": "u", "controller": true}]);
    for pod in &mut pods {
        pod["metadata"]["ownerReferences"] = owner("ReplicaSet");
    }
    let meta =
        json!({"name": "x", "namespace": "default", "uid": "u", "ownerReferences": owner("Deployment")});
    let objects = Objects::default()
        .with("apps", "replicasets", json!({"metadata": meta, "spec": {"replicas": 3}}))
        .with(
            "apps",
            "deployments",
            json!({"metadata": {"name": "x", "namespace": "default", "uid": "u"}, "spec": {"replicas": 5}}),
        );
    let status = |spec: Value| {
        let status =
            pdb::compute_status(&budget("d", &spec, &json!({})), &pods, &objects, Timestamp::UNIX_EPOCH);
        ["expectedPods", "desiredHealthy", "currentHealthy", "disruptionsAllowed"]
            .map(|field| status[field].as_i64().expect("a number"))
    };
    assert_eq!(status(json!({"minAvailable": "50%"})), [5, 3, 3, 0]);
    assert_eq!(status(json!({"maxUnavailable": "50%"})), [5, 2, 3, 1]);
    assert_eq!(status(json!({"maxUnavailable": 4})), [5, 1, 3, 2]);
    assert_eq!(status(json!({"minAvailable": 2})), [3, 2, 3, 1]);
}

#[test]
fn evicted_pod_has_a_condition() {
    let mut evicted = pod("p", true);
    eviction::mark(&mut evicted, NOW);
    let condition = &evicted["status"]["conditions"][1];
    assert_eq!(
        (&condition["type"], &condition["reason"]),
        (&json!("DisruptionTarget"), &json!("EvictionByEvictionAPI"))
    );
    assert!(eviction::check(&json!({"metadata": {"name": "p"}}), "p").is_ok());
    assert_eq!(eviction::check(&json!({}), "p").expect_err("refused").code.as_u16(), 400);
}
