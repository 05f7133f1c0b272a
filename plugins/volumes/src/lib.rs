//! The in-tree scheduling plugins that read a pod's volumes, one module each, with upstream's
//! decisions, texts and queueing hints.

use supercargo_framework::registry::{Factory, without_args};

pub mod node_volume_limits;
mod pod_volumes;
#[cfg(test)]
mod testing;
pub mod volume_binding;
pub mod volume_restrictions;
pub mod volume_zone;

/// The plugins of this crate.
pub const PLUGINS: &[(&str, Factory)] = &[
    (volume_restrictions::NAME, without_args::<volume_restrictions::VolumeRestrictions>),
    (node_volume_limits::NAME, node_volume_limits::from_args),
    (volume_binding::NAME, volume_binding::from_args),
    (volume_zone::NAME, without_args::<volume_zone::VolumeZone>),
];
