//! Exact sums of resource vectors.

use std::sync::Arc;

use smallvec::SmallVec;

use super::{Resource, combine_scalars};

/// A sum of [`Resource`]s: 128 bits hold more of the largest amounts than there can be pods. So
/// subtracting what was added leaves no trace, whatever the amounts are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ResourceSum {
    basic: BasicSum,
    scalars: SmallVec<[(Arc<str>, i128); 1]>,
}

/// The sums of the resources that nearly all pods request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BasicSum {
    milli_cpu: i128,
    memory: i128,
    ephemeral_storage: i128,
}

impl BasicSum {
    pub(crate) fn add(&mut self, vector: &Resource) {
        self.milli_cpu += i128::from(vector.milli_cpu);
        self.memory += i128::from(vector.memory);
        self.ephemeral_storage += i128::from(vector.ephemeral_storage);
    }

    pub(crate) fn subtract(&mut self, vector: &Resource) {
        self.milli_cpu -= i128::from(vector.milli_cpu);
        self.memory -= i128::from(vector.memory);
        self.ephemeral_storage -= i128::from(vector.ephemeral_storage);
    }
}

impl ResourceSum {
    pub(crate) fn add(&mut self, vector: &Resource) {
        self.basic.add(vector);
        combine_scalars(&mut self.scalars, vector.scalars(), |sum, amount| sum + i128::from(amount));
    }

    pub(crate) fn subtract(&mut self, vector: &Resource) {
        self.basic.subtract(vector);
        self.subtract_scalars(vector);
    }

    /// Subtracts sums of pods whose scalar resources are subtracted one by one.
    pub(crate) fn subtract_basic(&mut self, sum: &BasicSum) {
        self.basic.milli_cpu -= sum.milli_cpu;
        self.basic.memory -= sum.memory;
        self.basic.ephemeral_storage -= sum.ephemeral_storage;
    }

    pub(crate) fn subtract_scalars(&mut self, vector: &Resource) {
        combine_scalars(&mut self.scalars, vector.scalars(), |sum, amount| sum - i128::from(amount));
    }

    pub(crate) fn has_scalars(&self) -> bool {
        !self.scalars.is_empty()
    }

    /// The sum as a vector, with each amount [`limited`].
    pub(crate) fn limited(&self) -> Resource {
        let scalars = self.scalars.iter().map(|(name, sum)| (Arc::clone(name), limited(*sum)));
        Resource {
            milli_cpu: limited(self.basic.milli_cpu),
            memory: limited(self.basic.memory),
            ephemeral_storage: limited(self.basic.ephemeral_storage),
            allowed_pod_number: 0,
            scalars: scalars.collect(),
        }
    }
}

/// A sum as readers see it: a node whose pods request more than 64 bits can express is full. (In
/// upstream the sum wraps, and the node looks empty.)
pub(crate) fn limited(sum: i128) -> i64 {
    i64::try_from(sum).unwrap_or(if sum < 0 { i64::MIN } else { i64::MAX })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Amounts of all magnitudes, mostly such that a few of them overflow.
    fn amount() -> impl Strategy<Value = i64> {
        prop_oneof![0..4_i64, (0..63_u32).prop_map(|shift| i64::MAX >> shift), Just(i64::MAX)]
    }

    fn vector() -> impl Strategy<Value = Resource> {
        let scalars = prop::collection::btree_map("example.com/[a-e]", amount(), 0..4);
        ([amount(), amount(), amount()], scalars).prop_map(|([milli_cpu, memory, storage], scalars)| {
            let mut vector = Resource { ephemeral_storage: storage, ..Resource::new(milli_cpu, memory) };
            for (name, amount) in scalars {
                vector.set(&Arc::from(name), amount);
            }
            vector
        })
    }

    /// Otherwise property tests would not show an overflow: `[profile.dev]` has overflow checks.
    #[cfg(debug_assertions)]
    #[test]
    #[should_panic(expected = "overflow")]
    fn overflow_panics_in_the_profile_of_tests() {
        let most = std::hint::black_box(i64::MAX);
        assert!(most + 1 < 0);
    }

    proptest! {
        #[test]
        fn subtracting_in_any_order_undoes_adding(
            kept in vector(),
            others in prop::collection::vec(vector(), 0..20).prop_shuffle(),
        ) {
            let mut sum = ResourceSum::default();
            sum.add(&kept);
            let only_kept = sum.clone();
            for other in &others {
                sum.add(other);
            }
            for other in others.iter().rev() {
                sum.subtract(other);
            }
            prop_assert_eq!(&sum, &only_kept);
            prop_assert_eq!(sum.limited(), kept);
        }

        #[test]
        fn a_sum_is_limited_only_where_it_overflows(vectors in prop::collection::vec(vector(), 0..20)) {
            let mut sum = ResourceSum::default();
            for vector in &vectors {
                sum.add(vector);
            }
            let limited = sum.limited();
            for name in ["cpu", "memory", "ephemeral-storage", "example.com/a", "example.com/e"] {
                let amounts = vectors.iter().map(|vector| vector.get(name));
                let expected = amounts.fold(0, i64::saturating_add);
                prop_assert_eq!(limited.get(name), expected, "{}", name);
            }
        }
    }
}
