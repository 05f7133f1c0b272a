//! The lifecycle of bound pods.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use super::admission::Load;
use super::pod_status::{self, PodAddresses};
use super::{Action, Kubelets, Pod, Script, Stage, Uid};
use crate::json::{flag, int, list, present, text_at};
use crate::object::StoredObject;
use crate::rest::Part;
use crate::sim::objects::Identity;

/// The first and the maximum delay before a crashed container restarts.
const FIRST_PAUSE: u64 = 10;
const LONGEST_PAUSE: u64 = 300;
/// How long until devices are tried again that could not be prepared.
const PREPARE_AGAIN: Duration = Duration::from_secs(1);

impl Kubelets {
    pub(super) fn pod_changed(&mut self, object: &StoredObject) {
        let node = object.field("spec.nodeName");
        if node.is_empty() {
            return;
        }
        match self.pods.get_key_value(&*object.uid) {
            None => self.pod_appeared(object, node),
            Some((_, pod)) if pod.written == object.version() => {}
            Some((uid, _)) => self.pod_changed_by_others(&Arc::clone(uid), object),
        }
    }

    fn pod_appeared(&mut self, object: &StoredObject, node: &str) {
        let uid: Uid = object.uid.as_ref().into();
        let value = object.value(&self.pod_kind);
        let is_new = !self.nodes.contains_key(node);
        let known = self.nodes.entry(node.into()).or_default();
        known.pods.insert(Arc::clone(&uid));
        if is_new {
            // No node of this name has been seen, and there may never be one.
            let at = Instant::now() + super::nodes::QUARANTINE;
            self.timers.set(at, Action::DeleteOrphans(node.into()));
        }
        let pod = Pod {
            namespace: object.namespace.clone(),
            name: object.name.clone(),
            node: node.into(),
            stage: Stage::Waiting,
            script: Script::of(&value, self.options.run_time),
            has_claims: !list(&value["spec"], "resourceClaims").is_empty()
                || present(&value["status"], "extendedResourceClaimStatus").is_some(),
            written: object.version(),
            stops: false,
            load: None,
            address: None,
        };
        self.pods.insert(Arc::clone(&uid), pod);
        match object.field("status.phase") {
            "Succeeded" | "Failed" => self.set_stage(&uid, Stage::Over),
            "Running" => self.resume(&uid, &value),
            _ if object.deleting => {}
            _ => self.begin(&uid, &value),
        }
        if object.deleting {
            self.set_end(&uid, &value);
        }
    }

    /// Continues with a pod that was already running when the simulation started.
    fn resume(&mut self, uid: &Uid, value: &Value) {
        let Some(pod) = self.pods.get_mut(uid) else { return };
        let load = Load::of(&value["spec"]);
        if let Some(node) = self.nodes.get_mut(&pod.node) {
            node.room.add(&load);
            pod.address = text_at(value, "/status/podIP").parse().ok();
            if let (Some(range), Some(address)) = (&mut node.range, pod.address) {
                range.claim(address);
            }
        }
        pod.load = Some(load);
        pod.stage = Stage::Running;
        self.set_script(uid);
    }

    /// Admits a pod and schedules its start, or rejects it. The pod waits while its node is not
    /// ready.
    pub(super) fn begin(&mut self, uid: &Uid, value: &Value) {
        let Some(pod) = self.pods.get_mut(uid) else { return };
        let Some(node) = self.nodes.get_mut(&pod.node).filter(|node| node.is_ready) else { return };
        let load = Load::of(&value["spec"]);
        if let Err(why) = node.room.check(&pod.node, &value["spec"], &load) {
            let now = self.objects.stamp();
            let message = format!("Pod was rejected: {}", why.message);
            self.write(uid, Stage::Over, |pod| pod_status::reject(pod, &why.reason, &message, &now));
            return;
        }
        node.room.add(&load);
        pod.load = Some(load);
        pod.stage = Stage::Starting;
        self.timers.set(Instant::now() + self.options.start_delay, Action::Run(Arc::clone(uid)));
    }

    /// Starts a pod's containers. The pod waits if its node is no longer ready.
    pub(super) fn start(&mut self, uid: &Uid) {
        let Some(pod) = self.pods.get_mut(uid) else { return };
        if !matches!(pod.stage, Stage::Starting | Stage::Crashed) || pod.stops {
            return;
        }
        if !self.nodes.get(&pod.node).is_some_and(|node| node.is_ready) {
            self.release(uid);
            self.set_stage(uid, Stage::Waiting);
            return;
        }
        if pod.stage == Stage::Starting && pod.has_claims && !self.has_devices(uid) {
            self.timers.set(Instant::now() + PREPARE_AGAIN, Action::Run(Arc::clone(uid)));
            return;
        }
        let now = self.objects.stamp();
        let place = self.place(uid);
        let mut deadline = None;
        self.write(uid, Stage::Running, |pod| {
            pod_status::run(pod, &place(pod), &now);
            deadline = int(&pod["spec"], "activeDeadlineSeconds");
        });
        self.set_script(uid);
        if let Some(seconds) = deadline.and_then(|seconds| u64::try_from(seconds).ok()) {
            let at = Instant::now() + Duration::from_secs(seconds);
            self.timers.set(at, Action::Deadline(Arc::clone(uid)));
        }
    }

    /// Whether the devices of a pod can be prepared.
    fn has_devices(&self, uid: &Uid) -> bool {
        let Some(pod) = self.pods.get(uid) else { return false };
        let object = self.objects.get(&self.pod_kind, &pod.namespace, &pod.name);
        object.is_some_and(|object| *object.uid == **uid && self.can_prepare(&object.value(&self.pod_kind)))
    }

    /// The node and addresses of a pod. Pods on the host network share its address.
    fn place(&mut self, uid: &Uid) -> impl Fn(&Value) -> PodAddresses + use<> {
        let (mut host, mut own) = (String::new(), None);
        if let Some(pod) = self.pods.get_mut(uid)
            && let Some(node) = self.nodes.get_mut(&pod.node)
        {
            host.clone_from(&node.address);
            if let Some(range) = &mut node.range {
                own = Some(*pod.address.get_or_insert_with(|| self.addresses.pod(range)));
            }
        }
        move |pod| {
            let shares = flag(&pod["spec"], "hostNetwork");
            let own = own.filter(|_| !shares).map(|own| own.to_string());
            PodAddresses { host: host.clone(), address: own.unwrap_or_else(|| host.clone()) }
        }
    }

    fn set_script(&mut self, uid: &Uid) {
        let Some(pod) = self.pods.get(uid) else { return };
        if let Script::End { after, .. } | Script::CrashLoop { after, .. } = pod.script {
            self.timers.set(Instant::now() + after, Action::FollowScript(Arc::clone(uid), pod.script));
        }
    }

    pub(super) fn follow_script(&mut self, uid: &Uid, script: Script) {
        let follows = |pod: &&Pod| pod.script == script && pod.stage == Stage::Running && !pod.stops;
        let Some(pod) = self.pods.get(uid).filter(follows) else { return };
        let now = self.objects.stamp();
        match pod.script {
            Script::Run => {}
            Script::End { exit_code, .. } => {
                self.write(uid, Stage::Over, |pod| pod_status::end(pod, exit_code, &now));
            }
            Script::CrashLoop { exit_code, .. } => {
                let mut pause = 0;
                self.write(uid, Stage::Crashed, |pod| {
                    pause = pause_after(pod_status::restarts(pod));
                    pod_status::crash(pod, exit_code, pause, &now);
                });
                let at = Instant::now() + Duration::from_secs(pause);
                self.timers.set(at, Action::Run(Arc::clone(uid)));
            }
        }
    }

    pub(super) fn deadline(&mut self, uid: &Uid) {
        let is_active = |pod: &Pod| matches!(pod.stage, Stage::Running | Stage::Crashed) && !pod.stops;
        if !self.pods.get(uid).is_some_and(is_active) {
            return;
        }
        let now = self.objects.stamp();
        self.write(uid, Stage::Over, |pod| {
            // The exit code of killed processes.
            pod_status::end(pod, 137, &now);
            pod["status"]["reason"] = "DeadlineExceeded".into();
            pod["status"]["message"] = "Pod was active on the node longer than the specified deadline".into();
        });
    }

    fn pod_changed_by_others(&mut self, uid: &Uid, object: &StoredObject) {
        let is_over = matches!(object.field("status.phase"), "Succeeded" | "Failed");
        if is_over {
            self.release(uid);
            self.set_stage(uid, Stage::Over);
        }
        let value = object.value(&self.pod_kind);
        if object.deleting {
            self.set_end(uid, &value);
        }
        let Some(pod) = self.pods.get_mut(uid) else { return };
        let script = Script::of(&value, self.options.run_time);
        let is_rewritten = std::mem::replace(&mut pod.script, script) != script;
        if pod.stage == Stage::Running && !object.deleting {
            if is_rewritten {
                self.set_script(uid);
            }
            self.resize(uid, &value);
            let now = self.objects.stamp();
            let place = self.place(uid);
            self.write(uid, Stage::Running, |pod| pod_status::run(pod, &place(pod), &now));
        }
    }

    /// Applies changed resources to a running pod at once.
    fn resize(&mut self, uid: &Uid, value: &Value) {
        let Some(pod) = self.pods.get_mut(uid) else { return };
        let load = Load::of(&value["spec"]);
        if pod.load.as_ref() == Some(&load) {
            return;
        }
        if let Some(node) = self.nodes.get_mut(&pod.node) {
            pod.load.iter().for_each(|old| node.room.remove(old));
            node.room.add(&load);
        }
        pod.load = Some(load);
    }

    /// Schedules the end of a pod that is being deleted, within its grace period.
    fn set_end(&mut self, uid: &Uid, value: &Value) {
        let Some(pod) = self.pods.get_mut(uid) else { return };
        let grace = int(&value["metadata"], "deletionGracePeriodSeconds").unwrap_or_default();
        if std::mem::replace(&mut pod.stops, true) {
            return;
        }
        let grace = Duration::from_secs(u64::try_from(grace).unwrap_or_default());
        let delay = self.options.stop_delay.min(grace);
        self.timers.set(Instant::now() + delay, Action::Stop(Arc::clone(uid)));
    }

    /// Ends a pod and deletes it without grace; only finalizers can keep it.
    pub(super) fn stop(&mut self, uid: &Uid) {
        let Some(pod) = self.pods.get(uid) else { return };
        if pod.stage != Stage::Over {
            let now = self.objects.stamp();
            self.write(uid, Stage::Over, |pod| pod_status::end(pod, 0, &now));
        }
        let Some(pod) = self.pods.get(uid) else { return };
        let name = Identity { namespace: &pod.namespace, name: &pod.name, uid };
        if let Err(status) = self.objects.delete(&self.pod_kind, &name, Some(0)) {
            tracing::debug!(message = status.message, "cannot delete a pod");
        }
    }

    /// Writes a pod's status and sets its stage.
    fn write(&mut self, uid: &Uid, stage: Stage, change: impl FnOnce(&mut Value)) {
        let Some(pod) = self.pods.get_mut(uid) else { return };
        let name = Identity { namespace: &pod.namespace, name: &pod.name, uid };
        let result = self.objects.update(&self.pod_kind, &name, Part::Status, change);
        if let Some(object) = Self::log(result) {
            pod.written = object.version();
        }
        if stage == Stage::Over {
            self.release(uid);
        }
        self.set_stage(uid, stage);
    }

    fn set_stage(&mut self, uid: &Uid, stage: Stage) {
        if let Some(pod) = self.pods.get_mut(uid) {
            pod.stage = stage;
        }
    }

    /// Removes a pod's load from its node.
    fn release(&mut self, uid: &Uid) {
        let Some(pod) = self.pods.get_mut(uid) else { return };
        let Some(node) = self.nodes.get_mut(&pod.node) else { return };
        if let Some(load) = pod.load.take() {
            node.room.remove(&load);
        }
    }

    pub(super) fn pod_gone(&mut self, uid: &str) {
        let Some((uid, _)) = self.pods.get_key_value(uid) else { return };
        let uid = Arc::clone(uid);
        self.release(&uid);
        let Some(pod) = self.pods.remove(&uid) else { return };
        if let Some(node) = self.nodes.get_mut(&pod.node) {
            node.pods.remove(&uid);
            if let (Some(range), Some(address)) = (&mut node.range, pod.address) {
                range.release(address);
            }
        }
        self.forget_empty(&pod.node);
    }
}

/// The delay before the next restart, in seconds.
fn pause_after(restarts: i64) -> u64 {
    let doubled = u32::try_from(restarts).ok().and_then(|restarts| FIRST_PAUSE.checked_shl(restarts));
    doubled.filter(|_| restarts < 6).unwrap_or(LONGEST_PAUSE).min(LONGEST_PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restart_delay_doubles_up_to_five_minutes() {
        let pauses: Vec<u64> = [0, 1, 4, 5, 100].into_iter().map(pause_after).collect();
        assert_eq!(pauses, [10, 20, 160, 300, 300]);
    }
}
