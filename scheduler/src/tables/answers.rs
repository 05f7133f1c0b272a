//! What is kept of a plugin's answers, and how they are asked for.

use supercargo_framework::context::Context;
use supercargo_framework::plugin::{FilterPlugin, Scope, ScorePlugin};
use supercargo_framework::{CycleState, NodeIndex, Nodes, PodInfo, Status};

use super::Refusal;
use super::layout::{Keys, Topology};
use super::reads::Reads;
use super::rule::Rules;
use crate::changes::ChangeLog;
use crate::cycle::Running;
use crate::laps::Laps;
use crate::profile::Judge;

/// So many distinct statuses at most; more would be a text per node, which is not worth keeping.
const MOST_STATUSES: usize = 4096;

/// What a table is brought up to date with.
pub(super) struct View<'a> {
    /// Notes what is read.
    pub(super) cx: &'a Context<'a>,
    pub(super) nodes: &'a Nodes,
    pub(super) log: &'a ChangeLog,
    pub(super) labels_version: u64,
    pub(super) pod: &'a PodInfo,
    pub(super) running: &'a Running,
    pub(super) laps: &'a Laps<'a>,
    pub(super) topology: &'a mut Topology,
    pub(super) rules: &'a mut Rules,
    /// How many rows have been brought up to date one by one.
    pub(super) replays: &'a mut u64,
}

impl View<'_> {
    pub(super) fn replayed(&mut self, rows: usize) {
        *self.replays += rows as u64;
    }
}

/// Where a plugin's answers are kept.
#[derive(Debug)]
pub(super) enum Answers<T> {
    /// Here, by [`NodeIndex`].
    PerNode(Vec<T>),
    /// Nowhere: they are asked for each domain of these few.
    PerDomain(Keys),
}

impl<T> Answers<T> {
    pub(super) fn keys(&self) -> &[std::sync::Arc<str>] {
        match self {
            Self::PerNode(_) => &[],
            Self::PerDomain(keys) => keys,
        }
    }

    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::PerNode(rows) => rows.capacity() * size_of::<T>(),
            Self::PerDomain(_) => 0,
        }
    }
}

/// A verdict: an index of [`Verdicts::statuses`].
pub(super) type Verdict = u16;
/// The node passes.
pub(super) const PASSES: Verdict = 0;
/// The node does not pass; why has not been asked.
pub(super) const UNASKED: Verdict = 1;

/// What a filter says.
#[derive(Debug)]
pub(super) struct Verdicts {
    pub(super) answers: Answers<Verdict>,
    pub(super) scope: Scope,
    pub(super) statuses: Statuses,
}

/// What a score plugin says.
#[derive(Debug)]
pub(super) struct Scores {
    pub(super) answers: Answers<i64>,
    pub(super) scope: Scope,
}

/// The statuses of a column, each once, the plugin named in them.
#[derive(Debug)]
pub(super) struct Statuses(Vec<Status>);

impl Default for Statuses {
    fn default() -> Self {
        Self(vec![Status::success(), Status::success()])
    }
}

impl Statuses {
    /// The status of a verdict.
    pub(super) fn get(&self, verdict: Verdict) -> &Status {
        &self.0[verdict as usize]
    }

    /// Asks the filter about a node.
    pub(super) fn ask(
        &mut self,
        view: &View<'_>,
        judge: &Judge,
        state: &CycleState,
        reads: &mut Reads,
        plugin: &dyn FilterPlugin,
        index: NodeIndex,
    ) -> Result<Verdict, Refusal> {
        let node = view.nodes.at(index);
        view.running.set("Filter", judge.name);
        let status = plugin.filter(view.cx, state, view.pod, node);
        reads.note_of_node(view.cx.take_reads(), node.name())?;
        if status.is_success() {
            return Ok(PASSES);
        }
        if !status.is_rejected() {
            return Err(Refusal::Passing);
        }
        let status = status.by(judge.name);
        let unasked = UNASKED as usize + 1;
        let known = self.0[unasked..].iter().position(|known| *known == status);
        let place = known.map_or(self.0.len(), |place| place + unasked);
        if place == self.0.len() {
            if place >= MOST_STATUSES {
                return Err(Refusal::Passing);
            }
            self.0.push(status);
        }
        Ok(place as Verdict)
    }
}

impl Scores {
    pub(super) fn new(view: &mut View<'_>, scope: Scope) -> Self {
        let answers = match coarse_keys(view, &scope) {
            Some(keys) => Answers::PerDomain(keys),
            None => Answers::PerNode(Vec::new()),
        };
        Self { answers, scope }
    }

    pub(super) fn scope(&self) -> &Scope {
        &self.scope
    }

    pub(super) fn ask_of_all(
        &mut self,
        view: &View<'_>,
        name: &'static str,
        plugin: &dyn ScorePlugin,
        state: &CycleState,
        reads: &mut Reads,
    ) -> Result<(), Refusal> {
        let Answers::PerNode(rows) = &mut self.answers else { return Ok(()) };
        rows.clear();
        rows.resize(view.nodes.columns().len(), 0);
        view.running.set("Score", name);
        if plugin.score_columns(view.cx, state, view.pod, view.nodes, rows) {
            return reads.note_of_all(view.cx.take_reads());
        }
        for (index, _) in view.nodes.iter() {
            rows[index.0 as usize] = ask_score(view, name, plugin, state, reads, index)?;
        }
        Ok(())
    }

    pub(super) fn ask_again(
        &mut self,
        view: &View<'_>,
        name: &'static str,
        plugin: &dyn ScorePlugin,
        state: &CycleState,
        reads: &mut Reads,
        due: &[NodeIndex],
    ) -> Result<(), Refusal> {
        let Answers::PerNode(rows) = &mut self.answers else { return Ok(()) };
        rows.resize(view.nodes.columns().len(), 0);
        for index in due {
            rows[index.0 as usize] = ask_score(view, name, plugin, state, reads, *index)?;
        }
        Ok(())
    }

    pub(super) fn bytes(&self) -> usize {
        self.answers.bytes()
    }
}

fn ask_score(
    view: &View<'_>,
    name: &'static str,
    plugin: &dyn ScorePlugin,
    state: &CycleState,
    reads: &mut Reads,
    index: NodeIndex,
) -> Result<i64, Refusal> {
    let node = view.nodes.at(index);
    view.running.set("Score", name);
    let score = plugin.score(view.cx, state, view.pod, node).map_err(|_| Refusal::Passing)?;
    reads.note_of_node(view.cx.take_reads(), node.name())?;
    Ok(score)
}

/// The keys of an answer by domain, sorted, if each has few domains.
pub(super) fn coarse_keys(view: &mut View<'_>, scope: &Scope) -> Option<Keys> {
    let Scope::Domain(keys) = scope else { return None };
    let mut keys: Keys = keys.clone();
    keys.sort();
    keys.dedup();
    let coarse = !keys.is_empty() && keys.iter().all(|key| view.topology.is_coarse(view.nodes, key));
    coarse.then_some(keys)
}
