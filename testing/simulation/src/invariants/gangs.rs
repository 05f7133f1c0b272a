//! Gangs and trees of gangs: none starts in part.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use parking_lot::Mutex;
use serde_json::Value;
use supercargo_apiserver::ApiServer;

use super::{BoundPod, InvariantChecker, Sender};
use crate::api::{COMPOSITES, POD_GROUPS, ask, name};

/// How long after the first pod of a gang the others are bound. All are decided at once.
const TOGETHER: Duration = Duration::from_secs(30);

/// Gangs and trees that have begun to start.
#[derive(Default)]
pub(super) struct Gangs {
    /// By name. No name is used again.
    starting: BTreeMap<String, Gang>,
    /// Pods that were deleted, and when.
    lost: Vec<(Member, Duration)>,
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
        self.scheduled_by.clear();
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
    pub(super) async fn see_member(checker: &Mutex<Self>, server: &ApiServer, pod: &BoundPod) {
        let Some(gang) = pod.spec.scheduling_group["podGroupName"].as_str() else { return };
        let Member { uid, gang, least, tree } = Member::new(server, &pod.metadata.uid, gang).await;
        let mut checker = checker.lock();
        let now = checker.now();
        checker.gangs.start(gang.clone(), least, uid, now);
        if let Some((tree, least)) = tree {
            checker.gangs.start(tree, least, gang, now);
        }
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
