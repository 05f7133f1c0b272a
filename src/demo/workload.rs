//! The demo's generated cluster and workload.

use std::time::Duration;

use fastrand::Rng;
use serde_json::{Value, json};
use supercargo_apiserver::sim::{DEVICE_DRIVER, SIMULATE_DEVICES};

use supercargo_framework::node::HOSTNAME;

use super::plan::{Action, Manifest, Plan, TimedAction};
use super::text::count;

/// Zones of the nodes.
pub(crate) const ZONES: [&str; 3] = ["a", "b", "c"];
const ZONE: &str = "topology.kubernetes.io/zone";
/// Label and taint key of node pools.
const POOL: &str = "example.com/pool";
/// Taint key of nodes with GPUs.
const GPU: &str = "example.com/gpu";
/// GPUs of a node that has some.
const GPUS: u32 = 8;
/// Templates of claims for GPUs, and how many each requests.
const CLAIM_TEMPLATES: [(&str, u32); 2] = [("one-gpu", 1), ("two-gpus", 2)];
/// The pods of a training job, which start together or not at all.
const GANG: &str = "gang";
/// Smallest cluster with separate node pools for databases, the edge and GPUs.
const NODES_FOR_POOLS: usize = 8;
/// Smallest cluster with a node that joins late.
const NODES_FOR_LATE_NODE: usize = 4;

const GATES_LIFTED: Duration = Duration::from_millis(4500);
const LATE_NODE_JOINS: Duration = Duration::from_millis(5500);

/// Parameters of a generated workload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    /// Number of nodes, including the one that joins late.
    pub(crate) nodes: usize,
    /// Number of pods.
    pub(crate) pods: usize,
    /// Seed of the random numbers.
    pub(crate) seed: u64,
}

/// A group of equal pods.
struct App {
    name: &'static str,
    /// Relative number of pods.
    weight: usize,
    /// Start of the arrivals, in milliseconds.
    from: u64,
    /// End of the arrivals, in milliseconds.
    to: u64,
    cpu: &'static str,
    memory: &'static str,
    /// Completes the spec of the pods.
    spec: fn(&mut Value, pools: bool),
}

const fn app(
    name: &'static str,
    weight: usize,
    (from, to): (u64, u64),
    (cpu, memory): (&'static str, &'static str),
    spec: fn(&mut Value, bool),
) -> App {
    App { name, weight, from, to, cpu, memory, spec }
}

/// The first app gets the remainder of rounding.
const APPS: &[App] = &[
    app("web", 52, (0, 3000), ("500m", "512Mi"), |_, _| {}),
    app("api", 40, (300, 4000), ("750m", "1Gi"), in_two_zones),
    app("worker", 34, (1000, 7000), ("1", "2Gi"), |_, _| {}),
    app("nightly", 24, (800, 1800), ("1", "1Gi"), gated),
    app("cache", 18, (500, 3500), ("500m", "6Gi"), rather_with_ssd),
    app("db", 9, (100, 2500), ("2", "12Gi"), on_database_nodes),
    app("ingress", 5, (200, 1500), ("500m", "256Mi"), on_the_edge),
    app(GANG, 4, (1200, 5600), ("1", "2Gi"), in_gang),
    app("train", 6, (1500, 2500), ("2", "8Gi"), with_two_gpus),
    app("infer", 5, (1500, 2500), ("1", "4Gi"), with_gpu),
    app("mars", 2, (2600, 3000), ("250m", "128Mi"), in_no_zone),
    app("giant", 1, (2200, 2200), ("64", "8Gi"), |_, _| {}),
];

fn in_two_zones(spec: &mut Value, _pools: bool) {
    let zones = json!([{ "key": ZONE, "operator": "In", "values": ["a", "b"] }]);
    let required = json!({ "nodeSelectorTerms": [{ "matchExpressions": zones }] });
    spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] = required;
}

fn rather_with_ssd(spec: &mut Value, _pools: bool) {
    let ssd = json!([{ "key": "example.com/disk", "operator": "In", "values": ["ssd"] }]);
    let preferred = json!([{ "weight": 50, "preference": { "matchExpressions": ssd } }]);
    spec["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"] = preferred;
}

fn on_database_nodes(spec: &mut Value, pools: bool) {
    if pools {
        spec["nodeSelector"] = json!({ POOL: "db" });
        spec["tolerations"] =
            json!([{ "key": POOL, "operator": "Equal", "value": "db", "effect": "NoSchedule" }]);
    }
}

fn on_the_edge(spec: &mut Value, pools: bool) {
    if pools {
        spec["nodeSelector"] = json!({ POOL: "edge" });
    }
    spec["containers"][0]["ports"] = json!([{ "containerPort": 8443, "hostPort": 443 }]);
}

fn gated(spec: &mut Value, _pools: bool) {
    spec["schedulingGates"] = json!([{ "name": "example.com/quota" }]);
}

fn with_gpu(spec: &mut Value, _pools: bool) {
    claim_gpus(spec, CLAIM_TEMPLATES[0].0);
}

fn with_two_gpus(spec: &mut Value, _pools: bool) {
    claim_gpus(spec, CLAIM_TEMPLATES[1].0);
}

fn claim_gpus(spec: &mut Value, template: &str) {
    spec["resourceClaims"] = json!([{ "name": "gpus", "resourceClaimTemplateName": template }]);
    spec["containers"][0]["resources"]["claims"] = json!([{ "name": "gpus" }]);
    spec["tolerations"] = json!([{ "key": GPU, "operator": "Exists", "effect": "NoSchedule" }]);
}

fn in_gang(spec: &mut Value, _pools: bool) {
    spec["schedulingGroup"] = json!({ "podGroupName": GANG });
}

fn in_no_zone(spec: &mut Value, _pools: bool) {
    spec["nodeSelector"] = json!({ ZONE: "mars" });
}

/// The plan, with pods of this scheduler.
pub(crate) fn plan(size: Size, scheduler: &str) -> Plan {
    let mut random = Rng::with_seed(size.seed);
    let mut nodes = nodes(size.nodes, &mut random);
    let late = (size.nodes >= NODES_FOR_LATE_NODE).then(|| nodes.pop()).flatten();
    let mut steps = pods(size, scheduler, &mut random);
    steps.extend(late.map(|node| TimedAction { at: LATE_NODE_JOINS, action: Action::Create(node) }));
    let gated = steps.iter().filter_map(|step| match &step.action {
        Action::Create(pod) if pod.value["spec"]["schedulingGates"].is_array() => {
            Some((pod.namespace().to_owned(), pod.name().to_owned()))
        }
        _ => None,
    });
    let gated: Vec<_> = gated.collect();
    if !gated.is_empty() {
        let note = format!("the scheduling gates of {} are removed", count(gated.len(), "pod"));
        steps.push(TimedAction { at: GATES_LIFTED, action: Action::LiftGates { note, pods: gated } });
    }
    steps.sort_by_key(|step| step.at);
    let claims_gpus = |step: &TimedAction| match &step.action {
        Action::Create(object) => object.value["spec"]["resourceClaims"].is_array(),
        Action::LiftGates { .. } => false,
    };
    let templates = CLAIM_TEMPLATES.iter().filter(|_| steps.iter().any(claims_gpus));
    let members = steps.iter().filter(|step| is_in_gang(step)).count();
    let gang = (members > 0).then(|| pod_group(GANG, members));
    let first = templates.map(|(name, count)| claim_template(name, *count)).chain(gang).chain(nodes);
    let first = first.collect();
    Plan { first, steps, pods: size.pods, notes: Vec::new() }
}

/// The nodes. The last one joins late, if the cluster is large enough.
pub(crate) fn all_nodes(count: usize, seed: u64) -> Vec<Manifest> {
    nodes(count, &mut Rng::with_seed(seed))
}

fn nodes(count: usize, random: &mut Rng) -> Vec<Manifest> {
    let digits = count.div_ceil(ZONES.len()).to_string().len().max(2);
    let pool = if count >= NODES_FOR_POOLS { (count / 10).max(1) } else { 0 };
    let gpus = if count >= NODES_FOR_POOLS { (count / 20).max(1) } else { 0 };
    let late = usize::from(count >= NODES_FOR_LATE_NODE);
    let mut nodes = Vec::with_capacity(count);
    for index in 0..count {
        let zone = ZONES[index % ZONES.len()];
        let number = format!("{:0digits$}", index / ZONES.len() + 1);
        let from_end = count - 1 - index;
        let node = if from_end < late {
            node_with_gpus(&format!("{zone}-gpu"), zone)
        } else if from_end < late + pool {
            let mut node = node(&format!("{zone}-db{number}"), zone, "db", 16, 128);
            node["spec"]["taints"] = json!([{ "key": POOL, "value": "db", "effect": "NoSchedule" }]);
            node
        } else if from_end < late + 2 * pool {
            let mut node = node(&format!("{zone}-edge{number}"), zone, "edge", 4, 16);
            node["spec"]["taints"] = json!([{ "key": POOL, "value": "edge", "effect": "PreferNoSchedule" }]);
            node
        } else if from_end < late + 2 * pool + gpus {
            node_with_gpus(&format!("{zone}-gpu{number}"), zone)
        } else {
            let (cpu, memory) = [(4, 16), (8, 32), (8, 32), (16, 64)][random.usize(..4)];
            let mut node = node(&format!("{zone}-{number}"), zone, "general", cpu, memory);
            if random.u8(..3) == 0 {
                node["metadata"]["labels"]["example.com/disk"] = json!("ssd");
            }
            node
        };
        nodes.push(Manifest::new(node));
    }
    nodes
}

fn node(name: &str, zone: &str, pool: &str, cpu: u32, memory: u32) -> Value {
    let amounts = json!({ "cpu": cpu.to_string(), "memory": format!("{memory}Gi"), "pods": "110" });
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": { "name": name, "labels": { ZONE: zone, POOL: pool, HOSTNAME: name } },
        "spec": {},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{ "type": "Ready", "status": "True", "reason": "KubeletReady" }],
        },
    })
}

/// A node whose driver publishes GPUs.
fn node_with_gpus(name: &str, zone: &str) -> Value {
    let mut node = node(name, zone, "gpu", 16, 64);
    node["metadata"]["annotations"] = json!({ SIMULATE_DEVICES: GPUS.to_string() });
    node["spec"]["taints"] = json!([{ "key": GPU, "effect": "NoSchedule" }]);
    node
}

/// A template of claims for this many GPUs.
fn claim_template(name: &str, count: u32) -> Manifest {
    let request = json!({ "name": "gpus", "exactly": { "deviceClassName": DEVICE_DRIVER, "count": count } });
    Manifest::new(json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": { "name": name, "namespace": "default" },
        "spec": { "spec": { "devices": { "requests": [request] } } },
    }))
}

/// A group of pods that start together or not at all.
fn pod_group(name: &str, pods: usize) -> Manifest {
    Manifest::new(json!({
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": { "name": name, "namespace": "default" },
        "spec": { "schedulingPolicy": { "gang": { "minCount": pods } } },
    }))
}

fn is_in_gang(step: &TimedAction) -> bool {
    matches!(&step.action, Action::Create(pod) if pod.value["spec"]["schedulingGroup"].is_object())
}

/// The pods of all apps, with their arrival times.
fn pods(size: Size, scheduler: &str, random: &mut Rng) -> Vec<TimedAction> {
    let mut steps = Vec::with_capacity(size.pods);
    for (app, replicas) in APPS.iter().zip(shares(size.pods)) {
        let digits = replicas.to_string().len();
        for number in 0..replicas {
            let spread = (app.to - app.from) * number as u64 / replicas as u64;
            let at = Duration::from_millis(app.from + spread + random.u64(..80));
            let name = format!("{}-{:0digits$}", app.name, number + 1);
            let action = Action::Create(Manifest::new(pod(app, &name, scheduler, size.nodes)));
            steps.push(TimedAction { at, action });
        }
    }
    steps
}

/// Distributes the pods among the apps.
fn shares(pods: usize) -> Vec<usize> {
    let weights: usize = APPS.iter().map(|app| app.weight).sum();
    let mut shares: Vec<usize> = APPS.iter().map(|app| pods * app.weight / weights).collect();
    let rest = pods - shares.iter().sum::<usize>();
    // Apps without pods get one each, in order. The first app gets the remainder.
    let missing = shares.iter_mut().filter(|share| **share == 0).take(rest);
    let given = missing.map(|share| *share = 1).count();
    shares[0] += rest - given;
    shares
}

fn pod(app: &App, name: &str, scheduler: &str, nodes: usize) -> Value {
    let requests = json!({ "cpu": app.cpu, "memory": app.memory });
    let mut pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name, "namespace": "default", "labels": { "app": app.name } },
        "spec": {
            "schedulerName": scheduler,
            "containers": [{
                "name": "main",
                "image": format!("registry.example.com/{}:1", app.name),
                "resources": { "requests": requests },
            }],
        },
    });
    (app.spec)(&mut pod["spec"], nodes >= NODES_FOR_POOLS);
    pod
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn sized(nodes: usize, pods: usize, seed: u64) -> Plan {
        plan(Size { nodes, pods, seed }, "supercargo")
    }

    fn of_app<'a>(plan: &'a Plan, app: &'a str) -> impl Iterator<Item = &'a Manifest> {
        plan.objects().filter(move |object| object.value["metadata"]["labels"]["app"] == app)
    }

    #[test]
    fn workload_depends_on_the_seed() {
        assert_eq!(sized(30, 200, 1), sized(30, 200, 1));
        assert_ne!(sized(30, 200, 1), sized(30, 200, 2));
    }

    #[test]
    fn default_workload_covers_all_apps_and_zones() {
        let plan = sized(30, 200, 1);
        let nodes = || plan.first.iter().filter(|object| object.kind() == "Node");
        let zones: BTreeSet<_> =
            nodes().map(|node| node.value["metadata"]["labels"][ZONE].to_string()).collect();
        assert_eq!((nodes().count(), zones.len()), (29, 3));
        for app in APPS {
            assert!(of_app(&plan, app.name).count() > 0, "{}", app.name);
        }
        // There are more ingress pods than edge nodes, so that some stay pending.
        let edge = plan.first.iter().filter(|node| node.value["metadata"]["labels"][POOL] == "edge").count();
        assert!(edge > 0 && of_app(&plan, "ingress").count() > edge);
        // There are more claims than GPUs, and half of the GPUs come late.
        let wanted = of_app(&plan, "train").count() * 2 + of_app(&plan, "infer").count();
        let with_gpus = |node: &Manifest| node.value["metadata"]["annotations"][SIMULATE_DEVICES] == "8";
        let all = plan.objects().filter(|object| with_gpus(object)).count();
        assert_eq!((all, nodes().filter(|node| with_gpus(node)).count(), wanted), (2, 1, 17));
        let lifted = plan.steps.iter().find_map(|step| match &step.action {
            Action::LiftGates { pods, .. } => Some((step.at, pods.len())),
            Action::Create(_) => None,
        });
        assert_eq!(lifted, Some((GATES_LIFTED, of_app(&plan, "nightly").count())));
        let last = plan.steps.last().unwrap().at;
        assert!(last > LATE_NODE_JOINS && last < Duration::from_secs(8), "{last:?}");
        // The job waits for its last pod, and all of its pods are needed.
        let group = plan.first.iter().find(|object| object.kind() == "PodGroup").unwrap();
        assert_eq!(group.value["spec"]["schedulingPolicy"]["gang"]["minCount"], of_app(&plan, GANG).count());
        // Gated pods arrive before their gates are removed.
        assert!(
            APPS.iter().all(|app| app.name != "nightly" || Duration::from_millis(app.to + 80) < GATES_LIFTED)
        );
    }

    #[test]
    fn smallest_workload_has_one_node_and_one_pod() {
        let plan = sized(1, 1, 9);
        assert_eq!((plan.first.len(), plan.steps.len()), (1, 1));
        assert!(sized(1, 0, 9).steps.is_empty());
    }

    proptest! {
        #[test]
        fn workload_has_the_requested_number_of_nodes_and_pods(
            nodes in 1_usize..300, pods in 0_usize..600, seed: u64
        ) {
            let plan = sized(nodes, pods, seed);
            prop_assert_eq!((plan.count("Node"), plan.count("Pod")), (nodes, pods));
            let names: BTreeSet<_> = plan.objects().map(|o| (o.kind(), o.name())).collect();
            let others = plan.count("ResourceClaimTemplate") + plan.count("PodGroup");
            prop_assert_eq!(names.len(), nodes + pods + others);
            prop_assert!(plan.steps.is_sorted_by_key(|step| step.at));
        }
    }
}
