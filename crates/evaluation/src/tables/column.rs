//! The answers of one plugin about every node.

use std::collections::VecDeque;
use std::sync::Arc;

use smallvec::SmallVec;
use supercargo_framework::caching::{Applied, Scope};
use supercargo_framework::plugin::PreFilter;
use supercargo_framework::{CycleState, NodeIndex, NodeRecord, Status};

use super::answers::{Answers, PASSES, Scores, Statuses, UNASKED, Verdict, Verdicts, coarse_keys};
use super::fallback::Fallback;
use super::invalidation::{InvalidatedBy, Invalidation, Row, concerned};
use super::reads::Reads;
use super::rule::Rule;
use super::view::View;
use crate::changes::{CacheChange, Cursor};
use supercargo_runtime::profile::TablePlugin;

/// A row invalidated by a change elsewhere.
type Touched = (Cursor, NodeIndex);

/// The state and the answers of one plugin, for all pods that it cannot distinguish.
#[derive(Debug)]
pub(super) struct Column {
    pub(super) state: CycleState,
    /// Whether PreFilter skipped: then Filter does not run.
    pub(super) skips_filter: bool,
    pub(super) verdicts: Option<Verdicts>,
    pub(super) scores: Option<Scores>,
    reads: Reads,
    cursor: Cursor,
    labels_version: u64,
    /// Rises when all rows may have changed.
    pub(super) version: u64,
    touched: VecDeque<Touched>,
    /// Rows touched before this position are no longer known.
    touched_from: Cursor,
    /// The number of tables that use it.
    pub(super) users: usize,
    /// Whether nothing is cached because the plugin runs for each pod.
    is_blank: bool,
    /// Whether the last update failed halfway.
    is_broken: bool,
    /// The size of the state when it was prepared.
    state_bytes: usize,
}

/// The maximum number of touched rows kept.
const MAX_TOUCHED: usize = 1024;

impl Column {
    /// Calls the plugin for every node.
    pub(super) fn new(view: &mut View<'_>, plugin: &TablePlugin) -> Result<Self, Fallback> {
        let mut column = Self { is_blank: false, ..Self::blank(view) };
        column.build(view, plugin)?;
        Ok(column)
    }

    /// A column without answers.
    pub(super) fn blank(view: &View<'_>) -> Self {
        Self {
            state: CycleState::new(),
            skips_filter: false,
            verdicts: None,
            scores: None,
            reads: Reads::default(),
            cursor: view.log.end(),
            labels_version: view.labels_version,
            version: 0,
            touched: VecDeque::new(),
            touched_from: view.log.end(),
            users: 0,
            is_blank: true,
            is_broken: false,
            state_bytes: 0,
        }
    }

    /// Drops everything and calls the plugin again.
    fn rebuild(&mut self, view: &mut View<'_>, plugin: &TablePlugin) -> Result<(), Fallback> {
        self.state = CycleState::new();
        (self.verdicts, self.scores, self.reads) = (None, None, Reads::default());
        self.touched.clear();
        self.touched_from = view.log.end();
        self.version += 1;
        self.cursor = view.log.end();
        self.labels_version = view.labels_version;
        self.build(view, plugin)
    }

    fn build(&mut self, view: &mut View<'_>, plugin: &TablePlugin) -> Result<(), Fallback> {
        let before = view.gained.get();
        let built = self.ask_all(view, plugin);
        // Reasons are a part of it.
        view.gained.set(before + self.bytes());
        built
    }

    fn ask_all(&mut self, view: &mut View<'_>, plugin: &TablePlugin) -> Result<(), Fallback> {
        self.pre_filter(view, plugin)?;
        let scores = self.pre_score(view, plugin)?;
        self.reads.note_of_all(view)?;
        self.state_bytes = plugin.caching.state_bytes(&self.state);
        if plugin.filter.is_some() && !self.skips_filter {
            let scope = plugin.caching.filter_scope(&self.state, view.pod);
            let answers = match (&scope, coarse_keys(view, &scope)) {
                (Scope::Domain(_), Some(keys)) => Answers::PerDomain(keys),
                _ => Answers::PerNode(Vec::new()),
            };
            self.verdicts = Some(Verdicts { answers, scope, statuses: Statuses::default() });
            self.ask_filter_of_all(view, plugin)?;
        }
        if scores && plugin.score.is_some() {
            self.scores = Some(Scores::new(view, plugin, &self.state));
            self.ask_score_of_all(view, plugin)?;
        }
        Ok(())
    }

    fn pre_filter(&mut self, view: &View<'_>, plugin: &TablePlugin) -> Result<(), Fallback> {
        let Some(pre_filter) = &plugin.pre_filter else { return Ok(()) };
        view.calls.enter("PreFilter", plugin.name);
        self.skips_filter = match pre_filter.pre_filter(view.cx, &mut self.state, view.pod) {
            PreFilter::AllNodes => false,
            PreFilter::Skip => true,
            // The plain path is fast for few nodes.
            PreFilter::Nodes(_) | PreFilter::Reject(_) => return Err(Fallback::Cycle),
        };
        let is_shared = !plugin.sets_aside || self.skips_filter || plugin.caching.prepares_each(view.pod);
        if plugin.incremental.is_none() || !is_shared {
            return Err(Fallback::Signature);
        }
        Ok(())
    }

    /// Runs PreScore, unless it depends on the feasible nodes. Returns whether there are scores to
    /// cache here.
    fn pre_score(&mut self, view: &View<'_>, plugin: &TablePlugin) -> Result<bool, Fallback> {
        let Some(pre_score) = &plugin.pre_score else { return Ok(true) };
        if plugin.incremental.is_none() {
            return Err(Fallback::Signature);
        }
        if plugin.caching.pre_score_depends_on_nodes() {
            return Ok(false);
        }
        view.calls.enter("PreScore", plugin.name);
        let status = pre_score.pre_score(view.cx, &mut self.state, view.pod, &[]);
        if status.is_skip() {
            return Ok(false);
        }
        if status.is_success() { Ok(true) } else { Err(Fallback::Cycle) }
    }

    fn ask_filter_of_all(&mut self, view: &View<'_>, plugin: &TablePlugin) -> Result<(), Fallback> {
        let (Some((_, filter)), Some(verdicts)) = (&plugin.filter, &mut self.verdicts) else { return Ok(()) };
        let Answers::PerNode(rows) = &mut verdicts.answers else { return Ok(()) };
        let slots = view.nodes.columns().len();
        rows.clear();
        let mut passes = vec![true; slots];
        view.calls.enter("Filter", plugin.name);
        if plugin.caching.filter_columns(view.cx, &self.state, view.pod, view.nodes, &mut passes) {
            rows.extend(passes.iter().map(|passes| if *passes { PASSES } else { UNASKED }));
            return self.reads.note_of_all(view);
        }
        rows.resize(slots, PASSES);
        for (index, _) in view.nodes.iter() {
            let verdict =
                verdicts.statuses.ask(view, plugin, &self.state, &mut self.reads, &**filter, index)?;
            rows[index.0 as usize] = verdict;
        }
        Ok(())
    }

    fn ask_score_of_all(&mut self, view: &View<'_>, plugin: &TablePlugin) -> Result<(), Fallback> {
        match (&plugin.score, &mut self.scores) {
            (Some((_, score)), Some(scores)) => {
                scores.ask_of_all(view, plugin, &**score, &self.state, &mut self.reads)
            }
            _ => Ok(()),
        }
    }

    /// Applies the changes since the last call.
    pub(super) fn catch_up(&mut self, view: &mut View<'_>, plugin: &TablePlugin) -> Result<(), Fallback> {
        if self.is_blank || (self.cursor == view.log.end() && !self.is_broken) {
            return Ok(());
        }
        let was_broken = std::mem::replace(&mut self.is_broken, true);
        let rows = self.row_bytes();
        if was_broken { self.rebuild(view, plugin) } else { self.work_in(view, plugin) }?;
        view.gain(self.row_bytes().saturating_sub(rows));
        self.is_broken = false;
        Ok(())
    }

    fn work_in(&mut self, view: &mut View<'_>, plugin: &TablePlugin) -> Result<(), Fallback> {
        let slots = view.nodes.columns().len();
        let bearable = |lag: usize| lag <= 64.max(slots / 4);
        if !view.log.lag(self.cursor).is_some_and(bearable) && view.rules.follow(Rule::Behind) {
            return self.rebuild(view, plugin);
        }
        if self.labels_version != view.labels_version {
            self.labels_version = view.labels_version;
            if self.keys_have_changed(view) && view.rules.follow(Rule::Domain) {
                return self.rebuild(view, plugin);
            }
        }
        let mut invalid = Invalidation::default();
        for (at, change) in view.log.since(self.cursor) {
            if !self.take(view, plugin, at, change, &mut invalid) {
                return self.rebuild(view, plugin);
            }
        }
        if let Some(at) = invalid.objects
            && !self.take_objects(view, plugin, at, &mut invalid)?
        {
            return self.rebuild(view, plugin);
        }
        self.cursor = view.log.end();
        self.update(view, plugin, invalid)
    }

    /// Whether a key changed between few and many domains, or is new on nodes or gone from them.
    fn keys_have_changed(&self, view: &mut View<'_>) -> bool {
        let filter = self.verdicts.as_ref().is_some_and(|it| it.answers.are_outdated(view, &it.scope));
        filter || self.scores.as_ref().is_some_and(|it| it.answers.are_outdated(view, &it.scope))
    }

    /// Applies one change; `false` if the column must be rebuilt.
    fn take(
        &mut self,
        view: &mut View<'_>,
        plugin: &TablePlugin,
        at: Cursor,
        change: &CacheChange,
        invalid: &mut Invalidation,
    ) -> bool {
        if let CacheChange::Object { resource, key } = change {
            if self.reads.object_concerns_all(resource, key, view.rules) {
                return false;
            }
            if self.reads.object_concerns_node(resource)
                && let Some(index) = view.nodes.index_of(key)
                && view.rules.follow(Rule::ObjectOfNode)
            {
                invalid.rows.push(Row { index, cause: InvalidatedBy::Elsewhere });
                self.touch(at, index);
            }
            if self.reads.follows(resource) && view.rules.follow(Rule::Kind) {
                invalid.objects = Some(at);
            }
            return true;
        }
        let (old, new) = match change {
            CacheChange::NodeAdded { node, .. } => (None, Some(&**node)),
            CacheChange::NodeRemoved { node, .. } => (Some(&**node), None),
            CacheChange::NodeChanged { old, new, .. } => (Some(&**old), Some(&**new)),
            _ => (None, None),
        };
        if (old.is_some() || new.is_some()) && self.reads.node_concerns_all(old, new, view.rules) {
            return false;
        }
        if let Some(index) = change.index() {
            let cause = match change {
                CacheChange::NodeAdded { .. } => InvalidatedBy::NodeCame,
                CacheChange::NodeChanged { .. } => InvalidatedBy::NodeObject,
                _ => InvalidatedBy::Pods,
            };
            invalid.rows.push(Row { index, cause });
        }
        match apply(view, plugin, &mut self.state, change) {
            Applied::Here => true,
            Applied::Domain(keys) => {
                if view.rules.follow(Rule::StateOfDomain) {
                    self.touch_domains(view, &keys, at, change, invalid);
                }
                true
            }
            Applied::Everywhere => {
                invalid.all |= view.rules.follow(Rule::StateOfAll);
                true
            }
            Applied::Nodes(names) => {
                self.touch_nodes(view, &names, at, invalid);
                true
            }
            Applied::Rebuild => !view.rules.follow(Rule::Rebuild),
        }
    }

    /// Lets the plugin follow changes of objects, the latest of which has this position; `false` if
    /// the column must be rebuilt.
    fn take_objects(
        &mut self,
        view: &mut View<'_>,
        plugin: &TablePlugin,
        at: Cursor,
        invalid: &mut Invalidation,
    ) -> Result<bool, Fallback> {
        let Some(incremental) = &plugin.incremental else { return Ok(false) };
        view.calls.enter("Incremental", plugin.name);
        let applied = incremental.objects_changed(view.cx, &mut self.state, view.pod);
        self.reads.note_of_all(view)?;
        Ok(match applied {
            Applied::Here => true,
            Applied::Nodes(names) => {
                self.touch_nodes(view, &names, at, invalid);
                true
            }
            Applied::Everywhere => {
                invalid.all |= view.rules.follow(Rule::StateOfAll);
                true
            }
            Applied::Domain(_) | Applied::Rebuild => !view.rules.follow(Rule::Rebuild),
        })
    }

    fn touch_nodes(&mut self, view: &View<'_>, names: &[Arc<str>], at: Cursor, invalid: &mut Invalidation) {
        for index in names.iter().filter_map(|name| view.nodes.index_of(name)) {
            invalid.rows.push(Row { index, cause: InvalidatedBy::Elsewhere });
            self.touch(at, index);
        }
    }

    fn touch_domains(
        &mut self,
        view: &mut View<'_>,
        keys: &SmallVec<[Arc<str>; 2]>,
        at: Cursor,
        change: &CacheChange,
        invalid: &mut Invalidation,
    ) {
        let keys: SmallVec<[_; 2]> = keys.iter().filter(|key| self.rows_follow(key)).collect();
        for node in nodes_of(change) {
            for key in &keys {
                let Some(value) = node.labels.get(key) else { continue };
                for index in view.topology.domain(view.nodes, key, value) {
                    invalid.rows.push(Row { index: *index, cause: InvalidatedBy::Elsewhere });
                    self.touch(at, *index);
                }
            }
        }
    }

    /// Whether answers are cached by node.
    fn keeps_rows(&self) -> bool {
        self.verdicts.as_ref().is_some_and(|it| it.answers.are_by_node())
            || self.scores.as_ref().is_some_and(|it| it.answers.are_by_node())
    }

    /// Whether a node's cached answers may change with something else in its domain of this label.
    fn rows_follow(&self, key: &Arc<str>) -> bool {
        self.verdicts.as_ref().is_some_and(|it| it.answers.follow(key))
            || self.scores.as_ref().is_some_and(|it| it.answers.follow(key))
    }

    fn touch(&mut self, at: Cursor, index: NodeIndex) {
        if self.touched.len() == MAX_TOUCHED
            && let Some((forgotten, _)) = self.touched.pop_front()
        {
            self.touched_from = self.touched_from.max(forgotten.next());
        }
        self.touched.push_back((at, index));
    }

    /// The rows invalidated since by changes elsewhere; `None` if not all are known.
    pub(super) fn touched_since(&self, cursor: Cursor) -> Option<impl Iterator<Item = NodeIndex>> {
        let since = self.touched.iter().rev().take_while(move |(at, _)| *at >= cursor);
        (cursor >= self.touched_from || self.touched.is_empty()).then(|| since.map(|(_, index)| *index))
    }

    fn update(
        &mut self,
        view: &mut View<'_>,
        plugin: &TablePlugin,
        invalid: Invalidation,
    ) -> Result<(), Fallback> {
        if invalid.all && self.keeps_rows() {
            self.version += 1;
            self.touched.clear();
            self.touched_from = view.log.end();
            self.ask_filter_of_all(view, plugin)?;
            return self.ask_score_of_all(view, plugin);
        }
        let slots = view.nodes.columns().len();
        if let (Some((_, filter)), Some(verdicts)) = (&plugin.filter, &mut self.verdicts)
            && let Answers::PerNode(rows) = &mut verdicts.answers
        {
            rows.resize(slots, PASSES);
            for index in concerned(&invalid, &verdicts.scope, view) {
                let verdict =
                    verdicts.statuses.ask(view, plugin, &self.state, &mut self.reads, &**filter, index)?;
                rows[index.0 as usize] = verdict;
            }
        }
        if let (Some((_, score)), Some(scores)) = (&plugin.score, &mut self.scores) {
            scores.update(view, plugin, &**score, &self.state, &mut self.reads, &invalid)?;
        }
        Ok(())
    }

    /// The verdict on a node, with the reason of a rejection.
    pub(super) fn verdict(
        &mut self,
        view: &View<'_>,
        plugin: &TablePlugin,
        index: NodeIndex,
    ) -> Result<Verdict, Fallback> {
        let (Some((_, filter)), Some(verdicts)) = (&plugin.filter, &mut self.verdicts) else {
            return Ok(PASSES);
        };
        let Answers::PerNode(rows) = &mut verdicts.answers else { return Ok(PASSES) };
        let row = &mut rows[index.0 as usize];
        if *row == UNASKED {
            *row = verdicts.statuses.ask(view, plugin, &self.state, &mut self.reads, &**filter, index)?;
        }
        Ok(*row)
    }

    /// The status of a verdict.
    pub(super) fn status(&self, verdict: Verdict) -> Option<&Status> {
        self.verdicts.as_ref().map(|verdicts| verdicts.statuses.get(verdict))
    }

    /// The size in bytes of what any update may lengthen, but for reasons and reads.
    fn row_bytes(&self) -> usize {
        let verdicts = self.verdicts.as_ref().map_or(0, |verdicts| verdicts.answers.bytes());
        let scores = self.scores.as_ref().map_or(0, |scores| scores.answers.bytes());
        verdicts + scores + self.touched.capacity() * size_of::<Touched>()
    }

    /// The approximate size in bytes.
    pub(super) fn bytes(&self) -> usize {
        let verdicts = self.verdicts.as_ref().map_or(0, Verdicts::bytes);
        let scores = self.scores.as_ref().map_or(0, Scores::bytes);
        let touched = self.touched.capacity() * size_of::<Touched>();
        verdicts + scores + touched + self.reads.bytes() + self.state_bytes + size_of::<Self>()
    }
}

/// The node objects of a change.
pub(super) fn nodes_of(change: &CacheChange) -> SmallVec<[&NodeRecord; 2]> {
    match change {
        CacheChange::PodAdded { node, .. }
        | CacheChange::PodRemoved { node, .. }
        | CacheChange::NodeAdded { node, .. }
        | CacheChange::NodeRemoved { node, .. } => SmallVec::from_slice(&[&**node]),
        CacheChange::NodeChanged { old, new, .. } => SmallVec::from_slice(&[&**old, &**new]),
        CacheChange::Object { .. } => SmallVec::new(),
    }
}

/// Applies a change to a plugin's state.
pub(super) fn apply(
    view: &mut View<'_>,
    plugin: &TablePlugin,
    state: &mut CycleState,
    change: &CacheChange,
) -> Applied {
    let Some(incremental) = plugin.incremental.as_ref().filter(|_| plugin.prepares()) else {
        return Applied::Here;
    };
    if !view.rules.follow(Rule::State) {
        return Applied::Here;
    }
    view.calls.enter("Incremental", plugin.name);
    match change {
        CacheChange::PodAdded { node, pod, .. } => incremental.pod_added(state, view.pod, pod, node),
        CacheChange::PodRemoved { node, pod, .. } => incremental.pod_removed(state, view.pod, pod, node),
        CacheChange::NodeAdded { node, .. } => incremental.node_added(state, view.pod, node),
        CacheChange::NodeRemoved { node, .. } => incremental.node_removed(state, view.pod, node),
        CacheChange::NodeChanged { old, new, .. } => incremental.node_changed(state, view.pod, old, new),
        CacheChange::Object { .. } => Applied::Here,
    }
}
