//! Compares tables with the plain path, for tests.

use std::collections::BTreeMap;

use supercargo_framework::{CycleState, NodeIndex, Status};

use super::Tables;
use super::profile_tables::TableAnswer;
use crate::cycle::Cycle;
use supercargo_runtime::diagnosis::Diagnosis;
use supercargo_runtime::failure::FailureKind;
use supercargo_runtime::observer::{Evaluated, PluginSet};
use supercargo_runtime::profile::{ProfileIndex, Scorer};

/// Compares every answer of a table with that of the plain path.
#[derive(Debug, Default)]
pub struct Comparison {
    /// The number of compared answers.
    pub compared: u64,
    /// The number of compared answers without a node.
    pub without_node: u64,
    /// The differences.
    pub differences: Vec<String>,
}

/// The answer of one path.
#[derive(Debug, PartialEq)]
enum PathAnswer {
    /// The best node, and the total score of each feasible node.
    Node(NodeIndex, Vec<(NodeIndex, i64)>),
    /// The reasons for no node: the status of each node, in order, and the plugins.
    None { by_node: Vec<(NodeIndex, Status)>, rest: String },
    /// An error.
    Failure(String),
}

impl PathAnswer {
    fn of_diagnosis(diagnosis: &Diagnosis) -> Self {
        let Diagnosis { statuses, unschedulable_plugins, pending_plugins, .. } = diagnosis;
        let (absent, message) = (&statuses.absent, &diagnosis.pre_filter_message);
        let rest = format!("{absent:?} {message} {unschedulable_plugins:?} {pending_plugins:?}");
        let by_node = statuses.iter().map(|(node, status)| (node, status.clone())).collect();
        Self::None { by_node, rest }
    }

    fn of_plain_path(cycle: &Cycle<'_>) -> Self {
        let mut state = CycleState::new();
        let feasible = match cycle.feasible(&mut state, &mut 0) {
            Ok(feasible) => feasible,
            Err(FailureKind::Fit(error)) => return Self::of_diagnosis(&error.diagnosis),
            Err(error) => return Self::Failure(error.to_string()),
        };
        let (best, totals) = (cycle.best(&mut state, &feasible), cycle.scores(&mut state, &feasible));
        match (best, totals) {
            (Ok(best), Ok(totals)) => Self::Node(best, feasible.into_iter().zip(totals).collect()),
            (Err(error), _) | (_, Err(error)) => Self::Failure(error.to_string()),
        }
    }
}

impl Comparison {
    /// Metrics count the same plugins on both paths. But the plain path does not score a single
    /// feasible node.
    fn compare_evaluated(&mut self, mut plain: Evaluated, answer: &TableAnswer) {
        let mut table = answer.evaluated;
        if plain.score == PluginSet::default() {
            for evaluated in [&mut plain, &mut table] {
                (evaluated.pre_score, evaluated.score) = Default::default();
            }
        }
        if table != plain {
            self.differences.push(format!("evaluated by the table: {table:?}, on the plain path: {plain:?}"));
        }
    }

    /// Compares an answer.
    pub fn compare(
        &mut self,
        cycle: &Cycle<'_>,
        answer: &TableAnswer,
        tables: &Tables,
        profile: ProfileIndex,
    ) {
        cycle.evaluated.set(Evaluated::default());
        let plain = PathAnswer::of_plain_path(cycle);
        self.compare_evaluated(cycle.evaluated.get(), answer);
        let mut totals = tables.totals(profile).to_vec();
        if let PathAnswer::Node(_, feasible) = &plain
            && !tables.uncached_numbers.is_empty()
        {
            // Uncached plugins need not have run for all nodes.
            totals.retain(|(index, _)| feasible.iter().any(|(node, _)| node == index));
        }
        let table = match &answer.found {
            Ok(best) => PathAnswer::Node(*best, totals),
            Err(diagnosis) => PathAnswer::of_diagnosis(diagnosis),
        };
        self.compared += 1;
        self.without_node += u64::from(answer.found.is_err());
        if table != plain {
            let nodes = cycle.cx.nodes();
            let names: Vec<_> = nodes.iter().map(|(index, node)| (index.0, node.name())).collect();
            let pod = cycle.pod.key();
            let (kept, fresh) = (tables.kept_scores(cycle, profile), fresh_scores(cycle));
            self.differences.push(format!(
                "{pod}: a table answers\n{table:?}, the plain path\n{plain:?}; {names:?}\nraw scores kept {kept:#?}\n\
                 of all nodes from scratch {fresh:#?}"
            ));
        }
    }
}

/// The raw scores of all plugins by name.
type RawScores = BTreeMap<&'static str, String>;

/// The raw scores of every node, from scratch.
fn fresh_scores(cycle: &Cycle<'_>) -> RawScores {
    let mut state = CycleState::new();
    let Ok(feasible) = cycle.feasible(&mut state, &mut 0) else { return RawScores::new() };
    if cycle.scores(&mut state, &feasible).is_err() {
        return RawScores::new();
    }
    let scorers = cycle.profile.score.iter();
    let raw = |index: &NodeIndex, scorer: &Scorer| {
        (index.0, scorer.plugin.score(cycle.cx, &state, cycle.pod, cycle.cx.node(*index)).ok())
    };
    let scores = |scorer: &Scorer| feasible.iter().map(|index| raw(index, scorer)).collect::<Vec<_>>();
    scorers.map(|scorer| (scorer.name, format!("{:?}", scores(scorer)))).collect()
}

impl Tables {
    /// The cached raw scores of the last answer's table.
    fn kept_scores(&self, cycle: &Cycle<'_>, profile: ProfileIndex) -> RawScores {
        let tables_of_profile = &self.profiles[profile.0];
        let table = tables_of_profile.tables.get(self.signer.bytes());
        let (Some(table), Some(plugins)) = (table, &cycle.profile.table_plugins) else {
            return RawScores::new();
        };
        let mut scores = RawScores::new();
        for (number, plugin) in plugins.iter().enumerate() {
            let relative = table
                .relative
                .iter()
                .find(|relative| relative.plugin == number)
                .map(|relative| &relative.scores);
            let column = super::table::column(&tables_of_profile.columns, table.columns[number]);
            let kept = relative.unwrap_or(&column.scores).as_ref().map(|scores| &scores.answers);
            let whose = if relative.is_some() { "own" } else { "" };
            scores.insert(plugin.name, format!("{whose} {kept:?}"));
        }
        scores
    }

    /// The total scores behind the last answer with a node.
    pub fn totals(&self, profile: ProfileIndex) -> &[(NodeIndex, i64)] {
        let table = self.profiles[profile.0].tables.get(self.signer.bytes());
        table.map_or(&[], |table| &table.totals)
    }

    /// Sets the maximum number of domains of a coarse key.
    pub fn set_coarse(&mut self, domains: usize) {
        self.topology.coarse = domains;
    }
}
