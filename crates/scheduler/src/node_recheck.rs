//! The check before Bind that the chosen node still fits.

use std::cell::Cell;
use std::sync::Arc;

use supercargo_framework::{NodeIndex, Now, PodInfo, Status, Text, Uid};

use crate::bindings::Binding;
use crate::scheduler::Scheduler;
use supercargo_evaluation::cycle::Cycle;
use supercargo_evaluation::extender::NoCalls;
use supercargo_evaluation::extender_calls::Extenders;
use supercargo_evaluation::sampling::Sampling;
use supercargo_runtime::failure::FailureKind;
use supercargo_runtime::observer::Observation;
use supercargo_runtime::phase_timer::PhaseTimer;
use supercargo_runtime::plugin_calls::PluginCalls;
use supercargo_runtime::profile::{Profile, ProfileIndex};

/// The queue event for a pod whose node no longer fits.
const NODE_TAKEN: Text = Text::Static("NodeTaken");

/// The nodes that a part of a cycle asks about: all, a sample, or some.
#[derive(Clone, Copy, Default)]
pub(crate) struct Nodes<'a> {
    pub(crate) sampling: Option<Sampling>,
    /// In visiting order.
    pub(crate) candidates: Option<&'a [NodeIndex]>,
}

impl Scheduler {
    /// Whether the node has changed since it was chosen and no longer fits the pod. Other
    /// schedulers bind, too. If the check fails, the binding continues.
    pub(crate) fn node_no_longer_fits(&mut self, now: Now, uid: &Uid) -> bool {
        let Some(Binding { queued, node, chosen_at, .. }) = self.bindings.get(uid) else { return false };
        // A deleted pod is not on the node; its binding fails later.
        if !self.cache.is_assumed(uid) {
            return false;
        }
        let Some(info) = self.cache.nodes().get(node) else { return true };
        if info.generation() == *chosen_at {
            return false;
        }
        let (pod, node, profile) = (Arc::clone(&queued.pod), Arc::clone(node), queued.profile);
        let verdict = self.catch_panic(|this| {
            // The pod must not count against itself.
            this.forget(&pod.uid);
            Ok(this.recheck(now, &pod, profile, &node)?)
        });
        if let Err(error) = self.cache.assume(Arc::clone(&pod), node) {
            self.anomaly(&error.to_string());
        }
        self.settle_member(&pod);
        verdict.is_ok_and(|status| status.is_rejected())
    }

    fn recheck(
        &mut self,
        now: Now,
        pod: &Arc<PodInfo>,
        profile: ProfileIndex,
        node: &str,
    ) -> Result<Status, FailureKind> {
        self.cache.refreshed();
        let Some(index) = self.cache.nodes().index_of(node) else { return Ok(Status::success()) };
        self.with_cycle(now, pod, profile, |cycle| cycle.recheck(index))
    }

    /// Runs a part of a cycle that calls no extender. Plugins are not timed.
    pub(crate) fn with_cycle<R>(
        &self,
        now: Now,
        pod: &Arc<PodInfo>,
        profile: ProfileIndex,
        part: impl FnOnce(&Cycle<'_>) -> R,
    ) -> R {
        self.with_profile(now, pod, (profile, self.profiles.get(profile)), Nodes::default(), part)
    }

    /// The same with any profile, also of another scheduler.
    pub(crate) fn with_profile<R>(
        &self,
        now: Now,
        pod: &Arc<PodInfo>,
        (index, profile): (ProfileIndex, &Profile),
        Nodes { sampling, candidates }: Nodes<'_>,
        part: impl FnOnce(&Cycle<'_>) -> R,
    ) -> R {
        let cx = self.context(now);
        let mut calls = NoCalls;
        let timer = PhaseTimer::start(&*self.observer, index, pod, false);
        let plugins = PluginCalls::new(timer, &self.current_plugin);
        part(&Cycle {
            cx: &cx,
            profile,
            pod,
            queue: &self.queue,
            extenders: Extenders::of_pod(&[], &cx, pod, &plugins, &mut calls),
            sampling,
            candidates,
            plugins: &plugins,
            evaluated: Cell::default(),
        })
    }

    /// Gives up the node and tries the pod again at once.
    pub(crate) fn choose_another_node(&mut self, now: Now, uid: &Uid) {
        let Some(binding) = self.bindings.remove(uid) else { return };
        self.observer.observe(Observation::NodeTaken);
        self.put_back(now, binding, &NODE_TAKEN);
    }
}
