//! The scheduler as a state machine.
//!
//! [`Scheduler`] owns all state: the cache, the queue, the objects that plugins read, and the
//! bindings in flight. Its caller passes in events ([`Input`]) with the time, and carries out the
//! requested work ([`Effect`]). It has no clock, no threads, no randomness and no I/O. A log of its
//! inputs replays to the same decisions ([`record`]), and a simulation, a test and a cluster run
//! the same code.
//!
//! ```text
//! informers ──Input──> handle ─┐                      ┌─Effect──> bind, patch, event
//!                              ├─ cache, queue, … ────┤
//!               schedule_one ──┘                      └─Effect──> … ──Input──> handle
//! ```
//!
//! ```
//! use std::sync::Arc;
//!
//! use supercargo_framework::{Features, Now};
//! use supercargo_framework::testing::{node, pod};
//! use supercargo_scheduler::{
//!     Effect, Input, NoCalls, Notification, Options, PluginLists, ProfileSpec, Scheduler,
//! };
//!
//! let registry = supercargo_plugins::registry();
//! let plugins = supercargo_plugins::DEFAULT_PLUGINS.iter().map(|plugin| {
//!     let build = registry.get(plugin.name).expect("it is registered");
//!     let plugin_instance = build(&serde_json::json!({}), &Features::default());
//!     (plugin_instance.expect("it needs no arguments"), plugin.weight)
//! });
//! let profile = ProfileSpec {
//!     scheduler_name: "supercargo".to_owned(),
//!     percentage_of_nodes_to_score: None,
//!     plugins: PluginLists::multi_point(plugins),
//! };
//! let mut scheduler = Scheduler::new(Options { profiles: vec![profile], ..Options::default() })?;
//!
//! let now = Now::default();
//! scheduler.handle(now, Input::Node(Notification::Added(Arc::new(node("n1").build()))));
//! scheduler.handle(now, Input::QueuedPod(Notification::Added(Arc::new(pod("p").build()))));
//! scheduler.schedule_one(now, &mut NoCalls);
//! let effects = scheduler.take_effects();
//! assert!(matches!(&effects[..], [Effect::Bind { node, .. }] if **node == *"n1"));
//! # Ok::<(), supercargo_scheduler::BuildError>(())
//! ```

// Tests print, and read from the environment how long to run.
#![cfg_attr(test, allow(clippy::disallowed_macros, clippy::disallowed_methods, clippy::disallowed_types))]

mod attempt;
mod binding_cycle;
mod bindings;
mod copies;
mod drain;
mod dry_run;
mod effect;
mod failure_handler;
mod fits;
mod fork;
mod group_cycle;
mod group_post_filter;
mod group_reason;
mod group_tree;
mod handle;
mod input;
mod invariants;
mod node_recheck;
mod notes;
mod placements;
mod preemption;
mod preemptions;
mod reconfigure;
pub mod record;
mod scheduler;
mod simulated_claims;
mod stall;
mod stats;
#[cfg(test)]
mod tests;
mod tries;
mod uncertain_binding;
mod unconfirmed_patches;
mod views;
mod what_if;
mod why;
mod woken;

pub use effect::{
    Effect, EventType, GroupPatch, GroupReference, PodEvent, PreBindWork, StatusPatch, VictimEviction,
};
pub use fits::Fits;
pub use fork::{Fork, ForkPace};
pub use input::{Eviction, Input, Notification, PodRead};
pub use scheduler::{BuildError, Options, Scheduler};
pub use stall::stalled;
pub use stats::{Rejected, Stats};
pub use supercargo_evaluation::cache::{Cache, CacheError};
pub use supercargo_evaluation::extender::{
    Calls, ExtenderAnswer, ExtenderQuestion, ExtenderSpec, ExtenderVictims, NoCalls,
};
pub use supercargo_evaluation::scoring::PluginScores;
pub use supercargo_evaluation::tables::{DEFAULT_TABLE_MEMORY, Rule, TableStats};
pub use supercargo_queue::{Backoff, GroupLengths, Place, QueueOptions, QueuedPod};
pub use supercargo_runtime::observer::{
    AttemptResult, Evaluated, Observation, ObservedProfile, Observer, PluginSet, Point, QueueName, TimePoint,
    Timespan, Unobserved,
};
pub use supercargo_runtime::profile::{NamedBinder, PluginLists, ProfileError, ProfileSpec};
pub use supercargo_timeline::{Attempt, Entry, Happening, History};
pub use views::{BindingView, KnownObjects, NodeView, PodOnNode, QueueView};
pub use what_if::{End, PodOutcome, Verb, WhatIf, WhatIfError};
pub use why::{Detail, Fix, Obstacle, PodFix, Refusal, Shortage, Why, WhyError, WhyGroup};
