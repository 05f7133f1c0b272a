//! The API server of a history: the true state, and a watch that reports it later.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serde_json::Value;
use supercargo_framework::objects::{Object, ObjectBody as _, ResourceClaim};
use supercargo_framework::pod_claims::PodClaimSource;
use supercargo_framework::testing::{PodBuilder, node, pod};
use supercargo_framework::{NodeRecord, PodInfo, Uid};

use super::steps::GREEDY;
use crate::tests::devices;
use crate::{StatusPatch, VictimEviction};

/// A change that the watch has not delivered yet.
#[derive(Clone, Debug)]
pub(super) enum Change {
    Pod { old: Option<Arc<PodInfo>>, new: Option<Arc<PodInfo>> },
    Node { old: Option<Arc<NodeRecord>>, new: Option<Arc<NodeRecord>> },
    Object { old: Option<Arc<Object>>, new: Option<Arc<Object>> },
}

/// The kind of a pod, beside its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flavour {
    Plain,
    /// A gate holds it.
    Gated,
    /// Permit holds it.
    Waits,
    /// Permit allows every waiting pod when this one is scheduled.
    Releases,
    /// Permit rejects every waiting pod when this one is scheduled.
    Refuses,
    /// PreBind has work.
    Prepares,
    /// It has a claim of its own, for one device or two.
    Claims,
}

#[derive(Default)]
pub(super) struct Api {
    pub(super) pods: BTreeMap<usize, Arc<PodInfo>>,
    pub(super) nodes: BTreeMap<usize, Arc<NodeRecord>>,
    /// Device classes, slices and claims by their keys, which differ.
    pub(super) objects: BTreeMap<Arc<str>, Arc<Object>>,
    pub(super) watch: VecDeque<Change>,
    versions: usize,
}

impl Api {
    fn version(&mut self) -> String {
        self.next_version().to_string()
    }

    pub(super) fn next_version(&mut self) -> usize {
        self.versions += 1;
        self.versions
    }

    fn new_pod(&mut self, name: usize, cpu: usize, priority: i32, flavour: Flavour) -> Arc<PodInfo> {
        let version = self.version();
        let builder = pod(&format!("p{name}"))
            .uid(&format!("p{name}-{version}"))
            .resource_version(&version)
            .priority(priority)
            .request("cpu", &cpu.to_string());
        let mark = |builder: PodBuilder, label: &str| builder.label(label, "");
        Arc::new(
            match flavour {
                Flavour::Plain => builder,
                Flavour::Gated => builder.gate("g"),
                Flavour::Waits => mark(builder, "waits"),
                Flavour::Releases => mark(builder, "releases"),
                Flavour::Refuses => mark(builder, "refuses"),
                Flavour::Prepares => mark(builder, "prepares"),
                Flavour::Claims => devices::claiming_named(builder, &claim_name(name, &version)),
            }
            .build(),
        )
    }

    pub(super) fn create(&mut self, name: usize, cpu: usize, priority: i32, flavour: Flavour) {
        if !self.pods.contains_key(&name) {
            let new = self.new_pod(name, cpu, priority, flavour);
            if flavour == Flavour::Claims {
                let (claim, version) = (claim_name(name, &new.resource_version), self.versions);
                self.set_object(devices::claim_named(&claim, 1 + name % 2, version, None));
            }
            self.pods.insert(name, Arc::clone(&new));
            self.watch.push_back(Change::Pod { old: None, new: Some(new) });
        }
    }

    pub(super) fn delete(&mut self, name: usize) {
        if let Some(old) = self.pods.remove(&name) {
            self.delete_claim(&old);
            self.watch.push_back(Change::Pod { old: Some(old), new: None });
        }
    }

    /// Deletes the pods that fit on no node and leave no room on theirs.
    pub(super) fn delete_greedy(&mut self) {
        let is_greedy = |pod: &PodInfo| pod.requests().resource.milli_cpu >= GREEDY as i64;
        let names: Vec<_> =
            self.pods.iter().filter(|(_, pod)| is_greedy(pod)).map(|(name, _)| *name).collect();
        for name in names {
            self.delete(name);
        }
    }

    /// Deletes a pod and creates another of its name, which the watch delivers as one change.
    pub(super) fn replace(&mut self, name: usize, cpu: usize) {
        if self.pods.contains_key(&name) {
            let new = self.new_pod(name, cpu, 0, Flavour::Plain);
            let old = self.pods.insert(name, Arc::clone(&new));
            if let Some(old) = &old {
                self.delete_claim(old);
            }
            self.watch.push_back(Change::Pod { old, new: Some(new) });
        }
    }

    pub(super) fn change(&mut self, name: usize, change: impl FnOnce(&mut PodInfo)) {
        let Some(old) = self.pods.get(&name).cloned() else {
            return;
        };
        let mut new = (*old).clone();
        change(&mut new);
        if new == *old {
            return;
        }
        new.resource_version = self.version().as_str().into();
        let new = Arc::new(new);
        self.pods.insert(name, Arc::clone(&new));
        self.watch.push_back(Change::Pod { old: Some(old), new: Some(new) });
    }

    pub(super) fn name_of(&self, uid: &Uid) -> Option<usize> {
        self.pods.iter().find(|(_, pod)| pod.uid == *uid).map(|(name, _)| *name)
    }

    pub(super) fn pod(&self, uid: &Uid) -> Option<&Arc<PodInfo>> {
        self.pods.values().find(|pod| pod.uid == *uid)
    }

    /// Binds a pod if possible.
    pub(super) fn bind(&mut self, uid: &Uid, node: &Arc<str>) -> bool {
        let free = |pod: &&Arc<PodInfo>| pod.node_name.is_none() && !pod.terminating;
        let Some(name) = self.pod(uid).filter(free).and_then(|_| self.name_of(uid)) else {
            return false;
        };
        self.change(name, |pod| {
            pod.node_name = Some(Arc::clone(node));
            pod.status.nominated_node_name = None;
        });
        true
    }

    pub(super) fn patch(&mut self, patch: &StatusPatch) {
        if let Some(name) = self.name_of(&patch.uid) {
            self.change(name, |pod| patch.apply(pod));
        }
    }

    /// Preempts a pod, which is deleted at once or terminates.
    pub(super) fn evict(&mut self, name: usize, victim: &VictimEviction, at_once: bool) {
        if at_once {
            return self.delete(name);
        }
        self.change(name, |pod| {
            pod.terminating = true;
            if let Some(condition) = &victim.condition {
                pod.status.disruption_target = Some(Box::new(condition.clone()));
            }
        });
    }

    /// Ends the terminating pods.
    pub(super) fn finish_terminating(&mut self) {
        let ends = |pod: &PodInfo| pod.terminating && pod.is_assigned();
        let names: Vec<_> = self.pods.iter().filter(|(_, pod)| ends(pod)).map(|(name, _)| *name).collect();
        for name in names {
            self.delete(name);
        }
    }

    /// Adds a node, or changes the one of its name.
    pub(super) fn set_node(&mut self, name: usize, cpu: usize, cordoned: bool) {
        let version = self.version();
        let mut builder = node(&node_name(name)).resource_version(&version);
        builder = builder.allocatable("cpu", &cpu.to_string()).zone(["a", "b"][name % 2]);
        if cordoned {
            builder = builder.unschedulable();
        }
        let new = Arc::new(builder.build());
        let old = self.nodes.insert(name, Arc::clone(&new));
        self.watch.push_back(Change::Node { old, new: Some(new) });
    }

    /// Adds an object, or changes the one of its key.
    pub(super) fn set_object(&mut self, new: Object) {
        let new = Arc::new(new);
        let old = self.objects.insert(Arc::clone(&new.key), Arc::clone(&new));
        self.watch.push_back(Change::Object { old, new: Some(new) });
    }

    /// The driver of a node publishes this many devices.
    pub(super) fn set_slice(&mut self, node: usize, devices: usize) {
        let resource_version = self.version().as_str().into();
        self.set_object(Object { resource_version, ..devices::slice(node, devices) });
    }

    /// Takes the devices of a pod's claim away.
    pub(super) fn deallocate(&mut self, pod: &PodInfo) {
        if let Some(claim) = self.claim_of(pod).and_then(|claim| ResourceClaim::of(&claim.body)) {
            let mut value = Value::clone(&claim.raw);
            value["status"] = Value::Null;
            let version = self.next_version();
            self.set_object(devices::replaced(value, version));
        }
    }

    /// The claim of a pod, if it exists.
    pub(super) fn claim_of(&self, pod: &PodInfo) -> Option<&Arc<Object>> {
        let entry = pod.spec.resource_claims().first()?;
        let PodClaimSource::Claim(name) = &entry.source else { return None };
        self.objects.get(&*format!("default/{name}"))
    }

    fn delete_claim(&mut self, pod: &PodInfo) {
        if let Some(old) = self.claim_of(pod).cloned() {
            self.objects.remove(&old.key);
            self.watch.push_back(Change::Object { old: Some(old), new: None });
        }
    }

    pub(super) fn delete_node(&mut self, name: usize) {
        if let Some(old) = self.nodes.remove(&name) {
            self.watch.push_back(Change::Node { old: Some(old), new: None });
        }
    }
}

/// The name of a pod's own claim: another one for each pod of a name.
fn claim_name(pod: usize, version: &str) -> String {
    format!("claim{pod}-{version}")
}

pub(super) fn node_name(name: usize) -> String {
    format!("n{name}")
}
