//! The steps of a history.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use supercargo_framework::binding::{BindOutcome, Certainty};
use supercargo_framework::pod_claims::PodClaimSource;
use supercargo_framework::{Now, PodInfo, Status, Uid};

use super::api::{Change, Flavour, node_name};
use super::model::World;
use crate::tests::devices;
use crate::tests::test_bed::failed;
use crate::{Eviction, Input, PodRead};

/// More cores than any node has, and in milli-cores most of what 64 bits hold.
pub(super) const GREEDY: usize = 9_000_000_000_000_000;

/// The outcome of a call to bind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bind {
    /// The pod is bound, and the answer arrives.
    Answered,
    /// The server refuses.
    Refused,
    /// The pod is bound, and the answer is lost.
    DoneAndLost,
    /// The pod is not bound, and the answer is lost.
    Lost,
}

/// A change of a pod by others.
#[derive(Clone, Copy, Debug)]
pub(super) enum PodChange {
    Delete,
    Replace { cpu: usize },
    Terminate,
    Ungate,
    Touch,
    Nominate { node: usize },
    BindElsewhere { node: usize },
}

/// One step of a history. Numbers select among what exists.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Create {
        name: usize,
        cpu: usize,
        priority: i32,
        flavour: Flavour,
    },
    Pod {
        which: usize,
        change: PodChange,
    },
    SetNode {
        name: usize,
        cpu: usize,
        cordoned: bool,
    },
    DeleteNode(usize),
    Deliver(usize),
    /// The watch breaks: the informer lists again and delivers the differences.
    Relist,
    /// Handlers get every object again.
    TellAgain {
        as_update: bool,
    },
    Cycle,
    Bind {
        which: usize,
        how: Bind,
    },
    Read {
        which: usize,
        fails: bool,
    },
    PreBind {
        which: usize,
        how: usize,
    },
    Patch {
        carried_out: bool,
    },
    /// Claims from which PostFilter takes the devices are written.
    Write {
        carried_out: bool,
    },
    /// The driver of a node has this many devices.
    SetSlice {
        node: usize,
        devices: usize,
    },
    /// Somebody else takes the devices of a pod's claim away.
    Deallocate {
        which: usize,
    },
    /// Victims of a preemption are deleted at once, terminate, or cannot be deleted.
    Evict {
        which: usize,
        how: usize,
    },
    Pass(u64),
    /// The configuration is reloaded, and serves the pods or not.
    Reload {
        serves: bool,
    },
}

/// Any step, or a reload.
pub(super) fn step_or_reload() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => step(),
        1 => prop::bool::weighted(0.7).prop_map(|serves| Step::Reload { serves }),
    ]
}

pub(super) fn step() -> impl Strategy<Value = Step> {
    let (pod, node) = (0..5_usize, 0..3_usize);
    // Others bind pods wherever they like: two of the greedy ones are more than 64 bits hold.
    let cpu = prop_oneof![15 => 1..4_usize, 1 => Just(GREEDY)];
    let flavour = prop_oneof![
        4 => Just(Flavour::Plain),
        1 => Just(Flavour::Gated),
        2 => Just(Flavour::Waits),
        1 => Just(Flavour::Releases),
        1 => Just(Flavour::Refuses),
        2 => Just(Flavour::Prepares),
        4 => Just(Flavour::Claims),
    ];
    let bind = prop_oneof![
        4 => Just(Bind::Answered),
        1 => Just(Bind::Refused),
        2 => Just(Bind::DoneAndLost),
        2 => Just(Bind::Lost),
    ];
    let change = prop_oneof![
        2 => Just(PodChange::Delete),
        1 => cpu.clone().prop_map(|cpu| PodChange::Replace { cpu }),
        2 => Just(PodChange::Terminate),
        1 => Just(PodChange::Ungate),
        2 => Just(PodChange::Touch),
        1 => node.clone().prop_map(|node| PodChange::Nominate { node }),
        3 => node.clone().prop_map(|node| PodChange::BindElsewhere { node }),
    ];
    prop_oneof![
        10 => (pod.clone(), cpu.clone(), 0..3_i32, flavour)
            .prop_map(|(name, cpu, priority, flavour)| Step::Create { name, cpu, priority, flavour }),
        10 => (pod, change).prop_map(|(which, change)| Step::Pod { which, change }),
        4 => (node.clone(), 1..7_usize, prop::bool::weighted(0.2))
            .prop_map(|(name, cpu, cordoned)| Step::SetNode { name, cpu, cordoned }),
        1 => node.clone().prop_map(Step::DeleteNode),
        2 => (node, 0..4_usize).prop_map(|(node, devices)| Step::SetSlice { node, devices }),
        1 => (0..5_usize).prop_map(|which| Step::Deallocate { which }),
        2 => prop::bool::weighted(0.8).prop_map(|carried_out| Step::Write { carried_out }),
        12 => (1..4_usize).prop_map(Step::Deliver),
        1 => Just(Step::Relist),
        1 => any::<bool>().prop_map(|as_update| Step::TellAgain { as_update }),
        14 => Just(Step::Cycle),
        8 => (0..4_usize, bind).prop_map(|(which, how)| Step::Bind { which, how }),
        4 => (0..4_usize, prop::bool::weighted(0.3)).prop_map(|(which, fails)| Step::Read { which, fails }),
        4 => (0..4_usize, 0..4_usize).prop_map(|(which, how)| Step::PreBind { which, how }),
        3 => prop::bool::weighted(0.8).prop_map(|carried_out| Step::Patch { carried_out }),
        4 => (0..4_usize, 0..4_usize).prop_map(|(which, how)| Step::Evict { which, how }),
        6 => prop_oneof![0..3_000_u64, 3_000..15_000_u64, Just(330_000_u64)].prop_map(Step::Pass),
    ]
}

impl World {
    pub(super) fn make(&mut self, step: Step) {
        match step {
            Step::Create { name, cpu, priority, flavour } => self.api.create(name, cpu, priority, flavour),
            Step::Pod { which, change } => {
                let names: Vec<_> = self.api.pods.keys().copied().collect();
                if let Some(name) = which.checked_rem(names.len()).map(|which| names[which]) {
                    self.change_pod(name, change);
                }
            }
            Step::SetNode { name, cpu, cordoned } => self.api.set_node(name, cpu, cordoned),
            Step::DeleteNode(name) => self.api.delete_node(name),
            Step::Deliver(changes) => (0..changes).for_each(|_| _ = self.deliver()),
            Step::Relist => self.relist(),
            Step::TellAgain { as_update } => self.tell_again(as_update),
            Step::Cycle => _ = self.cycle(),
            Step::Bind { which, how } => self.answer_bind(which, how),
            Step::Read { which, fails } => self.answer_read(which, fails),
            Step::PreBind { which, how } => self.answer_pre_bind(which, how),
            Step::Patch { carried_out } => {
                for patch in std::mem::take(&mut self.patches) {
                    if carried_out {
                        self.api.patch(&patch);
                    }
                }
            }
            Step::Write { carried_out } => self.answer_writes(carried_out),
            Step::SetSlice { node, devices } => self.api.set_slice(node, devices),
            Step::Deallocate { which } => {
                let pods: Vec<_> = self.api.pods.values().cloned().collect();
                if let Some(pod) = which.checked_rem(pods.len()).map(|which| &pods[which]) {
                    self.api.deallocate(pod);
                }
            }
            Step::Evict { which, how } => self.answer_eviction(which, how),
            Step::Reload { serves } => self.reload(serves),
            Step::Pass(millis) => self.pass(Duration::from_millis(millis)),
        }
        self.check();
    }

    pub(super) fn pass(&mut self, time: Duration) {
        self.now = Now { wall: self.now.wall.plus(time), monotonic: self.now.monotonic + time };
        self.handle(Input::Tick);
        let wait = self.scheduler().next_deadline(self.now);
        assert!(!wait.is_zero(), "nothing is overdue");
        assert!(wait <= Duration::from_secs(30), "the queue is flushed twice a minute");
    }

    fn change_pod(&mut self, name: usize, change: PodChange) {
        let pod = Arc::clone(&self.api.pods[&name]);
        match change {
            PodChange::Delete => self.api.delete(name),
            PodChange::Replace { cpu } => self.api.replace(name, cpu),
            PodChange::Terminate => self.api.change(name, |pod| pod.terminating = true),
            PodChange::Ungate => self.api.change(name, |pod| pod.scheduling_gates = Box::default()),
            PodChange::Touch => self.api.change(name, |pod| pod.generation += 1),
            PodChange::Nominate { node } if !pod.is_assigned() => {
                self.api.change(name, |pod| pod.status.nominated_node_name = Some(node_name(node).into()));
            }
            PodChange::Nominate { .. } => {}
            PodChange::BindElsewhere { node } => _ = self.api.bind(&pod.uid, &node_name(node).into()),
        }
    }

    fn relist(&mut self) {
        let (mut pods, mut nodes) = (Vec::new(), Vec::new());
        let known: std::collections::BTreeSet<_> = self
            .pods
            .keys()
            .cloned()
            .chain(self.api.pods.values().map(|pod| Arc::clone(&pod.name)))
            .collect();
        for name in known {
            let new = self.api.pods.values().find(|pod| pod.name == name).cloned();
            pods.push((self.pods.get(&name).cloned(), new));
        }
        for change in std::mem::take(&mut self.api.watch) {
            match change {
                Change::Node { old, new } => nodes.push((old, new)),
                Change::Object { old, new } => self.tell_object(old, new),
                Change::Pod { .. } => {}
            }
        }
        for (old, new) in nodes {
            self.tell_node(old, new);
        }
        for (old, new) in pods {
            self.tell_pod(old, new);
        }
    }

    fn tell_again(&mut self, as_update: bool) {
        for pod in self.pods.values().cloned().collect::<Vec<_>>() {
            let old = as_update.then(|| Arc::clone(&pod));
            self.tell_pod(old, Some(pod));
        }
    }

    pub(super) fn answer_bind(&mut self, which: usize, how: Bind) {
        if self.binds.is_empty() {
            return;
        }
        let (uid, node) = self.binds.remove(which % self.binds.len());
        let exists = self.api.pod(&uid).is_some();
        let tries = matches!(how, Bind::Answered | Bind::DoneAndLost);
        let done = tries && self.api.bind(&uid, &node);
        let outcome = match how {
            Bind::Refused => failed(Certainty::Refused, "refused"),
            Bind::DoneAndLost | Bind::Lost => failed(Certainty::Unknown, "lost"),
            Bind::Answered if done => BindOutcome::Bound,
            Bind::Answered if exists => failed(Certainty::Unknown, "conflict"),
            Bind::Answered => {
                self.claim(&uid, None);
                failed(Certainty::NotFound, "not found")
            }
        };
        self.handle(Input::Bound { pod: uid, by: "DefaultBinder".into(), outcome });
    }

    pub(super) fn answer_read(&mut self, which: usize, fails: bool) {
        if self.reads.is_empty() {
            return;
        }
        let uid = self.reads.remove(which % self.reads.len());
        let node = |pod: &Arc<PodInfo>| pod.node_name.clone();
        let read = match self.api.pod(&uid).map(node) {
            _ if fails => PodRead::Failed,
            None => PodRead::Gone,
            Some(node) => PodRead::Exists(node),
        };
        let is_uncertain = self.scheduler().bindings.get(&uid).is_some();
        match &read {
            PodRead::Failed => {}
            _ if !is_uncertain => {}
            PodRead::Gone | PodRead::Exists(None) => self.claim(&uid, None),
            PodRead::Exists(Some(node)) => self.claim(&uid, Some(node)),
        }
        self.handle(Input::PodRead { pod: uid, read });
    }

    pub(super) fn answer_eviction(&mut self, which: usize, how: usize) {
        if self.evictions.is_empty() {
            return;
        }
        let (preemption, victims) = self.evictions.remove(which % self.evictions.len());
        let mut outcomes = Vec::new();
        for victim in victims {
            outcomes.push(match self.api.name_of(&victim.uid) {
                None => Eviction::Gone,
                Some(_) if how == 3 => Eviction::Failed("it broke".to_owned()),
                Some(name) => {
                    self.api.evict(name, &victim, how == 0);
                    Eviction::Deleted
                }
            });
        }
        // The watch may deliver the change before the answer arrives.
        if how == 1 {
            while self.deliver() {}
        }
        self.handle(Input::Evicted { preemption, outcomes });
    }

    pub(super) fn answer_pre_bind(&mut self, which: usize, how: usize) {
        if self.pre_binds.is_empty() {
            return;
        }
        let uid = self.pre_binds.remove(which % self.pre_binds.len());
        let status = match how {
            1 => Status::error("it broke"),
            2 => Status::unschedulable("it will not do"),
            _ => self.write_claim(&uid, how == 3),
        };
        self.handle(Input::PreBound { pod: uid, status: status.by("Gatekeeper") });
    }

    /// PreBind writes the allocation of a pod's claim. Its answer may be lost.
    fn write_claim(&mut self, uid: &Uid, is_lost: bool) -> Status {
        let Some(claim) = self.claim_of_binding(uid) else { return Status::success() };
        let Some(pending) = self.scheduler().objects().pending(&claim).cloned() else {
            return Status::success();
        };
        if !self.api.objects.contains_key(&pending.key) {
            return Status::error("not found");
        }
        let written =
            devices::written(&pending, self.api.next_version(), self.now.wall).expect("it is a claim");
        self.api.set_object(written.clone());
        if is_lost {
            return Status::error("lost");
        }
        self.handle(Input::Written(Arc::new(written)));
        Status::success()
    }

    /// The UID of the claim of a pod that is being bound.
    fn claim_of_binding(&self, uid: &Uid) -> Option<Arc<str>> {
        let binding = self.scheduler().bindings.get(uid)?;
        match &binding.pod().spec.resource_claims().first()?.source {
            PodClaimSource::Claim(name) => Some(Arc::clone(name)),
            _ => None,
        }
    }

    pub(super) fn answer_writes(&mut self, carried_out: bool) {
        for (claim, pod) in std::mem::take(&mut self.writes) {
            let written = devices::replaced(claim, self.api.next_version());
            if carried_out && self.api.objects.contains_key(&written.key) {
                self.api.set_object(written.clone());
                self.handle(Input::Written(Arc::new(written)));
            }
            self.handle(Input::WriteEnded { pod, retry: !carried_out });
        }
    }
}
