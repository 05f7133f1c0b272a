//! Turns observations into log lines.

use supercargo_runtime::observer::{Observation, Observer};

/// Logs what deserves it.
pub struct LogObserver;

impl Observer for LogObserver {
    fn observe(&self, observation: Observation<'_>) {
        match observation {
            Observation::Anomaly(text) => tracing::error!("{text}"),
            Observation::NodeTaken => tracing::info!("a node no longer fits a pod that waited for it"),
            Observation::LostRace => tracing::warn!("a pod was bound elsewhere while it was being bound"),
            Observation::Attempt { pod, result, attempts, .. } => {
                tracing::debug!(pod = %pod.key(), ?result, attempts, "attempt");
            }
            Observation::QueueIncoming { queue, event } => tracing::trace!(?queue, event, "queued"),
            Observation::Hint { plugin, hint, .. } => tracing::trace!(%plugin, hint, "hint"),
            Observation::PermitWaited { result, waited } => tracing::debug!(result, ?waited, "permit"),
            Observation::Preempting { victims } => tracing::debug!(victims, "preempting"),
            Observation::PluginFailed { plugin, point } => {
                tracing::debug!(plugin, point = point.as_str(), "a plugin failed");
            }
            // Only how long they took is of interest.
            Observation::Algorithm(_)
            | Observation::ExtensionPoint { .. }
            | Observation::Plugin { .. }
            | Observation::Evaluated { .. }
            | Observation::Handled { .. }
            | Observation::Preempted { .. } => {}
        }
    }
}
