//! The interface between the scheduler and its plugins.
//!
//! The names are those of upstream's `k8s.io/kube-scheduler/framework`: [`PodInfo`], [`NodeInfo`],
//! [`Status`], [`CycleState`], [`ClusterEvent`], and one trait per extension point in [`plugin`].
//! [`caching`] has what lets the scheduler keep a plugin's answers.
//!
//! The crate is pure: no clock, no randomness, no I/O, no threads. A plugin reads through
//! [`Context`], which records reads so that an answer can be cached until something it depends on
//! changes.

pub mod affinity;
pub mod affinity_keys;
pub mod binding;
pub mod caching;
pub mod cluster_events;
pub mod context;
pub mod cycle_state;
pub mod errors;
pub mod event;
mod event_registration;
pub mod features;
pub mod go_duration;
pub mod hash_seed;
pub mod hint;
pub mod indexed;
pub mod label_terms;
pub mod labels;
pub mod node;
pub mod node_columns;
pub mod node_index;
pub mod node_info;
pub mod node_statuses;
pub mod nodes;
pub mod numbering;
pub mod objects;
pub mod panic_text;
pub mod plugin;
pub mod pod;
pub mod pod_affinity;
pub mod pod_claims;
pub mod ports;
pub mod quantity;
pub mod raw_object;
pub mod registry;
pub mod requests;
pub mod resource;
pub mod resource_version;
pub mod selector;
pub mod selector_set;
pub mod shape;
pub mod signature;
pub mod small_map;
pub mod status;
pub mod steps;
pub mod taint;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod text;
pub mod time;
pub mod topology_spread;
pub mod uid;
pub mod volume;
mod waiting_pods;

pub use affinity::{NodeAffinity, NodeSelectorTerm, NodeTerms, PreferredTerm};
pub use affinity_keys::AffinityKeys;
pub use context::{Command, Context, QueueContext};
pub use cycle_state::{CycleState, StateData};
pub use event::{ActionType, ClusterEvent, EventResource};
pub use features::{Feature, Features};
pub use indexed::Indexed;
pub use labels::Labels;
pub use node::NodeRecord;
pub use node_columns::{NodeColumns, NodeFlags};
pub use node_index::NodeIndex;
pub use node_info::{NodeInfo, PodTotals};
pub use nodes::Nodes;
pub use numbering::Numbering;
pub use panic_text::panic_text;
pub use plugin::Plugin;
pub use pod::{OwnerRef, PodInfo, PodSpec, PodStatus, RareSpec, SharedStatus, Uid};
pub use ports::HostPort;
pub use resource::Resource;
pub use resource_version::ResourceVersion;
pub use selector::LabelSelector;
pub use small_map::SmallMap;
pub use status::{Code, Status};
pub use taint::{Taint, TaintEffect, Toleration};
pub use text::Text;
pub use time::{Now, Timestamp};
pub use volume::{Volume, VolumeSource};
pub use waiting_pods::{WaitingPod, WaitingPods};
