//! How many pods there are per value of a topology label.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// Numbers by the values of one topology label: one entry per domain.
pub(crate) type ByDomain = FxHashMap<Arc<str>, i64>;

/// Adds to a domain's number; the domain comes to be by that.
pub(crate) fn add(counts: &mut ByDomain, domain: &Arc<str>, delta: i64) {
    if let Some(count) = counts.get_mut(domain) {
        *count += delta;
    } else {
        counts.insert(Arc::clone(domain), delta);
    }
}

/// Counted once per cycle. A trial works on a clone, which shares what was counted and has its own changes: cloning costs
/// the same for ten domains as for ten thousand.
#[derive(Clone, Debug, Default)]
pub(crate) struct DomainCounts {
    counted: Arc<Counted>,
    /// Trials change one domain as a rule: all their pods are on one node.
    changes: SmallVec<[(Arc<str>, i64); 1]>,
    occupied: usize,
}

#[derive(Debug, Default)]
struct Counted {
    counts: ByDomain,
    /// The domain with the least, and its number.
    least: Option<(Arc<str>, i64)>,
    /// The least number of all other domains.
    second: Option<i64>,
}

impl From<ByDomain> for DomainCounts {
    fn from(counts: ByDomain) -> Self {
        let least = counts.iter().min_by_key(|(_, count)| **count);
        let least = least.map(|(domain, count)| (Arc::clone(domain), *count));
        let others =
            counts.iter().filter(|(domain, _)| least.as_ref().is_some_and(|least| least.0 != **domain));
        let second = others.map(|(_, count)| *count).min();
        let occupied = counts.values().filter(|count| **count != 0).count();
        Self { counted: Arc::new(Counted { counts, least, second }), changes: SmallVec::new(), occupied }
    }
}

impl DomainCounts {
    /// The number of a domain; 0 when it was not counted.
    pub(crate) fn get(&self, domain: &str) -> i64 {
        let counted = self.counted.counts.get(domain).copied().unwrap_or(0);
        counted + self.change_of(domain)
    }

    /// The number of domains that were counted.
    pub(crate) fn domains(&self) -> usize {
        self.counted.counts.len()
    }

    /// Whether every domain has 0.
    pub(crate) fn is_zero(&self) -> bool {
        self.occupied == 0
    }

    /// The least number of a counted domain.
    pub(crate) fn least(&self) -> Option<i64> {
        let Counted { counts, least, second } = &*self.counted;
        let (domain, count) = least.as_ref()?;
        match &self.changes[..] {
            [] => Some(*count),
            [(changed, _)] => {
                let others = if changed == domain { *second } else { Some(*count) };
                let own = counts.contains_key(changed).then(|| self.get(changed));
                others.into_iter().chain(own).min()
            }
            _ => counts.keys().map(|domain| self.get(domain)).min(),
        }
    }

    /// Adds to a domain's number.
    pub(crate) fn add(&mut self, domain: &Arc<str>, delta: i64) {
        let before = self.get(domain);
        match self.changes.iter_mut().find(|(changed, _)| changed == domain) {
            Some((_, change)) => *change += delta,
            None => self.changes.push((Arc::clone(domain), delta)),
        }
        self.occupied -= usize::from(before != 0);
        self.occupied += usize::from(before + delta != 0);
    }

    fn change_of(&self, domain: &str) -> i64 {
        self.changes.iter().find(|(changed, _)| **changed == *domain).map_or(0, |(_, change)| *change)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn domain() -> impl Strategy<Value = Arc<str>> {
        (0..5_u8).prop_map(|i| Arc::from(["", "a", "b", "c", "d"][usize::from(i)]))
    }

    proptest! {
        /// After any changes the counts are what counting anew would give, and those they were cloned of are as before.
        #[test]
        fn changes_add_up(
            counted in proptest::collection::hash_map(domain(), 0..4_i64, 0..5),
            changes in proptest::collection::vec((domain(), -2..3_i64), 0..8),
        ) {
            let original = DomainCounts::from(counted.clone().into_iter().collect::<ByDomain>());
            let (mut trial, mut expected) = (original.clone(), counted.clone());
            for (domain, delta) in changes {
                // Only domains that were counted have a say in the least; others are only remembered.
                trial.add(&domain, delta);
                *expected.entry(domain).or_default() += delta;
                for (domain, count) in &expected {
                    prop_assert_eq!(trial.get(domain), *count);
                }
                let known = expected.iter().filter(|(domain, _)| counted.contains_key(*domain));
                prop_assert_eq!(trial.least(), known.map(|(_, count)| *count).min());
                prop_assert_eq!(trial.is_zero(), expected.values().all(|count| *count == 0));
            }
            prop_assert_eq!(original.least(), counted.values().min().copied());
            prop_assert_eq!(original.domains(), counted.len());
        }
    }
}
