//! Devices that drivers publish, and those that claims have.

use supercargo_framework::objects::{Body, Object};

/// The number of devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Devices {
    /// All that are published.
    pub(crate) all: usize,
    /// Those that claims have. A shared device counts for each share.
    pub(crate) allocated: usize,
}

impl Devices {
    /// What a slice publishes, or what a claim has.
    pub(super) fn of(object: &Object) -> Self {
        match &object.body {
            Body::ResourceSlice(slice) => Self { all: slice.devices.len(), allocated: 0 },
            Body::ResourceClaim(claim) => {
                let results = claim.allocation.iter().flat_map(|allocation| &allocation.results);
                Self { all: 0, allocated: results.into_iter().filter(|result| !result.admin_access).count() }
            }
            _ => Self::default(),
        }
    }

    /// Without `old`, and with `new`.
    pub(super) fn replace(&mut self, old: Self, new: Self) {
        self.all = (self.all + new.all).saturating_sub(old.all);
        self.allocated = (self.allocated + new.allocated).saturating_sub(old.allocated);
    }

    /// The share that claims have.
    pub(crate) fn share(self) -> f64 {
        self.allocated as f64 / self.all.max(1) as f64
    }
}
