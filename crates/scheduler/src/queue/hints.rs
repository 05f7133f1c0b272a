//! Which plugins want to hear of which events, and what they make of them.

use supercargo_framework::event::{Change, HintFn, QueueingHint};
use supercargo_framework::{ActionType, ClusterEvent, EventResource, Text};

use super::context::QueueCx;
use super::entry::QueuedPod;
use super::queueing_strategy::QueueingStrategy;
use crate::extender::EXTENDER;
use crate::observer::{Observation, Timespan};
use crate::panic_guard::guard;
use crate::profile::{Profile, Profiles};

/// One plugin's wish to hear of an event.
struct Wish {
    event: ClusterEvent,
    plugin: Text,
    /// `None` always queues.
    hint: Option<HintFn>,
    /// Whether the plugin has named no events, and so hears of all that happens.
    by_default: bool,
}

/// The wishes of every profile.
pub(super) struct QueueingHints {
    by_profile: Vec<Vec<Wish>>,
}

impl QueueingHints {
    /// With extenders, every event is worth a try to a pod that they turned down: they cannot say what they wait for.
    pub(super) fn new(profiles: &Profiles, extended: bool) -> Self {
        let extenders = || extended.then(|| Wish::for_everything(EXTENDER.into()));
        let by_profile =
            profiles.iter().map(|profile| wishes(profile).into_iter().chain(extenders()).collect());
        Self { by_profile: by_profile.collect() }
    }

    /// Whether any plugin has asked for new pods without a node. Upstream's events have them only for gangs.
    pub(super) fn asks_for_unscheduled_pods(&self) -> bool {
        let asks = |event: &ClusterEvent| {
            event.resource == EventResource::UnschedulablePod && event.action.intersects(ActionType::ADD)
        };
        self.by_profile.iter().flatten().any(|wish| asks(&wish.event))
    }

    /// Whether any plugin of any profile wants to hear of the event.
    pub(super) fn interested(&self, event: &ClusterEvent) -> bool {
        event.is_wildcard() || self.by_profile.iter().flatten().any(|wish| wish.event.matches(event))
    }

    /// Whether the plugin, in any profile, wants to hear of the event. Time is no event to a plugin that has not asked for
    /// it.
    pub(super) fn plugin_interested(&self, plugin: &str, event: &ClusterEvent) -> bool {
        self.by_profile.iter().flatten().any(|wish| {
            wish.plugin == *plugin && wish.event.matches(event) && !(wish.by_default && event.is_wildcard())
        })
    }

    /// What the event means for the pod: the plugins that turned it down are asked.
    pub(super) fn strategy(
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
        let best_possible = entry.best_possible_strategy();
        let mut best = QueueingStrategy::Skip;
        for wish in &self.by_profile[entry.profile.0] {
            if wish.event.matches(event)
                && entry.rejected_by(&wish.plugin)
                && wish.queues(cx, entry, event, change)
            {
                let waits = entry.pending_plugins.contains(&wish.plugin);
                best = best.max(if waits {
                    QueueingStrategy::Immediately
                } else {
                    QueueingStrategy::AfterBackoff
                });
                if best == best_possible {
                    break;
                }
            }
        }
        best
    }
}

impl Wish {
    /// Everything that happens to anything.
    fn for_everything(plugin: Text) -> Self {
        let event = ClusterEvent::new(EventResource::Any, ActionType::ALL);
        Self { event, plugin, hint: None, by_default: true }
    }

    /// An error queues, and so does a panic: a pod tried for nothing is better than a pod left to wait.
    fn queues(&self, cx: &mut QueueCx<'_>, entry: &QueuedPod, event: &ClusterEvent, change: &Change) -> bool {
        let from = cx.observer.time_point();
        let answer = match &self.hint {
            None => Ok(Ok(QueueingHint::Queue)),
            Some(hint) => {
                let cx = cx.for_plugins();
                guard("QueueingHint", &self.plugin, || hint(&cx, &entry.pod, change))
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

fn wishes(profile: &Profile) -> Vec<Wish> {
    let mut wishes = Vec::new();
    for (plugin, registrations) in &profile.events {
        let wish = |event, hint| Wish { event, plugin: plugin.clone(), hint, by_default: false };
        match registrations {
            None => wishes.push(Wish::for_everything(plugin.clone())),
            Some(registrations) => {
                if needs_taint_updates(registrations.iter().map(|r| &r.event)) {
                    let event = ClusterEvent::new(EventResource::Node, ActionType::UPDATE_NODE_TAINT);
                    wishes.push(wish(event, None));
                }
                wishes.extend(
                    registrations
                        .iter()
                        .map(|registration| wish(registration.event.clone(), registration.hint.clone())),
                );
            }
        }
    }
    wishes
}

/// Upstream's quirk up to 1.36: who wants to hear of new nodes but not of taint updates gets every taint update,
/// without a hint.
fn needs_taint_updates<'a>(mut events: impl Iterator<Item = &'a ClusterEvent> + Clone) -> bool {
    let of_node = |event: &&ClusterEvent| event.resource == EventResource::Node;
    let taint = events.clone().filter(of_node).any(|e| e.action.intersects(ActionType::UPDATE_NODE_TAINT));
    !taint && events.any(|e| of_node(&e) && e.action.intersects(ActionType::ADD))
}
