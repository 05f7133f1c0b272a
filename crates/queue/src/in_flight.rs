//! Events during attempts.

use std::collections::{BTreeMap, VecDeque};

use rustc_hash::FxHashMap;
use supercargo_framework::event::Change;
use supercargo_framework::{ClusterEvent, Uid};

/// The events for which an empty log keeps room.
const ROOM: usize = 1_024;

/// Pods in flight, and the events since the first of them was popped.
///
/// Events after a pod was popped decide where the pod goes if it turns out unschedulable. So no
/// event that arrives during an attempt is lost.
#[derive(Clone, Default)]
pub(crate) struct InFlight {
    events: VecDeque<(ClusterEvent, Change)>,
    /// The number of events dropped from the front.
    dropped: u64,
    /// The number of events before each pod was popped.
    marks: FxHashMap<Uid, u64>,
    /// The number of pods by their marks.
    marked: BTreeMap<u64, usize>,
}

impl InFlight {
    /// Marks a pod as popped; `false` if it already is.
    pub(crate) fn begin(&mut self, uid: Uid) -> bool {
        if self.marks.contains_key(&uid) {
            return false;
        }
        let mark = self.end();
        self.marks.insert(uid, mark);
        *self.marked.entry(mark).or_default() += 1;
        true
    }

    /// The number of events so far.
    fn end(&self) -> u64 {
        self.dropped + self.events.len() as u64
    }

    pub(crate) fn contains(&self, uid: &Uid) -> bool {
        self.marks.contains_key(uid)
    }

    pub(crate) fn len(&self) -> usize {
        self.marks.len()
    }

    /// Adds an event, unless no pod is in flight.
    pub(crate) fn note(&mut self, event: ClusterEvent, change: Change) {
        if !self.marks.is_empty() {
            self.events.push_back((event, change));
        }
    }

    /// The events since the pod was popped; `None` if it is not in flight.
    pub(crate) fn events_since(&self, uid: &Uid) -> Option<impl Iterator<Item = (&ClusterEvent, &Change)>> {
        let before = usize::try_from(self.marks.get(uid)? - self.dropped).ok()?;
        Some(self.events.iter().skip(before).map(|(event, change)| (event, change)))
    }

    /// Ends the recording for a pod. Drops events that no pod needs.
    pub(crate) fn done(&mut self, uid: &Uid) {
        let Some(mark) = self.marks.remove(uid) else {
            return;
        };
        if let Some(pods) = self.marked.get_mut(&mark) {
            *pods -= 1;
            if *pods == 0 {
                self.marked.remove(&mark);
            }
        }
        let needed_from = self.marked.first_key_value().map_or_else(|| self.end(), |(first, _)| *first);
        while self.dropped < needed_from {
            self.events.pop_front();
            self.dropped += 1;
        }
        if self.events.is_empty() {
            self.events.shrink_to(ROOM);
        }
    }

    /// The number of events of each kind.
    pub(crate) fn count_events(&self) -> FxHashMap<&ClusterEvent, usize> {
        let mut counts = FxHashMap::default();
        for (event, _) in &self.events {
            *counts.entry(event).or_default() += 1;
        }
        counts
    }

    /// The number of events kept.
    pub(crate) fn event_count(&self) -> usize {
        self.events.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use supercargo_framework::{ActionType, EventResource};

    fn event(action: ActionType) -> ClusterEvent {
        ClusterEvent::new(EventResource::Node, action)
    }

    fn seen(log: &InFlight, uid: &str) -> Vec<String> {
        log.events_since(&uid.into()).unwrap().map(|(event, _)| event.to_string()).collect()
    }

    #[test]
    fn each_pod_sees_the_events_after_its_own_mark() {
        let mut log = InFlight::default();
        log.note(event(ActionType::ADD), Change::default());
        assert!(log.begin("a".into()));
        assert!(!log.begin("a".into()));
        log.note(event(ActionType::ADD), Change::default());
        log.begin("b".into());
        log.note(event(ActionType::DELETE), Change::default());
        assert_eq!(seen(&log, "a"), ["NodeAdd", "NodeDelete"]);
        assert_eq!(seen(&log, "b"), ["NodeDelete"]);
        log.done(&"a".into());
        assert_eq!((seen(&log, "b"), log.event_count()), (vec!["NodeDelete".to_owned()], 1));
        log.done(&"b".into());
        assert_eq!((log.event_count(), log.len()), (0, 0));
        assert!(log.events_since(&"b".into()).is_none());
    }

    #[test]
    fn a_pod_in_the_middle_may_be_done_first() {
        let mut log = InFlight::default();
        for uid in ["a", "b", "c"] {
            log.begin(uid.into());
            log.note(event(ActionType::ADD), Change::default());
        }
        log.done(&"b".into());
        assert_eq!((seen(&log, "a").len(), seen(&log, "c").len()), (3, 1));
        log.done(&"a".into());
        assert_eq!((seen(&log, "c").len(), log.event_count()), (1, 1));
    }

    #[test]
    fn pods_without_events_leave_nothing_behind_a_long_attempt() {
        let mut log = InFlight::default();
        log.begin("long".into());
        for number in 0..10_000 {
            let uid: Uid = format!("{number}").as_str().into();
            log.begin(uid.clone());
            log.done(&uid);
        }
        assert_eq!((log.events.capacity(), log.marked.len()), (0, 1));
        (0..10_000).for_each(|_| log.note(event(ActionType::ADD), Change::default()));
        log.done(&"long".into());
        assert!(log.events.capacity() < 2 * ROOM);
    }
}
