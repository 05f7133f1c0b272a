//! Changes of the configuration between two cycles.

use std::collections::BTreeSet;
use std::sync::Arc;

use supercargo_framework::{Now, PodInfo};

use crate::scheduler::{BuildError, Options, Scheduler, registered_kinds};
use supercargo_evaluation::tables::Tables;
use supercargo_queue::QueuedPod;
use supercargo_runtime::profile::{ProfileIndex, Profiles};

impl Scheduler {
    /// Applies other profiles and settings. On an error, nothing changes.
    ///
    /// Queued pods keep their attempts, backoff and nominations. Every waiting pod is tried again,
    /// because the plugin that rejected it may be gone. Bindings end under the profile that chose
    /// their node. Pods that gain a profile enter the queue, and pods that lose theirs leave it.
    ///
    /// The kinds to watch ([`resources`](Self::resources)) may change. The hash seed does not.
    pub fn reconfigure(&mut self, now: Now, options: Options) -> Result<(), BuildError> {
        let next = Profiles::new(&options.profiles)?;
        let in_use = self.in_attempt().map(|queued| queued.profile).collect();
        self.replace_profiles(next, &in_use);
        self.report_profiles();
        self.registered_kinds = registered_kinds(&self.profiles, &options.extenders);
        let tables = || Tables::new(self.profiles.active_count(), options.table_memory, &self.hash_seed);
        self.tables = (!options.plain).then(tables);
        self.percentage_of_nodes_to_score = options.percentage_of_nodes_to_score;
        self.features = options.features;
        self.extenders = options.extenders;
        let unserved = self.queued_without_profile();
        for pod in &unserved {
            // PreEnqueue counts the members of a group.
            self.objects.set_member(pod, None);
        }
        let extended = !self.extenders.is_empty();
        self.with_queue(now, |queue, cx| queue.reconfigure(cx, options.queue, extended));
        for pod in unserved {
            self.delete_from_queue(now, &pod);
            self.unclaimed_pods.insert(pod.key(), pod);
        }
        self.add_pods_with_profile(now);
        self.reconfigurations += 1;
        Ok(())
    }

    /// How often the profiles were replaced.
    pub fn reconfigurations(&self) -> u64 {
        self.reconfigurations
    }

    /// Drops a pod whose profile was removed during its attempt, until another profile serves it.
    pub(crate) fn unclaim(&mut self, pod: Arc<PodInfo>) {
        self.pending.remove(&pod.key());
        self.unconfirmed_patches.forget(&pod.uid);
        self.settle_member(&pod);
        self.unclaimed_pods.insert(pod.key(), pod);
    }

    /// The pods whose attempt is in progress.
    pub(crate) fn in_attempt(&self) -> impl Iterator<Item = &QueuedPod> {
        let held = self.preemptions.held.as_ref().map(|held| &held.queued);
        self.bindings.iter().map(|binding| &binding.queued).chain(held)
    }

    fn replace_profiles(&mut self, next: Profiles, in_use: &BTreeSet<ProfileIndex>) {
        let moved = self.profiles.replace(next, in_use);
        let held = self.preemptions.held.as_mut().map(|held| &mut held.queued);
        for queued in self.bindings.iter_mut().map(|binding| &mut binding.queued).chain(held) {
            queued.profile = moved[&queued.profile];
        }
    }

    /// The queued pods that no profile serves any more.
    fn queued_without_profile(&self) -> Vec<Arc<PodInfo>> {
        let waiting = self.queue.entries().map(|entry| &entry.pod);
        waiting.filter(|pod| self.profile_of(pod).is_none()).cloned().collect()
    }

    fn add_pods_with_profile(&mut self, now: Now) {
        let is_served = |pod: &&Arc<PodInfo>| self.profile_of(pod).is_some();
        let mut served: Vec<_> = self.unclaimed_pods.values().filter(is_served).cloned().collect();
        served.sort_by_key(|pod| pod.key());
        for pod in served {
            self.unclaimed_pods.remove(&pod.key());
            self.add_to_queue(now, pod);
        }
    }
}
