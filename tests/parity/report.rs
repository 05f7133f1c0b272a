//! Writes `docs/parity.md`: for each feature, what equals kube-scheduler and what differs on
//! purpose. Sources are the scenarios, their recorded results, the lists of differences and
//! `docs/deviations.md`.

mod deviations;
mod feature;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use supercargo_controlplane::Release;
use supercargo_plugins::DEFAULT_PLUGINS;

use super::compare::Meant;
use super::files::yaml_files;
use super::is_recording;
use super::scenario::Scenario;
use super::versions::Exceptions;
use deviations::Deviations;
use feature::{FEATURES, Feature, UPSTREAM_DEFAULTS};

/// Updates the file instead of comparing it.
const RECORD: &str = "SUPERCARGO_PARITY_REPORT";

/// The command that updates the file.
const HOW: &str = "SUPERCARGO_PARITY_REPORT=1 cargo test --test integration parity::report";

#[test]
fn parity_report_is_current() {
    if is_recording() {
        eprintln!("SKIPPED: the expectations are being recorded");
        return;
    }
    let report = Sources::read().and_then(|sources| sources.report()).unwrap();
    if std::env::var_os(RECORD).is_some_and(|value| value == "1") {
        fs::write(file(), &report).unwrap();
    }
    let found = fs::read_to_string(file()).unwrap_or_default();
    assert!(found == report, "docs/parity.md is not current; update it with: {HOW}");
}

#[test]
fn every_scenario_folder_and_deviations_section_has_one_feature() {
    let sources = Sources::read().unwrap();
    let groups: Vec<&str> = FEATURES.iter().flat_map(|feature| feature.groups).copied().collect();
    let sections: Vec<&str> = FEATURES.iter().flat_map(|feature| feature.sections).copied().collect();
    for names in [&groups, &sections] {
        assert_eq!(names.len(), names.iter().collect::<BTreeSet<_>>().len(), "twice: {names:?}");
    }
    for scenario in sources.scenarios {
        let group = group_of(scenario);
        assert!(groups.contains(&group), "{group} is in no feature of tests/parity/report/feature.rs");
    }
    for section in sources.deviations.sections().filter(|section| *section != feature::MIXED) {
        assert!(sections.contains(&section), "{section} is in no feature of tests/parity/report/feature.rs");
    }
}

#[test]
fn default_plugins_are_those_of_kube_scheduler() {
    let is_theirs = |name: &str| UPSTREAM_DEFAULTS.iter().any(|(theirs, _)| *theirs == name);
    let ours = DEFAULT_PLUGINS.iter().map(|plugin| (plugin.name, plugin.weight));
    assert!(ours.filter(|(name, _)| is_theirs(name)).eq(UPSTREAM_DEFAULTS.iter().copied()));
}

/// The differences on purpose of `tests/oracle`.
#[derive(Debug, Deserialize)]
struct Histories {
    differences: Vec<HistoryDifference>,
}

#[derive(Debug, Deserialize)]
struct HistoryDifference {
    path: String,
    reason: String,
}

/// What the recorded run of random histories has compared.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Compared {
    first_seed: u64,
    last_seed: u64,
    counts: BTreeMap<String, u64>,
}

/// The sources of the report.
struct Sources {
    scenarios: &'static [Scenario],
    /// The version of kube-scheduler that the results were recorded from.
    upstream: String,
    meant: Meant,
    exceptions: Vec<(Release, Exceptions)>,
    histories: Histories,
    compared: Option<Compared>,
    /// The number of recorded histories.
    recorded: usize,
    deviations: Deviations,
}

impl Sources {
    fn read() -> Result<Self> {
        let scenarios = Scenario::all()?;
        let upstream = scenarios.iter().map(|scenario| Ok(scenario.expected()?.upstream.clone()));
        let upstream: BTreeSet<String> = upstream.collect::<Result<_>>()?;
        ensure!(upstream.len() == 1, "recorded from several versions of upstream: {upstream:?}");
        let exceptions = Release::EARLIER.into_iter().map(|release| Ok((release, Exceptions::of(release)?)));
        let oracle = root().join("tests").join("oracle");
        let text = fs::read_to_string(oracle.join("differences.yaml")).context("read the oracle's list")?;
        let recorded = oracle.join("scenarios");
        let compared = fs::read_to_string(oracle.join("counts.yaml")).ok();
        let compared = compared.map(|text| serde_saphyr::from_str(&text).context("read the oracle's counts"));
        Ok(Self {
            upstream: upstream.into_iter().collect(),
            scenarios,
            meant: Meant::read()?,
            exceptions: exceptions.collect::<Result<_>>()?,
            histories: serde_saphyr::from_str(&text).context("read the oracle's list")?,
            compared: compared.transpose()?,
            recorded: yaml_files(&recorded)?.len(),
            deviations: Deviations::read(&root().join("docs").join("deviations.md"))?,
        })
    }

    fn report(&self) -> Result<String> {
        let mut text = String::new();
        self.head(&mut text)?;
        plugins(&mut text)?;
        self.servers(&mut text)?;
        self.histories(&mut text)?;
        let mut rows = self.deviations.clone();
        for (number, feature) in FEATURES.iter().enumerate() {
            self.feature(&mut text, feature, &mut rows, number + 1 == FEATURES.len())?;
        }
        Ok(text)
    }

    fn head(&self, text: &mut String) -> Result<()> {
        let (all, differ) = (self.scenarios.len(), self.differing());
        writeln!(
            text,
            "# Parity with kube-scheduler\n\n\
             A test writes this file from `tests/parity`, `tests/oracle` and `docs/deviations.md`. To update it, run\n\
             `{HOW}`.\n\n\
             Baseline: {}. {all} scenarios run through kube-scheduler and through supercargo on one control plane. Nodes,\n\
             events, conditions, nominations, victims and changes of claims are equal in {} scenarios and differ on purpose\n\
             in {differ}. `cargo test` runs them in memory, unless they need controllers, and another third each day on a control plane.\n\n\
             The last column counts [deviations](deviations.md): decisions with a reason that no scenario shows, most of\n\
             them about errors, configuration and operation.\n",
            self.upstream,
            all - differ,
        )?;
        writeln!(
            text,
            "| feature | scenarios | equal | different on purpose | deviations |\n|---|---|---|---|---|"
        )?;
        let mut rows = self.deviations.clone();
        for (number, feature) in FEATURES.iter().enumerate() {
            let scenarios: Vec<&Scenario> = self.of(feature).collect();
            let equal = scenarios.iter().filter(|scenario| self.reasons(scenario).is_empty()).count();
            let deviations = rows.take(feature, number + 1 == FEATURES.len()).len();
            let anchor = anchor(feature.title);
            let (title, count) = (feature.title, scenarios.len());
            let differ = count - equal;
            writeln!(text, "| [{title}](#{anchor}) | {count} | {equal} | {differ} | {deviations} |")?;
        }
        let deviations = self.deviations.sections().count();
        writeln!(text, "| total | {all} | {} | {differ} | {deviations} |", all - differ)?;
        Ok(())
    }

    fn servers(&self, text: &mut String) -> Result<()> {
        writeln!(
            text,
            "\n## API servers\n\n\
             On API servers of other releases, supercargo must reach the recorded results of the baseline. Scenarios of a\n\
             scheduler with disabled feature gates run on the baseline alone.\n\n\
             | API server | scenarios | equal to the baseline | not supported by the server | other differences |\n\
             |---|---|---|---|---|"
        )?;
        let none = Exceptions::default();
        let others = self.exceptions.iter().map(|(release, exceptions)| (*release, exceptions));
        let mut servers: Vec<(Release, &Exceptions)> = others.chain([(Release::Baseline, &none)]).collect();
        servers.sort_by_key(|(release, _)| Release::ALL.iter().position(|known| known == release));
        for (release, exceptions) in &servers {
            let (unsupported, differ) = (exceptions.unsupported().len(), exceptions.differing().len());
            let runs = |it: &&Scenario| *release == Release::Baseline || it.runs_on_other_releases();
            let all = self.scenarios.iter().filter(runs).count();
            let equal = all - unsupported - differ;
            writeln!(text, "| {release} | {all} | {equal} | {unsupported} | {differ} |")?;
        }
        for (release, exceptions) in servers {
            for entry in &exceptions.unsupported {
                let (scenarios, reason) = (list(&entry.scenarios), sentence(&entry.reason));
                writeln!(text, "\nNot supported by {release}: {reason} {scenarios}")?;
            }
            for entry in &exceptions.differences {
                let (field, reason) = (&entry.field, sentence(&entry.reason));
                let scenarios = list(&entry.scenarios);
                writeln!(text, "\nDifferent on {release}, {field}: {reason} {scenarios}")?;
            }
        }
        Ok(())
    }

    fn histories(&self, text: &mut String) -> Result<()> {
        writeln!(
            text,
            "\n## Random histories\n\n\
             Upstream's scheduler package and supercargo play the same histories: nodes, pods, volumes, budgets, namespaces\n\
             and time change at random from a seed. After every step, both must agree on every plugin's verdict and score on\n\
             every node, the reasons, the choice, the victims, the requeued pods with their events and queues, the events,\n\
             conditions and writes. {} recorded histories, most of which have shown a difference once, run every time.\n",
            self.recorded
        )?;
        if let Some(Compared { first_seed, last_seed, counts }) = &self.compared {
            writeln!(
                text,
                "A recorded run (seeds {first_seed} to {last_seed}) has compared, without an unexplained difference:\n\n\
                 | compared | count |\n|---|---|"
            )?;
            for (kind, number) in counts {
                writeln!(text, "| {kind} | {number} |")?;
            }
            writeln!(text)?;
        }
        if self.histories.differences.is_empty() {
            writeln!(text, "Nothing differs on purpose.")?;
        } else {
            writeln!(text, "Different on purpose:\n")?;
        }
        for HistoryDifference { path, reason } in &self.histories.differences {
            writeln!(text, "* `{path}`: {}", sentence(reason))?;
        }
        Ok(())
    }

    fn feature(&self, text: &mut String, feature: &Feature, rows: &mut Deviations, last: bool) -> Result<()> {
        writeln!(text, "\n## {}", feature.title)?;
        let scenarios: Vec<&Scenario> = self.of(feature).collect();
        let (equal, differ): (Vec<&Scenario>, Vec<&Scenario>) =
            scenarios.iter().partition(|scenario| self.reasons(scenario).is_empty());
        if !equal.is_empty() {
            writeln!(text, "\nEqual in {}:\n", count(equal.len(), "scenario"))?;
        }
        for scenario in equal {
            writeln!(text, "* {} (`{}`)", scenario.about.trim(), scenario.name)?;
        }
        for file in feature.tests {
            let tests =
                tests_of(&fs::read_to_string(root().join(file)).with_context(|| format!("read {file}"))?);
            writeln!(text, "\nTested by {} in `{file}`:\n", count(tests.len(), "test"))?;
            for test in tests {
                writeln!(text, "* {test}")?;
            }
        }
        if !differ.is_empty() {
            writeln!(text, "\nDifferent on purpose in {}:\n", count(differ.len(), "scenario"))?;
        }
        for scenario in differ {
            writeln!(text, "* {} (`{}`)", scenario.about.trim(), scenario.name)?;
            for (field, reason) in self.reasons(scenario) {
                writeln!(text, "  * {field}: {}", sentence(reason))?;
            }
        }
        let deviations = rows.take(feature, last);
        if !deviations.is_empty() {
            writeln!(text, "\nDifferent, as [deviations](deviations.md) explain:\n")?;
        }
        for what in deviations {
            writeln!(text, "* {what}")?;
        }
        Ok(())
    }

    /// The scenarios of a feature, in the order of its folders.
    fn of<'a>(&'a self, feature: &'a Feature) -> impl Iterator<Item = &'a Scenario> {
        let groups = feature.groups.iter();
        groups.flat_map(|group| self.scenarios.iter().filter(move |scenario| group_of(scenario) == *group))
    }

    /// The fields in which a scenario differs on purpose, with reasons.
    fn reasons(&self, scenario: &Scenario) -> Vec<(&str, &str)> {
        let entries = self.meant.differences.iter().filter(|entry| entry.scenario == scenario.name);
        entries.map(|entry| (entry.field.as_str(), entry.reason.as_str())).collect()
    }

    fn differing(&self) -> usize {
        self.scenarios.iter().filter(|scenario| !self.reasons(scenario).is_empty()).count()
    }
}

#[test]
fn test_names_become_sentences() {
    let source =
        "#[test]\nfn a_pod_waits() {\n}\n\nfn helper() {}\n\n#[test]\n#[ignore]\n    fn it_goes() {}\n";
    assert_eq!(tests_of(source), ["A pod waits.", "It goes."]);
}

/// The default plugins of kube-scheduler.
fn plugins(text: &mut String) -> Result<()> {
    let all = UPSTREAM_DEFAULTS.iter();
    let all = all
        .map(|(name, weight)| if *weight == 0 { (*name).to_owned() } else { format!("{name} ({weight})") });
    writeln!(
        text,
        "\n## Plugins\n\n\
         kube-scheduler enables {} plugins by default with every feature gate on. supercargo has them in the same\n\
         order and with the same weights: {}.",
        UPSTREAM_DEFAULTS.len(),
        all.collect::<Vec<_>>().join(", "),
    )?;
    Ok(())
}

fn group_of(scenario: &Scenario) -> &str {
    scenario.name.split_once('/').map_or(scenario.name.as_str(), |(group, _)| group)
}

fn count(number: usize, noun: &str) -> String {
    if number == 1 { format!("one {noun}") } else { format!("{number} {noun}s") }
}

/// The names of a file's tests, as sentences.
fn tests_of(source: &str) -> Vec<String> {
    let parts = source.split("#[test]\n").skip(1);
    let names = parts.filter_map(|part| {
        let function = part.lines().map(str::trim_start).find(|line| line.starts_with("fn "))?;
        function.strip_prefix("fn ")?.split('(').next()
    });
    names.map(|name| sentence(&capitalised(&name.replace('_', " ")))).collect()
}

fn list(scenarios: &BTreeSet<String>) -> String {
    let names: Vec<String> = scenarios.iter().map(|name| format!("`{name}`")).collect();
    format!("({})", names.join(", "))
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// A reason on one line with a full stop at its end.
fn sentence(reason: &str) -> String {
    let words: Vec<&str> = reason.split_whitespace().collect();
    format!("{}.", words.join(" ").trim_end_matches('.'))
}

/// The anchor of a heading.
fn anchor(title: &str) -> String {
    let kept = title.chars().filter(|letter| letter.is_alphanumeric() || matches!(letter, ' ' | '-'));
    kept.map(|letter| if letter == ' ' { '-' } else { letter.to_ascii_lowercase() }).collect()
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn file() -> PathBuf {
    root().join("docs").join("parity.md")
}
