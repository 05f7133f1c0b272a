//! Keeps a plugin's panic where it happened.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Calls a plugin. A panic ends the call, not the process; what it says names the plugin.
///
/// For calls after which the scheduler's own state is the same whether they returned or not.
pub(crate) fn contained<R>(point: &str, plugin: &str, call: impl FnOnce() -> R) -> Result<R, String> {
    catch_unwind(AssertUnwindSafe(call)).map_err(|panic| panicked(point, plugin, &*panic))
}

/// What is said of a plugin that panicked.
pub(crate) fn panicked(point: &str, plugin: &str, panic: &(dyn Any + Send)) -> String {
    format!("plugin {plugin:?} panicked in {point}: {}", text_of(panic))
}

/// What a panic said.
pub(crate) fn text_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}
