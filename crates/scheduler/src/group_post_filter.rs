//! PodGroupPostFilter: plugins try to make a group schedulable on a cluster that they may change.
//!
//! They change the live cache, because tables follow it. Each node is kept as it was and restored
//! when the plugin returns.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use supercargo_framework::caching::CachingFilters as _;
use supercargo_framework::context::Command;
use supercargo_framework::objects::GroupKey;
use supercargo_framework::plugin::{Assignments, GroupCycle, NodeStatuses, Nominations};
use supercargo_framework::signature::Signature;
use supercargo_framework::{Code, Context, CycleState, NodeIndex, NodeInfo, Now, PodInfo, Status, Text, Uid};

use crate::dry_run::{Change, DryRun};
use crate::group_cycle::TriedGroup;
use crate::group_tree::{GroupFailure, Placed, Trial};
use crate::scheduler::Scheduler;
use supercargo_evaluation::extender::Calls;
use supercargo_runtime::observer::{Observation, Point, Timespan};
use supercargo_runtime::panic_guard::panic_report;
use supercargo_runtime::profile::ProfileIndex;

/// The most members that a build with debug assertions checks again and again.
const MOST_CHECKED: usize = 16;

/// A member, and the node that it would get.
struct Proposal {
    /// Its position among the members.
    member: usize,
    node: NodeIndex,
    placed: Placed,
}

struct PostFilterCycle<'a, 'b> {
    scheduler: &'a mut Scheduler,
    now: Now,
    group: &'a mut TriedGroup<'b>,
    tried: &'a Trial,
    calls: &'a mut dyn Calls,
    proposals: Vec<Proposal>,
    /// Their positions by node.
    by_node: BTreeMap<NodeIndex, Vec<usize>>,
    /// The positions of those whose state follows pods, by signature. A pod changes the states of
    /// all of one signature, or of none.
    followers: BTreeMap<(ProfileIndex, Option<Signature>), Vec<usize>>,
    /// Whether pods on one node concern only the proposals for it and the followers.
    are_apart: bool,
    /// The positions of those on their nodes.
    on_nodes: Vec<usize>,
    /// The pods that are off their nodes.
    removed: BTreeSet<Uid>,
    /// The nodes that have changed, or whose followers have, since their proposals were checked.
    unchecked: BTreeSet<NodeIndex>,
    /// The changed nodes, as they were.
    earlier: BTreeMap<NodeIndex, NodeInfo>,
    commands: Vec<Command>,
}

impl Scheduler {
    /// Runs PodGroupPostFilter until a plugin makes the group schedulable or rules that out.
    pub(crate) fn post_filter_group(
        &mut self,
        now: Now,
        mut group: TriedGroup<'_>,
        tried: &Trial,
        calls: &mut dyn Calls,
    ) -> (Nominations, Status) {
        let from = self.observer.time_point();
        let profile = group.members[0].profile;
        let ((nominations, status), commands) = self.run_group_post_filters(now, &mut group, tried, calls);
        self.execute(now, commands);
        let took = Timespan { from, to: self.observer.time_point() };
        let (pod, status_code) = (&group.members[0].pod, status.code());
        self.observer.observe(Observation::ExtensionPoint {
            profile: profile.0,
            pod,
            point: Point::PodGroupPostFilter,
            status: status_code,
            took,
        });
        (nominations, status)
    }

    /// The answer, and the commands of the plugins that gave it.
    pub(crate) fn run_group_post_filters(
        &mut self,
        now: Now,
        group: &mut TriedGroup<'_>,
        tried: &Trial,
        calls: &mut dyn Calls,
    ) -> ((Nominations, Status), Vec<Command>) {
        let plugins = &self.profiles.get(group.members[0].profile).pod_group_post_filter;
        let plugins: Vec<_> = plugins.iter().map(|it| (it.name, Arc::clone(&it.plugin))).collect();
        let (mut reasons, mut all_commands) = (Vec::<Text>::new(), Vec::new());
        for (name, plugin) in plugins {
            // Not by `PluginCalls`, which would borrow a part of the scheduler: the plugin gets all
            // of it.
            let from = self.observer.time_point();
            self.current_plugin.take();
            let mut cycle = PostFilterCycle {
                scheduler: self,
                now,
                group,
                tried,
                calls,
                proposals: Vec::new(),
                by_node: BTreeMap::new(),
                followers: BTreeMap::new(),
                are_apart: true,
                on_nodes: Vec::new(),
                removed: BTreeSet::new(),
                unchecked: BTreeSet::new(),
                earlier: BTreeMap::new(),
                commands: Vec::new(),
            };
            let answer = catch_unwind(AssertUnwindSafe(|| plugin.pod_group_post_filter(&mut cycle)));
            let has_searched = !cycle.earlier.is_empty();
            let commands = cycle.end();
            let (nominations, status) = answer.unwrap_or_else(|panic| self.panicked(name, &*panic));
            let took = Timespan { from, to: self.observer.time_point() };
            self.observer.observe(Observation::Plugin {
                pod: &group.members[0].pod,
                plugin: name,
                point: Point::PodGroupPostFilter,
                status: status.code(),
                took,
            });
            // It has tried the group without some pods, or no pod can be removed.
            if has_searched || status.code() == Code::UnschedulableAndUnresolvable {
                let status = status.code();
                self.observer.observe(Observation::GroupPreemptionEvaluated { plugin: name, status, took });
            }
            let answer = match status.code() {
                Code::Success => Some((nominations, status)),
                // This status is final: reasons of earlier plugins are dropped.
                Code::UnschedulableAndUnresolvable => Some((Nominations::new(), status)),
                Code::Unschedulable => {
                    reasons.extend(status.reasons().iter().cloned());
                    None
                }
                _ => {
                    let message = status.message();
                    let text = format!("error in {name:?} PodGroupPostFilter plugins: {message}");
                    return ((Nominations::new(), Status::error(text)), all_commands);
                }
            };
            all_commands.extend(commands);
            if let Some(answer) = answer {
                return (answer, all_commands);
            }
        }
        ((Nominations::new(), Status::unschedulable(reasons.join(", "))), all_commands)
    }

    fn panicked(&mut self, plugin: &'static str, panic: &(dyn Any + Send)) -> (Nominations, Status) {
        let (phase, plugin) = self.current_plugin.take().unwrap_or(("PodGroupPostFilter", plugin));
        let text = panic_report(phase, plugin, panic);
        self.anomaly(&text);
        (Nominations::new(), Status::error(text))
    }
}

impl PostFilterCycle<'_, '_> {
    /// Keeps a node as it is before its first change.
    fn keep(&mut self, index: NodeIndex) {
        let cache = &self.scheduler.cache;
        self.earlier.entry(index).or_insert_with(|| cache.node_at(index).clone());
    }

    /// The node of a pod; `None` if it is not in the cache.
    fn node_of(&self, pod: &PodInfo) -> Option<NodeIndex> {
        let cache = &self.scheduler.cache;
        cache.nodes().index_of(cache.node_of(&pod.uid)?)
    }

    /// Prepares a member for the node that it would get, beside those before it.
    fn prepare(&mut self, member: usize, node: &Arc<str>) -> Result<(), Status> {
        let Some(index) = self.scheduler.cache.nodes().index_of(node) else {
            return Err(Status::error(format!("node {node:?} is gone")));
        };
        let queued = &self.group.members[member];
        let mut state = CycleState::new();
        let prepared = self.scheduler.with_cycle(self.now, &queued.pod, queued.profile, |cycle| {
            cycle.prepare(&mut state, index).map(|()| DryRun::new(cycle, &state).follow_pods())
        });
        let follows_pods = prepared.map_err(|kind| Status::error(kind.to_string()))?;
        let profile = self.scheduler.profiles.get(queued.profile);
        self.are_apart &= profile.table_plugins.is_some();
        let at = self.proposals.len();
        if follows_pods {
            let signature = profile.sign(&self.scheduler.context(self.now), &queued.pod);
            self.followers.entry((queued.profile, signature)).or_default().push(at);
        }
        self.by_node.entry(index).or_default().push(at);
        self.proposals.push(Proposal {
            member,
            node: index,
            placed: Placed { node: Arc::clone(node), state },
        });
        let reserves = self.place(at);
        // What it reserves may be missing on other nodes.
        self.are_apart &= !reserves;
        Ok(())
    }

    /// Puts a member on its node. Returns whether Reserve requests something. As upstream, what it
    /// says does not matter.
    fn place(&mut self, at: usize) -> bool {
        self.keep(self.proposals[at].node);
        self.on_nodes.push(at);
        let proposal = &mut self.proposals[at];
        let index = proposal.node;
        let queued = &self.group.members[proposal.member];
        self.scheduler.cache.try_on(index, |info| info.add_pod(Arc::clone(&queued.pod)));
        let Placed { node, state } = &mut proposal.placed;
        let (_, commands) = self.scheduler.reserve_only(self.now, queued, node, state);
        let reserves = !commands.is_empty();
        self.scheduler.execute(self.now, local(commands));
        reserves
    }

    /// Takes all members off their nodes, the last one first.
    fn remove_all(&mut self) {
        while let Some(at) = self.on_nodes.pop() {
            let proposal = &mut self.proposals[at];
            let queued = &self.group.members[proposal.member];
            let Placed { node, state } = &mut proposal.placed;
            let commands = self.scheduler.unreserve_only(self.now, queued, node, state);
            self.scheduler.execute(self.now, local(commands));
            self.scheduler.cache.try_on(proposal.node, |info| drop(info.remove_pod(queued.uid())));
        }
    }

    /// Passes a change of a node's pods to the states that follow it.
    fn follow(&mut self, change: Change, pod: &PodInfo, index: NodeIndex) -> Result<(), Status> {
        let (scheduler, now) = (&*self.scheduler, self.now);
        for ((_, signature), alike) in &self.followers {
            for at in alike {
                let proposal = &mut self.proposals[*at];
                let queued = &self.group.members[proposal.member];
                let state = &mut proposal.placed.state;
                let followed = scheduler.with_cycle(now, &queued.pod, queued.profile, |cycle| {
                    let node = scheduler.cache.node_at(index);
                    DryRun::new(cycle, state).follow(change, state, &queued.pod, pod, node)
                });
                let has_changed = followed.map_err(|error| Status::error(error.message()))?;
                if has_changed {
                    self.unchecked.insert(proposal.node);
                } else if signature.is_some() {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Whether these members fit on their nodes, each beside those before it.
    fn all_fit(&mut self, proposals: impl IntoIterator<Item = usize>) -> bool {
        let all_fit = proposals.into_iter().all(|at| {
            let Proposal { member, node, placed, .. } = &self.proposals[at];
            let (queued, node) = (&self.group.members[*member], *node);
            let fits = self.scheduler.with_cycle(self.now, &queued.pod, queued.profile, |cycle| {
                cycle.verdict(&placed.state, node).is_success()
            });
            if fits {
                self.place(at);
            }
            fits
        });
        self.remove_all();
        all_fit
    }

    /// Undoes all changes. Returns the commands.
    fn end(mut self) -> Vec<Command> {
        self.remove_all();
        for (index, earlier) in self.earlier {
            self.scheduler.cache.restore(index, earlier);
        }
        self.commands
    }
}

/// The commands that a trial may execute: those that the opposite command undoes.
fn local(commands: Vec<Command>) -> Vec<Command> {
    let is_local = |command: &Command| {
        use Command::{AddPending, Assume, RemovePending, Restore, SharePending};
        matches!(command, Assume(_) | Restore(_) | AddPending(_) | SharePending { .. } | RemovePending(_))
    };
    commands.into_iter().filter(is_local).collect()
}

impl GroupCycle for PostFilterCycle<'_, '_> {
    fn context(&self) -> Context<'_> {
        self.scheduler.context(self.now)
    }

    fn group(&self) -> &GroupKey {
        &self.group.root.key
    }

    fn pods(&self) -> Vec<Arc<PodInfo>> {
        self.group.members.iter().map(|member| Arc::clone(&member.pod)).collect()
    }

    fn rejected(&self) -> Vec<(Arc<PodInfo>, &NodeStatuses)> {
        self.tried
            .rejected(self.group.root)
            .into_iter()
            .map(|(member, error)| (Arc::clone(&self.group.members[member].pod), &*error.diagnosis.statuses))
            .collect()
    }

    fn remove_pod(&mut self, pod: &Arc<PodInfo>) -> Result<(), Status> {
        let Some(index) = self.node_of(pod) else { return Ok(()) };
        self.keep(index);
        if !self.scheduler.cache.set_aside(&pod.uid) {
            return Ok(());
        }
        self.removed.insert(pod.uid.clone());
        self.follow(Change::RemovePod, pod, index)
    }

    fn add_pod(&mut self, pod: &Arc<PodInfo>) -> Result<(), Status> {
        let Some(index) = self.node_of(pod).filter(|_| self.removed.remove(&pod.uid)) else { return Ok(()) };
        self.scheduler.cache.put_back(&pod.uid);
        self.unchecked.insert(index);
        self.follow(Change::AddPod, pod, index)
    }

    fn schedule(&mut self) -> Result<Assignments, Status> {
        self.proposals.clear();
        self.by_node.clear();
        self.followers.clear();
        self.unchecked.clear();
        self.are_apart = true;
        let Self { scheduler, now, group, calls, .. } = self;
        let began: Vec<_> = group.members.iter().map(|member| member.began).collect();
        let trial = scheduler.try_root(*now, group, &mut **calls);
        for (member, began) in group.members.iter_mut().zip(began) {
            member.began = began;
        }
        match &trial.refusal {
            None => {}
            Some(GroupFailure::Unschedulable(message)) => return Err(Status::unschedulable(message.clone())),
            Some(GroupFailure::Error(message)) => return Err(Status::error(message.clone())),
        }
        let placed = trial.placed(self.group.root);
        let prepared = placed.iter().try_for_each(|(member, placed)| self.prepare(*member, &placed.node));
        self.remove_all();
        prepared?;
        let pod =
            |it: &Proposal| (Arc::clone(&self.group.members[it.member].pod), Arc::clone(&it.placed.node));
        Ok(self.proposals.iter().map(pod).collect())
    }

    fn still_fits(&mut self) -> bool {
        if !self.are_apart {
            return self.all_fit(0..self.proposals.len());
        }
        // If they do not fit, the plugin takes the last pods off again, so they fit as before.
        let unchecked = std::mem::take(&mut self.unchecked);
        let on_them = unchecked.iter().filter_map(|index| self.by_node.get(index)).flatten();
        let on_them: Vec<usize> = on_them.copied().collect();
        let fit = self.all_fit(on_them);
        debug_assert!(
            self.proposals.len() > MOST_CHECKED || fit == self.all_fit(0..self.proposals.len()),
            "pods on other nodes matter"
        );
        fit
    }

    fn command(&mut self, command: Command) {
        self.commands.push(command);
    }
}
