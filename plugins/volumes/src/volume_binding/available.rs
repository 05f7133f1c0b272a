//! Volumes that can be bound to claims.

use std::sync::Arc;

use smallvec::SmallVec;
use supercargo_framework::affinity::Operator;
use supercargo_framework::hash_seed::{HashSeed, SeededMap};
use supercargo_framework::node::HOSTNAME;
use supercargo_framework::objects::{Object, ObjectBody, PersistentVolume};
use supercargo_framework::{Labels, SmallMap, steps};

use super::reach::is_reached;

/// Volumes in order of preference, by the nodes that can access them, and by sort: claims can tell
/// two of one sort apart by their capacity only. The volumes of a zone share one place, so that a
/// node visits none of another zone. Local volumes name their node by its host
/// name, and a cluster can have as many of them as nodes; the index saves visiting the places of
/// all other nodes.
pub(super) struct Available {
    volumes: Box<[Arc<Object>]>,
    places: Vec<AffinityClass>,
    /// Indices of `places` by host name, ascending.
    by_host: SeededMap<Arc<str>, Vec<usize>>,
    /// The indices of all other places, ascending.
    elsewhere: Vec<usize>,
}

/// Volumes with one node affinity.
struct AffinityClass {
    /// Any of them.
    example: Arc<Object>,
    /// Those that are available, by sort: indices of [`Available::volumes`], ascending.
    volumes: SmallMap<usize, Vec<usize>>,
    /// Whether only some hosts can access them.
    is_local: bool,
}

/// The places that a node can access, ascending.
pub(super) type Reached = SmallVec<[usize; 4]>;

impl Available {
    /// No volumes.
    pub(super) fn none(seed: &HashSeed) -> Self {
        Self { volumes: Box::default(), places: Vec::new(), by_host: seed.map(), elsewhere: Vec::new() }
    }

    /// Volumes with their sorts, the smallest first. Also returns the place of each of the
    /// `others`, which are not available.
    pub(super) fn new<'a>(
        volumes: impl IntoIterator<Item = (&'a Arc<Object>, usize)>,
        others: impl IntoIterator<Item = &'a Arc<Object>>,
        seed: &HashSeed,
    ) -> (Self, Vec<usize>) {
        let mut available = Self::none(seed);
        let mut known: SmallMap<_, usize> = SmallMap::default();
        let mut place_of = |available: &mut Self, volume: &'a Arc<Object>| {
            let affinity = PersistentVolume::of(&volume.body).map(|body| body.node_affinity.as_ref());
            known.get(&affinity).copied().unwrap_or_else(|| {
                let place = available.add_place(volume);
                known.insert(affinity, place);
                place
            })
        };
        let mut all = Vec::new();
        for (i, (volume, sort)) in volumes.into_iter().enumerate() {
            let place = place_of(&mut available, volume);
            available.places[place].volumes.or_default(&sort).push(i);
            all.push(Arc::clone(volume));
        }
        available.volumes = all.into();
        let places = others.into_iter().map(|volume| place_of(&mut available, volume)).collect();
        (available, places)
    }

    fn add_place(&mut self, example: &Arc<Object>) -> usize {
        let (place, hosts) = (self.places.len(), hosts_of(example));
        let is_local = hosts.is_some();
        match hosts {
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
        self.places.push(AffinityClass {
            example: Arc::clone(example),
            volumes: SmallMap::default(),
            is_local,
        });
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
        reached.iter().flat_map(|place| self.places[*place].volumes.values()).map(Vec::len).sum()
    }

    /// The volumes in these places.
    pub(super) fn candidates(&self, reached: &[usize]) -> Candidates<'_> {
        let rests = reached.iter().flat_map(|place| self.places[*place].volumes.iter());
        Candidates { volumes: &self.volumes, rests: rests.map(|(sort, rest)| (*sort, &**rest)).collect() }
    }

    /// For each place, the first place that offers claims the same on a node that can access no
    /// other local volumes. `met` is the number of requests that a capacity meets; `occupied`
    /// places, in ascending order, have volumes besides the available ones.
    pub(super) fn alike(&self, met: impl Fn(i64) -> usize, occupied: &[usize]) -> Box<[usize]> {
        steps::add(self.volumes.len());
        let before = self.elsewhere_before();
        let offer = |place: &AffinityClass| {
            let volumes = place.volumes.iter().flat_map(|(sort, all)| all.iter().map(move |i| (*i, *sort)));
            let mut volumes: Vec<_> = volumes.collect();
            volumes.sort_unstable();
            let offered = |(i, sort): (usize, usize)| (before[i], sort, met(capacity(&self.volumes[i])));
            volumes.into_iter().map(offered).collect::<Vec<_>>()
        };
        let mut known: SmallMap<_, usize> = SmallMap::default();
        let first_alike = |(i, place): (usize, &AffinityClass)| {
            if !place.is_local || occupied.binary_search(&i).is_ok() {
                return i;
            }
            let offer = offer(place);
            known.get(&offer).copied().unwrap_or_else(|| {
                known.insert(offer, i);
                i
            })
        };
        self.places.iter().enumerate().map(first_alike).collect()
    }

    /// For each volume, how many before it are not local.
    fn elsewhere_before(&self) -> Vec<usize> {
        let mut is_elsewhere = vec![false; self.volumes.len()];
        for place in &self.elsewhere {
            self.places[*place].volumes.values().flatten().for_each(|i| is_elsewhere[*i] = true);
        }
        let counted = is_elsewhere.iter().scan(0, |count, is_elsewhere| {
            let before = *count;
            *count += usize::from(*is_elsewhere);
            Some(before)
        });
        counted.collect()
    }

    /// The reached places, each local one replaced by the first that is alike.
    pub(super) fn equivalent(&self, reached: &[usize], alike: &[usize]) -> Reached {
        if reached.iter().filter(|place| self.places[**place].is_local).count() > 1 {
            return reached.into();
        }
        let mut equivalent: Reached = reached.iter().map(|place| alike[*place]).collect();
        equivalent.sort_unstable();
        equivalent
    }
}

/// Volumes in several places, in order of preference.
pub(super) struct Candidates<'a> {
    volumes: &'a [Arc<Object>],
    /// What is left, by place and sort.
    rests: SmallVec<[(usize, &'a [usize]); 4]>,
}

impl<'a> Candidates<'a> {
    /// Takes the first volume of at least this size whose sort suits. Sizes must not descend:
    /// volumes that are too small are left behind for good, so each is visited once.
    pub(super) fn take(&mut self, size: i64, suits: impl Fn(usize) -> bool) -> Option<&'a Arc<Object>> {
        steps::add(self.rests.len());
        let is_small = |i: &usize| capacity(&self.volumes[*i]) < size;
        let mut best: Option<(usize, usize)> = None;
        for (at, (sort, rest)) in self.rests.iter_mut().enumerate() {
            if best.is_some_and(|(first, _)| rest.first().is_none_or(|i| *i > first)) || !suits(*sort) {
                continue;
            }
            if rest.first().is_some_and(is_small) {
                *rest = &rest[rest.partition_point(is_small)..];
            }
            let first = rest.first().copied().filter(|i| best.is_none_or(|(best, _)| *i < best));
            best = first.map(|first| (first, at)).or(best);
        }
        let (first, at) = best?;
        let (_, rest) = &mut self.rests[at];
        *rest = &rest[1..];
        if rest.is_empty() {
            self.rests.swap_remove(at);
        }
        Some(&self.volumes[first])
    }
}

fn capacity(volume: &Object) -> i64 {
    PersistentVolume::of(&volume.body).map_or(0, |body| body.capacity)
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
        std::iter::from_fn(|| candidates.take(0, |_| true)).collect()
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
            let (available, places) = Available::new(some.iter().zip((0..2).cycle()), others, &HashSeed::new(1));
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
        let (available, _) = Available::new(volumes.iter().zip([0; 3]), [], &HashSeed::new(1));
        let labels: Labels = [(HOSTNAME, "b")].into_iter().collect();
        assert_eq!(available.reached(&labels)[..], [1]);
        assert_eq!(in_order(&available, &labels), [&volumes[1]]);
    }
    #[test]
    fn local_places_are_alike_if_claims_cannot_tell_them_apart() {
        let volume = |name: &str, host: Option<&str>, capacity| {
            let named = |host: &str| {
                let values = vec![host.into()];
                let requirement = RawRequirement { key: HOSTNAME.into(), operator: "In".into(), values };
                [NodeSelectorTerm::parse(vec![requirement], vec![])].into()
            };
            let node_affinity = host.map(named);
            let body = PersistentVolume { capacity, node_affinity, ..Default::default() };
            Arc::new(object(&resources::PERSISTENT_VOLUME, name, Body::PersistentVolume(body)))
        };
        // Each with its sort. The third one is elsewhere, and the requests are met by 5 and 9.
        let volumes = [
            (volume("a", Some("a"), 5), 0),
            (volume("b", Some("b"), 6), 0),
            (volume("every", None, 6), 0),
            (volume("behind", Some("behind"), 7), 0),
            (volume("other-sort", Some("other-sort"), 7), 1),
            (volume("like-it", Some("like-it"), 8), 1),
            (volume("larger", Some("larger"), 9), 1),
            (volume("held", Some("held"), 9), 1),
        ];
        let sorted = volumes.iter().map(|(volume, sort)| (volume, *sort));
        let (available, _) = Available::new(sorted, [], &HashSeed::new(1));
        let met = |capacity| usize::from(capacity >= 5) + usize::from(capacity >= 9);
        let alike = available.alike(met, &[7]);
        assert_eq!(alike[..], [0, 0, 2, 3, 4, 4, 6, 7]);
        assert_eq!(available.equivalent(&[2, 5], &alike)[..], [2, 4]);
        // Of volumes in two places of a host, the order between them matters.
        assert_eq!(available.equivalent(&[1, 5], &alike)[..], [1, 5]);
    }
}
