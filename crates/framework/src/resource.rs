//! Resource vectors.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

/// Names of resources and their classes.
pub mod names {
    /// CPU, in milli-cores.
    pub const CPU: &str = "cpu";
    /// Memory in bytes.
    pub const MEMORY: &str = "memory";
    /// Local ephemeral storage in bytes.
    pub const EPHEMERAL_STORAGE: &str = "ephemeral-storage";
    /// The number of pods.
    pub const PODS: &str = "pods";
    /// Prefix of huge page resources.
    pub const HUGE_PAGES_PREFIX: &str = "hugepages-";
    /// Prefix of attachable volume counts.
    pub const ATTACHABLE_VOLUMES_PREFIX: &str = "attachable-volumes-";

    /// Whether the name has the domain `kubernetes.io` or no domain.
    pub fn is_native(name: &str) -> bool {
        !name.contains('/') || name.contains("kubernetes.io/")
    }

    /// Whether this is an extended resource: a domain that is not Kubernetes' own, not a
    /// `requests.` quota name.
    pub fn is_extended(name: &str) -> bool {
        !is_native(name)
            && !name.starts_with("requests.")
            && crate::labels::is_label_key(&["requests.", name].concat())
    }

    /// Whether the scheduler counts this resource in addition to the four basic ones.
    pub fn is_scalar(name: &str) -> bool {
        is_extended(name)
            || name.starts_with(HUGE_PAGES_PREFIX)
            || name.contains("kubernetes.io/")
            || name.starts_with(ATTACHABLE_VOLUMES_PREFIX)
    }
}

/// Scalar resources, sorted by name, none of them zero.
pub type Scalars = SmallVec<[(Arc<str>, i64); 1]>;

/// An amount of each resource. Arithmetic saturates.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Resource {
    /// CPU in milli-cores.
    pub milli_cpu: i64,
    /// Memory in bytes.
    pub memory: i64,
    /// Local ephemeral storage in bytes.
    pub ephemeral_storage: i64,
    /// The maximum number of pods of a node. Always 0 in a request.
    pub allowed_pod_number: i64,
    scalars: Scalars,
}

impl Resource {
    /// A vector of CPU (milli-cores) and memory (bytes).
    pub fn new(milli_cpu: i64, memory: i64) -> Self {
        Self { milli_cpu, memory, ..Self::default() }
    }

    /// The amount of a resource by its API name: CPU in milli-cores, others in whole units.
    pub fn get(&self, name: &str) -> i64 {
        match name {
            names::CPU => self.milli_cpu,
            names::MEMORY => self.memory,
            names::EPHEMERAL_STORAGE => self.ephemeral_storage,
            names::PODS => self.allowed_pod_number,
            _ => self.scalar(name),
        }
    }

    /// The amount of a scalar resource.
    pub fn scalar(&self, name: &str) -> i64 {
        self.position(name).map_or(0, |i| self.scalars[i].1)
    }

    /// Sets a resource by its API name. As upstream, names that are not counted are ignored.
    pub fn set(&mut self, name: &Arc<str>, amount: i64) {
        match &**name {
            names::CPU => self.milli_cpu = amount,
            names::MEMORY => self.memory = amount,
            names::EPHEMERAL_STORAGE => self.ephemeral_storage = amount,
            names::PODS => self.allowed_pod_number = amount,
            other if names::is_scalar(other) => self.set_scalar(name, amount),
            _ => {}
        }
    }

    /// The scalar resources in name order.
    pub fn scalars(&self) -> &[(Arc<str>, i64)] {
        &self.scalars
    }

    /// Adds another vector.
    pub fn add(&mut self, other: &Self) {
        self.combine(other, i64::saturating_add);
    }

    /// Subtracts another vector.
    pub fn subtract(&mut self, other: &Self) {
        self.combine(other, i64::saturating_sub);
    }

    /// Subtracts another vector's scalar resources.
    pub fn subtract_scalars(&mut self, other: &Self) {
        for (name, amount) in &other.scalars {
            self.set_scalar(name, self.scalar(name).saturating_sub(*amount));
        }
    }

    /// Takes the maximum of each amount and the other vector's.
    pub fn set_max(&mut self, other: &Self) {
        self.combine(other, i64::max);
    }

    /// The same, with each amount limited to `most`.
    pub fn capped(mut self, most: i64) -> Self {
        let amounts = [&mut self.milli_cpu, &mut self.memory, &mut self.ephemeral_storage];
        for amount in amounts.into_iter().chain(self.scalars.iter_mut().map(|(_, amount)| amount)) {
            *amount = (*amount).min(most);
        }
        self
    }

    /// Whether nothing is requested.
    pub fn is_zero(&self) -> bool {
        *self == Self::default()
    }

    fn combine(&mut self, other: &Self, op: impl Fn(i64, i64) -> i64) {
        self.milli_cpu = op(self.milli_cpu, other.milli_cpu);
        self.memory = op(self.memory, other.memory);
        self.ephemeral_storage = op(self.ephemeral_storage, other.ephemeral_storage);
        self.allowed_pod_number = op(self.allowed_pod_number, other.allowed_pod_number);
        for (name, amount) in &other.scalars {
            self.set_scalar(name, op(self.scalar(name), *amount));
        }
    }

    fn set_scalar(&mut self, name: &Arc<str>, amount: i64) {
        match (self.position(name), amount) {
            (Ok(i), 0) => {
                self.scalars.remove(i);
            }
            (Ok(i), _) => self.scalars[i].1 = amount,
            (Err(_), 0) => {}
            (Err(i), _) => self.scalars.insert(i, (Arc::clone(name), amount)),
        }
    }

    fn position(&self, name: &str) -> Result<usize, usize> {
        self.scalars.binary_search_by(|(n, _)| (**n).cmp(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_resources_are_counted() {
        let mut resource = Resource::default();
        for name in [
            "cpu",
            "memory",
            "pods",
            "example.com/gpu",
            "hugepages-2Mi",
            "nonsense",
            "requests.example.com/x",
        ] {
            resource.set(&Arc::from(name), 3);
        }
        assert_eq!((resource.milli_cpu, resource.memory, resource.allowed_pod_number), (3, 3, 3));
        let scalars: Vec<_> = resource.scalars().iter().map(|(n, _)| &**n).collect();
        assert_eq!(scalars, ["example.com/gpu", "hugepages-2Mi"]);
    }

    #[test]
    fn adding_and_subtracting_leaves_no_trace() {
        let mut total = Resource::new(100, 200);
        let mut gpu = Resource::default();
        gpu.set(&Arc::from("example.com/gpu"), 2);
        total.add(&gpu);
        assert_eq!(total.get("example.com/gpu"), 2);
        total.subtract(&gpu);
        assert_eq!(total, Resource::new(100, 200));
    }
}
