//! The total resources of a pod's containers, and its QoS class.

use std::collections::BTreeMap;

use serde_json::Value;

use super::super::resources::is_huge_pages;
use crate::json::{entries, list, present, text};
use crate::quantity::Quantity;

/// Requests or limits.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Amount {
    /// The request.
    Request,
    /// The limit.
    Limit,
}

impl Amount {
    pub(super) fn field(self) -> &'static str {
        match self {
            Self::Request => "requests",
            Self::Limit => "limits",
        }
    }
}

type Amounts = BTreeMap<String, Quantity>;

/// Whether a resource may be requested at pod level.
pub(crate) fn is_pod_level(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || is_huge_pages(name)
}

/// Whether an init container keeps running beside the main containers.
pub(crate) fn is_sidecar(container: &Value) -> bool {
    text(container, "restartPolicy") == "Always"
}

/// The maximum resources that the containers use at one time.
pub(crate) fn of_containers(spec: &Value, amount: Amount) -> Amounts {
    let mut all = Amounts::new();
    for container in list(spec, "containers") {
        add(&mut all, &of(container, amount));
    }
    let (mut sidecars, mut starting) = (Amounts::new(), Amounts::new());
    for container in list(spec, "initContainers") {
        let mut own = of(container, amount);
        if is_sidecar(container) {
            add(&mut all, &own);
            add(&mut sidecars, &own);
            own.clone_from(&sidecars);
        } else {
            add(&mut own, &sidecars);
        }
        raise(&mut starting, own);
    }
    raise(&mut all, starting);
    all
}

/// The QoS class of a pod.
pub(crate) fn quality_of_service(spec: &Value) -> &'static str {
    let (mut requests, mut limits) = (Amounts::new(), Amounts::new());
    let mut is_limited = true;
    if let Some(resources) = present(spec, "resources") {
        add(&mut requests, &computed(resources, Amount::Request));
        let own = computed(resources, Amount::Limit);
        is_limited = entries(resources, "limits").next().is_none() || own.len() == 2;
        add(&mut limits, &own);
    } else {
        for container in list(spec, "containers").iter().chain(list(spec, "initContainers")) {
            let resources = container.get("resources").unwrap_or(&Value::Null);
            add(&mut requests, &computed(resources, Amount::Request));
            let own = computed(resources, Amount::Limit);
            is_limited &= own.len() == 2;
            add(&mut limits, &own);
        }
    }
    if requests.is_empty() && limits.is_empty() {
        "BestEffort"
    } else if is_limited && requests == limits {
        "Guaranteed"
    } else {
        "Burstable"
    }
}

/// The cpu and memory amounts.
fn computed(resources: &Value, amount: Amount) -> Amounts {
    let read = |(name, value): (&str, &Value)| (name.to_owned(), Quantity::of(value));
    entries(resources, amount.field())
        .filter(|(name, _)| matches!(*name, "cpu" | "memory"))
        .map(read)
        .filter(|(_, amount)| *amount > Quantity::ZERO)
        .collect()
}

fn of(container: &Value, amount: Amount) -> Amounts {
    let resources = container.get("resources").unwrap_or(&Value::Null);
    entries(resources, amount.field()).map(|(name, value)| (name.to_owned(), Quantity::of(value))).collect()
}

fn add(all: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        let sum = all.get(name).map_or(*amount, |known| known.plus(*amount));
        all.insert(name.clone(), sum);
    }
}

fn raise(all: &mut Amounts, other: Amounts) {
    for (name, amount) in other {
        let most = all.get(&name).map_or(amount, |known| amount.max(*known));
        all.insert(name, most);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn container(requests: Value, limits: Value) -> Value {
        json!({"resources": {"requests": requests, "limits": limits}})
    }

    #[test]
    fn guaranteed_pods_have_equal_requests_and_limits() {
        let full = container(json!({"cpu": "1", "memory": "1Gi"}), json!({"cpu": "1000m", "memory": "1Gi"}));
        let class = |containers: &[&Value]| quality_of_service(&json!({"containers": containers}));
        assert_eq!(class(&[&full, &full]), "Guaranteed");
        assert_eq!(class(&[&full, &json!({})]), "Burstable");
        assert_eq!(class(&[&container(json!({"cpu": "1"}), json!({"cpu": "1"}))]), "Burstable");
        assert_eq!(class(&[&container(json!({"cpu": "0", "example.com/a": "1"}), json!({}))]), "BestEffort");
    }

    #[test]
    fn pod_level_amounts_have_precedence_over_containers() {
        let amounts = json!({"cpu": "1", "memory": "1Gi"});
        let spec = json!({"containers": [{}], "resources": {"requests": amounts, "limits": amounts}});
        assert_eq!(quality_of_service(&spec), "Guaranteed");
    }

    #[test]
    fn sidecars_add_to_main_and_init_containers() {
        let mut sidecar = container(json!({"cpu": "1"}), json!({}));
        sidecar["restartPolicy"] = "Always".into();
        let spec = json!({
            "containers": [container(json!({"cpu": "2"}), json!({}))],
            "initContainers": [sidecar, container(json!({"cpu": "5"}), json!({}))],
        });
        assert_eq!(of_containers(&spec, Amount::Request)["cpu"].to_string(), "6");
    }
}
