//! The in-tree scheduling plugins, one module each, with upstream's decisions, texts, weights and
//! queueing hints. Those that read a pod's volumes, and the one that allocates devices, are in
//! crates of their own: [`supercargo_volume_plugins`] and [`supercargo_dynamic_resources`].
//!
//! [`registry`] has a factory for each plugin; [`DEFAULT_PLUGINS`] are enabled by default. Plugins
//! do not depend on each other. A cycle's state is in `CycleState`; a plugin keeps only its
//! arguments, and what it can derive again from the objects that it is shown.

pub use supercargo_dynamic_resources as dynamic_resources;
use supercargo_framework::Feature;
use supercargo_framework::registry::{DefaultPlugin, Factory, Registry, without_args};
pub use supercargo_volume_plugins::{node_volume_limits, volume_binding, volume_restrictions, volume_zone};

mod applied;
mod args;
pub mod default_binder;
pub mod default_preemption;
mod domain_counts;
#[cfg(test)]
mod dry_run;
mod float_int;
pub mod gang_scheduling;
#[cfg(test)]
mod history;
pub mod image_locality;
pub mod inter_pod_affinity;
pub mod node_affinity;
pub mod node_declared_features;
pub mod node_name;
pub mod node_ports;
pub mod node_resources_balanced_allocation;
pub mod node_resources_fit;
pub mod node_unschedulable;
pub mod pod_group_pods_count;
pub mod pod_topology_spread;
pub mod priority_sort;
mod resource_usage;
pub mod scheduling_gates;
pub mod taint_toleration;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
pub mod topology_placement_generator;
pub mod unsupported_constraints;

/// The plugins without those of [`supercargo_volume_plugins`].
const PLUGINS: &[(&str, Factory)] = &[
    (scheduling_gates::NAME, without_args::<scheduling_gates::SchedulingGates>),
    (priority_sort::NAME, without_args::<priority_sort::PrioritySort>),
    (unsupported_constraints::NAME, without_args::<unsupported_constraints::UnsupportedConstraints>),
    (node_name::NAME, without_args::<node_name::NodeName>),
    (node_unschedulable::NAME, without_args::<node_unschedulable::NodeUnschedulable>),
    (taint_toleration::NAME, without_args::<taint_toleration::TaintToleration>),
    (node_affinity::NAME, node_affinity::from_args),
    (node_ports::NAME, without_args::<node_ports::NodePorts>),
    (node_resources_fit::NAME, node_resources_fit::from_args),
    (pod_topology_spread::NAME, pod_topology_spread::from_args),
    (inter_pod_affinity::NAME, inter_pod_affinity::from_args),
    (dynamic_resources::NAME, dynamic_resources::from_args),
    (default_preemption::NAME, default_preemption::from_args),
    (node_resources_balanced_allocation::NAME, node_resources_balanced_allocation::from_args),
    (image_locality::NAME, without_args::<image_locality::ImageLocality>),
    (default_binder::NAME, without_args::<default_binder::DefaultBinder>),
    (node_declared_features::NAME, node_declared_features::from_args),
    (gang_scheduling::NAME, gang_scheduling::from_args),
    (
        topology_placement_generator::NAME,
        without_args::<topology_placement_generator::TopologyPlacementGenerator>,
    ),
    (pod_group_pods_count::NAME, without_args::<pod_group_pods_count::PodGroupPodsCount>),
];

/// The factories of all in-tree plugins.
pub fn registry() -> Registry {
    let mut registry = Registry::new();
    for (name, factory) in PLUGINS.iter().chain(supercargo_volume_plugins::PLUGINS) {
        registry.register(name, *factory);
    }
    registry
}

/// The default plugins of a profile: upstream's multiPoint list, order and weights, limited to
/// plugins that exist here, with [`unsupported_constraints`] before all filters.
pub const DEFAULT_PLUGINS: &[DefaultPlugin] = &[
    plugin(scheduling_gates::NAME, 0),
    plugin(priority_sort::NAME, 0),
    plugin(unsupported_constraints::NAME, 0),
    plugin(node_name::NAME, 0),
    plugin(node_unschedulable::NAME, 0),
    plugin(taint_toleration::NAME, 3),
    plugin(node_affinity::NAME, 2),
    plugin(node_ports::NAME, 0),
    plugin(node_resources_fit::NAME, 1),
    plugin(volume_restrictions::NAME, 0),
    plugin(node_volume_limits::NAME, 0),
    plugin(volume_binding::NAME, 0),
    plugin(volume_zone::NAME, 0),
    plugin(pod_topology_spread::NAME, 2),
    plugin(inter_pod_affinity::NAME, 2),
    plugin(dynamic_resources::NAME, 2),
    plugin(default_preemption::NAME, 0),
    plugin(node_resources_balanced_allocation::NAME, 1),
    plugin(image_locality::NAME, 1),
    plugin(default_binder::NAME, 0),
    plugin(node_declared_features::NAME, 0).with(Feature::NodeDeclaredFeatures),
    plugin(gang_scheduling::NAME, 0).with(Feature::GenericWorkload),
    plugin(topology_placement_generator::NAME, 0).with(Feature::TopologyAwareWorkloadScheduling),
    plugin(pod_group_pods_count::NAME, 1).with(Feature::TopologyAwareWorkloadScheduling),
];

const fn plugin(name: &'static str, weight: i32) -> DefaultPlugin {
    DefaultPlugin::new(name, weight)
}
