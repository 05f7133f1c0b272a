//! Scores that depend on which nodes are feasible.

use smallvec::SmallVec;
use supercargo_framework::caching::Applied;
use supercargo_framework::{CycleState, NodeIndex};

use super::answers::{Asked, Scores};
use super::column::apply;
use super::fallback::Fallback;
use super::invalidation::{InvalidatedBy, Invalidation, Row};
use super::reads::Reads;
use super::rule::Rule;
use super::view::View;
use crate::changes::{CacheChange, Cursor};
use supercargo_runtime::profile::TablePlugin;

/// A plugin whose PreScore depends on the feasible nodes. Its state and its scores belong to one
/// table.
#[derive(Debug)]
pub(super) struct RelativeScores {
    pub(super) plugin: usize,
    state: CycleState,
    /// `None` if PreScore skipped.
    pub(super) scores: Option<Scores>,
    reads: Reads,
    labels_version: u64,
    /// By node, whether the plugin was last told that it is feasible.
    reported: Vec<bool>,
    invalid: Invalidation,
    /// Whether the plugin skips for any set of nodes, and needs no updates.
    skips: bool,
    is_stale: bool,
    /// The size of the state when it was prepared.
    state_bytes: usize,
}

impl RelativeScores {
    /// Scores to be prepared.
    pub(super) fn new(plugin: usize) -> Self {
        Self {
            plugin,
            state: CycleState::new(),
            scores: None,
            reads: Reads::default(),
            labels_version: 0,
            reported: Vec::new(),
            invalid: Invalidation::default(),
            skips: false,
            is_stale: true,
            state_bytes: 0,
        }
    }

    /// Whether the plugin may score. Until it has been prepared, that is not known.
    pub(super) fn may_score(&self) -> bool {
        !self.is_stale && !self.skips
    }

    pub(super) fn state(&self) -> &CycleState {
        &self.state
    }

    /// Applies the changes since a position.
    pub(super) fn take(&mut self, view: &mut View<'_>, plugin: &TablePlugin, cursor: Cursor) {
        if std::mem::replace(&mut self.labels_version, view.labels_version) != view.labels_version {
            self.is_stale |= self.scores.as_ref().is_some_and(|it| it.answers.are_outdated(view, &it.scope));
        }
        let log = view.log;
        for (_, change) in log.since(cursor) {
            if !self.is_stale && !self.take_one(view, plugin, change) {
                self.is_stale = true;
            }
        }
    }

    fn take_one(&mut self, view: &mut View<'_>, plugin: &TablePlugin, change: &CacheChange) -> bool {
        let was_feasible = |index: NodeIndex| self.reported.get(index.0 as usize).copied().unwrap_or(false);
        let (index, cause, old, new) = match change {
            CacheChange::Object { resource, key } => {
                // An object of one node concerns Score, not PreScore.
                return !self.reads.object_concerns_all(resource, key, view.rules)
                    && !self.reads.follows(resource)
                    && !self.reads.object_concerns_node(resource);
            }
            // The plugin cannot be told to forget a feasible node.
            CacheChange::NodeRemoved { index, .. } if was_feasible(*index) => return false,
            CacheChange::NodeChanged { index, old, new }
                if was_feasible(*index) && old.labels != new.labels =>
            {
                return false;
            }
            CacheChange::NodeRemoved { index, node } => {
                (*index, InvalidatedBy::NodeObject, Some(&**node), None)
            }
            CacheChange::NodeAdded { index, node } => (*index, InvalidatedBy::NodeCame, None, Some(&**node)),
            CacheChange::NodeChanged { index, old, new } => {
                (*index, InvalidatedBy::NodeObject, Some(&**old), Some(&**new))
            }
            CacheChange::PodAdded { index, .. } | CacheChange::PodRemoved { index, .. } => {
                (*index, InvalidatedBy::Pods, None, None)
            }
        };
        if cause != InvalidatedBy::Pods && self.reads.node_concerns_all(old, new, view.rules) {
            return false;
        }
        self.invalid.rows.push(Row { index, cause });
        let applied = apply(view, plugin, &mut self.state, change);
        let nodes = super::column::nodes_of(change);
        self.follow(view, applied, &nodes.iter().map(|node| &node.labels).collect::<SmallVec<[_; 2]>>())
    }

    /// Applies the effect of a change on the scores; `false` if they must be rebuilt.
    fn follow(
        &mut self,
        view: &mut View<'_>,
        applied: Applied,
        labels: &[&supercargo_framework::Labels],
    ) -> bool {
        match applied {
            Applied::Here => true,
            Applied::Everywhere => {
                self.invalid.all |= view.rules.follow(Rule::StateOfAll);
                true
            }
            Applied::Domain(keys) => {
                let Some(scores) = &self.scores else { return true };
                let keys: SmallVec<[_; 2]> = keys.iter().filter(|key| scores.answers.follow(key)).collect();
                if !keys.is_empty() && view.rules.follow(Rule::StateOfDomain) {
                    for (labels, key) in
                        labels.iter().flat_map(|labels| keys.iter().map(move |key| (labels, key)))
                    {
                        let Some(value) = labels.get(key) else { continue };
                        let nodes = view.topology.domain(view.nodes, key, value);
                        let rows =
                            nodes.iter().map(|index| Row { index: *index, cause: InvalidatedBy::Elsewhere });
                        self.invalid.rows.extend(rows);
                    }
                }
                true
            }
            Applied::Nodes(_) | Applied::Rebuild => !view.rules.follow(Rule::Rebuild),
        }
    }

    /// Tells the plugin which of the candidates became feasible or infeasible, and updates invalid
    /// scores. `filter_state` is the state that PreFilter prepared. Returns the updated nodes.
    pub(super) fn settle(
        &mut self,
        view: &mut View<'_>,
        plugin: &TablePlugin,
        filter_state: &CycleState,
        feasible: impl Fn(NodeIndex) -> bool,
        candidates: impl Iterator<Item = NodeIndex>,
    ) -> Result<Asked, Fallback> {
        if !self.is_stale && !self.skips {
            for index in candidates {
                self.tell(view, plugin, index, feasible(index));
            }
        }
        if self.is_stale {
            self.prepare(view, plugin, filter_state, feasible)?;
            return Ok(Asked::All);
        }
        self.update(view, plugin)
    }

    fn tell(&mut self, view: &mut View<'_>, plugin: &TablePlugin, index: NodeIndex, feasible: bool) {
        let slot = index.0 as usize;
        if self.reported.len() <= slot {
            self.reported.resize(slot + 1, false);
        }
        if self.reported[slot] == feasible || !view.nodes.has(index) || !view.rules.follow(Rule::Feasible) {
            return;
        }
        self.reported[slot] = feasible;
        let Some(incremental) = plugin.incremental.as_ref() else {
            self.is_stale = true;
            return;
        };
        let node = view.nodes.at(index);
        view.calls.enter("Incremental", plugin.name);
        let applied = incremental.feasible_changed(&mut self.state, view.pod, node, feasible);
        if feasible {
            self.invalid.rows.push(Row { index, cause: InvalidatedBy::Elsewhere });
        }
        if !self.follow(view, applied, &[&node.node().labels]) {
            self.is_stale = true;
        }
    }

    /// Runs PreScore and scores all nodes.
    fn prepare(
        &mut self,
        view: &mut View<'_>,
        plugin: &TablePlugin,
        filter_state: &CycleState,
        feasible: impl Fn(NodeIndex) -> bool,
    ) -> Result<(), Fallback> {
        let Some(pre_score) = &plugin.pre_score else { return Ok(()) };
        (self.invalid, self.scores, self.reads) = (Invalidation::default(), None, Reads::default());
        self.state = filter_state.clone();
        self.reported.clear();
        view.calls.enter("PreScore", plugin.name);
        self.skips = plugin.caching.pre_score_skips(view.cx, view.pod);
        if self.skips {
            self.reads.note_of_all(view)?;
            self.is_stale = false;
            return Ok(());
        }
        let nodes: Vec<NodeIndex> =
            view.nodes.order().iter().copied().filter(|index| feasible(*index)).collect();
        self.reported.resize(view.nodes.columns().len(), false);
        for index in &nodes {
            self.reported[index.0 as usize] = true;
        }
        let status = pre_score.pre_score(view.cx, &mut self.state, view.pod, &nodes);
        self.reads.note_of_all(view)?;
        if !status.is_success() && !status.is_skip() {
            return Err(Fallback::Cycle);
        }
        if let Some((_, scorer)) = plugin.score.as_ref().filter(|_| status.is_success()) {
            let mut scores = Scores::new(view, plugin, &self.state);
            scores.ask_of_all(view, plugin, &**scorer, &self.state, &mut self.reads)?;
            self.scores = Some(scores);
        }
        self.is_stale = false;
        self.state_bytes = plugin.caching.state_bytes(&self.state);
        view.gain(self.bytes());
        Ok(())
    }

    fn update(&mut self, view: &mut View<'_>, plugin: &TablePlugin) -> Result<Asked, Fallback> {
        let invalid = std::mem::take(&mut self.invalid);
        let (Some((_, scorer)), Some(scores)) = (&plugin.score, &mut self.scores) else {
            return Ok(Asked::Some(SmallVec::new()));
        };
        scores.update(view, plugin, &**scorer, &self.state, &mut self.reads, &invalid)
    }

    /// The size in bytes of what any update may lengthen, but for reads.
    pub(super) fn row_bytes(&self) -> usize {
        self.reported.capacity() + self.scores.as_ref().map_or(0, |scores| scores.answers.bytes())
    }

    /// The approximate size in bytes.
    pub(super) fn bytes(&self) -> usize {
        let scores = self.scores.as_ref().map_or(0, Scores::bytes);
        self.reported.capacity() + scores + self.reads.bytes() + self.state_bytes + size_of::<Self>()
    }
}
