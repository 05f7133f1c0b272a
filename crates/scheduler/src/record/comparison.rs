//! What another configuration decides on the states of a record.
//!
//! Before each recorded attempt, both configurations decide about its pod on the recorded state.
//! The state then follows the record, so the comparison is exact for each decision, and a decision
//! that differs has no consequences.

use std::collections::BTreeSet;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use supercargo_framework::plugin::Nomination;
use supercargo_framework::pod::PodKey;
use supercargo_framework::{CycleState, Feature, Now, PodInfo, Text, Timestamp, Uid};

use super::{RecordedCall, SchedulerCall};
use crate::attempt::post_filter;
use crate::effect::bind_line;
use crate::node_recheck::Nodes;
use crate::scheduler::{BuildError, Options, Scheduler};
use crate::why::{Refusal, Why, explain};
use supercargo_evaluation::cycle::Cycle;
use supercargo_evaluation::extender::ExtenderSpec;
use supercargo_evaluation::sampling::Sampling;
use supercargo_runtime::failure::FailureKind;
use supercargo_runtime::profile::{Profile, ProfileIndex};

/// The most differences that are kept. All are counted.
const MOST_KEPT: usize = 100_000;

/// What a configuration decides about a pod: Filter, Score and PostFilter, without Reserve and
/// Permit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The pod goes to this node.
    Node(Arc<str>),
    /// No node fits, and preemption makes room on this one.
    Preempts(Arc<str>),
    /// No node fits; the message says why (upstream's text).
    Pending(String),
}

impl Decision {
    /// The pod's node.
    pub fn node(&self) -> Option<&Arc<str>> {
        match self {
            Self::Node(node) => Some(node),
            _ => None,
        }
    }

    /// Whether the pod ends in the same place. The message may be another one.
    fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Pending(_), Self::Pending(_)) => true,
            _ => self == other,
        }
    }
}

/// Why two configurations decide differently.
#[derive(Clone, Debug)]
pub enum Reason {
    /// Only the other configuration refuses this node.
    RefusedByOther(Arc<str>, Refusal),
    /// Only the recorded configuration refuses this node.
    RefusedByRecorded(Arc<str>, Refusal),
    /// Both nodes fit with both configurations. This plugin's points changed most in favour of the
    /// other node.
    Scores {
        /// The plugin.
        plugin: Text,
        /// By how many points it prefers the other node: as recorded, and now.
        lead: (i64, i64),
    },
    /// The other configuration has no profile for the pod's `schedulerName`.
    NoProfile,
    /// Another sample of nodes, another victim, or a plugin's failure.
    Unknown,
}

/// Attempts of a pod that end in the same two places.
#[derive(Clone, Debug)]
pub struct Difference {
    /// The number of the first one's step in the record, from 1.
    pub step: usize,
    /// Its time.
    pub time: Timestamp,
    /// The pod.
    pub pod: PodKey,
    /// The recorded configuration's decision.
    pub recorded: Decision,
    /// The other configuration's decision.
    pub other: Decision,
    /// Why the first one differs.
    pub reason: Reason,
    /// The number of attempts.
    pub attempts: usize,
}

/// How the decisions of a record differ with another configuration.
#[derive(Clone, Debug, Default)]
pub struct Comparison {
    /// The steps of the record.
    pub steps: usize,
    /// The attempts that were compared.
    pub attempts: usize,
    /// The attempts of pod groups, which are not compared.
    pub of_groups: usize,
    /// The attempts for which an extender would be asked. The record has no answers to other
    /// questions, so they are not compared.
    pub extended: usize,
    /// The attempts that find another node.
    pub moved: usize,
    /// The attempts that find a node only with the other configuration.
    pub gained: usize,
    /// The attempts that find a node only as recorded.
    pub lost: usize,
    /// The attempts that find no node in either case, but preempt differently.
    pub preempts: usize,
    /// What differs, in the order of the record; of a million differences, the first 100,000.
    pub differences: Vec<Difference>,
}

impl Comparison {
    /// The attempts that end in another place.
    pub fn differing(&self) -> usize {
        self.moved + self.gained + self.lost + self.preempts
    }

    /// Counts an attempt that differs. `reason` explains both decisions, which takes as long as a
    /// cycle, so it is asked only if the pod did not end in the same places the last time.
    fn note(
        &mut self,
        last: &mut FxHashMap<Uid, usize>,
        (now, pod): (Now, &PodInfo),
        (recorded, other): (Decision, Decision),
        reason: impl FnOnce(&Decision, &Decision) -> Reason,
    ) {
        *match (recorded.node(), other.node()) {
            (Some(_), Some(_)) => &mut self.moved,
            (Some(_), None) => &mut self.lost,
            (None, Some(_)) => &mut self.gained,
            (None, None) => &mut self.preempts,
        } += 1;
        let (differences, step) = (&mut self.differences, self.steps);
        let known = last.get(&pod.uid).and_then(|place| differences.get_mut(*place));
        if let Some(known) = known.filter(|it| it.recorded.is_like(&recorded) && it.other.is_like(&other)) {
            known.attempts += 1;
        } else if differences.len() < MOST_KEPT {
            last.insert(pod.uid.clone(), differences.len());
            let (time, pod, reason) = (now.wall, pod.key(), reason(&recorded, &other));
            differences.push(Difference { step, time, pod, recorded, other, reason, attempts: 1 });
        }
    }
}

/// Compares the decisions of a record with those of another configuration.
pub struct Comparer {
    /// Never sees an input: it has the other profiles and settings.
    other: Scheduler,
    /// The last difference of each pod.
    last: FxHashMap<Uid, usize>,
    /// The result so far.
    pub comparison: Comparison,
}

impl Comparer {
    /// Compares with a scheduler of these options.
    pub fn new(options: Options) -> Result<Self, BuildError> {
        let other = Scheduler::new(options)?;
        Ok(Self { other, last: FxHashMap::default(), comparison: Comparison::default() })
    }

    /// The kinds that the other configuration reads, and of which a record of `scheduler` has no
    /// objects.
    pub fn unrecorded_kinds(&self, scheduler: &Scheduler) -> Vec<Text> {
        let recorded: BTreeSet<Text> = scheduler.resources().into_iter().collect();
        self.other.resources().into_iter().filter(|kind| !recorded.contains(kind)).collect()
    }

    /// To be called with each recorded call before it is made.
    pub fn before(&mut self, scheduler: &mut Scheduler, step: &RecordedCall) {
        self.comparison.steps += 1;
        match attempted(scheduler, step, &self.other.extenders) {
            Some(Attempted::Pod(pod)) => self.compare(scheduler, step, &pod),
            Some(Attempted::Group) => self.comparison.of_groups += 1,
            Some(Attempted::Extended) => self.comparison.extended += 1,
            None => {}
        }
    }

    fn compare(&mut self, scheduler: &mut Scheduler, step: &RecordedCall, pod: &Arc<PodInfo>) {
        self.comparison.attempts += 1;
        scheduler.cache.refreshed();
        let other = Voter { state: scheduler, settings: &self.other, now: step.now };
        let decision = other.decision(pod);
        // Most decisions are the same, and the record has them.
        if decision.node().is_some_and(|node| step.effects.contains(&bind_line(pod, node))) {
            return;
        }
        let own = Voter { settings: scheduler, ..other };
        let recorded = own.decision(pod);
        if !decision.is_like(&recorded) {
            let reason = |recorded: &_, decision: &_| reason(pod, (&own, recorded), (&other, decision));
            self.comparison.note(&mut self.last, (step.now, pod), (recorded, decision), reason);
        }
    }
}

/// What a call tries.
pub(super) enum Attempted {
    Pod(Arc<PodInfo>),
    Group,
    /// A pod for which an extender is asked.
    Extended,
}

/// What this call tries, if it is an attempt. The extenders of another configuration count, too.
pub(super) fn attempted(
    scheduler: &Scheduler,
    step: &RecordedCall,
    others: &[ExtenderSpec],
) -> Option<Attempted> {
    let is_attempt = matches!(step.call, SchedulerCall::ScheduleOne(_)) && scheduler.has_work();
    let pod = scheduler.next_pod().filter(|_| is_attempt)?;
    if pod.terminating || scheduler.cache.node_of(&pod.uid).is_some() {
        return None;
    }
    let mut extenders = scheduler.extenders.iter().chain(others);
    Some(if pod.spec.group().is_some() && scheduler.features.enabled(Feature::GenericWorkload) {
        Attempted::Group
    } else if extenders.any(|extender| extender.is_interested(pod)) {
        Attempted::Extended
    } else {
        Attempted::Pod(Arc::clone(pod))
    })
}

/// Decides with the settings of one scheduler on the state of another, or of the same one.
#[derive(Clone, Copy)]
pub(super) struct Voter<'a> {
    pub(super) state: &'a Scheduler,
    pub(super) settings: &'a Scheduler,
    pub(super) now: Now,
}

impl Voter<'_> {
    /// Runs a part of a cycle; `None` without a profile for the pod.
    pub(super) fn with_cycle<R>(&self, pod: &Arc<PodInfo>, part: impl FnOnce(&Cycle<'_>) -> R) -> Option<R> {
        let index = self.settings.profile_of(pod)?;
        Some(self.with_profile(pod, (index, self.settings.profiles.get(index)), part))
    }

    /// The same as if this plugin refused no node.
    pub(super) fn without_filter<R>(
        &self,
        pod: &Arc<PodInfo>,
        plugin: &str,
        part: impl FnOnce(&Cycle<'_>) -> R,
    ) -> Option<R> {
        let index = self.settings.profile_of(pod)?;
        let profile = self.settings.profiles.get(index).without_filter(plugin);
        Some(self.with_profile(pod, (index, &profile), part))
    }

    fn with_profile<R>(
        &self,
        pod: &Arc<PodInfo>,
        (index, profile): (ProfileIndex, &Profile),
        part: impl FnOnce(&Cycle<'_>) -> R,
    ) -> R {
        // A sample begins where the recorded one did.
        let sampling = self.settings.sampling(profile);
        let sampling = sampling.map(|it| Sampling { start: self.state.next_start_node, ..it });
        let nodes = Nodes { sampling, ..Nodes::default() };
        self.state.with_profile(self.now, pod, (index, profile), nodes, part)
    }

    fn decision(&self, pod: &Arc<PodInfo>) -> Decision {
        let none = || Decision::Pending(format!("no profile serves {}", pod.spec.scheduler_name));
        self.with_cycle(pod, decide).unwrap_or_else(none)
    }

    fn why(&self, pod: &Arc<PodInfo>) -> Option<Why> {
        Some(self.with_cycle(pod, explain)?.ok()?.why)
    }
}

fn decide(cycle: &Cycle<'_>) -> Decision {
    let mut state = CycleState::default();
    match cycle.run(&mut state).0 {
        Ok(index) => Decision::Node(Arc::clone(cycle.cx.node(index).name())),
        Err(FailureKind::Fit(mut error)) => match post_filter(cycle, &state, &mut error) {
            Nomination::Override(Some(node)) => Decision::Preempts(node),
            _ => Decision::Pending(error.to_string()),
        },
        Err(kind) => Decision::Pending(kind.to_string()),
    }
}

/// Why the second configuration decides differently.
fn reason(
    pod: &Arc<PodInfo>,
    (own, recorded): (&Voter<'_>, &Decision),
    (other, decision): (&Voter<'_>, &Decision),
) -> Reason {
    if other.settings.profile_of(pod).is_none() {
        return Reason::NoProfile;
    }
    let (Some(before), Some(after)) = (own.why(pod), other.why(pod)) else { return Reason::Unknown };
    if let Some((node, refusal)) = recorded.node().and_then(|node| refusal(&after, node)) {
        return Reason::RefusedByOther(node, refusal);
    }
    if let Some((node, refusal)) = decision.node().and_then(|node| refusal(&before, node)) {
        return Reason::RefusedByRecorded(node, refusal);
    }
    match (recorded, decision) {
        (Decision::Node(from), Decision::Node(to)) => scores((&before, &after), from, to),
        _ => Reason::Unknown,
    }
}

/// The first reason for which the node is refused.
fn refusal(why: &Why, node: &Arc<str>) -> Option<(Arc<str>, Refusal)> {
    let refusal = why.refusals.iter().find(|refusal| refusal.nodes.contains(node))?;
    Some((Arc::clone(node), refusal.clone()))
}

/// The plugin whose points change most in favour of `to`.
fn scores((before, after): (&Why, &Why), from: &Arc<str>, to: &Arc<str>) -> Reason {
    let (before, after) = (leads(before, from, to), leads(after, from, to));
    let (Some(before), Some(after)) = (before, after) else { return Reason::Unknown };
    let plugins: BTreeSet<&Text> = before.keys().chain(after.keys()).collect();
    let lead = |leads: &FxHashMap<Text, i64>, plugin| leads.get(plugin).copied().unwrap_or_default();
    let changes = plugins.into_iter().map(|plugin| (plugin, (lead(&before, plugin), lead(&after, plugin))));
    match changes.max_by_key(|(_, (before, after))| after - before) {
        Some((plugin, lead)) if lead.1 > lead.0 => Reason::Scores { plugin: plugin.clone(), lead },
        _ => Reason::Unknown,
    }
}

/// By how many points each plugin prefers `to` over `from`; `None` unless both fit.
fn leads(why: &Why, from: &Arc<str>, to: &Arc<str>) -> Option<FxHashMap<Text, i64>> {
    let place = |name| why.feasible.iter().position(|(node, _)| node == name);
    let (from, to) = (place(from)?, place(to)?);
    let lead = |scores: &[(i64, i64)]| scores[to].1 - scores[from].1;
    Some(why.scores.iter().map(|it| (it.plugin.clone(), lead(&it.scores) * it.weight)).collect())
}
