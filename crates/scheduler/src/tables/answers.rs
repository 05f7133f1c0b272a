//! What is kept of a plugin's answers, and how they are asked for.

use std::sync::Arc;

use smallvec::SmallVec;
use supercargo_framework::caching::Scope;
use supercargo_framework::context::Context;
use supercargo_framework::plugin::{FilterPlugin, Normalize, ScorePlugin};
use supercargo_framework::{CycleState, NodeIndex, Nodes, PodInfo, Status};

use super::Refusal;
use super::again::{Again, concerned};
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
    /// Here is each node's class, by [`NodeIndex`]; what a class gets is asked for in each domain of these few.
    Classes(Keys, Vec<i64>),
}

impl<T> Answers<T> {
    pub(super) fn keys(&self) -> &[Arc<str>] {
        match self {
            Self::PerNode(_) => &[],
            Self::PerDomain(keys) | Self::Classes(keys, _) => keys,
        }
    }

    pub(super) fn are_by_node(&self) -> bool {
        matches!(self, Self::PerNode(_))
    }

    /// Whether what is kept of a node may be another when something changes elsewhere in its domain of this label.
    pub(super) fn follow(&self, key: &Arc<str>) -> bool {
        match self {
            Self::PerNode(_) => true,
            Self::PerDomain(_) => false,
            Self::Classes(keys, _) => !keys.contains(key),
        }
    }

    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::PerNode(rows) => rows.capacity() * size_of::<T>(),
            Self::PerDomain(_) => 0,
            Self::Classes(_, classes) => classes.capacity() * size_of::<i64>(),
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

/// Of which nodes what is kept has been asked for.
#[derive(Debug)]
pub(super) enum Asked {
    All,
    Some(SmallVec<[NodeIndex; 8]>),
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
    pub(super) fn new(
        view: &mut View<'_>,
        judge: &Judge,
        plugin: &dyn ScorePlugin,
        state: &CycleState,
    ) -> Self {
        let scope = judge.caching.score_scope(state, view.pod);
        let answers = match (&scope, coarse_keys(view, &scope)) {
            (Scope::Classes(_), Some(keys)) if plugin.normalization() == Normalize::ByRange => {
                Answers::Classes(keys, Vec::new())
            }
            (Scope::Domain(_), Some(keys)) => Answers::PerDomain(keys),
            _ => Answers::PerNode(Vec::new()),
        };
        Self { answers, scope }
    }

    /// What is kept of each node, if anything.
    pub(super) fn rows(&self) -> Option<&[i64]> {
        match &self.answers {
            Answers::PerNode(rows) | Answers::Classes(_, rows) => Some(rows),
            Answers::PerDomain(_) => None,
        }
    }

    pub(super) fn ask_of_all(
        &mut self,
        view: &View<'_>,
        judge: &Judge,
        plugin: &dyn ScorePlugin,
        state: &CycleState,
        reads: &mut Reads,
    ) -> Result<(), Refusal> {
        let slots = view.nodes.columns().len();
        let rows = match &mut self.answers {
            Answers::PerDomain(_) => return Ok(()),
            Answers::Classes(_, classes) => {
                classes.clear();
                classes.resize(slots, 0);
                view.running.set("Score", judge.name);
                for (index, node) in view.nodes.iter() {
                    classes[index.0 as usize] = judge.caching.score_class(state, view.pod, node);
                }
                return Ok(());
            }
            Answers::PerNode(rows) => rows,
        };
        rows.clear();
        rows.resize(slots, 0);
        view.running.set("Score", judge.name);
        if judge.caching.score_columns(view.cx, state, view.pod, view.nodes, rows) {
            return reads.note_of_all(view.cx.take_reads());
        }
        for (index, _) in view.nodes.iter() {
            rows[index.0 as usize] = ask_score(view, judge.name, plugin, state, reads, index)?;
        }
        Ok(())
    }

    /// Asks what must be asked again.
    pub(super) fn ask_again(
        &mut self,
        view: &mut View<'_>,
        judge: &Judge,
        plugin: &dyn ScorePlugin,
        state: &CycleState,
        reads: &mut Reads,
        again: &Again,
    ) -> Result<Asked, Refusal> {
        if again.all && self.answers.are_by_node() {
            self.ask_of_all(view, judge, plugin, state, reads)?;
            return Ok(Asked::All);
        }
        let due = concerned(again, &self.scope, view);
        let slots = view.nodes.columns().len();
        match &mut self.answers {
            Answers::PerNode(rows) => {
                rows.resize(slots, 0);
                for index in &due {
                    rows[index.0 as usize] = ask_score(view, judge.name, plugin, state, reads, *index)?;
                }
            }
            Answers::Classes(_, classes) => {
                classes.resize(slots, 0);
                view.running.set("Score", judge.name);
                for index in &due {
                    classes[index.0 as usize] =
                        judge.caching.score_class(state, view.pod, view.nodes.at(*index));
                }
            }
            Answers::PerDomain(_) => {}
        }
        Ok(Asked::Some(due))
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
    let (Scope::Domain(keys) | Scope::Classes(keys)) = scope else { return None };
    let mut keys: Keys = keys.clone();
    keys.sort();
    keys.dedup();
    let is_made_of_domains = !keys.is_empty() || matches!(scope, Scope::Classes(_));
    let coarse = is_made_of_domains && keys.iter().all(|key| view.topology.is_coarse(view.nodes, key));
    coarse.then_some(keys)
}
