//! Calls plugins: names the one that runs, times it, and guards those whose panics must not spread.

use std::cell::Cell;

use supercargo_framework::Code;

use crate::observer::{Observation, Point};
use crate::panic_guard::guard;
use crate::phase_timer::PhaseTimer;

/// The number of nodes per plugin and cycle whose calls are timed. Timing more costs more than it
/// tells.
const TIMED_NODES: usize = 100;

/// The phase and the plugin that run now. The report of a panic names them.
#[derive(Default)]
pub struct CurrentPlugin(Cell<Option<(&'static str, &'static str)>>);

impl CurrentPlugin {
    /// The phase and the plugin that ran last, and forgets them.
    pub fn take(&self) -> Option<(&'static str, &'static str)> {
        self.0.take()
    }
}

/// Calls the plugins of one pod.
pub struct PluginCalls<'a> {
    /// Times the phases of the cycle.
    pub timer: PhaseTimer<'a>,
    current: &'a CurrentPlugin,
}

impl<'a> PluginCalls<'a> {
    /// Calls that are timed by `timer` and named in `current`.
    pub fn new(timer: PhaseTimer<'a>, current: &'a CurrentPlugin) -> Self {
        Self { timer, current }
    }

    /// Names the plugin whose calls follow, for calls that are not timed one by one.
    pub fn enter(&self, phase: &'static str, plugin: &'static str) {
        self.current.0.set(Some((phase, plugin)));
    }

    /// Names and times a call.
    pub fn call<R>(
        &self,
        point: Point,
        plugin: &'static str,
        call: impl FnOnce() -> R,
        status: impl FnOnce(&R) -> Code,
    ) -> R {
        self.enter(point.phase(), plugin);
        self.timer.plugin(point, plugin, call, status)
    }

    /// The same for the `nth` of many nodes. Only calls for the first nodes are timed.
    pub fn call_for_node<R>(
        &self,
        nth: usize,
        point: Point,
        plugin: &'static str,
        call: impl FnOnce() -> R,
        status: impl FnOnce(&R) -> Code,
    ) -> R {
        if nth < TIMED_NODES {
            return self.call(point, plugin, call, status);
        }
        self.enter(point.phase(), plugin);
        call()
    }

    /// The same, timed in any case.
    pub fn call_timed<R>(
        &self,
        point: Point,
        plugin: &'static str,
        call: impl FnOnce() -> R,
        status: impl FnOnce(&R) -> Code,
    ) -> R {
        self.enter(point.phase(), plugin);
        self.timer.plugin_always(point, plugin, call, status)
    }

    /// Times a call whose panic must not keep other plugins from theirs. The observer gets the
    /// panic.
    pub fn call_guarded(&self, point: Point, plugin: &'static str, call: impl FnOnce()) {
        let call = || self.timer.plugin(point, plugin, call, |()| Code::Success);
        if let Err(panic) = guard(point.phase(), plugin, call) {
            self.timer.observer.observe(Observation::Anomaly(&panic));
        }
    }

    /// Runs code outside plugins. A panic in it is attributed to no plugin.
    pub fn call_other<R>(&self, call: impl FnOnce() -> R) -> R {
        let current = self.current.take();
        let answer = call();
        self.current.0.set(current);
        answer
    }
}
