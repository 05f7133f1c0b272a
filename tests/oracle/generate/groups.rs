//! Groups of pods: their objects, their members, and changes of both.

use anyhow::Result;
use serde_json::{Value, json};
use supercargo_framework::Feature;

use super::configuration::PROFILES;
use super::generator::Generator;
use super::group_plan::Plan;
use super::mix::Kind;
use super::nodes::{HOSTNAME, ZONE};
use super::pods::grow;
use crate::oracle::history::{Reference, Step};
use crate::oracle::subject::TURNSTILE;

/// No group begins while a history has more.
const MOST_GROUPS: usize = 5;

const COMPOSITE: &str = "CompositePodGroup";

/// A change of a group.
#[derive(Clone, Copy, Debug)]
enum Act {
    Begin,
    AddMember,
    PlaceMember,
    BindMember,
    RemoveMember,
    CreateObject,
    ChangeMinimum,
    TouchObject,
    DeleteObject,
    ReplaceObject,
    Forget,
}

const ACTS: [(u32, Act); 11] = [
    (12, Act::Begin),
    (20, Act::AddMember),
    (3, Act::PlaceMember),
    (3, Act::BindMember),
    (6, Act::RemoveMember),
    (14, Act::CreateObject),
    (8, Act::ChangeMinimum),
    (2, Act::TouchObject),
    (4, Act::DeleteObject),
    (1, Act::ReplaceObject),
    (3, Act::Forget),
];

impl Generator<'_> {
    pub(super) fn has_groups(&self) -> bool {
        self.is_on(Feature::GenericWorkload)
    }

    /// Changes a group or its members.
    pub(super) fn change_groups(&mut self) -> Result<()> {
        let act = self.random.weighted(&ACTS).unwrap_or(Act::AddMember);
        if self.plans.is_empty() || (matches!(act, Act::Begin) && self.plans.len() < MOST_GROUPS) {
            return self.begin_group();
        }
        let is_missing = |plan: &Plan| self.subject.object(&plan.group).is_none();
        let missing: Vec<usize> =
            (0..self.plans.len()).filter(|place| is_missing(&self.plans[*place])).collect();
        let place = match act {
            Act::CreateObject | Act::Forget if !missing.is_empty() => *self.random.pick(&missing),
            _ => self.random.below(self.plans.len()),
        };
        let group = self.plans[place].group.clone();
        let is_composite = group.kind == COMPOSITE;
        match act {
            Act::Begin | Act::AddMember | Act::PlaceMember if is_composite => Ok(()),
            Act::Begin | Act::AddMember => self.add_member(place, None),
            Act::PlaceMember => {
                let node = self.some_node_name();
                self.add_member(place, Some(node))
            }
            Act::BindMember => self.bind_member(&group),
            Act::RemoveMember => match self.some_member(&group) {
                Some(member) => self.take(Step::Delete(member)),
                None => Ok(()),
            },
            Act::CreateObject | Act::Forget if missing.contains(&place) => self.create_group(place),
            Act::CreateObject | Act::ChangeMinimum => self.change(&group, |this, group| {
                let policy = &mut group["spec"]["schedulingPolicy"];
                if policy["gang"].is_object() {
                    policy["gang"] = this.minimum(is_composite);
                }
            }),
            Act::TouchObject => self.change(&group, |this, group| {
                group["metadata"]["annotations"]["note"] = json!(this.version.to_string());
            }),
            Act::DeleteObject => self.take(Step::Delete(group)),
            Act::ReplaceObject => {
                self.take(Step::Delete(group))?;
                self.create_group(place)
            }
            Act::Forget => {
                self.plans.remove(place);
                Ok(())
            }
        }
    }

    /// A new group, or a tree of groups.
    fn begin_group(&mut self) -> Result<()> {
        let template = for_members(self.template());
        if self.may_use_devices(&template["spec"]) {
            return Ok(());
        }
        let has_priority = self.mix.of(Kind::Priorities) + self.mix.of(Kind::Preemption) > 0;
        let priority = if has_priority { *self.random.pick(&[0, 0, 10, 100, 1000]) } else { 0 };
        let is_second = self.profiles > 1 && self.random.chance(35);
        let group = Reference::pod_group(template["namespace"].as_str().unwrap_or_default(), "");
        let plan = Plan {
            group,
            parent: None,
            template,
            scheduler: PROFILES[usize::from(is_second)],
            priority,
            never_preempts: self.mix.of(Kind::Preemption) > 0 && self.random.chance(10),
            is_gang: true,
            has_odd_member: false,
        };
        if self.is_on(Feature::CompositePodGroup) && self.random.chance(70) {
            self.begin_tree(plan)
        } else {
            self.begin_leaf(plan, 5)
        }
    }

    /// New groups below composite ones. Their objects come in any order.
    fn begin_tree(&mut self, mut plan: Plan) -> Result<()> {
        // Upstream visits the members of several groups in random order, so all of them agree.
        plan.has_odd_member = true;
        let mut parents: Vec<String> = Vec::new();
        let levels = self.random.between(1, 3);
        for level in 0..levels {
            let mut composite = plan.clone();
            composite.group.name = format!("c{}-{level}", self.made);
            "scheduling.k8s.io/v1alpha3".clone_into(&mut composite.group.api_version);
            COMPOSITE.clone_into(&mut composite.group.kind);
            composite.is_gang = self.random.chance(60);
            composite.parent = parents.last().cloned();
            parents.push(composite.group.name.clone());
            self.plans.push(composite);
            if self.random.chance(70) {
                self.create_group(self.plans.len() - 1)?;
            }
        }
        for _ in 0..self.random.between(1, 3) {
            let parent = Some(self.random.pick(&parents).clone());
            self.begin_leaf(Plan { parent, ..plan.clone() }, 3)?;
        }
        for place in 0..self.plans.len() {
            let plan = &self.plans[place];
            let is_missing = parents.contains(&plan.group.name) && self.subject.object(&plan.group).is_none();
            if is_missing && self.random.chance(80) {
                self.create_group(place)?;
            }
        }
        Ok(())
    }

    /// A new group, whose object comes before, between, after or long after its pods.
    fn begin_leaf(&mut self, mut plan: Plan, most: usize) -> Result<()> {
        plan.group.name = format!("g{}", self.made);
        plan.is_gang = self.random.chance(75);
        self.plans.push(plan);
        let place = self.plans.len() - 1;
        let members = self.random.between(1, most);
        let object = self.random.below(members + 2);
        for member in 0..members {
            if member == object {
                self.create_group(place)?;
            }
            self.add_member(place, None)?;
        }
        if object == members { self.create_group(place) } else { Ok(()) }
    }

    /// The minimum of a gang.
    fn minimum(&mut self, is_composite: bool) -> Value {
        if is_composite {
            json!({ "minGroupCount": self.random.between(1, 3) })
        } else {
            json!({ "minCount": self.random.between(1, 4) })
        }
    }

    fn create_group(&mut self, place: usize) -> Result<()> {
        let plan = self.plans[place].clone();
        // Of the pods that wait for a group, upstream asks PreEnqueue about a random one first, and
        // perhaps about no other.
        for pod in self.members(&plan.group) {
            if pod["spec"]["schedulingGates"].is_array() {
                self.change(&Reference::of(&pod), |_, pod| {
                    pod["spec"]["schedulingGates"] = json!([]);
                    grow(pod);
                })?;
            }
        }
        let Reference { api_version, kind, namespace, name } = &plan.group;
        let policy = if plan.is_gang {
            json!({ "gang": self.minimum(kind == COMPOSITE) })
        } else {
            json!({ "basic": {} })
        };
        let mut spec = json!({ "schedulingPolicy": policy });
        if plan.priority != 0 || self.random.chance(50) {
            spec["priority"] = json!(plan.priority);
        }
        let mode = *self.random.pick(&["", "single", "all"]);
        if !mode.is_empty() {
            spec["disruptionMode"] = json!({ mode: {} });
        }
        if self.is_on(Feature::PodGroupPreemptionPolicy) {
            let policy = if plan.never_preempts { "Never" } else { "PreemptLowerPriority" };
            spec["preemptionPolicy"] = json!(policy);
        }
        if self.has(Kind::GroupTopology) {
            let key = *self.random.pick(&[ZONE, ZONE, HOSTNAME, "disk"]);
            spec["schedulingConstraints"] = json!({ "topology": [{ "key": key }] });
        }
        if let Some(parent) = &plan.parent {
            spec["parentCompositePodGroupName"] = json!(parent);
        }
        if plan.parent.is_some() || kind == COMPOSITE {
            spec["workloadRef"] = json!({ "workloadName": "job", "templateName": name });
        }
        let group = json!({
            "apiVersion": api_version,
            "kind": kind,
            "metadata": self.metadata(namespace, name),
            "spec": spec,
        });
        self.apply(group)
    }

    /// Adds a pod to a group, or one that is already on a node.
    fn add_member(&mut self, place: usize, node: Option<String>) -> Result<()> {
        let plan = self.plans[place].clone();
        let name = format!("m{}", self.made);
        let mut pod = self.pod(&plan.template, &name);
        let spec = &mut pod["spec"];
        if plan.parent.is_some()
            && let Some(spec) = spec.as_object_mut()
        {
            // Which of the plugins that hold pods of several groups counts is random upstream.
            spec.remove("schedulingGates");
        }
        spec["schedulingGroup"] = json!({ "podGroupName": plan.group.name });
        spec["schedulerName"] = json!(plan.scheduler);
        spec["priority"] = json!(plan.priority);
        spec["preemptionPolicy"] = json!(if plan.never_preempts { "Never" } else { "PreemptLowerPriority" });
        // Host ports that two pods use are one of the differences on purpose.
        if let Some(node) = node.filter(|_| !spec.to_string().contains("hostPort\"")) {
            spec["nodeName"] = json!(node);
            pod["status"]["phase"] = json!("Running");
        }
        if !plan.has_odd_member && self.random.chance(2) {
            self.plans[place].has_odd_member = true;
            let spec = &mut pod["spec"];
            match self.random.below(3) {
                0 => spec["priority"] = json!(plan.priority + 1),
                1 => spec["schedulerName"] = json!(self.random.pick(&[PROFILES[1], "another"])),
                _ => spec["preemptionPolicy"] = json!("Never"),
            }
        }
        self.adopt(&mut pod);
        self.apply(pod.clone())?;
        self.add_ephemeral_claims(&pod)?;
        if self.has_devices() { self.generate_resource_claims() } else { Ok(()) }
    }

    /// Another scheduler binds a member.
    fn bind_member(&mut self, group: &Reference) -> Result<()> {
        let Some(member) = self.some_member(group) else { return Ok(()) };
        if self.subject.is_assumed(&member) || self.terminates_before_binding(&member) {
            return Ok(());
        }
        let node = self.some_node_name();
        self.change(&member, |_, pod| {
            let has_ports = pod["spec"].to_string().contains("hostPort\"");
            let is_gated = pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty());
            if pod["spec"]["nodeName"].is_null() && !has_ports && !is_gated {
                pod["spec"]["nodeName"] = json!(node);
            }
        })
    }

    /// A random pod of a group.
    fn some_member(&mut self, group: &Reference) -> Option<Reference> {
        let members = self.members(group);
        let member = Reference::of(members.get(self.random.below(members.len().max(1)))?);
        (!self.waits_for_devices(&member)).then_some(member)
    }

    /// The pods of a group.
    fn members(&self, group: &Reference) -> Vec<Value> {
        let mut pods = self.subject.objects("Pod");
        pods.retain(|pod| {
            pod["spec"]["schedulingGroup"]["podGroupName"] == *group.name
                && pod["metadata"]["namespace"] == *group.namespace
        });
        pods
    }
}

/// A template for the members of a group.
fn for_members(mut template: Value) -> Value {
    for (outer, inner) in [("labels", TURNSTILE), ("spec", "volumes"), ("spec", "resourceClaims")] {
        if let Some(fields) = template[outer].as_object_mut() {
            fields.remove(inner);
        }
    }
    for field in ["containers", "initContainers"] {
        for container in template["spec"][field].as_array_mut().into_iter().flatten() {
            container["image"] = json!("plain:1");
        }
    }
    template
}
