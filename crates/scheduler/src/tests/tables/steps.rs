//! The steps of a history.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use supercargo_framework::binding::{BindOutcome, Certainty};
use supercargo_framework::objects::{Object, resources};
use supercargo_framework::pod::OwnerRef;
use supercargo_framework::pod_claims::PodClaimSource;
use supercargo_framework::{PodInfo, Status, Text, Uid};

use super::tally::APP;
use super::templates::{OBJECTS, Shape, TEMPLATES, UNIQUE, of_kind, of_shape, of_template};
use super::twins::{Difference, SECOND, Twins};
use crate::tests::devices;
use crate::tests::test_bed::failed;
use crate::{Eviction, Input, Notification};

/// The deviation of a pod from its template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Particular {
    Nothing,
    /// No other pod has its labels.
    UniqueLabel,
    Priority(i32),
    Gated,
    /// It is nominated for a node, and fits none.
    Nominated {
        node: usize,
    },
    /// A ReplicaSet controls it.
    Owned,
    /// It requests a scalar resource.
    Scalar,
    /// It is of the second profile, if there is one.
    OtherProfile,
}

/// A change of a pod.
#[derive(Clone, Copy, Debug)]
pub(super) enum PodChange {
    Delete,
    Terminate,
    Ungate,
    Touch,
    Relabel,
    Nominate {
        node: usize,
    },
    /// Its CPU request changes: in the spec if it waits, in the kubelet's status if it runs.
    Resize {
        milli_cpu: i64,
    },
}

/// The new requests of resizes. Two of the last exceed 64 bits.
const MILLI_CPU: [i64; 5] = [100, 500, 1500, 3000, i64::MAX / 2 + 1];

/// A change of a node.
#[derive(Clone, Copy, Debug)]
pub(super) enum NodeChange {
    Zone(usize),
    Cpu(usize),
    Taint(usize),
    Cordon,
    Ssd,
    Images(usize),
    Pods(usize),
    Remove,
}

/// One step of a history. Numbers select among what exists.
#[derive(Clone, Debug)]
pub(super) enum Step {
    /// Pods of one of the history's templates are added and tried, and bound if `confirmed`.
    Wave {
        template: usize,
        particular: Particular,
        pods: usize,
        confirmed: bool,
    },
    /// Pods bound by another scheduler.
    Bound {
        template: usize,
        node: usize,
        pods: usize,
    },
    Pod {
        which: usize,
        change: PodChange,
    },
    Reap {
        which: usize,
        pods: usize,
    },
    Node {
        which: usize,
        change: NodeChange,
    },
    NewNode {
        number: usize,
        shape: Shape,
    },
    Object {
        kind: usize,
        node: usize,
        version: Option<usize>,
    },
    /// Calls are answered.
    Answers {
        refused: bool,
    },
    /// Drivers report that devices are ready, or that they have failed.
    Report {
        are_ready: bool,
    },
    Pass(u64),
}

fn particular() -> impl Strategy<Value = Particular> {
    prop_oneof![
        24 => Just(Particular::Nothing),
        6 => Just(Particular::UniqueLabel),
        3 => (1..4_i32).prop_map(|priority| Particular::Priority(priority * 10)),
        1 => Just(Particular::Gated),
        2 => (0..64_usize).prop_map(|node| Particular::Nominated { node }),
        2 => Just(Particular::Owned),
        2 => Just(Particular::Scalar),
        4 => Just(Particular::OtherProfile),
    ]
}

fn shape(zones: usize) -> impl Strategy<Value = Shape> {
    let taint = prop_oneof![6 => Just(0_usize), 2 => Just(1), 1 => Just(2), 1 => Just(3), 1 => Just(4)];
    let flags = (prop::bool::weighted(0.1), any::<bool>());
    (0..=zones, 2..12_usize, taint, flags, 0..8_usize, 3..14_usize).prop_map(
        |(zone, cpu, taint, (is_unschedulable, has_ssd), images, pods)| Shape {
            zone,
            cpu,
            taint,
            is_unschedulable,
            has_ssd,
            images,
            pods,
        },
    )
}

/// The templates of a history's pods.
pub(super) fn palette() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(0..TEMPLATES, 7)
}

pub(super) fn first_nodes(nodes: usize, zones: usize) -> impl Strategy<Value = Vec<Shape>> {
    prop::collection::vec(shape(zones), nodes)
}

/// A step with at most `nodes` nodes.
pub(super) fn step(nodes: usize, zones: usize) -> impl Strategy<Value = Step> {
    let (which, node, template) = (0..1000_usize, 0..nodes, 0..TEMPLATES);
    let pod_change = prop_oneof![
        4 => Just(PodChange::Delete),
        2 => Just(PodChange::Terminate),
        1 => Just(PodChange::Ungate),
        2 => Just(PodChange::Touch),
        2 => Just(PodChange::Relabel),
        1 => node.clone().prop_map(|node| PodChange::Nominate { node }),
        3 => prop::sample::select(&MILLI_CPU[..]).prop_map(|milli_cpu| PodChange::Resize { milli_cpu }),
    ];
    let node_change = prop_oneof![
        2 => (0..=zones).prop_map(NodeChange::Zone),
        3 => (2..12_usize).prop_map(NodeChange::Cpu),
        4 => (0..5_usize).prop_map(NodeChange::Taint),
        2 => Just(NodeChange::Cordon),
        2 => Just(NodeChange::Ssd),
        4 => (0..8_usize).prop_map(NodeChange::Images),
        1 => (3..14_usize).prop_map(NodeChange::Pods),
        4 => Just(NodeChange::Remove),
    ];
    let kind = prop_oneof![2 => 0..OBJECTS, 3 => 2..4_usize, 3 => 4..9_usize, 2 => 8..13_usize, 2 => 15..OBJECTS, 3 => Just(15), 3 => Just(20)];
    let version = prop_oneof![3 => (0..2_usize).prop_map(Some), 1 => Just(None)];
    prop_oneof![
        30 => (template.clone(), particular(), 1..9_usize, prop::bool::weighted(0.8)).prop_map(
            |(template, particular, pods, confirmed)| Step::Wave { template, particular, pods, confirmed }
        ),
        3 => (template, node.clone(), 1..4_usize)
            .prop_map(|(template, node, pods)| Step::Bound { template, node, pods }),
        6 => (which.clone(), pod_change).prop_map(|(which, change)| Step::Pod { which, change }),
        8 => (which.clone(), 1..20_usize).prop_map(|(which, pods)| Step::Reap { which, pods }),
        6 => (which, node_change).prop_map(|(which, change)| Step::Node { which, change }),
        4 => (node.clone(), shape(zones)).prop_map(|(number, shape)| Step::NewNode { number, shape }),
        11 => (kind, node, version)
            .prop_map(|(kind, node, version)| Step::Object { kind, node, version }),
        4 => prop::bool::weighted(0.2).prop_map(|refused| Step::Answers { refused }),
        3 => any::<bool>().prop_map(|are_ready| Step::Report { are_ready }),
        4 => prop_oneof![0..3_000_u64, 3_000..15_000_u64, Just(330_000_u64)].prop_map(Step::Pass),
    ]
}

/// The ReplicaSet of owned pods.
fn owner() -> Arc<OwnerRef> {
    let [api_version, kind, name, uid] =
        ["apps/v1", "ReplicaSet", "owner", "uid-default/owner"].map(Arc::from);
    Arc::new(OwnerRef { api_version, kind, name, uid })
}

impl Twins {
    pub(super) fn make(&mut self, step: &Step) -> Result<(), Difference> {
        match *step {
            Step::Wave { template, particular, pods, confirmed } => {
                for _ in 0..pods {
                    let pod = self.new_pod(template, particular);
                    self.add_claim_of(&pod)?;
                    self.add_pod(pod)?;
                    self.try_all()?;
                    if confirmed {
                        self.answer(false)?;
                    }
                }
                Ok(())
            }
            Step::Bound { template, node, pods } => {
                for _ in 0..pods {
                    let mut pod = self.new_pod(template, Particular::Nothing);
                    pod.node_name = Some(format!("n{node}").into());
                    self.add_pod(pod)?;
                }
                self.try_all()
            }
            Step::Pod { which, change } => {
                let uid = self.pods.keys().nth(which % self.pods.len().max(1)).cloned();
                uid.map_or(Ok(()), |uid| self.change(&uid, change))?;
                self.try_all()
            }
            Step::Reap { which, pods } => self.reap(which, pods),
            Step::Node { which, change } => {
                let number = self.nodes.keys().nth(which % self.nodes.len().max(1)).copied();
                number.map_or(Ok(()), |number| self.alter_node(number, change))?;
                self.try_all()
            }
            Step::NewNode { number, shape } => {
                self.shape_node(number, shape)?;
                self.try_all()
            }
            Step::Object { kind, node, version } => {
                self.set_object(kind, node, version)?;
                self.try_all()
            }
            Step::Answers { refused } => {
                self.answer(refused)?;
                self.try_all()
            }
            Step::Report { are_ready } => {
                self.report(if are_ready { "ready" } else { "failed" })?;
                self.try_all()
            }
            Step::Pass(millis) => {
                self.pass(Duration::from_millis(millis))?;
                self.try_all()
            }
        }
    }

    /// Runs cycles until no pod is popped.
    fn try_all(&mut self) -> Result<(), Difference> {
        // A preemptor may be popped again at once, repeatedly.
        for _ in 0..20 {
            if !self.cycle()? {
                break;
            }
        }
        Ok(())
    }

    /// Pods of all templates, without a cycle after them.
    pub(super) fn add_untried(&mut self, pods: usize) -> Result<(), Difference> {
        (0..pods).try_for_each(|template| {
            let pod = self.new_pod(template, Particular::Nothing);
            self.add_claim_of(&pod)?;
            self.add_pod(pod)
        })
    }

    fn new_pod(&mut self, template: usize, particular: Particular) -> PodInfo {
        let version = self.version();
        let template = self.palette[template % self.palette.len()];
        let pod = of_template(template, &format!("p{version}"))
            .resource_version(&version.to_string())
            .uid(&format!("{version:06}"));
        let pod = match particular {
            Particular::UniqueLabel => pod.label(UNIQUE, &version.to_string()),
            Particular::Priority(priority) => pod.priority(priority),
            Particular::Gated => pod.gate("gate"),
            Particular::Nominated { node } => pod
                .request("cpu", "2")
                .priority(5)
                .nominated(&format!("n{node}"))
                .node_selector("none", "such"),
            Particular::Owned => pod.with(|pod| pod.controller = Some(owner())),
            Particular::Scalar => devices::requesting(pod),
            Particular::OtherProfile if self.setting.is_mixed => pod.scheduler(SECOND),
            Particular::Nothing | Particular::OtherProfile => pod,
        };
        pod.build()
    }

    /// Adds the claim that is named after the pod, if the pod uses it.
    fn add_claim_of(&mut self, pod: &PodInfo) -> Result<(), Difference> {
        if !pod
            .spec
            .resource_claims()
            .iter()
            .any(|claim| claim.source == PodClaimSource::Claim(pod.name.clone()))
        {
            return Ok(());
        }
        let version = self.written_version();
        let claim = devices::own_claim(&pod.name, version);
        self.handle(Input::Object(Notification::Added(claim.into())))
    }

    fn change(&mut self, uid: &Uid, change: PodChange) -> Result<(), Difference> {
        match change {
            PodChange::Delete => self.delete_pod(uid),
            PodChange::Terminate => self.change_pod(uid, |pod| pod.terminating = true),
            PodChange::Ungate => self.change_pod(uid, |pod| pod.scheduling_gates = Box::default()),
            PodChange::Touch => self.change_pod(uid, |pod| pod.generation += 1),
            PodChange::Relabel => self.change_pod(uid, |pod| {
                let other = if pod.labels.get(APP).is_some_and(|app| **app == *"a") { "b" } else { "a" };
                let rest = pod.labels.iter().filter(|(key, _)| ***key != *APP);
                let rest = rest.map(|(key, value)| (Arc::clone(key), Arc::clone(value)));
                pod.labels = rest.chain([(APP.into(), other.into())]).collect();
            }),
            PodChange::Nominate { node } => self.change_pod(uid, |pod| {
                if !pod.is_assigned() {
                    pod.status.nominated_node_name = Some(format!("n{node}").into());
                }
            }),
            PodChange::Resize { milli_cpu } => self.resize(uid, milli_cpu),
        }
    }

    fn resize(&mut self, uid: &Uid, milli_cpu: i64) -> Result<(), Difference> {
        self.change_pod(uid, |pod| {
            let mut requests = pod.spec.requests.clone();
            requests.resource.milli_cpu = milli_cpu;
            requests.non_zero_milli_cpu = milli_cpu;
            pod.generation += 1;
            if pod.is_assigned() {
                pod.status_requests = (requests != pod.spec.requests).then(|| Arc::new(requests));
            } else {
                Arc::make_mut(&mut pod.spec).requests = requests;
            }
        })
    }

    /// Ends terminating pods and some others.
    fn reap(&mut self, which: usize, pods: usize) -> Result<(), Difference> {
        let ends = |pod: &&Arc<PodInfo>| pod.terminating && pod.is_assigned();
        let mut gone: Vec<Uid> = self.pods.values().filter(ends).map(|pod| pod.uid.clone()).collect();
        let spare = self.pods.len().saturating_sub(4 * self.setting.nodes);
        let from = which % self.pods.len().max(1);
        // Pods that wait too long are dropped.
        let waits = |pod: &&Arc<PodInfo>| !pod.is_assigned();
        let waiting: Vec<Uid> = self.pods.values().filter(waits).map(|pod| pod.uid.clone()).collect();
        gone.extend_from_slice(&waiting[..waiting.len() / 2]);
        gone.extend(self.pods.keys().skip(from).take(pods).cloned());
        gone.extend(self.pods.keys().take(spare).cloned());
        gone.iter().try_for_each(|uid| self.delete_pod(uid))?;
        self.try_all()
    }

    pub(super) fn shape_node(&mut self, number: usize, shape: Shape) -> Result<(), Difference> {
        let version = self.version();
        self.shapes.insert(number, shape);
        self.set_node(number, of_shape(number, version, shape, self.setting.zones))
    }

    fn alter_node(&mut self, number: usize, change: NodeChange) -> Result<(), Difference> {
        let Some(mut shape) = self.shapes.get(&number).copied() else { return Ok(()) };
        match change {
            NodeChange::Zone(zone) => shape.zone = zone,
            NodeChange::Cpu(cpu) => shape.cpu = cpu,
            NodeChange::Taint(taint) => shape.taint = taint,
            NodeChange::Cordon => shape.is_unschedulable = !shape.is_unschedulable,
            NodeChange::Ssd => shape.has_ssd = !shape.has_ssd,
            NodeChange::Images(images) => shape.images = images,
            NodeChange::Pods(pods) => shape.pods = pods,
            NodeChange::Remove => return self.delete_node(number),
        }
        self.shape_node(number, shape)
    }

    fn set_object(&mut self, kind: usize, node: usize, version: Option<usize>) -> Result<(), Difference> {
        // Resource versions rise; the content of an object has two versions.
        let rising = 2 * self.version() + version.unwrap_or(0);
        let new = Arc::new(of_kind(kind, rising, node));
        let old = self.scheduler().objects().from_api(&new.resource, &new.key).cloned();
        match (old, version) {
            (None, None) => Ok(()),
            (Some(old), None) => self.handle(Input::Object(Notification::Deleted(old))),
            (Some(old), Some(_)) => self.handle(Input::Object(Notification::Updated { old, new })),
            (None, Some(_)) => self.handle(Input::Object(Notification::Added(new))),
        }
    }

    /// Updates an object, if it exists.
    pub(super) fn update_object(&mut self, new: Object) -> Result<(), Difference> {
        let old = self.scheduler().objects().from_api(&new.resource, &new.key).cloned();
        let new = Arc::new(new);
        old.map_or(Ok(()), |old| self.handle(Input::Object(Notification::Updated { old, new })))
    }

    /// Deletes an object, if it exists.
    pub(super) fn delete_object(&mut self, resource: &Text, key: &str) -> Result<(), Difference> {
        let old = self.scheduler().objects().from_api(resource, key).cloned();
        old.map_or(Ok(()), |old| self.handle(Input::Object(Notification::Deleted(old))))
    }

    /// A version of an object that the scheduler writes.
    pub(super) fn written_version(&mut self) -> usize {
        2 * self.version()
    }

    /// Drivers report about all devices that pods wait for.
    fn report(&mut self, condition: &str) -> Result<(), Difference> {
        let claims = self.scheduler().objects().list(&resources::RESOURCE_CLAIM);
        let claims: Vec<Arc<Object>> = claims.cloned().collect();
        for claim in claims {
            let version = self.written_version();
            let Some(reported) = devices::reported(&claim, version, condition) else { continue };
            self.reports += 1;
            self.update_object(reported)?;
        }
        Ok(())
    }

    /// Counts what is special about devices that a claim gets.
    fn count_devices(&mut self, claim: &Object) {
        let rules = self.scheduler().objects().list(&resources::DEVICE_TAINT_RULE);
        let rules: Vec<Arc<Object>> = rules.cloned().collect();
        for result in devices::allocation(claim).iter().flat_map(|allocation| &allocation.results) {
            self.shares += u64::from(result.share_id.is_some());
            self.waits += u64::from(!result.binding_conditions.is_empty());
            self.tolerated += u64::from(rules.iter().any(|rule| devices::taints(rule, &result.device)));
        }
    }

    /// Writes the pending devices of claims, as PreBind does. If it fails, it has written those
    /// for which it waits.
    fn write_claims(&mut self, refused: bool) -> Result<(), Difference> {
        let pending: Vec<Arc<Object>> = self.scheduler().objects().list_pending().cloned().collect();
        for claim in pending {
            if refused && !devices::allocation(&claim).is_some_and(devices::has_conditions) {
                continue;
            }
            let version = self.written_version();
            let Some(written) = devices::written(&claim, version, self.now.wall) else { continue };
            self.count_devices(&claim);
            if written.is_extended_resource_claim() {
                self.creations += 1;
                self.handle(Input::Object(Notification::Added(Arc::new(written))))?;
            } else {
                self.allocations += 1;
                self.update_object(written)?;
            }
        }
        Ok(())
    }

    /// Adds the objects that exist from the start.
    pub(super) fn begin_objects(&mut self) -> Result<(), Difference> {
        // The class provides an extended resource from the start.
        self.set_object(16, 0, Some(1))?;
        [2, 3, 12, 17, 18, 19, 20].into_iter().try_for_each(|kind| self.set_object(kind, 0, Some(0)))
    }

    /// Publishes the devices of a node.
    pub(super) fn set_slice(&mut self, number: usize) -> Result<(), Difference> {
        self.set_object(15, number, Some(number % 2))
    }

    /// Limits the number of disks of a node.
    pub(super) fn set_csi_node(&mut self, number: usize) -> Result<(), Difference> {
        self.set_object(4, number, Some(number % 2))
    }

    /// Answers every call.
    fn answer(&mut self, refused: bool) -> Result<(), Difference> {
        self.write_claims(refused)?;
        for pod in std::mem::take(&mut self.pre_binds) {
            let status = if refused { Status::error("it broke") } else { Status::success() };
            self.handle(Input::PreBound { pod, status: status.by("VolumeBinding") })?;
        }
        for (uid, node) in std::mem::take(&mut self.binds) {
            let exists = self.pods.get(&uid).is_some_and(|pod| !pod.is_assigned() && !pod.terminating);
            let outcome = if refused || !exists {
                failed(Certainty::Refused, "refused")
            } else {
                self.change_pod(&uid, |pod| {
                    pod.node_name = Some(Arc::clone(&node));
                    pod.status.nominated_node_name = None;
                })?;
                BindOutcome::Bound
            };
            self.handle(Input::Bound { pod: uid, by: "DefaultBinder".into(), outcome })?;
        }
        for (preemption, victims) in std::mem::take(&mut self.evictions) {
            let mut outcomes = Vec::new();
            for victim in victims {
                outcomes.push(if self.pods.contains_key(&victim.uid) {
                    Eviction::Deleted
                } else {
                    Eviction::Gone
                });
                // Some victims are gone at once, others terminate.
                if refused {
                    self.change_pod(&victim.uid, |pod| pod.terminating = true)?;
                } else {
                    self.delete_pod(&victim.uid)?;
                }
            }
            self.handle(Input::Evicted { preemption, outcomes })?;
        }
        Ok(())
    }
}
