//! How much of the storage at hand a pod's claims would use, as a score.

use smallvec::SmallVec;
use supercargo_framework::objects::{CsiStorageCapacity, ObjectBody, PersistentVolume};

use super::find::PodVolumes;
use crate::shape::Shape;

/// What is asked of a storage class on a node, and what is there.
struct ClassUsage<'a> {
    class: &'a str,
    requested: i64,
    capacity: i64,
}

/// Usage by class; few.
#[derive(Default)]
struct Usage<'a>(SmallVec<[ClassUsage<'a>; 4]>);

impl<'a> Usage<'a> {
    fn of_class(&mut self, class: &'a str) -> &mut ClassUsage<'a> {
        let known = self.0.iter().position(|usage| usage.class == class);
        let at = known.unwrap_or_else(|| {
            self.0.push(ClassUsage { class, requested: 0, capacity: 0 });
            self.0.len() - 1
        });
        &mut self.0[at]
    }

    /// What volumes that exist have and their claims ask for.
    fn of_bindings(found: &'a PodVolumes<'_>) -> Self {
        let mut usage = Self::default();
        for (claim, volume) in &found.bindings {
            if let (Some(claim), Some(volume)) = (claim.body(), PersistentVolume::of(&volume.body)) {
                let class = usage.of_class(&volume.storage_class);
                class.requested = class.requested.wrapping_add(claim.size());
                class.capacity = class.capacity.wrapping_add(volume.capacity);
            }
        }
        usage
    }

    /// What claims ask for of storage from which volumes are provisioned. All claims of a class draw on the same storage,
    /// so what it has counts once.
    fn of_provisions(found: &'a PodVolumes<'_>) -> Self {
        let mut usage = Self::default();
        for (claim, storage) in &found.provisions {
            let storage = storage.and_then(|storage| CsiStorageCapacity::of(&storage.body));
            if let (Some(claim), Some(storage)) = (claim.body(), storage) {
                let class = usage.of_class(&claim.storage_class);
                class.requested = class.requested.wrapping_add(claim.size());
                class.capacity = storage.capacity.unwrap_or(0);
            }
        }
        usage
    }
}

/// The mean over the classes. Provisioned volumes only count where no volume that exists is used.
pub(super) fn score(shape: &Shape, found: &PodVolumes<'_>) -> i64 {
    let usage =
        if found.bindings.is_empty() { Usage::of_provisions(found) } else { Usage::of_bindings(found) };
    if usage.0.is_empty() {
        return 0;
    }
    let of_class = |usage: &ClassUsage<'_>| {
        let ClassUsage { requested, capacity, .. } = *usage;
        let is_full = capacity == 0 || requested > capacity;
        shape.at(if is_full { 100 } else { requested.wrapping_mul(100).wrapping_div(capacity) })
    };
    let sum: i64 = usage.0.iter().map(of_class).sum();
    (sum as f64 / usage.0.len() as f64).round() as i64
}
