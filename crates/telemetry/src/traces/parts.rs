//! What has been seen of an attempt: its extension points, and plugins where they are told of.

use supercargo_framework::Code;
use supercargo_runtime::observer::{Point, TimePoint, Timespan};

/// So many parts at most are kept. No attempt has nearly as many, as a plugin is one however often it is asked; several that
/// came to nothing without a word may.
const MOST: usize = 500;

/// An extension point, or a plugin at one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) point: Point,
    pub(super) status: Code,
    pub(super) took: Timespan,
}

impl Part {
    /// Whether the other one began and ended within this.
    pub(super) fn holds(&self, other: &Self) -> bool {
        self.took.from.0 <= other.took.from.0 && other.took.to.0 <= self.took.to.0
    }
}

/// A plugin at a point. It may be asked about one node after the other, in turn with other plugins; so it begins with the first
/// call and takes as long as all of them together.
#[derive(Debug)]
pub(super) struct PluginPart {
    pub(super) plugin: Box<str>,
    pub(super) calls: u32,
    pub(super) part: Part,
}

impl PluginPart {
    fn again(&mut self, Part { status, took, .. }: Part) {
        self.calls += 1;
        self.part.took.to.0 += took.to.0.saturating_sub(took.from.0);
        if status != Code::Success {
            self.part.status = status;
        }
    }
}

/// What has been seen.
#[derive(Debug, Default)]
pub(super) struct Parts {
    pub(super) points: Vec<Part>,
    pub(super) plugins: Vec<PluginPart>,
    /// So many of the plugins are at points that are over: a later call is another part.
    over: usize,
}

impl Parts {
    pub(super) fn count(&self) -> usize {
        self.points.len() + self.plugins.len()
    }

    pub(super) fn is_full(&self) -> bool {
        self.count() >= MOST
    }

    pub(super) fn add_point(&mut self, point: Part) {
        self.points.push(point);
        self.over = self.plugins.len();
    }

    pub(super) fn add_plugin(&mut self, plugin: &str, part: Part) {
        let is_it = |known: &&mut PluginPart| known.part.point == part.point && *known.plugin == *plugin;
        match self.plugins[self.over..].iter_mut().find(is_it) {
            Some(known) => known.again(part),
            None => self.plugins.push(PluginPart { plugin: plugin.into(), calls: 1, part }),
        }
    }

    /// Forgets what began before this, and says how much that was.
    pub(super) fn forget_before(&mut self, moment: TimePoint) -> usize {
        let before = self.count();
        self.points.retain(|point| point.took.from.0 >= moment.0);
        self.plugins.retain(|plugin| plugin.part.took.from.0 >= moment.0);
        before - self.count()
    }
}
