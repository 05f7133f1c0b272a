//! Counts of pods per domain of a topology label, with their minimum.

use std::collections::BTreeMap;
use std::sync::Arc;

use supercargo_framework::hash_seed::{HashSeed, SeededMap};

use crate::domain_counts::{self, Changes};

/// A domain with nodes that count.
#[derive(Clone, Debug, Default)]
struct Domain {
    nodes: usize,
    pods: i64,
}

/// The domains, while they are counted.
#[derive(Debug)]
pub(super) struct Counting(SeededMap<Arc<str>, Domain>);

impl Counting {
    /// No domains yet.
    pub(super) fn new(seed: &HashSeed) -> Self {
        Self(seed.map())
    }

    /// Counts a node with this many pods.
    pub(super) fn add_node(&mut self, domain: &Arc<str>, pods: i64) {
        if let Some(known) = self.0.get_mut(domain) {
            known.nodes += 1;
            known.pods += pods;
        } else {
            self.0.insert(Arc::clone(domain), Domain { nodes: 1, pods });
        }
    }
}

#[derive(Clone, Debug)]
struct Counted {
    domains: SeededMap<Arc<str>, Domain>,
    /// The number of domains for each number of pods.
    having: BTreeMap<i64, usize>,
}

impl Counted {
    fn leave(&mut self, pods: i64) {
        if let Some(domains) = self.having.get_mut(&pods) {
            *domains -= 1;
            if *domains == 0 {
                self.having.remove(&pods);
            }
        }
    }

    fn enter(&mut self, pods: i64) {
        *self.having.entry(pods).or_default() += 1;
    }
}

/// The number of pods in each domain: counted over the whole cluster, then updated by changes,
/// including the minimum. Dry runs work on a clone, as with
/// [`DomainCounts`](crate::domain_counts::DomainCounts).
#[derive(Clone, Debug)]
pub(super) struct Spread {
    counted: Arc<Counted>,
    changes: Changes,
}

impl From<Counting> for Spread {
    fn from(Counting(domains): Counting) -> Self {
        let mut counted = Counted { domains, having: BTreeMap::new() };
        for domain in counted.domains.values() {
            *counted.having.entry(domain.pods).or_default() += 1;
        }
        Self { counted: Arc::new(counted), changes: Changes::default() }
    }
}

impl Spread {
    /// The approximate size in bytes.
    pub(super) fn bytes(&self) -> usize {
        domain_counts::bytes(&self.counted.domains) + size_of::<Self>()
    }

    /// Counts a node without pods.
    pub(super) fn add_node(&mut self, domain: &Arc<str>) {
        let counted = Arc::make_mut(&mut self.counted);
        if let Some(known) = counted.domains.get_mut(domain) {
            known.nodes += 1;
        } else {
            counted.domains.insert(Arc::clone(domain), Domain { nodes: 1, pods: 0 });
            counted.enter(0);
        }
    }

    /// Stops counting a node. Its pods have been removed before.
    pub(super) fn remove_node(&mut self, domain: &str) {
        let counted = Arc::make_mut(&mut self.counted);
        let Some(known) = counted.domains.get_mut(domain) else {
            return;
        };
        known.nodes -= 1;
        if known.nodes == 0 {
            let pods = known.pods;
            counted.domains.remove(domain);
            counted.leave(pods);
        }
    }

    /// Adds pods to a domain permanently; negative removes.
    pub(super) fn follow(&mut self, domain: &str, delta: i64) {
        let counted = Arc::make_mut(&mut self.counted);
        let Some(known) = counted.domains.get_mut(domain) else {
            return;
        };
        known.pods += delta;
        let now = known.pods;
        counted.leave(now - delta);
        counted.enter(now);
    }

    /// Adds pods to a domain in a dry run; negative removes.
    pub(super) fn add(&mut self, domain: &Arc<str>, delta: i64) {
        self.changes.add(domain, delta);
    }

    /// The number of pods in a domain; 0 if no node counts for it.
    pub(super) fn get(&self, domain: &str) -> i64 {
        self.counted.domains.get(domain).map_or(0, |domain| domain.pods) + self.changes.get(domain)
    }

    /// Whether any node counts for the domain.
    pub(super) fn contains(&self, domain: &str) -> bool {
        self.counted.domains.contains_key(domain)
    }

    /// The number of domains.
    pub(super) fn domains(&self) -> usize {
        self.counted.domains.len()
    }

    /// The minimum number of pods in a domain.
    pub(super) fn least(&self) -> Option<i64> {
        let Counted { domains, having } = &*self.counted;
        if self.changes.is_empty() {
            return having.first_key_value().map(|(pods, _)| *pods);
        }
        let changed = || self.changes.iter().filter_map(|(name, by)| Some((domains.get(name)?.pods, by)));
        let unchanged = having
            .iter()
            .find(|(pods, domains)| changed().filter(|(before, _)| before == *pods).count() < **domains);
        let now = changed().map(|(before, by)| before + by);
        unchanged.map(|(pods, _)| *pods).into_iter().chain(now).min()
    }

    /// The number of domains with more than `low` and at most `high` pods, without changes of dry
    /// runs.
    pub(super) fn between(&self, low: i64, high: i64) -> usize {
        if low >= high {
            return 0;
        }
        self.counted.having.range(low + 1..=high).map(|(_, domains)| domains).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Node(u8),
        NodeGone(u8),
        Pods(u8, i64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let domain = 0..5_u8;
        let step = prop_oneof![
            domain.clone().prop_map(Step::Node),
            domain.clone().prop_map(Step::NodeGone),
            (domain, -2..3_i64).prop_map(|(domain, by)| Step::Pods(domain, by)),
        ];
        vec(step, 0..20)
    }

    fn name(domain: u8) -> Arc<str> {
        Arc::from(format!("d{domain}"))
    }

    proptest! {
        /// After any changes, counts and their minimum equal a recount, also in a dry run.
        #[test]
        fn the_minimum_is_current_after_every_change(
            start in vec((0..5_u8, 0..4_i64), 0..5),
            steps in steps(),
            dry_run in vec((0..6_u8, -2..3_i64), 0..5),
            (low, high) in (-2..4_i64, -2..8_i64),
        ) {
            let mut counting = Counting::new(&HashSeed::new(1));
            let mut expected: BTreeMap<u8, (usize, i64)> = BTreeMap::new();
            for (domain, pods) in start {
                counting.add_node(&name(domain), pods);
                let known = expected.entry(domain).or_default();
                (known.0, known.1) = (known.0 + 1, known.1 + pods);
            }
            let mut spread = Spread::from(counting);
            for step in steps {
                match step {
                    Step::Node(domain) => {
                        spread.add_node(&name(domain));
                        expected.entry(domain).or_default().0 += 1;
                    }
                    Step::NodeGone(domain) => {
                        spread.remove_node(&name(domain));
                        if let Some(known) = expected.get_mut(&domain) {
                            known.0 -= 1;
                        }
                        expected.retain(|_, known| known.0 > 0);
                    }
                    Step::Pods(domain, by) => {
                        spread.follow(&name(domain), by);
                        expected.entry(domain).and_modify(|known| known.1 += by);
                    }
                }
                let numbers = || expected.values().map(|(_, pods)| *pods);
                prop_assert_eq!(spread.least(), numbers().min());
                prop_assert_eq!(spread.domains(), expected.len());
                let between = numbers().filter(|pods| *pods > low && *pods <= high).count();
                prop_assert_eq!(spread.between(low, high), between);
            }
            let before = spread.least();
            let mut tried = spread.clone();
            let mut others: BTreeMap<u8, i64> = BTreeMap::new();
            for (domain, by) in dry_run {
                tried.add(&name(domain), by);
                match expected.get_mut(&domain) {
                    Some(known) => known.1 += by,
                    None => *others.entry(domain).or_default() += by,
                }
                prop_assert_eq!(tried.least(), expected.values().map(|(_, pods)| *pods).min());
                for (domain, pods) in expected.iter().map(|(domain, (_, pods))| (domain, pods)).chain(&others) {
                    prop_assert_eq!(tried.get(&name(*domain)), *pods);
                }
            }
            prop_assert_eq!(spread.least(), before, "the original is unchanged");
        }
    }
}
