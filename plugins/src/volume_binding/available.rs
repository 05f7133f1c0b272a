//! Volumes that can be bound to a claim.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use supercargo_framework::Labels;
use supercargo_framework::affinity::Operator;
use supercargo_framework::objects::{Object, ObjectBody, PersistentVolume};

use crate::HOSTNAME;

/// Volumes in order of preference, indexed by host name. Local volumes name their node by its host
/// name, and a cluster can have as many of them as nodes; the index saves visiting the volumes of
/// all other nodes.
#[derive(Default)]
pub(super) struct Available {
    volumes: Box<[Arc<Object>]>,
    /// Indices of `volumes` by host name, ascending.
    by_host: FxHashMap<Arc<str>, Vec<usize>>,
    /// The indices of all other volumes, ascending.
    elsewhere: Vec<usize>,
}

impl Available {
    /// Volumes, the best first.
    pub(super) fn new(volumes: impl Into<Box<[Arc<Object>]>>) -> Self {
        let mut available = Self { volumes: volumes.into(), ..Self::default() };
        for (place, volume) in available.volumes.iter().enumerate() {
            match hosts_of(volume) {
                None => available.elsewhere.push(place),
                Some(hosts) => {
                    for host in hosts {
                        let places = available.by_host.entry(Arc::clone(host)).or_default();
                        // Duplicate host names count once.
                        if places.last() != Some(&place) {
                            places.push(place);
                        }
                    }
                }
            }
        }
        available
    }

    /// The volumes that a node with these labels may access, in order of preference: a superset of
    /// those that it can access.
    pub(super) fn for_node(&self, labels: &Labels) -> impl Iterator<Item = &Arc<Object>> {
        let own = labels.get(HOSTNAME).and_then(|host| self.by_host.get(host));
        let mut own = own.map_or(&[][..], Vec::as_slice).iter().peekable();
        let mut others = self.elsewhere.iter().peekable();
        std::iter::from_fn(move || {
            let next = match (own.peek(), others.peek()) {
                (Some(one), Some(other)) if one < other => own.next(),
                (Some(_), None) => own.next(),
                _ => others.next(),
            };
            next.map(|place| &self.volumes[*place])
        })
    }
}

/// The only hosts that can access a volume; `None` unless every term of its affinity names hosts.
fn hosts_of(volume: &Object) -> Option<Vec<&Arc<str>>> {
    let terms = PersistentVolume::of(&volume.body)?.node_affinity.as_deref()?;
    let mut hosts = Vec::new();
    for term in terms {
        let named = term
            .match_expressions
            .iter()
            .find(|requirement| &*requirement.key == HOSTNAME && requirement.operator == Operator::In)?;
        hosts.extend(&named.values);
    }
    Some(hosts)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use supercargo_framework::NodeSelectorTerm;
    use supercargo_framework::affinity::RawRequirement;
    use supercargo_framework::objects::{Body, resources};
    use supercargo_framework::testing::object;

    use super::*;
    use crate::volume_binding::reach::is_reached;

    fn random_term() -> impl Strategy<Value = NodeSelectorTerm> {
        let key = proptest::sample::select(vec![HOSTNAME, HOSTNAME, "zone"]);
        let operator = proptest::sample::select(vec!["In", "In", "In", "NotIn", "Exists"]);
        let values = proptest::collection::vec(proptest::sample::select(vec!["a", "b", "c"]), 1..3);
        let requirement = (key, operator, values).prop_map(|(key, operator, values)| RawRequirement {
            key: key.into(),
            operator: operator.into(),
            values: if operator == "Exists" { vec![] } else { values.into_iter().map(Into::into).collect() },
        });
        proptest::collection::vec(requirement, 0..3)
            .prop_map(|requirements| NodeSelectorTerm::parse(requirements, vec![]))
    }

    proptest! {
        #[test]
        fn reachable_volumes_are_in_order_of_preference(
            affinities in proptest::collection::vec(
                proptest::option::weighted(0.8, proptest::collection::vec(random_term(), 0..3)),
                0..8,
            ),
            host in proptest::option::of(proptest::sample::select(vec!["a", "b", "d"])),
            zone in proptest::option::of(proptest::sample::select(vec!["a", "b"])),
        ) {
            let volumes: Vec<Arc<Object>> = affinities
                .into_iter()
                .enumerate()
                .map(|(i, terms)| {
                    let body =
                        PersistentVolume { node_affinity: terms.map(Into::into), ..Default::default() };
                    let body = Body::PersistentVolume(body);
                    Arc::new(object(&resources::PERSISTENT_VOLUME, &i.to_string(), body))
                })
                .collect();
            let labels: Labels = host
                .map(|host| (HOSTNAME, host))
                .into_iter()
                .chain(zone.map(|zone| ("zone", zone)))
                .collect();
            let reached = |volume: &&Arc<Object>| {
                PersistentVolume::of(&volume.body).is_some_and(|volume| is_reached(volume, &labels))
            };
            let expected: Vec<_> = volumes.iter().filter(reached).collect();
            let available = Available::new(volumes.clone());
            prop_assert_eq!(available.for_node(&labels).filter(reached).collect::<Vec<_>>(), expected);
        }
    }

    #[test]
    fn volumes_of_other_nodes_are_not_visited() {
        let local = |host: &str| {
            let requirement =
                RawRequirement { key: HOSTNAME.into(), operator: "In".into(), values: vec![host.into()] };
            let terms = [NodeSelectorTerm::parse(vec![requirement], vec![])];
            let body = PersistentVolume { node_affinity: Some(terms.into()), ..Default::default() };
            Arc::new(object(&resources::PERSISTENT_VOLUME, host, Body::PersistentVolume(body)))
        };
        let available = Available::new([local("a"), local("b"), local("c")]);
        let labels: Labels = [(HOSTNAME, "b")].into_iter().collect();
        let names: Vec<_> = available.for_node(&labels).map(|volume| &*volume.key).collect();
        assert_eq!(names, ["b"]);
    }
}
