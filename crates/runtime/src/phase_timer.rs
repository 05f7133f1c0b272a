//! Times the phases of an attempt for the observer.

use std::cell::Cell;

use supercargo_framework::{Code, PodInfo};

use crate::observer::{Observation, Observer, Point, TimePoint, Timespan};
use crate::profile::ProfileIndex;

/// Times consecutive phases: each begins where the last one ended.
pub struct PhaseTimer<'a> {
    /// Receives the times.
    pub observer: &'a dyn Observer,
    profile: usize,
    pod: &'a PodInfo,
    /// Whether plugins are timed one by one.
    watches: bool,
    last: Cell<TimePoint>,
}

impl<'a> PhaseTimer<'a> {
    /// A timer whose first phase began at `since`.
    pub fn since(
        observer: &'a dyn Observer,
        ProfileIndex(profile): ProfileIndex,
        pod: &'a PodInfo,
        since: TimePoint,
        watches: bool,
    ) -> Self {
        Self { observer, profile, pod, watches, last: Cell::new(since) }
    }

    /// A timer whose first phase begins now.
    pub fn start(observer: &'a dyn Observer, profile: ProfileIndex, pod: &'a PodInfo, watches: bool) -> Self {
        Self::since(observer, profile, pod, observer.time_point(), watches)
    }

    /// Begins the next phase now. The time since the last phase counts for none.
    pub fn restart(&self) {
        self.last.set(self.observer.time_point());
    }

    /// Ends a phase.
    pub fn lap(&self) -> Timespan {
        let to = self.observer.time_point();
        Timespan { from: self.last.replace(to), to }
    }

    /// Ends a phase that was a whole extension point.
    pub fn point(&self, point: Point, status: Code) {
        self.report(point, status, self.lap());
    }

    /// Reports the time of an extension point.
    pub fn report(&self, point: Point, status: Code, took: Timespan) {
        let (profile, pod) = (self.profile, self.pod);
        self.observer.observe(Observation::ExtensionPoint { profile, pod, point, status, took });
    }

    /// Calls a plugin, and times it if plugins are timed one by one.
    pub fn plugin<R>(
        &self,
        point: Point,
        plugin: &str,
        call: impl FnOnce() -> R,
        status: impl FnOnce(&R) -> Code,
    ) -> R {
        if self.watches { self.plugin_always(point, plugin, call, status) } else { call() }
    }

    /// Calls a plugin, and times it in any case.
    pub(crate) fn plugin_always<R>(
        &self,
        point: Point,
        plugin: &str,
        call: impl FnOnce() -> R,
        status: impl FnOnce(&R) -> Code,
    ) -> R {
        let from = self.observer.time_point();
        let answer = call();
        let (pod, took) = (self.pod, Timespan { from, to: self.observer.time_point() });
        self.observer.observe(Observation::Plugin { pod, plugin, point, status: status(&answer), took });
        answer
    }
}
