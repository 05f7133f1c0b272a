//! Gangs: none starts in part.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use http::Method;
use parking_lot::Mutex;
use serde_json::Value;
use supercargo_apiserver::ApiServer;

use super::{BoundPod, InvariantChecker};
use crate::api::{POD_GROUPS, ask};

/// How long after the first pod of a gang the others are bound. All are decided at once.
const TOGETHER: Duration = Duration::from_secs(30);

/// Gangs that have begun to start.
#[derive(Default)]
pub(super) struct Gangs {
    /// By name. No name is used again.
    starting: BTreeMap<String, Gang>,
    /// The groups of pods that were deleted, and when.
    lost: Vec<(String, Duration)>,
    /// Until when faults may end a start half-way.
    disturbed: Duration,
}

struct Gang {
    least: usize,
    /// When its first pod was bound, until that has been checked.
    began: Option<Duration>,
    /// UIDs of pods that were bound.
    bound: BTreeSet<String>,
}

impl Gangs {
    /// Forgets all.
    pub(super) fn clear(&mut self) {
        self.starting.clear();
        self.lost.clear();
    }
}

impl InvariantChecker {
    /// Until this time, a gang may start in part: requests are lost, processes end, pods go.
    pub fn disturb_gangs_until(&mut self, end: Duration) {
        self.gangs.disturbed = self.gangs.disturbed.max(end);
    }

    /// A pod is deleted that may be about to be bound.
    pub fn lose_member(&mut self, pod: &Value) {
        if let Some(group) = pod["spec"]["schedulingGroup"]["podGroupName"].as_str() {
            self.gangs.lost.push((group.to_owned(), self.now()));
        }
    }

    /// A pod has been bound.
    pub(super) async fn see_member(checker: &Mutex<Self>, server: &ApiServer, pod: &BoundPod) {
        let Some(name) = pod.spec.scheduling_group["podGroupName"].as_str() else { return };
        let group = ask(server, Method::GET, &format!("{POD_GROUPS}/{name}"), None).await.1;
        let Some(least) = group["spec"]["schedulingPolicy"]["gang"]["minCount"].as_u64() else { return };
        let mut checker = checker.lock();
        let now = checker.now();
        let gang = checker.gangs.starting.entry(name.to_owned()).or_insert_with(|| Gang {
            least: least as usize,
            began: Some(now),
            bound: BTreeSet::new(),
        });
        gang.bound.insert(pod.metadata.uid.clone());
    }

    /// Gangs whose first pod was bound a while ago have enough pods.
    pub fn check_gangs(&mut self) {
        let now = self.now();
        let disturbed = self.gangs.disturbed;
        let (mut checks, mut found) = (0, Vec::new());
        self.gangs.lost.retain(|(_, at)| *at + 4 * TOGETHER > now);
        for (name, gang) in &mut self.gangs.starting {
            let Some(began) = gang.began.take_if(|began| *began + TOGETHER < now) else { continue };
            // What was decided before a disturbance may be bound after it.
            if disturbed + TOGETHER >= began {
                continue;
            }
            checks += 1;
            let is_lost = |(of, at): &&(String, Duration)| of == name && *at + TOGETHER > began;
            let lost = self.gangs.lost.iter().filter(is_lost).count();
            if gang.bound.len() + lost < gang.least {
                found.push(format!("gang {name}: {} of {} pods are bound", gang.bound.len(), gang.least));
            }
        }
        self.trace.count("checks of gangs", checks);
        found.into_iter().for_each(|what| self.fail(what));
    }
}

/// Whether a pod may wait without a condition, because its group or some of the group's pods are
/// missing. In trees any pod may.
pub fn is_incomplete(pod: &Value, groups: &[Value], pods: &[Value]) -> bool {
    let group_of = |pod: &Value| pod["spec"]["schedulingGroup"]["podGroupName"].clone();
    let name = group_of(pod);
    if name.is_null() {
        return false;
    }
    groups.iter().find(|group| group["metadata"]["name"] == name).is_none_or(|group| {
        let spec = &group["spec"];
        let least = spec["schedulingPolicy"]["gang"]["minCount"].as_u64().unwrap_or(1);
        let members = pods.iter().filter(|other| group_of(other) == name).count() as u64;
        !spec["parentCompositePodGroupName"].is_null() || members < least
    })
}
