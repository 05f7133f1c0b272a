//! The kubelet's admission check: whether a pod still fits, since two schedulers may have bound
//! pods concurrently.

use rustc_hash::FxHashMap;
use serde_json::Value;

use crate::json::{entries, int, list, present, text};
use crate::quantity::Quantity;
use crate::sim::affinity;
use crate::strategy::pod::requests::{Amount, is_pod_level, of_containers};
use crate::strategy::resources::is_extended;

/// The capacity and the load of a node.
#[derive(Debug, Default)]
pub(super) struct Room {
    allocatable: FxHashMap<Box<str>, i64>,
    used: FxHashMap<Box<str>, i64>,
    pods: i64,
    ports: Vec<Port>,
    taints: Vec<Value>,
    labels: Value,
}

/// The load of a pod.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Load {
    amounts: Vec<(Box<str>, i64)>,
    ports: Vec<Port>,
}

#[derive(Clone, Debug, PartialEq)]
struct Port {
    address: Box<str>,
    protocol: Box<str>,
    number: i64,
}

/// Why a pod is rejected.
#[derive(Debug, PartialEq)]
pub(super) struct Rejection {
    pub(super) reason: String,
    pub(super) message: String,
}

impl Load {
    pub(super) fn of(spec: &Value) -> Self {
        let mut requests = of_containers(spec, Amount::Request);
        let own = spec.pointer("/resources/requests").unwrap_or(&Value::Null);
        for (name, amount) in own.as_object().into_iter().flatten().filter(|(name, _)| is_pod_level(name)) {
            requests.insert(name.clone(), Quantity::of(amount));
        }
        for (name, amount) in entries(spec, "overhead") {
            let sum = requests.get(name).copied().unwrap_or(Quantity::ZERO).plus(Quantity::of(amount));
            requests.insert(name.to_owned(), sum);
        }
        let amounts = requests.iter().map(|(name, amount)| (name.as_str().into(), counted(name, *amount)));
        Self { amounts: amounts.filter(|(_, amount)| *amount > 0).collect(), ports: ports(spec) }
    }
}

impl Room {
    /// Updates the capacity and other facts from the node.
    pub(super) fn update(&mut self, node: &Value) {
        let status = node.get("status").unwrap_or(&Value::Null);
        let allocatable = entries(status, "allocatable");
        self.allocatable =
            allocatable.map(|(name, amount)| (name.into(), counted(name, Quantity::of(amount)))).collect();
        self.taints = node.get("spec").map(|spec| list(spec, "taints").to_vec()).unwrap_or_default();
        self.labels = node.pointer("/metadata/labels").cloned().unwrap_or_default();
    }

    /// Whether a pod fits the node.
    pub(super) fn check(&self, node: &str, spec: &Value, load: &Load) -> Result<(), Rejection> {
        self.check_amounts(load)?;
        if !affinity::matches(spec, node, &self.labels) {
            return Err(predicate("NodeAffinity", "node(s) didn't match Pod's node affinity/selector"));
        }
        if load.ports.iter().any(|port| self.ports.iter().any(|used| port.conflicts(used))) {
            let why = "node(s) didn't have free ports for the requested pod ports";
            return Err(predicate("NodePorts", why));
        }
        if affinity::untolerated(&self.taints, list(spec, "tolerations"), &["NoExecute"]).is_some() {
            return Err(predicate("TaintToleration", "node(s) had taints that the pod didn't tolerate"));
        }
        Ok(())
    }

    fn check_amounts(&self, load: &Load) -> Result<(), Rejection> {
        let capacity = |name: &str| self.allocatable.get(name).copied();
        let most = capacity("pods").unwrap_or_default();
        if self.pods + 1 > most {
            return Err(insufficient("pods", 1, self.pods, most));
        }
        let lacks = |name: &str, requested: i64| {
            // The kubelet ignores resources that the node does not have.
            let capacity = match capacity(name) {
                None if is_extended(name) => return None,
                capacity => capacity.unwrap_or_default(),
            };
            let used = self.used.get(name).copied().unwrap_or_default();
            (requested > capacity - used).then(|| insufficient(name, requested, used, capacity))
        };
        let first = ["cpu", "memory", "ephemeral-storage"];
        let amount =
            |name: &str| load.amounts.iter().find(|(own, _)| **own == *name).map(|(_, amount)| *amount);
        let counted = first.iter().filter_map(|name| Some((*name, amount(name)?)));
        let others = load.amounts.iter().filter(|(name, _)| !first.contains(&&**name));
        let mut all = counted.chain(others.map(|(name, amount)| (&**name, *amount)));
        all.find_map(|(name, amount)| lacks(name, amount)).map_or(Ok(()), Err)
    }

    /// Adds the load of a pod.
    pub(super) fn add(&mut self, load: &Load) {
        self.pods += 1;
        for (name, amount) in &load.amounts {
            *self.used.entry(name.clone()).or_default() += amount;
        }
        self.ports.extend_from_slice(&load.ports);
    }

    /// Removes the load of a pod.
    pub(super) fn remove(&mut self, load: &Load) {
        self.pods -= 1;
        for (name, amount) in &load.amounts {
            if let Some(used) = self.used.get_mut(name) {
                *used -= amount;
            }
        }
        for port in &load.ports {
            if let Some(at) = self.ports.iter().position(|used| used == port) {
                self.ports.swap_remove(at);
            }
        }
    }
}

impl Port {
    fn conflicts(&self, other: &Self) -> bool {
        let is_any = |address: &str| address == "0.0.0.0";
        self.number == other.number
            && self.protocol == other.protocol
            && (self.address == other.address || is_any(&self.address) || is_any(&other.address))
    }
}

/// CPU is counted in thousandths, everything else in units.
fn counted(name: &str, amount: Quantity) -> i64 {
    if name == "cpu" { amount.milli_value() } else { amount.value() }
}

fn ports(spec: &Value) -> Vec<Port> {
    let sidecars = list(spec, "initContainers").iter().filter(|one| text(one, "restartPolicy") == "Always");
    let ports = list(spec, "containers").iter().chain(sidecars).flat_map(|one| list(one, "ports"));
    let port = |port: &Value| {
        let number = int(port, "hostPort").filter(|number| *number > 0)?;
        let or = |field, default| {
            present(port, field).and_then(Value::as_str).filter(|text| !text.is_empty()).unwrap_or(default)
        };
        Some(Port { address: or("hostIP", "0.0.0.0").into(), protocol: or("protocol", "TCP").into(), number })
    };
    ports.filter_map(port).collect()
}

fn insufficient(name: &str, requested: i64, used: i64, capacity: i64) -> Rejection {
    let reason = format!("OutOf{name}");
    let message = format!(
        "Node didn't have enough resource: {name}, requested: {requested}, used: {used}, capacity: {capacity}"
    );
    Rejection { reason, message }
}

fn predicate(name: &str, why: &str) -> Rejection {
    Rejection { reason: name.to_owned(), message: format!("Predicate {name} failed: {why}") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn room() -> Room {
        let mut room = Room::default();
        room.update(&json!({
            "metadata": {"labels": {"zone": "a"}},
            "spec": {"taints": [{"key": "k", "effect": "NoExecute"}, {"key": "s", "effect": "NoSchedule"}]},
            "status": {"allocatable": {"cpu": "4", "memory": "1Gi", "pods": "2"}},
        }));
        room
    }

    fn pod(cpu: &str, port: i64) -> Value {
        json!({
            "containers": [{"resources": {"requests": {"cpu": cpu}}, "ports": [{"hostPort": port}]}],
            "tolerations": [{"operator": "Exists"}],
        })
    }

    fn reason(room: &Room, spec: &Value) -> String {
        room.check("n", spec, &Load::of(spec)).err().map(|why| why.reason).unwrap_or_default()
    }

    #[test]
    fn pods_that_do_not_fit_have_upstream_reasons() {
        let mut room = room();
        let first = Load::of(&pod("3", 80));
        room.add(&first);
        let second = pod("3", 0);
        let why = room.check("n", &second, &Load::of(&second)).unwrap_err();
        assert_eq!(why.reason, "OutOfcpu");
        assert_eq!(
            why.message,
            "Node didn't have enough resource: cpu, requested: 3000, used: 3000, capacity: 4000"
        );
        assert_eq!(reason(&room, &pod("1", 80)), "NodePorts");
        assert_eq!(reason(&room, &pod("1", 81)), "");
        room.remove(&first);
        assert_eq!(reason(&room, &second), "");
    }

    #[test]
    fn admission_checks_memory_selectors_and_taints() {
        let mut room = room();
        let mut selects = pod("1", 0);
        selects["nodeSelector"] = json!({"zone": "b"});
        assert_eq!(reason(&room, &selects), "NodeAffinity");
        let mut tolerates_nothing = pod("1", 0);
        tolerates_nothing["tolerations"] = json!([]);
        assert_eq!(reason(&room, &tolerates_nothing), "TaintToleration");
        let big = json!({"containers": [{"resources": {"requests": {"memory": "2Gi"}}}]});
        assert_eq!(reason(&room, &big), "OutOfmemory");
        let foreign = json!({
            "containers": [{"resources": {"requests": {"example.com/x": "2"}}}], "tolerations": [{"operator": "Exists"}],
        });
        assert_eq!(reason(&room, &foreign), "");
        room.add(&Load::default());
        room.add(&Load::default());
        assert_eq!(reason(&room, &pod("0", 0)), "OutOfpods");
    }

    #[test]
    fn load_includes_pod_level_requests_and_overhead() {
        let mut spec = pod("1", 0);
        spec["resources"] = json!({"requests": {"cpu": "2"}});
        spec["overhead"] = json!({"cpu": "250m"});
        assert_eq!(Load::of(&spec).amounts, [("cpu".into(), 2250)]);
    }
}
