//! A cluster with its history of changes, and the tables that follow it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use super::table::{Dirty, Part, Rows, Table, TableChange, is_untracked};
use super::{Mismatch, NODES, Step, check_columns, holds, same};
use crate::caching::{Applied, NOT_SCORED, Scope};
use crate::context::Context;
use crate::cycle_state::CycleState;
use crate::node::NodeRecord;
use crate::node_index::NodeIndex;
use crate::node_info::NodeInfo;
use crate::nodes::Nodes;
use crate::objects::Objects;
use crate::plugin::{ExtensionPoints, PreFilter};
use crate::pod::{PodInfo, Uid};
use crate::signature::{Signature, Signer};
use crate::status::{Code, Status};
use crate::testing::Driver;

pub(super) struct History {
    driver: Driver,
    nodes: Nodes,
    objects: Objects,
    blocked: BTreeSet<Arc<str>>,
    changes: Vec<TableChange>,
    tables: Vec<(Signature, Table)>,
    /// How often a table was used again without a rebuild.
    reused: usize,
    uids: usize,
}

impl History {
    pub(super) fn new(points: &ExtensionPoints) -> Self {
        Self {
            driver: Driver { points: points.clone() },
            nodes: Nodes::default(),
            objects: Objects::default(),
            blocked: BTreeSet::new(),
            changes: Vec::new(),
            tables: Vec::new(),
            reused: 0,
            uids: 0,
        }
    }

    pub(super) fn reused(&self) -> usize {
        self.reused
    }

    fn reorder(&mut self) {
        self.nodes.set_order(self.indices().into_values().collect());
    }

    /// All nodes by name.
    fn indices(&self) -> BTreeMap<Arc<str>, NodeIndex> {
        let names = (0..NODES).map(|i| format!("n{i}"));
        let known = names.filter_map(|name| self.nodes.index_of(&name));
        known.map(|index| (Arc::clone(self.nodes.at(index).name()), index)).collect()
    }

    fn pick(&self, i: usize) -> Option<NodeIndex> {
        let indices: Vec<_> = self.indices().into_values().collect();
        Some(indices[i.checked_rem(indices.len())?])
    }

    fn record(&self, index: NodeIndex) -> Arc<NodeRecord> {
        Arc::clone(self.nodes.at(index).node())
    }

    fn add_pod(&mut self, index: NodeIndex, mut pod: PodInfo, uid: Option<Uid>) {
        self.uids += 1;
        pod.uid = uid.unwrap_or_else(|| (&*format!("uid-{}", self.uids)).into());
        let pod = Arc::new(pod);
        self.nodes.update(index, |info| info.add_pod(Arc::clone(&pod)));
        self.changes.push(TableChange::Pod { node: self.record(index), pod, added: true });
    }

    fn remove_pod(&mut self, index: NodeIndex, i: usize) -> Option<Arc<PodInfo>> {
        let pods = self.nodes.at(index).pods();
        let uid = pods[i.checked_rem(pods.len())?].uid.clone();
        let pod = self.nodes.update(index, |info| info.remove_pod(&uid))??;
        self.changes.push(TableChange::Pod { node: self.record(index), pod: Arc::clone(&pod), added: false });
        Some(pod)
    }

    fn replace_pod(&mut self, index: NodeIndex, i: usize, change: impl FnOnce(PodInfo) -> PodInfo) {
        if let Some(old) = self.remove_pod(index, i) {
            let uid = old.uid.clone();
            self.add_pod(index, change((*old).clone()), Some(uid));
        }
    }

    /// Applies any step but [`Step::Schedule`].
    pub(super) fn take(&mut self, step: Step) {
        match step {
            Step::AddPod(node, pod) => {
                if let Some(index) = self.pick(node) {
                    self.add_pod(index, pod, None);
                }
            }
            Step::RemovePod(node, i) => {
                if let Some(index) = self.pick(node) {
                    self.remove_pod(index, i);
                }
            }
            Step::UpdatePod(node, i, new) => {
                if let Some(index) = self.pick(node) {
                    self.replace_pod(index, i, |_| new);
                }
            }
            Step::TerminatePod(node, i) => {
                if let Some(index) = self.pick(node) {
                    self.replace_pod(index, i, |old| PodInfo { terminating: true, ..old });
                }
            }
            Step::SetNode(info) => self.set_node(info),
            Step::RemoveNode(node) => {
                if let Some(index) = self.pick(node) {
                    while self.remove_pod(index, 0).is_some() {}
                    let record = self.record(index);
                    self.nodes.remove(index);
                    self.reorder();
                    self.changes.push(TableChange::NodeRemoved(record));
                }
            }
            Step::ToggleFeasible(node) => {
                if let Some(index) = self.pick(node) {
                    let name = Arc::clone(self.nodes.at(index).name());
                    if !self.blocked.remove(&name) {
                        self.blocked.insert(name);
                    }
                }
            }
            Step::SetObject(object) => {
                self.changes.push(TableChange::Object(object.resource.clone(), Arc::clone(&object.key)));
                self.objects.insert(Arc::new(object));
            }
            Step::ClearObjects => {
                self.objects = Objects::default();
                self.changes.push(TableChange::Objects);
            }
            Step::Schedule(_) => {}
        }
    }

    fn set_node(&mut self, info: NodeInfo) {
        if let Some(index) = self.nodes.index_of(info.name()) {
            let old = self.record(index);
            self.nodes.set_node(index, Arc::clone(info.node()));
            self.changes.push(TableChange::NodeChanged(old, Arc::clone(info.node())));
            return;
        }
        let index = self.nodes.insert(NodeInfo::new(Arc::clone(info.node())));
        self.reorder();
        self.changes.push(TableChange::NodeAdded(Arc::clone(info.node())));
        for pod in info.pods() {
            self.add_pod(index, (**pod).clone(), None);
        }
    }

    fn feasible(&self) -> Vec<NodeIndex> {
        let open = self.nodes.iter().filter(|(_, info)| !self.blocked.contains(info.name()));
        open.map(|(index, _)| index).collect()
    }

    fn names(&self, indices: &[NodeIndex]) -> BTreeSet<Arc<str>> {
        indices.iter().map(|index| Arc::clone(self.nodes.at(*index).name())).collect()
    }

    fn cx(&self) -> Context<'_> {
        Context::at_rest(&self.nodes, &self.objects).tracking()
    }

    /// A table with the state that PreFilter and PreScore prepare now.
    fn fresh(&self, pod: &PodInfo) -> Result<Table, Mismatch> {
        let (cx, mut state, caching) = (self.cx(), CycleState::new(), self.driver.caching());
        let points = &self.driver.points;
        let filter = match points.pre_filter.as_ref().map(|plugin| plugin.pre_filter(&cx, &mut state, pod)) {
            Some(PreFilter::Skip) => Part::Skipped,
            Some(PreFilter::Reject(status)) => Part::Rejected(status),
            _ => Part::Runs,
        };
        let feasible = self.feasible();
        let score = match &points.pre_score {
            Some(plugin) => {
                let nodes = if caching.pre_score_depends_on_nodes() { &feasible[..] } else { &[] };
                let skips = caching.pre_score_skips(&cx, pod);
                let status = plugin.pre_score(&cx, &mut state, pod, nodes);
                holds("PreScore returns Skip after pre_score_skips", !skips || status.is_skip())?;
                match status {
                    status if status.is_skip() => Part::Skipped,
                    status if status.is_success() => Part::Runs,
                    status => Part::Rejected(status),
                }
            }
            None => Part::Runs,
        };
        let has_filter = points.filter.is_some() && filter == Part::Runs;
        let has_score = points.score.is_some() && score == Part::Runs;
        let mut table = Table {
            filter_scope: has_filter.then(|| caching.filter_scope(&state, pod)),
            score_scope: has_score.then(|| caching.score_scope(&state, pod)),
            state,
            filter,
            score,
            rows: Rows::default(),
            feasible: self.names(&feasible),
            reads: cx.take_reads(),
            cursor: self.changes.len(),
            is_cacheable: true,
        };
        table.is_cacheable = !table.reads.iter().any(is_untracked);
        table.rows = self.rows(&cx, &table, pod)?;
        table.note_reads(cx.take_reads());
        Ok(table)
    }

    /// Filter's verdicts on all nodes.
    fn verdicts(
        &self,
        cx: &Context<'_>,
        state: &CycleState,
        pod: &PodInfo,
    ) -> Result<BTreeMap<Arc<str>, Status>, Mismatch> {
        let mut verdicts = BTreeMap::new();
        let Some(plugin) = &self.driver.points.filter else { return Ok(verdicts) };
        let never_fails = self.driver.caching().filter_never_fails(cx, state, pod);
        for (_, info) in self.nodes.iter() {
            let status = plugin.filter(cx, state, pod, info);
            holds(
                "Filter does not fail after filter_never_fails",
                !never_fails || status.code() != Code::Error,
            )?;
            // Errors bypass tables, so their texts may name the pod.
            let status = if status.code() == Code::Error { Status::error("") } else { status };
            verdicts.insert(Arc::clone(info.name()), status);
        }
        Ok(verdicts)
    }

    /// All answers that the table's state gives.
    fn rows(&self, cx: &Context<'_>, table: &Table, pod: &PodInfo) -> Result<Rows, Mismatch> {
        let mut rows = Rows::default();
        if table.filter == Part::Runs {
            rows.verdicts = self.verdicts(cx, &table.state, pod)?;
        }
        let Some(plugin) = self.driver.points.score.as_ref().filter(|_| table.score == Part::Runs) else {
            return Ok(rows);
        };
        for (_, info) in self.nodes.iter() {
            let score = plugin.score(cx, &table.state, pod, info);
            let score = score.map_err(|status| Mismatch::new(format!("Score fails: {status:?}")))?;
            rows.scores.insert(Arc::clone(info.name()), score);
            if let Some(Scope::Classes(_)) = table.score_scope {
                let class = self.driver.caching().score_class(&table.state, pod, info);
                rows.classes.insert(Arc::clone(info.name()), class);
            }
        }
        Ok(rows)
    }

    /// Applies one change of pods or nodes to the state of a plugin that has one.
    fn apply(&self, state: &mut CycleState, pod: &PodInfo, change: &TableChange) -> Applied {
        let points = &self.driver.points;
        if points.pre_filter.is_none() && points.pre_score.is_none() {
            return Applied::Here;
        }
        let Some(plugin) = &points.incremental else { return Applied::Rebuild };
        match change {
            TableChange::Pod { node, pod: other, added: true } => plugin.pod_added(state, pod, other, node),
            TableChange::Pod { node, pod: other, added: false } => {
                plugin.pod_removed(state, pod, other, node)
            }
            TableChange::NodeAdded(node) => plugin.node_added(state, pod, node),
            TableChange::NodeRemoved(node) => plugin.node_removed(state, pod, node),
            TableChange::NodeChanged(old, new) => plugin.node_changed(state, pod, old, new),
            TableChange::Object(..) | TableChange::Objects => Applied::Here,
        }
    }

    /// Brings a table up to date; `false` if it must be rebuilt.
    fn catch_up(&self, table: &mut Table, pod: &PodInfo) -> Result<bool, Mismatch> {
        if !table.is_cacheable || self.changes[table.cursor..].iter().any(|change| table.reads_of(change)) {
            return Ok(false);
        }
        let (mut filters, mut scores) = (Dirty::default(), Dirty::default());
        for change in &self.changes[table.cursor..] {
            let node = match change {
                TableChange::Pod { node, .. }
                | TableChange::NodeAdded(node)
                | TableChange::NodeChanged(_, node) => node,
                TableChange::NodeRemoved(node) => {
                    table.feasible.remove(&node.name);
                    node
                }
                TableChange::Object(..) | TableChange::Objects => continue,
            };
            let applied = self.apply(&mut table.state, pod, change);
            if applied == Applied::Rebuild {
                return Ok(false);
            }
            for (dirty, scope) in [(&mut filters, &table.filter_scope), (&mut scores, &table.score_scope)] {
                let by_node = matches!(scope, Some(Scope::Node | Scope::Classes(_)));
                if by_node || !matches!(change, TableChange::Pod { .. }) {
                    dirty.nodes.insert(Arc::clone(&node.name));
                }
                dirty.note(applied.clone(), node);
            }
        }
        let follows = self.changes[table.cursor..].iter().any(|change| table.follows(change));
        if follows && !self.follow_objects(table, pod, [&mut filters, &mut scores]) {
            return Ok(false);
        }
        table.cursor = self.changes.len();
        if !self.follow_feasible(table, pod, &mut scores) {
            return Ok(false);
        }
        let cx = self.cx();
        let fresh = self.rows(&cx, table, pod)?;
        table.note_reads(cx.take_reads());
        filters.refresh(&self.nodes, &mut table.rows.verdicts, fresh.verdicts);
        if let Some(Scope::Classes(keys)) = &table.score_scope {
            table.rows.scores = fresh.scores;
            scores.all = false;
            scores.domains.retain(|(key, _)| !keys.contains(key));
            scores.refresh(&self.nodes, &mut table.rows.classes, fresh.classes);
        } else {
            scores.refresh(&self.nodes, &mut table.rows.scores, fresh.scores);
        }
        Ok(true)
    }

    /// Reports changes of objects to the plugin; `false` if the table must be rebuilt.
    fn follow_objects(&self, table: &mut Table, pod: &PodInfo, dirty: [&mut Dirty; 2]) -> bool {
        let Some(plugin) = &self.driver.points.incremental else { return false };
        let applied = plugin.objects_changed(&self.cx(), &mut table.state, pod);
        for dirty in dirty {
            match &applied {
                Applied::Here => {}
                Applied::Nodes(names) => dirty.nodes.extend(names.iter().cloned()),
                Applied::Everywhere => dirty.all = true,
                Applied::Domain(_) | Applied::Rebuild => return false,
            }
        }
        true
    }

    /// Reports feasibility changes to the plugin; `false` if the table must be rebuilt.
    fn follow_feasible(&self, table: &mut Table, pod: &PodInfo, scores: &mut Dirty) -> bool {
        let now = self.names(&self.feasible());
        let points = &self.driver.points;
        if points.pre_score.is_some() && self.driver.caching().pre_score_depends_on_nodes() {
            for name in now.symmetric_difference(&table.feasible) {
                let info = self.nodes.get(name).expect("removed nodes are not feasible");
                let applied = match &points.incremental {
                    Some(plugin) => plugin.feasible_changed(&mut table.state, pod, info, now.contains(name)),
                    None => Applied::Rebuild,
                };
                if applied == Applied::Rebuild {
                    return false;
                }
                scores.note(applied, info.node());
            }
        }
        table.feasible = now;
        true
    }

    fn sign(&self, pod: &PodInfo) -> Option<Signature> {
        let mut signer = Signer::default();
        let signed = self.driver.sign_in(pod, &self.nodes, &self.objects, &mut signer);
        signed.ok().map(|()| signer.finish())
    }

    /// Schedules a pod by its table, and compares the table with a fresh one.
    pub(super) fn schedule(&mut self, pod: &PodInfo) -> Result<(), Mismatch> {
        let Some(signature) = self.sign(pod) else { return Ok(()) };
        check_columns(&self.driver, || self.cx(), pod, &self.nodes)?;
        let fresh = self.fresh(pod)?;
        let Some(known) = self.tables.iter().position(|(known, _)| *known == signature) else {
            self.tables.push((signature, fresh));
            return Ok(());
        };
        let (_, mut table) = self.tables.swap_remove(known);
        if self.catch_up(&mut table, pod)? {
            self.reused += 1;
            same("whether Filter runs", &table.filter, &fresh.filter)?;
            same("whether Score runs", &table.score, &fresh.score)?;
            let current = self.rows(&self.cx(), &table, pod)?;
            same("verdicts of the updated state", &current.verdicts, &fresh.rows.verdicts)?;
            // Classes may differ: an older state may separate more nodes than necessary.
            same("scores of the updated state", &current.scores, &fresh.rows.scores)?;
            same("answers that were not computed again", &table.rows, &current)?;
            self.check_dry_run(&table, &fresh, pod)?;
        } else {
            table = fresh;
        }
        self.check_scopes(&table)?;
        self.check_normalization(&table, pod)?;
        self.tables.push((signature, table));
        Ok(())
    }

    /// A preemption dry run gives the same verdicts on both states, and leaves the cached one
    /// unchanged.
    fn check_dry_run(&self, table: &Table, fresh: &Table, pod: &PodInfo) -> Result<(), Mismatch> {
        let extensions = self.driver.points.pre_filter.as_ref().and_then(|plugin| plugin.extensions());
        let (Some(extensions), Part::Runs) = (extensions, &table.filter) else {
            return Ok(());
        };
        let compare = |what: &str, cached: &CycleState, fresh: &CycleState| {
            same(what, &self.verdicts(&self.cx(), cached, pod)?, &self.verdicts(&self.cx(), fresh, pod)?)
        };
        for (_, info) in self.nodes.iter() {
            let (mut cached, mut fresh) = (table.state.clone(), fresh.state.clone());
            for other in info.pods() {
                for state in [&mut cached, &mut fresh] {
                    let status = extensions.remove_pod(state, pod, other, info);
                    holds("RemovePod succeeds", status.is_success() || status.is_skip())?;
                }
            }
            compare("verdicts without the pods of a node", &cached, &fresh)?;
            for state in [&mut cached, &mut fresh] {
                let status = extensions.add_pod(state, pod, pod, info);
                holds("AddPod succeeds", status.is_success() || status.is_skip())?;
            }
            compare("verdicts with the pod in their place", &cached, &fresh)?;
        }
        same("answers after a dry run on a clone", &table.rows, &self.rows(&self.cx(), table, pod)?)
    }

    /// Nodes that a scope does not separate have equal answers.
    fn check_scopes(&self, table: &Table) -> Result<(), Mismatch> {
        let Rows { verdicts, scores, classes } = &table.rows;
        self.check_scope(table.filter_scope.as_ref(), &BTreeMap::new(), verdicts)?;
        self.check_scope(table.score_scope.as_ref(), classes, scores)
    }

    fn check_scope<T: PartialEq + fmt::Debug>(
        &self,
        scope: Option<&Scope>,
        classes: &BTreeMap<Arc<str>, i64>,
        rows: &BTreeMap<Arc<str>, T>,
    ) -> Result<(), Mismatch> {
        let Some(Scope::Domain(keys) | Scope::Classes(keys)) = scope else { return Ok(()) };
        let mut by_domain: BTreeMap<_, &T> = BTreeMap::new();
        for (_, info) in self.nodes.iter() {
            let values: Vec<_> = keys.iter().map(|key| info.node().labels.get(key)).collect();
            let row = &rows[info.name()];
            let first = by_domain.entry((values, classes.get(info.name()))).or_insert(row);
            same("answers of nodes in one domain and class", *first, row)?;
        }
        Ok(())
    }

    /// Normalization by range depends on the minimum and the maximum only.
    fn check_normalization(&self, table: &Table, pod: &PodInfo) -> Result<(), Mismatch> {
        let Some(plugin) = self.driver.points.score.as_ref().filter(|_| table.score == Part::Runs) else {
            return Ok(());
        };
        if !self.driver.caching().normalizes_by_range() {
            return Ok(());
        }
        let raw: Vec<_> = table.feasible.iter().map(|name| table.rows.scores[name]).collect();
        let normalize = |scores: &mut [i64]| {
            holds("NormalizeScore succeeds", plugin.normalize(&table.state, pod, scores).is_success())
        };
        let mut all = raw.clone();
        normalize(&mut all)?;
        let scored = || raw.iter().copied().filter(|score| *score != NOT_SCORED);
        for (raw, normal) in raw.iter().zip(all) {
            let range = [scored().min(), scored().max(), Some(*raw)];
            let mut few: Vec<_> = range.into_iter().flatten().collect();
            normalize(&mut few)?;
            same("scores normalised by range", &few.last(), &Some(&normal))?;
        }
        Ok(())
    }
}
