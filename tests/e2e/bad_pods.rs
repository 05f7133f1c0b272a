//! Pods that a real API server accepts and that are expensive or invalid for a scheduler. It
//! reports the problem and continues.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use supercargo_controlplane::shared_or_skip;

use crate::support::{Cluster, Supercargo, config, node, pod};

/// The time limit for a small pod right after an expensive one, on busy machines and in debug
/// builds.
const STALL: Duration = Duration::from_secs(10);

/// Creates a small pod and returns the time until it is bound.
fn time_to_bind(cluster: &Cluster, ns: &str, name: &str, label: (&str, &str)) -> Duration {
    let created = Instant::now();
    cluster.create(&pod(name).within(ns).by(ns).on(label).build());
    cluster.bound_node(ns, name);
    created.elapsed()
}

/// Creates an expensive pod and asserts that it hardly delays another.
fn create_and_time(cluster: &Cluster, monster: &Value, label: (&str, &str)) {
    let (ns, name) =
        (monster["metadata"]["namespace"].as_str().unwrap(), monster["metadata"]["name"].as_str().unwrap());
    let size = monster.to_string().len();
    cluster.create(monster);
    let stall = time_to_bind(cluster, ns, &format!("after-{name}"), label);
    eprintln!("bad pods: a pod after {name} ({size} bytes) was bound within {} ms", stall.as_millis());
    assert!(stall < STALL, "a pod after {name} waited {stall:?}");
}

fn terms(count: usize, term: impl Fn(usize) -> Value) -> Value {
    (0..count).map(term).collect()
}

fn expression(key: &str, operator: &str, value: &str) -> Value {
    json!({ "matchExpressions": [{ "key": key, "operator": operator, "values": [value] }] })
}

#[test]
fn unparsable_selector_sets_condition_and_blocks_no_other() {
    let Some(plane) = shared_or_skip() else { return };
    let cluster = Cluster::of(plane);
    let (ns, label) = ("e2e-selectors", ("e2e", "selectors"));
    cluster.namespace(ns);
    // Preferences matter only with several feasible nodes.
    for name in ["selectors-1", "selectors-2"] {
        cluster.create(&node(name, &[label, ("size", "7")], &[("cpu", "1")]));
    }
    let supercargo = Supercargo::on(plane, Some(&config(&[ns])));
    let mine = |name: &str, affinity: Value| {
        pod(name).within(ns).by(ns).on(label).spec("affinity", json!({ "nodeAffinity": affinity })).build()
    };
    let required = |terms: Value| json!({ "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": terms } });
    let preferred = |terms: Value| json!({ "preferredDuringSchedulingIgnoredDuringExecution": terms });
    let nonsense = || expression("size", "Gt", "abc");

    cluster.create(&mine("required", required(json!([nonsense()]))));
    let condition = cluster.condition(ns, "required", "Unschedulable");
    let message = condition["message"].as_str().unwrap();
    assert!(message.contains("node(s) didn't match Pod's node affinity/selector"), "{message}");

    // Valid terms count beside an invalid one.
    cluster.create(&mine("alternative", required(json!([nonsense(), expression("size", "Gt", "5")]))));
    cluster.bound_node(ns, "alternative");

    let many = terms(
        40,
        |index| json!({ "weight": 1, "preference": expression(&format!("key-{index}"), "Gt", "abc") }),
    );
    cluster.create(&mine("preferred", preferred(many)));
    let condition = cluster.condition(ns, "preferred", "SchedulerError");
    let message = condition["message"].as_str().unwrap();
    assert!(message.contains("[39]") && message.contains("abc") && message.len() > 1024, "{message}");
    let note = supercargo.eventually("the event", Duration::from_secs(20), || {
        Some(cluster.events(ns, "preferred").first()?["note"].as_str()?.to_owned())
    });
    assert_eq!((note.len(), &note[1020..]), (1024, " ..."));
    assert_eq!(note[..1020], message[..1020]);

    assert!(time_to_bind(&cluster, ns, "good", label) < STALL);
    supercargo.stop();
}

#[test]
fn pod_of_1_5_mb_is_bound_and_delays_no_other() {
    let Some(plane) = shared_or_skip() else { return };
    let cluster = Cluster::of(plane);
    let (ns, label) = ("e2e-large", ("e2e", "large"));
    cluster.namespace(ns);
    cluster.create(&node("large-1", &[label], &[("cpu", "1")]));
    let supercargo = Supercargo::on(plane, Some(&config(&[ns])));
    time_to_bind(&cluster, ns, "before", label);
    // etcd accepts requests up to 1.5 MiB.
    let text = "x".repeat(1000);
    let environment = (0..1450).map(|index| json!({ "name": format!("VARIABLE_{index}"), "value": text }));
    let environment: Value = environment.collect();
    let containers = json!([{ "name": "main", "image": "none", "env": environment }]);
    let monster = pod("monster").within(ns).by(ns).on(label).spec("containers", containers).build();
    assert!(monster.to_string().len() > 1_450_000);
    create_and_time(&cluster, &monster, label);
    assert_eq!(cluster.bound_node(ns, "monster"), "large-1");
    supercargo.stop();
}

#[test]
fn pods_with_10_000_affinity_terms_delay_no_other() {
    let Some(plane) = shared_or_skip() else { return };
    let cluster = Cluster::of(plane);
    let (ns, label) = ("e2e-terms", ("e2e", "terms"));
    cluster.namespace(ns);
    for index in 0..20 {
        let name = format!("terms-{index}");
        cluster.create(&node(&name, &[label, ("number", &index.to_string())], &[("cpu", "1")]));
    }
    let supercargo = Supercargo::on(plane, Some(&config(&[ns])));
    time_to_bind(&cluster, ns, "before", label);
    let mine = |name: &str, affinity: Value| {
        pod(name).within(ns).by(ns).on(label).spec("affinity", affinity).build()
    };
    let required = |terms: Value| json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": terms } } });

    let nowhere = terms(10_000, |index| expression("number", "In", &format!("{}", index + 100)));
    create_and_time(&cluster, &mine("nowhere", required(nowhere)), label);
    let condition = cluster.condition(ns, "nowhere", "Unschedulable");
    let message = condition["message"].as_str().unwrap();
    assert!(message.contains("node(s) didn't match Pod's node affinity/selector"), "{message}");

    let somewhere = terms(10_000, |index| expression("number", "In", &format!("{}", index + 7)));
    create_and_time(&cluster, &mine("somewhere", required(somewhere)), label);
    let number: u32 = cluster.bound_node(ns, "somewhere").trim_start_matches("terms-").parse().unwrap();
    assert!(number >= 7);

    let preferred = terms(
        10_000,
        |index| json!({ "weight": 1, "preference": expression("number", "In", &format!("{index}")) }),
    );
    let preferred =
        json!({ "nodeAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": preferred } });
    create_and_time(&cluster, &mine("preferring", preferred), label);
    cluster.bound_node(ns, "preferring");

    // Every term is invalid, and the API limits the length of the message.
    let unreadable = terms(
        10_000,
        |index| json!({ "weight": 1, "preference": expression("a", "Gt", &format!("x{index}")) }),
    );
    let unreadable =
        json!({ "nodeAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": unreadable } });
    create_and_time(&cluster, &mine("unreadable", unreadable), label);
    cluster.condition(ns, "unreadable", "SchedulerError");

    let between =
        terms(10_000, |_| json!({ "topologyKey": "zone", "labelSelector": { "matchLabels": { "a": "b" } } }));
    let between = json!({ "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": between } });
    create_and_time(&cluster, &mine("between", between), label);
    cluster.bound_node(ns, "between");
    assert!(!supercargo.log().contains("panicked"));
    supercargo.stop();
}
