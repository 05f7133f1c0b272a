use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use supercargo_framework::testing::{PodBuilder, node, pod};
use supercargo_framework::{Features, Now, Timestamp};
use supercargo_scheduler::{
    Effect, Input, NoCalls, Notification, Options, PluginLists, ProfileSpec, Scheduler,
};

use super::{GANG, GANG_SIZE, from_args};

/// A scheduler whose default profile has the plugin, a node for `cpus` pods, and the time.
struct TestBed {
    scheduler: Scheduler,
    now: Now,
}

impl TestBed {
    fn new(cpus: u32) -> Self {
        let catalog = supercargo::config::Catalog::in_tree();
        let build = |name| {
            let factory = catalog.registry.get(name).expect("a default plugin is registered");
            factory(&json!({}), &Features::default()).expect("it needs no arguments")
        };
        let defaults = catalog.defaults.iter().map(|plugin| (build(plugin.name), plugin.weight));
        let gang = from_args(&json!({"timeoutSeconds": 30}), &Features::default()).expect("good arguments");
        let profile = ProfileSpec {
            scheduler_name: "supercargo".to_owned(),
            percentage_of_nodes_to_score: None,
            plugins: PluginLists::multi_point(defaults.chain([(gang, 0)])),
        };
        let scheduler = Scheduler::new(Options { profiles: vec![profile], ..Options::default() }).unwrap();
        let mut bed = Self { scheduler, now: Now { wall: Timestamp(0), monotonic: Duration::ZERO } };
        let node = node("n").allocatable("cpu", &cpus.to_string()).build();
        bed.scheduler.handle(bed.now, Input::Node(Notification::Added(Arc::new(node))));
        bed
    }

    fn pod(&mut self, pod: PodBuilder) {
        self.scheduler.handle(self.now, Input::QueuedPod(Notification::Added(Arc::new(pod.build()))));
    }

    /// Schedules every active pod, and returns the names of bound pods.
    fn bound(&mut self) -> Vec<String> {
        while self.scheduler.schedule_one(self.now, &mut NoCalls) {}
        let effects = self.scheduler.take_effects();
        let bound = effects.into_iter().filter_map(|effect| match effect {
            Effect::Bind { pod, .. } => Some(pod.name.to_string()),
            _ => None,
        });
        bound.collect()
    }

    fn pass(&mut self, seconds: u64) {
        let passed = Duration::from_secs(seconds);
        self.now = Now { wall: self.now.wall.plus(passed), monotonic: self.now.monotonic + passed };
        self.scheduler.handle(self.now, Input::Tick);
    }
}

fn member(name: &str, gang: &str) -> PodBuilder {
    pod(name).request("cpu", "1").label(GANG, gang).label(GANG_SIZE, "3")
}

#[test]
fn complete_gangs_are_bound() {
    let mut bed = TestBed::new(8);
    bed.pod(member("a", "g"));
    bed.pod(member("b", "g"));
    bed.pod(member("other", "h"));
    bed.pod(pod("single").request("cpu", "1"));
    assert_eq!(bed.bound(), ["single"]);
    bed.pod(member("c", "g"));
    let mut bound = bed.bound();
    bound.sort();
    assert_eq!(bound, ["a", "b", "c"]);
}

#[test]
fn incomplete_gangs_release_their_nodes() {
    let mut bed = TestBed::new(2);
    for name in ["a", "b", "c"] {
        bed.pod(member(name, "g"));
    }
    assert_eq!(bed.bound(), Vec::<String>::new());
    bed.pod(pod("single").request("cpu", "1"));
    assert_eq!(bed.bound(), Vec::<String>::new(), "the gang holds the node");
    // All give up with the first.
    bed.pass(31);
    assert_eq!(bed.scheduler.bindings_in_flight(), 0);
    assert!(bed.bound().contains(&"single".to_owned()));
}

#[test]
fn the_missing_pod_wakes_a_rejected_gang() {
    let mut bed = TestBed::new(8);
    bed.pod(member("a", "g"));
    bed.pod(member("b", "g"));
    assert_eq!(bed.bound(), Vec::<String>::new());
    bed.pass(31);
    assert_eq!(bed.scheduler.queue_lengths()[2], 2, "both wait in unschedulableEntities");
    bed.pod(member("c", "g"));
    let mut bound = bed.bound();
    bound.sort();
    assert_eq!(bound, ["a", "b", "c"]);
}
