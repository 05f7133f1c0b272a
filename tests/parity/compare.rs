//! Compares kube-scheduler's outcome with supercargo's.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use anyhow::{Context as _, Result};
use serde::Deserialize;
use serde_json::Value;

use super::observe::{Condition, Event, PodSeen, Seen};

/// The closed list of differences on purpose.
const DIFFERENCES: &str = include_str!("differences.yaml");

/// A difference from kube-scheduler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Difference {
    pub(super) scenario: String,
    /// The pod or the claim; empty if the scenario did not complete.
    pub(super) pod: String,
    pub(super) field: &'static str,
    pub(super) upstream: String,
    pub(super) ours: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scenario, pod, field, upstream, ours } = self;
        writeln!(f, "{scenario}: {pod} {field}")?;
        for (who, what) in [("upstream", upstream), ("ours", ours)] {
            for (number, line) in what.lines().enumerate() {
                let who = if number == 0 { who } else { "" };
                writeln!(f, "    {who:8} {line}")?;
            }
        }
        Ok(())
    }
}

/// The differences, one after another.
pub(super) fn show_all(differences: &[Difference]) -> String {
    let mut text = String::new();
    for difference in differences {
        write!(text, "{difference}").expect("writing to a String cannot fail");
    }
    text
}

/// Compares two outcomes of a scenario.
pub(super) fn differences(scenario: &str, upstream: &Seen, ours: &Seen) -> Vec<Difference> {
    let absent = PodSeen::default();
    let mut differences = Vec::new();
    for pod in names(&upstream.pods, &ours.pods) {
        let upstream = upstream.pods.get(pod).unwrap_or(&absent);
        let ours = ours.pods.get(pod).unwrap_or(&absent);
        let mut compare = |field, same: bool, upstream: String, ours: String| {
            if !same {
                differences.push(Difference {
                    scenario: scenario.to_owned(),
                    pod: pod.clone(),
                    field,
                    upstream,
                    ours,
                });
            }
        };
        compare(
            "node",
            is_top(upstream, ours.node.as_deref()),
            show_node(upstream),
            ours.node.clone().unwrap_or_else(none),
        );
        compare(
            "nominatedNodeName",
            upstream.nominated_node_name == ours.nominated_node_name,
            upstream.nominated_node_name.clone().unwrap_or_else(none),
            ours.nominated_node_name.clone().unwrap_or_else(none),
        );
        compare(
            "generation",
            upstream.generation == ours.generation,
            upstream.generation.to_string(),
            ours.generation.to_string(),
        );
        compare(
            "condition",
            upstream.condition == ours.condition,
            show_condition(upstream),
            show_condition(ours),
        );
        compare(
            "disruption",
            upstream.disruption == ours.disruption && upstream.terminating == ours.terminating,
            show_disruption(upstream),
            show_disruption(ours),
        );
        compare(
            "extendedResourceClaimStatus",
            upstream.extended_resource_claim_status == ours.extended_resource_claim_status,
            show_extended_claim(upstream),
            show_extended_claim(ours),
        );
        let same = lasting_events(scenario, upstream) == lasting_events(scenario, ours);
        compare("events", same, show_events(upstream), show_events(ours));
    }
    for claim in names(&upstream.claims, &ours.claims) {
        let (upstream, ours) = (upstream.claims.get(claim), ours.claims.get(claim));
        if upstream != ours {
            differences.push(Difference {
                scenario: scenario.to_owned(),
                pod: claim.clone(),
                field: "claim",
                upstream: show_changes(upstream),
                ours: show_changes(ours),
            });
        }
    }
    differences
}

/// The names on either side, once each.
fn names<'a, T>(
    upstream: &'a BTreeMap<String, T>,
    ours: &'a BTreeMap<String, T>,
) -> impl Iterator<Item = &'a String> {
    upstream.keys().chain(ours.keys().filter(|name| !upstream.contains_key(*name)))
}

/// Whether kube-scheduler might have chosen `node`: any with the highest final score, or, without
/// scores, the one it chose.
fn is_top(upstream: &PodSeen, node: Option<&str>) -> bool {
    let top = upstream.scores.values().max();
    match (node, top) {
        (Some(node), Some(top)) => upstream.scores.get(node) == Some(top),
        _ => upstream.node.as_deref() == node,
    }
}

fn show_node(pod: &PodSeen) -> String {
    let node = pod.node.as_deref().unwrap_or("none");
    if pod.scores.is_empty() { node.to_owned() } else { format!("{node}, of scores {:?}", pod.scores) }
}

fn show_condition(pod: &PodSeen) -> String {
    show(pod.condition.as_ref())
}

fn show_disruption(pod: &PodSeen) -> String {
    let terminating = if pod.terminating { "terminating, " } else { "" };
    format!("{terminating}{}", show(pod.disruption.as_ref()))
}

fn show_extended_claim(pod: &PodSeen) -> String {
    pod.extended_resource_claim_status.as_ref().map_or_else(none, Value::to_string)
}

fn show(condition: Option<&Condition>) -> String {
    condition.map_or_else(none, |condition| {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let generation = condition.observed_generation.map_or_else(none, |seen| seen.to_string());
        format!(
            "{} {} (observed generation {generation}) {}",
            condition.status,
            text(&condition.reason),
            text(&condition.message)
        )
    })
}

fn none() -> String {
    "none".to_owned()
}

fn show_changes(claim: Option<&Vec<Value>>) -> String {
    let Some(changes) = claim else { return "no such claim".to_owned() };
    if changes.is_empty() {
        return "unchanged".to_owned();
    }
    changes.iter().map(Value::to_string).collect::<Vec<_>>().join("\n")
}

fn show_events(pod: &PodSeen) -> String {
    let lines: Vec<String> = pod
        .events
        .iter()
        .map(|event| {
            let oddities = event.oddities.iter().map(|odd| format!("\n! {odd}"));
            format!(
                "{} {} {} {}x from {}{}: {}{}",
                event.kind,
                event.reason,
                event.action,
                event.times,
                event.controller,
                event.related.as_ref().map_or_else(String::new, |pod| format!(" with {pod}")),
                event.note,
                oddities.collect::<String>()
            )
        })
        .collect();
    if lines.is_empty() { "none".to_owned() } else { lines.join("\n") }
}

/// The closed list.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Meant {
    pub(super) differences: Vec<MeantDifference>,
}

/// One entry of it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MeantDifference {
    pub(super) scenario: String,
    pod: Option<String>,
    pub(super) field: String,
    pub(super) reason: String,
}

impl MeantDifference {
    /// An entry for a field of all pods of a scenario.
    pub(super) fn new(scenario: &str, field: &str, reason: &str) -> Self {
        Self { scenario: scenario.into(), pod: None, field: field.into(), reason: reason.into() }
    }
}

impl Meant {
    pub(super) fn read() -> Result<Self> {
        serde_saphyr::from_str(DIFFERENCES).context("read differences.yaml")
    }

    /// This list with more entries.
    pub(super) fn and(mut self, others: Vec<MeantDifference>) -> Self {
        self.differences.extend(others);
        self
    }

    /// Removes the listed differences from `found`. The rest is the first part of the result. The
    /// second part has faults of the list: unused entries of scenarios in `ran`, and entries
    /// without a scenario in `known` or without a reason.
    pub(super) fn excuse(
        &self,
        found: Vec<Difference>,
        ran: &[String],
        known: &[String],
    ) -> (Vec<Difference>, Vec<String>) {
        let mut used = vec![false; self.differences.len()];
        let mut faults = Vec::new();
        for difference in found {
            let entry = self.differences.iter().position(|entry| {
                entry.scenario == difference.scenario
                    && entry.field == difference.field
                    && entry.pod.as_ref().is_none_or(|pod| *pod == difference.pod)
            });
            match entry {
                Some(index) => used[index] = true,
                None => faults.push(difference),
            }
        }
        let mut complaints = Vec::new();
        for (entry, used) in self.differences.iter().zip(used) {
            let what = format!("differences on purpose: {} {}", entry.scenario, entry.field);
            if entry.reason.trim().is_empty() {
                complaints.push(format!("{what}: no reason"));
            }
            if !known.contains(&entry.scenario) {
                complaints.push(format!("{what}: no such scenario"));
            } else if !used && ran.contains(&entry.scenario) {
                complaints.push(format!("{what}: unused, so delete it"));
            }
        }
        (faults, complaints)
    }
}

/// The events that a scenario compares. A group that failed is tried again after each backoff, for
/// ever. So the repeats that end with a pod's last failure count once there: a slow machine sees
/// more of them.
fn lasting_events(scenario: &str, pod: &PodSeen) -> Vec<Event> {
    let mut events = pod.events.clone();
    if scenario.starts_with("groups/") && pod.node.is_none() {
        let once = |event: &Event| Event { times: 1, ..event.clone() };
        while let [.., before, last] = &events[..]
            && once(before) == once(last)
        {
            events.pop();
        }
        if let Some(last) = events.last_mut() {
            last.times = 1;
        }
    }
    events
}

/// Whether kube-scheduler still does what is recorded. It may choose another node of equal score.
pub(super) fn is_current(scenario: &str, recorded: &Seen, upstream: &Seen) -> bool {
    let scores = |seen: &Seen| -> BTreeMap<String, BTreeMap<String, i64>> {
        let pods = seen.pods.iter();
        pods.map(|(name, pod)| (name.clone(), pod.scores.clone())).collect()
    };
    differences(scenario, recorded, upstream).is_empty() && scores(recorded) == scores(upstream)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(node: &str, scores: &[(&str, i64)]) -> PodSeen {
        PodSeen {
            node: Some(node.to_owned()),
            scores: scores.iter().map(|(node, score)| ((*node).to_owned(), *score)).collect(),
            ..PodSeen::default()
        }
    }

    fn of_pod(name: &str, pod: PodSeen) -> Seen {
        Seen { pods: [(name.to_owned(), pod)].into(), ..Seen::default() }
    }

    fn fields(upstream: PodSeen, ours: PodSeen) -> Vec<&'static str> {
        let seen = |pod| of_pod("p", pod);
        let found = differences("s", &seen(upstream), &seen(ours));
        found.iter().map(|difference| difference.field).collect()
    }

    #[test]
    fn any_node_with_the_top_score_matches() {
        let upstream = pod("a", &[("a", 300), ("b", 300), ("c", 299)]);
        assert!(fields(upstream.clone(), pod("b", &[])).is_empty());
        assert_eq!(fields(upstream.clone(), pod("c", &[])), ["node"]);
        assert_eq!(fields(upstream, PodSeen::default()), ["node"]);
    }

    #[test]
    fn without_scores_the_node_must_match() {
        assert!(fields(pod("a", &[]), pod("a", &[])).is_empty());
        assert_eq!(fields(pod("a", &[]), pod("b", &[])), ["node"]);
        assert_eq!(fields(PodSeen::default(), pod("b", &[])), ["node"]);
    }

    #[test]
    fn every_field_is_compared() {
        let ours = PodSeen {
            nominated_node_name: Some("a".to_owned()),
            generation: 2,
            condition: Some(Condition::default()),
            extended_resource_claim_status: Some(json!({"resourceClaimName": "c"})),
            events: vec![Event::default()],
            ..PodSeen::default()
        };
        assert_eq!(
            fields(PodSeen::default(), ours),
            ["nominatedNodeName", "generation", "condition", "extendedResourceClaimStatus", "events"]
        );
    }

    #[test]
    fn repeats_of_an_event_count_once_for_groups() {
        let failed = |note: &str, times| Event { note: note.to_owned(), times, ..Event::default() };
        let pod = |events: &[Event]| of_pod("p", PodSeen { events: events.to_vec(), ..PodSeen::default() });
        let upstream = pod(&[failed("a", 1), failed("b", 1)]);
        let slow = pod(&[failed("a", 1), failed("b", 1), failed("b", 3)]);
        assert_eq!(differences("groups/s", &upstream, &slow), []);
        let more = pod(&[failed("a", 1), failed("a", 3), failed("b", 1)]);
        assert_eq!(differences("groups/s", &upstream, &more).len(), 1, "it failed otherwise later");
        assert_eq!(differences("s", &upstream, &slow).len(), 1);
        assert_eq!(differences("groups/s", &upstream, &pod(&[failed("a", 1)])).len(), 1);
    }

    #[test]
    fn pod_missing_on_one_side_differs() {
        let ours = of_pod("p", pod("a", &[]));
        assert_eq!(differences("s", &Seen::default(), &ours).len(), 1);
        assert_eq!(differences("s", &ours, &Seen::default()).len(), 1);
    }

    #[test]
    fn listed_differences_are_excused_and_must_be_used() {
        let meant: Meant = serde_saphyr::from_str(
            "differences:\n- {scenario: s, field: node, reason: because}\n- {scenario: s, field: events, reason: because}\n\
             - {scenario: other, field: node, reason: because}\n- {scenario: gone, field: node, reason: because}\n",
        )
        .unwrap();
        let seen = |node| of_pod("p", pod(node, &[]));
        let found = differences("s", &seen("a"), &seen("b"));
        let (ran, known) = (["s".to_owned()], ["s".to_owned(), "other".to_owned()]);
        let (faults, complaints) = meant.excuse(found, &ran, &known);
        assert!(faults.is_empty());
        assert_eq!(
            complaints,
            [
                "differences on purpose: s events: unused, so delete it",
                "differences on purpose: gone node: no such scenario"
            ]
        );
    }

    #[test]
    fn claims_must_change_alike() {
        let seen = |changes: &[Value]| Seen {
            claims: [("c".to_owned(), changes.to_vec())].into(),
            ..Seen::default()
        };
        let (finalized, reserved) = (json!({"finalizers": ["f"]}), json!({"reservedFor": ["p"]}));
        let both = seen(&[finalized.clone(), reserved.clone()]);
        assert!(differences("s", &both, &both).is_empty());
        for other in [seen(&[]), seen(&[reserved.clone(), finalized]), Seen::default()] {
            let found = differences("s", &both, &other);
            assert_eq!((found.len(), &*found[0].pod, found[0].field), (1, "c", "claim"));
        }
    }

    #[test]
    fn unlisted_differences_remain() {
        let meant: Meant =
            serde_saphyr::from_str("differences: [{scenario: s, pod: q, field: node, reason: because}]")
                .unwrap();
        let seen = |node| of_pod("p", pod(node, &[]));
        let found = differences("s", &seen("a"), &seen("b"));
        let (faults, _) = meant.excuse(found, &[], &["s".to_owned()]);
        assert_eq!(faults.len(), 1);
        assert_eq!(faults[0].to_string(), "s: p node\n    upstream a\n    ours     b\n");
    }
}
