//! HTTP extenders: supercargo and kube-scheduler send the same requests and reach the same results.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use supercargo_controlplane::{ControlPlane, SchedulerOptions};

use crate::support::{
    Cluster, Extender, Supercargo, eventually, name_of, node, node_of, output, own_plane, pod, segment,
};

const NAMESPACE: &str = "e2e-extenders";
const NODES: [&str; 3] = ["n1", "n2", "n3"];
/// Extended resources that no node has and only extenders manage.
const GPU: &str = "example.com/gpu";
const NAMED: &str = "example.com/named";
/// The timeout of a call.
const TIMEOUT: Duration = Duration::from_secs(4);

/// An extender whose answer depends on the pod's name. It binds as admin.
fn extender(plane: &ControlPlane) -> Extender {
    let cluster = Arc::new(Cluster::of(plane));
    Extender::start(move |verb, body| {
        let name = body["Pod"]["metadata"]["name"].as_str().or(body["PodName"].as_str()).unwrap();
        let wish = name.split_once('-').unwrap().1;
        let keep = |names: &[&str]| match body["Nodes"]["items"].as_array() {
            Some(nodes) => {
                let kept =
                    nodes.iter().filter(|node| names.contains(&node["metadata"]["name"].as_str().unwrap()));
                json!({ "Nodes": { "items": kept.collect::<Vec<_>>() } })
            }
            // Field names in another case than Go's, which its decoder accepts.
            None => json!({ "nodenames": names }),
        };
        let answer = match (verb, wish) {
            ("filter", "picky") => {
                let mut answer = keep(&["n2"]);
                answer["FailedNodes"] = json!({ "n1": "not mine", "n3": "not mine" });
                answer
            }
            ("filter", "nowhere") => json!({
                "FailedNodes": { "n1": "full", "n2": "ignored: it is in both" },
                "FailedAndUnresolvableNodes": { "n2": "never", "n3": "never" },
            }),
            ("filter", "angry") => json!({ "Error": "no pods today" }),
            ("filter", "broken") => return (500, json!({})),
            ("filter", "slow") => {
                // Longer than the timeout with a margin for a busy machine.
                thread::sleep(TIMEOUT + Duration::from_secs(10));
                keep(&NODES)
            }
            ("names", "named") => keep(&["n3"]),
            ("names", "misnamed") => keep(&["n3", "n9"]),
            ("filter" | "names", _) => keep(&NODES),
            ("prioritize", "rated") => json!([{ "Host": "n3", "Score": 10 }, { "Host": "n9", "Score": 10 }]),
            ("prioritize", "unrated") => return (404, json!({})),
            ("prioritize", _) => json!([]),
            ("bind", "unbindable") => json!({ "Error": "cannot bind it" }),
            ("bind", _) => {
                let binding = json!({
                    "apiVersion": "v1",
                    "kind": "Binding",
                    "metadata": {
                        "name": name,
                        "namespace": body["PodNamespace"],
                        "uid": body["PodUID"],
                        "annotations": { "example.com/bound-by": "extender" },
                    },
                    "target": { "kind": "Node", "name": body["Node"] },
                });
                match cluster.try_create(&binding) {
                    Ok(_) => json!({}),
                    Err((_, message)) => json!({ "Error": message }),
                }
            }
            other => panic!("{other:?}"),
        };
        (200, answer)
    })
}

/// Four extenders without preemption: an unreachable one that is ignorable, one with whole nodes,
/// one with node names, and one that binds.
fn config(scheduler_name: &str, url: &str) -> Value {
    let ignored = |name: &str| json!([{ "name": name, "ignoredByScheduler": true }]);
    json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "extenders": [
            { "urlPrefix": "http://127.0.0.1:1", "filterVerb": "filter", "ignorable": true },
            {
                "urlPrefix": format!("{url}/"),
                "filterVerb": "filter",
                "prioritizeVerb": "prioritize",
                "weight": 50,
                "httpTimeout": format!("{}s", TIMEOUT.as_secs()),
            },
            {
                "urlPrefix": url,
                "filterVerb": "names",
                "nodeCacheCapable": true,
                "managedResources": ignored(NAMED),
            },
            { "urlPrefix": url, "bindVerb": "bind", "managedResources": ignored(GPU) },
        ],
        "profiles": [{
            "schedulerName": scheduler_name,
            "plugins": { "postFilter": { "disabled": [{ "name": "*" }] } },
        }],
    })
}

/// The pods, by the behaviour that their names request and by their extended resource.
const WISHES: [(&str, Option<&str>); 11] = [
    ("picky", None),
    ("nowhere", None),
    ("angry", None),
    ("broken", None),
    ("slow", None),
    ("rated", None),
    ("unrated", None),
    ("named", Some(NAMED)),
    ("misnamed", Some(NAMED)),
    ("bindable", Some(GPU)),
    ("unbindable", Some(GPU)),
];

/// The node of a pod, or its failure message, once either exists.
fn outcome(cluster: &Cluster, name: &str) -> String {
    let probe = || {
        let pod = cluster.pod(NAMESPACE, name);
        if let Some(node) = node_of(&pod) {
            return Some(format!("on {node}"));
        }
        let conditions = pod["status"]["conditions"].as_array()?;
        let condition = conditions.iter().find(|condition| condition["type"] == "PodScheduled")?;
        Some(format!("{}: {}", condition["reason"].as_str()?, condition["message"].as_str()?))
    };
    let state = || cluster.pod(NAMESPACE, name).to_string();
    eventually(&format!("{name} has a node or none"), Duration::from_secs(30), probe, state)
}

/// The result of every pod in order, without the pod's name.
fn outcomes(cluster: &Cluster, scheduler_name: &str) -> Vec<String> {
    let one = |(wish, resource): &(&str, Option<&str>)| {
        let name = format!("{scheduler_name}-{wish}");
        let mut pod = pod(&name).within(NAMESPACE).by(scheduler_name).asking("cpu", "100m");
        if let Some(resource) = resource {
            pod = pod.asking(resource, "1");
        }
        cluster.create(&pod.build());
        let outcome = outcome(cluster, &name);
        cluster.delete_pod(NAMESPACE, &name);
        // The choice among equal nodes is random.
        let outcome = if ["unrated", "bindable"].contains(wish) { &outcome[..4] } else { &outcome };
        format!("{wish}: {outcome}")
    };
    WISHES.iter().map(one).collect()
}

fn keys(value: &Value) -> BTreeSet<&str> {
    value.as_object().unwrap_or_else(|| panic!("{value}")).keys().map(String::as_str).collect()
}

/// The parts of a request that are equal for both schedulers.
fn sent(extender: &Extender, verb: &str, scheduler_name: &str, wish: &str) -> String {
    let name = format!("{scheduler_name}-{wish}");
    let is_about = |body: &Value| body["Pod"]["metadata"]["name"] == *name || body["PodName"] == *name;
    let mut body =
        extender.calls(verb).into_iter().find(is_about).unwrap_or_else(|| panic!("no {verb} of {name}"));
    if verb == "bind" {
        return format!(
            "{:?} {} {}",
            keys(&body),
            body["PodNamespace"],
            body["PodUID"].as_str().unwrap().len()
        );
    }
    if let Some(nodes) = body["Nodes"]["items"].as_array_mut() {
        nodes.sort_by_key(|node| node["metadata"]["name"].to_string());
    }
    if let Some(names) = body["NodeNames"].as_array_mut() {
        names.sort_by_key(Value::to_string);
    }
    let mut spec = body["Pod"]["spec"].take();
    spec["schedulerName"] = json!(null);
    // The service account's token volume has a random name.
    spec["volumes"] = json!(null);
    spec["containers"][0]["volumeMounts"] = json!(null);
    format!(
        "{:?}\n{:?}\n{:?}\n{:?}\n{spec}\n{}\n{}",
        keys(&body),
        keys(&body["Pod"]),
        keys(&body["Pod"]["metadata"]),
        keys(&body["Pod"]["status"]),
        body["Nodes"],
        body["NodeNames"]
    )
}

#[test]
fn extenders_are_called_as_by_kube_scheduler() {
    let Some(plane) = own_plane() else { return };
    let cluster = Cluster::of(&plane);
    cluster.namespace(NAMESPACE);
    for name in NODES {
        cluster.create(&node(name, &[], &[("cpu", "4"), ("memory", "4Gi")]));
    }
    let extender = extender(&plane);
    let (ours, theirs) = ("supercargo", "upstream");

    let mut upstream = config(theirs, &extender.url());
    upstream["clientConnection"] = json!({ "kubeconfig": "{kubeconfig}" });
    let options = SchedulerOptions { config_yaml: Some(upstream.to_string()), ..SchedulerOptions::default() };
    let upstream = plane.start_kube_scheduler(&options).unwrap();
    let expected = outcomes(&cluster, theirs);
    drop(upstream);
    let connections = extender.connections();

    let folder = tempfile::tempdir().unwrap();
    let (record, file) = (folder.path().join("record"), folder.path().join("config.yaml"));
    let config = config(ours, &extender.url()).to_string();
    std::fs::write(&file, &config).unwrap();
    let kubeconfig = plane.kubeconfig("system:kube-scheduler").unwrap();
    let supercargo = Supercargo::start(&kubeconfig, Some(&config), &["--record", record.to_str().unwrap()]);
    supercargo.wait_until_scheduling();
    assert_eq!(outcomes(&cluster, ours), expected);
    supercargo.wait_for_line(&["Skipping extender", "127.0.0.1:1", "connection refused"]);
    supercargo.wait_for_line(&["No score given by this extender", "code 404"]);
    supercargo.stop();

    assert_eq!(expected[1], "nowhere: Unschedulable: 0/3 nodes are available: 1 full, 2 never.");
    assert_eq!(expected[5], "rated: on n3");
    assert_eq!(expected[10], "unbindable: SchedulerError: cannot bind it");
    for (verb, wish) in
        [("filter", "picky"), ("prioritize", "rated"), ("names", "named"), ("bind", "bindable")]
    {
        assert_eq!(sent(&extender, verb, ours, wish), sent(&extender, verb, theirs, wish), "{verb} {wish}");
    }
    // A connection is reused, except after a timeout.
    assert!(
        extender.connections() - connections <= 8,
        "{} connections",
        extender.connections() - connections
    );

    // The record has the extenders' answers, so a replay calls none.
    drop(extender);
    let path = |path: &std::path::Path| path.display().to_string();
    let replayed = output(&["replay", &path(&segment(folder.path())), "--config", &path(&file)]);
    assert!(replayed.status.success(), "{}", String::from_utf8_lossy(&replayed.stderr));
}

const PREEMPTION: &str = "e2e-extended-preemption";
/// The preemptors, and their victims in order.
const CLASSES: [(&str, i32); 4] = [("important", 1000), ("least", 1), ("less", 2), ("little", 3)];

/// The UIDs of the victims in a request, by node.
fn victims(body: &Value) -> BTreeMap<&str, Vec<Value>> {
    let uid = |victim: &Value| match &victim["metadata"]["uid"] {
        Value::Null => victim["UID"].clone(),
        uid => uid.clone(),
    };
    let asked = body["NodeNameToVictims"].as_object().or(body["NodeNameToMetaVictims"].as_object());
    let asked = asked.unwrap_or_else(|| panic!("nobody to preempt: {body}"));
    let uids = |victims: &Value| victims["Pods"].as_array().unwrap().iter().map(uid).collect();
    asked.iter().map(|(node, victims)| (node.as_str(), uids(victims))).collect()
}

/// The UID of a whole victim.
fn uid_of(body: &Value, node: &str, pod: &str) -> Value {
    let pods = body["NodeNameToVictims"][node]["Pods"].as_array().unwrap();
    pods.iter().find(|victim| name_of(victim) == pod).unwrap()["metadata"]["uid"].clone()
}

/// An extender whose preemption answer depends on the pod's name.
fn preemption_extender() -> Extender {
    Extender::start(|verb, body| {
        let name = body["Pod"]["metadata"]["name"].as_str().unwrap();
        let wish = name.split_once('-').unwrap().1;
        let asked = victims(body);
        let of = |uids: &[Value], violations: i64| {
            let pods: Vec<Value> = uids.iter().map(|uid| json!({ "UID": uid })).collect();
            json!({ "Pods": pods, "NumPDBViolations": violations })
        };
        let all = || asked.iter().map(|(node, uids)| ((*node).to_owned(), of(uids, 0))).collect();
        let mut kept: BTreeMap<String, Value> = all();
        match (verb, wish) {
            ("preempt", "last") => kept.retain(|node, _| node == "n3"),
            ("preempt", "one") => kept = [("n2".to_owned(), of(&[uid_of(body, "n2", "n2-1")], 0))].into(),
            ("preempt", "budgeted") => drop(kept.insert("n1".to_owned(), of(&asked["n1"], 1))),
            ("preempt", "nowhere") => kept.clear(),
            ("preempt", "nobody") => kept = [("n2".to_owned(), of(&[], 0))].into(),
            ("preempt", "stranger") => kept = [("n2".to_owned(), of(&[json!("nobody")], 0))].into(),
            ("preempt", "elsewhere") => kept = [("n9".to_owned(), of(&asked["n2"], 0))].into(),
            ("preempt", "broken") => return (500, json!({})),
            // The victims that the extender before has left.
            ("preempt-names", "chained") => kept.retain(|node, _| node == "n2"),
            ("preempt", "chained") => kept.retain(|node, _| node != "n1"),
            ("preempt" | "preempt-names", _) => {}
            other => panic!("{other:?}"),
        }
        (200, json!({ "NodeNameToMetaVictims": kept }))
    })
}

/// Three extenders: one with whole pods, one with UIDs that is interested in some pods only, and an
/// unreachable one that is ignorable.
fn preemption_config(scheduler_name: &str, url: &str) -> Value {
    json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "extenders": [
            { "urlPrefix": "http://127.0.0.1:1", "preemptVerb": "preempt", "ignorable": true },
            { "urlPrefix": url, "preemptVerb": "preempt" },
            {
                "urlPrefix": url,
                "preemptVerb": "preempt-names",
                "nodeCacheCapable": true,
                "managedResources": [{ "name": NAMED, "ignoredByScheduler": true }],
            },
        ],
        // Its reason appears in the pod's message beside the others.
        "profiles": [{
            "schedulerName": scheduler_name,
            "plugins": { "multiPoint": { "disabled": [{ "name": "DynamicResources" }] } },
        }],
    })
}

/// The preemptors by name, whether the extender with UIDs is called, and the number of victims.
const PREEMPTIONS: [(&str, bool, usize); 11] = [
    ("agreed", false, 2),
    ("last", false, 2),
    ("one", false, 1),
    ("budgeted", false, 2),
    ("nowhere", false, 0),
    ("nobody", false, 0),
    ("stranger", false, 0),
    ("elsewhere", false, 0),
    ("broken", false, 0),
    ("known", true, 2),
    ("chained", true, 2),
];

/// Fills the nodes with victims and lets the scheduler preempt for a pod. Returns its node and
/// victims, or the failure message.
fn preempted(cluster: &Cluster, scheduler_name: &str, (wish, named, go): (&str, bool, usize)) -> String {
    for (on, (class, _)) in NODES.iter().zip(&CLASSES[1..]) {
        for number in 1..=2 {
            let pod = pod(&format!("{on}-{number}")).within(PREEMPTION).asking("cpu", "2");
            let pod = pod.spec("nodeName", json!(on)).spec("priorityClassName", json!(class));
            cluster.create(&pod.build());
        }
    }
    let name = format!("{scheduler_name}-{wish}");
    let mut preemptor = pod(&name).within(PREEMPTION).by(scheduler_name).asking("cpu", "4");
    if named {
        preemptor = preemptor.asking(NAMED, "1");
    }
    cluster.create(&preemptor.spec("priorityClassName", json!(CLASSES[0].0)).build());
    let going = || -> Vec<String> {
        let pods = cluster.pods(PREEMPTION).into_iter();
        let mut going: Vec<String> = pods
            .filter(|pod| pod["metadata"]["deletionTimestamp"].is_string())
            .map(|pod| name_of(&pod).to_owned())
            .collect();
        going.sort();
        going
    };
    let probe = || {
        let pod = cluster.pod(PREEMPTION, &name);
        let conditions = pod["status"]["conditions"].as_array()?;
        let condition = conditions.iter().find(|condition| condition["type"] == "PodScheduled")?;
        let going = going();
        match pod["status"]["nominatedNodeName"].as_str() {
            // A retry while they terminate has another message.
            Some(node) => (going.len() >= go).then(|| format!("to {node}")),
            None => Some(format!("{}: {}", condition["reason"].as_str()?, condition["message"].as_str()?)),
        }
    };
    let state = || format!("{} {:?}", cluster.pod(PREEMPTION, &name), going());
    let outcome = eventually(&format!("{name} preempts or not"), Duration::from_secs(30), probe, state);
    let gone = going();
    cluster.delete_pod(PREEMPTION, &name);
    for pod in cluster.pods(PREEMPTION) {
        cluster.delete_pod(PREEMPTION, name_of(&pod));
    }
    format!("{wish}: {outcome}, and {gone:?} go")
}

/// The first preemption request for a pod, with only the parts that are equal for both schedulers.
fn asked(extender: &Extender, verb: &str, scheduler_name: &str, wish: &str) -> String {
    let name = format!("{scheduler_name}-{wish}");
    let calls = extender.calls(verb);
    let body = calls.iter().find(|body| body["Pod"]["metadata"]["name"] == *name);
    let body = body.unwrap_or_else(|| panic!("no {verb} of {name}"));
    let by_node = body["NodeNameToVictims"].as_object().or(body["NodeNameToMetaVictims"].as_object());
    let of_node = |(node, victims): (&String, &Value)| {
        let pods = victims["Pods"].as_array().unwrap();
        let mut names: Vec<&str> = pods.iter().map(name_of).collect();
        names.sort_unstable();
        let (of_node, of_pod) = (keys(victims), keys(&pods[0]));
        format!("{node} {of_node:?} {} {of_pod:?} {names:?}", victims["NumPDBViolations"])
    };
    let by_node: Vec<String> = by_node.unwrap().iter().map(of_node).collect();
    format!("{:?}\n{:?}\n{}", keys(body), keys(&body["Pod"]), by_node.join("\n"))
}

#[test]
fn extenders_in_preemption_match_kube_scheduler() {
    let Some(plane) = own_plane() else { return };
    let cluster = Cluster::of(&plane);
    cluster.namespace(PREEMPTION);
    for (name, value) in CLASSES {
        cluster.create(&json!({
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": { "name": name },
            "value": value,
        }));
    }
    for name in NODES {
        cluster.create(&node(name, &[], &[("cpu", "4"), ("memory", "4Gi")]));
    }
    let extender = preemption_extender();
    let (ours, theirs) = ("supercargo", "upstream");
    let all = |scheduler_name| PREEMPTIONS.map(|wish| preempted(&cluster, scheduler_name, wish));

    let mut upstream = preemption_config(theirs, &extender.url());
    upstream["clientConnection"] = json!({ "kubeconfig": "{kubeconfig}" });
    let options = SchedulerOptions { config_yaml: Some(upstream.to_string()), ..SchedulerOptions::default() };
    let upstream = plane.start_kube_scheduler(&options).unwrap();
    let expected = all(theirs);
    drop(upstream);

    let config = preemption_config(ours, &extender.url()).to_string();
    let kubeconfig = plane.kubeconfig("system:kube-scheduler").unwrap();
    let supercargo = Supercargo::start(&kubeconfig, Some(&config), &[]);
    supercargo.wait_until_scheduling();
    assert_eq!(all(ours), expected);
    supercargo.stop();

    assert_eq!(expected[0], "agreed: to n1, and [\"n1-1\", \"n1-2\"] go");
    assert_eq!(expected[1], "last: to n3, and [\"n3-1\", \"n3-2\"] go");
    assert_eq!(expected[2], "one: to n2, and [\"n2-1\"] go");
    assert_eq!(expected[3], "budgeted: to n2, and [\"n2-1\", \"n2-2\"] go");
    assert_eq!(expected[10], "chained: to n2, and [\"n2-1\", \"n2-2\"] go");
    for (verb, wish) in [("preempt", "agreed"), ("preempt", "chained"), ("preempt-names", "chained")] {
        assert_eq!(asked(&extender, verb, ours, wish), asked(&extender, verb, theirs, wish), "{verb} {wish}");
    }
}
