//! A test bed: a scheduler, a clock that tests set, and the effects to check.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use supercargo_framework::binding::{ApiError, BindOutcome, Certainty};
use supercargo_framework::context::Victims;
use supercargo_framework::plugin::Nomination;
use supercargo_framework::testing::{NodeBuilder, PodBuilder, node, pod};
use supercargo_framework::{Features, Now, Plugin, PodInfo, Status, Timestamp};
use supercargo_plugins::{default_preemption, dynamic_resources};

use crate::{
    BuildError, Effect, ExtenderSpec, Input, NoCalls, Notification, Observation, Observer, Options, Place,
    PluginLists, PodRead, ProfileSpec, QueuedPod, Scheduler,
};

pub(super) const WALL: Timestamp = Timestamp(1_767_225_600_000_000);

/// A scheduler, the time, and the effects that the test has not taken yet.
pub(super) struct TestBed {
    pub(super) scheduler: Scheduler,
    pub(super) now: Now,
    effects: Vec<Effect>,
    observed: Arc<Mutex<Vec<String>>>,
}

const POST_FILTERS: [&str; 2] = [default_preemption::NAME, dynamic_resources::NAME];

/// The in-tree plugins without PostFilter, then the given ones, at all points they implement.
pub(super) fn plugins(more: Vec<Arc<dyn Plugin>>) -> PluginLists {
    configured_plugins(|_| serde_json::Value::Null, more)
}

/// The same with arguments by name.
pub(super) fn configured_plugins(
    args: impl Fn(&str) -> serde_json::Value,
    more: Vec<Arc<dyn Plugin>>,
) -> PluginLists {
    in_tree(&Features::default(), |name| !POST_FILTERS.contains(&name), args, more)
}

/// The in-tree plugins, then the given ones, at all points they implement.
pub(super) fn all_plugins(more: Vec<Arc<dyn Plugin>>) -> PluginLists {
    in_tree(&Features::default(), |_| true, |_| serde_json::Value::Null, more)
}

pub(super) fn in_tree(
    features: &Features,
    wanted: impl Fn(&str) -> bool,
    args: impl Fn(&str) -> serde_json::Value,
    more: Vec<Arc<dyn Plugin>>,
) -> PluginLists {
    let registry = supercargo_plugins::registry();
    let build = |name| registry.get(name).unwrap()(&args(name), features).unwrap();
    let defaults = supercargo_plugins::DEFAULT_PLUGINS.iter();
    let defaults = defaults.filter(|p| wanted(p.name) && p.is_enabled(features));
    let defaults = defaults.map(|p| (build(p.name), p.weight));
    PluginLists::multi_point(defaults.chain(more.into_iter().map(|plugin| (plugin, 1))))
}

pub(super) fn options(plugins: PluginLists) -> Options {
    Options {
        profiles: vec![ProfileSpec {
            scheduler_name: "supercargo".to_owned(),
            percentage_of_nodes_to_score: None,
            plugins,
        }],
        extenders: Vec::new(),
        percentage_of_nodes_to_score: None,
        ..Options::default()
    }
}

struct Notes(Arc<Mutex<Vec<String>>>);

impl Observer for Notes {
    fn observe(&self, observation: Observation<'_>) {
        let line = match observation {
            Observation::QueueIncoming { queue, event, .. } => format!("{queue:?} by {event}"),
            Observation::Anomaly(text) => format!("anomaly: {text}"),
            Observation::PermitWaited { result, waited } => format!("permit {result} after {waited:?}"),
            Observation::Preempting { victims, .. } => {
                let Victims { pods, pdb_violations, of_groups } = victims;
                match (of_groups, pdb_violations) {
                    (0, 0) => format!("preempts {}", pods.len()),
                    _ => {
                        format!("preempts {}: {of_groups} of groups, {pdb_violations} protected", pods.len())
                    }
                }
            }
            Observation::GroupPreemptionEvaluated { status, .. } => format!("victims searched: {status:?}"),
            Observation::Preempted { preemptor, failed, .. } => {
                format!("{} preempted, failed: {failed}", preemptor.kind())
            }
            Observation::Placements { count, .. } => format!("{count} placements"),
            Observation::PlacementTried { is_feasible, .. } => format!("placement fits: {is_feasible}"),
            Observation::GroupAttempt { result, .. } => format!("group attempt {result:?}"),
            Observation::ClaimCreation { is_created } => format!("claim created: {is_created}"),
            Observation::DevicesAwaited { profile, wait, .. } => {
                format!("profile {profile} awaited {:?}: {}", wait.drivers, wait.outcome.as_str())
            }
            Observation::NodeTaken => "node taken".to_owned(),
            Observation::LostRace => "lost race".to_owned(),
            Observation::Attempt { result, attempts, .. } => format!("attempt {attempts} {result:?}"),
            Observation::Hint { plugin, hint, .. } => format!("{plugin} hints {hint}"),
            _ => return,
        };
        self.0.lock().unwrap().push(line);
    }
}

impl TestBed {
    pub(super) fn new() -> Self {
        Self::with(Vec::new())
    }

    pub(super) fn with(more: Vec<Arc<dyn Plugin>>) -> Self {
        Self::of(options(plugins(more)))
    }

    pub(super) fn of(options: Options) -> Self {
        let observed = Arc::<Mutex<Vec<String>>>::default();
        let scheduler = Scheduler::new(options).unwrap().with_observer(Box::new(Notes(observed.clone())));
        let now = Now { wall: WALL, monotonic: Duration::ZERO };
        Self { scheduler, now, effects: Vec::new(), observed }
    }

    pub(super) fn extended(extenders: Vec<ExtenderSpec>) -> Self {
        Self::of(Options { extenders, ..options(plugins(Vec::new())) })
    }

    pub(super) fn handle(&mut self, input: Input) {
        self.scheduler.handle(self.now, input);
        self.collect();
    }

    pub(super) fn reconfigure(&mut self, options: Options) -> Result<(), BuildError> {
        let result = self.scheduler.reconfigure(self.now, options);
        self.collect();
        result
    }

    fn collect(&mut self) {
        self.effects.extend(self.scheduler.take_effects());
        assert_eq!(self.scheduler.inconsistencies(), Vec::<String>::new());
    }

    /// Runs one cycle; `false` if no pod was popped.
    pub(super) fn cycle(&mut self) -> bool {
        self.cycle_with(&mut NoCalls)
    }

    pub(super) fn cycle_with(&mut self, calls: &mut dyn crate::Calls) -> bool {
        let tried = self.scheduler.schedule_one(self.now, calls);
        self.collect();
        tried
    }

    /// Advances the clock and sends a tick.
    pub(super) fn pass(&mut self, duration: Duration) {
        self.now = Now { wall: self.now.wall.plus(duration), monotonic: self.now.monotonic + duration };
        self.handle(Input::Tick);
    }

    pub(super) fn pass_seconds(&mut self, seconds: u64) {
        self.pass(Duration::from_secs(seconds));
    }

    pub(super) fn node(&mut self, node: NodeBuilder) {
        self.handle(Input::Node(Notification::Added(Arc::new(node.build()))));
    }

    pub(super) fn update_node(&mut self, old: NodeBuilder, new: NodeBuilder) {
        let (old, new) = (Arc::new(old.build()), Arc::new(new.build()));
        self.handle(Input::Node(Notification::Updated { old, new }));
    }

    pub(super) fn delete_node(&mut self, node: NodeBuilder) {
        self.handle(Input::Node(Notification::Deleted(Arc::new(node.build()))));
    }

    /// Adds a pod without a node.
    pub(super) fn pod(&mut self, pod: PodBuilder) {
        self.handle(Input::QueuedPod(Notification::Added(Arc::new(pod.build()))));
    }

    pub(super) fn update(&mut self, old: PodBuilder, new: PodBuilder) {
        let (old, new) = (Arc::new(old.build()), Arc::new(new.build()));
        self.handle(Input::QueuedPod(Notification::Updated { old, new }));
    }

    pub(super) fn delete(&mut self, pod: PodBuilder) {
        self.handle(Input::QueuedPod(Notification::Deleted(Arc::new(pod.build()))));
    }

    /// Adds a pod with a node.
    pub(super) fn assigned(&mut self, pod: PodBuilder) {
        self.handle(Input::AssignedPod(Notification::Added(Arc::new(pod.build()))));
    }

    pub(super) fn delete_assigned(&mut self, pod: PodBuilder) {
        self.handle(Input::AssignedPod(Notification::Deleted(Arc::new(pod.build()))));
    }

    /// The informer reports the pod with its node.
    pub(super) fn confirm(&mut self, pod: PodBuilder, node: &str) {
        self.assigned(pod.clone().resource_version("9").node(node));
        self.delete(pod);
    }

    pub(super) fn bound(&mut self, uid: &str, outcome: BindOutcome) {
        self.handle(Input::Bound { pod: uid.into(), by: "DefaultBinder".into(), outcome });
    }

    pub(super) fn pre_bound(&mut self, uid: &str, status: Status) {
        self.handle(Input::PreBound { pod: uid.into(), status });
    }

    pub(super) fn read(&mut self, uid: &str, read: PodRead) {
        self.handle(Input::PodRead { pod: uid.into(), read });
    }

    /// The effects since the last call, one line each.
    pub(super) fn effect_lines(&mut self) -> Vec<String> {
        self.effects.drain(..).map(|effect| line(&effect)).collect()
    }

    /// The effects since the last call.
    pub(super) fn effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// The observations since the last call, one line each.
    pub(super) fn observed(&mut self) -> Vec<String> {
        std::mem::take(&mut *self.observed.lock().unwrap())
    }

    pub(super) fn place(&self, uid: &str) -> Option<Place> {
        self.scheduler.place(&uid.into())
    }

    pub(super) fn queued(&self, uid: &str) -> &QueuedPod {
        self.scheduler.queued(&uid.into()).unwrap()
    }

    /// The node of a bound or assumed pod.
    pub(super) fn node_of(&self, uid: &str) -> Option<&str> {
        self.scheduler.cache().node_of(&uid.into()).map(|node| &**node)
    }

    pub(super) fn is_assumed(&self, uid: &str) -> bool {
        self.scheduler.cache().is_assumed(&uid.into())
    }
}

/// A short line for an effect.
pub(super) fn line(effect: &Effect) -> String {
    match effect {
        Effect::RecordEvent(event) => {
            format!("{} {:?} {} {}: {}", event.uid, event.kind, event.reason, event.action, event.note)
        }
        Effect::PatchPodStatus(patch) => {
            let condition = patch.condition.as_ref().map_or_else(String::new, |condition| {
                format!(" {} {}: {}", condition.status, condition.reason, condition.message)
            });
            let nominated = match &patch.nomination {
                Nomination::Keep => String::new(),
                Nomination::Override(node) => format!(" nominated {:?}", node.as_deref().unwrap_or("")),
            };
            format!("{} patch{condition}{nominated}", patch.uid)
        }
        Effect::PatchGroupStatus(patch) => {
            let condition = &patch.condition;
            format!("{} patch {} {}: {}", patch.group, condition.status, condition.reason, condition.message)
        }
        Effect::Bind { pod, node, .. } => format!("{} bind to {node}", pod.uid),
        Effect::ReadPod { uid, .. } => format!("{uid} read"),
        Effect::Write { call, .. } => format!("write {call:?}"),
        Effect::CancelPreBind(uid) => format!("{uid} cancel"),
        Effect::Evict { preemption, victims } => {
            let uids: Vec<_> = victims.iter().map(|victim| victim.uid.to_string()).collect();
            format!("evict {} for {preemption}", uids.join(" "))
        }
        Effect::StartPreBind { pod, groups, .. } => {
            let names = groups
                .iter()
                .map(|group| group.iter().map(|work| work.name.to_string()).collect::<Vec<_>>().join("+"));
            format!("{} prebind {}", pod.uid, names.collect::<Vec<_>>().join(" "))
        }
    }
}

/// The pod with its status patched by these effects.
pub(super) fn patched(pod: PodBuilder, effects: &[Effect]) -> PodBuilder {
    pod.resource_version("2").with(|pod: &mut PodInfo| {
        for effect in effects {
            if let Effect::PatchPodStatus(patch) = effect {
                patch.apply(pod);
            }
        }
    })
}

pub(super) fn failed(certainty: Certainty, message: &str) -> BindOutcome {
    BindOutcome::Failed(ApiError { certainty, message: message.to_owned() })
}

/// A pod that fits no node of the usual size.
pub(super) fn big(name: &str) -> PodBuilder {
    pod(name).request("cpu", "8")
}

/// A bed with a small node and the unschedulable pod `a`.
pub(super) fn with_unschedulable(a: PodBuilder) -> TestBed {
    let mut bed = TestBed::new();
    bed.node(node("n1"));
    bed.pod(a);
    bed.cycle();
    assert_eq!(bed.place("a"), Some(Place::Unschedulable));
    bed
}
