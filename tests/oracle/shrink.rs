//! Shrinks a history that shows a difference: fewer steps, then smaller objects.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::history::{History, Step};

/// The time limit.
const PATIENCE: Duration = Duration::from_secs(40);

/// The smallest history found that still `fails`.
pub(super) fn shrink(history: &History, fails: &mut dyn FnMut(&History) -> bool) -> History {
    let mut shrinker = Shrinker { best: history.clone(), fails, end: Instant::now() + PATIENCE };
    loop {
        let before = shrinker.best.clone();
        shrinker.drop_steps();
        shrinker.drop_fields();
        if shrinker.best == before || shrinker.is_over() {
            return shrinker.best;
        }
    }
}

struct Shrinker<'f> {
    best: History,
    fails: &'f mut dyn FnMut(&History) -> bool,
    end: Instant,
}

impl Shrinker<'_> {
    fn is_over(&self) -> bool {
        Instant::now() >= self.end
    }

    /// Keeps a smaller history if it fails, too.
    fn try_it(&mut self, smaller: History) -> bool {
        if self.is_over() {
            return false;
        }
        let fails = (self.fails)(&smaller);
        if fails {
            self.best = smaller;
        }
        fails
    }

    /// Removes runs of steps, long ones first.
    fn drop_steps(&mut self) {
        let mut length = self.best.steps.len().div_ceil(2);
        while length > 0 {
            let mut start = 0;
            while start < self.best.steps.len() {
                let mut smaller = self.best.clone();
                smaller.steps.drain(start..(start + length).min(self.best.steps.len()));
                if !self.try_it(smaller) {
                    start += length;
                }
            }
            length /= 2;
        }
    }

    /// Removes fields of objects and of the configuration, outer ones first.
    fn drop_fields(&mut self) {
        for step in 0..self.best.steps.len() {
            self.drop_in(|history| match &mut history.steps[step] {
                Step::Apply(object) => Some(object),
                _ => None,
            });
        }
        self.drop_in(|history| Some(&mut history.config));
    }

    fn drop_in(&mut self, part: impl Fn(&mut History) -> Option<&mut Value>) {
        let mut copy = self.best.clone();
        let Some(object) = part(&mut copy) else { return };
        // An inner field of a removed field no longer exists.
        for pointer in pointers(object) {
            let mut smaller = self.best.clone();
            if part(&mut smaller).is_some_and(|object| remove(object, &pointer)) {
                self.try_it(smaller);
            }
        }
    }
}

/// A path to a field: keys of objects, and indices of lists as text.
type Pointer = Vec<String>;

/// Every removable field, outer ones first, and within a list the last first.
fn pointers(object: &Value) -> Vec<Pointer> {
    let mut found = Vec::new();
    collect(object, &mut Vec::new(), &mut found);
    found.sort_by_key(Vec::len);
    found
}

fn collect(value: &Value, at: &mut Pointer, found: &mut Vec<Pointer>) {
    let children: Vec<(String, &Value)> = match value {
        Value::Object(fields) => fields.iter().map(|(key, value)| (key.clone(), value)).collect(),
        Value::Array(items) => {
            items.iter().enumerate().rev().map(|(i, item)| (i.to_string(), item)).collect()
        }
        _ => return,
    };
    for (key, child) in children {
        at.push(key);
        if !is_needed(at) {
            found.push(at.clone());
        }
        collect(child, at, found);
        at.pop();
    }
}

/// Fields that an API server requires in their parent.
const NEEDED: [&str; 25] = [
    "name",
    "key",
    "operator",
    "values",
    "effect",
    "topologyKey",
    "whenUnsatisfiable",
    "maxSkew",
    "weight",
    "preference",
    "podAffinityTerm",
    "claimName",
    "driver",
    "uid",
    "kind",
    "storage",
    "pool",
    "generation",
    "resourceSliceCount",
    "device",
    "request",
    "deviceClassName",
    "allocationMode",
    "expression",
    "taint",
];

/// Fields that an object requires.
fn is_needed(pointer: &Pointer) -> bool {
    let path: Vec<&str> = pointer.iter().map(String::as_str).collect();
    matches!(
        path[..],
        ["apiVersion" | "kind" | "metadata" | "spec" | "status"]
            | ["metadata", "name" | "namespace" | "uid" | "resourceVersion" | "creationTimestamp"]
            | ["spec", "containers" | "schedulerName"]
            | ["status", "phase"]
            | ["profiles"]
            | ["profiles", "0"]
            | ["profiles", "0", "schedulerName" | "plugins"]
            | ["profiles", "0", "plugins", ..]
            | ["status", "startTime"]
    ) || path.last().is_some_and(|last| NEEDED.contains(last))
}

/// Removes a field. Returns `false` if it does not exist.
fn remove(object: &mut Value, pointer: &[String]) -> bool {
    let Some((last, outer)) = pointer.split_last() else { return false };
    let mut at = object;
    for key in outer {
        let inner = match at {
            Value::Object(fields) => fields.get_mut(key),
            Value::Array(items) => key.parse::<usize>().ok().and_then(|i| items.get_mut(i)),
            _ => None,
        };
        let Some(inner) = inner else { return false };
        at = inner;
    }
    match at {
        Value::Object(fields) => fields.remove(last).is_some(),
        Value::Array(items) => match last.parse::<usize>() {
            Ok(i) if i < items.len() => {
                items.remove(i);
                true
            }
            _ => false,
        },
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn history_shrinks_to_a_minimal_failure() {
        let pod = |name: &str| {
            json!({ "kind": "Pod", "metadata": { "name": name, "labels": { "a": "b", "c": "d" } },
                "spec": { "containers": [{ "name": "x", "image": "y" }, { "name": "z" }] } })
        };
        let mut steps: Vec<Step> = (0..20).map(|i| Step::Apply(pod(&format!("p{i}")))).collect();
        steps.insert(7, Step::Schedule(true));
        let history = History { steps, ..History::default() };
        // It needs p3 with its label c, and a cycle after it.
        let mut fails = |history: &History| {
            let p3 = history.steps.iter().position(|step| match step {
                Step::Apply(object) => {
                    object["metadata"]["name"] == "p3" && object["metadata"]["labels"]["c"] == "d"
                }
                _ => false,
            });
            let cycle = history.steps.iter().position(|step| matches!(step, Step::Schedule(_)));
            p3.is_some() && p3 < cycle
        };
        let smallest = shrink(&history, &mut fails);
        let object = json!({ "kind": "Pod", "metadata": { "name": "p3", "labels": { "c": "d" } }, "spec": { "containers": [] } });
        assert_eq!(smallest.steps, [Step::Apply(object), Step::Schedule(true)]);
    }
}
