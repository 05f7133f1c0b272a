//! Which plugins want to hear of which events, and what they make of them.

use supercargo_framework::event::{Change, HintFn, QueueingHint};
use supercargo_framework::{ActionType, ClusterEvent, EventResource, Text};

use super::entry::QueuedPod;
use crate::observer::{Observation, Observer};
use crate::profile::{Profile, Profiles};

/// What an event means for a pod that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Worth {
    /// Nothing.
    Skip,
    /// Try again once its backoff has ended.
    AfterBackoff,
    /// Try again at once.
    Immediately,
}

/// One plugin's wish to hear of an event.
struct Wish {
    event: ClusterEvent,
    plugin: Text,
    /// `None` always queues.
    hint: Option<HintFn>,
}

/// The wishes of every profile.
pub(super) struct QueueingHints {
    by_profile: Vec<Vec<Wish>>,
}

impl QueueingHints {
    pub(super) fn new(profiles: &Profiles) -> Self {
        Self {
            by_profile: profiles.iter().map(wishes).collect(),
        }
    }

    /// Whether any plugin of any profile wants to hear of the event.
    pub(super) fn interested(&self, event: &ClusterEvent) -> bool {
        event.is_wildcard()
            || self
                .by_profile
                .iter()
                .flatten()
                .any(|wish| wish.event.matches(event))
    }

    /// Whether the plugin, in any profile, wants to hear of the event.
    pub(super) fn plugin_interested(&self, plugin: &str, event: &ClusterEvent) -> bool {
        self.by_profile
            .iter()
            .flatten()
            .any(|wish| wish.plugin == *plugin && wish.event.matches(event))
    }

    /// What the event means for the pod: the plugins that turned it down are asked.
    pub(super) fn worth(
        &self,
        entry: &QueuedPod,
        event: &ClusterEvent,
        change: &Change,
        observer: &mut dyn Observer,
    ) -> Worth {
        if !entry.has_rejectors() {
            return Worth::AfterBackoff;
        }
        if event.is_wildcard() {
            let about_another = change.new_pod().is_some_and(|pod| pod.uid != entry.pod.uid);
            return if about_another {
                Worth::Skip
            } else {
                Worth::AfterBackoff
            };
        }
        let mut worth = Worth::Skip;
        for wish in &self.by_profile[entry.profile.0] {
            if !wish.event.matches(event) || !entry.rejected_by(&wish.plugin) {
                continue;
            }
            if !wish.queues(entry, change, observer) {
                continue;
            }
            if entry.pending_plugins.contains(&wish.plugin) {
                return Worth::Immediately;
            }
            worth = Worth::AfterBackoff;
            if entry.pending_plugins.is_empty() {
                return worth;
            }
        }
        worth
    }
}

impl Wish {
    /// An error queues: a pod tried for nothing is better than a pod left to wait.
    fn queues(&self, entry: &QueuedPod, change: &Change, observer: &mut dyn Observer) -> bool {
        let answer = self
            .hint
            .as_ref()
            .map_or(Ok(QueueingHint::Queue), |hint| hint(&entry.pod, change));
        let hint = match answer {
            Ok(QueueingHint::Queue) => "Queue",
            Ok(QueueingHint::Skip) => "QueueSkip",
            Err(_) => "Error",
        };
        observer.observe(Observation::Hint {
            plugin: &self.plugin,
            hint,
        });
        hint != "QueueSkip"
    }
}

fn wishes(profile: &Profile) -> Vec<Wish> {
    let mut wishes = Vec::new();
    for (plugin, registrations) in &profile.events {
        let wish = |event, hint| Wish {
            event,
            plugin: plugin.clone(),
            hint,
        };
        match registrations {
            None => wishes.push(wish(ClusterEvent::new(EventResource::Any, ActionType::ALL), None)),
            Some(registrations) => {
                if needs_taint_updates(registrations.iter().map(|r| &r.event)) {
                    let event = ClusterEvent::new(EventResource::Node, ActionType::UPDATE_NODE_TAINT);
                    wishes.push(wish(event, None));
                }
                wishes.extend(registrations.iter().map(|registration| {
                    let hint = registration.hint.clone();
                    wish(registration.event.clone(), hint)
                }));
            }
        }
    }
    wishes
}

/// Upstream's quirk up to 1.36: who wants to hear of new nodes but not of taint updates gets every taint update,
/// without a hint.
fn needs_taint_updates<'a>(mut events: impl Iterator<Item = &'a ClusterEvent> + Clone) -> bool {
    let of_node = |event: &&ClusterEvent| event.resource == EventResource::Node;
    let taint = events
        .clone()
        .filter(of_node)
        .any(|e| e.action.intersects(ActionType::UPDATE_NODE_TAINT));
    !taint && events.any(|e| of_node(&e) && e.action.intersects(ActionType::ADD))
}
