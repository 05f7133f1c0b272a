//! Counts per value of a topology label.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// Counts by value of one topology label: one entry per domain.
pub(crate) type ByDomain = FxHashMap<Arc<str>, i64>;

/// Adds to a domain's count. Domains with 0 have no entry.
pub(crate) fn add(counts: &mut ByDomain, domain: &Arc<str>, delta: i64) {
    if let Some(count) = counts.get_mut(domain) {
        *count += delta;
        if *count == 0 {
            counts.remove(domain);
        }
    } else if delta != 0 {
        counts.insert(Arc::clone(domain), delta);
    }
}

/// Changes to counts in a dry run. A dry run usually changes one domain, as all its pods are on one
/// node.
#[derive(Clone, Debug, Default)]
pub(crate) struct Changes(SmallVec<[(Arc<str>, i64); 1]>);

impl Changes {
    pub(crate) fn get(&self, domain: &str) -> i64 {
        self.iter().find(|(changed, _)| ***changed == *domain).map_or(0, |(_, delta)| delta)
    }

    pub(crate) fn add(&mut self, domain: &Arc<str>, delta: i64) {
        match self.0.iter_mut().find(|(changed, _)| changed == domain) {
            Some((_, change)) => *change += delta,
            None => self.0.push((Arc::clone(domain), delta)),
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Arc<str>, i64)> {
        self.0.iter().map(|(domain, delta)| (domain, *delta))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Counts over the whole cluster, updated by changes. A dry run works on a clone, which shares the
/// counts and has its own changes: a clone costs the same for ten domains as for ten thousand.
/// Without clones, counts are updated in place.
#[derive(Clone, Debug, Default)]
pub(crate) struct DomainCounts {
    counted: Arc<ByDomain>,
    changes: Changes,
    occupied: usize,
}

impl From<ByDomain> for DomainCounts {
    fn from(counts: ByDomain) -> Self {
        let occupied = counts.len();
        Self { counted: Arc::new(counts), changes: Changes::default(), occupied }
    }
}

impl DomainCounts {
    /// The number of a domain.
    pub(crate) fn get(&self, domain: &str) -> i64 {
        self.counted.get(domain).copied().unwrap_or(0) + self.changes.get(domain)
    }

    /// Whether every domain has 0.
    pub(crate) fn is_zero(&self) -> bool {
        self.occupied == 0
    }

    /// Adds to a domain's count in a dry run.
    pub(crate) fn add(&mut self, domain: &Arc<str>, delta: i64) {
        let before = self.get(domain);
        self.changes.add(domain, delta);
        self.occupied -= usize::from(before != 0);
        self.occupied += usize::from(before + delta != 0);
    }

    /// Adds to a domain's count permanently. Returns the previous count.
    pub(crate) fn follow(&mut self, domain: &Arc<str>, delta: i64) -> i64 {
        let before = self.get(domain);
        add(Arc::make_mut(&mut self.counted), domain, delta);
        self.occupied -= usize::from(before != 0);
        self.occupied += usize::from(before + delta != 0);
        before
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn domain() -> impl Strategy<Value = Arc<str>> {
        (0..5_u8).prop_map(|i| Arc::from(["", "a", "b", "c", "d"][usize::from(i)]))
    }

    fn check(counts: &DomainCounts, expected: &ByDomain) -> Result<(), TestCaseError> {
        for (domain, count) in expected {
            prop_assert_eq!(counts.get(domain), *count);
        }
        prop_assert_eq!(counts.is_zero(), expected.values().all(|count| *count == 0));
        Ok(())
    }

    proptest! {
        /// After any permanent changes and any changes of a dry run, counts equal a recount. The
        /// counts that the dry run was cloned from are unchanged.
        #[test]
        fn counts_and_minima_follow_changes(
            counted in vec((domain(), 1..4_i64), 0..5),
            followed in vec((domain(), -2..3_i64), 0..8),
            tried in vec((domain(), -2..3_i64), 0..8),
        ) {
            let (mut counts, mut expected) = (ByDomain::default(), ByDomain::default());
            for (domain, delta) in counted {
                add(&mut counts, &domain, delta);
                *expected.entry(domain).or_default() += delta;
            }
            let mut original = DomainCounts::from(counts);
            for (domain, delta) in followed {
                let before = expected.entry(Arc::clone(&domain)).or_default();
                prop_assert_eq!(original.follow(&domain, delta), *before);
                *before += delta;
                check(&original, &expected)?;
            }
            let (mut dry_run, before) = (original.clone(), expected.clone());
            for (domain, delta) in tried {
                dry_run.add(&domain, delta);
                *expected.entry(domain).or_default() += delta;
                check(&dry_run, &expected)?;
            }
            check(&original, &before)?;
        }
    }
}
