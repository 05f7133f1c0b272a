//! Pods of groups that come, are refused or fail to bind at a certain point of an attempt:
//! supercargo and kube-scheduler try the same pods in the same order, and report the same.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use supercargo_controlplane::{ControlPlane, Handle, Options, SchedulerOptions, assets_or_skip};

use crate::support::{Cluster, Extender, Supercargo, eventually, node, pod};

/// The user of both schedulers.
const USER: &str = "system:kube-scheduler";
const GATES: &str = "--feature-gates=GenericWorkload=true";
const PATIENCE: Duration = Duration::from_mins(1);
const GATE: &str = "example.com/gate";

/// What happens to a group `g`. Pods whose names begin with `g` are its members.
struct Race {
    name: &'static str,
    /// `None` is for a basic group.
    min_count: Option<u32>,
    pods: &'static [&'static str],
    /// The pods that are created while the extender is first asked about one of the others.
    meanwhile: Option<(&'static str, &'static [&'static str])>,
    /// How often the extender refuses a pod, and how often it fails to bind one.
    refuses: Option<(&'static str, usize)>,
    fails_to_bind: Option<(&'static str, usize)>,
    /// The pods about which the extender is asked, in this order.
    asked: &'static [&'static str],
    /// The number of events in the end.
    events: usize,
}

const QUIET: Race = Race {
    name: "",
    min_count: None,
    pods: &[],
    meanwhile: None,
    refuses: None,
    fails_to_bind: None,
    asked: &[],
    events: 0,
};

const RACES: [Race; 7] = [
    Race {
        name: "member-added-while-in-flight-unschedulable",
        pods: &["g1"],
        meanwhile: Some(("g1", &["g2"])),
        refuses: Some(("g1", 1)),
        asked: &["g1", "g1", "g2"],
        events: 3,
        ..QUIET
    },
    Race {
        name: "member-added-while-in-flight-success",
        pods: &["g1"],
        meanwhile: Some(("g1", &["g2"])),
        asked: &["g1", "g2"],
        events: 2,
        ..QUIET
    },
    // The follower is tried first, but fits only beside the other member.
    Race {
        name: "leftovers-keep-their-turn",
        pods: &["g-follower", "g2"],
        meanwhile: Some(("g2", &["single"])),
        asked: &["g2", "g-follower", "single"],
        events: 4,
        ..QUIET
    },
    Race {
        name: "new-arrivals-lose-their-turn",
        pods: &["g1"],
        meanwhile: Some(("g1", &["single", "g2"])),
        asked: &["g1", "single", "g2"],
        events: 3,
        ..QUIET
    },
    Race {
        name: "one-bind-fails-others-stay",
        min_count: Some(2),
        pods: &["g1", "g2"],
        fails_to_bind: Some(("g1", 1)),
        asked: &["g1", "g2", "g1"],
        events: 3,
        ..QUIET
    },
    Race {
        name: "extender-chooses-for-gang",
        min_count: Some(2),
        pods: &["g-n2", "g-n1"],
        asked: &["g-n2", "g-n1"],
        events: 2,
        ..QUIET
    },
    Race {
        name: "extender-refuses-gang",
        min_count: Some(2),
        pods: &["g1", "g2"],
        refuses: Some(("g2", 1)),
        asked: &["g1", "g2", "g1", "g2"],
        events: 4,
        ..QUIET
    },
];

/// The namespaces in which the extender may answer, and the calls of each pod.
type Shared<T> = Arc<Mutex<T>>;

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

/// An extender that does what the races say, each of which has a namespace of its own. It answers
/// about the pod that a race holds once its namespace is released.
fn extender(plane: &ControlPlane, released: &Shared<Vec<String>>) -> Extender {
    let cluster = Cluster::of(plane);
    let (released, counts) = (Arc::clone(released), Mutex::new(BTreeMap::new()));
    Extender::start(move |verb, body| {
        let metadata = &body["Pod"]["metadata"];
        let (namespace, name) = match verb {
            "filter" => (text(&metadata["namespace"]), text(&metadata["name"])),
            _ => (text(&body["PodNamespace"]), text(&body["PodName"])),
        };
        let race = RACES.iter().find(|race| namespace.ends_with(race.name)).unwrap_or(&ALL_REFUSED);
        let key = (verb.to_owned(), namespace.clone(), name.clone());
        let earlier = {
            let mut counts = counts.lock().unwrap();
            let count: &mut usize = counts.entry(key).or_default();
            *count += 1;
            *count - 1
        };
        let is_due =
            |of: Option<(&str, usize)>| of.is_some_and(|(of, times)| name.starts_with(of) && earlier < times);
        match verb {
            "filter" => {
                if race.meanwhile.is_some_and(|(held, _)| held == name) && earlier == 0 {
                    while !released.lock().unwrap().contains(&namespace) {
                        thread::sleep(Duration::from_millis(10));
                    }
                }
                let refuses = is_due(race.refuses);
                let wanted = if name.ends_with("n2") { "n2" } else { "n1" };
                let nodes = body["Nodes"]["items"].as_array().unwrap().iter();
                let is_kept = |node: &&Value| !refuses && node["metadata"]["name"] == wanted;
                let (kept, failed): (Vec<_>, Vec<_>) = nodes.partition(is_kept);
                let reason = |node: &Value| (text(&node["metadata"]["name"]), "refused".into());
                let failed: serde_json::Map<_, _> = failed.into_iter().map(reason).collect();
                (200, json!({ "Nodes": { "items": kept }, "FailedNodes": failed }))
            }
            _ if is_due(race.fails_to_bind) => (200, json!({ "Error": "not yet" })),
            _ => {
                let binding = json!({
                    "apiVersion": "v1",
                    "kind": "Binding",
                    "metadata": { "name": name, "namespace": namespace, "uid": body["PodUID"] },
                    "target": { "kind": "Node", "name": body["Node"] },
                });
                cluster.try_create(&binding).unwrap();
                (200, json!({}))
            }
        }
    })
}

fn config(scheduler_name: &str, url: &str) -> Value {
    json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "podMaxBackoffSeconds": 1,
        "extenders": [{
            "urlPrefix": url,
            "filterVerb": "filter",
            "bindVerb": "bind",
            "httpTimeout": "60s",
        }],
        "profiles": [{ "schedulerName": scheduler_name }],
    })
}

/// One of the two schedulers.
enum Side {
    Upstream(Handle),
    Supercargo(Supercargo),
}

struct Bed<'a> {
    cluster: &'a Cluster,
    extender: &'a Extender,
    released: &'a Shared<Vec<String>>,
    scheduler_name: &'static str,
    side: Side,
}

impl Bed<'_> {
    fn namespace(&self, race: &str) -> String {
        let namespace = format!("{}-{race}", self.scheduler_name);
        self.cluster.namespace(&namespace);
        namespace
    }

    fn group(&self, namespace: &str, name: &str, min_count: Option<u32>) {
        let policy = match min_count {
            Some(min_count) => json!({ "gang": { "minCount": min_count } }),
            None => json!({ "basic": {} }),
        };
        self.cluster.create(&json!({
            "apiVersion": "scheduling.k8s.io/v1beta1",
            "kind": "PodGroup",
            "metadata": { "name": name, "namespace": namespace },
            "spec": { "schedulingPolicy": policy },
        }));
    }

    fn pod(&self, namespace: &str, name: &str, group: Option<&str>) {
        let mut pod = pod(name).within(namespace).by(self.scheduler_name);
        if let Some(group) = group {
            pod = pod.spec("schedulingGroup", json!({ "podGroupName": group }));
        }
        if name == "g-follower" {
            let leader = json!({ "matchLabels": { "app": "g2" } });
            let term = json!([{ "topologyKey": "zone", "labelSelector": leader }]);
            let affinity = json!({ "requiredDuringSchedulingIgnoredDuringExecution": term });
            pod = pod.spec("affinity", json!({ "podAffinity": affinity }));
        }
        // The others of its group wait for it.
        let gates = if name == "g-follower" { json!([{ "name": GATE }]) } else { Value::Null };
        let mut pod = pod.spec("schedulingGates", gates).build();
        pod["metadata"]["labels"] = json!({ "app": name });
        self.cluster.create(&pod);
    }

    fn member_or_single(&self, namespace: &str, name: &str) {
        self.pod(namespace, name, name.starts_with('g').then_some("g"));
    }

    /// The pods of a namespace about which the extender was asked.
    fn asked(&self, namespace: &str) -> Vec<String> {
        let calls = self.extender.calls("filter");
        let pods = calls.iter().map(|body| &body["Pod"]["metadata"]);
        pods.filter(|pod| pod["namespace"] == namespace).map(|pod| text(&pod["name"])).collect()
    }

    fn wait_for_call(&self, namespace: &str, pod: &str, times: usize) {
        let probe = || (self.calls_for(namespace, pod) >= times).then_some(());
        let state = || format!("{:?}", self.asked(namespace));
        eventually(&format!("{namespace}: call {times} for {pod}"), PATIENCE, probe, state);
    }

    fn calls_for(&self, namespace: &str, prefix: &str) -> usize {
        self.asked(namespace).iter().filter(|pod| pod.starts_with(prefix)).count()
    }

    /// Waits until kube-scheduler has this pod in a queue. supercargo reads what has arrived
    /// between two attempts, and does the same if the pod arrives later.
    fn wait_until_queued(&self, namespace: &str, pod: &str) {
        let Side::Upstream(handle) = &self.side else { return };
        let key = format!("=\"{namespace}/{pod}\"");
        let is_queued = |line: &str| {
            let places = ["internal scheduling queue", "pending pod group pods"];
            line.contains(&key) && places.iter().any(|place| line.contains(place))
        };
        let probe = || handle.log().lines().any(is_queued).then_some(());
        eventually(&format!("{key} is queued"), PATIENCE, probe, String::new);
    }

    /// What happened in a race: the calls for pods in their order, the events, and the conditions
    /// of the group.
    fn race(&self, race: &Race) -> String {
        let namespace = &self.namespace(race.name);
        self.group(namespace, "g", race.min_count);
        for pod in race.pods {
            self.member_or_single(namespace, pod);
        }
        if race.pods.contains(&"g-follower") {
            self.cluster.patch_pod(namespace, "g-follower", &json!({ "spec": { "schedulingGates": [] } }));
        }
        if let Some((held, meanwhile)) = race.meanwhile {
            self.wait_for_call(namespace, held, 1);
            for pod in meanwhile {
                self.member_or_single(namespace, pod);
                self.wait_until_queued(namespace, pod);
            }
            self.released.lock().unwrap().push(namespace.clone());
        }
        let events = || {
            let pods = self.cluster.pods(namespace);
            let of_pod =
                |pod: &Value| self.cluster.events(namespace, pod["metadata"]["name"].as_str().unwrap());
            let mut events: Vec<Value> = pods.iter().flat_map(of_pod).collect();
            events.sort_by_key(|event| {
                (event["regarding"]["name"].to_string(), event["eventTime"].to_string())
            });
            let told = events
                .iter()
                .map(|event| format!("{} {} {}", event["regarding"]["name"], event["reason"], event["note"]));
            told.collect::<Vec<_>>()
        };
        let what = format!("{namespace}: {} events", race.events);
        let probe = || Some(events()).filter(|events| events.len() >= race.events);
        let state = || format!("{:?}\n{:#?}", self.asked(namespace), events());
        let events = eventually(&what, PATIENCE, probe, state);
        let asked = self.asked(namespace);
        let condition = self.condition_of_group(namespace);
        self.delete_pods(namespace);
        let events = events.join("\n");
        format!("{}: {asked:?}\n{events}\ngroup {condition}\n", race.name).replace(namespace, "{namespace}")
    }

    /// The condition of the group `g`, once it is scheduled.
    fn condition_of_group(&self, namespace: &str) -> String {
        let path = format!("/apis/scheduling.k8s.io/v1beta1/namespaces/{namespace}/podgroups/g");
        let conditions = || self.cluster.get(&path)["status"]["conditions"].take();
        let is_scheduled = |conditions: &Value| {
            let mut conditions = conditions.as_array().into_iter().flatten();
            conditions.any(|it| it["type"] == "PodGroupInitiallyScheduled" && it["status"] == "True")
        };
        let probe = || Some(conditions()).filter(is_scheduled);
        let mut found =
            eventually(&format!("{path} is scheduled"), PATIENCE, probe, || conditions().to_string());
        for condition in found.as_array_mut().into_iter().flatten() {
            condition["lastTransitionTime"].take();
        }
        found.to_string()
    }

    fn delete_pods(&self, namespace: &str) {
        for pod in self.cluster.pods(namespace) {
            self.cluster.delete_pod(namespace, pod["metadata"]["name"].as_str().unwrap());
        }
    }

    fn stop(self) {
        if let Side::Supercargo(supercargo) = self.side {
            supercargo.stop();
        }
    }
}

/// The namespace of `group_races_back_off` has pods that the extender always refuses.
const ALL_REFUSED: Race = Race { name: BACKOFF, refuses: Some(("", usize::MAX)), ..QUIET };
const BACKOFF: &str = "backoff";
/// The number of pods of the large group: its maximum backoff is four times that of a single pod.
const LARGE: usize = 16;

/// A large group and a small one fail again and again, without any event.
fn back_off(bed: &Bed<'_>) {
    let namespace = &bed.namespace(BACKOFF);
    bed.group(namespace, "large", Some(LARGE.try_into().unwrap()));
    bed.group(namespace, "small", Some(1));
    for number in 0..LARGE {
        bed.pod(namespace, &format!("large-{number:02}"), Some("large"));
    }
    bed.pod(namespace, "small", Some("small"));
    // Backoffs of 1, 2, 4 and 4 s, where the other group has eleven of 1 s.
    bed.wait_for_call(namespace, "large", 5);
    let calls = bed.calls_for(namespace, "small");
    assert!((8..20).contains(&calls), "{calls} attempts of a small group, 5 of a large one");
    bed.cluster.delete_pod(namespace, "small");

    // Nothing else is to be scheduled: a single pod does not wait for the end of its backoff.
    bed.pod(namespace, "single", None);
    bed.wait_for_call(namespace, "single", 1);
    bed.cluster
        .patch("/api/v1/nodes/n1", &json!({ "metadata": { "labels": { "changed": bed.scheduler_name } } }));
    bed.wait_for_call(namespace, "single", 2);
    assert_eq!(bed.calls_for(namespace, "large"), 5, "the group waits for the end of its backoff");
    bed.delete_pods(namespace);
}

#[test]
fn races_of_groups_end_as_with_kube_scheduler() {
    if assets_or_skip().is_none() {
        return;
    }
    let plane = ControlPlane::start(Options {
        feature_gates: vec!["GenericWorkload=true".to_owned()],
        apiserver_args: vec!["--runtime-config=scheduling.k8s.io/v1beta1=true".to_owned()],
        ..Options::default()
    })
    .unwrap();
    let cluster = Cluster::of(&plane);
    for name in ["n1", "n2"] {
        cluster.create(&node(name, &[("zone", "z")], &[("cpu", "4"), ("memory", "4Gi"), ("pods", "100")]));
    }
    let released = Shared::default();
    let extender = extender(&plane, &released);
    let url = extender.url();
    let races = |scheduler_name: &'static str, side: Side| -> Vec<String> {
        let bed = Bed { cluster: &cluster, extender: &extender, released: &released, scheduler_name, side };
        let told = RACES.iter().map(|race| bed.race(race)).collect();
        back_off(&bed);
        bed.stop();
        told
    };

    let mut upstream = config("upstream", &url);
    upstream["clientConnection"] = json!({ "kubeconfig": "{kubeconfig}" });
    let options = SchedulerOptions {
        config_yaml: Some(upstream.to_string()),
        verbosity: 5,
        extra_args: vec![GATES.to_owned()],
        ..SchedulerOptions::default()
    };
    let expected = races("upstream", Side::Upstream(plane.start_kube_scheduler(&options).unwrap()));
    for (race, told) in RACES.iter().zip(&expected) {
        assert!(told.starts_with(&format!("{}: {:?}\n", race.name, race.asked)), "{told}");
    }

    let config = config("supercargo", &url).to_string();
    let supercargo = Supercargo::start(&plane.kubeconfig(USER).unwrap(), Some(&config), &[GATES]);
    supercargo.wait_until_scheduling();
    let found = races("supercargo", Side::Supercargo(supercargo));
    for (found, expected) in found.iter().zip(&expected) {
        assert_eq!(found, expected);
    }
}
