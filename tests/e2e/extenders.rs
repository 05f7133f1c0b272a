//! HTTP extenders: the same extender is asked by supercargo and by kube-scheduler, and the same comes of it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use supercargo_controlplane::{ControlPlane, SchedulerOptions};

use crate::support::{Cluster, Extender, Supercargo, eventually, node, node_of, output, own_plane, pod};

const NAMESPACE: &str = "e2e-extenders";
const NODES: [&str; 3] = ["n1", "n2", "n3"];
/// Resources that no node has and only extenders know of.
const GPU: &str = "example.com/gpu";
const NAMED: &str = "example.com/named";
/// How long a call may take.
const TIMEOUT: Duration = Duration::from_secs(2);

/// An extender that does what the pod's name asks for. It binds as a cluster's admin.
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
            // In another case than Go's names have: Go's decoder does not mind.
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
                thread::sleep(TIMEOUT + Duration::from_secs(1));
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

/// No preemption, and four extenders: a dead one that may be ignored, one that is sent nodes whole, one by name, and one that binds.
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

/// What pods ask for by name, beside the extended resource that they ask for.
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

/// The node of a pod or what its condition says, once there is one of the two.
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

/// What comes of every wish, one after the other, each with the pod's name left out.
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
        // Which of equal nodes it is, is a matter of chance.
        let outcome = if ["unrated", "bindable"].contains(wish) { &outcome[..4] } else { &outcome };
        format!("{wish}: {outcome}")
    };
    WISHES.iter().map(one).collect()
}

fn keys(value: &Value) -> BTreeSet<&str> {
    value.as_object().unwrap_or_else(|| panic!("{value}")).keys().map(String::as_str).collect()
}

/// What is the same for both schedulers of what one was sent for a wish.
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
    // The service account's token has a random name.
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
fn extenders_are_asked_and_heard_as_kube_scheduler_does() {
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
    supercargo.wait_for_line(&["skipping the extender", "127.0.0.1:1", "connection refused"]);
    supercargo.wait_for_line(&["no score given by this extender", "code 404"]);
    supercargo.stop();

    assert_eq!(expected[1], "nowhere: Unschedulable: 0/3 nodes are available: 1 full, 2 never.");
    assert_eq!(expected[5], "rated: on n3");
    assert_eq!(expected[10], "unbindable: SchedulerError: cannot bind it");
    for (verb, wish) in
        [("filter", "picky"), ("prioritize", "rated"), ("names", "named"), ("bind", "bindable")]
    {
        assert_eq!(sent(&extender, verb, ours, wish), sent(&extender, verb, theirs, wish), "{verb} {wish}");
    }
    // One that is kept is used again, save after a call that took too long.
    assert!(
        extender.connections() - connections <= 8,
        "{} connections",
        extender.connections() - connections
    );

    // What extenders answered is in the record, so that a replay asks none.
    drop(extender);
    let path = |path: &std::path::Path| path.display().to_string();
    let replayed = output(&["replay", &path(&record), "--config", &path(&file)]);
    assert!(replayed.status.success(), "{}", String::from_utf8_lossy(&replayed.stderr));
}
