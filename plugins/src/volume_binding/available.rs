//! Volumes that can be bound to claims.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use supercargo_framework::affinity::Operator;
use supercargo_framework::objects::{Object, ObjectBody, PersistentVolume};
use supercargo_framework::{Labels, SmallMap, steps};

use super::reach::is_reached;
use crate::HOSTNAME;

/// Volumes in order of preference, by the nodes that can access them. The volumes of a zone share
/// one place, so that a node visits none of another zone. Local volumes name their node by its host
/// name, and a cluster can have as many of them as nodes; the index saves visiting the places of
/// all other nodes.
#[derive(Default)]
pub(super) struct Available {
    volumes: Box<[Arc<Object>]>,
    places: Vec<Place>,
    /// Indices of `places` by host name, ascending.
    by_host: FxHashMap<Arc<str>, Vec<usize>>,
    /// The indices of all other places, ascending.
    elsewhere: Vec<usize>,
}

/// Volumes with one node affinity.
struct Place {
    /// Any of them.
    example: Arc<Object>,
    /// Those that are available: indices of [`Available::volumes`], ascending.
    volumes: Vec<usize>,
}

/// The places that a node can access, ascending.
pub(super) type Reached = SmallVec<[usize; 4]>;

impl Available {
    /// Volumes, the best first. Also returns the place of each of the `others`, which are not
    /// available.
    pub(super) fn new<'a>(
        volumes: &[&'a Arc<Object>],
        others: impl IntoIterator<Item = &'a Arc<Object>>,
    ) -> (Self, Vec<usize>) {
        let mut available =
            Self { volumes: volumes.iter().map(|volume| Arc::clone(volume)).collect(), ..Self::default() };
        let mut known: SmallMap<_, usize> = SmallMap::default();
        let mut place_of = |available: &mut Self, volume: &'a Arc<Object>| {
            let affinity = PersistentVolume::of(&volume.body).map(|body| body.node_affinity.as_deref());
            known.get(&affinity).copied().unwrap_or_else(|| {
                let place = available.add_place(volume);
                known.insert(affinity, place);
                place
            })
        };
        for (i, volume) in volumes.iter().enumerate() {
            let place = place_of(&mut available, volume);
            available.places[place].volumes.push(i);
        }
        let places = others.into_iter().map(|volume| place_of(&mut available, volume)).collect();
        (available, places)
    }

    fn add_place(&mut self, example: &Arc<Object>) -> usize {
        let place = self.places.len();
        self.places.push(Place { example: Arc::clone(example), volumes: Vec::new() });
        match hosts_of(example) {
            None => self.elsewhere.push(place),
            Some(hosts) => {
                for host in hosts {
                    let places = self.by_host.entry(Arc::clone(host)).or_default();
                    // Duplicate host names count once.
                    if places.last() != Some(&place) {
                        places.push(place);
                    }
                }
            }
        }
        place
    }

    /// Whether there is no volume.
    pub(super) fn is_empty(&self) -> bool {
        self.volumes.is_empty()
    }

    /// The places that a node with these labels can access.
    pub(super) fn reached(&self, labels: &Labels) -> Reached {
        let of_host = labels.get(HOSTNAME).and_then(|host| self.by_host.get(host));
        let places = of_host.into_iter().flatten().chain(&self.elsewhere).copied();
        let is_reached = |place: &usize| {
            let example = PersistentVolume::of(&self.places[*place].example.body);
            example.is_some_and(|volume| is_reached(volume, labels))
        };
        let mut reached: Reached = places.filter(is_reached).collect();
        reached.sort_unstable();
        reached
    }

    /// The number of volumes in these places.
    pub(super) fn count(&self, reached: &[usize]) -> usize {
        reached.iter().map(|place| self.places[*place].volumes.len()).sum()
    }

    /// The volumes in these places.
    pub(super) fn candidates(&self, reached: &[usize]) -> Candidates<'_> {
        let rests = reached.iter().map(|place| &*self.places[*place].volumes).collect();
        Candidates { volumes: &self.volumes, rests, visited: SmallVec::new() }
    }
}

/// Volumes in several places, in order of preference.
pub(super) struct Candidates<'a> {
    volumes: &'a [Arc<Object>],
    /// What is not visited yet, by place.
    rests: SmallVec<[&'a [usize]; 4]>,
    /// Indices of `volumes`.
    visited: SmallVec<[Option<usize>; 4]>,
}

impl<'a> Candidates<'a> {
    /// Takes the first volume that suits, from this position on, which is moved behind it. It
    /// visits each volume once, however many positions there are.
    pub(super) fn take(
        &mut self,
        position: &mut usize,
        suits: impl Fn(&Object) -> bool,
    ) -> Option<&'a Arc<Object>> {
        loop {
            if *position == self.visited.len() {
                let next = self.next()?;
                self.visited.push(Some(next));
            }
            steps::add(1);
            let visited = &mut self.visited[*position];
            *position += 1;
            if let Some(volume) = visited.map(|i| &self.volumes[i]).filter(|volume| suits(volume)) {
                *visited = None;
                return Some(volume);
            }
        }
    }

    fn next(&mut self) -> Option<usize> {
        steps::add(self.rests.len());
        let rests = self.rests.iter_mut().filter(|rest| !rest.is_empty());
        rests.min_by_key(|rest| rest[0])?.split_off_first().copied()
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

    /// The volumes that a node can access.
    fn in_order<'a>(available: &'a Available, labels: &Labels) -> Vec<&'a Arc<Object>> {
        let mut candidates = available.candidates(&available.reached(labels));
        let mut position = 0;
        std::iter::from_fn(|| candidates.take(&mut position, |_| true)).collect()
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
            let (some, others) = volumes.split_at(volumes.len() / 2);
            let (available, places) = Available::new(&some.iter().collect::<Vec<_>>(), others);
            prop_assert_eq!(in_order(&available, &labels), some.iter().filter(reached).collect::<Vec<_>>());
            let reached_places = available.reached(&labels);
            for (volume, place) in others.iter().zip(places) {
                prop_assert_eq!(reached_places.contains(&place), reached(&volume));
            }
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
        let volumes = [local("a"), local("b"), local("c")];
        let (available, _) = Available::new(&volumes.each_ref(), []);
        let labels: Labels = [(HOSTNAME, "b")].into_iter().collect();
        assert_eq!(available.reached(&labels)[..], [1]);
        assert_eq!(in_order(&available, &labels), [&volumes[1]]);
    }
}
