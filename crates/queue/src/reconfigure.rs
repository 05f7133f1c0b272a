//! Applies a changed configuration to the queue.

use std::sync::Arc;

use supercargo_framework::Text;

use super::context::QueueCx;
use super::entry::QueuedPod;
use super::entry_reason::EntryReason;
use super::guarded_sort::GuardedSort;
use super::hints::QueueingHints;
use super::queueing_strategy::QueueingStrategy;
use super::{Place, QueueOptions, SchedulingQueue};

const CONFIGURATION_RELOAD: Text = Text::Static("ConfigurationReload");

impl SchedulingQueue {
    /// Applies the profiles of `cx`. Pods in backoff stay there; all others are tried again, unless
    /// PreEnqueue holds them. Drops pods without a profile.
    pub fn reconfigure(&mut self, cx: &mut QueueCx<'_>, options: QueueOptions, extended: bool) {
        let uids: Vec<_> = self.entries.keys().cloned().collect();
        let mut waiting: Vec<_> = uids
            .iter()
            .filter_map(|uid| {
                let is_active = self.place(uid) == Some(Place::Active);
                Some((self.take(uid)?, is_active))
            })
            .collect();
        // All pods were taken out, so the old counts are 0.
        self.rejected.clear();
        waiting.sort_by_key(|(entry, _)| entry.sequence);
        self.options = options;
        self.sort = Arc::new(GuardedSort::new(cx.profiles.queue_sort()));
        self.hints = QueueingHints::new(cx.profiles, extended);
        self.groups.retain(|member| set_profile(cx, member));
        for (mut entry, is_active) in waiting {
            let is_empty = entry.group.is_some() && self.groups.members(entry.uid()).is_none();
            if is_empty || !set_profile(cx, &mut entry) {
                continue;
            }
            if is_active {
                self.move_to_active(cx, entry, EntryReason::new(&CONFIGURATION_RELOAD), false);
            } else {
                self.requeue(cx, entry, QueueingStrategy::AfterBackoff, &CONFIGURATION_RELOAD);
            }
        }
    }
}

/// Sets the profile of the pod's scheduler name; `false` if there is none.
fn set_profile(cx: &QueueCx<'_>, entry: &mut QueuedPod) -> bool {
    let profile = cx.profiles.index_of(&entry.pod.spec.scheduler_name);
    entry.profile = profile.unwrap_or(entry.profile);
    entry.asked = false;
    profile.is_some()
}
