//! Events during attempts.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;
use supercargo_framework::event::Change;
use supercargo_framework::{ClusterEvent, Uid};

/// An entry of the log.
#[derive(Clone)]
enum Line {
    /// A pod was popped.
    Popped,
    /// A pod was popped, and its recording has ended.
    Done,
    /// An event.
    Event(ClusterEvent, Change),
}

/// Pods in flight, and the events since the first of them was popped.
///
/// Events after a pod's own mark decide where the pod goes if it turns out unschedulable. So no
/// event that arrives during an attempt is lost.
#[derive(Clone, Default)]
pub(crate) struct InFlight {
    lines: VecDeque<Line>,
    /// The number of entries dropped from the front.
    dropped: u64,
    marks: FxHashMap<Uid, u64>,
}

impl InFlight {
    /// Marks a pod as popped; `false` if it already is.
    pub(crate) fn begin(&mut self, uid: Uid) -> bool {
        if self.marks.contains_key(&uid) {
            return false;
        }
        self.marks.insert(uid, self.dropped + self.lines.len() as u64);
        self.lines.push_back(Line::Popped);
        true
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
            self.lines.push_back(Line::Event(event, change));
        }
    }

    /// The events since the pod was popped; `None` if it is not in flight.
    pub(crate) fn events_since(&self, uid: &Uid) -> Option<impl Iterator<Item = (&ClusterEvent, &Change)>> {
        let mark = self.marks.get(uid)? - self.dropped;
        let after = usize::try_from(mark).ok()? + 1;
        Some(self.lines.iter().skip(after).filter_map(|line| match line {
            Line::Event(event, change) => Some((event, change)),
            Line::Popped | Line::Done => None,
        }))
    }

    /// Ends the recording for a pod. Drops events that no pod needs.
    pub(crate) fn done(&mut self, uid: &Uid) {
        let Some(mark) = self.marks.remove(uid) else {
            return;
        };
        if let Some(line) = usize::try_from(mark - self.dropped).ok().and_then(|i| self.lines.get_mut(i)) {
            *line = Line::Done;
        }
        while !matches!(self.lines.front(), None | Some(Line::Popped)) {
            self.lines.pop_front();
            self.dropped += 1;
        }
    }

    /// The number of events of each kind.
    pub(crate) fn count_events(&self) -> FxHashMap<&ClusterEvent, usize> {
        let mut counts = FxHashMap::default();
        for line in &self.lines {
            if let Line::Event(event, _) = line {
                *counts.entry(event).or_default() += 1;
            }
        }
        counts
    }

    /// The number of events kept.
    pub(crate) fn event_count(&self) -> usize {
        self.lines.iter().filter(|line| matches!(line, Line::Event(..))).count()
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
}
