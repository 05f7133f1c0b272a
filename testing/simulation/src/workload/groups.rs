//! Groups of pods: gangs that fit or not, gangs in one zone, and trees of gangs.

use super::*;
use crate::api::{COMPOSITES, MEMBERS, POD_GROUPS};

/// The kind of members of which a node holds two.
const LARGE: u64 = CONTENDER;
/// The label by which members are found.
const MEMBER: &str = "member";
/// The pods of a gang at the end of a run.
const PROBES: u64 = 3;
/// The gangs of a tree there.
const GANG_PROBES: u64 = 2;

/// What deletion of everything deletes of groups.
pub(super) const PATHS: [&str; 2] = [POD_GROUPS, COMPOSITES];

/// A gang, and what its pods are like.
struct Gang {
    name: String,
    least: u64,
    pods: u64,
    kind: u64,
    /// The priority class.
    priority: &'static str,
    /// Whether all pods must be in one zone.
    in_one_zone: bool,
    /// Whether pods and groups of lower priority preempt it whole.
    is_whole: bool,
    parent: Option<String>,
}

impl Gang {
    fn group(&self) -> Value {
        let mut group = json!({
            "metadata": { "name": self.name },
            "spec": { "schedulingPolicy": { "gang": { "minCount": self.least } } },
        });
        let spec = &mut group["spec"];
        if !self.priority.is_empty() {
            spec["priorityClassName"] = self.priority.into();
        }
        if self.in_one_zone {
            spec["schedulingConstraints"] = json!({ "topology": [{ "key": ZONE }] });
        }
        if self.is_whole {
            spec["disruptionMode"] = json!({ "all": {} });
        }
        if let Some(parent) = &self.parent {
            spec["parentCompositePodGroupName"] = json!(parent);
            spec["workloadRef"] = json!({ "workloadName": parent, "templateName": "gang" });
        }
        group
    }

    fn pod(&self, name: &str) -> Value {
        let mut special = json!({ "schedulingGroup": { "podGroupName": self.name } });
        if !self.priority.is_empty() {
            special["priorityClassName"] = self.priority.into();
        }
        let mut pod = pod(name, special, self.kind);
        pod["metadata"]["labels"][MEMBER] = "yes".into();
        pod
    }
}

impl Workload {
    /// Changes something about groups.
    pub(super) async fn act_on_groups(&mut self) {
        // A gang adds many pods at once, and each act deletes one.
        while self.is_crowded() {
            self.delete_oldest().await;
        }
        match self.random.u32(..10) {
            0..5 => {
                let gang = self.gang(None, "");
                self.add_gang(gang).await;
            }
            5..7 => self.add_tree().await,
            7 => self.delete_a_member().await,
            8 => self.delete_a_group().await,
            _ => self.add_late_member().await,
        }
    }

    /// A gang and a tree all of whose pods must get a node.
    pub(super) async fn add_gang_probes(&mut self) -> Vec<String> {
        if !self.has_groups {
            return Vec::new();
        }
        let gang = self.probe(None);
        let mut paths = self.add_gang(gang).await;
        let tree = self.name("tree-probe");
        self.add(COMPOSITES, root(&tree, "urgent", GANG_PROBES)).await;
        for _ in 0..GANG_PROBES {
            let gang = self.probe(Some(tree.clone()));
            paths.extend(self.add_gang(gang).await);
        }
        paths
    }

    fn probe(&mut self, parent: Option<String>) -> Gang {
        Gang {
            name: self.name("gang-probe"),
            least: PROBES,
            pods: PROBES,
            kind: 1,
            priority: "urgent",
            in_one_zone: false,
            is_whole: false,
            parent,
        }
    }

    fn gang(&mut self, parent: Option<String>, priority: &'static str) -> Gang {
        let least = self.random.u64(2..6);
        let priority = if parent.is_some() { priority } else { self.priority() };
        Gang {
            name: self.name("gang"),
            least,
            // Sometimes one too few.
            pods: (least + self.random.u64(..4)).saturating_sub(self.random.u64(..2)),
            kind: if self.random.u32(..8) == 0 { LARGE } else { ORDINARY },
            priority,
            in_one_zone: self.random.u32(..4) == 0,
            is_whole: self.random.u32(..3) == 0,
            parent,
        }
    }

    fn priority(&mut self) -> &'static str {
        ["", "", "important", "urgent"][self.random.usize(..4)]
    }

    /// Creates a gang: its group comes before, between or after its pods.
    async fn add_gang(&mut self, gang: Gang) -> Vec<String> {
        let group_comes = self.random.u64(..=gang.pods);
        let mut paths = Vec::new();
        for index in 0..=gang.pods {
            if index == group_comes {
                self.add(POD_GROUPS, gang.group()).await;
                continue;
            }
            let name = self.name(&gang.name);
            self.add(PODS, gang.pod(&name)).await;
            paths.push(format!("{PODS}/{name}"));
        }
        paths
    }

    /// Gangs below one group, which may come after them.
    async fn add_tree(&mut self) {
        let (name, priority) = (self.name("tree"), self.priority());
        let gangs = self.random.u64(2..4);
        let mut root = root(&name, priority, self.random.u64(1..=gangs));
        let root_comes = self.random.u64(..=gangs);
        for index in 0..=gangs {
            if index == root_comes {
                self.add(COMPOSITES, root.take()).await;
                continue;
            }
            let gang = self.gang(Some(name.clone()), priority);
            self.add_gang(gang).await;
        }
    }

    /// A pod of a group that may have its least number of pods.
    async fn add_late_member(&mut self) {
        let Some(member) = self.member().await else { return };
        let name = self.name("late");
        let mut late = pod(&name, json!({}), ORDINARY);
        late["metadata"]["labels"][MEMBER] = "yes".into();
        for field in ["schedulingGroup", "priorityClassName"] {
            if !member["spec"][field].is_null() {
                late["spec"][field] = member["spec"][field].clone();
            }
        }
        self.add(PODS, late).await;
    }

    async fn delete_a_member(&mut self) {
        let Some(member) = self.member().await else { return };
        self.delete(&format!("{PODS}/{}", api::name(&member))).await;
    }

    async fn delete_a_group(&mut self) {
        let path = if self.random.bool() { POD_GROUPS } else { COMPOSITES };
        let groups = list(&self.server, path).await;
        if groups.is_empty() {
            return;
        }
        let path = format!("{path}/{}", api::name(&groups[self.random.usize(..groups.len())]));
        self.delete(&path).await;
    }

    /// Any pod of a group.
    async fn member(&mut self) -> Option<Value> {
        let mut members = list(&self.server, MEMBERS).await;
        if members.is_empty() {
            return None;
        }
        Some(members.swap_remove(self.random.usize(..members.len())))
    }
}

/// The root of a tree of which at least `least` gangs start together.
fn root(name: &str, priority: &str, least: u64) -> Value {
    let mut root = json!({
        "metadata": { "name": name },
        "spec": {
            "workloadRef": { "workloadName": name, "templateName": "tree" },
            "schedulingPolicy": { "gang": { "minGroupCount": least } },
        },
    });
    if !priority.is_empty() {
        root["spec"]["priorityClassName"] = priority.into();
    }
    root
}
