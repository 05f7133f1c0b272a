//! What a giant object costs grows as the object and the cluster do, not as their product: from its
//! bytes to its binding.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;
use supercargo_codec::{NodeKind, ObjectKind, PodKind};
use supercargo_framework::caching::Stateless;
use supercargo_framework::objects::Object;
use supercargo_framework::plugin::{ExtensionPoints, FilterPlugin};
use supercargo_framework::taint::{Taint, TaintEffect, Toleration, TolerationOperator, tolerated};
use supercargo_framework::testing::giants::{
    Hostile, NodeList, PodList, objects, plain_node, plain_pod, type_of,
};
use supercargo_framework::testing::pod;
use supercargo_framework::{
    Context, CycleState, Features, NodeInfo, NodeRecord, Now, Plugin, PodInfo, Status, Timestamp, steps,
};
use supercargo_scheduler::{
    Effect, Input, NoCalls, Notification, Options, PluginLists, ProfileSpec, Scheduler,
};

/// The count of steps is that of the process, so one test runs at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// A profile with the in-tree plugins, and then these.
fn options(more: Vec<Arc<dyn Plugin>>) -> Options {
    let registry = supercargo_plugins::registry();
    let build = |name| {
        let factory = registry.get(name).expect("every default plugin is registered");
        factory(&serde_json::Value::Null, &Features::default()).expect("it builds without arguments")
    };
    let in_tree = supercargo_plugins::DEFAULT_PLUGINS.iter().map(|it| (build(it.name), it.weight));
    let profile = ProfileSpec {
        scheduler_name: "supercargo".to_owned(),
        percentage_of_nodes_to_score: None,
        plugins: PluginLists::multi_point(in_tree.chain(more.into_iter().map(|plugin| (plugin, 1)))),
    };
    Options { profiles: vec![profile], ..Options::default() }
}

/// The number of items and of nodes.
#[derive(Clone, Copy)]
struct Size {
    items: usize,
    nodes: usize,
}

const SMALL: Size = Size { items: 1200, nodes: 40 };
const TWICE: Size = Size { items: 2400, nodes: 80 };

/// The steps may double with the size, and those of a sorted lookup grow a little. They would
/// quadruple with items × items or items × nodes.
const MOST_GROWTH: f64 = 2.6;

struct Cluster {
    scheduler: Scheduler,
    now: Now,
}

impl Cluster {
    /// A cluster with one pod on each node, which giants can preempt.
    fn new(nodes: usize, more: Vec<Arc<dyn Plugin>>) -> Self {
        Self::of(nodes, nodes / 4, options(more))
    }

    fn of(nodes: usize, namespaces: usize, options: Options) -> Self {
        let scheduler = Scheduler::new(options).expect("the options are valid");
        let mut cluster = Self {
            scheduler,
            now: Now { wall: Timestamp(1_767_225_600_000_000), monotonic: Duration::ZERO },
        };
        objects(nodes, namespaces).for_each(|object| cluster.add_object(other_of(&object)));
        for i in 0..nodes {
            let on_it = pod_of(&plain_pod(i, nodes, namespaces));
            cluster.handle(Input::Node(Notification::Added(Arc::new(node_of(&plain_node(i))))));
            cluster.handle(Input::AssignedPod(Notification::Added(Arc::new(on_it))));
        }
        cluster
    }

    fn handle(&mut self, input: Input) {
        self.scheduler.handle(self.now, input);
        self.scheduler.take_effects();
    }

    fn add_object(&mut self, object: Object) {
        self.handle(Input::Object(Notification::Added(Arc::new(object))));
    }

    /// Adds a pod to the queue and runs its first cycle, if it is not gated.
    fn try_pod(&mut self, pod: PodInfo) {
        self.handle(Input::QueuedPod(Notification::Added(Arc::new(pod))));
        self.scheduler.schedule_one(self.now, &mut NoCalls);
        self.scheduler.take_effects();
    }

    /// A label of a node changes.
    fn relabel(&mut self, i: usize) {
        let old = Arc::new(node_of(&plain_node(i)));
        let labels = old.labels.iter().map(|(key, value)| (Arc::clone(key), Arc::clone(value)));
        let labels = labels.chain([("new".into(), "".into())]).collect();
        let new = NodeRecord { labels, resource_version: "2".into(), ..(*old).clone() };
        self.handle(Input::Node(Notification::Updated { old, new: Arc::new(new) }));
    }
}

fn pod_of(pod: &Value) -> PodInfo {
    PodKind::new([""; 0]).decode(pod.to_string().as_bytes()).expect("the pod is valid")
}

fn node_of(node: &Value) -> NodeRecord {
    NodeKind::new([""; 0]).decode(node.to_string().as_bytes()).expect("the node is valid")
}

fn other_of(object: &Value) -> Object {
    let [version, kind] = type_of(object);
    let kind = ObjectKind::of_type(version, kind).expect("the kind is built in");
    kind.decode(object.to_string().as_bytes()).expect("the object is valid")
}

fn steps_of(run: impl FnOnce()) -> u64 {
    let before = steps::taken();
    run();
    steps::taken() - before
}

/// The life of a giant: alone, beside another one of its kind on a node, and while others are
/// scheduled and nodes change.
fn life_of_pod(list: PodList, Size { items, nodes }: Size, more: Vec<Arc<dyn Plugin>>) -> u64 {
    let giant = |name: &str| pod_of(&list.pod(name, items));
    let namespaces = if list.concerns_namespace() { 1 } else { nodes / 4 };
    let mut cluster = Cluster::of(nodes, namespaces, options(more));
    let objects: Vec<_> = list.objects(items).iter().map(other_of).collect();
    steps_of(|| {
        for object in objects {
            cluster.add_object(object);
        }
        cluster.try_pod(giant("alone"));
        let bound = Arc::new(PodInfo { node_name: Some("node-0".into()), ..giant("bound") });
        cluster.handle(Input::AssignedPod(Notification::Added(Arc::clone(&bound))));
        cluster.try_pod(giant("another"));
        cluster.try_pod(pod("plain").label("app", "other").request("cpu", "1").build());
        cluster.relabel(1);
        cluster.try_pod(giant("last"));
        cluster.handle(Input::AssignedPod(Notification::Deleted(bound)));
    })
}

fn growth(steps: impl Fn(Size) -> u64) -> f64 {
    steps(TWICE) as f64 / steps(SMALL) as f64
}

#[test]
fn steps_double_with_the_list_of_a_pod_and_the_nodes() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let growth_of = |list: PodList| growth(|size| life_of_pod(list, size, Vec::new()));
    let growths: Vec<_> = PodList::ALL.into_iter().map(|list| (list, growth_of(list))).collect();
    let too_steep: Vec<_> = growths.iter().filter(|(_, growth)| *growth > MOST_GROWTH).collect();
    assert!(too_steep.is_empty(), "{too_steep:?} of {growths:?}");
}

/// The steps of a giant's first cycle for each of its items.
fn steps_per_item(list: PodList, Size { items, nodes }: Size) -> f64 {
    let mut cluster = Cluster::new(nodes, Vec::new());
    list.objects(items).iter().for_each(|object| cluster.add_object(other_of(object)));
    let giant = pod_of(&list.pod("giant", items));
    steps_of(|| cluster.try_pod(giant)) as f64 / items as f64
}

/// The steps of claims that are sorted by their long keys grow no faster than the list. They are
/// only several times as many.
#[test]
fn claims_of_a_giant_are_not_sorted_by_key() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    // Sorted, they took 48.
    let steps = steps_per_item(PodList::ProvisionedClaims, TWICE);
    assert!(steps < 20.0, "{steps} steps per item");
}

#[test]
fn steps_double_with_the_list_of_a_node_and_the_nodes() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let life = |list: NodeList, Size { items, nodes }: Size| {
        let mut cluster = Cluster::new(nodes, Vec::new());
        steps_of(|| {
            let giant = Arc::new(node_of(&list.node("giant", items)));
            cluster.handle(Input::Node(Notification::Added(Arc::clone(&giant))));
            cluster.try_pod(pod("a").label("app", "a").image("app").request("example.com/x", "1").build());
            let new = Arc::new(NodeRecord { unschedulable: true, ..(*giant).clone() });
            cluster.handle(Input::Node(Notification::Updated { old: giant, new: Arc::clone(&new) }));
            cluster.try_pod(pod("b").label("app", "b").image("app").build());
            cluster.handle(Input::Node(Notification::Deleted(new)));
        })
    };
    for list in NodeList::ALL {
        let growth = growth(|size| life(list, size));
        assert!(growth < MOST_GROWTH, "{list:?}: {growth}");
    }
}

#[test]
fn tables_of_giants_keep_to_their_memory() {
    const LIMIT: usize = 1 << 18;
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    for list in PodList::ALL {
        let mut cluster = Cluster::of(20, 5, Options { table_memory: LIMIT, ..options(Vec::new()) });
        list.objects(200).iter().for_each(|object| cluster.add_object(other_of(object)));
        // Fewer cycles than between two counts.
        for number in 0..30 {
            let giant = pod_of(&list.pod(&format!("giant-{number}"), 200 + number));
            cluster.try_pod(giant);
            let bytes = cluster.scheduler.stats().tables.bytes;
            assert!(bytes <= LIMIT, "{list:?}: {bytes} bytes after {number} giants");
        }
    }
}

#[test]
fn a_taint_is_not_compared_with_every_bound() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    for operator in [TolerationOperator::Lt, TolerationOperator::Gt] {
        // None of them tolerates the taint.
        let bound = |i: i64| if operator == TolerationOperator::Lt { -i } else { i };
        let toleration = |i| {
            let value = bound(i).to_string().into();
            Toleration { key: "level".into(), operator, value, effect: None }
        };
        let tolerations = (0..10_000).map(toleration).collect();
        let taint = Taint { key: "level".into(), value: "0".into(), effect: TaintEffect::NoSchedule };
        let steps = steps_of(|| assert!(!tolerated(&tolerations, &taint)));
        assert!(steps < 1000, "{steps} steps for {operator:?}");
    }
}

/// The most steps of an attempt for devices: the budget with the most that devices add, once for
/// tables and once for the plain path, and some for what else a cycle does.
const MOST_DEVICE_STEPS: u64 = 2 * (2_000_000 + 2_000_000) + 1_000_000;

/// The nodes that a pod may be bound to, by what the scheduler asks for.
fn bound_nodes(effects: Vec<Effect>) -> Vec<Arc<str>> {
    let node = |effect| match effect {
        Effect::Bind { node, .. } | Effect::StartPreBind { node, .. } => Some(node),
        _ => None,
    };
    effects.into_iter().filter_map(node).collect()
}

#[test]
fn hostile_claims_keep_to_a_budget_and_other_pods_go_on() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    for hostile in Hostile::ALL {
        let attempt = |nodes: usize| {
            let mut cluster = Cluster::new(nodes, Vec::new());
            for object in hostile.objects(nodes) {
                cluster.handle(Input::Object(Notification::Added(Arc::new(object))));
            }
            let pods = [hostile.pod("hostile"), pod("plain").build()];
            pods.map(|pod| {
                let before = steps::taken();
                cluster.handle(Input::QueuedPod(Notification::Added(Arc::new(pod))));
                cluster.scheduler.schedule_one(cluster.now, &mut NoCalls);
                let bound = bound_nodes(cluster.scheduler.take_effects());
                (steps::taken() - before, bound.len())
            })
        };
        for nodes in [SMALL.nodes, TWICE.nodes] {
            let [(steps, hostile_bound), (_, plain_bound)] = attempt(nodes);
            assert!(steps < MOST_DEVICE_STEPS, "{hostile:?}: {steps} steps on {nodes} nodes");
            assert_eq!((hostile_bound, plain_bound), (0, 1), "{hostile:?}");
        }
    }
}

/// A filter that costs the product of a pod's labels with something.
struct Steep {
    /// Whether with themselves, or with the nodes.
    squared: bool,
}

impl Plugin for Steep {
    fn name(&self) -> &'static str {
        "Steep"
    }

    fn extension_points(self: Arc<Self>) -> ExtensionPoints {
        ExtensionPoints::new().filter(&self).incremental(&Arc::new(Stateless))
    }
}

impl FilterPlugin for Steep {
    fn filter(&self, _: &Context<'_>, _: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Status {
        let look_up = |key: &str| node.node().labels.get(key).is_some();
        let is_first = &**node.name() == "node-0";
        let again = if self.squared && is_first { pod.labels.len() } else { usize::from(!self.squared) };
        let found = (0..again).any(|_| pod.labels.iter().any(|(key, _)| look_up(key)));
        if found { Status::unschedulable("found") } else { Status::success() }
    }
}

#[test]
fn products_of_items_and_nodes_are_noticed() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    for squared in [true, false] {
        let growth = growth(|size| life_of_pod(PodList::Labels, size, vec![Arc::new(Steep { squared })]));
        assert!(growth > 3.0, "squared {squared}: {growth}");
    }
}
