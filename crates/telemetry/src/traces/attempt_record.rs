//! Observed parts of an attempt: extension points, and plugins where they are observed.

use supercargo_framework::Code;
use supercargo_runtime::observer::{Point, TimePoint, Timespan};

/// Maximum number of parts. An attempt has fewer, because all calls of a plugin at a point are one
/// part. Several attempts that ended unobserved may exceed it.
const MOST: usize = 500;

/// An extension point, or a plugin at one.
#[derive(Clone, Copy, Debug)]
pub(super) struct TimedPoint {
    pub(super) point: Point,
    pub(super) status: Code,
    pub(super) took: Timespan,
}

impl TimedPoint {
    /// Whether the other part lies within this one.
    pub(super) fn holds(&self, other: &Self) -> bool {
        self.took.from.0 <= other.took.from.0 && other.took.to.0 <= self.took.to.0
    }
}

/// A plugin at a point. Its calls may alternate with those of other plugins. The part begins with
/// the first call and lasts as long as all calls together.
#[derive(Debug)]
pub(super) struct TimedPlugin {
    pub(super) plugin: Box<str>,
    pub(super) calls: u32,
    pub(super) part: TimedPoint,
}

impl TimedPlugin {
    fn again(&mut self, TimedPoint { status, took, .. }: TimedPoint) {
        self.calls += 1;
        self.part.took.to.0 += took.to.0.saturating_sub(took.from.0);
        if status != Code::Success {
            self.part.status = status;
        }
    }
}

/// The observed parts.
#[derive(Debug, Default)]
pub(super) struct AttemptRecord {
    pub(super) points: Vec<TimedPoint>,
    pub(super) plugins: Vec<TimedPlugin>,
    /// The number of plugins at finished points: a later call begins a new part.
    over: usize,
}

impl AttemptRecord {
    pub(super) fn count(&self) -> usize {
        self.points.len() + self.plugins.len()
    }

    pub(super) fn is_full(&self) -> bool {
        self.count() >= MOST
    }

    pub(super) fn add_point(&mut self, point: TimedPoint) {
        self.points.push(point);
        self.over = self.plugins.len();
    }

    pub(super) fn add_plugin(&mut self, plugin: &str, part: TimedPoint) {
        let is_it = |known: &&mut TimedPlugin| known.part.point == part.point && *known.plugin == *plugin;
        match self.plugins[self.over..].iter_mut().find(is_it) {
            Some(known) => known.again(part),
            None => self.plugins.push(TimedPlugin { plugin: plugin.into(), calls: 1, part }),
        }
    }

    /// Removes parts that began before this time, and returns their number.
    pub(super) fn forget_before(&mut self, moment: TimePoint) -> usize {
        let before = self.count();
        self.points.retain(|point| point.took.from.0 >= moment.0);
        self.plugins.retain(|plugin| plugin.part.took.from.0 >= moment.0);
        before - self.count()
    }
}
