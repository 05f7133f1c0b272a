//! A handler that records its calls, and panics now and then if configured.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::handler::EventHandler;
use crate::key::Deleted;

/// A handler that kept panicking would never keep up with resyncs.
const LEARNT: usize = 20;

/// One notification, with versions instead of objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum HandlerCall {
    Add { key: String, version: u64, initial: bool },
    Update { key: String, old: u64, new: u64 },
    Delete { key: String, version: Option<u64>, tombstone: bool },
}

impl HandlerCall {
    pub(super) fn key(&self) -> &str {
        match self {
            Self::Add { key, .. } | Self::Update { key, .. } | Self::Delete { key, .. } => key,
        }
    }

    pub(super) fn is_sync(&self) -> bool {
        matches!(self, Self::Update { old, new, .. } if old == new)
    }
}

#[derive(Clone, Debug)]
pub(super) struct TimedCall {
    pub(super) at: Instant,
    pub(super) call: HandlerCall,
}

/// Clones share the record.
#[derive(Clone)]
pub(super) struct RecordingHandler {
    record: Arc<Mutex<Vec<TimedCall>>>,
    clumsy: Option<usize>,
}

impl RecordingHandler {
    /// Panics at every notification whose number `clumsy` divides, up to a limit.
    pub(super) fn new(clumsy: Option<usize>) -> Self {
        Self { record: Arc::default(), clumsy }
    }

    pub(super) fn calls(&self) -> Vec<TimedCall> {
        self.record.lock().clone()
    }

    pub(super) fn len(&self) -> usize {
        self.record.lock().len()
    }

    fn write(&self, call: HandlerCall) {
        let mut record = self.record.lock();
        record.push(TimedCall { at: Instant::now(), call });
        let length = record.len();
        drop(record);
        if length < LEARNT && self.clumsy.is_some_and(|every| length.is_multiple_of(every)) {
            // Not `panic!`, which would print each time.
            std::panic::resume_unwind(Box::new("on purpose"));
        }
    }
}

pub(super) fn key(pod: &Pod) -> String {
    format!("ns/{}", pod.metadata.name.as_deref().unwrap())
}

pub(super) fn version(pod: &Pod) -> u64 {
    pod.metadata.resource_version.as_deref().unwrap().parse().unwrap()
}

impl EventHandler<Pod> for RecordingHandler {
    fn on_add(&mut self, object: &Arc<Pod>, is_in_initial_list: bool) {
        self.write(HandlerCall::Add {
            key: key(object),
            version: version(object),
            initial: is_in_initial_list,
        });
    }

    fn on_update(&mut self, old: &Arc<Pod>, new: &Arc<Pod>) {
        assert_eq!(key(old), key(new));
        self.write(HandlerCall::Update { key: key(new), old: version(old), new: version(new) });
    }

    fn on_delete(&mut self, deleted: &Deleted<Pod>) {
        let key = match deleted {
            Deleted::Known(object) => key(object),
            Deleted::FinalStateUnknown { key, .. } => key.to_string(),
        };
        let version = deleted.object().map(|object| version(object));
        self.write(HandlerCall::Delete { key, version, tombstone: deleted.is_final_state_unknown() });
    }
}
