//! The sum of notifications, and whether each follows from the earlier ones.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube_informers::{Deleted, EventHandler, compare_rv};
use parking_lot::Mutex;

use super::pods::AnyPod;

/// An object's identity and state: UID and resource version.
pub(super) type State = (String, String);

/// By `namespace/name`.
pub(super) type Content = BTreeMap<String, State>;

/// The number of notifications of each type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) adds: usize,
    pub(super) updates: usize,
    /// Updates without a change: resyncs, and repetitions by a relist.
    pub(super) repeats: usize,
    /// Updates from one object to another of the same name.
    pub(super) replacements: usize,
    pub(super) deletes: usize,
    /// Deletions that no watch delivered.
    pub(super) tombstones: usize,
}

impl Told {
    pub(super) fn all(self) -> usize {
        self.adds + self.updates + self.deletes
    }
}

/// A handler that models the pods. Clones share the model.
#[derive(Clone, Default)]
pub(super) struct Model(Arc<Mutex<Known>>);

#[derive(Default)]
struct Known {
    content: Content,
    /// The last version of each deleted object.
    gone: BTreeMap<String, String>,
    received: Told,
    faults: Vec<String>,
}

impl Model {
    /// The existing pods according to the notifications.
    pub(super) fn content(&self) -> Content {
        self.0.lock().content.clone()
    }

    pub(super) fn received(&self) -> Told {
        self.0.lock().received
    }

    /// Notifications that contradict earlier ones.
    pub(super) fn faults(&self) -> Vec<String> {
        self.0.lock().faults.clone()
    }
}

impl Known {
    fn check(&mut self, holds: bool, fault: impl FnOnce() -> String) {
        if !holds {
            self.faults.push(fault());
        }
    }
}

/// Whether a version is no older than another.
fn follows(new: &str, old: &str) -> bool {
    compare_rv(new, old).unwrap().is_ge()
}

impl<P: AnyPod> EventHandler<P> for Model {
    fn on_add(&mut self, pod: &Arc<P>, _: bool) {
        let (key, state) = (pod.key(), pod.state());
        let mut known = self.0.lock();
        known.received.adds += 1;
        let before = known.content.get(&key).cloned();
        known.check(before.is_none(), || format!("add {key} {state:?}, known as {before:?}"));
        let gone = known.gone.remove(&key);
        let is_new = gone.as_ref().is_none_or(|gone| follows(&state.1, gone));
        known.check(is_new, || format!("add {key} {state:?}, gone at {gone:?}"));
        known.content.insert(key, state);
    }

    fn on_update(&mut self, old: &Arc<P>, new: &Arc<P>) {
        let (key, before, after) = (new.key(), old.state(), new.state());
        let mut known = self.0.lock();
        known.received.updates += 1;
        known.received.repeats += usize::from(before == after);
        known.received.replacements += usize::from(before.0 != after.0);
        let last = known.content.get(&key).cloned();
        known.check(last.as_ref() == Some(&before), || format!("update {key} {before:?}, known as {last:?}"));
        known.check(follows(&after.1, &before.1), || format!("update {key} {before:?} to {after:?}"));
        known.content.insert(key, after);
    }

    fn on_delete(&mut self, deleted: &Deleted<P>) {
        let Some(pod) = deleted.object() else {
            self.0.lock().faults.push("delete without a last state".to_owned());
            return;
        };
        let (key, state) = (pod.key(), pod.state());
        let mut known = self.0.lock();
        known.received.deletes += 1;
        known.received.tombstones += usize::from(deleted.is_final_state_unknown());
        let last = known.content.remove(&key);
        let fits = match &last {
            // A deletion has the server's final version; a tombstone only the last known state.
            Some(last) if deleted.is_final_state_unknown() => *last == state,
            Some(last) => last.0 == state.0 && follows(&state.1, &last.1),
            None => false,
        };
        known.check(fits, || format!("delete {key} {state:?}, known as {last:?}"));
        known.gone.insert(key, state.1);
    }
}
