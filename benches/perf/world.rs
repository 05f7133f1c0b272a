//! The scheduler with the default configuration and the inputs that informers would send, with
//! their times.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};
use serde_json::Value;
use supercargo_benches::check::Placed;
use supercargo_codec::{NodeKind, ObjectKind, PodKind};
use supercargo_config::{Catalog, Config};
use supercargo_framework::binding::BindOutcome;
use supercargo_framework::objects::{
    Body, ClaimConsumer, Object, ObjectBody as _, ResourceClaim, resources, uid_of_extended_resource_claim,
};
use supercargo_framework::plugin::Nomination;
use supercargo_framework::pod_claims::PodClaimName;
use supercargo_framework::{Now, PodInfo, Status, Timestamp};
use supercargo_owner::options::scheduler_options;
use supercargo_scheduler::{Effect, Eviction, Input, NoCalls, Notification, Options, Scheduler, StatusPatch};

/// The number of steps between timer inputs.
const STEPS_PER_TICK: u64 = 100;
/// A scheduler with a manual clock.
pub(crate) struct World {
    pub(crate) scheduler: Scheduler,
    pods: PodKind,
    nodes: NodeKind,
    objects: Vec<ObjectKind>,
    now: Now,
    /// The scheduler's time per cycle. Churn and backoffs follow this clock, so they depend on the
    /// number of cycles and not on their speed.
    step: Duration,
    steps: u64,
    pub(crate) spent: Spent,
}

/// How the scheduler searches.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Search {
    /// As in production.
    Tables,
    /// Without evaluation tables.
    Plain,
    /// The same, with upstream's default for percentageOfNodesToScore.
    PlainSample,
}

/// The measurements.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spent {
    /// Notifications of pending pods.
    pub(crate) adding: Duration,
    /// The cycles of measured pods in order, in nanoseconds.
    pub(crate) cycles: Vec<u32>,
    /// The other cycles: of churn pods, and of pods that found no node.
    pub(crate) other_cycles: Duration,
    pub(crate) other_cycle_count: usize,
    /// Confirmations of bindings by the API server and the informer.
    pub(crate) confirming: Duration,
    /// All other inputs.
    pub(crate) telling: Duration,
}

impl Spent {
    pub(crate) fn in_cycles(&self) -> Duration {
        self.cycles.iter().map(|nanoseconds| Duration::from_nanos((*nanoseconds).into())).sum()
    }

    pub(crate) fn last_cycle(&self) -> Duration {
        Duration::from_nanos(self.cycles.last().copied().unwrap_or_default().into())
    }

    /// The total time of the scheduler.
    pub(crate) fn total(&self) -> Duration {
        self.adding + self.in_cycles() + self.other_cycles + self.confirming + self.telling
    }
}

impl World {
    /// A scheduler with the default configuration.
    pub(crate) fn new(search: Search, step: Duration) -> Result<Self> {
        let config = Config::default_with(&Catalog::in_tree())
            .map_err(|errors| anyhow!("the default configuration is wrong: {errors}"))?;
        let no_annotations: [&str; 0] = [];
        let options = Options {
            plain: search != Search::Tables,
            percentage_of_nodes_to_score: (search == Search::PlainSample).then_some(0),
            ..scheduler_options(&config)
        };
        Ok(Self {
            scheduler: Scheduler::new(options)?,
            pods: PodKind::new(no_annotations),
            nodes: NodeKind::new(no_annotations),
            objects: Vec::new(),
            now: Now { wall: Timestamp(1_767_225_600_000_000), monotonic: Duration::ZERO },
            step,
            steps: 0,
            spent: Spent::default(),
        })
    }

    /// The time of the clock.
    pub(crate) fn elapsed(&self) -> Duration {
        self.step * u32::try_from(self.steps).unwrap_or(u32::MAX)
    }

    /// The nodes of pods, as reported by effects.
    pub(crate) fn placed(&self) -> impl Iterator<Item = Placed<'_>> {
        let nodes = self.scheduler.cache().nodes().iter();
        nodes.flat_map(|(_, node)| node.pods().iter().map(|pod| Placed { pod: &pod.name, node: node.name() }))
    }

    /// Devices that several claims have, as text.
    pub(crate) fn devices_with_two_claims(&self) -> Vec<String> {
        let claims = self.scheduler.objects().list(&resources::RESOURCE_CLAIM);
        let allocations = claims.filter_map(|claim| ResourceClaim::of(&claim.body)?.allocation.as_ref());
        let mut taken = BTreeSet::new();
        let devices = allocations.flat_map(|allocation| &allocation.results).map(|result| &result.device);
        devices
            .filter(|device| !taken.insert(*device))
            .map(|device| format!("{device:?} has two claims"))
            .collect()
    }

    fn handle(&mut self, input: Input) {
        self.scheduler.handle(self.now, input);
    }

    /// Adds or deletes an object of any kind.
    pub(crate) fn tell(&mut self, object: &Value, deleted: bool) -> Result<()> {
        let json = serde_json::to_vec(object)?;
        let input = match object["kind"].as_str().context("an object says its kind")? {
            "Pod" => {
                let pod = Arc::new(self.pods.decode(&json)?);
                let assigned = pod.is_assigned();
                let notification = notification(pod, deleted);
                if assigned { Input::AssignedPod(notification) } else { Input::QueuedPod(notification) }
            }
            "Node" => Input::Node(notification(Arc::new(self.nodes.decode(&json)?), deleted)),
            kind => Input::Object(notification(Arc::new(self.object_kind(kind)?.decode(&json)?), deleted)),
        };
        let started = Instant::now();
        self.handle(input);
        self.spent.telling += started.elapsed();
        self.carry_out()
    }

    fn object_kind(&mut self, kind: &str) -> Result<&ObjectKind> {
        let resource = match kind {
            "Namespace" => resources::NAMESPACE,
            "Service" => resources::SERVICE,
            "PersistentVolume" => resources::PERSISTENT_VOLUME,
            "PersistentVolumeClaim" => resources::PERSISTENT_VOLUME_CLAIM,
            "CSINode" => resources::CSI_NODE,
            "ResourceClaim" => resources::RESOURCE_CLAIM,
            "ResourceSlice" => resources::RESOURCE_SLICE,
            "DeviceClass" => resources::DEVICE_CLASS,
            _ => bail!("{kind} is no kind of a workload"),
        };
        let at = match self.objects.iter().position(|known| *known.resource() == resource) {
            Some(at) => at,
            None => {
                let new = ObjectKind::of(&resource).with_context(|| format!("{kind} is not decoded"))?;
                self.objects.push(new);
                self.objects.len() - 1
            }
        };
        Ok(&self.objects[at])
    }

    /// Decodes a pending pod.
    pub(crate) fn decode_pod(&self, object: &Value) -> Result<Arc<PodInfo>> {
        Ok(Arc::new(self.pods.decode(&serde_json::to_vec(object)?)?))
    }

    /// Notifies the scheduler of pending pods.
    pub(crate) fn enqueue(&mut self, pods: Vec<Arc<PodInfo>>) -> Result<()> {
        let started = Instant::now();
        for pod in pods {
            self.handle(Input::QueuedPod(Notification::Added(pod)));
        }
        self.spent.adding += started.elapsed();
        self.carry_out()
    }

    /// Resets the measurements.
    pub(crate) fn start_measuring(&mut self) {
        self.spent = Spent::default();
    }

    /// Advances time by a step and runs a cycle, if a pod is ready. Returns `true` if a measured
    /// pod found a node.
    pub(crate) fn step(&mut self, is_measured: impl Fn(&PodInfo) -> bool) -> Result<bool> {
        self.steps += 1;
        self.now = Now { wall: self.now.wall.plus(self.step), monotonic: self.now.monotonic + self.step };
        if self.steps.is_multiple_of(STEPS_PER_TICK) {
            let started = Instant::now();
            self.handle(Input::Tick);
            self.spent.telling += started.elapsed();
        }
        let started = Instant::now();
        if !self.scheduler.schedule_one(self.now, &mut NoCalls) {
            return Ok(false);
        }
        let effects = self.scheduler.take_effects();
        let took = started.elapsed();
        let bound = effects.iter().find_map(|effect| match effect {
            Effect::Bind { pod, .. } | Effect::StartPreBind { pod, .. } => Some(is_measured(pod)),
            _ => None,
        });
        if bound == Some(true) {
            self.spent.cycles.push(u32::try_from(took.as_nanos()).unwrap_or(u32::MAX));
        } else {
            self.spent.other_cycles += took;
            self.spent.other_cycle_count += 1;
        }
        for effect in effects {
            self.carry_out_one(effect)?;
        }
        self.carry_out()?;
        Ok(bound == Some(true))
    }

    /// Carries out effects until none are left.
    fn carry_out(&mut self) -> Result<()> {
        loop {
            let effects = self.scheduler.take_effects();
            if effects.is_empty() {
                return Ok(());
            }
            for effect in effects {
                self.carry_out_one(effect)?;
            }
        }
    }

    /// Carries out an effect as the API server would, and notifies the scheduler as the informer
    /// would.
    fn carry_out_one(&mut self, effect: Effect) -> Result<()> {
        match effect {
            Effect::StartPreBind { pod, .. } => self.pre_bind(&pod),
            Effect::Bind { pod, node, .. } => self.bind(pod, node),
            Effect::Evict { preemption, victims } => {
                let gone: Vec<_> = victims
                    .iter()
                    .filter_map(|victim| {
                        let node = self.scheduler.cache().node_of(&victim.uid)?;
                        let pods = self.scheduler.cache().nodes().get(node)?.pods();
                        pods.iter().find(|pod| pod.uid == victim.uid).map(Arc::clone)
                    })
                    .collect();
                let outcomes = vec![Eviction::Deleted; victims.len()];
                let started = Instant::now();
                for pod in gone {
                    self.handle(Input::AssignedPod(Notification::Deleted(pod)));
                }
                self.handle(Input::Evicted { preemption, outcomes });
                self.spent.telling += started.elapsed();
            }
            Effect::PatchPodStatus(patch) => self.patch(patch),
            Effect::RecordEvent(_) => {}
            other => bail!("no workload should lead to {other:?}"),
        }
        Ok(())
    }

    /// Updates the status of a pending pod.
    fn patch(&mut self, patch: StatusPatch) {
        let Some(old) = self.scheduler.queued(&patch.uid).map(|queued| Arc::clone(&queued.pod)) else {
            return;
        };
        let mut new = (*old).clone();
        if let Nomination::Override(node) = patch.nomination {
            new.status.nominated_node_name = node;
        }
        if patch.condition.is_some() {
            new.status.pod_scheduled = patch.condition;
        }
        new.resource_version = "2".into();
        let notification = Notification::Updated { old, new: Arc::new(new) };
        let started = Instant::now();
        self.handle(Input::QueuedPod(notification));
        self.spent.telling += started.elapsed();
    }

    /// Writes what was reserved of the pod's claims and extended resources, as PreBind does.
    fn pre_bind(&mut self, pod: &PodInfo) {
        let consumer = ClaimConsumer::of_pod(Arc::clone(&pod.name), (*pod.uid.text()).into());
        let written = |reserved: &Object| {
            let mut new = Object { resource_version: "2".into(), ..reserved.clone() };
            if let Body::ResourceClaim(claim) = &mut new.body {
                claim.reserved_for = Box::new([consumer.clone()]);
            }
            new
        };
        let objects = self.scheduler.objects();
        let mut inputs = Vec::new();
        for entry in pod.spec.resource_claims() {
            let PodClaimName::Generated(name) = pod.claim_name(entry) else { continue };
            let key = format!("{}/{name}", pod.namespace);
            let Some(old) = objects.get(&resources::RESOURCE_CLAIM, &key).cloned() else { continue };
            let Some(reserved) = objects.pending(&old.uid) else { continue };
            let new = Arc::new(written(reserved));
            inputs.push(Input::Written(Arc::clone(&new)));
            inputs.push(Input::Object(Notification::Updated { old, new }));
        }
        let uid = uid_of_extended_resource_claim(&pod.uid.text());
        if let Some(reserved) = objects.pending(&uid) {
            let key = format!("{}/{}-extended-resources", pod.namespace, pod.name).into();
            let uid = format!("{uid}-created").into();
            let new = Arc::new(Object { key, uid, ..written(reserved) });
            inputs.push(Input::Written(Arc::clone(&new)));
            inputs.push(Input::Object(Notification::Added(new)));
        }
        inputs.push(Input::PreBound { pod: pod.uid.clone(), status: Status::success() });
        let started = Instant::now();
        for input in inputs {
            self.handle(input);
        }
        self.spent.confirming += started.elapsed();
    }

    fn bind(&mut self, pod: Arc<PodInfo>, node: Arc<str>) {
        let bound = PodInfo { node_name: Some(node), resource_version: "2".into(), ..(*pod).clone() };
        let inputs = [
            Input::Bound { pod: pod.uid.clone(), by: "DefaultBinder".into(), outcome: BindOutcome::Bound },
            Input::AssignedPod(Notification::Added(Arc::new(bound))),
            Input::QueuedPod(Notification::Deleted(pod)),
        ];
        let started = Instant::now();
        for input in inputs {
            self.handle(input);
        }
        self.spent.confirming += started.elapsed();
    }
}

fn notification<T>(object: Arc<T>, deleted: bool) -> Notification<T> {
    if deleted { Notification::Deleted(object) } else { Notification::Added(object) }
}
