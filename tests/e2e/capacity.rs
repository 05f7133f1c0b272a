//! Two schedulers fill a cluster at the same time.
//!
//! Two schedulers that choose the same node at the same time do not know each other's choice: each
//! counts the other's pods only after the API server has published them, and only a check at the
//! bind could prevent overcommit. Here a race must not decide the result, so each node gives each
//! scheduler a share: an extended resource that its pods request in the same amount as CPU and
//! memory. No interleaving overcommits a node then, so any overcommit is a scheduler's mistake. The
//! pair of nodes at the end has no shares and shows that each scheduler counts the other's pods.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::Value;
use supercargo_controlplane::{ControlPlane, SchedulerOptions};

use crate::support::{Bindings, Cluster, Supercargo, amount_of, name_of, node, node_of, own_plane, pod, say};

const TEST: &str = "capacity";
const NODES: usize = 500;
const OURS: &str = "example.com/supercargo-share";
const THEIRS: &str = "example.com/kube-scheduler-share";
/// The part of each share that the pods fill, in percent.
const FILL: u64 = 97;

/// A scheduler's share of a node in thousandths of a CPU, and its numbers of large and medium pods.
/// Small pods fill the rest.
struct Part {
    scheduler_name: &'static str,
    resource: &'static str,
    share: u64,
    large: u64,
    middle: u64,
}

/// A pod of 300 finds a node as long as one has less than 300 of its share left, and so on. These
/// numbers always fit, wherever earlier pods went.
const PARTS: [Part; 2] = [
    Part { scheduler_name: "supercargo", resource: OURS, share: 600, large: 250, middle: 500 },
    Part { scheduler_name: "default-scheduler", resource: THEIRS, share: 400, large: 100, middle: 250 },
];

impl Part {
    /// The pods, large ones first: (name, size).
    fn sizes(&self) -> Vec<(String, u64)> {
        let total = self.share * NODES as u64 * FILL / 100;
        let small = (total - 300 * self.large - 200 * self.middle) / 100;
        let of = |size: u64, count: u64| (0..count).map(move |index| (size, index));
        let all = of(300, self.large).chain(of(200, self.middle)).chain(of(100, small));
        all.map(|(size, index)| (format!("{}-{size}-{index}", self.scheduler_name), size)).collect()
    }

    fn pod(&self, (name, size): &(String, u64)) -> Value {
        let amount = |unit: &str| format!("{size}{unit}");
        let pod = pod(name).by(self.scheduler_name).asking(self.resource, &amount(""));
        pod.asking("cpu", &amount("m")).asking("memory", &amount("Mi")).build()
    }
}

fn nodes() -> Vec<Value> {
    let allocatable = [("cpu", "1"), ("memory", "1000Mi"), (OURS, "600"), (THEIRS, "400")];
    (0..NODES).map(|index| node(&format!("node-{index}"), &[], &allocatable)).collect()
}

/// Large pods of both schedulers, then medium ones, then small ones.
fn pods() -> Vec<Value> {
    let mut pods: Vec<_> = PARTS
        .iter()
        .flat_map(|part| part.sizes().into_iter().enumerate().map(move |(index, sized)| (part, index, sized)))
        .collect();
    pods.sort_by_key(|(_, index, (_, size))| (std::cmp::Reverse(*size), *index));
    pods.iter().map(|(part, _, sized)| part.pod(sized)).collect()
}

/// The requests of a resource on each node, in thousandths.
fn asked<'a>(pods: &'a [Value], resource: &str) -> BTreeMap<&'a str, u64> {
    let mut asked = BTreeMap::new();
    for pod in pods {
        if let Some(node) = node_of(pod) {
            let requests = &pod["spec"]["containers"][0]["resources"]["requests"];
            *asked.entry(node).or_default() += amount_of(requests, resource);
        }
    }
    asked
}

/// Asserts that no node is overcommitted. Returns the used part of a resource in percent.
fn check_resource(nodes: &[Value], pods: &[Value], resource: &str) -> f64 {
    let asked = asked(pods, resource);
    let mut total = 0;
    for node in nodes {
        let allocatable = amount_of(&node["status"]["allocatable"], resource);
        let on_it = asked.get(name_of(node)).copied().unwrap_or(0);
        assert!(on_it <= allocatable, "{}: {on_it} of {allocatable} {resource}", name_of(node));
        total += allocatable;
    }
    asked.values().sum::<u64>() as f64 * 100.0 / total as f64
}

#[test]
fn two_schedulers_fill_500_nodes_without_overcommit() {
    let started = Instant::now();
    let Some(plane) = own_plane() else { return };
    let cluster = Cluster::of(&plane);
    let nodes = nodes();
    cluster.create_all(&nodes);
    say(TEST, started, "the nodes are there");
    let kube_scheduler = plane.start_kube_scheduler(&SchedulerOptions::default()).unwrap();
    let supercargo = Supercargo::on_as(&plane, "supercargo", None);
    say(TEST, started, "both schedulers run");

    let wanted = pods();
    cluster.create_all(&wanted);
    say(TEST, started, &format!("{} pods are there", wanted.len()));
    let unbound = "/api/v1/namespaces/default/pods?fieldSelector=spec.nodeName%3D";
    supercargo.eventually("every pod is bound", Duration::from_mins(4), || {
        cluster.list(unbound).is_empty().then_some(())
    });
    say(TEST, started, "every pod is bound");

    let pods = cluster.pods("default");
    assert_eq!(pods.len(), wanted.len());
    for resource in ["cpu", "memory"] {
        let filled = check_resource(&nodes, &pods, resource);
        say(TEST, started, &format!("{filled:.1} % of {resource} is filled"));
        assert!(filled >= 95.0, "{resource}: {filled} %");
    }
    for resource in [OURS, THEIRS] {
        check_resource(&nodes, &pods, resource);
    }
    let both = nodes.iter().filter(|node| {
        let on_it = pods.iter().filter(|pod| node_of(pod) == Some(name_of(node)));
        let mut names: Vec<_> = on_it.map(|pod| &pod["spec"]["schedulerName"]).collect();
        names.dedup();
        names.contains(&&Value::from("supercargo")) && names.contains(&&Value::from("default-scheduler"))
    });
    assert!(both.count() > NODES * 9 / 10, "the two schedulers keep to nodes of their own");

    each_pod_was_bound_once(&plane, &pods);
    say(TEST, started, "the audit log has one binding for each");
    let log = supercargo.log();
    let errors: Vec<_> = log.lines().filter(|line| line.contains(" ERROR ")).collect();
    assert!(errors.is_empty(), "{errors:#?}");

    what_the_other_placed_counts(&cluster);
    supercargo.stop();
    kube_scheduler.stop();
    say(TEST, started, "done");
}

fn each_pod_was_bound_once(plane: &ControlPlane, pods: &[Value]) {
    let bindings = Bindings::of_each_once(plane, pods, 0);
    let ours = pods.iter().filter(|pod| pod["spec"]["schedulerName"] == "supercargo").count();
    assert_eq!(bindings.successes_by("supercargo"), ours);
    assert_eq!(bindings.successes_by("system:kube-scheduler"), pods.len() - ours);
    assert!(bindings.failures().is_empty(), "{:?}", bindings.failures());
}

/// kube-scheduler takes one of two nodes; supercargo must take the other, and then none is left.
fn what_the_other_placed_counts(cluster: &Cluster) {
    let label = ("pair", "yes");
    for name in ["pair-a", "pair-b"] {
        cluster.create(&node(name, &[label], &[("cpu", "1"), ("memory", "1Gi")]));
    }
    let pair = |name: &str, by: &str| pod(name).by(by).on(label).asking("cpu", "600m").build();
    cluster.create(&pair("theirs", "default-scheduler"));
    let theirs = cluster.bound_node("default", "theirs");
    cluster.create(&pair("ours", "supercargo"));
    let ours = cluster.bound_node("default", "ours");
    assert_ne!(ours, theirs);
    cluster.create(&pair("one-too-many", "supercargo"));
    let condition = cluster.condition("default", "one-too-many", "Unschedulable");
    let message = condition["message"].as_str().unwrap();
    let expected = "0/502 nodes are available: 2 Insufficient cpu, 500 node(s) didn't match Pod's node \
                    affinity/selector. preemption: 0/502 nodes are available: 2 No preemption victims found for \
                    incoming pod, 500 Preemption is not helpful for scheduling.";
    assert_eq!(message, expected);
    // Resources that the other scheduler frees count as well.
    cluster.delete_pod("default", "theirs");
    assert_eq!(cluster.bound_node("default", "one-too-many"), theirs);
}
