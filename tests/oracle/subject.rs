//! supercargo's side: the pure scheduler with the inputs that informers would send, and its effects
//! carried out at once on a table of objects.

mod calls;
mod candidates;
mod effects;
mod group_trials;
mod informers;
mod observations;
mod probe;
mod resource_claims;
mod turnstile;
mod world;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use supercargo_config::{Catalog, Config};
use supercargo_framework::objects::{ObjectBody as _, ResourceClaim};
use supercargo_framework::{Context, Feature, Now, Timestamp, Uid, WaitingPods};
use supercargo_owner::options::scheduler_options;
use supercargo_scheduler::{Input, Place, Scheduler};

use self::calls::lock;
use self::effects::Effects;
use self::informers::{Informers, has_ended};
use self::observations::{Observations, Recorder};
use self::probe::Probes;
pub(super) use self::turnstile::TURNSTILE;
use self::turnstile::Turnstile;
use self::world::World;
pub(super) use self::world::pruned;
use super::answer::{Answer, Condition, Cycle, Group, Outcome, Pod};
use super::extender;
use super::history::{History, Reference, Step};

/// The start of histories: the year 2000, as on upstream's fake clock.
const START: Timestamp = Timestamp(946_684_800_000_000);

/// The duration of a step. Upstream's side uses the same, so that no two pods fail or are created
/// at one time.
const TICK: Duration = Duration::from_millis(1);

/// A scheduler with its own cluster.
pub(super) struct Subject {
    scheduler: Scheduler,
    now: Now,
    world: Arc<Mutex<World>>,
    informers: Informers,
    effects: Effects,
    observations: Arc<Mutex<Observations>>,
    probes: Probes,
    /// Whether pods have groups.
    has_groups: bool,
    /// The attempts of each pod.
    attempts: BTreeMap<Uid, u32>,
}

impl Subject {
    /// A scheduler with the configuration of the history and an empty cluster.
    pub(super) fn new(history: &History) -> Result<Self> {
        let features = history.features()?;
        let catalog =
            Catalog::in_tree().with_plugin(TURNSTILE, Turnstile::build).with_features(features.clone());
        let config = Config::parse("history", &history.config.to_string(), &catalog)
            .context("the history's configuration")?;
        let mut options = scheduler_options(&config);
        let names = options.profiles.iter().map(|profile| profile.scheduler_name.clone()).collect();
        let has_groups = features.enabled(Feature::GenericWorkload);
        let probes = Probes::install(&mut options.profiles, has_groups);
        let observations = Arc::<Mutex<Observations>>::default();
        let observer = Box::new(Recorder(Arc::clone(&observations)));
        let scheduler = Scheduler::new(options).context("make the scheduler")?.with_observer(observer);
        let world = Arc::new(Mutex::new(World::new()));
        let mut subject = Self {
            scheduler,
            now: Now { wall: START, monotonic: Duration::ZERO },
            informers: Informers::new(names, features).whole_pods(history.has_extenders()),
            effects: Effects::new(Arc::clone(&world)),
            world,
            observations,
            probes,
            has_groups,
            attempts: BTreeMap::new(),
        };
        subject.scheduler.handle(subject.now, Input::Tick);
        Ok(subject)
    }

    /// Plays a step and returns the answer.
    pub(super) fn step(&mut self, step: &Step) -> Result<Answer> {
        let (mut attempted, mut trials) = (None, Vec::new());
        self.pass(TICK)?;
        match step {
            Step::Apply(object) => lock(&self.world).apply(object.clone()),
            Step::Delete(reference) => lock(&self.world).delete(reference),
            Step::Advance(seconds) => self.pass(Duration::from_secs(*seconds))?,
            Step::Schedule(_) => {
                let names = self.informers.node_names();
                let nominated = names.map(|name| (name.to_owned(), self.scheduler.nominated_on(name)));
                self.probes.reset(nominated.collect());
                let waiting = self.waiting();
                lock(&self.observations).attempted = None;
                if self.scheduler.schedule_one(self.now, &mut extender::Answers) {
                    self.note_attempts(&waiting);
                    attempted = Some((self.chosen(), waiting));
                    trials = self.probes.take_trials();
                }
            }
        }
        self.settle()?;
        let cycle = attempted.and_then(|(node, waiting)| self.cycle(node).or_else(|| self.skipped(waiting)));
        Ok(Answer { trials, ..self.answer(cycle) })
    }

    /// The pods in queues by `namespace/name`, with their attempts.
    fn waiting(&self) -> BTreeMap<String, (Uid, u32)> {
        let pods = self.informers.pods();
        pods.filter_map(|pod| {
            let queued = self.scheduler.queued(&pod.uid)?;
            Some((pod.key().to_string(), (pod.uid.clone(), queued.attempts)))
        })
        .collect()
    }

    /// Records the attempts of the pods that have left the queue.
    fn note_attempts(&mut self, waiting: &BTreeMap<String, (Uid, u32)>) {
        for (uid, attempts) in waiting.values().filter(|(uid, _)| self.scheduler.queued(uid).is_none()) {
            self.attempts.insert(uid.clone(), attempts + 1);
        }
    }

    /// A skipped pod without a group: the one that has left the queue.
    fn skipped(&self, waiting: BTreeMap<String, (Uid, u32)>) -> Option<Cycle> {
        let (pod, _) = waiting.into_iter().find(|(_, (uid, _))| self.scheduler.queued(uid).is_none())?;
        (!self.is_member(&pod)).then(|| Cycle { pod, ..Cycle::default() })
    }

    /// Whether the pod is tried with its group.
    fn is_member(&self, pod: &str) -> bool {
        self.has_groups && self.informers.pod_named(pod).is_some_and(|pod| pod.spec.group().is_some())
    }

    /// Advances the clock. At whole seconds, deadlines are handled.
    fn pass(&mut self, duration: Duration) -> Result<()> {
        let end = self.now.monotonic + duration;
        while self.now.monotonic < end {
            let next_second = Duration::from_secs(self.now.monotonic.as_secs() + 1);
            let next = next_second.min(end);
            self.now = Now { wall: START.plus(next), monotonic: next };
            let wakes = self.effects.pass(next);
            if next == next_second {
                self.scheduler.handle(self.now, Input::Tick);
                self.effects.tick(next, &self.scheduler);
                self.settle()?;
            } else if wakes {
                self.settle()?;
            }
        }
        Ok(())
    }

    /// Delivers changes and carries out effects until none are left. One effect is carried out at a
    /// time, and its changes are delivered before the next.
    fn settle(&mut self) -> Result<()> {
        loop {
            self.tell()?;
            for effect in self.scheduler.take_effects() {
                self.effects.take(effect);
            }
            if self.effects.carry_out_one(self.now.wall) {
                continue;
            }
            let inputs = self.effects.poll(&self.scheduler);
            if inputs.is_empty() && lock(&self.world).changes.is_empty() {
                break;
            }
            for input in inputs {
                // The informer sees a write before its writer gets the result.
                self.tell()?;
                self.scheduler.handle(self.now, input);
            }
        }
        let inconsistencies = self.scheduler.inconsistencies();
        ensure!(inconsistencies.is_empty(), "the scheduler contradicts itself: {inconsistencies:?}");
        let anomalies = std::mem::take(&mut lock(&self.observations).anomalies);
        ensure!(anomalies.is_empty(), "what should not happen did: {anomalies:?}");
        Ok(())
    }

    /// Sends the scheduler what has changed.
    fn tell(&mut self) -> Result<()> {
        while let Some(change) = { lock(&self.world).changes.pop_front() } {
            for input in self.informers.tell(change)? {
                self.scheduler.handle(self.now, input);
            }
        }
        Ok(())
    }

    /// The node that the last cycle chose. Permit may have rejected the pod after that.
    fn chosen(&self) -> Option<String> {
        let pod = self.informers.pod_named(&self.probes.pod()?)?;
        let assumed = self.scheduler.cache().node_of(&pod.uid).map(ToString::to_string);
        assumed.or_else(|| self.probes.chosen())
    }

    /// The last cycle: what the probe has seen, and the result.
    fn cycle(&self, node: Option<String>) -> Option<Cycle> {
        let mut cycle = self.probes.take().or_else(|| {
            // Without nodes no plugin runs, but upstream's side calls them all.
            let (nodes, objects) = (self.scheduler.cache().nodes(), self.scheduler.objects());
            let pod = lock(&self.observations).attempted.clone().filter(|pod| !self.is_member(pod))?;
            let pod = self.informers.pod_named(&pod)?;
            self.probes.look(&Context::new(nodes, objects, WaitingPods::NONE, self.now), pod)
        })?;
        cycle.result = Some(match node {
            Some(node) => Outcome::Node(node),
            None => Outcome::Error(self.effects.last_failure(&cycle.pod)),
        });
        match &cycle.result {
            Some(Outcome::Node(node)) if cycle.feasible.is_empty() => cycle.feasible = vec![node.clone()],
            Some(Outcome::Node(_)) | None => {}
            // Upstream's side reports nodes only if one was chosen.
            Some(Outcome::Error(_)) => {
                cycle.feasible.clear();
                cycle.scores.clear();
            }
        }
        Some(cycle)
    }

    fn answer(&mut self, cycle: Option<Cycle>) -> Answer {
        let mut world = lock(&self.world);
        let pods = world
            .list("Pod")
            .filter(|(_, pod)| !has_ended(pod))
            .map(|(reference, pod)| (reference.key(), self.pod(pod)));
        let pods = pods.collect();
        let groups = world.list("PodGroup").map(|(reference, group)| (reference.key(), group_state(group)));
        let mut observations = lock(&self.observations);
        Answer {
            pods,
            groups: groups.collect(),
            moves: std::mem::take(&mut observations.moves),
            entities: std::mem::take(&mut observations.entities),
            events: self.effects.take_events(),
            deleted: std::mem::take(&mut world.deleted),
            writes: std::mem::take(&mut world.writes),
            cycle,
            trials: Vec::new(),
            has_random_order: self.effects.take_random_order(),
        }
    }

    fn pod(&self, pod: &Value) -> Pod {
        let uid = text(&pod["metadata"]["uid"]).into();
        let place = match self.scheduler.place(&uid) {
            Some(Place::Active) => "active",
            Some(Place::Backoff) => "backoff",
            Some(Place::Unschedulable) => "unschedulable",
            Some(Place::Gated) => "gated",
            Some(Place::InFlight) => "inflight",
            Some(Place::Aside) => "aside",
            None if pod["spec"]["nodeName"].is_string() => "bound",
            None if self.scheduler.cache().is_assumed(&uid) => "inflight",
            None => "none",
        };
        let queued = self.scheduler.queued(&uid);
        let names = |plugins: Option<&std::collections::BTreeSet<supercargo_framework::Text>>| {
            plugins.into_iter().flatten().map(ToString::to_string).collect()
        };
        // A pod in flight counts on its assumed node.
        let assumed = self.scheduler.cache().node_of(&uid).filter(|_| place == "inflight");
        let node = assumed.map_or(text(&pod["spec"]["nodeName"]), |node| node);
        Pod {
            place: place.to_owned(),
            node: node.to_owned(),
            nominated: text(&pod["status"]["nominatedNodeName"]).to_owned(),
            attempts: match queued {
                Some(queued) => queued.attempts,
                None if place == "inflight" => self.attempts.get(&uid).copied().unwrap_or(0),
                None => 0,
            },
            unschedulable_plugins: names(queued.map(|queued| &queued.unschedulable_plugins)),
            pending_plugins: names(queued.map(|queued| &queued.pending_plugins)),
            condition: condition(pod, "PodScheduled").filter(|condition| condition.status != "True"),
            disruption: condition(pod, "DisruptionTarget"),
        }
    }
}

fn group_state(group: &Value) -> Group {
    let kind = "PodGroupInitiallyScheduled";
    let mut conditions = group["status"]["conditions"].as_array().into_iter().flatten();
    let since = conditions.find(|one| one["type"] == kind).map(|one| text(&one["lastTransitionTime"]));
    let since = since.and_then(|since| since.parse::<jiff::Timestamp>().ok());
    Group { condition: condition(group, kind), since: since.map_or(0, jiff::Timestamp::as_second) }
}

fn condition(pod: &Value, kind: &str) -> Option<Condition> {
    let found = pod["status"]["conditions"].as_array()?.iter().find(|one| one["type"] == kind)?;
    Some(Condition {
        status: text(&found["status"]).to_owned(),
        reason: text(&found["reason"]).to_owned(),
        message: text(&found["message"]).to_owned(),
        observed_generation: found["observedGeneration"].as_i64().unwrap_or_default(),
    })
}

/// The state that the generator reads.
impl Subject {
    /// The current state of an object.
    pub(super) fn object(&self, reference: &Reference) -> Option<Value> {
        lock(&self.world).get(reference).cloned()
    }

    /// Every object of a kind, by name.
    pub(super) fn objects(&self, kind: &str) -> Vec<Value> {
        lock(&self.world).list(kind).map(|(_, object)| object.clone()).collect()
    }

    /// Claims with the allocations that bindings in flight are about to write.
    pub(super) fn pending_claims(&self) -> impl Iterator<Item = Value> {
        let pending = self.scheduler.objects().list_pending();
        let allocations = pending.filter_map(|claim| ResourceClaim::of(&claim.body)?.allocation.as_ref());
        allocations.map(|allocation| json!({ "status": { "allocation": *allocation.raw } }))
    }

    /// Whether the binding of a pod is in flight.
    pub(super) fn is_assumed(&self, pod: &Reference) -> bool {
        let world = lock(&self.world);
        let uid = world.get(pod).map(|pod| text(&pod["metadata"]["uid"]).into());
        uid.is_some_and(|uid| self.scheduler.cache().is_assumed(&uid))
    }

    /// The pods whose bindings are in flight and that use a claim for devices, by UID.
    pub(super) fn bindings_with(&self, claim: &Value) -> Vec<Value> {
        let owner = &claim["metadata"]["ownerReferences"][0]["uid"];
        let uses = |pod: &&Value| {
            let mut claims = pod["spec"]["resourceClaims"].as_array().into_iter().flatten();
            pod["metadata"]["namespace"] == claim["metadata"]["namespace"]
                && (pod["metadata"]["uid"] == *owner
                    || claims.any(|used| used["resourceClaimName"] == claim["metadata"]["name"]))
        };
        let pods = self.objects("Pod");
        let bindings = pods.iter().filter(|pod| self.is_assumed(&Reference::of(pod))).filter(uses);
        bindings.map(|pod| pod["metadata"]["uid"].clone()).collect()
    }

    /// The version that the scheduler's next write will get.
    pub(super) fn next_version(&self) -> u64 {
        lock(&self.world).next_version()
    }

    /// Whether a pod is ready to be scheduled.
    pub(super) fn has_work(&self) -> bool {
        self.scheduler.has_work()
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
