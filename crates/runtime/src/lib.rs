//! Runs plugins: upstream's `framework/runtime`.
//!
//! The queue and the cycle take the plugins of a pod's profile from here, and call them by name, in
//! time and guarded against panics.
//!
//! | module | subject |
//! |---|---|
//! | `profile` | the plugins of each profile, by extension point |
//! | `plugin_calls` | names, times and guards the plugin that runs |
//! | `panic_guard` | turns a plugin's panic into an error |
//! | `observer`, `phase_timer` | what happens and how long it takes, for metrics and traces |
//! | `diagnosis`, `failure` | why a pod found no node, in upstream's words |
//!
//! Pure, as its only dependency `supercargo-framework` is.

pub mod diagnosis;
pub mod failure;
pub mod observer;
pub mod panic_guard;
pub mod phase_timer;
pub mod plugin_calls;
pub mod profile;
