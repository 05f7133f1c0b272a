//! The plugins whose Filter does not run in a cycle.

use smallvec::SmallVec;
use supercargo_framework::CycleState;

/// The plugins whose PreFilter returned Skip. Their filters do not run, in dry runs either.
#[derive(Clone, Default)]
pub struct SkippedFilters(SmallVec<[&'static str; 16]>);

impl SkippedFilters {
    /// The plugins that PreFilter noted in this state.
    pub fn of(state: &CycleState) -> Self {
        state.read::<Self>().cloned().unwrap_or_default()
    }

    /// Adds a plugin.
    pub(crate) fn add(&mut self, plugin: &'static str) {
        self.0.push(plugin);
    }

    /// Whether the plugin's Filter does not run.
    pub fn contains(&self, plugin: &str) -> bool {
        self.0.contains(&plugin)
    }
}
