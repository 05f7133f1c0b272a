//! Registered events and their queueing hints.

use std::collections::BTreeSet;
use std::sync::Arc;

use smallvec::SmallVec;
use supercargo_framework::caching::{HintCaching, HintMarks, HintScope, Mark};
use supercargo_framework::event::{Change, EventRegistration, HintFn, QueueingHint};
use supercargo_framework::objects::{GroupKey, resources};
use supercargo_framework::{ActionType, ClusterEvent, EventResource, PodInfo, Text, steps};

use super::context::QueueCx;
use super::entry::QueuedPod;
use super::queueing_strategy::QueueingStrategy;
use super::size::Amounts;
use super::waiting_groups::GroupRejection;
use supercargo_runtime::observer::{Observation, Timespan};
use supercargo_runtime::panic_guard::guard;
use supercargo_runtime::profile::{Profile, Profiles, all_events};

/// After an event that brings more, it is quicker to look at all pods.
const MOST_BROUGHT: usize = 2048;

/// The name that stands for all extenders in a diagnosis.
pub const EXTENDER: &str = "Extender";

/// A plugin's registration for an event.
struct Registration {
    event: ClusterEvent,
    plugin: Text,
    /// `None` always queues.
    hint: Option<HintFn>,
    caching: HintCaching,
}

/// The registrations of every profile.
pub(crate) struct QueueingHints {
    by_profile: Vec<Vec<Registration>>,
}

impl QueueingHints {
    /// Extenders register for no events.
    pub(crate) fn new(profiles: &Profiles, extended: bool) -> Self {
        let of_extenders =
            || if extended { registrations_of(&EXTENDER.into(), &all_events()) } else { Vec::new() };
        let of_profile = |profile: &Profile| {
            let of_plugins =
                profile.events.iter().flat_map(|(plugin, events)| registrations_of(plugin, events));
            of_plugins.chain(of_extenders()).collect()
        };
        Self { by_profile: profiles.iter().map(of_profile).collect() }
    }

    /// Whether a plugin registers for new pods without a node. Upstream has such events for gangs
    /// only.
    pub(crate) fn asks_for_unscheduled_pods(&self) -> bool {
        let asks = |event: &ClusterEvent| {
            event.resource == EventResource::UnscheduledPod && event.action.intersects(ActionType::ADD)
        };
        self.by_profile.iter().flatten().any(|registration| asks(&registration.event))
    }

    /// Whether a plugin of any profile registers for the event.
    pub(crate) fn interested(&self, event: &ClusterEvent) -> bool {
        event.is_wildcard()
            || self.by_profile.iter().flatten().any(|registration| registration.event.matches(event))
    }

    /// The claims of pods whom the event may help, for hints that find pods by their claims.
    pub(crate) fn claims<'a>(&self, event: &ClusterEvent, change: &'a Change) -> BTreeSet<&'a Arc<str>> {
        let registered = self.by_profile.iter().flatten().filter(|it| it.event.matches(event));
        registered.filter_map(|it| (it.caching.claim?)(change)).collect()
    }

    /// Whether the plugin, in any profile, registers for the event.
    fn plugin_interested(&self, plugin: &str, event: &ClusterEvent) -> bool {
        self.by_profile
            .iter()
            .flatten()
            .any(|registration| registration.plugin == *plugin && registration.event.matches(event))
    }

    /// What the hints of the plugins that rejected the pod read of it.
    pub(crate) fn reads(&self, entry: &QueuedPod) -> Reads {
        let registrations = &self.by_profile[entry.profile.0];
        let rejecting = || registrations.iter().filter(|it| entry.rejected_by(&it.plugin));
        let scopes = rejecting().map(|registration| registration.caching.scope);
        Reads {
            scope: scopes.fold(HintScope::empty(), HintScope::union),
            marks: rejecting().filter_map(|registration| registration.caching.marks).collect(),
        }
    }

    /// The hints about an event for pods that the same plugins rejected as this one.
    pub(crate) fn concerned<'a>(
        &'a self,
        entry: &QueuedPod,
        event: &'a ClusterEvent,
        change: &'a Change,
    ) -> Concerned<'a> {
        let registered = self.by_profile[entry.profile.0].iter().filter(|it| it.event.matches(event));
        let hints = registered.filter(|it| entry.rejected_by(&it.plugin)).map(|registration| {
            let waits = entry.pending_plugins.contains(&registration.plugin);
            let strategy = if waits { QueueingStrategy::Immediately } else { QueueingStrategy::AfterBackoff };
            (registration, strategy)
        });
        Concerned { event, change, hints: hints.collect() }
    }

    /// Whether the PreEnqueue plugin that holds a pod does not register for the event. A wildcard
    /// event makes the queue ask every plugin again.
    pub(crate) fn is_held(&self, gating_plugin: Option<&Text>, event: &ClusterEvent) -> bool {
        !event.is_wildcard() && gating_plugin.is_some_and(|plugin| !self.plugin_interested(plugin, event))
    }

    /// The groups rejected so that the event may help.
    pub(crate) fn reach<'a>(
        &self,
        rejection: &GroupRejection,
        event: &ClusterEvent,
        change: &'a Change,
    ) -> Reach<'a> {
        if self.is_held(rejection.gating_plugin.as_ref(), event) {
            return Reach::default();
        }
        if event.is_wildcard() {
            return Reach::ALL;
        }
        let mut reach = Reach::default();
        for (profile, plugin) in &rejection.rejectors {
            let Some(plugin) = plugin else { return Reach::ALL };
            let registered = self.by_profile[profile.0].iter().filter(|it| it.event.matches(event));
            registered.filter(|it| it.plugin == *plugin).for_each(|it| reach.extend(&it.caching, change));
        }
        reach
    }

    /// What the event means for the pod: the hints of the plugins that rejected it decide.
    pub(crate) fn strategy(
        &self,
        cx: &mut QueueCx<'_>,
        entry: &QueuedPod,
        event: &ClusterEvent,
        change: &Change,
    ) -> QueueingStrategy {
        if !entry.has_rejectors() {
            return QueueingStrategy::AfterBackoff;
        }
        if event.is_wildcard() {
            let about_another = change.new_pod().is_some_and(|pod| pod.uid != entry.pod.uid);
            return if about_another { QueueingStrategy::Skip } else { QueueingStrategy::AfterBackoff };
        }
        self.concerned(entry, event, change).strategy(cx, &entry.pod)
    }
}

/// What hints read of a pod, and find it by.
#[derive(Clone, Default)]
pub(crate) struct Reads {
    pub(crate) scope: HintScope,
    pub(crate) marks: SmallVec<[HintMarks; 2]>,
}

impl From<HintScope> for Reads {
    fn from(scope: HintScope) -> Self {
        Self { scope, marks: SmallVec::new() }
    }
}

/// The groups of pods that an event may help.
#[derive(Default)]
pub(crate) struct Reach<'a> {
    pub(crate) all: bool,
    /// Those in whose trees these groups are.
    pub(crate) groups: SmallVec<[GroupKey; 1]>,
    /// Those with a pod that names one of these claims.
    pub(crate) claims: SmallVec<[&'a Arc<str>; 1]>,
}

impl<'a> Reach<'a> {
    const ALL: Self = Self { all: true, groups: SmallVec::new_const(), claims: SmallVec::new_const() };

    /// Adds the groups that a hint may queue.
    fn extend(&mut self, hint: &HintCaching, change: &'a Change) {
        match (hint.group, hint.claim.and_then(|claim| claim(change))) {
            (Some(group), _) => self.groups.extend(group(change)),
            (None, Some(claim)) => self.claims.push(claim),
            (None, None) => self.all = true,
        }
    }
}

/// The pods of which an event may help some.
#[derive(Default)]
pub(crate) struct PodReach {
    pub(crate) all: bool,
    /// Those that request no more than one of these.
    pub(crate) offers: SmallVec<[Amounts; 1]>,
    /// Those that ask for one of these.
    pub(crate) brought: BTreeSet<Mark>,
}

impl PodReach {
    pub(crate) const ALL: Self = Self { all: true, offers: SmallVec::new_const(), brought: BTreeSet::new() };
}

/// The hints that decide whether an event helps pods that the same plugins rejected.
pub(crate) struct Concerned<'a> {
    event: &'a ClusterEvent,
    change: &'a Change,
    /// Each with the strategy for a pod that it queues.
    hints: SmallVec<[(&'a Registration, QueueingStrategy); 4]>,
}

impl Concerned<'_> {
    /// Whether there is no hint.
    pub(crate) fn is_empty(&self) -> bool {
        self.hints.is_empty()
    }

    /// What the hints read of a pod after this change.
    pub(crate) fn scope(&self) -> HintScope {
        let scopes = self.hints.iter().map(|(it, _)| it.caching.scope_after(self.change));
        scopes.fold(HintScope::empty(), HintScope::union)
    }

    /// The claim that a pod must name so that a hint may queue it; `None` if there is none.
    pub(crate) fn claim(&self) -> Option<&Arc<str>> {
        let mut claims =
            self.hints.iter().map(|(registration, _)| (registration.caching.claim?)(self.change));
        let first = claims.next()??;
        claims.all(|claim| claim == Some(first)).then_some(first)
    }

    /// The pods that a hint may queue. `any` of them stands for all where only the event matters.
    pub(crate) fn pod_reach(&self, cx: &mut QueueCx<'_>, any: &PodInfo) -> PodReach {
        let mut reach = PodReach::default();
        for (registration, _) in &self.hints {
            let caching = &registration.caching;
            let brought = caching.marks.and_then(|marks| (marks.of_change)(self.change));
            if let Some(brought) = brought.filter(|brought| brought.len() <= MOST_BROUGHT) {
                steps::add(brought.len());
                reach.brought.extend(brought.into_iter().chain([Mark::Any]));
            } else if let Some(offered) = caching.offer.and_then(|offer| offer(self.change)) {
                let has_classes = cx.objects.list(&resources::DEVICE_CLASS).next().is_some();
                let amounts = Amounts::of(offered);
                reach.offers.push(if has_classes { amounts.with_any_others() } else { amounts });
            } else if !caching.scope_after(self.change).is_empty()
                || registration.queues(cx, any, self.event, self.change)
            {
                return PodReach::ALL;
            }
        }
        reach
    }

    /// What the event means for one of the pods.
    pub(crate) fn strategy(&self, cx: &mut QueueCx<'_>, pod: &PodInfo) -> QueueingStrategy {
        let mut best = QueueingStrategy::Skip;
        for (registration, strategy) in &self.hints {
            if *strategy > best && registration.queues(cx, pod, self.event, self.change) {
                best = *strategy;
            }
        }
        best
    }
}

impl Registration {
    /// An error or a panic queues the pod: a needless attempt is better than a pod that waits
    /// forever.
    fn queues(&self, cx: &mut QueueCx<'_>, pod: &PodInfo, event: &ClusterEvent, change: &Change) -> bool {
        let from = cx.observer.time_point();
        let answer = match &self.hint {
            None => Ok(Ok(QueueingHint::Queue)),
            Some(hint) => {
                let cx = cx.for_plugins();
                guard("QueueingHint", &self.plugin, || hint(&cx, pod, change))
            }
        };
        let (queues, hint) = match answer {
            Ok(Ok(QueueingHint::Queue)) => (true, "Queue"),
            Ok(Ok(QueueingHint::Skip)) => (false, "QueueSkip"),
            Ok(Err(_)) => (true, "Error"),
            Err(panic) => {
                cx.panic = Some(panic);
                (true, "Error")
            }
        };
        let took = Timespan { from, to: cx.observer.time_point() };
        cx.observer.observe(Observation::Hint { plugin: &self.plugin, event, hint, took });
        queues
    }
}

fn registrations_of(plugin: &Text, events: &[EventRegistration]) -> Vec<Registration> {
    let of_plugin = |it: &EventRegistration| Registration {
        event: it.event.clone(),
        plugin: plugin.clone(),
        hint: it.hint.clone(),
        caching: it.caching,
    };
    events.iter().map(of_plugin).collect()
}
