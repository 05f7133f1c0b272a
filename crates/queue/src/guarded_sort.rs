//! Guards the heaps against panics of the queue-sort plugin.

use std::sync::{Arc, Mutex, PoisonError};

use supercargo_framework::plugin::{QueueSortPlugin, Queued};

use supercargo_runtime::panic_guard::guard;
use supercargo_runtime::profile::Named;

/// A queue-sort plugin whose panics do not unwind through a heap during a change. A comparison that
/// panics returns `false`, and the report is kept.
pub(crate) struct GuardedSort {
    plugin: Arc<Named<dyn QueueSortPlugin>>,
    panic: Mutex<Option<String>>,
}

impl GuardedSort {
    pub(crate) fn new(plugin: Arc<Named<dyn QueueSortPlugin>>) -> Self {
        Self { plugin, panic: Mutex::default() }
    }

    pub(crate) fn less(&self, a: Queued<'_>, b: Queued<'_>) -> bool {
        guard("QueueSort", self.plugin.name, || self.plugin.plugin.less(a, b)).unwrap_or_else(|panic| {
            self.panic.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(panic);
            false
        })
    }

    pub(crate) fn take_panic(&self) -> Option<String> {
        self.panic.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
