//! An hour of a small cluster: what its pictures show, always the same.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use supercargo_framework::features::{Feature, Features};

use super::clockwork::{Change, Clockwork, key};

/// The gates of pod groups, which the page of the record needs, too.
pub(super) const GATES: &str = "--feature-gates=GenericWorkload=true";
const BEGIN: &str = "2026-01-15T08:00:00Z";
const HOUR: Duration = Duration::from_hours(1);
const ZONE: &str = "topology.kubernetes.io/zone";
const POOL: &str = "node.kubernetes.io/pool";
const GPU: &str = "gpu.example.com";

/// A pool: how many nodes it has in each zone, and their cores and gibibytes.
const POOLS: [(&str, [usize; 3], u32, u32); 5] = [
    ("edge", [1, 1, 1], 4, 16),
    ("general", [8, 8, 8], 8, 32),
    ("gpu", [2, 1, 0], 32, 128),
    ("memory", [2, 2, 2], 16, 128),
    ("spot", [4, 4, 4], 8, 16),
];

/// Pods of one kind.
#[derive(Clone, Copy)]
struct Workload {
    namespace: &'static str,
    name: &'static str,
    /// The kind of its controller.
    of: &'static str,
    cpu: &'static str,
    memory: &'static str,
    /// What else is in the spec.
    spec: fn() -> Value,
}

const fn workload(
    namespace: &'static str,
    name: &'static str,
    (cpu, memory): (&'static str, &'static str),
    spec: fn() -> Value,
) -> Workload {
    Workload { namespace, name, of: "ReplicaSet", cpu, memory, spec }
}

fn anywhere() -> Value {
    json!({})
}

const STOREFRONT: Workload = workload("shop", "storefront", ("500m", "512Mi"), || {
    let selector = json!({ "matchLabels": { "app": "storefront" } });
    let spread = json!({ "maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": selector });
    json!({ "topologySpreadConstraints": [spread] })
});
const CHECKOUT: Workload = workload("shop", "checkout", ("750m", "1Gi"), || {
    let zones = json!([{ "key": ZONE, "operator": "In", "values": ["eu-1a", "eu-1b"] }]);
    let required = json!({ "nodeSelectorTerms": [{ "matchExpressions": zones }] });
    json!({ "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": required } } })
});
const IMAGES: Workload = workload("shop", "images", ("1", "1536Mi"), anywhere);
const SEARCH: Workload = workload(
    "shop",
    "search",
    ("2", "12Gi"),
    || json!({ "nodeSelector": { POOL: "memory" }, "tolerations": [{ "key": POOL, "value": "memory", "effect": "NoSchedule" }] }),
);
const PAYMENTS: Workload = workload("payments", "api", ("1", "1Gi"), anywhere);
const LEDGER: Workload = Workload {
    of: "StatefulSet",
    ..workload("payments", "ledger", ("2", "8Gi"), || {
        let term = json!({ "topologyKey": ZONE, "labelSelector": { "matchLabels": { "app": "ledger" } } });
        json!({ "affinity": { "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [term] } } })
    })
};
const INGRESS: Workload = workload(
    "edge",
    "ingress",
    ("500m", "256Mi"),
    || json!({ "nodeSelector": { POOL: "edge" }, "hostNetwork": false }),
);
const ETL: Workload = Workload { of: "Job", ..workload("data", "etl", ("1", "2Gi"), anywhere) };
const RENDER: Workload = Workload { of: "Job", ..workload("media", "render", ("2", "2Gi"), anywhere) };
const BACKFILL: Workload = Workload { of: "Job", ..workload("data", "backfill", ("14", "24Gi"), anywhere) };
const REPORT: Workload =
    workload("data", "report", ("250m", "256Mi"), || json!({ "nodeSelector": { ZONE: "eu-1d" } }));
const NIGHTLY: Workload = Workload {
    of: "Job",
    ..workload(
        "media",
        "nightly",
        ("1", "1Gi"),
        || json!({ "schedulingGates": [{ "name": "example.com/quota" }] }),
    )
};
const TRAIN: Workload = Workload {
    of: "Job",
    ..workload("ml", "train", ("2", "4Gi"), || json!({ "schedulingGroup": { "podGroupName": "train" } }))
};
const TUNE: Workload = Workload {
    of: "Job",
    ..workload("ml", "tune", ("2", "4Gi"), || json!({ "schedulingGroup": { "podGroupName": "tune" } }))
};
const EXPORTER: Workload = Workload {
    of: "DaemonSet",
    ..workload(
        "monitoring",
        "exporter",
        ("100m", "128Mi"),
        || json!({ "tolerations": [{ "operator": "Exists" }] }),
    )
};

/// Writes the record of the hour.
pub(super) fn record(file: &Path) {
    let features = Features::default().with(Feature::GenericWorkload, true);
    let mut clockwork = Clockwork::new(BEGIN, features);
    let nodes = nodes();
    for node in &nodes {
        clockwork.at(Duration::ZERO, Change::Create(node.clone()));
    }
    clockwork.at(Duration::ZERO, Change::Create(device_class()));
    for (group, least) in [("train", 8), ("tune", 4)] {
        clockwork.at(Duration::ZERO, Change::Create(pod_group(group, least)));
    }
    for (number, node) in nodes.iter().enumerate() {
        let mut pod = pod(&EXPORTER, number);
        pod["spec"]["nodeName"] = node["metadata"]["name"].clone();
        clockwork.at(Duration::ZERO, Change::Create(pod));
    }
    devices(&mut clockwork);
    arrivals(&mut clockwork);
    clockwork.record(HOUR, file);
}

/// When pods come and go.
fn arrivals(clockwork: &mut Clockwork) {
    let millis = Duration::from_millis;
    let secs = Duration::from_secs;
    let mut create =
        |workload: &Workload, numbers: std::ops::Range<usize>, from: Duration, every: Duration| {
            for (place, number) in numbers.enumerate() {
                clockwork.at(from + every * place as u32, Change::Create(pod(workload, number)));
            }
        };
    create(&LEDGER, 0..3, secs(4), millis(300));
    create(&SEARCH, 0..14, secs(5), millis(90));
    create(&STOREFRONT, 0..48, secs(5), millis(70));
    create(&CHECKOUT, 0..24, secs(6), millis(110));
    create(&PAYMENTS, 0..20, secs(7), millis(130));
    create(&IMAGES, 0..30, secs(8), millis(120));
    create(&INGRESS, 0..3, secs(9), millis(500));
    create(&TUNE, 0..4, secs(1200), secs(4));
    create(&RENDER, 0..110, secs(2280), secs(5));
    create(&BACKFILL, 0..3, secs(2900), secs(2));
    create(&REPORT, 0..2, secs(2950), secs(1));
    create(&LEDGER, 3..4, secs(3000), secs(1));
    create(&INGRESS, 3..4, secs(3060), secs(1));
    create(&NIGHTLY, 0..6, secs(3120), millis(200));
    create(&IMAGES, 30..54, secs(3420), secs(6));
    create(&TRAIN, 0..6, secs(3200), secs(3));
    for wave in 0..10 {
        let (from, first) = (secs(360 * (wave + 1) - 70), 12 * wave as usize);
        create(&ETL, first..first + 12, from, millis(450));
    }
    // Jobs end.
    for (workload, number, at) in (0..108)
        .map(|number| (&ETL, number, 360 * (number as u64 / 12 + 1) + 410 + 9 * (number as u64 % 12)))
        .chain((0..70).map(|number| (&RENDER, number, 2760 + 9 * number as u64)))
    {
        clockwork.at(secs(at), Change::Delete(key(&pod(workload, number))));
    }
    // A new version of the storefront, one pod after the other.
    for number in 0..48 {
        let at = secs(1800 + 9 * number as u64);
        clockwork.at(at, Change::Delete(key(&pod(&STOREFRONT, number))));
        clockwork.at(at + millis(40), Change::Create(pod(&STOREFRONT, 48 + number)));
    }
    for node in ["general-b3", "spot-c1"] {
        let taint = json!([{ "key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule" }]);
        let cordon = json!({ "spec": { "unschedulable": true, "taints": taint } });
        clockwork.at(secs(2700), Change::Patch(format!("Node//{node}"), cordon));
    }
}

/// GPUs, claims for them, and the pods that have some. One pod wants more than a node has free.
fn devices(clockwork: &mut Clockwork) {
    let gpus = ["gpu-a1", "gpu-a2", "gpu-b1"];
    for node in gpus {
        clockwork.at(Duration::ZERO, Change::Create(slice(node)));
    }
    for number in 0..9 {
        let node = gpus[number / 3];
        let results: Vec<Value> = (0..2)
            .map(|device| json!({ "request": "gpus", "driver": GPU, "pool": node, "device": format!("gpu-{}", number % 3 * 2 + device) }))
            .collect();
        let pod = of_claim("infer", number, node);
        let mut claim = claim(&pod, 2);
        claim["status"] = json!({
            "allocation": { "devices": { "results": results } },
            "reservedFor": [{ "resource": "pods", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"] }],
        });
        clockwork.at(Duration::ZERO, Change::Create(claim));
        clockwork.at(Duration::ZERO, Change::Create(pod));
    }
    let mut pod = of_claim("finetune", 0, "");
    let later = Duration::from_mins(55);
    clockwork.at(later, Change::Create(claim(&pod, 4)));
    pod["spec"].as_object_mut().unwrap().remove("nodeName");
    clockwork.at(later, Change::Create(pod));
}

fn nodes() -> Vec<Value> {
    let mut nodes = Vec::new();
    for (pool, counts, cpu, memory) in POOLS {
        for (zone, count) in ["a", "b", "c"].into_iter().zip(counts) {
            for number in 1..=count {
                let name = format!("{pool}-{zone}{number}");
                let amounts =
                    json!({ "cpu": cpu.to_string(), "memory": format!("{memory}Gi"), "pods": "110" });
                let taints = match pool {
                    "gpu" => json!([{ "key": GPU, "effect": "NoSchedule" }]),
                    "memory" => json!([{ "key": POOL, "value": "memory", "effect": "NoSchedule" }]),
                    "spot" => json!([{ "key": POOL, "value": "spot", "effect": "PreferNoSchedule" }]),
                    "edge" => json!([{ "key": POOL, "value": "edge", "effect": "PreferNoSchedule" }]),
                    _ => json!([]),
                };
                nodes.push(json!({
                    "apiVersion": "v1",
                    "kind": "Node",
                    "metadata": { "name": name, "labels": {
                        ZONE: format!("eu-1{zone}"), POOL: pool, "kubernetes.io/hostname": name,
                        "kubernetes.io/arch": "amd64",
                    } },
                    "spec": { "taints": taints },
                    "status": { "capacity": amounts, "allocatable": amounts },
                }));
            }
        }
    }
    nodes
}

fn pod(workload: &Workload, number: usize) -> Value {
    let Workload { namespace, name, of, cpu, memory, spec } = *workload;
    let version = if of == "DaemonSet" || of == "ReplicaSet" { "apps/v1" } else { "batch/v1" };
    let mut pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "namespace": namespace,
            "name": format!("{name}-{number:02}"),
            "labels": { "app": name },
            "ownerReferences": [{ "apiVersion": version, "kind": of, "name": name, "uid": format!("uid-of-{name}"), "controller": true }],
        },
        "spec": spec(),
    });
    pod["spec"]["schedulerName"] = "supercargo".into();
    let mut container = json!({ "name": "main", "image": format!("registry.example.com/{name}:1"), "resources": { "requests": { "cpu": cpu, "memory": memory } } });
    if name == INGRESS.name {
        container["ports"] = json!([{ "containerPort": 8443, "hostPort": 443, "protocol": "TCP" }]);
    }
    pod["spec"]["containers"] = json!([container]);
    pod
}

/// A pod on this node, with a claim of its own.
fn of_claim(name: &'static str, number: usize, node: &str) -> Value {
    let tolerate =
        || json!({ "tolerations": [{ "key": GPU, "operator": "Exists", "effect": "NoSchedule" }] });
    let mut pod = pod(&workload("ml", name, ("3", "12Gi"), tolerate), number);
    pod["metadata"]["uid"] = format!("uid-{name}-{number}").into();
    pod["spec"]["nodeName"] = node.into();
    pod["spec"]["resourceClaims"] =
        json!([{ "name": "gpus", "resourceClaimName": format!("{name}-{number:02}") }]);
    pod["spec"]["containers"][0]["resources"]["claims"] = json!([{ "name": "gpus" }]);
    pod
}

fn claim(pod: &Value, count: u32) -> Value {
    let request = json!({ "name": "gpus", "exactly": { "deviceClassName": GPU, "allocationMode": "ExactCount", "count": count } });
    json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": { "namespace": "ml", "name": pod["metadata"]["name"] },
        "spec": { "devices": { "requests": [request] } },
    })
}

fn device_class() -> Value {
    let selector = json!({ "cel": { "expression": format!("device.driver == '{GPU}'") } });
    json!({ "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": { "name": GPU }, "spec": { "selectors": [selector] } })
}

/// Eight GPUs. The driver has tainted one of the last node.
fn slice(node: &str) -> Value {
    let device = |number: usize| {
        let taint = json!([{ "key": "example.com/unhealthy", "effect": "NoSchedule", "timeAdded": BEGIN }]);
        let taints = if (node, number) == ("gpu-b1", 7) { taint } else { json!([]) };
        json!({ "name": format!("gpu-{number}"), "taints": taints })
    };
    json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": { "name": format!("{node}-gpus") },
        "spec": {
            "driver": GPU,
            "nodeName": node,
            "pool": { "name": node, "generation": 1, "resourceSliceCount": 1 },
            "devices": (0..8).map(device).collect::<Vec<_>>(),
        },
    })
}

fn pod_group(name: &str, least: u32) -> Value {
    json!({
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": { "namespace": "ml", "name": name },
        "spec": { "schedulingPolicy": { "gang": { "minCount": least } } },
    })
}
