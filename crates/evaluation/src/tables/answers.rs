//! Cached answers of plugins, and how they are obtained.

use std::sync::Arc;

use smallvec::SmallVec;
use supercargo_framework::caching::Scope;
use supercargo_framework::plugin::{FilterPlugin, ScorePlugin};
use supercargo_framework::{CycleState, NodeIndex, Status, Text};

use super::fallback::Fallback;
use super::invalidation::{Invalidation, concerned};
use super::layout::{Keys, text_bytes};
use super::reads::Reads;
use super::view::View;
use supercargo_runtime::profile::TablePlugin;

/// The maximum number of distinct statuses. More would mean a text per node, which is not worth
/// caching.
const MAX_STATUSES: usize = 4096;

/// Where a plugin's answers are cached.
#[derive(Debug)]
pub(super) enum Answers<T> {
    /// By [`NodeIndex`].
    PerNode(Vec<T>),
    /// Not cached: the plugin is called for each domain. There are few.
    PerDomain(Keys),
    /// Each node's class, by [`NodeIndex`]. The plugin is called for each class in each domain.
    Classes(Keys, Vec<i64>),
}

impl<T> Answers<T> {
    pub(super) fn keys(&self) -> &[Arc<str>] {
        match self {
            Self::PerNode(_) => &[],
            Self::PerDomain(keys) | Self::Classes(keys, _) => keys,
        }
    }

    /// Whether answers of this scope would now be cached otherwise, because nodes have other
    /// labels.
    pub(super) fn are_outdated(&self, view: &mut View<'_>, scope: &Scope) -> bool {
        let keys = if self.are_by_node() { None } else { Some(self.keys()) };
        coarse_keys(view, scope).as_deref() != keys
    }

    pub(super) fn are_by_node(&self) -> bool {
        matches!(self, Self::PerNode(_))
    }

    /// Whether a node's cached answer may change with something else in its domain of this label.
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
            Self::PerDomain(keys) => text_bytes(keys),
            Self::Classes(keys, classes) => text_bytes(keys) + classes.capacity() * size_of::<i64>(),
        }
    }
}

/// A verdict: an index into [`Verdicts::statuses`].
pub(super) type Verdict = u16;
/// The node passes.
pub(super) const PASSES: Verdict = 0;
/// The node does not pass; the reason is not known yet.
pub(super) const UNASKED: Verdict = 1;

/// The answers of a filter.
#[derive(Debug)]
pub(super) struct Verdicts {
    pub(super) answers: Answers<Verdict>,
    pub(super) scope: Scope,
    pub(super) statuses: Statuses,
}

impl Verdicts {
    /// The approximate size in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.answers.bytes() + scope_bytes(&self.scope) + self.statuses.bytes()
    }
}

/// The answers of a score plugin.
#[derive(Debug)]
pub(super) struct Scores {
    pub(super) answers: Answers<i64>,
    pub(super) scope: Scope,
}

/// The nodes whose answers were updated.
#[derive(Debug)]
pub(super) enum Asked {
    All,
    Some(SmallVec<[NodeIndex; 8]>),
}

/// The distinct statuses of a column, with the plugin's name.
#[derive(Debug)]
pub(super) struct Statuses(Vec<Status>);

impl Default for Statuses {
    fn default() -> Self {
        Self(vec![Status::success(), Status::success()])
    }
}

impl Statuses {
    /// The approximate size in bytes.
    fn bytes(&self) -> usize {
        self.0.capacity() * size_of::<Status>() + self.0.iter().map(reason_bytes).sum::<usize>()
    }

    /// The status of a verdict.
    pub(super) fn get(&self, verdict: Verdict) -> &Status {
        &self.0[verdict as usize]
    }

    /// Calls the filter for a node.
    pub(super) fn ask(
        &mut self,
        view: &View<'_>,
        plugin: &TablePlugin,
        state: &CycleState,
        reads: &mut Reads,
        filter: &dyn FilterPlugin,
        index: NodeIndex,
    ) -> Result<Verdict, Fallback> {
        let node = view.nodes.at(index);
        view.calls.enter("Filter", plugin.name);
        let status = filter.filter(view.cx, state, view.pod, node);
        reads.note_of_node(view, node.name())?;
        if status.is_success() {
            return Ok(PASSES);
        }
        if !status.is_rejected() {
            return Err(Fallback::Cycle);
        }
        let status = status.by(plugin.name);
        let unasked = UNASKED as usize + 1;
        let known = self.0[unasked..].iter().position(|known| *known == status);
        let place = known.map_or(self.0.len(), |place| place + unasked);
        if place == self.0.len() {
            if place >= MAX_STATUSES {
                return Err(Fallback::Cycle);
            }
            let (reasons, room) = (reason_bytes(&status), self.0.capacity());
            self.0.push(status);
            view.gain(reasons + (self.0.capacity() - room) * size_of::<Status>());
        }
        Ok(place as Verdict)
    }
}

/// The size of a status's reasons in bytes.
fn reason_bytes(status: &Status) -> usize {
    status.reasons().iter().map(|reason| reason.len() + size_of::<Text>()).sum()
}

impl Scores {
    pub(super) fn new(view: &mut View<'_>, plugin: &TablePlugin, state: &CycleState) -> Self {
        let scope = plugin.caching.score_scope(state, view.pod);
        let answers = match (&scope, coarse_keys(view, &scope)) {
            (Scope::Classes(_), Some(keys)) if plugin.normalizes_by_range() => {
                Answers::Classes(keys, Vec::new())
            }
            (Scope::Domain(_), Some(keys)) => Answers::PerDomain(keys),
            _ => Answers::PerNode(Vec::new()),
        };
        Self { answers, scope }
    }

    /// The cached value of each node, if any.
    pub(super) fn rows(&self) -> Option<&[i64]> {
        match &self.answers {
            Answers::PerNode(rows) | Answers::Classes(_, rows) => Some(rows),
            Answers::PerDomain(_) => None,
        }
    }

    pub(super) fn ask_of_all(
        &mut self,
        view: &View<'_>,
        plugin: &TablePlugin,
        score: &dyn ScorePlugin,
        state: &CycleState,
        reads: &mut Reads,
    ) -> Result<(), Fallback> {
        let slots = view.nodes.columns().len();
        let rows = match &mut self.answers {
            Answers::PerDomain(_) => return Ok(()),
            Answers::Classes(_, classes) => {
                classes.clear();
                classes.resize(slots, 0);
                view.calls.enter("Score", plugin.name);
                for (index, node) in view.nodes.iter() {
                    classes[index.0 as usize] = plugin.caching.score_class(state, view.pod, node);
                }
                return Ok(());
            }
            Answers::PerNode(rows) => rows,
        };
        rows.clear();
        rows.resize(slots, 0);
        view.calls.enter("Score", plugin.name);
        if plugin.caching.score_columns(view.cx, state, view.pod, view.nodes, rows) {
            return reads.note_of_all(view);
        }
        for (index, _) in view.nodes.iter() {
            rows[index.0 as usize] = ask_score(view, plugin.name, score, state, reads, index)?;
        }
        Ok(())
    }

    /// Updates invalidated scores.
    pub(super) fn update(
        &mut self,
        view: &mut View<'_>,
        plugin: &TablePlugin,
        score: &dyn ScorePlugin,
        state: &CycleState,
        reads: &mut Reads,
        invalid: &Invalidation,
    ) -> Result<Asked, Fallback> {
        if invalid.all && self.answers.are_by_node() {
            self.ask_of_all(view, plugin, score, state, reads)?;
            return Ok(Asked::All);
        }
        let due = concerned(invalid, &self.scope, view);
        let slots = view.nodes.columns().len();
        match &mut self.answers {
            Answers::PerNode(rows) => {
                rows.resize(slots, 0);
                for index in &due {
                    rows[index.0 as usize] = ask_score(view, plugin.name, score, state, reads, *index)?;
                }
            }
            Answers::Classes(_, classes) => {
                classes.resize(slots, 0);
                view.calls.enter("Score", plugin.name);
                for index in &due {
                    classes[index.0 as usize] =
                        plugin.caching.score_class(state, view.pod, view.nodes.at(*index));
                }
            }
            Answers::PerDomain(_) => {}
        }
        Ok(Asked::Some(due))
    }

    /// The approximate size in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.answers.bytes() + scope_bytes(&self.scope)
    }
}

fn scope_bytes(scope: &Scope) -> usize {
    match scope {
        Scope::NodeObject | Scope::Node => 0,
        Scope::Domain(keys) | Scope::Classes(keys) => text_bytes(keys),
    }
}

fn ask_score(
    view: &View<'_>,
    name: &'static str,
    score: &dyn ScorePlugin,
    state: &CycleState,
    reads: &mut Reads,
    index: NodeIndex,
) -> Result<i64, Fallback> {
    let node = view.nodes.at(index);
    view.calls.enter("Score", name);
    let raw = score.score(view.cx, state, view.pod, node).map_err(|_| Fallback::Cycle)?;
    reads.note_of_node(view, node.name())?;
    Ok(raw)
}

/// The maximum number of keys of answers by domain. More keys than a handful have domains of one
/// node each.
const MAX_KEYS: usize = 16;

/// The keys of an answer by domain, sorted, if these are few and each has few domains. Keys that no
/// node has distinguish none, and are left out.
pub(super) fn coarse_keys(view: &mut View<'_>, scope: &Scope) -> Option<Keys> {
    let (Scope::Domain(keys) | Scope::Classes(keys)) = scope else { return None };
    let is_made_of_domains = !keys.is_empty() || matches!(scope, Scope::Classes(_));
    let mut keys: Keys = keys.iter().filter(|key| view.nodes.any_has_label(key)).cloned().collect();
    keys.sort();
    keys.dedup();
    let coarse = is_made_of_domains
        && keys.len() <= MAX_KEYS
        && keys.iter().all(|key| view.topology.is_coarse(view.nodes, key));
    coarse.then_some(keys)
}
