//! Logs observations of the scheduler.

use supercargo_runtime::observer::{Observation, Observer};

/// An observer that logs notable observations.
pub struct LogObserver;

impl Observer for LogObserver {
    fn observe(&self, observation: Observation<'_>) {
        match observation {
            Observation::Anomaly(text) => tracing::error!("{text}"),
            Observation::NodeTaken => tracing::info!("node no longer fits a pod that waited for it"),
            Observation::LostRace => {
                tracing::warn!("pod was bound elsewhere while this scheduler was binding it");
            }
            Observation::Attempt { pod, result, attempts, .. } => {
                tracing::debug!(pod = %pod.key(), ?result, attempts, "attempt");
            }
            Observation::QueueIncoming { queue, event, .. } => tracing::trace!(?queue, event, "queued"),
            Observation::Hint { plugin, hint, .. } => tracing::trace!(%plugin, hint, "hint"),
            Observation::PermitWaited { result, waited } => tracing::debug!(result, ?waited, "permit"),
            Observation::Preempting { victims, .. } => {
                tracing::debug!(victims = victims.pods.len(), "preempting");
            }
            Observation::PluginFailed { plugin, point } => {
                tracing::debug!(plugin, point = point.as_str(), "plugin failed");
            }
            // Only metrics record these.
            Observation::Algorithm(_)
            | Observation::ExtensionPoint { .. }
            | Observation::Plugin { .. }
            | Observation::Evaluated { .. }
            | Observation::Handled { .. }
            | Observation::GroupAlgorithm(_)
            | Observation::GroupAttempt { .. }
            | Observation::Placements { .. }
            | Observation::PlacementTried { .. }
            | Observation::ClaimCreation { .. }
            | Observation::DevicesAwaited { .. }
            | Observation::GroupPreemptionEvaluated { .. }
            | Observation::Preempted { .. } => {}
        }
    }
}
