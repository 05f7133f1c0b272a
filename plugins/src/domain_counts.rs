//! How many of something there are per value of a topology label.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// Numbers by the values of one topology label: one entry per domain.
pub(crate) type ByDomain = FxHashMap<Arc<str>, i64>;

/// Adds to a domain's number. A domain with 0 is left out.
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

/// What a trial adds to numbers by domain. Trials change one domain as a rule: all their pods are on one node.
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

/// Counted over the whole cluster, then kept current. A trial works on a clone, which shares what was counted and has its
/// own changes: cloning costs the same for ten domains as for ten thousand. What was counted is changed in place as long
/// as no clone is left.
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

    /// Adds to a domain's number, in a trial.
    pub(crate) fn add(&mut self, domain: &Arc<str>, delta: i64) {
        let before = self.get(domain);
        self.changes.add(domain, delta);
        self.occupied -= usize::from(before != 0);
        self.occupied += usize::from(before + delta != 0);
    }

    /// Adds to a domain's number, for good. Answers what it was.
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
        /// After any changes for good, and any of a trial on top, the counts are what counting anew would give, and
        /// those that the trial was cloned of are as before.
        #[test]
        fn changes_add_up(
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
            let (mut trial, before) = (original.clone(), expected.clone());
            for (domain, delta) in tried {
                trial.add(&domain, delta);
                *expected.entry(domain).or_default() += delta;
                check(&trial, &expected)?;
            }
            check(&original, &before)?;
        }
    }
}
