//! The zones and pools of nodes.

use std::sync::Arc;

use supercargo_framework::NodeRecord;

/// Labels that name the pool of a node, most common first. Else any label `DOMAIN/pool` does.
const POOL_LABELS: [&str; 7] = [
    "cloud.google.com/gke-nodepool",
    "eks.amazonaws.com/nodegroup",
    "karpenter.sh/nodepool",
    "kubernetes.azure.com/agentpool",
    "agentpool",
    "node.kubernetes.io/pool",
    "pool",
];
/// Names the pool of a node without such a label.
const INSTANCE_TYPE: &str = "node.kubernetes.io/instance-type";

/// The zone of a node; empty if it has none.
pub(crate) fn zone(node: &NodeRecord) -> Arc<str> {
    node.zone().zone.unwrap_or_default()
}

/// The pool of a node; empty if it has none.
pub(crate) fn pool(node: &NodeRecord) -> Arc<str> {
    let well_known = POOL_LABELS.iter().find_map(|label| node.labels.get(label));
    let any = || node.labels.iter().find(|(key, _)| key.ends_with("/pool")).map(|(_, value)| value);
    let named = well_known.or_else(any).or_else(|| node.labels.get(INSTANCE_TYPE));
    named.cloned().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use supercargo_framework::testing;

    use super::*;

    #[test]
    fn pools_are_named_by_labels() {
        let pool = |labels: &[(&str, &str)]| {
            let node = labels.iter().fold(testing::node("n"), |node, (key, value)| node.label(key, value));
            pool(&node.build()).to_string()
        };
        let size = (INSTANCE_TYPE, "m5.large");
        assert_eq!(pool(&[]), "");
        assert_eq!(pool(&[size]), "m5.large");
        assert_eq!(pool(&[size, ("example.com/pool", "db")]), "db");
        assert_eq!(pool(&[size, ("pool", "m5.large"), ("example.com/pool", "db")]), "m5.large");
        assert_eq!(pool(&[("example.com/pool", "db"), ("karpenter.sh/nodepool", "spot")]), "spot");
    }
}
