//! Resource vectors.

pub(crate) mod sum;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use crate::steps;

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

    /// Prefix of the extended resource that each DeviceClass has without naming it: its name
    /// follows.
    pub const DEVICE_CLASS_PREFIX: &str = "deviceclass.resource.kubernetes.io/";

    /// Whether devices can provide this resource, if a DeviceClass names it.
    pub fn is_of_devices(name: &str) -> bool {
        is_extended(name) || name.starts_with(DEVICE_CLASS_PREFIX)
    }

    /// Whether the name is one of the four basic resources.
    pub(super) fn is_basic(name: &str) -> bool {
        matches!(name, CPU | MEMORY | EPHEMERAL_STORAGE | PODS)
    }

    /// Whether the scheduler counts this resource in addition to the four basic ones.
    pub fn is_scalar(name: &str) -> bool {
        is_extended(name)
            || name.starts_with(HUGE_PAGES_PREFIX)
            || name.contains("kubernetes.io/")
            || name.starts_with(ATTACHABLE_VOLUMES_PREFIX)
    }
}

/// Scalar resources, sorted by name. None is zero, except in [`Resource::of_node`].
pub type Scalars = SmallVec<[(Arc<str>, i64); 1]>;

/// An amount of each resource. Arithmetic saturates, so it suits a pod; the requests of a
/// node's pods are summed up exactly.
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

    /// A vector of these amounts, by API name. Of several amounts of one name the last counts.
    pub fn of<'a>(amounts: impl IntoIterator<Item = (&'a Arc<str>, i64)>) -> Self {
        let mut resource = Self::default();
        resource.set_all(amounts);
        resource
    }

    /// What a node offers. Unlike other vectors it keeps extended resources with the amount 0:
    /// upstream's plugins distinguish them from resources that the node does not report.
    pub fn of_node<'a>(amounts: impl IntoIterator<Item = (&'a Arc<str>, i64)>) -> Self {
        let mut resource = Self::default();
        resource.set_each(amounts, names::is_of_devices);
        resource
    }

    /// Sets resources by their API names, as [`Resource::set`] does one after the other.
    pub fn set_all<'a>(&mut self, amounts: impl IntoIterator<Item = (&'a Arc<str>, i64)>) {
        self.set_each(amounts, |_| false);
    }

    /// `keeps_zero` says which scalar resources remain with the amount 0.
    fn set_each<'a>(
        &mut self,
        amounts: impl IntoIterator<Item = (&'a Arc<str>, i64)>,
        keeps_zero: impl Fn(&str) -> bool,
    ) {
        let known = self.scalars.len();
        for (name, amount) in amounts {
            if names::is_basic(name) {
                self.set(name, amount);
            } else if names::is_scalar(name) {
                self.scalars.push((Arc::clone(name), amount));
            }
        }
        if self.scalars.len() > known {
            // Sorted once: to insert each in its place would move all others.
            self.scalars.reverse();
            self.scalars.sort_by(|a, b| a.0.cmp(&b.0));
            self.scalars.dedup_by(|earlier, last| earlier.0 == last.0);
            self.scalars.retain(|(name, amount)| *amount != 0 || keeps_zero(name));
        }
    }

    /// Removes and returns the scalar resources.
    pub(crate) fn take_scalars(&mut self) -> Scalars {
        std::mem::take(&mut self.scalars)
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

    /// Whether a node reports this scalar resource, with whatever amount: see
    /// [`Resource::of_node`].
    pub fn reports(&self, name: &str) -> bool {
        self.position(name).is_ok()
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

    /// Takes the maximum of each amount and the other vector's.
    pub fn set_max(&mut self, other: &Self) {
        self.combine(other, i64::max);
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
        combine_scalars(&mut self.scalars, &other.scalars, op);
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
        steps::add(1);
        self.scalars.binary_search_by(|(n, _)| (**n).cmp(name))
    }
}

/// Combines amounts with those of a sorted list. Absent amounts count as zero; zeros are dropped.
///
/// A list that has all names already, as on most nodes, neither moves nor grows.
fn combine_scalars<T: Copy + Default + PartialEq>(
    amounts: &mut SmallVec<[(Arc<str>, T); 1]>,
    others: &[(Arc<str>, i64)],
    op: impl Fn(T, i64) -> T,
) {
    let known = amounts.len();
    steps::add(if others.is_empty() { 0 } else { known });
    for (name, other) in others {
        match amounts[..known].binary_search_by(|(known, _)| known.cmp(name)) {
            Ok(i) => amounts[i].1 = op(amounts[i].1, *other),
            Err(_) => amounts.push((Arc::clone(name), op(T::default(), *other))),
        }
    }
    if amounts.len() > known {
        // Two sorted runs: one pass.
        amounts.sort_by(|(a, _), (b, _)| a.cmp(b));
    }
    if !others.is_empty() {
        amounts.retain(|(_, amount)| *amount != T::default());
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
    fn a_list_of_amounts_is_the_same_as_setting_each() {
        let list = [("b.io/x", 1), ("cpu", 5), ("a.io/x", 2), ("b.io/x", 3), ("c.io/x", 0), ("nonsense", 4)];
        let list = list.map(|(name, amount)| (Arc::from(name), amount));
        let mut expected = Resource::default();
        for (name, amount) in &list {
            expected.set(name, *amount);
        }
        assert_eq!(Resource::of(list.iter().map(|(name, amount)| (name, *amount))), expected);
        assert_eq!(expected.scalars().len(), 2);

        let more = [("a.io/x", 0), ("d.io/x", 7), ("b.io/x", 9), ("memory", 1)];
        let more = more.map(|(name, amount)| (Arc::from(name), amount));
        let mut all_at_once = expected.clone();
        all_at_once.set_all(more.iter().map(|(name, amount)| (name, *amount)));
        for (name, amount) in &more {
            expected.set(name, *amount);
        }
        assert_eq!(all_at_once, expected);
    }

    #[test]
    fn nodes_keep_extended_resources_that_they_have_none_of() {
        let list: Vec<(Arc<str>, i64)> =
            [("a.com/gpu", 0), ("a.com/tpu", 1), ("hugepages-1Gi", 0)].map(|(n, a)| (n.into(), a)).into();
        let amounts = || list.iter().map(|(name, amount)| (name, *amount));
        let reported =
            |resource: &Resource| list.iter().map(|(name, _)| resource.reports(name)).collect::<Vec<_>>();
        assert_eq!(reported(&Resource::of_node(amounts())), [true, true, false]);
        assert_eq!(reported(&Resource::of(amounts())), [false, true, false]);
    }

    #[test]
    fn scalars_stay_sorted_and_are_never_zero() {
        let vector = |scalars: &[(&str, i64)]| {
            let mut vector = Resource::default();
            for (name, amount) in scalars {
                vector.set(&format!("a.com/{name}").into(), *amount);
            }
            vector
        };
        let mut total = vector(&[("b", 2), ("d", -1)]);
        total.add(&vector(&[("a", 1), ("b", 3), ("c", 4), ("d", 1), ("e", 5)]));
        assert_eq!(total, vector(&[("a", 1), ("b", 5), ("c", 4), ("e", 5)]));
        let names: Vec<_> = total.scalars().iter().map(|(name, _)| &**name).collect();
        assert_eq!(names, ["a.com/a", "a.com/b", "a.com/c", "a.com/e"]);
    }
}
