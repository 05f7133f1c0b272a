//! The groups that are measured, and the clusters for them.

use serde_json::{Value, json};

/// Racks of the cluster.
const RACKS: usize = 40;

/// Gangs of pods that are all alike, one cycle each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) gangs: usize,
    pub(crate) size: usize,
    /// Whether each gang must be in one rack.
    pub(crate) in_one_rack: bool,
    /// What each pod requests.
    pub(crate) cpu: &'static str,
    /// Whether each pod needs the node of a pod that it can preempt.
    pub(crate) preempts: bool,
}

/// How many pods of a group must fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    /// All.
    Gang,
    /// Any, so that all are tried.
    Basic,
}

/// Pods that fit nowhere, in a group and alone.
pub(crate) const UNFIT: Case = Case {
    name: "1,000 pods that fit nowhere",
    gangs: 1,
    size: 1000,
    in_one_rack: false,
    cpu: "5",
    preempts: false,
};

pub(crate) const CASES: [Case; 4] = [
    Case {
        name: "100 gangs of 100",
        gangs: 100,
        size: 100,
        in_one_rack: false,
        cpu: "100m",
        preempts: false,
    },
    Case { name: "1,000 gangs of 8", gangs: 1000, size: 8, in_one_rack: false, cpu: "100m", preempts: false },
    Case {
        name: "10 gangs of 1,000 in one rack",
        gangs: 10,
        size: 1000,
        in_one_rack: true,
        cpu: "100m",
        preempts: false,
    },
    Case {
        name: "a gang that preempts 2,000 pods",
        gangs: 1,
        size: 2000,
        in_one_rack: false,
        cpu: "3",
        preempts: true,
    },
];

impl Case {
    /// The same, a hundred times smaller.
    pub(crate) fn small(self) -> Self {
        Self { gangs: self.gangs.div_ceil(100), size: self.size.div_ceil(100).max(2), ..self }
    }

    const fn cpu_of_bound(self) -> &'static str {
        if self.preempts { self.cpu } else { "100m" }
    }

    const fn priority(self) -> i32 {
        if self.preempts { 1000 } else { 0 }
    }

    /// PodGroups, one for each gang.
    pub(crate) fn groups(self, policy: Policy) -> impl Iterator<Item = Value> {
        (0..self.gangs).map(move |gang| {
            let constraints = json!({ "topology": [{ "key": "rack" }] });
            json!({
                "apiVersion": "scheduling.k8s.io/v1beta1",
                "kind": "PodGroup",
                "metadata": metadata(&group_name(gang)),
                "spec": {
                    "priority": self.priority(),
                    "schedulingPolicy": match policy {
                        Policy::Gang => json!({ "gang": { "minCount": self.size } }),
                        Policy::Basic => json!({ "basic": {} }),
                    },
                    "schedulingConstraints": self.in_one_rack.then_some(constraints),
                },
            })
        })
    }

    pub(crate) fn nodes(count: usize) -> impl Iterator<Item = Value> {
        (0..count).map(move |i| {
            let name = node_name(i);
            let resources = json!({ "cpu": "4", "memory": "32Gi", "pods": "110" });
            let labels = json!({ "kubernetes.io/hostname": name, "rack": format!("rack-{}", i % RACKS) });
            json!({
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": { "name": name, "uid": name, "resourceVersion": "1", "labels": labels },
                "status": { "capacity": resources, "allocatable": resources },
            })
        })
    }

    /// A pod on each node. Where gangs preempt, it fills the node; as many as the pods of a gang
    /// have lower priority.
    pub(crate) fn bound(self, nodes: usize) -> impl Iterator<Item = Value> {
        (0..nodes).map(move |i| {
            let priority = if self.preempts && i >= self.size { 2000 } else { 0 };
            let mut pod = pod(&format!("bound-{i}"), self.cpu_of_bound(), priority);
            pod["spec"]["nodeName"] = node_name(i).into();
            pod["status"] = json!({ "phase": "Running", "startTime": "2026-01-01T00:00:00Z" });
            pod
        })
    }

    /// The pods of a gang.
    pub(crate) fn gang(self, gang: usize) -> impl Iterator<Item = Value> {
        let group = group_name(gang);
        self.pods(group.clone()).map(move |mut pod| {
            pod["spec"]["schedulingGroup"] = json!({ "podGroupName": group });
            pod
        })
    }

    /// As many pods without a group.
    pub(crate) fn pods(self, name: String) -> impl Iterator<Item = Value> {
        (0..self.size).map(move |i| pod(&format!("{name}-{i}"), self.cpu, self.priority()))
    }
}

fn group_name(gang: usize) -> String {
    format!("gang-{gang}")
}

fn node_name(i: usize) -> String {
    format!("node-{i:04}")
}

fn metadata(name: &str) -> Value {
    json!({
        "name": name,
        "namespace": "default",
        "uid": name,
        "resourceVersion": "1",
        "creationTimestamp": "2026-01-01T00:00:00Z",
    })
}

fn pod(name: &str, cpu: &str, priority: i32) -> Value {
    let requests = json!({ "cpu": cpu, "memory": "100Mi" });
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata(name),
        "spec": {
            "schedulerName": "supercargo",
            "priority": priority,
            "containers": [{ "name": "c", "image": "pause", "resources": { "requests": requests } }],
        },
    })
}
