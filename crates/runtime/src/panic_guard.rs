//! Contains panics of plugins.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use supercargo_framework::panic_text;

/// Calls a plugin. A panic ends the call, not the process; the error names the plugin.
///
/// For calls that leave the scheduler's own state the same whether they return or panic.
pub fn guard<R>(phase: &str, plugin: &str, call: impl FnOnce() -> R) -> Result<R, String> {
    catch_unwind(AssertUnwindSafe(call)).map_err(|panic| panic_report(phase, plugin, &*panic))
}

/// The text that reports a plugin's panic.
pub fn panic_report(phase: &str, plugin: &str, panic: &(dyn Any + Send)) -> String {
    format!("plugin {plugin:?} panicked in {phase}: {}", panic_text(panic))
}
