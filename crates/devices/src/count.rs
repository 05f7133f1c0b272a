//! How many devices of a class a node has.

use std::sync::Arc;

use supercargo_framework::NodeRecord;
use supercargo_framework::objects::{DeviceClass, DevicePlace};

use crate::Cluster;
use crate::budget::Budget;
use crate::node_match::includes;
use crate::selectors::{Matches, Selectors};

/// Counts the devices of a class, for scores of the extended resource that the class names.
///
/// It belongs to the [`Matches`] that compiled its selectors.
#[derive(Debug)]
pub struct ClassCounter(Arc<Selectors>);

impl ClassCounter {
    /// Compiles the selectors of a class. Kinds of selectors that this version does not know select
    /// all.
    pub fn new(class: &DeviceClass, matches: &mut Matches) -> Self {
        let expressions = class.selectors.iter().flatten().cloned().collect();
        // As upstream, selectors do not see here whether a device can be shared.
        Self(matches.compile(expressions, Box::default(), true))
    }

    /// How many devices of the class a node has in use, and in all. Slices of every generation
    /// count. `None` if there is no device, or a selector fails.
    pub fn count(
        &self,
        cluster: Cluster<'_>,
        node: &NodeRecord,
        matches: &mut Matches,
    ) -> Option<(i64, i64)> {
        let inventory = cluster.inventory;
        let own = inventory.on_node(&node.name).into_iter().flat_map(|slices| slices.values());
        let (mut used, mut total) = (0, 0);
        for slice in own.chain(inventory.shared().values()) {
            let spec = slice.spec();
            let usage = cluster.allocated.pool(slice.pool());
            if spec.place != DevicePlace::PerDevice && !includes(&spec.place, node).ok()? {
                continue;
            }
            for (i, device) in spec.devices.iter().enumerate() {
                if spec.place == DevicePlace::PerDevice && !includes(&device.place, node).ok()? {
                    continue;
                }
                if matches.selected(&self.0, slice, i, &mut Budget::unlimited()).ok()? {
                    total += 1;
                    used += i64::from(usage.is_some_and(|usage| usage.contains_key(&device.name)));
                }
            }
        }
        (total > 0).then_some((used, total))
    }
}
