//! Registered events and their queueing hints.

use supercargo_framework::event::{Change, HintFn, QueueingHint};
use supercargo_framework::{ActionType, ClusterEvent, EventResource, Text};

use super::context::QueueCx;
use super::entry::QueuedPod;
use super::queueing_strategy::QueueingStrategy;
use crate::extender::EXTENDER;
use supercargo_runtime::observer::{Observation, Timespan};
use supercargo_runtime::panic_guard::guard;
use supercargo_runtime::profile::{Profile, Profiles};

/// A plugin's registration for an event.
struct Registration {
    event: ClusterEvent,
    plugin: Text,
    /// `None` always queues.
    hint: Option<HintFn>,
    /// Whether the plugin registers for no events, and so gets all of them.
    by_default: bool,
}

/// The registrations of every profile.
pub(super) struct QueueingHints {
    by_profile: Vec<Vec<Registration>>,
}

impl QueueingHints {
    /// With extenders, every event may help a pod that they rejected: they register for none.
    pub(super) fn new(profiles: &Profiles, extended: bool) -> Self {
        let extenders = || extended.then(|| Registration::for_everything(EXTENDER.into()));
        let by_profile =
            profiles.iter().map(|profile| registrations_of(profile).into_iter().chain(extenders()).collect());
        Self { by_profile: by_profile.collect() }
    }

    /// Whether a plugin registers for new pods without a node. Upstream has such events for gangs
    /// only.
    pub(super) fn asks_for_unscheduled_pods(&self) -> bool {
        let asks = |event: &ClusterEvent| {
            event.resource == EventResource::UnschedulablePod && event.action.intersects(ActionType::ADD)
        };
        self.by_profile.iter().flatten().any(|registration| asks(&registration.event))
    }

    /// Whether a plugin of any profile registers for the event.
    pub(super) fn interested(&self, event: &ClusterEvent) -> bool {
        event.is_wildcard()
            || self.by_profile.iter().flatten().any(|registration| registration.event.matches(event))
    }

    /// Whether the plugin, in any profile, registers for the event. Timeouts do not count for a
    /// plugin that registers for no events.
    pub(super) fn plugin_interested(&self, plugin: &str, event: &ClusterEvent) -> bool {
        self.by_profile.iter().flatten().any(|registration| {
            registration.plugin == *plugin
                && registration.event.matches(event)
                && !(registration.by_default && event.is_wildcard())
        })
    }

    /// What the event means for the pod: the hints of the plugins that rejected it decide.
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
        for registration in &self.by_profile[entry.profile.0] {
            if registration.event.matches(event)
                && entry.rejected_by(&registration.plugin)
                && registration.queues(cx, entry, event, change)
            {
                let waits = entry.pending_plugins.contains(&registration.plugin);
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

impl Registration {
    /// A registration for all events.
    fn for_everything(plugin: Text) -> Self {
        let event = ClusterEvent::new(EventResource::Any, ActionType::ALL);
        Self { event, plugin, hint: None, by_default: true }
    }

    /// An error or a panic queues the pod: a needless attempt is better than a pod that waits
    /// forever.
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

fn registrations_of(profile: &Profile) -> Vec<Registration> {
    let mut all = Vec::new();
    for (plugin, registrations) in &profile.events {
        let of_plugin = |event, hint| Registration { event, plugin: plugin.clone(), hint, by_default: false };
        match registrations {
            None => all.push(Registration::for_everything(plugin.clone())),
            Some(registrations) => {
                if needs_taint_updates(registrations.iter().map(|r| &r.event)) {
                    let event = ClusterEvent::new(EventResource::Node, ActionType::UPDATE_NODE_TAINT);
                    all.push(of_plugin(event, None));
                }
                all.extend(registrations.iter().map(|it| of_plugin(it.event.clone(), it.hint.clone())));
            }
        }
    }
    all
}

/// Upstream's quirk up to 1.36: a plugin that registers for new nodes but not for taint updates
/// gets every taint update, without a hint.
fn needs_taint_updates<'a>(mut events: impl Iterator<Item = &'a ClusterEvent> + Clone) -> bool {
    let of_node = |event: &&ClusterEvent| event.resource == EventResource::Node;
    let taint = events.clone().filter(of_node).any(|e| e.action.intersects(ActionType::UPDATE_NODE_TAINT));
    !taint && events.any(|e| of_node(&e) && e.action.intersects(ActionType::ADD))
}
