//! Scores that depend on which nodes are feasible.

use smallvec::SmallVec;
use supercargo_framework::caching::Applied;
use supercargo_framework::{CycleState, NodeIndex};

use super::Refusal;
use super::again::{Again, Because, Row};
use super::answers::{Asked, Scores, View};
use super::column::apply;
use super::reads::Reads;
use super::rule::Rule;
use crate::changes::{Change, Cursor};
use crate::profile::Judge;

/// A plugin whose PreScore depends on the feasible nodes: its state and its scores belong to one table.
#[derive(Debug)]
pub(super) struct Own {
    pub(super) judge: usize,
    state: CycleState,
    /// `None` when PreScore has skipped.
    pub(super) scores: Option<Scores>,
    reads: Reads,
    /// By node, whether the plugin takes it to be feasible.
    told: Vec<bool>,
    again: Again,
    /// Whether the plugin skips, whatever nodes are feasible, and so is told of none.
    skips: bool,
    is_stale: bool,
}

impl Own {
    /// To be prepared.
    pub(super) fn new(judge: usize) -> Self {
        Self {
            judge,
            state: CycleState::new(),
            scores: None,
            reads: Reads::default(),
            told: Vec::new(),
            again: Again::default(),
            skips: false,
            is_stale: true,
        }
    }

    pub(super) fn state(&self) -> &CycleState {
        &self.state
    }

    /// Takes the changes since.
    pub(super) fn take(&mut self, view: &mut View<'_>, judge: &Judge, cursor: Cursor) {
        let log = view.log;
        for (_, change) in log.since(cursor) {
            if !self.is_stale && !self.take_one(view, judge, change) {
                self.is_stale = true;
            }
        }
    }

    fn take_one(&mut self, view: &mut View<'_>, judge: &Judge, change: &Change) -> bool {
        let was_feasible = |index: NodeIndex| self.told.get(index.0 as usize).copied().unwrap_or(false);
        let (index, because, old, new) = match change {
            Change::Object { resource, key } => {
                // An object of one node is none of PreScore's business, but of Score's.
                return !self.reads.object_concerns_all(resource, key, view.rules)
                    && !self.reads.object_concerns_node(resource);
            }
            // What it knows of the node it cannot be told to forget.
            Change::NodeRemoved { index, .. } if was_feasible(*index) => return false,
            Change::NodeChanged { index, old, new } if was_feasible(*index) && old.labels != new.labels => {
                return false;
            }
            Change::NodeRemoved { index, node } => (*index, Because::NodeObject, Some(&**node), None),
            Change::NodeAdded { index, node } => (*index, Because::NodeCame, None, Some(&**node)),
            Change::NodeChanged { index, old, new } => {
                (*index, Because::NodeObject, Some(&**old), Some(&**new))
            }
            Change::PodAdded { index, .. } | Change::PodRemoved { index, .. } => {
                (*index, Because::Pods, None, None)
            }
        };
        if because != Because::Pods && self.reads.node_concerns_all(old, new, view.rules) {
            return false;
        }
        self.again.rows.push(Row { index, because });
        let applied = apply(view, judge, &mut self.state, change);
        let nodes = super::column::nodes_of(change);
        self.follow(view, applied, &nodes.iter().map(|node| &node.labels).collect::<SmallVec<[_; 2]>>())
    }

    /// What a change means for the scores; `false` when everything must be made anew.
    fn follow(
        &mut self,
        view: &mut View<'_>,
        applied: Applied,
        labels: &[&supercargo_framework::Labels],
    ) -> bool {
        match applied {
            Applied::Here => true,
            Applied::Everywhere => {
                self.again.all |= view.rules.follow(Rule::StateOfAll);
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
                            nodes.iter().map(|index| Row { index: *index, because: Because::Elsewhere });
                        self.again.rows.extend(rows);
                    }
                }
                true
            }
            Applied::Rebuild => !view.rules.follow(Rule::Rebuild),
        }
    }

    /// Tells the plugin which of these nodes have become feasible or stopped being so, and asks what must be asked again.
    /// `filter_state` is what PreFilter made. Answers about which nodes it has asked.
    pub(super) fn settle(
        &mut self,
        view: &mut View<'_>,
        judge: &Judge,
        filter_state: &CycleState,
        feasible: impl Fn(NodeIndex) -> bool,
        candidates: impl Iterator<Item = NodeIndex>,
    ) -> Result<Asked, Refusal> {
        if !self.is_stale && !self.skips {
            for index in candidates {
                self.tell(view, judge, index, feasible(index));
            }
        }
        if self.is_stale {
            self.prepare(view, judge, filter_state, feasible)?;
            return Ok(Asked::All);
        }
        self.ask_again(view, judge)
    }

    fn tell(&mut self, view: &mut View<'_>, judge: &Judge, index: NodeIndex, feasible: bool) {
        let slot = index.0 as usize;
        if self.told.len() <= slot {
            self.told.resize(slot + 1, false);
        }
        if self.told[slot] == feasible || !view.nodes.has(index) || !view.rules.follow(Rule::Feasible) {
            return;
        }
        self.told[slot] = feasible;
        let Some(plugin) = judge.incremental.as_ref() else {
            self.is_stale = true;
            return;
        };
        let node = view.nodes.at(index);
        view.running.set("Incremental", judge.name);
        let applied = plugin.feasible_changed(&mut self.state, view.pod, node, feasible);
        if feasible {
            self.again.rows.push(Row { index, because: Because::Elsewhere });
        }
        if !self.follow(view, applied, &[&node.node().labels]) {
            self.is_stale = true;
        }
    }

    /// Runs PreScore and asks for all scores.
    fn prepare(
        &mut self,
        view: &mut View<'_>,
        judge: &Judge,
        filter_state: &CycleState,
        feasible: impl Fn(NodeIndex) -> bool,
    ) -> Result<(), Refusal> {
        let Some(plugin) = &judge.pre_score else { return Ok(()) };
        (self.again, self.scores, self.reads) = (Again::default(), None, Reads::default());
        self.state = filter_state.clone();
        self.told.clear();
        view.running.set("PreScore", judge.name);
        self.skips = judge.caching.pre_score_skips(view.cx, view.pod);
        if self.skips {
            self.reads.note_of_all(view.cx.take_reads())?;
            self.is_stale = false;
            return Ok(());
        }
        let nodes: Vec<NodeIndex> =
            view.nodes.order().iter().copied().filter(|index| feasible(*index)).collect();
        self.told.resize(view.nodes.columns().len(), false);
        for index in &nodes {
            self.told[index.0 as usize] = true;
        }
        let status = plugin.pre_score(view.cx, &mut self.state, view.pod, &nodes);
        self.reads.note_of_all(view.cx.take_reads())?;
        if !status.is_success() && !status.is_skip() {
            return Err(Refusal::Passing);
        }
        if let Some((_, scorer)) = judge.score.as_ref().filter(|_| status.is_success()) {
            let mut scores = Scores::new(view, judge, &**scorer, &self.state);
            scores.ask_of_all(view, judge, &**scorer, &self.state, &mut self.reads)?;
            self.scores = Some(scores);
        }
        self.is_stale = false;
        Ok(())
    }

    fn ask_again(&mut self, view: &mut View<'_>, judge: &Judge) -> Result<Asked, Refusal> {
        let again = std::mem::take(&mut self.again);
        let (Some((_, scorer)), Some(scores)) = (&judge.score, &mut self.scores) else {
            return Ok(Asked::Some(SmallVec::new()));
        };
        scores.ask_again(view, judge, &**scorer, &self.state, &mut self.reads, &again)
    }

    /// How many bytes it takes, roughly.
    pub(super) fn bytes(&self) -> usize {
        self.told.capacity() + self.scores.as_ref().map_or(0, Scores::bytes) + size_of::<Self>()
    }
}
