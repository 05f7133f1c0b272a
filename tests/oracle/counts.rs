//! Counts what was compared.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde::Deserialize;
use serde_json::json;

use super::answer::{Answer, Outcome};

/// The number of comparisons by kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts(BTreeMap<&'static str, u64>);

impl Counts {
    /// Adds numbers. A kind with 0 is listed, too.
    pub(super) fn extend(&mut self, counts: impl IntoIterator<Item = (&'static str, usize)>) {
        counts.into_iter().for_each(|(kind, count)| self.add(kind, count));
    }

    fn add(&mut self, kind: &'static str, count: usize) {
        *self.0.entry(kind).or_default() += count as u64;
    }

    pub(super) fn merge(&mut self, other: &Self) {
        for (kind, count) in &other.0 {
            *self.0.entry(kind).or_default() += count;
        }
    }

    /// Writes the counts with their seeds.
    pub(super) fn write(&self, file: &Path, first: u64, last: u64) -> Result<()> {
        let recorded = json!({"firstSeed": first, "lastSeed": last, "counts": self.0});
        let text = serde_saphyr::to_string(&recorded).context("write YAML")?;
        fs::write(file, text).with_context(|| format!("write {}", file.display()))
    }

    pub(super) fn of(&self, kind: &str) -> u64 {
        self.0.get(kind).copied().unwrap_or(0)
    }

    /// The kinds that never occurred.
    pub(super) fn missing(&self) -> Vec<&'static str> {
        self.0.iter().filter(|(_, count)| **count == 0).map(|(kind, _)| *kind).collect()
    }

    /// The kinds that occurred less than half as often, per step, as in the recorded run.
    pub(super) fn much_rarer_than(&self, recorded: &Recorded) -> Vec<String> {
        let (steps, recorded_steps) = (self.of("steps"), recorded.of("steps").max(1));
        let expected = recorded.counts.iter().map(|(kind, count)| (kind, count * steps / recorded_steps));
        let rare = expected.filter(|(kind, expected)| self.of(kind) * 2 < *expected);
        rare.map(|(kind, expected)| format!("{kind}: {} instead of {expected}", self.of(kind))).collect()
    }

    /// Counts what happens to groups.
    pub(super) fn note_groups(&mut self, before: &Answer, answer: &Answer) {
        self.add("trials of groups", answer.trials.len());
        self.add("pods that wait aside", answer.pods.values().filter(|pod| pod.place == "aside").count());
        let by_groups = answer.events.iter().filter(|event| {
            event.reason == "Preempted"
                && ["by podgroup", "by compositepodgroup"].iter().any(|by| event.note.contains(by))
        });
        self.add("victims of groups", by_groups.count());
        let changed = answer.groups.iter().filter(|(name, group)| before.groups.get(*name) != Some(group));
        for condition in changed.filter_map(|(_, group)| group.condition.as_ref()) {
            match &*condition.reason {
                "Scheduled" => self.add("groups scheduled", 1),
                "SchedulerError" => self.add("groups in error", 1),
                _ if condition.message.contains("preempting ") => self.add("groups that preempt", 1),
                _ if condition.message.contains("placements are available") => {
                    self.add("groups without a placement", 1);
                }
                _ => self.add("groups unschedulable", 1),
            }
        }
    }

    /// Counts the fields of an answer.
    pub(super) fn note(&mut self, answer: &Answer) {
        self.add("steps", 1);
        self.add("places", answer.pods.len());
        self.add("nominated nodes", answer.pods.values().filter(|pod| !pod.nominated.is_empty()).count());
        self.add("conditions", answer.pods.values().filter(|pod| pod.condition.is_some()).count());
        self.add("moves", answer.moves.values().map(|count| *count as usize).sum());
        self.add("events", answer.events.len());
        self.add("victims", answer.deleted.len());
        self.add("writes", answer.writes.len());
        let Some(cycle) = &answer.cycle else { return };
        self.add("cycles", 1);
        self.add("PreFilter verdicts", cycle.pre_filter.len());
        let verdicts = cycle.filters.values().flat_map(BTreeMap::values);
        self.add("filter rejections", verdicts.clone().count());
        self.add("reasons", verdicts.map(|status| status.reasons.len()).sum());
        self.add("score vectors", cycle.scores.len());
        self.add("scores", cycle.scores.values().map(BTreeMap::len).sum());
        self.add("preemption dry runs", cycle.preemption.as_ref().map_or(0, |found| found.nodes.len()));
        match cycle.result {
            Some(Outcome::Node(_)) => self.add("choices", 1),
            Some(Outcome::Error(_)) => self.add("failures", 1),
            None => self.add("skips", 1),
        }
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (kind, count) in &self.0 {
            writeln!(f, "{count:>10} {kind}")?;
        }
        Ok(())
    }
}

/// The counts of the run that `docs/parity.md` cites.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Recorded {
    counts: BTreeMap<String, u64>,
    #[serde(rename = "firstSeed")]
    _first_seed: u64,
    #[serde(rename = "lastSeed")]
    _last_seed: u64,
}

impl Recorded {
    fn of(&self, kind: &str) -> u64 {
        self.counts.get(kind).copied().unwrap_or(0)
    }

    pub(super) fn read() -> Result<Self> {
        let path = super::folder("counts.yaml");
        let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        serde_saphyr::from_str(&text).with_context(|| format!("read {}", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(of: &[(&'static str, usize)]) -> Counts {
        let mut counts = Counts::default();
        counts.extend(of.iter().copied());
        counts
    }

    #[test]
    fn kinds_are_expected_in_proportion_to_the_steps() {
        let text = "{firstSeed: 1, lastSeed: 9, counts: {steps: 1000, claims: 100, victims: 1}}";
        let recorded: Recorded = serde_saphyr::from_str(text).unwrap();
        let rare = |of: &[(&'static str, usize)]| counts(of).much_rarer_than(&recorded);
        assert_eq!(rare(&[("steps", 100), ("claims", 5)]), [""; 0]);
        assert_eq!(rare(&[("steps", 100), ("claims", 4)]), ["claims: 4 instead of 10"]);
        assert_eq!(rare(&[("steps", 1000)]), ["claims: 0 instead of 100", "victims: 0 instead of 1"]);
    }

    #[test]
    fn kinds_that_never_occur_are_missing() {
        assert_eq!(counts(&[("steps", 3), ("claims", 0)]).missing(), ["claims"]);
    }
}
