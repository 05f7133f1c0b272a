//! The work that the search for a pod's devices may take.

use supercargo_framework::steps;

/// The steps that the search for a pod's devices may still take, on all nodes together.
///
/// Upstream has no such limit: there, a search ends with a node's time. A step is a device that the
/// search looks at, a request that it begins, or a unit of a selector's work. Steps count as if no
/// selector had been asked in an earlier attempt. So what an attempt may do does not depend on what
/// is remembered.
///
/// A step takes 25 to 60 ns.
#[derive(Debug)]
pub struct Budget {
    /// `None` is unlimited.
    left: Option<u64>,
    /// What nodes may still add.
    grants: u64,
}

/// The steps that each device of a node adds to a budget, for selectors that are not hostile: in a
/// large cluster, they cost more.
const STEPS_PER_DEVICE: u64 = 64;
/// The most steps that devices add in all.
const MOST_GRANTED: u64 = 2_000_000;
/// The steps that an evaluation takes beside its work.
pub(crate) const STEPS_TO_EVALUATE: u64 = 32;

const STEPS_TO_LOOK: u64 = 8;

/// The steps to find out what a list of selectors sees of a device with this many values.
pub(crate) const fn steps_to_look(values: usize) -> u64 {
    STEPS_TO_LOOK + values as u64
}

impl Budget {
    /// A budget of this many steps.
    pub const fn new(steps: u64) -> Self {
        Self { left: Some(steps), grants: MOST_GRANTED }
    }

    /// No limit. Only then does a search take exactly the steps of upstream's: others end early
    /// where a request cannot be met.
    pub const fn unlimited() -> Self {
        Self { left: None, grants: 0 }
    }

    /// The steps that are left, if they are limited.
    pub const fn left(&self) -> Option<u64> {
        self.left
    }

    /// Whether nothing is left.
    pub const fn is_exhausted(&self) -> bool {
        matches!(self.left, Some(0))
    }

    pub(crate) const fn is_limited(&self) -> bool {
        self.left.is_some()
    }

    /// Adds the steps of a node with this many devices and values, if anything is left.
    pub(crate) fn grant(&mut self, devices: u32, values: usize) {
        if let Some(left) = self.left.as_mut().filter(|left| **left > 0) {
            let granted = u64::from(devices) * STEPS_PER_DEVICE + values as u64;
            let granted = granted.min(self.grants);
            self.grants -= granted;
            *left = left.saturating_add(granted);
        }
    }

    /// Takes steps. Returns whether anything is left.
    pub(crate) fn take(&mut self, count: u64) -> bool {
        steps::add(usize::try_from(count).unwrap_or(usize::MAX));
        if let Some(left) = &mut self.left {
            *left = left.saturating_sub(count);
        }
        !self.is_exhausted()
    }
}
