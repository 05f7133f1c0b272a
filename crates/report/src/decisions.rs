//! What the scheduler decided last.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use supercargo_framework::Timestamp;
use supercargo_framework::pod::PodKey;
use supercargo_scheduler::{Entry, Fork, Happening};

use crate::moment;

/// The most decisions in an answer.
const MOST_DECISIONS: usize = 200;
/// The most entries of the log that an answer takes.
const MOST_ENTRIES: usize = 20_000;

/// A decision, and since when its pod had waited, if the log reaches that far.
struct Decision {
    entry: Entry,
    added: Option<Timestamp>,
}

/// The newest decisions, the newest first: a node was chosen, or an attempt failed.
pub fn decisions(fork: &Fork) -> Value {
    let decisions = newest(fork.happenings());
    json!({ "kind": "Decisions", "decisions": decisions.iter().map(Decision::json).collect::<Vec<_>>() })
}

/// Looks back until the start of each wait is known, or for long enough.
fn newest(entries: impl Iterator<Item = Entry>) -> Vec<Decision> {
    let mut decisions = Vec::new();
    let mut waits: BTreeMap<PodKey, Vec<usize>> = BTreeMap::new();
    for entry in entries.take(MOST_ENTRIES) {
        match entry.what {
            Happening::Chosen(..) | Happening::Failed(..) if decisions.len() < MOST_DECISIONS => {
                waits.entry(entry.pod.clone()).or_default().push(decisions.len());
                decisions.push(Decision { entry, added: None });
            }
            Happening::Added => {
                for at in waits.remove(&entry.pod).into_iter().flatten() {
                    decisions[at].added = Some(entry.time);
                }
                if decisions.len() == MOST_DECISIONS && waits.is_empty() {
                    break;
                }
            }
            _ => {}
        }
    }
    decisions
}

impl Decision {
    fn json(&self) -> Value {
        let Entry { time, pod, what } = &self.entry;
        let (node, message, attempt) = match what {
            Happening::Chosen(node, attempt) => (Some(node), None, attempt.number),
            Happening::Failed(message, attempt) => (None, Some(message), attempt.number),
            _ => (None, None, 0),
        };
        let waited = self.added.map(|added| time.since(added).as_millis() as u64);
        json!({
            "time": moment(*time),
            "namespace": pod.namespace,
            "name": pod.name,
            "node": node,
            "message": message,
            "attempt": attempt,
            "waitedMillis": waited,
        })
    }
}

#[cfg(test)]
mod tests {
    use supercargo_framework::testing::pod;
    use supercargo_scheduler::Attempt;

    use super::*;

    fn entry(millis: i64, name: &str, what: Happening) -> Entry {
        Entry { time: Timestamp(millis * 1000), pod: pod(name).build().key(), what }
    }

    fn attempt(number: u32) -> Attempt {
        Attempt { number, after_flush: false }
    }

    /// The names of the pods, and how long they waited.
    fn shown(entries: &[Entry]) -> Vec<(String, Value)> {
        let decisions = newest(entries.iter().rev().cloned());
        let row = |it: &Decision| (it.entry.pod.name.to_string(), it.json()["waitedMillis"].clone());
        decisions.iter().map(row).collect()
    }

    #[test]
    fn the_newest_decision_is_first_and_knows_its_wait() {
        let entries = [
            entry(1, "old", Happening::Failed("full".into(), attempt(1))),
            entry(2, "p", Happening::Added),
            entry(5, "p", Happening::Failed("full".into(), attempt(1))),
            entry(9, "p", Happening::Chosen("n".into(), attempt(2))),
            entry(9, "p", Happening::Bound("n".into())),
            entry(10, "p", Happening::Deleted),
            // Another pod of this name.
            entry(11, "p", Happening::Added),
            entry(12, "p", Happening::Chosen("m".into(), attempt(1))),
        ];
        let expected = [("p", json!(1)), ("p", json!(7)), ("p", json!(3)), ("old", Value::Null)];
        assert_eq!(shown(&entries), expected.map(|(name, waited)| (name.to_owned(), waited)));
    }

    #[test]
    fn decisions_are_few() {
        let pair = |i: i64| {
            let name = format!("p{i}");
            [entry(i, &name, Happening::Added), entry(i, &name, Happening::Chosen("n".into(), attempt(1)))]
        };
        let entries: Vec<Entry> = (0..2 * MOST_DECISIONS as i64).flat_map(pair).collect();
        let shown = shown(&entries);
        assert_eq!((shown.len(), &*shown[0].0), (MOST_DECISIONS, "p399"));
        assert!(shown.iter().all(|(_, waited)| *waited == json!(0)));
    }
}
