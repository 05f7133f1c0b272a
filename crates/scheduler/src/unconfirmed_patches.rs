//! Status patches that the informer has not confirmed.
//!
//! A pod may be tried again before the patch of its last attempt is sent or reported. The new
//! attempt is then also compared with the last patch: even if it wants the reported status, it must
//! replace a nomination or condition that is on its way.

use rustc_hash::FxHashMap;
use supercargo_framework::plugin::Nomination;
use supercargo_framework::pod::PodCondition;
use supercargo_framework::{PodInfo, Uid};

use crate::effect::{Effect, StatusPatch};
use crate::scheduler::Scheduler;

/// The fields of a pod's status as last asked for.
#[derive(Clone, Debug, Default)]
struct Asked {
    condition: Option<PodCondition>,
    nomination: Nomination,
}

/// The unconfirmed patches of pending pods.
#[derive(Clone, Debug, Default)]
pub(crate) struct UnconfirmedPatches(FxHashMap<Uid, Asked>);

impl UnconfirmedPatches {
    /// The pod's condition as last asked for, if a patch of it is unconfirmed.
    fn condition(&self, uid: &Uid) -> Option<&PodCondition> {
        self.0.get(uid)?.condition.as_ref()
    }

    /// The pod's nominated node as last asked for, if a patch of it is unconfirmed.
    fn nomination(&self, uid: &Uid) -> Option<&Nomination> {
        self.0.get(uid).map(|asked| &asked.nomination).filter(|asked| **asked != Nomination::Keep)
    }

    fn note(&mut self, patch: &StatusPatch) {
        let asked = self.0.entry(patch.uid.clone()).or_default();
        if patch.condition.is_some() {
            asked.condition.clone_from(&patch.condition);
        }
        if patch.nomination != Nomination::Keep {
            asked.nomination.clone_from(&patch.nomination);
        }
    }

    /// The informer reports the pod: the fields that it shows are confirmed.
    pub(crate) fn confirm(&mut self, pod: &PodInfo) {
        let Some(asked) = self.0.get_mut(&pod.uid) else { return };
        let reported = pod.status.pod_scheduled.as_ref();
        if asked.condition.as_ref().zip(reported).is_some_and(|(asked, reported)| is_same(asked, reported)) {
            asked.condition = None;
        }
        if asked.nomination == Nomination::Override(pod.status.nominated_node_name.clone()) {
            asked.nomination = Nomination::Keep;
        }
        if asked.condition.is_none() && asked.nomination == Nomination::Keep {
            self.forget(&pod.uid);
        }
    }

    /// The pod is no longer pending.
    pub(crate) fn forget(&mut self, uid: &Uid) {
        self.0.remove(uid);
    }

    /// The pods with unconfirmed patches.
    pub(crate) fn uids(&self) -> impl Iterator<Item = &Uid> {
        self.0.keys()
    }
}

/// Whether two conditions say the same. As upstream, the generation does not count.
fn is_same(one: &PodCondition, other: &PodCondition) -> bool {
    (&one.status, &one.reason, &one.message) == (&other.status, &other.reason, &other.message)
}

impl Scheduler {
    /// Whether the pod's nomination, as reported or as last asked for, is another one.
    pub(crate) fn changes_nomination(&self, pod: &PodInfo, wanted: &Nomination) -> bool {
        let Nomination::Override(node) = wanted else { return false };
        *node != pod.status.nominated_node_name
            || self.unconfirmed_patches.nomination(&pod.uid).is_some_and(|asked| asked != wanted)
    }

    /// Whether the pod's condition, as reported or as last asked for, is another one.
    pub(crate) fn changes_condition(&self, pod: &PodInfo, wanted: &PodCondition) -> bool {
        let is_other = |known: &PodCondition| !is_same(known, wanted);
        pod.status.pod_scheduled.as_ref().is_none_or(is_other)
            || self.unconfirmed_patches.condition(&pod.uid).is_some_and(is_other)
    }

    /// Patches the nomination, unless it is the same.
    pub(crate) fn patch_nomination(&mut self, pod: &PodInfo, nomination: Nomination) {
        if self.changes_nomination(pod, &nomination) {
            self.patch_status(pod, None, nomination);
        }
    }

    /// Patches the status of a pod.
    pub(crate) fn patch_status(
        &mut self,
        pod: &PodInfo,
        condition: Option<PodCondition>,
        nomination: Nomination,
    ) {
        let patch = StatusPatch { pod: pod.key(), uid: pod.uid.clone(), condition, nomination };
        if self.known(pod).is_some() {
            self.unconfirmed_patches.note(&patch);
        }
        self.effects.push(Effect::PatchPodStatus(patch));
    }
}
