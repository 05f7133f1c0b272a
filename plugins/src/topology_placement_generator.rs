//! Lists one placement for each domain of the topology that a group must stay within.

use std::collections::BTreeMap;
use std::sync::Arc;

use supercargo_framework::plugin::{
    Assignments, ExtensionPoints, GroupInfo, Placement, PlacementGeneratePlugin,
};
use supercargo_framework::{Context, NodeIndex, Plugin, Status};

/// The plugin's name.
pub const NAME: &str = "TopologyPlacementGenerator";

#[derive(Default)]
pub(crate) struct TopologyPlacementGenerator;

impl Plugin for TopologyPlacementGenerator {
    fn name(&self) -> &'static str {
        NAME
    }

    fn extension_points(self: Arc<Self>) -> ExtensionPoints {
        ExtensionPoints::new().placement_generate(&self)
    }
}

impl PlacementGeneratePlugin for TopologyPlacementGenerator {
    /// Ordered by domain; upstream's order is random. Nodes without the label are in none. Pods
    /// that are on nodes pin their domain.
    fn generate_placements(
        &self,
        cx: &Context<'_>,
        group: GroupInfo<'_>,
        parent: &Placement,
    ) -> Result<Vec<Placement>, Status> {
        let Some(key) = &group.spec.topology_key else { return Ok(vec![parent.clone()]) };
        let pinned = domain_of(cx, key, group.scheduled).map_err(|reason| {
            Status::error(format!("cannot determine domain for already scheduled pods: {reason}"))
        })?;
        let mut domains: BTreeMap<&Arc<str>, Vec<NodeIndex>> = BTreeMap::new();
        for index in parent.nodes.iter() {
            let domain = cx.node(*index).node().labels.get(key);
            if let Some(domain) = domain.filter(|domain| pinned.is_none_or(|pinned| pinned == *domain)) {
                domains.entry(domain).or_default().push(*index);
            }
        }
        let placement =
            |(name, nodes): (&Arc<str>, Vec<_>)| Placement { name: Arc::clone(name), nodes: nodes.into() };
        Ok(domains.into_iter().map(placement).collect())
    }
}

/// The domain that all these pods are in; `None` if there are none.
fn domain_of<'a>(
    cx: &'a Context<'_>,
    key: &str,
    scheduled: &Assignments,
) -> Result<Option<&'a Arc<str>>, String> {
    let mut known = None;
    for (pod, node) in scheduled {
        let Some(node) = cx.nodes().get(node) else {
            return Err(format!(
                "getting node for pod {}: nodeinfo not found for node name {node:?}",
                pod.key()
            ));
        };
        let Some(domain) = node.node().labels.get(key) else {
            return Err(format!("no topology domain found for pod {}", pod.key()));
        };
        match known {
            Some(other) if other != domain => {
                return Err(format!("more than 1 domain found for pod group: {other}, {domain}"));
            }
            _ => known = Some(domain),
        }
    }
    Ok(known)
}
