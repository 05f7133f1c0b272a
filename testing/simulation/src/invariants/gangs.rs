//! Gangs and trees of gangs: none starts in part. Once a member is bound, its scheduler has a node
//! for as many others as start together, and some time later these are bound, too.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::take;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use parking_lot::Mutex;
use serde_json::Value;
use supercargo_apiserver::ApiServer;

use super::{BoundPod, InvariantChecker, Sender};
use crate::api::{COMPOSITES, POD_GROUPS, ask, list, name};

/// How long after the first pod of a gang the others are bound. All are decided at once.
const TOGETHER: Duration = Duration::from_secs(30);

/// Gangs and trees that have begun to start.
#[derive(Default)]
pub(super) struct Gangs {
    /// By name. No name is used again.
    starting: BTreeMap<String, Gang>,
    /// Pods that were deleted, and when.
    lost: Vec<(Member, Duration)>,
    /// Members that have been bound since the last look.
    binds: Vec<Bind>,
    /// Until when faults may end a start half-way.
    disturbed: Duration,
    /// Who wrote that a group is scheduled, by path.
    scheduled_by: BTreeMap<String, Arc<str>>,
}

/// A gang or a tree.
struct Gang {
    least: usize,
    /// When its first pod was bound, until that has been checked.
    began: Option<Duration>,
    /// What has started: pods, by UID, or the gangs of a tree, by name.
    started: BTreeSet<String>,
}

/// A pod of a gang.
struct Member {
    uid: String,
    gang: String,
    /// How many pods of the gang start together.
    least: Option<usize>,
    /// The tree of the gang, and how many of its gangs start together.
    tree: Option<(String, Option<usize>)>,
}

/// A member that a process has bound.
struct Bind {
    process: Arc<str>,
    member: Member,
    /// The gangs of its tree, and how many of their pods start together.
    gangs: Vec<(String, usize)>,
}

/// The pods of gangs that a scheduler has on nodes, bound or about to be bound: UIDs by gang.
pub type OnNodes = BTreeMap<String, BTreeSet<String>>;

impl Member {
    async fn new(server: &ApiServer, uid: &str, gang: &str) -> Self {
        let group = ask(server, Method::GET, &format!("{POD_GROUPS}/{gang}"), None).await.1;
        let tree = match group["spec"]["parentCompositePodGroupName"].as_str() {
            Some(tree) => {
                let root = ask(server, Method::GET, &format!("{COMPOSITES}/{tree}"), None).await.1;
                Some((tree.to_owned(), least(&root, "minGroupCount")))
            }
            None => None,
        };
        Self { uid: uid.to_owned(), gang: gang.to_owned(), least: least(&group, "minCount"), tree }
    }

    /// The pod as part of its gang, and its gang as part of a tree, if that is the name.
    fn part_of(&self, name: &str) -> Option<&String> {
        let of_gang = (self.gang == name).then_some(&self.uid);
        of_gang.or_else(|| self.tree.as_ref().filter(|(tree, _)| tree == name).map(|_| &self.gang))
    }
}

/// The least number that a gang or a tree starts with.
fn least(group: &Value, field: &str) -> Option<usize> {
    group["spec"]["schedulingPolicy"]["gang"][field].as_u64()?.try_into().ok()
}

impl Gangs {
    /// etcd was restored: what has started may run in part, and is not checked again.
    pub(super) fn restored(&mut self) {
        self.starting.values_mut().for_each(|gang| gang.began = None);
        self.lost.clear();
        self.binds.clear();
        self.scheduled_by.clear();
    }

    /// Whether faults may have ended a start half-way, even such as was decided before them.
    fn are_disturbed(&self, now: Duration) -> bool {
        !self.disturbed.is_zero() && self.disturbed + TOGETHER >= now
    }

    /// The parts of a gang or a tree that have started, or were deleted before they could.
    fn parts(&self, name: &str, since: Duration) -> BTreeSet<&str> {
        let started = self.starting.get(name).into_iter().flat_map(|gang| &gang.started);
        let lost = self.lost.iter().filter(|(_, at)| *at + TOGETHER > since);
        let lost = lost.filter_map(|(member, _)| member.part_of(name));
        started.chain(lost).map(String::as_str).collect()
    }

    /// How many parts of the gang and of the tree of a member have a node, and how many they should
    /// be.
    fn parts_of(&self, bind: &Bind, on_nodes: &OnNodes, now: Duration) -> Vec<(String, usize, usize)> {
        let pods = |gang: &str| {
            let mut parts = self.parts(gang, now);
            parts.extend(on_nodes.get(gang).into_iter().flatten().map(String::as_str));
            parts.len()
        };
        let Member { gang, least, tree, .. } = &bind.member;
        let mut found = Vec::new();
        found.extend(least.map(|least| (gang.clone(), pods(gang), least)));
        if let Some((tree, Some(least))) = tree {
            let is_there = |gang: &str| bind.gangs.iter().any(|(name, _)| name == gang);
            let whole = bind.gangs.iter().filter(|(gang, least)| pods(gang) >= *least).count();
            // Gangs that are gone.
            let others = self.parts(tree, now).into_iter().filter(|gang| !is_there(gang)).count();
            found.push((tree.clone(), whole + others, *least));
        }
        found
    }

    fn start(&mut self, name: String, least: Option<usize>, part: String, now: Duration) {
        let Some(least) = least else { return };
        let new = || Gang { least, began: Some(now), started: BTreeSet::new() };
        self.starting.entry(name).or_insert_with(new).started.insert(part);
    }
}

impl InvariantChecker {
    /// Until this time, a gang may start in part: requests are lost, processes end, pods go.
    pub fn disturb_gangs_until(&mut self, end: Duration) {
        self.gangs.disturbed = self.gangs.disturbed.max(end);
    }

    /// All faults end now.
    pub fn end_disturbance(&mut self) {
        self.gangs.disturbed = self.gangs.disturbed.min(self.now());
    }

    /// The root of a tree is deleted, perhaps while the tree starts.
    pub fn lose_tree(&mut self, name: &str) {
        if let Some(tree) = self.gangs.starting.get_mut(name) {
            tree.began = None;
        }
    }

    /// A pod is deleted that may be about to be bound.
    pub async fn lose_member(checker: &Mutex<Self>, server: &ApiServer, pod: &Value) {
        let Some(gang) = pod["spec"]["schedulingGroup"]["podGroupName"].as_str() else { return };
        let member = Member::new(server, crate::api::uid(pod), gang).await;
        let mut checker = checker.lock();
        let now = checker.now();
        checker.gangs.lost.push((member, now));
    }

    /// A pod has been bound.
    pub(super) async fn see_member(checker: &Mutex<Self>, server: &ApiServer, from: &Sender, pod: &BoundPod) {
        let Some(gang) = pod.spec.scheduling_group["podGroupName"].as_str() else { return };
        let member = Member::new(server, &pod.metadata.uid, gang).await;
        let mut gangs = Vec::new();
        if let Some((tree, _)) = &member.tree {
            let all = list(server, POD_GROUPS).await;
            let own = all.iter().filter(|gang| gang["spec"]["parentCompositePodGroupName"] == **tree);
            gangs.extend(own.map(|gang| (name(gang).to_owned(), least(gang, "minCount").unwrap_or(1))));
        }
        let mut checker = checker.lock();
        let now = checker.now();
        let Member { uid, gang, least, tree } = &member;
        checker.gangs.start(gang.clone(), *least, uid.clone(), now);
        if let Some((tree, least)) = tree {
            checker.gangs.start(tree.clone(), *least, gang.clone(), now);
        }
        checker.gangs.binds.push(Bind { process: Arc::clone(&from.process), member, gangs });
    }

    /// A scheduler that has just bound a member has nodes for as many others as start together.
    pub fn check_binds(&mut self, on_nodes: impl Fn(&str) -> Option<OnNodes>) {
        let binds = take(&mut self.gangs.binds);
        if binds.is_empty() {
            return;
        }
        let now = self.now();
        if self.is_forgiving() || self.gangs.are_disturbed(now) {
            return self.trace.count("binds of members that faults met", binds.len() as u64);
        }
        let mut known = BTreeMap::<Arc<str>, Option<OnNodes>>::new();
        let (mut checks, mut found) = (0, Vec::new());
        for bind in &binds {
            let process = &bind.process;
            let known = known.entry(Arc::clone(process)).or_insert_with(|| on_nodes(process));
            // Its process may have ended.
            let Some(on_nodes) = known else { continue };
            checks += 1;
            for (name, count, least) in self.gangs.parts_of(bind, on_nodes, now) {
                if count < least {
                    found.push(format!(
                        "{process}: a pod of {} is bound, and {count} of {least} parts of {name} have a node",
                        bind.member.gang
                    ));
                }
            }
        }
        self.trace.count("checks of gangs at a bind", checks);
        found.into_iter().for_each(|what| self.fail(what));
    }

    /// Whether no fault keeps schedulers from trying gangs.
    pub fn is_calm(&self) -> bool {
        !self.is_forgiving() && !self.gangs.are_disturbed(self.now())
    }

    /// Whether the group of this status has been scheduled, as its condition says. `false` for
    /// paths of other objects.
    pub(super) async fn is_scheduled(server: &ApiServer, path: &str) -> bool {
        let Some(group) = path.strip_suffix("/status").filter(|group| group.starts_with(POD_GROUPS)) else {
            return false;
        };
        let group = ask(server, Method::GET, group, None).await.1;
        let mut conditions = group["status"]["conditions"].as_array().into_iter().flatten();
        conditions.any(|it| it["type"] == "PodGroupInitiallyScheduled" && it["status"] == "True")
    }

    /// A group that has been scheduled stays so. Another process may not know of it yet.
    pub(super) async fn check_condition(
        checker: &Mutex<Self>,
        server: &ApiServer,
        from: &Sender,
        path: &str,
        was_scheduled: bool,
    ) {
        let is_scheduled = Self::is_scheduled(server, path).await;
        let mut checker = checker.lock();
        if is_scheduled && !was_scheduled {
            checker.gangs.scheduled_by.insert(path.to_owned(), Arc::clone(&from.process));
        } else if was_scheduled && checker.gangs.scheduled_by.get(path) == Some(&from.process) {
            checker.trace.count("checks of scheduled groups", 1);
            if !is_scheduled {
                checker.fail(format!("{}: {path} is not scheduled any more", from.process));
            }
        }
    }

    /// Gangs whose first pod was bound a while ago have enough pods, and trees enough gangs.
    pub fn check_gangs(&mut self) {
        let now = self.now();
        let disturbed = self.gangs.disturbed;
        let (mut checks, mut skipped, mut found) = (0, 0, Vec::new());
        self.gangs.lost.retain(|(_, at)| *at + 4 * TOGETHER > now);
        for (name, gang) in &mut self.gangs.starting {
            let Some(began) = gang.began.take_if(|began| *began + TOGETHER < now) else { continue };
            // What was decided before a disturbance may be bound after it.
            if disturbed + TOGETHER >= began {
                skipped += 1;
                continue;
            }
            checks += 1;
            let lost = self.gangs.lost.iter().filter(|(_, at)| *at + TOGETHER > began);
            let lost: BTreeSet<&String> = lost.filter_map(|(member, _)| member.part_of(name)).collect();
            if gang.started.iter().chain(lost).collect::<BTreeSet<_>>().len() < gang.least {
                found.push(format!("{name} has {} of {} parts", gang.started.len(), gang.least));
            }
        }
        self.trace.count("checks of gangs and trees", checks);
        self.trace.count("gangs and trees that faults met", skipped);
        found.into_iter().for_each(|what| self.fail(what));
    }
}

/// Whether a pod may wait without a condition, because its gang lacks pods, or its tree gangs.
pub fn is_incomplete(pod: &Value, gangs: &[Value], trees: &[Value], pods: &[Value]) -> bool {
    let gang_of = |pod: &Value| pod["spec"]["schedulingGroup"]["podGroupName"].clone();
    let tree_of = |gang: &Value| gang["spec"]["parentCompositePodGroupName"].clone();
    let is_complete = |gang: &&Value| {
        let members = pods.iter().filter(|pod| gang_of(pod) == name(gang)).count();
        members >= least(gang, "minCount").unwrap_or(1)
    };
    let own = gang_of(pod);
    if own.is_null() {
        return false;
    }
    let Some(gang) = gangs.iter().find(|gang| own == name(gang)).filter(is_complete) else { return true };
    let parent = tree_of(gang);
    let tree = trees.iter().find(|tree| parent == name(tree));
    let complete = gangs.iter().filter(|gang| tree_of(gang) == parent).filter(is_complete).count();
    !parent.is_null() && tree.is_none_or(|tree| complete < least(tree, "minGroupCount").unwrap_or(1))
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::super::tests::in_true_time;
    use super::*;

    fn bind(uid: &str, tree: Option<(&str, usize)>) -> Bind {
        let tree = tree.map(|(tree, least)| (tree.to_owned(), Some(least)));
        let member = Member { uid: uid.to_owned(), gang: "gang".to_owned(), least: Some(2), tree };
        Bind { process: "a".into(), member, gangs: vec![("gang".to_owned(), 2), ("other".to_owned(), 1)] }
    }

    fn on_nodes(pods: &[(&str, &str)]) -> OnNodes {
        let mut found = OnNodes::new();
        for (gang, uid) in pods {
            found.entry((*gang).to_owned()).or_default().insert((*uid).to_owned());
        }
        found
    }

    /// What the checker says of a bind, if its scheduler has these pods on nodes.
    fn said(checker: &mut InvariantChecker, bind: Bind, pods: &[(&str, &str)]) -> Vec<String> {
        checker.gangs.binds.push(bind);
        checker.check_binds(|_| Some(on_nodes(pods)));
        take(&mut checker.failures)
    }

    #[test]
    fn a_bound_member_has_others_that_have_a_node() {
        in_true_time(async |checker| {
            let (one, both) = ([("gang", "x")], [("gang", "x"), ("gang", "y")]);
            assert_eq!(said(checker, bind("x", None), &both), [""; 0]);
            let expected = "a: a pod of gang is bound, and 1 of 2 parts of gang have a node";
            assert_eq!(said(checker, bind("x", None), &one), [expected]);
            let expected = "a: a pod of gang is bound, and 1 of 2 parts of tree have a node";
            assert_eq!(said(checker, bind("x", Some(("tree", 2))), &both), [expected]);
            let all = [("gang", "x"), ("gang", "y"), ("other", "z")];
            assert_eq!(said(checker, bind("x", Some(("tree", 2))), &all), [""; 0]);
            // Those that had started before count.
            checker.gangs.start("gang".to_owned(), Some(2), "y".to_owned(), Duration::ZERO);
            assert_eq!(said(checker, bind("x", None), &one), [""; 0]);
            assert_eq!(checker.trace.counts()["checks of gangs at a bind"], 5);
        });
    }

    #[test]
    fn faults_may_end_the_start_of_a_gang() {
        in_true_time(async |checker| {
            let one = [("gang", "x")];
            advance(Duration::from_secs(1)).await;
            checker.disturb_gangs_until(Duration::from_secs(1));
            assert_eq!(said(checker, bind("x", None), &one), [""; 0]);
            advance(TOGETHER + Duration::from_secs(1)).await;
            assert_eq!(said(checker, bind("x", None), &one).len(), 1);
        });
    }
}
