//! Records the scheduler's observations.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use supercargo_scheduler::{Observation, Observer, QueueName};

use super::calls::lock;

/// The observations since the last step.
#[derive(Debug, Default)]
pub(super) struct Observations {
    /// How often pods went into a queue, by `queue/EVENT`.
    pub(super) moves: BTreeMap<String, u64>,
    /// How often pods or groups were new in a queue, by `type/queue/EVENT`.
    pub(super) entities: BTreeMap<String, u64>,
    /// Violations.
    pub(super) anomalies: Vec<String>,
    /// The pod of the last attempt.
    pub(super) attempted: Option<String>,
}

/// The observer.
pub(super) struct Recorder(pub(super) Arc<Mutex<Observations>>);

impl Observer for Recorder {
    fn observe(&self, observation: Observation<'_>) {
        let mut observations = lock(&self.0);
        match observation {
            Observation::QueueIncoming { queue, event, entity, is_entity } => {
                let queue = match queue {
                    QueueName::Active => "active",
                    QueueName::Backoff => "backoff",
                    QueueName::Unschedulable => "unschedulable",
                };
                let moves = observations.moves.entry(format!("{queue}/{event}")).or_default();
                *moves += entity.pods() as u64;
                if is_entity {
                    let kind = entity.as_str();
                    *observations.entities.entry(format!("{kind}/{queue}/{event}")).or_default() += 1;
                }
            }
            Observation::Attempt { pod, .. } => observations.attempted = Some(pod.key().to_string()),
            Observation::Anomaly(text) => observations.anomalies.push(text.to_owned()),
            _ => {}
        }
    }
}
