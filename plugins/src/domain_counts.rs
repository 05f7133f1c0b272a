//! Counts per value of a topology label.

use std::sync::Arc;

use smallvec::SmallVec;
use supercargo_framework::hash_seed::SeededMap;
use supercargo_framework::{Labels, SmallMap};

/// Counts by value of one topology label: one entry per domain.
pub(crate) type ByDomain = SeededMap<Arc<str>, i64>;

/// The approximate size in bytes. A hash table has at least four slots, leaves an eighth of more
/// empty, and has a byte beside each.
pub(crate) fn bytes<V>(domains: &SeededMap<Arc<str>, V>) -> usize {
    let slots = match domains.capacity() {
        0 => return 0,
        1..=3 => 4,
        more => more / 7 * 8,
    };
    slots * (size_of::<(Arc<str>, V)>() + 1)
}

/// The same for several topology keys.
pub(crate) fn bytes_by_key(counts: &SmallMap<Arc<str>, ByDomain>) -> usize {
    counts.bytes() + counts.iter().map(|(key, domains)| key.len() + bytes(domains)).sum::<usize>()
}

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

/// Counts by topology key and domain over the whole cluster, updated by changes. A dry run works on
/// a clone, which shares the counts and has its own changes: a clone costs the same for ten domains
/// and one key as for ten thousand of each. Without clones, counts are updated in place.
#[derive(Clone, Debug, Default)]
pub(crate) struct DomainCounts {
    counted: Arc<SmallMap<Arc<str>, ByDomain>>,
    changes: SmallMap<Arc<str>, Changes>,
    occupied: usize,
}

impl From<SmallMap<Arc<str>, ByDomain>> for DomainCounts {
    fn from(counts: SmallMap<Arc<str>, ByDomain>) -> Self {
        let occupied = counts.values().map(ByDomain::len).sum();
        Self { counted: Arc::new(counts), changes: SmallMap::default(), occupied }
    }
}

impl DomainCounts {
    /// The approximate size in bytes.
    pub(crate) fn bytes(&self) -> usize {
        bytes_by_key(&self.counted) + size_of::<Self>()
    }

    /// The number of a domain.
    pub(crate) fn get(&self, key: &str, domain: &str) -> i64 {
        let counted = self.counted.get(key).and_then(|counts| counts.get(domain)).copied().unwrap_or(0);
        counted + self.changes.get(key).map_or(0, |changes| changes.get(domain))
    }

    /// Whether every domain has 0.
    pub(crate) fn is_zero(&self) -> bool {
        self.occupied == 0
    }

    /// Whether a node with these labels is in any domain with a count. Costs as much as there are
    /// labels or keys, whichever are fewer.
    pub(crate) fn touches(&self, labels: &Labels) -> bool {
        if self.is_zero() {
            return false;
        }
        if labels.len() < self.counted.len() {
            return labels.iter().any(|(key, domain)| self.get(key, domain) > 0);
        }
        let mut keys = self.counted.keys().chain(self.changes.keys());
        keys.any(|key| labels.get(key).is_some_and(|domain| self.get(key, domain) > 0))
    }

    /// The keys that are counted.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &Arc<str>> {
        self.counted.keys()
    }

    /// Whether the key is counted.
    pub(crate) fn has_key(&self, key: &str) -> bool {
        self.counted.contains(key)
    }

    fn note_change(&mut self, before: i64, delta: i64) {
        self.occupied -= usize::from(before != 0);
        self.occupied += usize::from(before + delta != 0);
    }

    /// Adds to a domain's count in a dry run.
    pub(crate) fn add(&mut self, key: &Arc<str>, domain: &Arc<str>, delta: i64) {
        let before = self.get(key, domain);
        self.changes.or_default(key).add(domain, delta);
        self.note_change(before, delta);
    }

    /// Adds to a domain's count permanently. Returns the previous count; `None`, without a change,
    /// if the key is not counted.
    pub(crate) fn follow(&mut self, key: &str, domain: &Arc<str>, delta: i64) -> Option<i64> {
        if !self.has_key(key) {
            return None;
        }
        let before = self.get(key, domain);
        add(Arc::make_mut(&mut self.counted).get_mut(key)?, domain, delta);
        self.note_change(before, delta);
        Some(before)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::collection::vec;
    use proptest::prelude::*;
    use supercargo_framework::hash_seed::HashSeed;

    use super::*;

    fn text() -> impl Strategy<Value = Arc<str>> {
        (0..5_u8).prop_map(|i| Arc::from(["", "a", "b", "c", "d"][usize::from(i)]))
    }

    /// Few keys are scanned, more are sorted.
    fn key() -> impl Strategy<Value = Arc<str>> {
        (0..12_u8).prop_map(|i| Arc::from(format!("key-{i}")))
    }

    type Expected = BTreeMap<(Arc<str>, Arc<str>), i64>;

    fn check(counts: &DomainCounts, expected: &Expected) -> Result<(), TestCaseError> {
        for ((key, domain), count) in expected {
            prop_assert_eq!(counts.get(key, domain), *count);
            let labels = [(Arc::clone(key), Arc::clone(domain))].into_iter().collect();
            prop_assert_eq!(counts.touches(&labels), *count > 0);
        }
        prop_assert_eq!(counts.is_zero(), expected.values().all(|count| *count == 0));
        let every_key = |wanted: fn(&str) -> bool| -> Labels {
            let domains = expected.keys().filter(|(_, domain)| wanted(domain));
            domains.map(|(key, domain)| (Arc::clone(key), Arc::clone(domain))).collect()
        };
        let all_a = every_key(|domain| domain == "a");
        let touched = all_a.iter().any(|(key, domain)| counts.get(key, domain) > 0);
        prop_assert_eq!(counts.touches(&all_a), touched);
        Ok(())
    }

    proptest! {
        /// After any permanent changes and any changes of a dry run, counts equal a recount. The
        /// counts that the dry run was cloned from are unchanged.
        #[test]
        fn counts_and_minima_follow_changes(
            counted in vec((key(), text(), 1..4_i64), 0..15),
            followed in vec((key(), text(), -2..3_i64), 0..8),
            tried in vec((key(), text(), -2..3_i64), 0..8),
        ) {
            let seed = HashSeed::new(1);
            let mut counts: SmallMap<Arc<str>, ByDomain> = SmallMap::default();
            let mut expected = Expected::new();
            for (key, domain, delta) in counted {
                add(counts.or_insert_with(&key, || seed.map()), &domain, delta);
                *expected.entry((key, domain)).or_default() += delta;
            }
            let mut original = DomainCounts::from(counts);
            for (key, domain, delta) in followed {
                let known = original.has_key(&key);
                let before = known.then(|| *expected.entry((Arc::clone(&key), Arc::clone(&domain))).or_default());
                prop_assert_eq!(original.follow(&key, &domain, delta), before);
                if known {
                    *expected.entry((key, domain)).or_default() += delta;
                }
                check(&original, &expected)?;
            }
            let (mut dry_run, before) = (original.clone(), expected.clone());
            for (key, domain, delta) in tried {
                dry_run.add(&key, &domain, delta);
                *expected.entry((key, domain)).or_default() += delta;
                check(&dry_run, &expected)?;
            }
            check(&original, &before)?;
        }
    }
}
