//! One plugin's answers about every node.

use std::collections::VecDeque;
use std::sync::Arc;

use smallvec::SmallVec;
use supercargo_framework::caching::{Applied, Scope};
use supercargo_framework::plugin::PreFilter;
use supercargo_framework::{CycleState, NodeIndex, NodeRecord, Status};

use super::Refusal;
use super::again::{Again, Because, Row, concerned};
use super::answers::{Answers, PASSES, Scores, Statuses, UNASKED, Verdict, Verdicts, View, coarse_keys};
use super::reads::Reads;
use super::rule::Rule;
use crate::changes::{Change, Cursor};
use crate::profile::Judge;

/// A row that is another because of a change elsewhere.
type Touched = (Cursor, NodeIndex);

/// One plugin's state and answers, for all pods that it cannot tell apart.
#[derive(Debug)]
pub(super) struct Column {
    pub(super) state: CycleState,
    /// Whether PreFilter has skipped: then Filter is not asked.
    pub(super) skips_filter: bool,
    pub(super) verdicts: Option<Verdicts>,
    pub(super) scores: Option<Scores>,
    reads: Reads,
    cursor: Cursor,
    labels_version: u64,
    /// Rises when any row may be another.
    pub(super) version: u64,
    touched: VecDeque<Touched>,
    /// Rows touched before this are forgotten.
    touched_from: Cursor,
    /// How many tables it is part of.
    pub(super) users: usize,
    /// Whether nothing is kept here, because the plugin is asked about each pod alone.
    is_blank: bool,
    /// Whether the last attempt to work something in has failed half way.
    is_broken: bool,
}

/// So many touched rows are remembered.
const MOST_TOUCHED: usize = 1024;

impl Column {
    /// Asks the plugin about every node.
    pub(super) fn new(view: &mut View<'_>, judge: &Judge) -> Result<Self, Refusal> {
        let mut column = Self { is_blank: false, ..Self::blank(view) };
        column.build(view, judge)?;
        Ok(column)
    }

    /// Without any answers.
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
        }
    }

    /// Forgets everything and asks again.
    fn rebuild(&mut self, view: &mut View<'_>, judge: &Judge) -> Result<(), Refusal> {
        self.state = CycleState::new();
        (self.verdicts, self.scores, self.reads) = (None, None, Reads::default());
        self.touched.clear();
        self.touched_from = view.log.end();
        self.version += 1;
        self.cursor = view.log.end();
        self.labels_version = view.labels_version;
        self.build(view, judge)
    }

    fn build(&mut self, view: &mut View<'_>, judge: &Judge) -> Result<(), Refusal> {
        self.pre_filter(view, judge)?;
        let scores = self.pre_score(view, judge)?;
        self.reads.note_of_all(view.cx.take_reads())?;
        if judge.filter.is_some() && !self.skips_filter {
            let scope = judge.caching.filter_scope(&self.state, view.pod);
            let answers = match (&scope, coarse_keys(view, &scope)) {
                (Scope::Domain(_), Some(keys)) => Answers::PerDomain(keys),
                _ => Answers::PerNode(Vec::new()),
            };
            self.verdicts = Some(Verdicts { answers, scope, statuses: Statuses::default() });
            self.ask_filter_of_all(view, judge)?;
        }
        if let Some((_, plugin)) = judge.score.as_ref().filter(|_| scores) {
            self.scores = Some(Scores::new(view, judge, &**plugin, &self.state));
            self.ask_score_of_all(view, judge)?;
        }
        Ok(())
    }

    fn pre_filter(&mut self, view: &View<'_>, judge: &Judge) -> Result<(), Refusal> {
        let Some(plugin) = &judge.pre_filter else { return Ok(()) };
        view.running.set("PreFilter", judge.name);
        self.skips_filter = match plugin.pre_filter(view.cx, &mut self.state, view.pod) {
            PreFilter::AllNodes => false,
            PreFilter::Skip => true,
            // Few nodes are looked at, and quickly.
            PreFilter::Nodes(_) | PreFilter::Reject(_) => return Err(Refusal::Passing),
        };
        if judge.incremental.is_none() || (judge.sets_aside && !self.skips_filter) {
            return Err(Refusal::Lasting);
        }
        Ok(())
    }

    /// Runs PreScore, unless it depends on the feasible nodes; whether there are scores to be kept here.
    fn pre_score(&mut self, view: &View<'_>, judge: &Judge) -> Result<bool, Refusal> {
        let Some(plugin) = &judge.pre_score else { return Ok(true) };
        if judge.incremental.is_none() {
            return Err(Refusal::Lasting);
        }
        if judge.caching.pre_score_depends_on_nodes() {
            return Ok(false);
        }
        view.running.set("PreScore", judge.name);
        let status = plugin.pre_score(view.cx, &mut self.state, view.pod, &[]);
        if status.is_skip() {
            return Ok(false);
        }
        if status.is_success() { Ok(true) } else { Err(Refusal::Passing) }
    }

    fn ask_filter_of_all(&mut self, view: &View<'_>, judge: &Judge) -> Result<(), Refusal> {
        let (Some((_, plugin)), Some(verdicts)) = (&judge.filter, &mut self.verdicts) else { return Ok(()) };
        let Answers::PerNode(rows) = &mut verdicts.answers else { return Ok(()) };
        let slots = view.nodes.columns().len();
        rows.clear();
        let mut passes = vec![true; slots];
        view.running.set("Filter", judge.name);
        if judge.caching.filter_columns(view.cx, &self.state, view.pod, view.nodes, &mut passes) {
            rows.extend(passes.iter().map(|passes| if *passes { PASSES } else { UNASKED }));
            return self.reads.note_of_all(view.cx.take_reads());
        }
        rows.resize(slots, PASSES);
        for (index, _) in view.nodes.iter() {
            let verdict =
                verdicts.statuses.ask(view, judge, &self.state, &mut self.reads, &**plugin, index)?;
            rows[index.0 as usize] = verdict;
        }
        Ok(())
    }

    fn ask_score_of_all(&mut self, view: &View<'_>, judge: &Judge) -> Result<(), Refusal> {
        match (&judge.score, &mut self.scores) {
            (Some((_, plugin)), Some(scores)) => {
                scores.ask_of_all(view, judge, &**plugin, &self.state, &mut self.reads)
            }
            _ => Ok(()),
        }
    }

    /// Works in what has changed.
    pub(super) fn catch_up(&mut self, view: &mut View<'_>, judge: &Judge) -> Result<(), Refusal> {
        if self.is_blank || (self.cursor == view.log.end() && !self.is_broken) {
            return Ok(());
        }
        let was_broken = std::mem::replace(&mut self.is_broken, true);
        if was_broken { self.rebuild(view, judge) } else { self.work_in(view, judge) }?;
        self.is_broken = false;
        Ok(())
    }

    fn work_in(&mut self, view: &mut View<'_>, judge: &Judge) -> Result<(), Refusal> {
        let slots = view.nodes.columns().len();
        let bearable = |lag: usize| lag <= 64.max(slots / 4);
        if !view.log.lag(self.cursor).is_some_and(bearable) && view.rules.follow(Rule::Behind) {
            return self.rebuild(view, judge);
        }
        if self.labels_version != view.labels_version {
            self.labels_version = view.labels_version;
            if self.has_other_keys(view) && view.rules.follow(Rule::Domain) {
                return self.rebuild(view, judge);
            }
        }
        let mut again = Again::default();
        for (at, change) in view.log.since(self.cursor) {
            if !self.take(view, judge, at, change, &mut again) {
                return self.rebuild(view, judge);
            }
        }
        self.cursor = view.log.end();
        self.ask_again(view, judge, again)
    }

    /// Whether a key that had few domains has many now, or the other way round.
    fn has_other_keys(&self, view: &mut View<'_>) -> bool {
        let mut differs = |scope: &Scope, is_by_node: bool| coarse_keys(view, scope).is_some() == is_by_node;
        let filter = self.verdicts.as_ref().is_some_and(|it| differs(&it.scope, it.answers.are_by_node()));
        filter || self.scores.as_ref().is_some_and(|it| differs(&it.scope, it.answers.are_by_node()))
    }

    /// Takes one change; `false` when everything must be made anew.
    fn take(
        &mut self,
        view: &mut View<'_>,
        judge: &Judge,
        at: Cursor,
        change: &Change,
        again: &mut Again,
    ) -> bool {
        if let Change::Object { resource, key } = change {
            if self.reads.object_concerns_all(resource, key, view.rules) {
                return false;
            }
            if self.reads.object_concerns_node(resource)
                && let Some(index) = view.nodes.index_of(key)
                && view.rules.follow(Rule::ObjectOfNode)
            {
                again.rows.push(Row { index, because: Because::Elsewhere });
                self.touch(at, index);
            }
            return true;
        }
        let (old, new) = match change {
            Change::NodeAdded { node, .. } => (None, Some(&**node)),
            Change::NodeRemoved { node, .. } => (Some(&**node), None),
            Change::NodeChanged { old, new, .. } => (Some(&**old), Some(&**new)),
            _ => (None, None),
        };
        if (old.is_some() || new.is_some()) && self.reads.node_concerns_all(old, new, view.rules) {
            return false;
        }
        if let Some(index) = change.index() {
            let because = match change {
                Change::NodeAdded { .. } => Because::NodeCame,
                Change::NodeChanged { .. } => Because::NodeObject,
                _ => Because::Pods,
            };
            again.rows.push(Row { index, because });
        }
        match apply(view, judge, &mut self.state, change) {
            Applied::Here => true,
            Applied::Domain(keys) => {
                if view.rules.follow(Rule::StateOfDomain) {
                    self.touch_domains(view, &keys, at, change, again);
                }
                true
            }
            Applied::Everywhere => {
                again.all |= view.rules.follow(Rule::StateOfAll);
                true
            }
            Applied::Rebuild => !view.rules.follow(Rule::Rebuild),
        }
    }

    fn touch_domains(
        &mut self,
        view: &mut View<'_>,
        keys: &SmallVec<[Arc<str>; 2]>,
        at: Cursor,
        change: &Change,
        again: &mut Again,
    ) {
        let keys: SmallVec<[_; 2]> = keys.iter().filter(|key| self.rows_follow(key)).collect();
        for node in nodes_of(change) {
            for key in &keys {
                let Some(value) = node.labels.get(key) else { continue };
                for index in view.topology.domain(view.nodes, key, value) {
                    again.rows.push(Row { index: *index, because: Because::Elsewhere });
                    self.touch(at, *index);
                }
            }
        }
    }

    /// Whether there are answers by node.
    fn keeps_rows(&self) -> bool {
        self.verdicts.as_ref().is_some_and(|it| it.answers.are_by_node())
            || self.scores.as_ref().is_some_and(|it| it.answers.are_by_node())
    }

    /// Whether what is kept of a node may be another when something changes elsewhere in its domain of this label.
    fn rows_follow(&self, key: &Arc<str>) -> bool {
        self.verdicts.as_ref().is_some_and(|it| it.answers.follow(key))
            || self.scores.as_ref().is_some_and(|it| it.answers.follow(key))
    }

    fn touch(&mut self, at: Cursor, index: NodeIndex) {
        if self.touched.len() == MOST_TOUCHED
            && let Some((forgotten, _)) = self.touched.pop_front()
        {
            self.touched_from = self.touched_from.max(forgotten.next());
        }
        self.touched.push_back((at, index));
    }

    /// The rows that have become others since because of changes elsewhere; `None` when not all are known.
    pub(super) fn touched_since(&self, cursor: Cursor) -> Option<impl Iterator<Item = NodeIndex>> {
        let since = self.touched.iter().rev().take_while(move |(at, _)| *at >= cursor);
        (cursor >= self.touched_from || self.touched.is_empty()).then(|| since.map(|(_, index)| *index))
    }

    fn ask_again(&mut self, view: &mut View<'_>, judge: &Judge, again: Again) -> Result<(), Refusal> {
        if again.all && self.keeps_rows() {
            self.version += 1;
            self.touched.clear();
            self.touched_from = view.log.end();
            self.ask_filter_of_all(view, judge)?;
            return self.ask_score_of_all(view, judge);
        }
        let slots = view.nodes.columns().len();
        if let (Some((_, plugin)), Some(verdicts)) = (&judge.filter, &mut self.verdicts)
            && let Answers::PerNode(rows) = &mut verdicts.answers
        {
            rows.resize(slots, PASSES);
            for index in concerned(&again, &verdicts.scope, view) {
                let verdict =
                    verdicts.statuses.ask(view, judge, &self.state, &mut self.reads, &**plugin, index)?;
                rows[index.0 as usize] = verdict;
            }
        }
        if let (Some((_, plugin)), Some(scores)) = (&judge.score, &mut self.scores) {
            scores.ask_again(view, judge, &**plugin, &self.state, &mut self.reads, &again)?;
        }
        Ok(())
    }

    /// The verdict on a node, with the reason asked for where it does not pass.
    pub(super) fn verdict(
        &mut self,
        view: &View<'_>,
        judge: &Judge,
        index: NodeIndex,
    ) -> Result<Verdict, Refusal> {
        let (Some((_, plugin)), Some(verdicts)) = (&judge.filter, &mut self.verdicts) else {
            return Ok(PASSES);
        };
        let Answers::PerNode(rows) = &mut verdicts.answers else { return Ok(PASSES) };
        let row = &mut rows[index.0 as usize];
        if *row == UNASKED {
            *row = verdicts.statuses.ask(view, judge, &self.state, &mut self.reads, &**plugin, index)?;
        }
        Ok(*row)
    }

    /// The status of a verdict.
    pub(super) fn status(&self, verdict: Verdict) -> Option<&Status> {
        self.verdicts.as_ref().map(|verdicts| verdicts.statuses.get(verdict))
    }

    /// How many bytes it takes, roughly.
    pub(super) fn bytes(&self) -> usize {
        let verdicts = self.verdicts.as_ref().map_or(0, |verdicts| verdicts.answers.bytes());
        let scores = self.scores.as_ref().map_or(0, |scores| scores.answers.bytes());
        verdicts + scores + self.touched.capacity() * size_of::<Touched>() + size_of::<Self>()
    }
}

/// The node objects that a change is about.
pub(super) fn nodes_of(change: &Change) -> SmallVec<[&NodeRecord; 2]> {
    match change {
        Change::PodAdded { node, .. }
        | Change::PodRemoved { node, .. }
        | Change::NodeAdded { node, .. }
        | Change::NodeRemoved { node, .. } => SmallVec::from_slice(&[&**node]),
        Change::NodeChanged { old, new, .. } => SmallVec::from_slice(&[&**old, &**new]),
        Change::Object { .. } => SmallVec::new(),
    }
}

/// Works a change into a plugin's state.
pub(super) fn apply(view: &mut View<'_>, judge: &Judge, state: &mut CycleState, change: &Change) -> Applied {
    let Some(plugin) = judge.incremental.as_ref().filter(|_| judge.prepares()) else { return Applied::Here };
    if !view.rules.follow(Rule::State) {
        return Applied::Here;
    }
    view.running.set("Incremental", judge.name);
    match change {
        Change::PodAdded { node, pod, .. } => plugin.pod_added(state, view.pod, pod, node),
        Change::PodRemoved { node, pod, .. } => plugin.pod_removed(state, view.pod, pod, node),
        Change::NodeAdded { node, .. } => plugin.node_added(state, view.pod, node),
        Change::NodeRemoved { node, .. } => plugin.node_removed(state, view.pod, node),
        Change::NodeChanged { old, new, .. } => plugin.node_changed(state, view.pod, old, new),
        Change::Object { .. } => Applied::Here,
    }
}
