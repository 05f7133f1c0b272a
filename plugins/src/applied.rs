//! Combines the results of applying a change to several parts of a plugin's state.

use std::sync::Arc;

use smallvec::smallvec;
use supercargo_framework::SmallMap;
use supercargo_framework::caching::Applied;

/// The change can alter answers about nodes that share the value of this label with the changed
/// node.
pub(crate) fn in_domain(key: &Arc<str>) -> Applied {
    Applied::Domain(smallvec![Arc::clone(key)])
}

/// Labels whose domains a change can alter answers in.
#[derive(Default)]
pub(crate) struct Domains(SmallMap<Arc<str>, ()>);

impl Domains {
    pub(crate) fn add(&mut self, key: &Arc<str>) {
        if !self.0.contains(key) {
            self.0.insert(Arc::clone(key), ());
        }
    }
}

impl From<Domains> for Applied {
    fn from(Domains(keys): Domains) -> Self {
        if keys.is_empty() { Self::Here } else { Self::Domain(keys.into_keys().into()) }
    }
}

/// Widens a result by another.
pub(crate) fn widen(applied: &mut Applied, by: Applied) {
    let so_far = std::mem::replace(applied, Applied::Here);
    *applied = join(so_far, by);
}

/// The wider of two results; domains add up.
pub(crate) fn join(a: Applied, b: Applied) -> Applied {
    match (a, b) {
        (Applied::Rebuild, _) | (_, Applied::Rebuild) => Applied::Rebuild,
        (Applied::Everywhere, _) | (_, Applied::Everywhere) => Applied::Everywhere,
        (Applied::Here, other) | (other, Applied::Here) => other,
        (Applied::Domain(keys), Applied::Domain(others)) => {
            let mut all = Domains::default();
            keys.iter().chain(&others).for_each(|key| all.add(key));
            all.into()
        }
        // Nodes and domains do not add up.
        (Applied::Nodes(_), _) | (_, Applied::Nodes(_)) => Applied::Everywhere,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wider_result_wins_and_domains_add_up() {
        let (zone, host) = (Arc::from("zone"), Arc::from("host"));
        let both = join(in_domain(&zone), in_domain(&host));
        assert_eq!(both, Applied::Domain(smallvec![zone.clone(), host.clone()]));
        assert_eq!(join(both.clone(), in_domain(&host)), both);
        let rising = [Applied::Here, both, Applied::Everywhere, Applied::Rebuild];
        for (i, less) in rising.iter().enumerate() {
            for more in &rising[i..] {
                assert_eq!(join(less.clone(), more.clone()), *more);
                assert_eq!(join(more.clone(), less.clone()), *more);
            }
        }
    }
}
