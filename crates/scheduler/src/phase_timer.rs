//! How long the parts of an attempt take, for the observer.

use std::cell::Cell;

use supercargo_framework::{Code, PodInfo};

use crate::observer::{Moment, Observation, Observer, Point, Took};
use crate::profile::ProfileIndex;

/// Of a watched cycle, so many nodes' calls of each plugin at most are timed: more would cost more than they tell.
pub(crate) const WATCHED_NODES: usize = 100;

/// Times what comes one after the other: each part begins where the last one ended.
pub(crate) struct Laps<'a> {
    pub(crate) observer: &'a dyn Observer,
    profile: usize,
    pod: &'a PodInfo,
    watches: bool,
    last: Cell<Moment>,
}

impl<'a> Laps<'a> {
    /// The first part has begun at `since`. Plugins are timed one by one if it `watches` them.
    pub(crate) fn since(
        observer: &'a dyn Observer,
        ProfileIndex(profile): ProfileIndex,
        pod: &'a PodInfo,
        since: Moment,
        watches: bool,
    ) -> Self {
        Self { observer, profile, pod, watches, last: Cell::new(since) }
    }

    /// The first part begins now.
    pub(crate) fn now(
        observer: &'a dyn Observer,
        profile: ProfileIndex,
        pod: &'a PodInfo,
        watches: bool,
    ) -> Self {
        Self::since(observer, profile, pod, observer.moment(), watches)
    }

    /// What has gone on since the last part counts as none.
    pub(crate) fn restart(&self) {
        self.last.set(self.observer.moment());
    }

    /// Ends a part.
    pub(crate) fn lap(&self) -> Took {
        let to = self.observer.moment();
        Took { from: self.last.replace(to), to }
    }

    /// Ends a part that was a whole extension point.
    pub(crate) fn point(&self, point: Point, status: Code) {
        self.told(point, status, self.lap());
    }

    /// Tells of an extension point that took so long.
    pub(crate) fn told(&self, point: Point, status: Code, took: Took) {
        let (profile, pod) = (self.profile, self.pod);
        self.observer.observe(Observation::ExtensionPoint { profile, pod, point, status, took });
    }

    /// Calls a plugin.
    pub(crate) fn plugin<R>(
        &self,
        point: Point,
        plugin: &str,
        call: impl FnOnce() -> R,
        status: impl FnOnce(&R) -> Code,
    ) -> R {
        if !self.watches {
            return call();
        }
        timed(self.observer, self.pod, point, plugin, call, status)
    }

    /// Calls a plugin for one of many nodes, of which `nth` have gone before.
    pub(crate) fn plugin_of_node<R>(
        &self,
        nth: usize,
        point: Point,
        plugin: &str,
        call: impl FnOnce() -> R,
        status: impl FnOnce(&R) -> Code,
    ) -> R {
        if nth >= WATCHED_NODES { call() } else { self.plugin(point, plugin, call, status) }
    }
}

/// Calls a plugin and tells how long that took.
pub(crate) fn timed<R>(
    observer: &dyn Observer,
    pod: &PodInfo,
    point: Point,
    plugin: &str,
    call: impl FnOnce() -> R,
    status: impl FnOnce(&R) -> Code,
) -> R {
    let from = observer.moment();
    let answer = call();
    let took = Took { from, to: observer.moment() };
    observer.observe(Observation::Plugin { pod, plugin, point, status: status(&answer), took });
    answer
}
