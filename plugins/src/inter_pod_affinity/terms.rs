//! The terms of the incoming pod, prepared for matching.

use std::collections::BTreeMap;
use std::sync::Arc;

use smallvec::SmallVec;
use supercargo_framework::affinity::{Operator, Requirement};
use supercargo_framework::objects::{Namespace, Object, resources};
use supercargo_framework::pod_affinity::{PodAffinity, PodAffinityTerm};
use supercargo_framework::selector_set::{Folds, SelectorSet};
use supercargo_framework::small_map::FEW;
use supercargo_framework::{Context, Indexed, LabelSelector, Labels, Nodes, PodInfo, PodSpec, SmallMap};

/// A list of terms of a pod.
#[derive(Clone, Copy, Debug)]
pub(super) enum List {
    RequiredNear,
    RequiredAway,
    PreferredNear,
    PreferredAway,
}

impl List {
    fn len(self, affinity: &PodAffinity) -> usize {
        match self {
            Self::RequiredNear => affinity.required_affinity.len(),
            Self::RequiredAway => affinity.required_anti_affinity.len(),
            Self::PreferredNear => affinity.preferred_affinity.len(),
            Self::PreferredAway => affinity.preferred_anti_affinity.len(),
        }
    }

    /// A term with its weight: 1 if it is required.
    fn get(self, affinity: &PodAffinity, place: usize) -> (&PodAffinityTerm, i64) {
        match self {
            Self::RequiredNear => (&affinity.required_affinity[place], 1),
            Self::RequiredAway => (&affinity.required_anti_affinity[place], 1),
            Self::PreferredNear => {
                let preferred = &affinity.preferred_affinity[place];
                (&preferred.term, i64::from(preferred.weight))
            }
            Self::PreferredAway => {
                let preferred = &affinity.preferred_anti_affinity[place];
                (&preferred.term, -i64::from(preferred.weight))
            }
        }
    }
}

/// What pods that terms match count for one topology key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    /// The number of terms.
    pub(super) terms: i64,
    /// The sum of their weights.
    pub(super) weight: i64,
}

impl Tally {
    pub(super) fn add(&mut self, other: Self) {
        self.terms += other.terms;
        self.weight += other.weight;
    }

    fn subtract(&mut self, other: Self) {
        self.terms -= other.terms;
        self.weight -= other.weight;
    }
}

/// Terms that match the same pods.
#[derive(Debug)]
struct Group {
    /// One of them.
    term: (List, usize),
    /// The place of its namespaces in [`OwnTerms::covers`].
    cover: usize,
    /// By place of the topology key in [`OwnTerms::keys`].
    tallies: SmallVec<[(usize, Tally); 1]>,
}

/// The namespaces that terms cover.
#[derive(Debug)]
struct Cover {
    /// One of the terms.
    term: (List, usize),
    /// Whether these are all namespaces, even those that do not exist: the selector is empty. Any
    /// other selector stands for the namespaces that exist and match.
    is_all: bool,
}

/// Terms of the incoming pod.
///
/// A pod can have a hundred thousand. So terms that match the same pods are matched once. Topology
/// keys that no node has are skipped. Many terms are matched by [`SelectorSet::fold`].
#[derive(Debug)]
pub(super) struct OwnTerms {
    spec: Arc<PodSpec>,
    /// The namespace of the incoming pod.
    owner: Arc<str>,
    /// Whether a pod counts only if all terms match it, as upstream has it for required affinity.
    need_all: bool,
    groups: Vec<Group>,
    covers: Vec<Cover>,
    /// The topology keys that a node has.
    keys: Vec<Arc<str>>,
    /// The topology keys that no node has.
    absent: SmallMap<Arc<str>, ()>,
    /// All namespaces, by name, if a term selects some of them.
    namespaces: Vec<Arc<Object>>,
    many: Option<Many>,
}

/// What makes many terms cheap to match.
#[derive(Debug)]
struct Many {
    /// The selectors of the groups.
    selectors: SelectorSet,
    /// Two selectors for each cover: of the namespaces that it names, and of those that it selects.
    covers: SelectorSet,
    /// By cover, the groups that match pods without labels.
    by_default: Vec<Vec<usize>>,
    /// A namespace that no selector of a cover tells apart from others.
    unknown: Covered,
    coverings: Folds<(), Covered>,
    /// The namespaces of pods, by name: their places in `covered`.
    namespaces: BTreeMap<Arc<str>, usize>,
    /// What the terms can tell about namespaces.
    covered: Vec<Covered>,
    /// What pods match, by the place of their namespace, and by what the terms can tell of labels.
    matches: Folds<usize, Matches>,
}

/// What terms can tell about a namespace.
#[derive(Clone, Debug)]
struct Covered {
    /// A bit for each selector of a cover, whether it matches.
    bits: Box<[u64]>,
    /// What pods without labels match.
    by_default: Matches,
}

impl Covered {
    fn has(&self, selector: usize) -> bool {
        self.bits[selector / 64] & (1 << (selector % 64)) != 0
    }

    fn covers(&self, cover: usize, of: &Cover) -> bool {
        of.is_all || self.has(2 * cover) || self.has(2 * cover + 1)
    }

    fn bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.bits) + size_of_val(&*self.by_default.sums)
    }
}

/// The groups that match a pod.
#[derive(Clone, Debug)]
struct Matches {
    groups: usize,
    sums: Sums,
}

impl Matches {
    fn change(&mut self, group: &Group, matches: bool) {
        self.groups = if matches { self.groups + 1 } else { self.groups - 1 };
        for (key, tally) in &group.tallies {
            if matches {
                self.sums[*key].add(*tally);
            } else {
                self.sums[*key].subtract(*tally);
            }
        }
    }
}

impl Many {
    fn bytes(&self) -> usize {
        let lists = self.by_default.iter().map(|groups| size_of_val(groups) + size_of_val(&**groups));
        let names = self.namespaces.len() * size_of::<(Arc<str>, usize)>();
        let covered = self.covered.iter().map(Covered::bytes).sum::<usize>();
        let folds = self.coverings.bytes() + self.matches.bytes();
        self.selectors.bytes() + self.covers.bytes() + lists.sum::<usize>() + names + covered + folds
    }

    /// What the terms can tell about a namespace.
    fn covered(&self, terms: &OwnTerms, namespace: &str) -> Covered {
        let labels = terms.labels_of(namespace);
        let exists = labels.map(|_| (EXISTS, ""));
        let texts = labels.into_iter().flat_map(Labels::texts).chain(exists);
        let touched = self.covers.touched(texts.chain([(NAME, namespace)]));
        self.covers.fold((&self.coverings, ()), &touched, self.unknown.clone(), |covered, selector, _| {
            let place = selector / 2;
            let cover = &terms.covers[place];
            let before = covered.covers(place, cover);
            covered.bits[selector / 64] ^= 1 << (selector % 64);
            let after = covered.covers(place, cover);
            if before != after {
                let groups = self.by_default[place].iter().map(|group| &terms.groups[*group]);
                groups.for_each(|group| covered.by_default.change(group, after));
            }
        })
    }
}

/// The key of a namespace's name, as if it were a label. No label has this key.
const NAME: &str = "";

/// The key of a namespace that exists, as if it were a label. No label has this key.
const EXISTS: &str = "!";

/// What pods count, by place of the topology key.
type Sums = SmallVec<[Tally; 2]>;

/// The places of what has been added once.
#[derive(Default)]
struct Places<'a> {
    groups: SmallMap<(&'a Option<LabelSelector>, usize), usize>,
    covers: SmallMap<(&'a Indexed<Arc<str>>, &'a Option<LabelSelector>), usize>,
    keys: SmallMap<&'a Arc<str>, usize>,
    absent: Vec<&'a Arc<str>>,
}

fn place_of<K: Ord>(places: &mut SmallMap<K, usize>, key: K, next: usize) -> usize {
    places.get(&key).copied().unwrap_or_else(|| {
        places.insert(key, next);
        next
    })
}

impl OwnTerms {
    /// The approximate size in bytes.
    pub(super) fn bytes(&self) -> usize {
        let groups = self.groups.iter().map(|group| size_of_val(group) + size_of_val(&*group.tallies));
        let absent = self.absent.keys().map(|key| size_of_val(key) + key.len());
        let (covers, keys) = (size_of_val(&*self.covers), size_of_val(&*self.keys));
        let namespaces = size_of_val(&*self.namespaces);
        let many = self.many.as_ref().map_or(0, Many::bytes);
        groups.chain(absent).sum::<usize>() + covers + keys + namespaces + many
    }

    /// The terms of some of the pod's lists.
    pub(super) fn new(cx: &Context<'_>, pod: &PodInfo, lists: &[List]) -> Self {
        let mut terms = Self {
            spec: Arc::clone(&pod.spec),
            owner: Arc::clone(&pod.namespace),
            need_all: matches!(lists, [List::RequiredNear]),
            groups: Vec::new(),
            covers: Vec::new(),
            keys: Vec::new(),
            absent: SmallMap::default(),
            namespaces: Vec::new(),
            many: None,
        };
        let Some(affinity) = affinity_of(pod) else { return terms };
        let mut places = Places::default();
        for list in lists {
            for place in 0..list.len(affinity) {
                terms.add(cx, &mut places, affinity, (*list, place));
            }
        }
        terms.absent = places.absent.into_iter().map(|key| (Arc::clone(key), ())).collect();
        let selects_some = |it: &Cover| !it.is_all && terms.term(it.term).namespace_selector.is_some();
        if terms.covers.iter().any(selects_some) {
            let all = cx.list::<Namespace>(&resources::NAMESPACE);
            terms.namespaces = all.map(|namespace| Arc::clone(namespace.object)).collect();
        }
        terms.groups.iter_mut().for_each(Group::merge);
        if terms.groups.len() > FEW {
            terms.match_all(cx.nodes());
        }
        terms
    }

    fn add<'a>(
        &mut self,
        cx: &Context<'_>,
        places: &mut Places<'a>,
        affinity: &'a PodAffinity,
        term_place: (List, usize),
    ) {
        let (term, weight) = term_place.0.get(affinity, term_place.1);
        let namespaces = (&term.namespaces, &term.namespace_selector);
        let cover = place_of(&mut places.covers, namespaces, self.covers.len());
        if cover == self.covers.len() {
            let is_all = term.namespace_selector.as_ref().is_some_and(LabelSelector::is_empty);
            self.covers.push(Cover { term: term_place, is_all });
        }
        let group = place_of(&mut places.groups, (&term.selector, cover), self.groups.len());
        if group == self.groups.len() {
            self.groups.push(Group { term: term_place, cover, tallies: SmallVec::new() });
        }
        let tally = Tally { terms: 1, weight };
        if cx.nodes().any_has_label(&term.topology_key) {
            let key = place_of(&mut places.keys, &term.topology_key, self.keys.len());
            if key == self.keys.len() {
                self.keys.push(Arc::clone(&term.topology_key));
            }
            self.groups[group].add(key, tally);
        } else {
            places.absent.push(&term.topology_key);
        }
    }

    /// Matches the terms with the pods of all nodes.
    fn match_all(&mut self, nodes: &Nodes) {
        let named: Vec<Option<Requirement>> = self.covers.iter().map(|cover| self.named(cover)).collect();
        let exists =
            Requirement { key: EXISTS.into(), operator: Operator::Exists, values: Indexed::default() };
        let of_covers = self.covers.iter().zip(&named).flat_map(|(cover, named)| {
            let by_name = named.iter().map(|named| (Arc::default(), named)).collect::<Vec<_>>();
            let selector = self.term(cover.term).namespace_selector.as_ref();
            let by_label = requirements(selector);
            let by_label = by_label.map(|it| it.chain([(Arc::clone(&exists.key), &exists)]).collect());
            [named.is_some().then_some(by_name), by_label]
        });
        let of_groups = self.groups.iter().map(|group| requirements(self.term(group.term).selector.as_ref()));
        let (selectors, covers) = (SelectorSet::new(of_groups), SelectorSet::new(of_covers));
        let mut by_default = vec![Vec::new(); self.covers.len()];
        selectors.by_default().for_each(|group| by_default[self.groups[group].cover].push(group));
        let unknown = self.unknown_namespace(&covers, &by_default);
        let sums_bytes = size_of_val(&*unknown.by_default.sums);
        let mut many = Many {
            by_default,
            coverings: Folds::of(unknown.bytes()),
            matches: Folds::of(size_of::<Matches>() + sums_bytes),
            unknown,
            namespaces: BTreeMap::new(),
            covered: Vec::new(),
            selectors,
            covers,
        };
        for pod in nodes.iter().flat_map(|(_, node)| node.pods()) {
            if !many.namespaces.contains_key(&pod.namespace) {
                many.namespaces.insert(Arc::clone(&pod.namespace), many.covered.len());
                many.covered.push(many.covered(self, &pod.namespace));
            }
        }
        self.many = Some(many);
    }

    /// What terms can tell about a namespace without a name and labels.
    fn unknown_namespace(&self, covers: &SelectorSet, by_default: &[Vec<usize>]) -> Covered {
        let sums = Sums::from_elem(Tally::default(), self.keys.len());
        let bits = vec![0; (2 * self.covers.len()).div_ceil(64)].into_boxed_slice();
        let mut covered = Covered { bits, by_default: Matches { groups: 0, sums } };
        covers.by_default().for_each(|selector| covered.bits[selector / 64] |= 1 << (selector % 64));
        for (place, cover) in self.covers.iter().enumerate() {
            if covered.covers(place, cover) {
                let groups = by_default[place].iter().map(|group| &self.groups[*group]);
                groups.for_each(|group| covered.by_default.change(group, true));
            }
        }
        covered
    }

    /// The names of namespaces that a cover has in it, as a requirement.
    fn named(&self, cover: &Cover) -> Option<Requirement> {
        let term = self.term(cover.term);
        let names = if term.namespaces.is_empty() && term.namespace_selector.is_none() {
            [Arc::clone(&self.owner)].into()
        } else {
            term.namespaces.clone()
        };
        let requirement = Requirement { key: Arc::default(), operator: Operator::In, values: names };
        (!requirement.values.is_empty()).then_some(requirement)
    }

    fn term(&self, (list, place): (List, usize)) -> &PodAffinityTerm {
        let affinity = self.spec.pod_affinity.as_ref().expect("the place of a term is one of the spec's");
        list.get(affinity, place).0
    }

    /// Whether there is no term.
    pub(super) fn are_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// The topology keys that a node has.
    pub(super) fn present(&self) -> impl Iterator<Item = &Arc<str>> {
        self.keys.iter()
    }

    /// All topology keys.
    pub(super) fn keys(&self) -> impl Iterator<Item = &Arc<str>> {
        self.present().chain(self.absent.keys())
    }

    /// Whether the label is a topology key of a term.
    pub(super) fn has_key(&self, key: &str) -> bool {
        self.present().any(|known| **known == *key) || self.absent.contains(key)
    }

    /// Whether a label is a topology key that no node had.
    pub(super) fn gain(&self, labels: &Labels) -> bool {
        !self.absent.is_empty() && labels.iter().any(|(key, _)| self.absent.contains(&**key))
    }

    /// The labels of a namespace, if a term selects by them and it exists.
    fn labels_of(&self, namespace: &str) -> Option<&Labels> {
        let place = self.namespaces.binary_search_by(|known| (*known.key).cmp(namespace)).ok()?;
        Some(&self.namespaces[place].labels)
    }

    /// Whether a group matches another pod, whose namespace has these labels.
    fn matches(&self, group: &Group, other: &PodInfo, namespace: Option<&Labels>) -> bool {
        let term = self.term(group.term);
        let is_selected = || {
            let selector = term.namespace_selector.as_ref();
            selector.zip(namespace).is_some_and(|(selector, labels)| selector.matches(labels))
        };
        (self.covers[group.cover].is_all || term.names(&self.owner, &other.namespace) || is_selected())
            && term.selects(&other.labels)
    }

    /// Whether every term matches the other pod.
    pub(super) fn all_match(&self, other: &PodInfo) -> bool {
        if let Some(many) = &self.many {
            return self.matches_of(many, other).groups == self.groups.len();
        }
        let namespace = self.labels_of(&other.namespace);
        self.groups.iter().all(|group| self.matches(group, other, namespace))
    }

    /// The groups of many that match a pod.
    fn matches_of(&self, many: &Many, other: &PodInfo) -> Matches {
        let (no_folds, of_unknown);
        let (folds, place, covered) = match many.namespaces.get(&other.namespace) {
            Some(place) => (&many.matches, *place, &many.covered[*place]),
            // A namespace that had no pod.
            None => {
                (no_folds, of_unknown) = (Folds::default(), many.covered(self, &other.namespace));
                (&no_folds, 0, &of_unknown)
            }
        };
        let touched = many.selectors.touched(other.labels.texts());
        let by_default = covered.by_default.clone();
        many.selectors.fold((folds, place), &touched, by_default, |matches, group, is_met| {
            let group = &self.groups[group];
            if covered.covers(group.cover, &self.covers[group.cover]) {
                matches.change(group, is_met);
            }
        })
    }

    /// Visits what another pod counts, by topology key, possibly in parts.
    pub(super) fn visit(&self, other: &PodInfo, mut visit: impl FnMut(&Arc<str>, Tally)) {
        let mut visit = |(key, tally): (usize, Tally)| visit(&self.keys[key], tally);
        if let Some(many) = &self.many {
            let Matches { groups, sums } = self.matches_of(many, other);
            if !self.need_all || groups == self.groups.len() {
                sums.into_iter().enumerate().filter(|(_, tally)| tally.terms != 0).for_each(visit);
            }
        } else if self.need_all {
            let groups = if self.all_match(other) { &*self.groups } else { &[] };
            for group in groups {
                group.tallies.iter().copied().for_each(&mut visit);
            }
        } else {
            let namespace = self.labels_of(&other.namespace);
            for group in self.groups.iter().filter(|group| self.matches(group, other, namespace)) {
                group.tallies.iter().copied().for_each(&mut visit);
            }
        }
    }
}

impl Group {
    fn add(&mut self, key: usize, tally: Tally) {
        match self.tallies.last_mut() {
            Some((known, sum)) if *known == key => sum.add(tally),
            _ => self.tallies.push((key, tally)),
        }
    }

    /// Leaves one tally for each key.
    fn merge(&mut self) {
        self.tallies.sort_by_key(|(key, _)| *key);
        self.tallies.dedup_by(|(key, more), (last, sum)| {
            let is_same = key == last;
            if is_same {
                sum.add(*more);
            }
            is_same
        });
    }
}

/// The requirements of a selector by label; `None` for a nil selector, which matches nothing.
fn requirements(selector: Option<&LabelSelector>) -> Option<impl Iterator<Item = (Arc<str>, &Requirement)>> {
    let requirements = selector?.requirements().iter();
    Some(requirements.map(|requirement| (Arc::clone(&requirement.key), requirement)))
}

/// A pod's inter-pod affinity, if it has any.
pub(super) fn affinity_of(pod: &PodInfo) -> Option<&PodAffinity> {
    pod.spec.pod_affinity.as_deref()
}

/// The pod's namespace object, if it exists.
pub(super) fn namespace_of(cx: &Context<'_>, pod: &PodInfo) -> Option<Arc<Object>> {
    cx.object(&resources::NAMESPACE, &pod.namespace).cloned()
}
