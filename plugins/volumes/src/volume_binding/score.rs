//! Scores nodes by the storage utilization of a pod's claims.

use smallvec::SmallVec;
use supercargo_framework::objects::{CsiStorageCapacity, ObjectBody, PersistentVolume};
use supercargo_framework::shape::Shape;

use super::find::PodVolumes;

/// The requested and available bytes of a storage class on a node.
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

    /// Sizes and requests of existing volumes.
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

    /// Capacity and requests of claims to provision. All claims of a class use the same storage, so
    /// its capacity counts once.
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

/// The mean over the classes. Claims to provision count only if no existing volume is used.
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
