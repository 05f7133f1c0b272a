//! Dispatches each effect to the component that carries it out.

use supercargo_scheduler::{Effect, EventType};

use crate::binder::Binder;
use crate::events::Recorder;
use crate::owner::CarryOut;
use crate::preemptor::Preemptor;
use crate::status_writer::Patches;

/// The components that carry out effects.
pub struct EffectHandler {
    /// Where the components run.
    pub runtime: tokio::runtime::Handle,
    /// Prepares and binds pods.
    pub binder: Binder,
    /// Evicts pods.
    pub preemptor: Preemptor,
    /// Writes events.
    pub recorder: Recorder,
    /// Patches statuses of pods and groups.
    pub patches: Patches,
}

impl CarryOut for EffectHandler {
    fn carry_out(&mut self, effect: Effect) {
        // The owner's thread does not belong to the runtime.
        let _runtime = self.runtime.enter();
        match effect {
            Effect::StartPreBind { pod, groups, .. } => self.binder.pre_bind(&pod, groups),
            Effect::CancelPreBind(uid) => self.binder.cancel_pre_bind(&uid),
            Effect::Bind { pod, node, extenders, binders } => {
                let settled = self.patches.settle(&pod.uid);
                self.binder.bind(pod, node, extenders, binders, settled);
            }
            Effect::ReadPod { pod, uid } => self.binder.read(pod, uid),
            Effect::Write { resource, call, then, pod, retries } => {
                self.binder.write(resource, call, then, pod, retries);
            }
            Effect::Evict { preemption, victims } => self.preemptor.evict(preemption, victims),
            Effect::PatchPodStatus(patch) => self.patches.send(patch),
            Effect::PatchGroupStatus(patch) => self.patches.send_group(patch),
            Effect::RecordEvent(event) => {
                match event.kind {
                    EventType::Normal => tracing::info!(pod = %event.pod, "{}", event.note),
                    EventType::Warning => {
                        tracing::info!(pod = %event.pod, "unable to schedule: {}", event.note);
                    }
                }
                self.recorder.record(event);
            }
        }
    }

    fn has_room(&self) -> bool {
        self.binder.has_room()
    }

    fn may_write(&self) -> bool {
        self.binder.may_write()
    }
}
