//! Tests of the whole state machine, called as in production.

mod bed;
mod binding;
mod claims;
mod coexistence;
mod cycle;
mod diagnosis;
mod dry_run;
mod event_model;
mod events;
mod extenders;
mod fake;
mod features;
mod group_preemption;
mod groups;
mod panics;
mod placements;
mod preemption;
mod profiles;
mod queueing;
mod reconfigure;
mod record;
mod status_patches;
mod tables;
mod uncertain;
mod volumes;
mod world;
