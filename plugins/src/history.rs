//! Tests of plugins whose state follows changes, used as evaluation tables use them: one state per signature, made for
//! one pod of it and kept current with whichever comes next, answers asked again only as the plugin says.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::Union;
use supercargo_framework::context::Read;
use supercargo_framework::objects::{Object, Objects};
use supercargo_framework::plugin::{Applied, NOT_SCORED, Normalize, PreFilter, Scope};
use supercargo_framework::signature::{Signature, Signer};
use supercargo_framework::testing::pod;
use supercargo_framework::{
    Context, CycleState, NodeIndex, NodeInfo, NodeRecord, Nodes, Now, PodInfo, Status,
};

use crate::testing::Driver;

/// There are at most so many nodes at a time.
const NODES: usize = 5;

/// What happens. Places are taken modulo what there is.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// A pod comes to a node.
    Pod(usize, PodInfo),
    /// A pod of a node goes.
    PodGone(usize, usize),
    /// A pod of a node becomes another.
    PodChanged(usize, usize, PodInfo),
    /// A pod of a node starts to terminate.
    PodTerminates(usize, usize),
    /// A node comes with its pods, or changes if it is there; then the pods are not looked at.
    Node(NodeInfo),
    /// A node goes with its pods.
    NodeGone(usize),
    /// Something else makes a node feasible, or stops doing so.
    Feasible(usize),
    /// An object of another kind comes or changes.
    Object(Object),
    /// All objects of other kinds go.
    NoObjects,
    /// One of the pods is scheduled.
    Use(usize),
}

/// Pods of which some have equal signatures: of one template, with labels of others here and there.
pub(crate) fn of_one_template(
    template: impl Strategy<Value = PodInfo>,
    other: impl Strategy<Value = PodInfo>,
) -> impl Strategy<Value = Vec<PodInfo>> {
    (template, vec((other, any::<bool>()), 2)).prop_map(|(first, others)| {
        let like_first = |(other, labelled): (PodInfo, bool)| {
            let labels = if labelled { other.labels } else { first.labels.clone() };
            let namespace = Arc::clone(&first.namespace);
            PodInfo { labels, namespace, spec: Arc::clone(&first.spec), ..pod("other").build() }
        };
        others.into_iter().map(like_first).chain([first.clone()]).collect()
    })
}

/// Any history, of such pods, nodes (by name) and objects of other kinds. It starts with some nodes, and ends with a use.
pub(crate) fn steps<P, N, O>(
    pods: impl Fn() -> P,
    nodes: impl Fn(String) -> N,
    objects: impl Fn() -> O,
    pods_to_schedule: usize,
) -> impl Strategy<Value = Vec<Step>>
where
    P: Strategy<Value = PodInfo> + 'static,
    N: Strategy<Value = NodeInfo> + 'static,
    O: Strategy<Value = Object> + 'static,
{
    let node = |i: usize| nodes(format!("n{i}")).prop_map(Step::Node);
    let place = 0..NODES;
    let any_node = (0..NODES).map(node).map(Strategy::boxed).collect::<Vec<_>>();
    let step = prop_oneof![
        6 => (place.clone(), pods()).prop_map(|(node, pod)| Step::Pod(node, pod)),
        3 => (place.clone(), 0..9_usize).prop_map(|(node, pod)| Step::PodGone(node, pod)),
        1 => (place.clone(), 0..9_usize, pods()).prop_map(|(node, pod, new)| Step::PodChanged(node, pod, new)),
        1 => (place.clone(), 0..9_usize).prop_map(|(node, pod)| Step::PodTerminates(node, pod)),
        2 => Union::new(any_node).boxed(),
        1 => place.clone().prop_map(Step::NodeGone),
        3 => place.prop_map(Step::Feasible),
        1 => objects().prop_map(Step::Object),
        1 => Just(Step::NoObjects),
        12 => (0..pods_to_schedule).prop_map(Step::Use),
    ];
    let start = (0..NODES - 1).map(node).map(Strategy::boxed).collect::<Vec<_>>();
    (start, vec(step, 1..40), 0..pods_to_schedule)
        .prop_map(|(start, steps, last)| start.into_iter().chain(steps).chain([Step::Use(last)]).collect())
}

/// A change as a table hears of it.
#[derive(Clone)]
enum Change {
    Pod { node: Arc<NodeRecord>, pod: Arc<PodInfo>, added: bool },
    NodeAdded(Arc<NodeRecord>),
    NodeRemoved(Arc<NodeRecord>),
    NodeChanged(Arc<NodeRecord>, Arc<NodeRecord>),
    Objects,
}

/// How a plugin takes part in a cycle.
#[derive(Clone, Debug, PartialEq)]
enum Part {
    Asked,
    Skipped,
    Rejected(Status),
}

/// Which rows are to be asked for again.
#[derive(Default)]
struct Dirty {
    all: bool,
    nodes: BTreeSet<Arc<str>>,
    domains: BTreeSet<(Arc<str>, Arc<str>)>,
}

impl Dirty {
    fn note(&mut self, applied: Applied, node: &NodeRecord) {
        match applied {
            Applied::Here => {}
            Applied::Domain(keys) => {
                for key in keys {
                    if let Some(value) = node.labels.get(&key) {
                        self.domains.insert((key, Arc::clone(value)));
                    }
                }
            }
            Applied::Everywhere | Applied::Rebuild => self.all = true,
        }
    }

    fn has(&self, node: &NodeRecord) -> bool {
        self.all
            || self.nodes.contains(&node.name)
            || self.domains.iter().any(|(key, value)| node.labels.get(key) == Some(value))
    }
}

/// What a plugin says of every node.
#[derive(Clone, Debug, Default, PartialEq)]
struct Rows {
    verdicts: BTreeMap<Arc<str>, Status>,
    scores: BTreeMap<Arc<str>, i64>,
    /// The nodes' classes, where scores are by class; then the scores themselves are asked for each time.
    classes: BTreeMap<Arc<str>, i64>,
}

/// A state with the answers by it.
struct Table {
    state: CycleState,
    filter: Part,
    score: Part,
    filter_scope: Option<Scope>,
    score_scope: Option<Scope>,
    rows: Rows,
    feasible: BTreeSet<Arc<str>>,
    reads: Vec<Read>,
    cursor: usize,
}

/// The cluster, and what happened in it.
struct History<'a> {
    driver: &'a Driver,
    nodes: Nodes,
    objects: Objects,
    blocked: BTreeSet<Arc<str>>,
    changes: Vec<Change>,
    tables: Vec<(Signature, Table)>,
    /// How often a table served again without having been made anew.
    kept: usize,
    uids: usize,
}

impl History<'_> {
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

    fn add_pod(&mut self, index: NodeIndex, mut pod: PodInfo, uid: Option<supercargo_framework::Uid>) {
        self.uids += 1;
        pod.uid = uid.unwrap_or_else(|| (&*format!("uid-{}", self.uids)).into());
        let pod = Arc::new(pod);
        self.nodes.update(index, |info| info.add_pod(Arc::clone(&pod)));
        self.changes.push(Change::Pod { node: self.record(index), pod, added: true });
    }

    fn remove_pod(&mut self, index: NodeIndex, i: usize) -> Option<Arc<PodInfo>> {
        let pods = self.nodes.at(index).pods();
        let uid = pods[i.checked_rem(pods.len())?].uid.clone();
        let pod = self.nodes.update(index, |info| info.remove_pod(&uid))??;
        self.changes.push(Change::Pod { node: self.record(index), pod: Arc::clone(&pod), added: false });
        Some(pod)
    }

    fn replace_pod(&mut self, index: NodeIndex, i: usize, change: impl FnOnce(PodInfo) -> PodInfo) {
        if let Some(old) = self.remove_pod(index, i) {
            let uid = old.uid.clone();
            self.add_pod(index, change((*old).clone()), Some(uid));
        }
    }

    /// Carries a step out that is no use of a table.
    fn take(&mut self, step: Step) {
        match step {
            Step::Pod(node, pod) => {
                if let Some(index) = self.pick(node) {
                    self.add_pod(index, pod, None);
                }
            }
            Step::PodGone(node, i) => {
                if let Some(index) = self.pick(node) {
                    self.remove_pod(index, i);
                }
            }
            Step::PodChanged(node, i, new) => {
                if let Some(index) = self.pick(node) {
                    self.replace_pod(index, i, |_| new);
                }
            }
            Step::PodTerminates(node, i) => {
                if let Some(index) = self.pick(node) {
                    self.replace_pod(index, i, |old| PodInfo { terminating: true, ..old });
                }
            }
            Step::Node(info) => match self.nodes.index_of(info.name()) {
                Some(index) => {
                    let old = self.record(index);
                    self.nodes.set_node(index, Arc::clone(info.node()));
                    self.changes.push(Change::NodeChanged(old, Arc::clone(info.node())));
                }
                None => {
                    let index = self.nodes.insert(NodeInfo::new(Arc::clone(info.node())));
                    self.reorder();
                    self.changes.push(Change::NodeAdded(Arc::clone(info.node())));
                    for pod in info.pods() {
                        self.add_pod(index, (**pod).clone(), None);
                    }
                }
            },
            Step::NodeGone(node) => {
                if let Some(index) = self.pick(node) {
                    while self.remove_pod(index, 0).is_some() {}
                    let record = self.record(index);
                    self.nodes.remove(index);
                    self.reorder();
                    self.changes.push(Change::NodeRemoved(record));
                }
            }
            Step::Feasible(node) => {
                if let Some(index) = self.pick(node) {
                    let name = Arc::clone(self.nodes.at(index).name());
                    if !self.blocked.remove(&name) {
                        self.blocked.insert(name);
                    }
                }
            }
            Step::Object(object) => {
                self.objects.insert(Arc::new(object));
                self.changes.push(Change::Objects);
            }
            Step::NoObjects => {
                self.objects = Objects::default();
                self.changes.push(Change::Objects);
            }
            Step::Use(_) => {}
        }
    }

    fn feasible(&self) -> Vec<NodeIndex> {
        let open = self.nodes.iter().filter(|(_, info)| !self.blocked.contains(info.name()));
        open.map(|(index, _)| index).collect()
    }

    fn cx(&self) -> Context<'_> {
        Context::new(&self.nodes, &self.objects, &[], Now::default()).tracking()
    }

    /// A table as PreFilter and PreScore make it now.
    fn fresh(&self, pod: &PodInfo) -> Table {
        let (cx, mut state, points) = (self.cx(), CycleState::new(), &self.driver.points);
        let filter = match points.pre_filter.as_ref().map(|plugin| plugin.pre_filter(&cx, &mut state, pod)) {
            Some(PreFilter::Skip) => Part::Skipped,
            Some(PreFilter::Reject(status)) => Part::Rejected(status),
            _ => Part::Asked,
        };
        let feasible = self.feasible();
        let score = match &points.pre_score {
            Some(plugin) => {
                let nodes = if plugin.depends_on_nodes() { &feasible[..] } else { &[] };
                let skips = plugin.skips(&cx, pod);
                match plugin.pre_score(&cx, &mut state, pod, nodes) {
                    status if skips => {
                        assert!(status.is_skip(), "it said that it would skip: {status:?}");
                        Part::Skipped
                    }
                    status if status.is_skip() => Part::Skipped,
                    status if status.is_success() => Part::Asked,
                    status => Part::Rejected(status),
                }
            }
            None => Part::Asked,
        };
        let mut table = Table {
            filter_scope: points
                .filter
                .as_ref()
                .filter(|_| filter == Part::Asked)
                .map(|plugin| plugin.scope(&state, pod)),
            score_scope: points
                .score
                .as_ref()
                .filter(|_| score == Part::Asked)
                .map(|plugin| plugin.scope(&state, pod)),
            state,
            filter,
            score,
            rows: Rows::default(),
            feasible: feasible.iter().map(|index| Arc::clone(self.nodes.at(*index).name())).collect(),
            reads: cx.take_reads(),
            cursor: self.changes.len(),
        };
        table.rows = self.ask(&table, pod);
        table
    }

    /// What Filter says of every node.
    fn verdicts(&self, state: &CycleState, pod: &PodInfo) -> BTreeMap<Arc<str>, Status> {
        let (cx, plugin) = (self.cx(), self.driver.points.filter.as_ref());
        let verdicts = self
            .nodes
            .iter()
            .filter_map(|(_, info)| Some((Arc::clone(info.name()), plugin?.filter(&cx, state, pod, info))));
        verdicts.collect()
    }

    /// What the state says of every node.
    fn ask(&self, table: &Table, pod: &PodInfo) -> Rows {
        let (cx, mut rows) = (self.cx(), Rows::default());
        if table.filter == Part::Asked {
            rows.verdicts = self.verdicts(&table.state, pod);
        }
        for (_, info) in self.nodes.iter() {
            if let Some(plugin) = self.driver.points.score.as_ref().filter(|_| table.score == Part::Asked) {
                let score = plugin.score(&cx, &table.state, pod, info);
                rows.scores.insert(Arc::clone(info.name()), score.expect("in-tree scores do not fail"));
                if let Some(Scope::Classes(_)) = table.score_scope {
                    let class = plugin.class(&table.state, pod, info);
                    rows.classes.insert(Arc::clone(info.name()), class);
                }
            }
        }
        rows
    }

    /// Brings a table up to date; `false` when it must be made anew.
    fn catch_up(&self, table: &mut Table, pod: &PodInfo) -> bool {
        let plugin = self.driver.points.incremental.as_ref().expect("the plugin follows changes");
        let (mut filters, mut scores) = (Dirty::default(), Dirty::default());
        for change in &self.changes[table.cursor..] {
            let state = &mut table.state;
            let (node, applied) = match change {
                Change::Pod { node, pod: other, added: true } => {
                    (node, plugin.pod_added(state, pod, other, node))
                }
                Change::Pod { node, pod: other, added: false } => {
                    (node, plugin.pod_removed(state, pod, other, node))
                }
                Change::NodeAdded(node) => (node, plugin.node_added(state, pod, node)),
                Change::NodeRemoved(node) => {
                    table.feasible.remove(&node.name);
                    (node, plugin.node_removed(state, pod, node))
                }
                Change::NodeChanged(old, new) => (new, plugin.node_changed(state, pod, old, new)),
                Change::Objects => {
                    let others = |read: &Read| matches!(read, Read::Kind(_) | Read::Object { .. });
                    if table.reads.iter().any(others) {
                        return false;
                    }
                    continue;
                }
            };
            if applied == Applied::Rebuild {
                return false;
            }
            for (dirty, scope) in [(&mut filters, &table.filter_scope), (&mut scores, &table.score_scope)] {
                let own = match scope {
                    Some(Scope::Node | Scope::Classes(_)) => true,
                    _ => !matches!(change, Change::Pod { .. }),
                };
                if own {
                    dirty.nodes.insert(Arc::clone(&node.name));
                }
                dirty.note(applied.clone(), node);
            }
        }
        table.cursor = self.changes.len();
        let now: BTreeSet<_> =
            self.feasible().into_iter().map(|index| Arc::clone(self.nodes.at(index).name())).collect();
        for name in now.symmetric_difference(&table.feasible) {
            let info = self.nodes.get(name).expect("nodes that are gone are not feasible");
            let feasible = now.contains(name);
            let applied = plugin.feasible_changed(&mut table.state, pod, info, feasible);
            if applied == Applied::Rebuild {
                return false;
            }
            scores.note(applied, info.node());
        }
        table.feasible = now;
        let asked = self.ask(table, pod);
        refresh(&self.nodes, &mut table.rows.verdicts, asked.verdicts, &filters);
        match &table.score_scope {
            Some(Scope::Classes(keys)) => {
                table.rows.scores = asked.scores;
                scores.all = false;
                scores.domains.retain(|(key, _)| !keys.contains(key));
                refresh(&self.nodes, &mut table.rows.classes, asked.classes, &scores);
            }
            _ => refresh(&self.nodes, &mut table.rows.scores, asked.scores, &scores),
        }
        true
    }

    fn sign(&self, pod: &PodInfo) -> Option<Signature> {
        let mut signer = Signer::default();
        let signed = self.driver.sign_in(pod, &self.nodes, &self.objects, &mut signer);
        signed.ok().map(|()| signer.finish())
    }

    /// Schedules a pod by its table, and compares it with one made anew.
    fn serve(&mut self, pod: &PodInfo) -> Result<(), TestCaseError> {
        let Some(signature) = self.sign(pod) else {
            return Ok(());
        };
        let fresh = self.fresh(pod);
        let known = self.tables.iter().position(|(known, _)| *known == signature);
        let Some(known) = known else {
            self.tables.push((signature, fresh));
            return Ok(());
        };
        let (_, mut table) = self.tables.swap_remove(known);
        if self.catch_up(&mut table, pod) {
            self.kept += 1;
            prop_assert_eq!(&table.filter, &fresh.filter);
            prop_assert_eq!(&table.score, &fresh.score);
            let said = self.ask(&table, pod);
            prop_assert_eq!(&said.verdicts, &fresh.rows.verdicts, "the states say the same");
            // By whichever classes: a state that was made earlier may tell more nodes apart than it need.
            prop_assert_eq!(&said.scores, &fresh.rows.scores, "the states say the same");
            prop_assert_eq!(&table.rows, &said, "whatever was not asked again has not changed");
            self.check_trial(&table, &fresh, pod)?;
        } else {
            table = fresh;
        }
        self.check_scopes(&table)?;
        self.check_normalization(&table, pod)?;
        self.tables.push((signature, table));
        Ok(())
    }

    /// A trial on the one state goes as on the other, and leaves no trace.
    fn check_trial(&self, table: &Table, fresh: &Table, pod: &PodInfo) -> Result<(), TestCaseError> {
        let extensions = self.driver.points.pre_filter.as_ref().and_then(|plugin| plugin.extensions());
        let (Some(extensions), Part::Asked) = (extensions, &table.filter) else {
            return Ok(());
        };
        let ask = |state: &CycleState| self.verdicts(state, pod);
        for (_, info) in self.nodes.iter() {
            let (mut kept, mut made) = (table.state.clone(), fresh.state.clone());
            for other in info.pods() {
                let (a, b) = (
                    extensions.remove_pod(&mut kept, pod, other, info),
                    extensions.remove_pod(&mut made, pod, other, info),
                );
                prop_assert!(a.is_success() && b.is_success());
            }
            prop_assert_eq!(ask(&kept), ask(&made), "without the pods of a node");
            extensions.add_pod(&mut kept, pod, pod, info);
            extensions.add_pod(&mut made, pod, pod, info);
            prop_assert_eq!(ask(&kept), ask(&made), "with the pod in their place");
        }
        prop_assert_eq!(&self.ask(table, pod), &table.rows, "the state is as it was");
        Ok(())
    }

    /// Nodes that a scope makes alike have the same answers.
    fn check_scopes(&self, table: &Table) -> Result<(), TestCaseError> {
        fn alike<T: PartialEq + std::fmt::Debug>(
            nodes: &Nodes,
            scope: Option<&Scope>,
            classes: &BTreeMap<Arc<str>, i64>,
            rows: &BTreeMap<Arc<str>, T>,
        ) -> Result<(), TestCaseError> {
            let Some(Scope::Domain(keys) | Scope::Classes(keys)) = scope else {
                return Ok(());
            };
            let mut by_domain: BTreeMap<_, &T> = BTreeMap::new();
            for (_, info) in nodes.iter() {
                let values: Vec<_> = keys.iter().map(|key| info.node().labels.get(key)).collect();
                let domain = (values, classes.get(info.name()));
                let row = &rows[info.name()];
                prop_assert_eq!(*by_domain.entry(domain).or_insert(row), row);
            }
            Ok(())
        }
        let Rows { verdicts, scores, classes } = &table.rows;
        alike(&self.nodes, table.filter_scope.as_ref(), &BTreeMap::new(), verdicts)?;
        alike(&self.nodes, table.score_scope.as_ref(), classes, scores)
    }

    /// A normalisation by range needs no more than the range.
    fn check_normalization(&self, table: &Table, pod: &PodInfo) -> Result<(), TestCaseError> {
        let Some(plugin) = self.driver.points.score.as_ref().filter(|_| table.score == Part::Asked) else {
            return Ok(());
        };
        if plugin.normalization() != Normalize::ByRange {
            return Ok(());
        }
        let raw: Vec<_> = table.feasible.iter().map(|name| table.rows.scores[name]).collect();
        let mut all = raw.clone();
        prop_assert!(plugin.normalize(&table.state, pod, &mut all).is_success());
        let scored = || raw.iter().copied().filter(|score| *score != NOT_SCORED);
        for (raw, normal) in raw.iter().zip(all) {
            let range = [scored().min(), scored().max(), Some(*raw)];
            let mut few: Vec<_> = range.into_iter().flatten().collect();
            prop_assert!(plugin.normalize(&table.state, pod, &mut few).is_success());
            prop_assert_eq!(few.last(), Some(&normal));
        }
        Ok(())
    }
}

/// Takes over what was asked again; keeps the rest, but for nodes that are gone.
fn refresh<T>(nodes: &Nodes, rows: &mut BTreeMap<Arc<str>, T>, asked: BTreeMap<Arc<str>, T>, dirty: &Dirty) {
    rows.retain(|name, _| nodes.get(name).is_some());
    for (name, answer) in asked {
        if nodes.get(&name).is_some_and(|info| dirty.has(info.node())) {
            rows.insert(name, answer);
        }
    }
}

/// Checks that after any history a table says of every node what PreFilter, PreScore, Filter and Score made anew say,
/// whichever pod of its signature it was made for and followed changes with. Answers how often a table was kept.
pub(crate) fn check(driver: &Driver, pods: &[PodInfo], steps: Vec<Step>) -> Result<usize, TestCaseError> {
    let mut history = History {
        driver,
        nodes: Nodes::default(),
        objects: Objects::default(),
        blocked: BTreeSet::new(),
        changes: Vec::new(),
        tables: Vec::new(),
        kept: 0,
        uids: 0,
    };
    for step in steps {
        match step {
            Step::Use(i) => history.serve(&pods[i % pods.len()])?,
            step => history.take(step),
        }
    }
    Ok(history.kept)
}
