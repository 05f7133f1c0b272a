//! Compares answers field by field.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use serde_json::{Value, json};

use super::answer::{Answer, Cycle, Outcome, Pod, Write};
use super::counts::Counts;
use super::device_counts::Known;
use super::history::History;
use super::subject::{TURNSTILE, pruned};

/// A field in which the two sides differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Difference {
    /// The step, from 0.
    pub(super) step: usize,
    /// The field, such as `pods.default/a.place`.
    pub(super) path: String,
    pub(super) upstream: String,
    pub(super) ours: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { step, path, upstream, ours } = self;
        writeln!(f, "step {step}: {path}\n    upstream {upstream}\n    ours     {ours}")
    }
}

/// The comparison of both sides' answers to a history.
#[derive(Debug, Default)]
pub(super) struct StepComparison {
    /// The differences of the first step that has differences not on purpose.
    pub(super) found: Vec<Difference>,
    pub(super) counts: Counts,
    /// The indexes of the used excuses.
    pub(super) used: BTreeSet<usize>,
}

/// Compares up to the first step with a difference that is not on purpose, or up to a step after
/// which nothing is comparable.
pub(super) fn compared(
    history: &History,
    upstream: &[Answer],
    ours: &[Answer],
    meant: &Excuses<'_>,
) -> StepComparison {
    let mut comparison = StepComparison::default();
    let first = Answer::default();
    let mut known = Known::default();
    for (step, (theirs, ours)) in upstream.iter().zip(ours).enumerate() {
        comparison.counts.note(theirs);
        comparison.counts.extend(known.count(history, step, theirs));
        let before = step.checked_sub(1).map_or(&first, |before| &upstream[before]);
        comparison.counts.note_groups(before, theirs);
        let has_random_order = ours.has_random_order;
        let (theirs, ours) = aligned(before, theirs, ours);
        let mut found = Vec::new();
        compare(step, "", &theirs, &ours, &mut found);
        let (mut ends, mut is_covered, mut times) = (false, false, BTreeMap::<usize, u64>::new());
        let mut other_messages = BTreeSet::new();
        found.retain(|difference| {
            // A condition whose message stays is not written again.
            if let Some(condition) = difference.path.strip_suffix(".observedGeneration")
                && other_messages.contains(condition)
            {
                return false;
            }
            if difference.path == "writes" {
                let [theirs, ours] =
                    [&theirs, &ours].map(|answer| others(&answer["writes"], &other_messages));
                if theirs == ours {
                    return false;
                }
            }
            let excuse = meant.excuse(difference).filter(|entry| {
                let times = times.entry(*entry).or_default();
                // A move is among those of entities, too.
                *times += u64::from(!difference.path.starts_with("entities."));
                meant.0[*entry].limit(&ours).is_none_or(|limit| *times <= limit)
            });
            if let Some(entry) = excuse {
                other_messages.extend(difference.path.strip_suffix(".message").map(str::to_owned));
                comparison.used.insert(entry);
                ends |= meant.0[entry].ends;
                is_covered |= meant.0[entry].covers_step;
            }
            excuse.is_none()
        });
        if is_covered {
            found.clear();
        }
        if !found.is_empty() || ends || has_random_order {
            comparison.found = found;
            return comparison;
        }
    }
    if upstream.len() != ours.len() {
        let step = upstream.len().min(ours.len());
        let text = |answers: &[Answer]| format!("{} steps", answers.len());
        let path = "steps".to_owned();
        comparison.found.push(Difference { step, path, upstream: text(upstream), ours: text(ours) });
    }
    comparison
}

/// The writes but those of these conditions of groups.
fn others<'a>(writes: &'a Value, conditions: &BTreeSet<String>) -> Vec<&'a Value> {
    let groups: BTreeSet<&str> = conditions
        .iter()
        .filter_map(|path| path.strip_prefix("groups.")?.strip_suffix(".condition")?.split_once('/'))
        .map(|(_, name)| name)
        .collect();
    let is_other = |write: &&Value| {
        write["resource"] != "podgroups" || write["name"].as_str().is_none_or(|name| !groups.contains(name))
    };
    writes.as_array().into_iter().flatten().filter(is_other).collect()
}

/// The error of a pod that no node is a candidate for.
const NO_NODES: &str = "no nodes available to schedule pods";

/// Both answers without insignificant differences. `before` is upstream's previous one.
fn aligned(before: &Answer, upstream: &Answer, ours: &Answer) -> (Value, Value) {
    let has_random_order = ours.has_random_order;
    let (mut theirs, mut ours) = (upstream.clone(), ours.clone());
    align_arrivals(before, [&mut theirs, &mut ours]);
    for answer in [&mut theirs, &mut ours] {
        for write in &mut answer.writes {
            write.body = pruned(&write.body);
            hide_identities(&mut write.body);
        }
        if has_random_order {
            // Of bindings that fail at one time.
            answer.writes.sort_by(|one, other| one.name.cmp(&other.name));
        }
        // The order of the groups of a tree is random upstream.
        answer.writes.sort_by_key(|write| match &*write.resource {
            "podgroups" => (0, write.name.clone()),
            _ => (1, String::new()),
        });
        // Where no node is a candidate, upstream's side runs the plugins all the same.
        let has_no_nodes = |trial: &Cycle| trial.result == Some(Outcome::Error(NO_NODES.to_owned()));
        answer.trials.retain(|trial| !has_no_nodes(trial));
        answer.cycle.iter_mut().chain(&mut answer.trials).for_each(align);
        for trial in &mut answer.trials {
            // The pods' conditions have it.
            trial.result.take_if(|result| matches!(result, Outcome::Error(_)));
        }
    }
    align_rules(&mut theirs, &mut ours);
    align_assumed(&mut theirs, &ours);
    if let (Some(theirs), Some(cycle)) = (&upstream.cycle, &mut ours.cycle) {
        // Upstream's text lacks the message of PostFilter; the event and the condition have all of
        // it.
        if let (Some(Outcome::Error(before)), Some(Outcome::Error(after))) =
            (&theirs.result, &mut cycle.result)
            && after.starts_with(before.as_str())
        {
            after.clone_from(before);
        }
    }
    (shown(&theirs), shown(&ours))
}

/// Pods that waited for their group join it one by one upstream, and together here. When a pod
/// leaves the queue, upstream queues the others of its group again, even if it was not among
/// them.
fn align_arrivals(before: &Answer, answers: [&mut Answer; 2]) {
    for answer in answers {
        let was = |name: &String| before.pods.get(name).map(|pod| &*pod.place);
        let joins = |(name, pod): &(&String, &Pod)| was(name) == Some("aside") && pod.place != "aside";
        let left = |(name, pod): (&String, &Pod)| {
            let is_gone = answer.pods.get(name).is_none_or(|pod| matches!(&*pod.place, "bound" | "none"));
            is_gone && pod.place != "bound"
        };
        let has_left = !before.groups.is_empty() && before.pods.iter().any(left);
        if has_left || answer.pods.iter().filter(joins).count() > 1 {
            answer.moves.retain(|name, _| !name.ends_with("/UnscheduledPodAdd"));
            answer.entities.retain(|name, _| !name.ends_with("/UnscheduledPodAdd"));
        }
    }
}

/// On upstream's side, the informer shows a claim that a binding writes before the plugin assumes
/// it or gives it up. That is one more change for held pods that a plugin without events, or an
/// extender, has rejected.
fn align_assumed(theirs: &mut Answer, ours: &Answer) {
    const UPDATE: &str = "unschedulable/resource.k8s.io/ResourceClaimUpdate";
    let is_of_claim = |write: &&Write| write.verb.ends_with(" status") && write.resource == "resourceclaims";
    let changes = ours.writes.iter().filter(is_of_claim).count();
    let is_concerned = |pod: &&Pod| {
        let mut plugins = pod.unschedulable_plugins.iter();
        pod.place == "gated" && plugins.any(|plugin| [TURNSTILE, "Extender"].contains(&&**plugin))
    };
    let most = (changes * ours.pods.values().filter(is_concerned).count()) as u64;
    for (theirs, ours) in [(&mut theirs.moves, &ours.moves), (&mut theirs.entities, &ours.entities)] {
        for (name, count) in theirs.iter_mut().filter(|(name, _)| name.ends_with(UPDATE)) {
            let here = ours.get(name).copied().unwrap_or_default();
            if (here..=here + most).contains(count) {
                *count = here;
            }
        }
        theirs.retain(|_, count| *count != 0);
    }
}

/// Upstream turns the change of a DeviceTaintRule into changes of slices, each of which tries gated
/// pods again.
fn align_rules(theirs: &mut Answer, ours: &mut Answer) {
    let renamed = [&mut ours.moves, &mut ours.entities].map(rename_rules);
    if !renamed.contains(&true) {
        return;
    }
    for answer in [theirs, ours] {
        for (name, count) in answer.moves.iter_mut().chain(&mut answer.entities) {
            if name.ends_with("unschedulable/resource.k8s.io/ResourceSliceUpdate") {
                *count = 1;
            }
        }
    }
}

/// Counts changes of DeviceTaintRules as changes of slices. Returns whether there are any.
fn rename_rules(moves: &mut BTreeMap<String, u64>) -> bool {
    let mut has_rules = false;
    for (name, count) in std::mem::take(moves) {
        let name = match name.split_once("/resource.k8s.io/DeviceTaintRule") {
            Some((queue, _)) => {
                has_rules = true;
                format!("{queue}/resource.k8s.io/ResourceSliceUpdate")
            }
            None => name,
        };
        *moves.entry(name).or_default() += count;
    }
    has_rules
}

/// Shares of devices have random identities upstream. The time of an allocation is that of the
/// cycle here, and that of the request upstream, where a pod that waited on Permit has a later one.
fn hide_identities(value: &mut Value) {
    match value {
        Value::Object(fields) => fields.iter_mut().for_each(|(name, value)| match name.as_str() {
            "shareID" | "allocationTimestamp" => *value = json!("some"),
            _ => hide_identities(value),
        }),
        Value::Array(items) => items.iter_mut().for_each(hide_identities),
        _ => {}
    }
}

fn align(cycle: &mut Cycle) {
    // Upstream iterates over a map of the pod's resources.
    for verdicts in cycle.filters.values_mut() {
        if let Some(status) = verdicts.get_mut("NodeResourcesFit") {
            status.reasons.sort();
        }
    }
    // Only upstream reports nodes where preemption does not help.
    if let Some(preemption) = &mut cycle.preemption {
        preemption.tied.clear();
        preemption.nodes.retain(|_, trial| trial.code == "Success");
    }
    cycle.preemption = cycle.preemption.take().filter(|preemption| !preemption.nodes.is_empty());
}

/// An answer in JSON, with the events of each pod and the trials by number.
fn shown(answer: &Answer) -> Value {
    let mut shown = serde_json::to_value(answer).expect("an answer has nothing that JSON has not");
    let mut events: BTreeMap<&str, BTreeMap<String, Value>> = BTreeMap::new();
    for event in &answer.events {
        let of_pod = events.entry(&event.pod).or_default();
        of_pod.insert(of_pod.len().to_string(), json!([event.kind, event.reason, event.action, event.note]));
    }
    shown["events"] = json!(events);
    let trials = answer.trials.iter().enumerate();
    shown["trials"] = trials.map(|(number, trial)| (number.to_string(), json!(trial))).collect();
    shown
}

fn compare(step: usize, path: &str, upstream: &Value, ours: &Value, found: &mut Vec<Difference>) {
    let nothing = json!({});
    // Fields of a pod that only one side has are still compared one by one.
    let (upstream, ours) = match (upstream, ours) {
        (Value::Object(_), Value::Null) if path.starts_with("events") => (upstream, &nothing),
        (Value::Null, Value::Object(_)) if path.starts_with("events") => (&nothing, ours),
        both => both,
    };
    match (upstream, ours) {
        (Value::Object(theirs), Value::Object(mine)) => {
            let keys: BTreeSet<&String> = theirs.keys().chain(mine.keys()).collect();
            for key in keys {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                let (theirs, mine) = (theirs.get(key), mine.get(key));
                compare(step, &path, theirs.unwrap_or(&Value::Null), mine.unwrap_or(&Value::Null), found);
            }
        }
        (Value::Array(theirs), Value::Array(mine))
            if path.starts_with("writes") && theirs.len() == mine.len() =>
        {
            for (index, (theirs, mine)) in theirs.iter().zip(mine).enumerate() {
                compare(step, &format!("{path}.{index}"), theirs, mine, found);
            }
        }
        _ if upstream == ours => {}
        _ => found.push(Difference {
            step,
            path: path.to_owned(),
            upstream: upstream.to_string(),
            ours: ours.to_string(),
        }),
    }
}

/// The differences on purpose.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Meant {
    differences: Vec<Entry>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    /// The file in `scenarios/` that shows it.
    scenario: String,
    /// The field, with `*` for any part between two dots.
    path: String,
    /// What upstream's value contains.
    #[serde(default)]
    upstream: String,
    /// What ours contains.
    #[serde(default)]
    ours: String,
    /// Whether random histories may show it, too.
    #[serde(default)]
    everywhere: bool,
    /// Whether everything after it differs, so that the comparison ends.
    #[serde(default)]
    ends: bool,
    /// Whether it causes all other differences of the step.
    #[serde(default)]
    covers_step: bool,
    /// The field of our answer that counts how often the difference may occur in a step.
    #[serde(default)]
    as_often_as: String,
    /// The feature gate that random histories with the difference switch off.
    #[serde(default)]
    without: Option<String>,
    reason: String,
}

impl Meant {
    pub(super) fn read() -> Result<Self> {
        let path = super::folder("differences.yaml");
        let text = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        let meant: Self =
            serde_saphyr::from_str(&text).with_context(|| format!("read {}", path.display()))?;
        for entry in &meant.differences {
            ensure!(!entry.reason.is_empty(), "{} has no reason", entry.path);
        }
        Ok(meant)
    }

    /// The differences on purpose of a scenario.
    pub(super) fn in_scenario<'a>(&'a self, scenario: &'a str) -> Excuses<'a> {
        Excuses(self.differences.iter().filter(|entry| entry.scenario == scenario).collect())
    }

    /// The differences on purpose that a random history may show.
    pub(super) fn in_random(&self, history: &History) -> Excuses<'_> {
        let is_off = |gate: &String| history.feature_gates.get(gate) == Some(&false);
        let applies = |entry: &&Entry| entry.everywhere && entry.without.as_ref().is_none_or(is_off);
        Excuses(self.differences.iter().filter(applies).collect())
    }

    /// The scenarios with differences on purpose.
    pub(super) fn scenarios(&self) -> BTreeSet<&str> {
        self.differences.iter().map(|entry| entry.scenario.as_str()).collect()
    }
}

impl Entry {
    /// How often the difference may occur in a step with this answer of ours.
    fn limit(&self, ours: &Value) -> Option<u64> {
        let (section, name) = self.as_often_as.split_once('.')?;
        Some(ours[section][name].as_u64().unwrap_or(0))
    }
}

/// The differences on purpose that apply to a history.
pub(super) struct Excuses<'a>(Vec<&'a Entry>);

impl Excuses<'_> {
    fn excuse(&self, difference: &Difference) -> Option<usize> {
        // A trial of a group's pod is like a cycle, and an entity moves as its pods do.
        let path = match difference.path.split('.').collect::<Vec<_>>()[..] {
            ["trials", _, ref rest @ ..] => [&["cycle"], rest].concat().join("."),
            ["entities", ref rest @ ..] => {
                let name = rest.join(".");
                format!("moves.{}", name.split_once('/').map_or(&*name, |(_, of_pods)| of_pods))
            }
            _ => difference.path.clone(),
        };
        self.0.iter().position(|entry| {
            matches(&entry.path, &path)
                && difference.upstream.contains(&entry.upstream)
                && difference.ours.contains(&entry.ours)
        })
    }

    /// The fields of unused entries.
    pub(super) fn unused(&self, used: &BTreeSet<usize>) -> Vec<&str> {
        let entries = self.0.iter().enumerate().filter(|(i, _)| !used.contains(i));
        entries.map(|(_, entry)| entry.path.as_str()).collect()
    }
}

fn matches(pattern: &str, path: &str) -> bool {
    let (mut patterns, mut parts) = (pattern.split('.'), path.split('.'));
    loop {
        match (patterns.next(), parts.next()) {
            (None, None) => return true,
            (Some(pattern), Some(part)) if pattern == "*" || pattern == part => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::answer::{Condition, Event, Group};

    fn answer() -> Answer {
        let pod = Pod { place: "active".to_owned(), ..Pod::default() };
        let event = Event { pod: "a/b".to_owned(), ..Event::default() };
        let cycle = Cycle { result: Some(Outcome::Error("no node.".to_owned())), ..Cycle::default() };
        Answer {
            pods: [("a/b".to_owned(), pod)].into(),
            events: vec![event],
            cycle: Some(cycle),
            ..Answer::default()
        }
    }

    fn found(upstream: &[Answer], ours: &[Answer], meant: &str) -> Vec<String> {
        let meant: Meant = serde_saphyr::from_str(&format!("differences: [{meant}]")).unwrap();
        let meant = meant.in_scenario("s");
        let StepComparison { found, used, .. } = compared(&History::default(), upstream, ours, &meant);
        let unused = meant.unused(&used).into_iter().map(|path| format!("unused {path}"));
        found.into_iter().map(|difference| difference.path).chain(unused).collect()
    }

    #[test]
    fn only_the_first_differing_step_is_reported() {
        let mut other = answer();
        other.pods.get_mut("a/b").unwrap().place = "backoff".to_owned();
        other.moves.insert("active/NodeAdd".to_owned(), 1);
        let same = || [answer()];
        assert!(found(&same(), &same(), "").is_empty());
        let paths = found(&[answer(), answer(), answer()], &[answer(), other, Answer::default()], "");
        assert_eq!(paths, ["moves.active/NodeAdd", "pods.a/b.place"]);
        assert_eq!(found(&same(), &[], ""), ["steps"]);
    }

    #[test]
    fn listed_differences_are_excused_and_unused_ones_reported() {
        let mut other = answer();
        other.pods.get_mut("a/b").unwrap().place = "backoff".to_owned();
        let upstream = [answer(), answer()];
        let excused = "{scenario: s, path: pods.*.place, upstream: active, ours: backoff, reason: because}";
        assert!(found(&upstream, &[other.clone(), answer()], excused).is_empty());
        let not = "{scenario: s, path: pods.*.place, upstream: gated, reason: because}";
        assert_eq!(found(&[answer()], &[other.clone()], not), ["pods.a/b.place", "unused pods.*.place"]);
        let elsewhere = "{scenario: t, path: pods.*.place, reason: because}";
        assert_eq!(found(&[answer()], &[other.clone()], elsewhere), ["pods.a/b.place"]);
        let last = "{scenario: s, path: pods.*.place, ends: true, reason: because}";
        assert!(found(&upstream, &[other.clone(), Answer::default()], last).is_empty());
        other.pods.get_mut("a/b").unwrap().attempts += 1;
        assert_eq!(found(&[answer()], &[other.clone()], excused), ["pods.a/b.attempts"]);
        let whole = "{scenario: s, path: pods.*.place, covers_step: true, reason: because}";
        assert!(found(&[answer()], &[other], whole).is_empty());
    }

    #[test]
    fn a_difference_is_excused_only_as_often_as_its_cause_occurs() {
        let mut other = answer();
        let moved = Pod { place: "backoff".to_owned(), ..Pod::default() };
        other.pods.insert("a/b".to_owned(), moved.clone());
        let with_second = |answer: &Answer, pod: &Pod| {
            let mut answer = answer.clone();
            answer.pods.insert("a/c".to_owned(), pod.clone());
            answer
        };
        let waits = answer().pods["a/b"].clone();
        let (theirs, ours) = (with_second(&answer(), &waits), with_second(&other, &moved));
        let excused = "{scenario: s, path: pods.*.place, as_often_as: moves.active/X, reason: because},
                       {scenario: s, path: moves.active/X, reason: because}";
        let times = |times: u64| Answer { moves: [("active/X".to_owned(), times)].into(), ..ours.clone() };
        assert!(found(std::slice::from_ref(&theirs), &[times(2)], excused).is_empty());
        assert_eq!(found(&[theirs], &[times(1)], excused), ["pods.a/c.place"]);
    }

    #[test]
    fn a_condition_whose_message_stays_need_not_be_written() {
        let with = |message: &str, written: &[&str]| {
            let condition = Condition { message: message.to_owned(), ..Condition::default() };
            let patch = |name: &&str| Write {
                resource: "podgroups".to_owned(),
                name: (*name).to_owned(),
                ..Write::default()
            };
            Answer {
                groups: [("a/g".to_owned(), Group { condition: Some(condition), since: 0 })].into(),
                writes: written.iter().map(patch).collect(),
                ..Answer::default()
            }
        };
        let excused = "{scenario: s, path: groups.*.condition.message, reason: because}";
        assert!(found(&[with("x", &["g"])], &[with("y", &[])], excused).is_empty());
        assert_eq!(found(&[with("x", &["g"])], &[with("x", &[])], ""), ["writes"]);
        assert_eq!(found(&[with("x", &["h"])], &[with("y", &[])], excused), ["writes"]);
    }

    #[test]
    fn post_filter_message_is_not_compared() {
        let mut other = answer();
        other.cycle.as_mut().unwrap().result = Some(Outcome::Error("no node. preemption: none".to_owned()));
        assert!(found(&[answer()], &[other.clone()], "").is_empty());
        assert_eq!(found(&[other], &[answer()], ""), ["cycle.result.error"]);
    }
}
