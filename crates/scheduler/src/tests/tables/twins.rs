//! Two schedulers with the same inputs: one with tables, one without.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use supercargo_framework::binding::ApiCall;
use supercargo_framework::objects::resources;
use supercargo_framework::plugin::Normalize;
use supercargo_framework::{CycleState, Features, NodeRecord, Now, Plugin, PodInfo, Uid};
use supercargo_queue::QueuedPod;

use super::tally::{How, Tally};
use super::templates::{HOST, Shape, ZONE};
use crate::attempt::Scope;
use crate::tests::devices;
use crate::tests::test_bed::{WALL, all_plugins, in_tree, options};
use crate::tests::why::Explained;
use crate::{Effect, Input, NoCalls, Notification, Options, ProfileSpec, Rule, Scheduler, VictimEviction};

/// The text of a difference between the two.
pub(super) type Difference = String;

/// The kind of cluster.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setting {
    /// The initial number of nodes.
    pub(super) nodes: usize,
    pub(super) zones: usize,
    /// The maximum number of domains of a coarse key.
    pub(super) coarse: usize,
    /// The maximum number of changes kept.
    pub(super) kept: usize,
    /// Whether plugins that use all features of tables take part.
    pub(super) with_tallies: bool,
    /// Whether there is a second profile.
    pub(super) is_mixed: bool,
    pub(super) off: Option<Rule>,
}

/// The two schedulers, and the state of the cluster.
pub(super) struct Twins {
    pub(super) setting: Setting,
    pub(super) palette: Vec<usize>,
    with_tables: Scheduler,
    plain: Scheduler,
    pub(super) now: Now,
    pub(super) pods: BTreeMap<Uid, Arc<PodInfo>>,
    pub(super) nodes: BTreeMap<usize, Arc<NodeRecord>>,
    pub(super) shapes: BTreeMap<usize, Shape>,
    /// Bindings without an answer yet.
    pub(super) binds: Vec<(Uid, Arc<str>)>,
    pub(super) pre_binds: Vec<Uid>,
    pub(super) evictions: Vec<(u64, Vec<VictimEviction>)>,
    versions: usize,
    /// The number of cycles.
    pub(super) cycles: u64,
    /// The number of forks, and the cycle of the next one at the earliest.
    pub(super) forks: u64,
    fork_at: u64,
    /// How often a claim got devices, and how often they were taken away from it.
    pub(super) allocations: u64,
    pub(super) deallocations: u64,
    /// How often a claim was created for extended resources.
    pub(super) creations: u64,
    /// How often a claim got a share of a device, a device with conditions, or one that a rule
    /// taints.
    pub(super) shares: u64,
    pub(super) waits: u64,
    pub(super) tolerated: u64,
    /// How often drivers reported about a claim's devices.
    pub(super) reports: u64,
    /// How often a table chose among some of the nodes.
    pub(super) narrowed: u64,
}

const HOW: How = How {
    name: "",
    key: Some(ZONE),
    limit: None,
    score: None,
    counts_feasible: false,
    is_by_range: false,
    is_alone: false,
};

/// The tally that is not cached.
fn uncached_tally() -> Arc<dyn Plugin> {
    Arc::new(Tally::<7>(How { name: "Uncached", key: Some(HOST), limit: Some(2), is_alone: true, ..HOW }))
}

fn tallies() -> Vec<Arc<dyn Plugin>> {
    let how = HOW;
    vec![
        Arc::new(Tally::<0>(How { name: "FewPerZone", limit: Some(9), ..how })),
        Arc::new(Tally::<1>(How { name: "FewPerHost", key: Some(HOST), limit: Some(5), ..how })),
        Arc::new(Tally::<2>(How { name: "FewInAll", key: None, limit: Some(40), ..how })),
        Arc::new(Tally::<3>(How { name: "ByZone", score: Some(Normalize::None), ..how })),
        Arc::new(Tally::<4>(How {
            name: "ByHost",
            key: Some(HOST),
            score: Some(Normalize::ByMax { reverse: true }),
            ..how
        })),
        Arc::new(Tally::<5>(How {
            name: "InRange",
            score: Some(Normalize::Custom),
            is_by_range: true,
            counts_feasible: true,
            ..how
        })),
        Arc::new(Tally::<6>(How {
            name: "Custom",
            key: None,
            score: Some(Normalize::Custom),
            counts_feasible: true,
            ..how
        })),
    ]
}

/// How often a pod is explained before it is tried.
const EXPLAINED_ONCE_IN: u64 = 8;

/// After how many cycles a fork takes the place of the scheduler without tables.
const FORKED_ONCE_IN: u64 = 32;

/// The name of the second profile.
pub(super) const SECOND: &str = "second";

/// A profile that places pods where the first one does not.
fn second_profile() -> ProfileSpec {
    let args = |name: &str| match name {
        "NodeResourcesFit" => {
            let resources = json!([{"name": "cpu", "weight": 1}]);
            json!({"scoringStrategy": {"type": "MostAllocated", "resources": resources}})
        }
        "PodTopologySpread" => json!({"defaultingType": "List"}),
        _ => Value::Null,
    };
    ProfileSpec {
        scheduler_name: SECOND.to_owned(),
        percentage_of_nodes_to_score: None,
        plugins: in_tree(&Features::default(), |_| true, args, vec![uncached_tally()]),
    }
}

pub(super) fn options_of(setting: &Setting, plain: bool) -> Options {
    let mut more = if setting.with_tallies { tallies() } else { Vec::new() };
    more.push(uncached_tally());
    let mut options = Options { plain, hash_seed: u64::from(plain), ..options(all_plugins(more)) };
    if setting.is_mixed {
        options.profiles.push(second_profile());
    }
    options
}

fn scheduler(setting: &Setting, plain: bool) -> Scheduler {
    let mut scheduler = Scheduler::new(options_of(setting, plain)).unwrap();
    scheduler.cache.keep_changes(setting.kept);
    if let Some(tables) = &mut scheduler.tables {
        tables.set_coarse(setting.coarse);
        scheduler.compare_tables();
    }
    if let Some(off) = setting.off {
        scheduler.switch_off(off);
    }
    scheduler
}

impl Twins {
    pub(super) fn new(setting: Setting, palette: Vec<usize>) -> Self {
        Self {
            with_tables: scheduler(&setting, false),
            plain: scheduler(&setting, true),
            setting,
            palette,
            now: Now { wall: WALL, monotonic: Duration::ZERO },
            pods: BTreeMap::new(),
            nodes: BTreeMap::new(),
            shapes: BTreeMap::new(),
            binds: Vec::new(),
            pre_binds: Vec::new(),
            evictions: Vec::new(),
            versions: 0,
            cycles: 0,
            forks: 0,
            fork_at: FORKED_ONCE_IN,
            allocations: 0,
            deallocations: 0,
            creations: 0,
            shares: 0,
            waits: 0,
            tolerated: 0,
            reports: 0,
            narrowed: 0,
        }
    }

    /// The scheduler with tables.
    pub(super) fn scheduler(&self) -> &Scheduler {
        &self.with_tables
    }

    /// A new resource version.
    pub(super) fn version(&mut self) -> usize {
        self.versions += 1;
        self.versions
    }

    /// Passes an input to both.
    pub(super) fn handle(&mut self, input: Input) -> Result<(), Difference> {
        self.with_tables.handle(self.now, input.clone());
        self.plain.handle(self.now, input);
        self.compare()
    }

    /// Runs a cycle of both; `false` if no pod was popped.
    pub(super) fn cycle(&mut self) -> Result<bool, Difference> {
        self.fork();
        self.choose_among_some()?;
        let explained =
            self.cycles.is_multiple_of(EXPLAINED_ONCE_IN).then(|| Explained::of(&mut self.plain, self.now));
        let tried = self.with_tables.schedule_one(self.now, &mut NoCalls);
        let plain_tried = self.plain.schedule_one(self.now, &mut NoCalls);
        self.cycles += u64::from(tried);
        let comparison = self.with_tables.comparison.as_mut();
        if let Some(difference) = comparison.and_then(|comparison| comparison.differences.pop()) {
            return Err(difference);
        }
        if tried != plain_tried {
            return Err(format!("tried a pod: {tried} with tables, {plain_tried} without"));
        }
        if let Some(explained) = explained.flatten() {
            explained.compare(&self.plain)?;
        }
        self.compare()?;
        Ok(tried)
    }

    /// Looks for the best of some nodes, as for a member of a group. The pod stays where it is.
    fn choose_among_some(&mut self) -> Result<(), Difference> {
        let turn = self.cycles as usize;
        let waiting: Vec<&Uid> = self.pods.keys().filter(|uid| self.plain.queued(uid).is_some()).collect();
        let Some(uid) = waiting.get(turn.checked_rem(waiting.len()).unwrap_or(0)) else { return Ok(()) };
        let uid = (*uid).clone();
        let answers = [&mut self.with_tables, &mut self.plain].map(|scheduler| {
            let nodes: Vec<_> = scheduler.cache.refreshed().order().to_vec();
            let some = nodes.into_iter().enumerate().filter(|(at, _)| !(at + turn).is_multiple_of(3));
            let some: Vec<_> = some.map(|(_, index)| index).collect();
            let queued = scheduler.queue.get(&uid)?;
            let queued = QueuedPod::new(Arc::clone(&queued.pod), queued.profile, WALL);
            let (before, mut state) = (scheduler.table_stats(), CycleState::new());
            let scope = Scope::Member(Some(&some));
            let found = scheduler.choose_node(self.now, &queued, &mut state, &mut NoCalls, scope);
            let (stats, found) = (scheduler.table_stats(), found.map_err(|failure| failure.kind.to_string()));
            Some((found, stats.hits + stats.builds - before.hits - before.builds))
        });
        let [Some((narrowed, by_table)), Some((plain, _))] = answers else {
            return Err(format!("only one scheduler has {uid:?} in its queue"));
        };
        self.narrowed += by_table;
        if narrowed == plain {
            Ok(())
        } else {
            Err(format!("of some nodes, tables choose {narrowed:?}, the plain path {plain:?}"))
        }
    }

    /// Replaces the scheduler without tables by a fork of the one with tables, which must answer
    /// the same.
    fn fork(&mut self) {
        let Scheduler { bindings, preemptions, .. } = &self.with_tables;
        let is_at_rest = bindings.len() + preemptions.len() + preemptions.left_behind.len() == 0;
        if is_at_rest && self.cycles >= self.fork_at {
            let options = options_of(&self.setting, true);
            self.plain = self.with_tables.fork(self.now, options).unwrap().scheduler;
            (self.fork_at, self.forks) = (self.cycles + FORKED_ONCE_IN, self.forks + 1);
        }
    }

    /// Checks that both have the same effects, and carries out those without an answer.
    fn compare(&mut self) -> Result<(), Difference> {
        let effects = self.with_tables.take_effects();
        let expected = self.plain.take_effects();
        let lines = |effects: &[Effect]| effects.iter().map(|it| format!("{it:?}")).collect::<Vec<_>>();
        let (lines, expected) = (lines(&effects), lines(&expected));
        if lines != expected {
            return Err(format!("with tables\n{lines:#?}\nwithout\n{expected:#?}"));
        }
        let lengths = (self.with_tables.queue_lengths(), self.plain.queue_lengths());
        if lengths.0 != lengths.1 {
            return Err(format!("the queues differ: {lengths:?}"));
        }
        for effect in effects {
            self.carry_out(effect)?;
        }
        Ok(())
    }

    fn carry_out(&mut self, effect: Effect) -> Result<(), Difference> {
        match effect {
            Effect::Bind { pod, node, .. } => self.binds.push((pod.uid.clone(), node)),
            Effect::StartPreBind { pod, .. } => self.pre_binds.push(pod.uid.clone()),
            Effect::Evict { preemption, victims } => self.evictions.push((preemption, victims)),
            Effect::PatchPodStatus(patch) => {
                return self.change_pod(&patch.uid.clone(), |pod| patch.apply(pod));
            }
            // PostFilter takes the devices of a claim away, or a claim for extended resources is
            // deleted.
            Effect::Write { resource, call: ApiCall::Request { method, body, .. }, then, pod, .. }
                if *method == *"PUT" =>
            {
                let version = self.written_version();
                let claim = devices::replaced(body, version);
                if then.is_some() {
                    self.delete_object(&resource, &claim.key)?;
                } else {
                    self.deallocations += 1;
                    self.update_object(claim)?;
                }
                return self.end_write(pod);
            }
            Effect::Write { pod, .. } => return self.end_write(pod),
            Effect::ReadPod { .. }
            | Effect::PatchGroupStatus(_)
            | Effect::CancelPreBind(_)
            | Effect::RecordEvent(_) => {}
        }
        Ok(())
    }

    fn end_write(&mut self, pod: Option<Uid>) -> Result<(), Difference> {
        pod.map_or(Ok(()), |pod| self.handle(Input::WriteEnded { pod, retry: false }))
    }

    /// Adds a pod.
    pub(super) fn add_pod(&mut self, pod: PodInfo) -> Result<(), Difference> {
        let pod = Arc::new(pod);
        self.pods.insert(pod.uid.clone(), Arc::clone(&pod));
        let is_assigned = pod.is_assigned();
        let added = Notification::Added(pod);
        self.handle(if is_assigned { Input::AssignedPod(added) } else { Input::QueuedPod(added) })
    }

    /// Changes a pod.
    pub(super) fn change_pod(
        &mut self,
        uid: &Uid,
        change: impl FnOnce(&mut PodInfo),
    ) -> Result<(), Difference> {
        let Some(old) = self.pods.get(uid).cloned() else { return Ok(()) };
        let mut new = (*old).clone();
        change(&mut new);
        if new == *old {
            return Ok(());
        }
        new.resource_version = self.version().to_string().as_str().into();
        let new = Arc::new(new);
        self.pods.insert(uid.clone(), Arc::clone(&new));
        match (old.is_assigned(), new.is_assigned()) {
            (false, true) => {
                self.handle(Input::AssignedPod(Notification::Added(new)))?;
                self.handle(Input::QueuedPod(Notification::Deleted(old)))
            }
            (true, _) => self.handle(Input::AssignedPod(Notification::Updated { old, new })),
            (false, false) => self.handle(Input::QueuedPod(Notification::Updated { old, new })),
        }
    }

    /// Deletes a pod, and its own claims.
    pub(super) fn delete_pod(&mut self, uid: &Uid) -> Result<(), Difference> {
        let Some(old) = self.pods.remove(uid) else { return Ok(()) };
        let is_assigned = old.is_assigned();
        let key = old.key().to_string();
        let deleted = Notification::Deleted(old);
        self.handle(if is_assigned { Input::AssignedPod(deleted) } else { Input::QueuedPod(deleted) })?;
        self.delete_object(&resources::RESOURCE_CLAIM, &key)?;
        let claim = self.scheduler().objects().claims_of_owner(&uid.text()).next().cloned();
        claim.map_or(Ok(()), |claim| self.delete_object(&claim.resource, &claim.key))
    }

    /// Adds or changes a node.
    pub(super) fn set_node(&mut self, number: usize, node: NodeRecord) -> Result<(), Difference> {
        let new = Arc::new(node);
        let old = self.nodes.insert(number, Arc::clone(&new));
        self.handle(Input::Node(match old {
            Some(old) => Notification::Updated { old, new },
            None => Notification::Added(new),
        }))
    }

    pub(super) fn delete_node(&mut self, number: usize) -> Result<(), Difference> {
        match self.nodes.remove(&number) {
            Some(old) => self.handle(Input::Node(Notification::Deleted(old))),
            None => Ok(()),
        }
    }

    /// Advances the clock.
    pub(super) fn pass(&mut self, time: Duration) -> Result<(), Difference> {
        self.now = Now { wall: self.now.wall.plus(time), monotonic: self.now.monotonic + time };
        self.handle(Input::Tick)
    }
}
