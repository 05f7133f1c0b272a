//! The recorded half of a scenario file: what kube-scheduler did.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};

use super::claims::Claims;
use super::compare;
use super::files::folder;
use super::observe::{PodSeen, Seen};

/// Starts the second YAML document of a scenario file. The recorder replaces everything after it.
const SEPARATOR: &str = "\n---\n";

/// The first line of the second document.
const NOTE: &str = "# Recorded: what kube-scheduler did. See README.md.\n";

/// What kube-scheduler did.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Expected {
    /// The version that kube-scheduler reports.
    pub(super) upstream: String,
    pods: BTreeMap<String, PodSeen>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    claims: Claims,
}

impl Expected {
    /// Parses the second document of a scenario file.
    pub(super) fn parse(name: &str, text: &str) -> Result<Self> {
        serde_saphyr::from_str(text).with_context(|| format!("read what is recorded of {name}"))
    }

    /// Writes the second document of a scenario file and keeps the first as it is.
    pub(super) fn write(name: &str, version: &str, seen: &Seen) -> Result<()> {
        let file = file(name);
        let text = fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
        let Seen { pods, claims } = seen.clone();
        let expected = Self { upstream: version.to_owned(), pods, claims };
        let recorded = serde_saphyr::to_string(&expected).context("write YAML")?;
        ensure!(
            Self::parse(name, &recorded)?.seen() == *seen,
            "{name}: what is read is not what was written"
        );
        fs::write(&file, join(split(&text).0, &recorded)).with_context(|| format!("write {}", file.display()))
    }

    /// Its pods and claims.
    pub(super) fn seen(&self) -> Seen {
        Seen { pods: self.pods.clone(), claims: self.claims.clone() }
    }

    /// How a new run of kube-scheduler differs from this record, if it does.
    pub(super) fn complaint(&self, name: &str, version: &str, seen: &Seen) -> Option<String> {
        let how = "SUPERCARGO_PARITY_RECORD=1 records it again";
        if self.upstream != version {
            let recorded = &self.upstream;
            return Some(format!("{name}: recorded from {recorded}, run with {version}; {how}"));
        }
        let recorded = self.seen();
        (!compare::is_current(name, &recorded, seen)).then(|| {
            let differences = compare::show_all(&compare::differences(name, &recorded, seen));
            format!("{name}: upstream (below as ours) differs from the record; {how}:\n{differences}")
        })
    }
}

/// The two documents of a scenario file; the second is missing until it is recorded.
pub(super) fn split(text: &str) -> (&str, Option<&str>) {
    text.split_once(SEPARATOR).map_or((text, None), |(scenario, recorded)| (scenario, Some(recorded)))
}

fn join(scenario: &str, recorded: &str) -> String {
    format!("{}{SEPARATOR}{NOTE}{recorded}", scenario.trim_end_matches('\n'))
}

fn file(name: &str) -> PathBuf {
    folder("scenarios").join(format!("{name}.yaml"))
}

#[test]
fn recording_keeps_comments_and_layout_of_the_scenario() {
    let scenario = "about: A.\n\n# Why.\npods:\n  - {name: p}   # here\n";
    let first = join(split(scenario).0, "upstream: v1\n");
    assert_eq!(first, format!("{scenario}---\n{NOTE}upstream: v1\n"));
    assert_eq!(join(split(&first).0, "upstream: v2\n"), first.replace("v1", "v2"));
}
