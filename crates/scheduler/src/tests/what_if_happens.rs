//! Answers to what-if come true: after the same change, another model of the API server and of
//! controllers shows what the answer said.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{Config, TestRunner};
use supercargo_framework::binding::BindOutcome;
use supercargo_framework::objects::{Body, Object, PodDisruptionBudget, resources};
use supercargo_framework::pod::OwnerRef;
use supercargo_framework::taint::{Taint, TaintEffect};
use supercargo_framework::testing::object;
use supercargo_framework::{LabelSelector, Labels, NodeRecord, Now, PodInfo, Status, Uid};

use super::tables::templates::{APP, HOST, Shape, of_shape, of_template};
use super::test_bed::{WALL, all_plugins, options};
use crate::{
    Effect, End, Eviction, Input, NoCalls, Notification, Scheduler, StatusPatch, Verb, VictimEviction,
    WhatIf, WhatIfError,
};

/// How long the cluster may take to come to rest.
const PATIENCE: Duration = Duration::from_mins(10);
/// How many cycles it may take. A pod can preempt another one, in vain, as often as that comes
/// back.
const MOST_CYCLES: usize = 2000;
const ZONES: usize = 2;

/// What a model does wrong on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mistake {
    None,
    /// Controllers replace no pod.
    ReplacesNothing,
    /// Budgets protect nothing.
    IgnoresBudgets,
    /// Pods are created without their priority.
    ForgetsPriorities,
}

/// The pods that a controller wants.
struct Workload {
    template: PodInfo,
    wanted: usize,
}

/// A cluster in which everything happens at once.
struct Cluster {
    scheduler: Scheduler,
    now: Now,
    pods: BTreeMap<Arc<str>, Arc<PodInfo>>,
    nodes: BTreeMap<Arc<str>, Arc<NodeRecord>>,
    workloads: BTreeMap<Arc<str>, Workload>,
    /// The pods that must stay of those with this label, and what the API says about it.
    budgets: BTreeMap<&'static str, (i64, Option<Arc<Object>>)>,
    /// The pod that each replacement stands for.
    origins: BTreeMap<Arc<str>, Arc<str>>,
    new_nodes: Vec<Arc<str>>,
    /// The pods of nodes that drains left, and failures took.
    of_nodes: usize,
    held_up: BTreeSet<Arc<str>>,
    versions: usize,
    /// Tells new UIDs of one run from those of another.
    salt: u64,
    mistake: Mistake,
}

/// The number of pods of each owner on each node, or pending.
type Placement = BTreeMap<(Arc<str>, Option<Arc<str>>), usize>;

fn kind_of(pod: &PodInfo) -> &str {
    pod.controller.as_ref().map_or("", |owner| &owner.kind)
}

fn is_of_node(pod: &PodInfo) -> bool {
    ["DaemonSet", "Node"].contains(&kind_of(pod))
}

/// The controller's name, or that of a pod without one. Copies of a pod count as this pod.
fn owner_of(pod: &PodInfo) -> Arc<str> {
    pod.controller.as_ref().map_or_else(|| base_name(&pod.name), |owner| Arc::clone(&owner.name))
}

fn base_name(name: &str) -> Arc<str> {
    name.split("-copy-").next().unwrap_or(name).into()
}

fn owned(mut pod: PodInfo, kind: &str, name: &str) -> PodInfo {
    let owner = OwnerRef { api_version: "v1".into(), kind: kind.into(), name: name.into(), uid: name.into() };
    pod.controller = Some(Arc::new(owner));
    pod
}

impl Cluster {
    fn new(salt: u64) -> Self {
        Self {
            scheduler: Scheduler::new(options(all_plugins(Vec::new()))).unwrap(),
            now: Now { wall: WALL, monotonic: Duration::ZERO },
            pods: BTreeMap::new(),
            nodes: BTreeMap::new(),
            workloads: BTreeMap::new(),
            budgets: BTreeMap::new(),
            origins: BTreeMap::new(),
            new_nodes: Vec::new(),
            of_nodes: 0,
            held_up: BTreeSet::new(),
            versions: 0,
            salt,
            mistake: Mistake::None,
        }
    }

    fn handle(&mut self, input: Input) {
        self.scheduler.handle(self.now, input);
    }

    fn pass(&mut self, time: Duration) {
        self.now = Now { wall: self.now.wall.plus(time), monotonic: self.now.monotonic + time };
        self.handle(Input::Tick);
    }

    fn version(&mut self) -> String {
        self.versions += 1;
        format!("{}-{}", self.salt, self.versions)
    }

    /// Runs until nothing is left to do. Says whether that took no longer than it may.
    fn rest(&mut self) -> bool {
        let until = self.now.monotonic + PATIENCE;
        let mut cycles = 0;
        loop {
            self.carry_out();
            cycles += 1;
            if cycles > MOST_CYCLES {
                return false;
            }
            if self.scheduler.schedule_one(self.now, &mut NoCalls) {
                continue;
            }
            let [active, backing_off, ..] = self.scheduler.queue_lengths();
            if active + backing_off + self.scheduler.bindings_in_flight() == 0 {
                assert_eq!(self.scheduler.inconsistencies(), Vec::<String>::new());
                return true;
            }
            if self.now.monotonic > until {
                return false;
            }
            self.pass(self.scheduler.next_deadline(self.now).max(Duration::from_millis(1)));
        }
    }

    fn carry_out(&mut self) {
        loop {
            let effects = self.scheduler.take_effects();
            if effects.is_empty() {
                return;
            }
            for effect in effects {
                match effect {
                    Effect::StartPreBind { pod, .. } => {
                        self.handle(Input::PreBound { pod: pod.uid.clone(), status: Status::success() });
                    }
                    Effect::Bind { pod, node, .. } => self.bind(&pod, &node),
                    Effect::PatchPodStatus(patch) => self.patch(&patch),
                    Effect::Evict { preemption, victims } => self.preempt(preemption, &victims),
                    Effect::Write { pod: Some(pod), .. } => {
                        self.handle(Input::WriteEnded { pod, retry: false });
                    }
                    Effect::ReadPod { pod, .. } => panic!("{pod} is read, but no answer was lost"),
                    Effect::Write { .. }
                    | Effect::CancelPreBind(_)
                    | Effect::PatchGroupStatus(_)
                    | Effect::RecordEvent(_) => {}
                }
            }
        }
    }

    /// The watch may be faster than the answer.
    fn bind(&mut self, pod: &PodInfo, node: &Arc<str>) {
        let answer =
            Input::Bound { pod: pod.uid.clone(), by: "DefaultBinder".into(), outcome: BindOutcome::Bound };
        let started = self.now.wall;
        let change = |pod: &mut PodInfo| {
            pod.node_name = Some(Arc::clone(node));
            pod.status.nominated_node_name = None;
            pod.status.start_time = Some(started);
        };
        if self.versions.is_multiple_of(2) {
            self.handle(answer);
            self.change(&pod.name, change);
        } else {
            self.change(&pod.name, change);
            self.handle(answer);
        }
    }

    fn patch(&mut self, patch: &StatusPatch) {
        if self.pods.get(&patch.pod.name).is_some_and(|pod| pod.uid == patch.uid) {
            self.change(&patch.pod.name, |pod| patch.apply(pod));
        }
    }

    /// A pod changes, and the watch reports it.
    fn change(&mut self, name: &str, change: impl FnOnce(&mut PodInfo)) {
        let old = Arc::clone(&self.pods[name]);
        let mut new = PodInfo::clone(&old);
        change(&mut new);
        new.resource_version = self.version().as_str().into();
        let new = Arc::new(new);
        self.pods.insert(Arc::clone(&new.name), Arc::clone(&new));
        match (old.is_assigned(), new.is_assigned()) {
            (true, _) => self.handle(Input::AssignedPod(Notification::Updated { old, new })),
            (false, false) => self.handle(Input::QueuedPod(Notification::Updated { old, new })),
            (false, true) => {
                self.handle(Input::AssignedPod(Notification::Added(new)));
                self.handle(Input::QueuedPod(Notification::Deleted(old)));
            }
        }
        self.update_budgets();
    }

    /// Victims terminate, and their controllers replace them, before they are gone.
    fn preempt(&mut self, preemption: u64, victims: &[VictimEviction]) {
        for victim in victims {
            self.change(&victim.pod.name, |pod| {
                pod.terminating = true;
                pod.status.disruption_target = victim.condition.clone().map(Box::new);
            });
            self.replace(&victim.pod.name);
        }
        self.handle(Input::Evicted { preemption, outcomes: vec![Eviction::Deleted; victims.len()] });
        for victim in victims {
            self.remove(&victim.pod.name);
        }
    }

    /// A pod is gone.
    fn remove(&mut self, name: &str) {
        let pod = self.pods.remove(name).unwrap();
        let gone = Notification::Deleted(Arc::clone(&pod));
        self.handle(if pod.is_assigned() { Input::AssignedPod(gone) } else { Input::QueuedPod(gone) });
        self.update_budgets();
    }

    /// A pod leaves its node, and its controller replaces it.
    fn evict(&mut self, name: &str) {
        self.remove(name);
        self.replace(name);
    }

    /// The controllers create the pods that are missing: one at most, which stands for this pod.
    fn replace(&mut self, name: &str) {
        if self.mistake == Mistake::ReplacesNothing {
            return;
        }
        let count = |owner: &Arc<str>| {
            self.pods.values().filter(|pod| !pod.terminating && owner_of(pod) == *owner).count()
        };
        let missing = self.workloads.iter().find(|(owner, workload)| count(owner) < workload.wanted);
        let Some((owner, template)) = missing.map(|(owner, it)| (Arc::clone(owner), it.template.clone()))
        else {
            return;
        };
        let new: Arc<str> = format!("{owner}-{}", self.version()).into();
        let origin = self.origins.get(name).cloned().unwrap_or_else(|| name.into());
        self.origins.insert(Arc::clone(&new), origin);
        self.create(PodInfo { name: new, ..template });
    }

    /// A pod comes, with or without a node.
    fn create(&mut self, mut pod: PodInfo) {
        let version = self.version();
        pod.uid = Uid::from(format!("{}-{version}", pod.name).as_str());
        pod.resource_version = version.as_str().into();
        if self.mistake == Mistake::ForgetsPriorities {
            pod.priority = 0;
        }
        let pod = Arc::new(pod);
        self.pods.insert(Arc::clone(&pod.name), Arc::clone(&pod));
        let new = Notification::Added(Arc::clone(&pod));
        self.handle(if pod.is_assigned() { Input::AssignedPod(new) } else { Input::QueuedPod(new) });
        self.update_budgets();
    }

    /// Budgets allow what exceeds the pods that must stay.
    fn update_budgets(&mut self) {
        for app in self.budgets.keys().copied().collect::<Vec<_>>() {
            let (_, known) = &self.budgets[app];
            let labels: Labels = [(APP, app)].into_iter().collect();
            let body = PodDisruptionBudget {
                selector: Some(LabelSelector::parse(&labels, []).unwrap()),
                disruptions_allowed: self.allowed(app) as i32,
                ..PodDisruptionBudget::default()
            };
            let known = known.clone();
            if known.as_ref().is_some_and(|known| known.body == Body::PodDisruptionBudget(body.clone())) {
                continue;
            }
            let key = format!("default/{app}");
            let new = object(&resources::POD_DISRUPTION_BUDGET, &key, Body::PodDisruptionBudget(body));
            let new = Arc::new(Object { resource_version: self.version().as_str().into(), ..new });
            self.budgets.get_mut(app).unwrap().1 = Some(Arc::clone(&new));
            self.handle(Input::Object(match known {
                None => Notification::Added(new),
                Some(old) => Notification::Updated { old, new },
            }));
        }
    }

    fn allowed(&self, app: &str) -> i64 {
        let is_healthy =
            |pod: &&Arc<PodInfo>| pod.is_assigned() && !pod.terminating && is_protected(pod, app);
        (self.pods.values().filter(is_healthy).count() as i64 - self.budgets[app].0).max(0)
    }

    /// The eviction API.
    fn may_be_evicted(&self, pod: &PodInfo) -> bool {
        let apps: Vec<_> = self.budgets.keys().filter(|app| is_protected(pod, app)).collect();
        apps.iter().all(|app| self.allowed(app) > 0) || self.mistake == Mistake::IgnoresBudgets
    }

    fn set_node(&mut self, node: NodeRecord) {
        let new = Arc::new(NodeRecord { resource_version: self.version().into(), ..node });
        let old = self.nodes.insert(Arc::clone(&new.name), Arc::clone(&new));
        self.handle(Input::Node(match old {
            None => Notification::Added(new),
            Some(old) => Notification::Updated { old, new },
        }));
    }

    /// The names of the pods on a node. kubectl evicts them in any order: here it is the
    /// scheduler's.
    fn pods_on(&self, node: &str) -> Vec<Arc<str>> {
        let info = self.scheduler.cache().nodes().get(node).unwrap();
        info.pods().iter().map(|pod| Arc::clone(&pod.name)).collect()
    }

    /// The pod that stands for this one now.
    fn present(&self, name: &Arc<str>) -> Option<Arc<str>> {
        let stands = |now: &&Arc<str>| self.origins.get(*now).unwrap_or(*now) == name;
        self.pods.keys().find(stands).cloned()
    }

    /// Applies a change. Says whether the cluster comes to rest.
    fn apply(&mut self, verb: &Verb) -> bool {
        match verb {
            Verb::AddNodes { like, count } => (0..*count).for_each(|_| self.add_node(like)),
            Verb::AddPods { like, count } => {
                let Some(like) = self.present(&like.name) else { return false };
                let like = PodInfo::clone(&self.pods[&like]);
                (0..*count).for_each(|_| self.add_pod(&like));
            }
            Verb::Delete(key) => {
                let Some(name) = self.present(&key.name) else { return false };
                if let Some(workload) = self.workloads.get_mut(&owner_of(&self.pods[&name])) {
                    workload.wanted -= 1;
                }
                self.remove(&name);
            }
            Verb::Cordon(name) => self.cordon(name),
            Verb::Uncordon(name) => {
                let mut node = NodeRecord::clone(&self.nodes[name]);
                node.unschedulable = false;
                node.taints = node.taints.iter().filter(|taint| !is_cordon(taint)).cloned().collect();
                self.set_node(node);
            }
            Verb::Drain(names) => return self.drain(names),
            Verb::Fail(names) => self.fail(names),
        }
        self.rest()
    }

    /// A node like this one comes, and its DaemonSets follow at once.
    fn add_node(&mut self, like: &Arc<str>) {
        let name: Arc<str> = format!("another-{}", self.new_nodes.len()).into();
        let of_node = self.pods_on(like);
        let like = NodeRecord::clone(&self.nodes[like]);
        let label = |(key, value): (&Arc<str>, &Arc<str>)| {
            (Arc::clone(key), if **key == *HOST { Arc::clone(&name) } else { Arc::clone(value) })
        };
        let labels = like.labels.iter().map(label).collect();
        let taints = like.taints.iter().filter(|taint| !is_cordon(taint)).cloned().collect();
        let (uid, unschedulable) = (Arc::clone(&name), false);
        self.set_node(NodeRecord { name: Arc::clone(&name), uid, labels, taints, unschedulable, ..like });
        for pod in of_node {
            let pod = PodInfo::clone(&self.pods[&pod]);
            if kind_of(&pod) == "DaemonSet" {
                let own = format!("{}-{name}", owner_of(&pod)).into();
                self.create(PodInfo { name: own, node_name: Some(Arc::clone(&name)), ..pod });
            }
        }
        self.new_nodes.push(name);
    }

    fn add_pod(&mut self, like: &PodInfo) {
        let name = format!("{}-copy-{}", base_name(&like.name), self.version()).into();
        if let Some(workload) = self.workloads.get_mut(&owner_of(like)) {
            workload.wanted += 1;
        }
        let (node_name, status) = (None, Default::default());
        self.create(PodInfo { name, node_name, status, ..like.clone() });
    }

    /// As kubectl and the node controller do it.
    fn cordon(&mut self, name: &Arc<str>) {
        let mut node = NodeRecord::clone(&self.nodes[name]);
        node.unschedulable = true;
        if !node.taints.iter().any(is_cordon) {
            let cordon = Taint { key: CORDON.into(), value: "".into(), effect: TaintEffect::NoSchedule };
            node.taints = node.taints.iter().cloned().chain([cordon]).collect();
        }
        self.set_node(node);
    }

    /// Evictions that a budget forbids are tried again once everything rests.
    fn drain(&mut self, names: &[Arc<str>]) -> bool {
        names.iter().for_each(|name| self.cordon(name));
        let on_them: Vec<_> = names.iter().flat_map(|name| self.pods_on(name)).collect();
        let (stay, mut left): (Vec<_>, Vec<_>) =
            on_them.into_iter().partition(|pod| is_of_node(&self.pods[pod]));
        self.of_nodes += stay.len();
        loop {
            left.retain(|pod| self.pods.contains_key(pod));
            let before = left.len();
            for pod in std::mem::take(&mut left) {
                if self.may_be_evicted(&self.pods[&pod]) {
                    self.evict(&pod);
                } else {
                    left.push(pod);
                }
            }
            if !self.rest() {
                return false;
            }
            if left.len() == before {
                break;
            }
        }
        self.held_up.extend(left);
        true
    }

    /// The nodes are gone, and then the pods that were on them.
    fn fail(&mut self, names: &[Arc<str>]) {
        let lost: Vec<_> = names.iter().flat_map(|name| self.pods_on(name)).collect();
        for name in names {
            let node = self.nodes.remove(name).unwrap();
            self.handle(Input::Node(Notification::Deleted(node)));
        }
        for pod in &lost {
            if is_of_node(&self.pods[pod]) {
                self.of_nodes += 1;
                self.remove(pod);
            } else {
                self.evict(pod);
            }
        }
    }

    fn placement(&self) -> Placement {
        let node = |name: &Arc<str>| match self.new_nodes.iter().position(|new| new == name) {
            Some(number) => new_node(number),
            None => Arc::clone(name),
        };
        let pods = self.pods.values().filter(|pod| !is_of_node(pod));
        counted(pods.map(|pod| (owner_of(pod), pod.node_name.as_ref().map(node))))
    }
}

const CORDON: &str = "node.kubernetes.io/unschedulable";

fn is_cordon(taint: &Taint) -> bool {
    *taint.key == *CORDON
}

fn is_protected(pod: &PodInfo, app: &str) -> bool {
    *pod.namespace == *"default" && pod.labels.get(APP).is_some_and(|label| **label == *app)
}

/// The name of the node that came as this one.
fn new_node(number: usize) -> Arc<str> {
    format!("new node {number}").into()
}

fn counted(places: impl Iterator<Item = (Arc<str>, Option<Arc<str>>)>) -> Placement {
    let mut counts = Placement::new();
    places.for_each(|place| *counts.entry(place).or_default() += 1);
    counts
}

/// What the answer says about the pods of the cluster, and the number that drains do not evict.
fn promised(cluster: &Cluster, verbs: &[Verb], answer: &WhatIf) -> (Placement, usize) {
    let mut new_nodes: BTreeMap<Arc<str>, Arc<str>> = BTreeMap::new();
    let mut added = 0;
    for verb in verbs {
        match verb {
            Verb::AddNodes { like, count } => {
                for _ in 0..*count {
                    added += 1;
                    new_nodes.insert(format!("{like}-new-{added}").into(), new_node(new_nodes.len()));
                }
            }
            Verb::AddPods { count, .. } => added += count,
            _ => {}
        }
    }
    let on = |node: &Arc<str>| Some(new_nodes.get(node).unwrap_or(node).clone());
    let pods = cluster.pods.values().filter(|pod| !is_of_node(pod));
    let mut places: BTreeMap<Arc<str>, (Arc<str>, Option<Arc<str>>)> =
        pods.map(|pod| (Arc::clone(&pod.name), (owner_of(pod), pod.node_name.clone()))).collect();
    for verb in verbs {
        if let Verb::Delete(key) = verb {
            places.remove(&key.name);
        }
    }
    let mut held_up = 0;
    for outcome in &answer.pods {
        let name = &outcome.pod.name;
        let owner =
            cluster.pods.get(name).or_else(|| cluster.pods.get(&base_name(name))).map(|pod| owner_of(pod));
        let place = match &outcome.end {
            End::On(node) | End::Back(node) => on(node),
            End::Pending(_) => None,
            End::HeldUp { node, .. } => {
                held_up += 1;
                on(node)
            }
            End::Gone => {
                places.remove(name);
                continue;
            }
            End::Unknown => panic!("{name} has no claims"),
        };
        places.insert(Arc::clone(name), (owner.expect("the pod or its model existed"), place));
    }
    (counted(places.into_values()), held_up)
}

/// Pods of a controller, or without one.
#[derive(Clone, Debug)]
struct PlannedWorkload {
    kind: &'static str,
    template: usize,
    cpu: usize,
    priority: i32,
    replicas: usize,
}

/// A change. Numbers select among what exists.
#[derive(Clone, Copy, Debug)]
enum Change {
    AddNodes(usize, usize),
    AddPods(usize, usize),
    Delete(usize),
    Cordon(usize),
    Uncordon(usize),
    Drain(usize),
    DrainTwo(usize),
    Fail(usize),
}

/// A cluster, and a question about it.
#[derive(Clone, Debug)]
struct Plan {
    nodes: Vec<(Shape, bool)>,
    workloads: Vec<PlannedWorkload>,
    budgets: Vec<(&'static str, i64)>,
    changes: Vec<Change>,
}

fn plan() -> impl Strategy<Value = Plan> {
    let shape = (0..=ZONES, 2..8_usize, 0..8_usize, prop::bool::weighted(0.1), any::<bool>(), 0..8_usize)
        .prop_map(|(zone, cpu, taint, is_unschedulable, has_ssd, images)| Shape {
            zone,
            cpu,
            taint,
            is_unschedulable,
            has_ssd,
            images,
            pods: 10,
        });
    let kind = prop_oneof![
        5 => Just("ReplicaSet"),
        2 => Just("Job"),
        1 => Just("StatefulSet"),
        1 => Just(""),
    ];
    // Number 25 spreads over nodes whose taints it tolerates. The answer cordons without a taint.
    let template = prop_oneof![2 => Just(40_usize), 3 => 0..25_usize, 1 => 26..35_usize];
    let workload =
        (kind, template, 0..4_usize, prop_oneof![3 => Just(0), 1 => Just(5), 1 => Just(9)], 1..5_usize)
            .prop_map(|(kind, template, cpu, priority, replicas)| PlannedWorkload {
                kind,
                template,
                cpu,
                priority,
                replicas,
            });
    let budget = (prop_oneof![Just("a"), Just("b"), Just("c")], 0..4_i64);
    let which = 0..100_usize;
    let change = prop_oneof![
        1 => (which.clone(), 1..3_usize).prop_map(|(like, count)| Change::AddNodes(like, count)),
        2 => (which.clone(), 1..4_usize).prop_map(|(like, count)| Change::AddPods(like, count)),
        1 => which.clone().prop_map(Change::Delete),
        1 => which.clone().prop_map(Change::Cordon),
        1 => which.clone().prop_map(Change::Uncordon),
        3 => which.clone().prop_map(Change::Drain),
        1 => which.clone().prop_map(Change::DrainTwo),
        2 => which.prop_map(Change::Fail),
    ];
    let budgets = prop_oneof![1 => Just(Vec::new()), 1 => prop::collection::vec(budget, 1..3)];
    (
        prop::collection::vec((shape, prop::bool::weighted(0.4)), 2..6),
        prop::collection::vec(workload, 1..6),
        budgets,
        prop::collection::vec(change, 1..3),
    )
        .prop_map(|(nodes, workloads, budgets, changes)| Plan { nodes, workloads, budgets, changes })
}

impl Plan {
    /// The cluster at rest; `None` if it finds none.
    fn cluster(&self, salt: u64) -> Option<Cluster> {
        let mut cluster = Cluster::new(0);
        for (app, least) in &self.budgets {
            cluster.budgets.insert(app, (*least, None));
        }
        for (number, (shape, has_daemon)) in self.nodes.iter().enumerate() {
            cluster.set_node(of_shape(number, 0, *shape, ZONES));
            if *has_daemon {
                let node = format!("n{number}");
                let (kind, priority) = if number % 3 == 2 { ("Node", 99) } else { ("DaemonSet", 100) };
                let daemon = of_template(40, &format!("agent-{node}")).priority(priority).node(&node).build();
                cluster.create(owned(daemon, kind, "agent"));
            }
        }
        for (number, planned) in self.workloads.iter().enumerate() {
            let owner: Arc<str> = format!("w{number}").into();
            let PlannedWorkload { kind, template, cpu, priority, replicas } = *planned;
            let mut pod = of_template(template, &owner).priority(priority);
            if cpu > 0 {
                pod = pod.request("cpu", &cpu.to_string());
            }
            let mut pod = pod.build();
            if !kind.is_empty() {
                pod = owned(pod, kind, &owner);
                let template = pod.clone();
                cluster.workloads.insert(Arc::clone(&owner), Workload { template, wanted: 0 });
            }
            for replica in 0..replicas {
                if let Some(workload) = cluster.workloads.get_mut(&owner) {
                    workload.wanted += 1;
                }
                cluster.create(PodInfo { name: format!("{owner}-{replica}").into(), ..pod.clone() });
                if replica % 2 == 0 && !cluster.rest() {
                    return None;
                }
                cluster.pass(Duration::from_secs(1));
            }
        }
        // Nothing differs between two runs up to here.
        let is_at_rest = cluster.rest();
        cluster.salt = salt;
        cluster.origins.clear();
        is_at_rest.then_some(cluster)
    }

    /// The question. A node that has failed is not named again.
    fn verbs(&self, cluster: &Cluster) -> Vec<Verb> {
        let mut nodes: Vec<_> = cluster.nodes.keys().cloned().collect();
        let pods: Vec<_> = cluster.pods.values().filter(|pod| !is_of_node(pod)).collect();
        let mut verbs = Vec::new();
        for change in &self.changes {
            let node = |which: usize| nodes.get(which % nodes.len().max(1)).cloned();
            let pod = |which: usize| pods.get(which % pods.len().max(1)).map(|pod| pod.key());
            verbs.extend(match *change {
                Change::AddNodes(which, count) => node(which).map(|like| Verb::AddNodes { like, count }),
                Change::AddPods(which, count) => pod(which).map(|like| Verb::AddPods { like, count }),
                Change::Delete(which) => pod(which).map(Verb::Delete),
                Change::Cordon(which) => node(which).map(Verb::Cordon),
                Change::Uncordon(which) => node(which).map(Verb::Uncordon),
                Change::Drain(which) => node(which).map(|node| Verb::Drain(vec![node])),
                Change::DrainTwo(which) => {
                    let mut two: Vec<_> = [node(which), node(which + 1)].into_iter().flatten().collect();
                    two.dedup();
                    Some(Verb::Drain(two))
                }
                Change::Fail(which) => node(which).map(|node| Verb::Fail(vec![node])),
            });
            if let Some(Verb::Fail(failed)) = verbs.last() {
                nodes.retain(|node| !failed.contains(node));
            }
        }
        verbs
    }
}

/// What became of a plan.
#[derive(Debug)]
enum Verdict {
    /// The answer came true, with so many other UIDs before.
    True(WhatIf, u64),
    /// The cluster does not come to rest, or the question has no answer.
    Unanswered,
}

/// The numbers of a node's preemption candidates that are alike depend on UIDs, which nobody
/// knows before. So the answer has to come true with one of a few.
const SALTS: u64 = 8;

/// Asks, makes the same changes, and compares.
fn check(plan: &Plan, mistake: Mistake) -> Result<Verdict, String> {
    let mut differences = Vec::new();
    for salt in 1..=if mistake == Mistake::None { SALTS } else { 1 } {
        let Some(mut cluster) = plan.cluster(salt) else { return Ok(Verdict::Unanswered) };
        let verbs = plan.verbs(&cluster);
        let fork = cluster.scheduler.fork(cluster.now, options(all_plugins(Vec::new()))).unwrap();
        let steps = AtomicUsize::new(0);
        let mut fork = fork.stop_when(move || steps.fetch_add(1, Ordering::Relaxed) > 2 * MOST_CYCLES);
        let answer = match fork.what_if(&verbs, 0) {
            Ok(answer) if answer.is_still => answer,
            Ok(_) | Err(WhatIfError::NoPod(_) | WhatIfError::Claims(_) | WhatIfError::Stopped) => {
                return Ok(Verdict::Unanswered);
            }
            Err(error) => return Err(error.to_string()),
        };
        let promised = promised(&cluster, &verbs, &answer);
        cluster.mistake = mistake;
        if !verbs.iter().all(|verb| cluster.apply(verb)) {
            return Ok(Verdict::Unanswered);
        }
        cluster.held_up.retain(|pod| cluster.pods.contains_key(pod));
        let happened = (cluster.placement(), cluster.held_up.len());
        if happened == promised && cluster.of_nodes == answer.of_nodes {
            return Ok(Verdict::True(answer, salt - 1));
        }
        differences.push(format!("{verbs:?}\npromised {promised:?}\nhappened {happened:?}"));
    }
    Err(differences.swap_remove(0))
}

/// The number of cases; `PROPTEST_CASES` overrides it.
fn config() -> Config {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(1000);
    Config { cases, failure_persistence: None, max_shrink_iters: 2000, ..Config::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn the_answer_comes_true(plan in plan()) {
        if let Err(difference) = check(&plan, Mistake::None) {
            prop_assert!(false, "{}", difference);
        }
    }
}

/// The plans that a generator makes first.
fn first_plans(count: usize) -> Vec<Plan> {
    let mut runner = TestRunner::deterministic();
    (0..count).map(|_| plan().new_tree(&mut runner).unwrap().current()).collect()
}

#[test]
fn a_wrong_model_is_noticed() {
    let plans = first_plans(100);
    for mistake in [Mistake::ReplacesNothing, Mistake::IgnoresBudgets, Mistake::ForgetsPriorities] {
        let noticed = plans.iter().filter(|plan| check(plan, mistake).is_err()).count();
        assert!(noticed >= 3, "{mistake:?} is noticed in {noticed} plans");
    }
}

#[test]
fn plans_lead_to_all_that_may_become_of_a_pod() {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for plan in first_plans(200) {
        let Ok(Verdict::True(answer, attempts)) = check(&plan, Mistake::None) else {
            *counts.entry("unanswered").or_default() += 1;
            continue;
        };
        let mut seen: Vec<_> = answer.pods.iter().map(|pod| name_of(&pod.end)).collect();
        seen.extend(answer.pods.iter().filter(|pod| pod.is_preempted).map(|_| "preempted"));
        seen.extend((attempts > 0).then_some("chance"));
        seen.sort_unstable();
        seen.dedup();
        seen.into_iter().for_each(|end| *counts.entry(end).or_default() += 1);
    }
    let of = |end: &str| counts.get(end).copied().unwrap_or_default();
    for end in ["on", "pending", "gone", "held up", "preempted"] {
        assert!(of(end) >= 5, "{counts:?}");
    }
    assert!(of("unanswered") <= 60 && of("chance") <= 10, "{counts:?}");
}

fn name_of(end: &End) -> &'static str {
    match end {
        End::On(_) => "on",
        End::Back(_) => "back",
        End::Pending(_) => "pending",
        End::Gone => "gone",
        End::HeldUp { .. } => "held up",
        End::Unknown => "unknown",
    }
}
