//! What would have become of a recorded run with another configuration: a model.
//!
//! Two schedulers go through the record. The recorded one replays it. The other one gets the same
//! inputs as long as both do the same, so with the recorded configuration the record is reproduced
//! exactly. From the first difference on, its own decisions stand: its effects are carried out by a
//! model, and what the recorded scheduler caused is left out.

mod claims;
mod model;
mod usage;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use supercargo_framework::binding::BindOutcome;
use supercargo_framework::pod::PodKey;
use supercargo_framework::{Now, PodInfo, Timestamp, Uid};
use thiserror::Error;

use self::model::{Model, Request, answer};
pub use self::usage::Usage;
use self::usage::Usages;
use super::{Companion, RecordedCall, SchedulerCall};
use crate::effect::Effect;
use crate::input::{Input, Notification};
use crate::scheduler::{BuildError, Options, Scheduler};

/// Shorter differences between waits are those of machines.
const SHORTEST: Duration = Duration::from_secs(1);

/// Why a closed loop has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ClosedLoopError {
    /// The record has no answers to the questions of another run.
    #[error("extenders cannot be asked in a modelled run, but the other configuration has one")]
    Extenders,
}

/// Where a pod went, and how long it waited for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The last node.
    pub node: Arc<str>,
    /// From the pod's first appearance, or from its eviction in the model, to its last binding.
    pub waited: Duration,
}

impl Placement {
    fn new(node: Arc<str>, since: Timestamp, now: Now) -> Self {
        Self { node, waited: now.wall.since(since) }
    }
}

/// A pod that ended otherwise, or waited for another time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelledPod {
    /// The pod.
    pub pod: PodKey,
    /// Where the recorded scheduler placed it.
    pub recorded: Option<Placement>,
    /// Where the model did.
    pub modelled: Option<Placement>,
}

impl ModelledPod {
    /// Whether only one has placed it, or each on another node.
    pub fn is_elsewhere(&self) -> bool {
        let node = |placement: &Option<Placement>| placement.as_ref().map(|it| Arc::clone(&it.node));
        node(&self.recorded) != node(&self.modelled)
    }

    /// How much longer it waited in the model, if it did, and how much shorter.
    pub fn wait_difference(&self) -> (Option<Duration>, Option<Duration>) {
        let (Some(recorded), Some(modelled)) = (&self.recorded, &self.modelled) else { return (None, None) };
        let more = |one: &Placement, other: &Placement| {
            one.waited.checked_sub(other.waited).filter(|more| *more >= SHORTEST)
        };
        (more(modelled, recorded), more(recorded, modelled))
    }
}

/// The result of a modelled run.
#[derive(Clone, Debug, Default)]
pub struct ModelledRun {
    /// The steps of the record.
    pub steps: usize,
    /// The step and the time of the first difference; `None` if the record was reproduced.
    pub diverged: Option<(usize, Timestamp)>,
    /// The pods that either of the two placed, or tried to.
    pub pods: usize,
    /// The pods that were placed: as recorded, and in the model.
    pub placed: (usize, usize),
    /// Evicted pods: as recorded, and in the model.
    pub evicted: (usize, usize),
    /// The pods that ended otherwise, or waited for another time, by name.
    pub outcomes: Vec<ModelledPod>,
    /// How much of each resource was requested.
    pub usage: Vec<Usage>,
    /// The nodes with pods at the end: as recorded, and in the model.
    pub used_nodes: (usize, usize),
    /// The pods with claims for volumes, which follow the record even if a pod goes elsewhere.
    pub with_volumes: usize,
}

/// What is known of a pod.
struct Known {
    key: PodKey,
    since: Timestamp,
    /// The same in the model, in which it may have been evicted.
    since_modelled: Timestamp,
    has_volumes: bool,
    recorded: Option<Placement>,
    modelled: Option<Placement>,
}

impl Known {
    fn of(pod: &PodInfo, since: Timestamp) -> Self {
        let has_volumes = pod.spec.volumes.iter().any(|volume| volume.source.is_claim());
        Self { key: pod.key(), since, since_modelled: since, has_volumes, recorded: None, modelled: None }
    }
}

/// Runs another configuration beside a record. It is a companion of the record's replay.
pub struct ClosedLoop<F> {
    model: Model,
    /// The options of a recorded configuration, if the model follows it.
    reconfigure: F,
    /// The call that the recorded scheduler makes.
    call: Option<RecordedCall>,
    /// Whether something is due before it in the model only.
    is_late: bool,
    /// The pods that one of the schedulers is responsible for.
    known: BTreeMap<Uid, Known>,
    /// Requests that the record has not answered yet, while both do the same.
    unanswered: Vec<Request>,
    usages: Usages,
    run: ModelledRun,
    error: Option<ClosedLoopError>,
}

impl<F: FnMut(&str) -> Option<Options>> ClosedLoop<F> {
    /// A run with these options. `reconfigure` returns the options of a recorded configuration that
    /// was reloaded, or `None` to stay with the first ones.
    pub fn new(options: Options, reconfigure: F) -> Result<Self, BuildError> {
        Ok(Self {
            model: Model::new(Scheduler::new(options)?),
            reconfigure,
            call: None,
            is_late: false,
            known: BTreeMap::new(),
            unanswered: Vec::new(),
            usages: Usages::default(),
            run: ModelledRun::default(),
            error: None,
        })
    }

    /// The invariants that the modelled scheduler breaks; empty unless there is a bug.
    pub fn inconsistencies(&self) -> Vec<String> {
        self.model.scheduler.inconsistencies()
    }

    /// The number of steps so far.
    pub fn steps(&self) -> usize {
        self.run.steps
    }

    /// The result, with the recorded scheduler in its last state.
    pub fn end(self, recorded: &Scheduler) -> Result<ModelledRun, ClosedLoopError> {
        let Self { mut run, known, model, usages, error, .. } = self;
        error.map_or(Ok(()), Err)?;
        run.usage = usages.finish(recorded, &model.scheduler);
        run.used_nodes = (usage::used_nodes(recorded), usage::used_nodes(&model.scheduler));
        run.evicted = (model.evicted_as_recorded.len(), model.evicted.len());
        run.pods = known.len();
        for Known { key, has_volumes, recorded, modelled, .. } in known.into_values() {
            run.placed.0 += usize::from(recorded.is_some());
            run.placed.1 += usize::from(modelled.is_some());
            run.with_volumes += usize::from(has_volumes && run.diverged.is_some());
            let outcome = ModelledPod { pod: key, recorded, modelled };
            if outcome.is_elsewhere() || outcome.wait_difference() != (None, None) {
                run.outcomes.push(outcome);
            }
        }
        run.outcomes.sort_by(|one, other| one.pod.cmp(&other.pod));
        Ok(run)
    }

    /// Notes what the record says of pods.
    fn note(&mut self, recorded: &Scheduler, call: &RecordedCall, effects: &[Effect]) {
        let now = call.now;
        if let SchedulerCall::Handle(input) = &call.call {
            match &**input {
                Input::QueuedPod(Notification::Added(pod)) => {
                    let is_served = |scheduler: &Scheduler| scheduler.profile_of(pod).is_some();
                    if is_served(recorded) || is_served(&self.model.scheduler) {
                        let new = || Known::of(pod, now.wall);
                        self.known.entry(pod.uid.clone()).or_insert_with(new);
                    }
                }
                // The answer to its binding was uncertain, or has not come yet.
                Input::AssignedPod(Notification::Added(pod))
                    if self.model.bound_as_recorded.contains(&pod.uid) =>
                {
                    if let Some((known, node)) = self.known.get_mut(&pod.uid).zip(pod.node_name.as_ref()) {
                        let placement = || Placement::new(Arc::clone(node), known.since, now);
                        known.recorded.get_or_insert_with(placement);
                        if self.run.diverged.is_none() {
                            known.modelled.get_or_insert_with(placement);
                        }
                    }
                }
                Input::Bound { pod, outcome, .. } if *outcome != BindOutcome::Bound => {
                    if let Some(known) = self.known.get_mut(pod) {
                        known.recorded = None;
                        if self.run.diverged.is_none() {
                            known.modelled = None;
                        }
                    }
                }
                _ => {}
            }
        }
        for effect in effects {
            match effect {
                Effect::Bind { pod, node, .. } => {
                    if let Some(known) = self.known.get_mut(&pod.uid) {
                        known.recorded = Some(Placement::new(Arc::clone(node), known.since, now));
                    }
                    self.model.bound_as_recorded.insert(pod.uid.clone());
                }
                Effect::Evict { victims, .. } => {
                    self.model.evicted_as_recorded.extend(victims.iter().map(|victim| victim.uid.clone()));
                }
                _ => {}
            }
        }
    }

    /// Makes the same call, as long as both do the same.
    fn go_along(&mut self, recorded: &Scheduler, call: RecordedCall, effects: &[Effect]) {
        let now = call.now;
        if self.is_late {
            self.diverge(now);
            return self.model.follow(recorded, call);
        }
        if let SchedulerCall::Handle(input) = &call.call {
            answer(&mut self.unanswered, input);
        }
        let own = self.model.make(call, &mut self.reconfigure);
        let lines = |effects: &[Effect]| effects.iter().map(|it| format!("{it:?}")).collect::<Vec<_>>();
        let differs = lines(&own) != lines(effects);
        let differs = differs || self.model.scheduler.has_work() != recorded.has_work();
        let requests = own.iter().filter_map(Request::of);
        self.unanswered.extend(requests.filter(|request| differs || request.has_answer()));
        for effect in &own {
            if let Effect::Bind { pod, node, .. } = effect {
                self.model.moved.push((pod.uid.clone(), Some(Arc::clone(node)), now));
            }
        }
        if differs {
            self.diverge(now);
            self.model.settle();
        }
    }

    /// From now on the model answers, and also what the record would have answered.
    fn diverge(&mut self, now: Now) {
        self.run.diverged = Some((self.run.steps, now.wall));
        if !self.model.scheduler.extenders.is_empty() {
            self.error = Some(ClosedLoopError::Extenders);
        }
        for request in std::mem::take(&mut self.unanswered) {
            self.model.carry_out(request);
        }
    }

    /// Notes where the model has placed pods.
    fn note_placements(&mut self) {
        for (uid, node, now) in std::mem::take(&mut self.model.moved) {
            let Some(known) = self.known.get_mut(&uid) else { continue };
            known.modelled = node.map(|node| Placement::new(node, known.since_modelled, now));
            if known.modelled.is_none() {
                known.since_modelled = now.wall;
            }
        }
    }
}

impl<F: FnMut(&str) -> Option<Options>> Companion for ClosedLoop<F> {
    fn before(&mut self, recorded: &mut Scheduler, call: &RecordedCall) {
        self.is_late = self.model.is_due_before(call.now, recorded);
        self.call = Some(call.clone());
    }

    fn after(&mut self, recorded: &Scheduler, effects: &[Effect]) {
        self.run.steps += 1;
        // The begin has no call, and changes nothing.
        let Some(call) = self.call.take().filter(|_| self.error.is_none()) else { return };
        let now = call.now;
        self.note(recorded, &call, effects);
        if self.run.diverged.is_some() {
            self.model.follow(recorded, call);
        } else {
            self.go_along(recorded, call, effects);
        }
        self.note_placements();
        self.usages.sample(now, recorded, &self.model.scheduler);
    }
}
