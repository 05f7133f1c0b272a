//! The steps: first objects, and random changes.

use anyhow::Result;
use serde_json::{Value, json};

use super::generator::{Generator, moment};
use super::mix::Kind;
use super::names::{APPS, NAMESPACES, TRACKS};
use super::nodes::{DISKS, ZONE, ZONES};
use super::pods::grow;
use crate::oracle::history::{Reference, Step};

/// A change that may happen.
#[derive(Clone, Copy, Debug)]
enum Act {
    Schedule,
    Wait,
    AddPod,
    RemovePod,
    ChangePod,
    ResizePod,
    RunPod,
    EndPod,
    ReplacePod,
    AddNode,
    RemoveNode,
    ChangeNode,
    Nominate,
    ChangeStorage,
    ChangeWorkloads,
}

const ACTS: [(u32, Act); 15] = [
    (70, Act::Schedule),
    (8, Act::Wait),
    (16, Act::AddPod),
    (4, Act::RemovePod),
    (6, Act::ChangePod),
    (8, Act::ResizePod),
    (8, Act::RunPod),
    (3, Act::EndPod),
    (1, Act::ReplacePod),
    (2, Act::AddNode),
    (1, Act::RemoveNode),
    (9, Act::ChangeNode),
    (3, Act::Nominate),
    (14, Act::ChangeStorage),
    (3, Act::ChangeWorkloads),
];

impl Generator<'_> {
    /// The first objects.
    pub(super) fn prepare(&mut self) -> Result<()> {
        if self.mix.of(Kind::PodAffinity)
            + self.mix.of(Kind::PodAntiAffinity)
            + self.mix.of(Kind::PreferredPods)
            > 0
        {
            for name in NAMESPACES {
                let mut namespace =
                    json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": self.metadata("", name) });
                if self.random.chance(60) {
                    namespace["metadata"]["labels"] = json!({ "team": self.random.pick(&["a", "b"]) });
                }
                self.apply(namespace)?;
            }
        }
        // Large clusters are slow, and small ones show mistakes as well.
        let nodes = match self.random.below(60) {
            0 => self.random.between(100, 130),
            1..=6 => 0,
            7..=12 => self.random.between(15, 60),
            _ => self.random.between(3, 9),
        };
        for _ in 0..nodes {
            self.add_node()?;
        }
        self.prepare_storage()?;
        self.prepare_workloads()?;
        self.prepare_devices()?;
        self.templates = (0..self.random.between(2, 6)).map(|_| self.template()).collect();
        for _ in 0..self.random.between(0, 6) {
            self.add_pod()?;
        }
        self.refresh_images()
    }

    /// Makes one change.
    pub(super) fn act(&mut self) -> Result<()> {
        if self.has_devices() && self.random.chance(12) {
            return if self.random.chance(30) {
                self.change_devices()
            } else {
                self.change_resource_claims()
            };
        }
        if self.has_groups() && self.random.chance(12 + self.mix.of(Kind::Groups) / 4) {
            return self.change_groups();
        }
        if self.mix.of(Kind::DeviceConditions) > 0 && self.random.chance(8) {
            return self.report_devices();
        }
        if self.has_devices() && self.mix.of(Kind::Permit) > 0 && self.random.chance(6) {
            return self.lose_claim();
        }
        match self.random.weighted(&ACTS).unwrap_or(Act::Wait) {
            Act::Schedule if self.subject.has_work() => self.take(Step::Schedule(true)),
            Act::Schedule if self.random.chance(60) => self.add_pod(),
            Act::Schedule | Act::Wait => {
                let seconds = *self.random.pick(&[1, 1, 1, 2, 3, 5, 11, 31, 330]);
                self.take(Step::Advance(seconds))
            }
            Act::AddPod => self.add_pod(),
            Act::RemovePod => self.with_some("Pod", |this, pod| {
                if this.waits_for_devices(&pod) { Ok(()) } else { this.take(Step::Delete(pod)) }
            }),
            Act::ChangePod => self.with_some("Pod", Self::change_pod),
            Act::ResizePod if self.has(Kind::Resizes) => self.with_some("Pod", Self::resize_pod),
            Act::RunPod => self.run_pod(),
            Act::EndPod => self.with_some("Pod", |this, pod| {
                if this.waits_for_devices(&pod) {
                    return Ok(());
                }
                this.change(&pod, |this, pod| {
                    pod["status"]["phase"] = json!(this.random.pick(&["Succeeded", "Failed"]));
                })
            }),
            Act::ReplacePod => self.replace_pod(),
            Act::AddNode => {
                self.add_node()?;
                self.refresh_images()
            }
            Act::RemoveNode => {
                self.with_some("Node", |this, node| this.take(Step::Delete(node)))?;
                self.zones_stay |= self.mix.of(Kind::Claims) + self.mix.of(Kind::VolumeLimits) > 0;
                self.refresh_images()
            }
            Act::ChangeNode => self.with_some("Node", Self::change_node),
            Act::Nominate if self.has(Kind::Nominations) => self.with_some("Pod", |this, pod| {
                let node = this.some_node_name();
                this.change(&pod, |this, pod| {
                    if this.random.chance(70) && pod["spec"]["nodeName"].is_null() {
                        pod["status"]["nominatedNodeName"] = json!(node);
                    } else if let Some(status) = pod["status"].as_object_mut() {
                        status.remove("nominatedNodeName");
                    }
                })
            }),
            Act::ResizePod | Act::Nominate => Ok(()),
            Act::ChangeStorage => self.change_storage(),
            Act::ChangeWorkloads => self.change_workloads(),
        }
    }

    fn add_node(&mut self) -> Result<()> {
        self.nodes += 1;
        let name = format!("n{}", self.nodes);
        let node = self.node(&name);
        self.apply(node)?;
        if self.mix.of(Kind::Claims) + self.mix.of(Kind::VolumeLimits) > 0 && self.random.chance(85) {
            let node = self.csi_node(&name);
            self.apply(node)?;
        }
        if self.has_devices() && self.random.chance(75) {
            self.publish_devices(&name)?;
        }
        Ok(())
    }

    /// Upstream updates a node's view of image spread only when the node changes, so change the
    /// node.
    fn refresh_images(&mut self) -> Result<()> {
        if self.mix.of(Kind::Images) > 0 {
            for node in self.subject.objects("Node") {
                self.change(&Reference::of(&node), |_, _| {})?;
            }
        }
        Ok(())
    }

    fn add_pod(&mut self) -> Result<()> {
        if self.random.chance(15) {
            let template = self.template();
            let place = self.random.below(self.templates.len());
            self.templates[place] = template;
        }
        let template = self.templates[self.random.below(self.templates.len())].clone();
        let name = format!("p{}", self.made);
        let mut pod = self.pod(&template, &name);
        // Host ports that two pods use are one of the differences on purpose.
        let has_ports = pod["spec"].to_string().contains("hostPort\"");
        if !has_ports && self.has(Kind::Placed) {
            pod["spec"]["nodeName"] = json!(self.some_node_name());
            start(&mut pod);
        }
        self.adopt(&mut pod);
        self.apply(pod.clone())?;
        self.add_ephemeral_claims(&pod)?;
        if self.has_devices() { self.generate_resource_claims() } else { Ok(()) }
    }

    /// Marks a bound pod as running.
    fn run_pod(&mut self) -> Result<()> {
        let pods = self.subject.objects("Pod");
        let bound = pods
            .iter()
            .find(|pod| pod["spec"]["nodeName"].is_string() && pod["status"]["phase"] == "Pending");
        let Some(pod) = bound.map(Reference::of) else { return Ok(()) };
        self.change(&pod, |_, pod| start(pod))
    }

    /// Replaces a pod by another of the same name, without a deletion in between.
    fn replace_pod(&mut self) -> Result<()> {
        self.with_some("Pod", |this, pod| {
            // Upstream mixes up a pod that is being bound and another of its name.
            let answer = this.answers.last().and_then(|answer| answer.pods.get(&pod.key()));
            if answer.is_some_and(|pod| pod.place == "inflight") {
                return Ok(());
            }
            let template = this.templates[this.random.below(this.templates.len())].clone();
            let mut new = this.pod(&template, &pod.name);
            new["metadata"]["namespace"] = json!(pod.namespace);
            if !this.has_lasting_claims(&pod.namespace, &new["spec"]) {
                new["spec"]["schedulingGates"] = json!([]);
            }
            this.apply(new)
        })
    }

    fn change_pod(&mut self, pod: Reference) -> Result<()> {
        if self.terminates_before_binding(&pod) || self.waits_for_devices(&pod) {
            return Ok(());
        }
        let may_relabel = !self.subject.is_assumed(&pod);
        self.change(&pod, |this, pod| {
            let waits = pod["spec"]["nodeName"].is_null();
            match this.random.below(6) {
                0 if may_relabel => pod["metadata"]["labels"]["app"] = json!(this.random.pick(&APPS)),
                1 if may_relabel => pod["metadata"]["labels"]["track"] = json!(this.random.pick(&TRACKS)),
                2 => {
                    let mut tolerations = pod["spec"]["tolerations"].as_array().cloned().unwrap_or_default();
                    tolerations.extend(this.tolerations());
                    pod["spec"]["tolerations"] = json!(tolerations);
                    grow(pod);
                }
                3 if waits => {
                    let gates = pod["spec"]["schedulingGates"].as_array().cloned().unwrap_or_default();
                    pod["spec"]["schedulingGates"] = json!(this.random.some(25, &gates));
                    grow(pod);
                }
                4 => pod["metadata"]["deletionTimestamp"] = json!(moment("2000-01-02T", this.made)),
                _ => pod["metadata"]["annotations"]["note"] = json!(this.version.to_string()),
            }
        })
    }

    fn resize_pod(&mut self, pod: Reference) -> Result<()> {
        if self.terminates_before_binding(&pod) {
            return Ok(());
        }
        self.change(&pod, Self::resize)
    }

    /// Upstream goes on to bind a pod that is gone, until its devices are ready or late.
    pub(super) fn waits_for_devices(&self, pod: &Reference) -> bool {
        self.mix.of(Kind::DeviceConditions) > 0 && self.subject.is_assumed(pod)
    }

    fn change_node(&mut self, node: Reference) -> Result<()> {
        let touches_images = self.mix.of(Kind::Images) > 0 && self.random.chance(15);
        self.change(&node, |this, node| match this.random.below(8) {
            _ if touches_images => node["status"]["images"] = this.node_images(),
            0 => {
                let taints = this.taints();
                node["spec"]["taints"] = json!(taints);
            }
            1 | 2 => {
                let allocatable = this.allocatable();
                node["status"]["allocatable"] = allocatable;
            }
            3 if !this.zones_stay => node["metadata"]["labels"][ZONE] = json!(this.random.pick(&ZONES)),
            4 => node["metadata"]["labels"]["disk"] = json!(this.random.pick(&DISKS)),
            5 if this.mix.of(Kind::Cordons) > 0 => {
                let was = node["spec"]["unschedulable"] == true;
                node["spec"]["unschedulable"] = json!(!was);
            }
            7 if this.mix.of(Kind::Features) > 0 => {
                let features = this.features();
                node["status"]["declaredFeatures"] = json!(features);
            }
            6 => {
                let status = *this.random.pick(&["True", "False"]);
                node["status"]["conditions"] = json!([{ "type": "Ready", "status": status }]);
            }
            _ => node["metadata"]["annotations"]["note"] = json!(this.version.to_string()),
        })?;
        if touches_images { self.refresh_images() } else { Ok(()) }
    }
}

/// The status that a kubelet writes.
fn start(pod: &mut Value) {
    pod["status"]["phase"] = json!("Running");
}
