//! A handler that records its calls.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::handler::EventHandler;
use crate::key::Deleted;
use crate::kind::Kind;

/// Clones share the log: register one, and read the other.
pub struct EventLog<K: Kind> {
    kind: Arc<K>,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    lines: Vec<String>,
    /// The state that results from the notifications: versions by key.
    content: BTreeMap<String, String>,
    faults: Vec<String>,
}

impl<K: Kind> fmt::Debug for EventLog<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventLog").finish_non_exhaustive()
    }
}

impl<K: Kind> Clone for EventLog<K> {
    fn clone(&self) -> Self {
        Self { kind: Arc::clone(&self.kind), state: Arc::clone(&self.state) }
    }
}

impl<K: Kind> EventLog<K> {
    /// An empty log.
    pub fn new(kind: Arc<K>) -> Self {
        Self { kind, state: Arc::default() }
    }

    /// The calls, one per line, such as `add ns/a 1 initial`, `update ns/a 1>2`, `delete ns/a 3` or
    /// `tombstone ns/a 2`. The deletion of an unknown object ends in `unknown`.
    pub fn lines(&self) -> Vec<String> {
        self.state.lock().lines.clone()
    }

    /// The calls; clears the log.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().lines)
    }

    /// The objects that exist according to the notifications: resource versions by key.
    pub fn content(&self) -> BTreeMap<String, String> {
        self.state.lock().content.clone()
    }

    /// Notifications that contradict earlier ones: an add of a known object, an update of an
    /// unknown one, an update whose old state is not the last one, or a tombstone for an unknown
    /// object. A deletion from the server may concern an object that was never seen.
    pub fn faults(&self) -> Vec<String> {
        self.state.lock().faults.clone()
    }

    fn key_and_version(&self, object: &K::Object) -> (String, String) {
        (self.kind.key(object).to_string(), self.kind.resource_version(object).to_owned())
    }
}

impl State {
    fn note(&mut self, line: String, key: &str, expected: Option<&str>) {
        let known = self.content.get(key).map(String::as_str);
        if known != expected {
            self.faults.push(format!("{line} while {known:?} is known"));
        }
        self.lines.push(line);
    }
}

impl<K: Kind> EventHandler<K::Object> for EventLog<K> {
    fn on_add(&mut self, object: &Arc<K::Object>, is_in_initial_list: bool) {
        let (key, version) = self.key_and_version(object);
        let initial = if is_in_initial_list { " initial" } else { "" };
        let mut state = self.state.lock();
        state.note(format!("add {key} {version}{initial}"), &key, None);
        state.content.insert(key, version);
    }

    fn on_update(&mut self, old: &Arc<K::Object>, new: &Arc<K::Object>) {
        let (key, version) = self.key_and_version(new);
        let (_, before) = self.key_and_version(old);
        let mut state = self.state.lock();
        state.note(format!("update {key} {before}>{version}"), &key, Some(&before));
        state.content.insert(key, version);
    }

    fn on_delete(&mut self, deleted: &Deleted<K::Object>) {
        let (key, version) = match (deleted, deleted.object()) {
            (Deleted::FinalStateUnknown { key, .. }, None) => (key.to_string(), "?".to_owned()),
            (_, Some(object)) => self.key_and_version(object),
            (Deleted::Known(_), None) => unreachable!("a known state has an object"),
        };
        let mut state = self.state.lock();
        // The final state is newer than the last one seen, so only its existence is checked.
        let before = state.content.get(&key).cloned();
        let (word, unknown) = match (deleted.is_final_state_unknown(), &before) {
            (true, _) => ("tombstone", ""),
            (false, Some(_)) => ("delete", ""),
            (false, None) => ("delete", " unknown"),
        };
        let expected = before.or_else(|| (word == "tombstone").then(|| "anything".to_owned()));
        state.note(format!("{word} {key} {version}{unknown}"), &key, expected.as_deref());
        state.content.remove(&key);
    }
}
