//! Common parts of the benchmarks: a scheduler with every plugin, nodes, pods, and a manual clock.
//!
//! `cargo bench -p supercargo-benches`. Machines are noisy: compare ratios of one run, or two
//! baselines of one machine (`-- --save-baseline before`, `-- --baseline before`), never single
//! times.

mod args;
pub mod check;
pub mod claims;
pub mod devices;
pub mod figure;
pub mod plan;
mod progress;
pub mod random;
pub mod workload;

use std::sync::Arc;
use std::time::{Duration, Instant};

use supercargo_framework::binding::BindOutcome;
use supercargo_framework::testing::{node, pod};
use supercargo_framework::{NodeRecord, Now, PodInfo, Timestamp};
use supercargo_scheduler::{
    Effect, Input, NoCalls, Notification, Observer, Options, PluginLists, ProfileSpec, Scheduler,
};

pub use args::{FilterArgs, Output, RunArgs};
pub use progress::{Progress, grouped};

/// A scheduler with a manual clock.
pub struct Bench {
    /// The scheduler.
    pub scheduler: Scheduler,
    /// The time.
    pub now: Now,
}

/// Options with one profile, `supercargo`, that has every in-tree plugin.
///
/// # Panics
/// If a default plugin does not build, which is a bug.
pub fn default_options() -> Options {
    let registry = supercargo_plugins::registry();
    let build = |name| {
        let factory = registry.get(name).expect("every default plugin is registered");
        factory(&serde_json::Value::Null, &supercargo_framework::Features::default())
            .expect("every default plugin builds without arguments")
    };
    let plugins =
        supercargo_plugins::DEFAULT_PLUGINS.iter().map(|plugin| (build(plugin.name), plugin.weight));
    Options {
        profiles: vec![ProfileSpec {
            scheduler_name: "supercargo".to_owned(),
            percentage_of_nodes_to_score: None,
            plugins: PluginLists::multi_point(plugins),
        }],
        extenders: Vec::new(),
        percentage_of_nodes_to_score: None,
        ..Options::default()
    }
}

impl Bench {
    /// A scheduler with this many nodes in three zones: 32 CPUs, 256 GiB and 110 pods each.
    ///
    /// # Panics
    /// If the default options are invalid, which is a bug.
    pub fn with_nodes(count: usize) -> Self {
        Self::of(default_options(), count)
    }

    /// The same with other options.
    ///
    /// # Panics
    /// If the options are invalid.
    pub fn of(options: Options, count: usize) -> Self {
        let scheduler = Scheduler::new(options).expect("the options make a scheduler");
        let wall = Timestamp(1_767_225_600_000_000);
        let mut bench = Self { scheduler, now: Now { wall, monotonic: Duration::ZERO } };
        for i in 0..count {
            bench.handle(Input::Node(Notification::Added(Arc::new(sized_node(i)))));
        }
        bench
    }

    /// A scheduler with an observer.
    #[must_use]
    pub fn watched_by(self, observer: Box<dyn Observer>) -> Self {
        Self { scheduler: self.scheduler.with_observer(observer), now: self.now }
    }

    /// Sends the scheduler an input and drops its effects.
    pub fn handle(&mut self, input: Input) {
        self.scheduler.handle(self.now, input);
        self.scheduler.take_effects();
    }

    /// Adds a pod to the queue.
    pub fn add_pod(&mut self, pod: PodInfo) {
        self.handle(Input::QueuedPod(Notification::Added(Arc::new(pod))));
    }

    /// Runs a cycle and, if it found a node, confirms the binding as the informer would.
    pub fn schedule_and_bind(&mut self) -> bool {
        let scheduled = self.scheduler.schedule_one(self.now, &mut NoCalls);
        for effect in self.scheduler.take_effects() {
            self.carry_out(effect);
        }
        scheduled
    }

    /// Confirms a binding as the binder and the informer would. Drops other effects.
    pub fn carry_out(&mut self, effect: Effect) {
        let Effect::Bind { pod, node, .. } = effect else { return };
        self.handle(Input::Bound {
            pod: pod.uid.clone(),
            by: "DefaultBinder".into(),
            outcome: BindOutcome::Bound,
        });
        let bound = PodInfo { node_name: Some(node), resource_version: "2".into(), ..(*pod).clone() };
        self.handle(Input::AssignedPod(Notification::Added(Arc::new(bound))));
        self.handle(Input::QueuedPod(Notification::Deleted(pod)));
    }

    /// Advances the clock.
    pub fn pass(&mut self, duration: Duration) {
        self.now = Now { wall: self.now.wall.plus(duration), monotonic: self.now.monotonic + duration };
        self.handle(Input::Tick);
    }
}

/// The time that this thread has had a processor; `None` where the system does not say. Other
/// programs on the machine lengthen the time on the wall.
fn processor_time() -> Option<Duration> {
    // The system accounts for it when threads change.
    std::thread::yield_now();
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_whitespace().next()?.parse().ok().map(Duration::from_nanos)
}

/// The processor time that this takes, or else the time on the wall.
pub fn time_of(run: impl FnOnce()) -> Duration {
    let (before, wall) = (processor_time(), Instant::now());
    run();
    let wall = wall.elapsed();
    match (before, processor_time()) {
        (Some(before), Some(after)) => after.saturating_sub(before),
        _ => wall,
    }
}

fn sized_node(i: usize) -> NodeRecord {
    node(&format!("node-{i}"))
        .zone(["a", "b", "c"][i % 3])
        .allocatable("cpu", "32")
        .allocatable("memory", "256Gi")
        .build()
}

/// scheduler_perf's default pod: 100m CPU, 500 MiB.
pub fn default_pod(name: &str) -> PodInfo {
    pod(name).request("cpu", "100m").request("memory", "500Mi").build()
}

/// A pod that fits no node.
pub fn too_big_pod(name: &str) -> PodInfo {
    pod(name).request("cpu", "999").build()
}
