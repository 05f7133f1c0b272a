//! Many selectors that are matched together.

mod index;

use std::collections::BTreeMap;
use std::mem::take;
use std::sync::{Arc, Mutex, PoisonError};

use smallvec::SmallVec;

use self::index::{Decided, Index, Key};
use crate::affinity::{Operator, Requirement};
use crate::labels::Labels;
use crate::steps;

/// The number of requirements up to which it is as quick to check one after the other.
pub const MANY: usize = 32;

/// Selectors by the labels that they name. The cost of matching grows with the requirements on the
/// given labels, not with the number of selectors.
///
/// Labels that many nodes or pods have can touch tens of thousands of requirements. So
/// [`fold`](SelectorSet::fold) keeps results for large groups of requirements, and evaluates only
/// the few requirements that differ between nodes or pods.
#[derive(Clone, Debug)]
pub struct SelectorSet {
    /// In the order of their keys, then of their selectors.
    clauses: Box<[Clause]>,
    /// Where the clauses with a key are.
    index: Index,
    /// By selector, the number of requirements that a label must meet; [`NEVER`] if it matches
    /// nothing.
    needs: Box<[u32]>,
    /// The number of labels without which nothing matches, if that is known.
    least_labels: usize,
    /// The selectors that match if no label is there that they name, ascending.
    by_default: Box<[u32]>,
    /// The number of selectors that match.
    matching: Folds<(), usize>,
}

/// What the selectors of a set can tell about labels: the clauses that apply, as ranges. The same
/// selectors match labels of which they can tell the same.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Touched(SmallVec<[ClauseRange; 4]>);

impl Touched {
    /// The approximate size in bytes.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.0)
    }

    fn clauses(&self) -> usize {
        self.0.iter().map(|(first, end)| (end - first) as usize).sum()
    }

    /// Most of the clauses, by large ranges, and the small ranges, which have a few of the clauses.
    /// Nodes and pods that are not alike mostly differ in the latter.
    fn split(&self) -> (Self, SmallVec<[ClauseRange; 4]>) {
        let size = |(first, end): &ClauseRange| (end - first) as usize;
        let mut ranges = self.0.clone();
        ranges.sort_by_key(size);
        let mut left = self.clauses() / FEW_OF;
        let is_small = |range: &&ClauseRange| {
            let fits = size(range) <= left;
            left = left.saturating_sub(size(range));
            fits
        };
        let small = ranges.iter().take_while(is_small).count();
        let (small, large) = ranges.split_at(small);
        let (mut large, small) = (Self(large.into()), small.into());
        large.0.sort_unstable();
        (large, small)
    }
}

/// The part of the clauses that are evaluated for each node or pod.
const FEW_OF: usize = 16;

/// What [`SelectorSet::fold`] keeps. It saves time only: the same clauses give the same result.
#[derive(Debug)]
pub struct Folds<K, V> {
    kept: Mutex<Kept<K, V>>,
    /// The approximate size of a value in bytes.
    value_bytes: usize,
}

#[derive(Debug)]
struct Kept<K, V> {
    /// By large ranges of clauses, the selectors that they concern, ascending, each with the number
    /// of its requirements that are met; [`NEVER`] if one is violated.
    met: BTreeMap<Touched, Arc<[(u32, u32)]>>,
    /// The results of large ranges alone.
    values: BTreeMap<(K, Touched), V>,
    /// The approximate size of both.
    bytes: usize,
    /// Memory for one call.
    scratch: Met,
}

/// Selectors, each with the number of its requirements that are met.
type Met = SmallVec<[(u32, u32); 16]>;

/// The most bytes that are kept.
const MOST_BYTES: usize = 16 << 20;

impl<K, V> Folds<K, V> {
    /// For values of this size.
    pub fn of(value_bytes: usize) -> Self {
        let kept = Kept { met: BTreeMap::new(), values: BTreeMap::new(), bytes: 0, scratch: Met::new() };
        Self { kept: Mutex::new(kept), value_bytes }
    }

    /// The approximate size in bytes.
    pub fn bytes(&self) -> usize {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).bytes
    }
}

impl<K, V> Default for Folds<K, V> {
    fn default() -> Self {
        Self::of(size_of::<V>())
    }
}

/// A copy begins without results.
impl<K, V> Clone for Folds<K, V> {
    fn clone(&self) -> Self {
        Self::of(self.value_bytes)
    }
}

/// The first and the last of clauses, exclusive.
type ClauseRange = (u32, u32);

const NEVER: u32 = u32::MAX;

/// What a requirement of a selector says about one label, or about one value of it.
#[derive(Clone, Debug)]
struct Clause {
    key: Arc<str>,
    /// The value of `In` and `NotIn`.
    value: Option<Arc<str>>,
    operator: Operator,
    selector: u32,
}

impl Clause {
    fn key(&self) -> Key<'_> {
        let decided = match (&self.value, &self.operator) {
            (Some(value), _) => Decided::Value(value),
            (None, Operator::Gt(_) | Operator::Lt(_)) => Decided::Number,
            (None, _) => Decided::Presence,
        };
        (&self.key, decided)
    }

    /// The order among clauses about numbers: those that a number meets are the first of `Gt`, and
    /// the last of `Lt`.
    fn bound(&self) -> (bool, i64) {
        match self.operator {
            Operator::Gt(bound) => (false, bound),
            Operator::Lt(bound) => (true, bound),
            _ => (false, 0),
        }
    }

    /// Whether labels that the clause applies to meet the requirement. Otherwise they violate it.
    fn is_met(&self) -> bool {
        !matches!(self.operator, Operator::NotIn | Operator::DoesNotExist)
    }
}

/// Whether labels must be there to meet the requirement.
fn needs_label(requirement: &Requirement) -> bool {
    !matches!(requirement.operator, Operator::NotIn | Operator::DoesNotExist)
}

impl SelectorSet {
    /// The approximate size in bytes, without texts, which the selectors share.
    pub fn bytes(&self) -> usize {
        let lists = size_of_val(&*self.clauses) + size_of_val(&*self.needs) + size_of_val(&*self.by_default);
        lists + self.index.bytes() + self.matching.bytes()
    }

    /// A set of selectors: the requirements of each, by label; `None` if it matches nothing.
    pub fn new<'a, R>(selectors: impl IntoIterator<Item = Option<R>>) -> Self
    where
        R: IntoIterator<Item = (Arc<str>, &'a Requirement)>,
    {
        let (mut clauses, mut needs, mut by_default) = (Vec::new(), Vec::new(), Vec::new());
        for requirements in selectors {
            let selector = needs.len() as u32;
            let Some(requirements) = requirements else {
                needs.push(NEVER);
                continue;
            };
            let mut needed = 0;
            for (key, requirement) in requirements {
                needed += u32::from(needs_label(requirement));
                clauses.extend(clauses_of(selector, &key, requirement));
            }
            needs.push(needed);
            if needed == 0 {
                by_default.push(selector);
            }
        }
        clauses.sort_by(|a: &Clause, b: &Clause| (a.key(), a.bound()).cmp(&(b.key(), b.bound())));
        let index = Index::new(clauses.iter().map(Clause::key));
        let least_labels = if needs.len() == 1 { needed_labels(&clauses) } else { 0 };
        Self {
            least_labels,
            clauses: clauses.into(),
            index,
            needs: needs.into(),
            by_default: by_default.into(),
            matching: Folds::default(),
        }
    }

    /// The selectors that match if no label is there that they name, ascending.
    pub fn by_default(&self) -> impl Iterator<Item = usize> {
        self.by_default.iter().map(|selector| *selector as usize)
    }

    /// What the selectors can tell about these labels.
    pub fn touched<'a>(&self, labels: impl Iterator<Item = (&'a str, &'a str)>) -> Touched {
        let mut touched = SmallVec::new();
        let mut next = 0;
        for (key, value) in labels {
            let [presence, value_itself, numbers] =
                self.index.find(key, value, &mut next, |place| Some(self.clauses.get(place)?.key()));
            let number = if numbers.0 < numbers.1 { value.parse().ok() } else { None };
            let [above, below] =
                number.map_or([(0, 0); 2], |number| admitting(&self.clauses, numbers, number));
            // Numbers that are nearly equal admit nearly the same clauses. So each range is parted:
            // one part is the same for many numbers, and the other one is small.
            let part = (numbers.1 - numbers.0).div_ceil(PARTS).max(1);
            let above_cut = above.0 + (above.1 - above.0) / part * part;
            let below_cut = below.1 - (below.1 - below.0) / part * part;
            let above = [(above.0, above_cut), (above_cut, above.1)];
            let below = [(below.0, below_cut), (below_cut, below.1)];
            for (first, end) in [presence, value_itself].into_iter().chain(above).chain(below) {
                touched.extend((first < end).then_some((first as u32, end as u32)));
            }
        }
        Touched(touched)
    }

    /// The selectors that ranges of clauses concern, ascending, each with the number of its
    /// requirements that are met; [`NEVER`] if one is violated.
    fn met(&self, ranges: &[ClauseRange], met: &mut Met) {
        let clauses = ranges.iter().flat_map(|(first, end)| &self.clauses[*first as usize..*end as usize]);
        met.clear();
        met.extend(clauses.map(|clause| (clause.selector, if clause.is_met() { 1 } else { NEVER })));
        steps::add(met.len());
        // Most ranges are in the order of selectors, so this merges.
        met.sort_by_key(|(selector, _)| *selector);
        met.dedup_by(|(selector, more), (last, met)| {
            let is_same = selector == last;
            *met = if is_same { met.saturating_add(*more) } else { *met };
            is_same
        });
    }

    /// Whether a selector matches if `after` of its requirements are met; `None` if this is as with
    /// `before`.
    fn change(&self, selector: u32, before: u32, after: u32) -> Option<bool> {
        let matches = |met: u32| met == self.needs[selector as usize] && met != NEVER;
        (matches(before) != matches(after)).then(|| matches(after))
    }

    /// Visits the selectors, ascending, that match these labels but not [by
    /// default](Self::by_default), with `true`; and those that match by default but not these
    /// labels, with `false`.
    fn differences(&self, Touched(touched): &Touched, mut visit: impl FnMut(usize, bool)) {
        let mut met = Met::new();
        self.met(touched, &mut met);
        for (selector, met) in met {
            if let Some(matches) = self.change(selector, 0, met) {
                visit(selector as usize, matches);
            }
        }
    }

    /// Adds up the selectors that match these labels. Begins with those that match [by
    /// default](Self::by_default). `change` adds a selector that matches beside them (`true`), or
    /// takes one away (`false`). Results for one `key` must be interchangeable.
    pub fn fold<K: Clone + Ord, V: Clone>(
        &self,
        (folds, key): (&Folds<K, V>, K),
        touched: &Touched,
        by_default: V,
        mut change: impl FnMut(&mut V, usize, bool),
    ) -> V {
        let mut result = by_default;
        if touched.clauses() <= MANY {
            self.differences(touched, |selector, matches| change(&mut result, selector, matches));
            return result;
        }
        let (large, small) = touched.split();
        // Only threads with forks of one scheduler ever meet here.
        let mut kept = folds.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let mut met = take(&mut kept.scratch);
        steps::add(1);
        let known = kept.list(&large, || {
            self.met(&large.0, &mut met);
            met.as_slice().into()
        });
        result = kept.value((key, large), folds.value_bytes, || {
            for (selector, met) in &*known {
                if let Some(matches) = self.change(*selector, 0, *met) {
                    change(&mut result, *selector as usize, matches);
                }
            }
            result
        });
        self.met(&small, &mut met);
        for (selector, more) in &met {
            steps::add(1);
            let place = known.binary_search_by_key(selector, |(known, _)| *known);
            let before = place.map_or(0, |place| known[place].1);
            if let Some(matches) = self.change(*selector, before, before.saturating_add(*more)) {
                change(&mut result, *selector as usize, matches);
            }
        }
        kept.scratch = met;
        result
    }

    /// Whether any selector matches these labels. Not inlined, so that the check of a few
    /// requirements can be.
    #[inline(never)]
    pub fn any_matches(&self, labels: &Labels) -> bool {
        if labels.len() < self.least_labels {
            return false;
        }
        let touched = self.touched(labels.texts());
        let count = |count: &mut usize, _, matches| *count = if matches { *count + 1 } else { *count - 1 };
        self.fold((&self.matching, ()), &touched, self.by_default.len(), count) > 0
    }
}

impl<K: Ord, V: Clone> Kept<K, V> {
    fn list(&mut self, large: &Touched, find: impl FnOnce() -> Arc<[(u32, u32)]>) -> Arc<[(u32, u32)]> {
        if let Some(known) = self.met.get(large) {
            return Arc::clone(known);
        }
        let found = find();
        self.make_room(large.bytes() + size_of_val(&*found));
        self.met.insert(large.clone(), Arc::clone(&found));
        found
    }

    fn value(&mut self, key: (K, Touched), bytes: usize, find: impl FnOnce() -> V) -> V {
        if let Some(known) = self.values.get(&key) {
            return known.clone();
        }
        self.make_room(key.1.bytes() + bytes);
        self.values.entry(key).or_insert_with(find).clone()
    }

    fn make_room(&mut self, bytes: usize) {
        if self.bytes + bytes > MOST_BYTES {
            self.met.clear();
            self.values.clear();
            self.bytes = 0;
        }
        self.bytes += bytes;
    }
}

/// The parts of the bounds about one label.
const PARTS: usize = 64;

/// The number of labels that must be there for the only selector.
fn needed_labels(clauses: &[Clause]) -> usize {
    let of_one_label = clauses.chunk_by(|one, other| one.key == other.key);
    of_one_label.filter(|clauses| clauses.iter().any(Clause::is_met)).count()
}

/// The places of the clauses about numbers that admit this one: of `Gt`, and of `Lt`.
fn admitting(clauses: &[Clause], (first, end): (usize, usize), number: i64) -> [(usize, usize); 2] {
    let place = |bound: (bool, i64)| {
        first
            + clauses[first..end].partition_point(|clause| {
                steps::add(1);
                clause.bound() < bound
            })
    };
    [(first, place((false, number))), (number.checked_add(1).map_or(end, |above| place((true, above))), end)]
}

fn clauses_of<'a>(
    selector: u32,
    key: &'a Arc<str>,
    requirement: &'a Requirement,
) -> impl Iterator<Item = Clause> + 'a {
    let clause =
        move |value| Clause { key: Arc::clone(key), value, operator: requirement.operator.clone(), selector };
    let by_value = matches!(requirement.operator, Operator::In | Operator::NotIn);
    let mut values: Vec<Arc<str>> = Vec::new();
    if by_value {
        values.extend(requirement.values.iter().cloned());
        // A value that is listed twice is met once.
        values.sort_unstable();
        values.dedup();
    }
    values.into_iter().map(move |value| clause(Some(value))).chain((!by_value).then(|| clause(None)))
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::selector::LabelSelector;

    fn requirement() -> impl Strategy<Value = Requirement> {
        let operator = prop_oneof![
            3 => Just(Operator::In),
            3 => Just(Operator::NotIn),
            1 => Just(Operator::Exists),
            1 => Just(Operator::DoesNotExist),
            1 => (0..4_i64).prop_map(Operator::Gt),
            1 => (0..4_i64).prop_map(Operator::Lt),
        ];
        ("[a-d]", operator, vec("[0-4]", 1..4)).prop_map(|(key, operator, values)| {
            let has_values = matches!(operator, Operator::In | Operator::NotIn);
            let values = values.into_iter().filter(|_| has_values).map(Arc::from).collect();
            Requirement { key: key.into(), operator, values }
        })
    }

    fn selector() -> impl Strategy<Value = Option<LabelSelector>> {
        proptest::option::weighted(0.9, vec(requirement(), 0..4).prop_map(LabelSelector::new))
    }

    proptest! {
        /// The first selectors are there many times, so results about their labels are kept. The
        /// others are there once. The test asks about all labels twice.
        #[test]
        fn kept_results_are_those_of_each_selector_alone(
            many in vec(vec(requirement(), 1..3).prop_map(LabelSelector::new), 1..4),
            few in vec(vec(requirement(), 1..4).prop_map(LabelSelector::new), 0..4),
            pods in vec(vec(("[a-d]", "[0-4]"), 1..4), 2..6),
        ) {
            let selectors = || many.iter().cycle().take(many.len() * (MANY + 1)).chain(&few);
            let set = SelectorSet::new(selectors().map(|selector| {
                Some(selector.requirements().iter().map(|requirement| (Arc::clone(&requirement.key), requirement)))
            }));
            let folds = Folds::default();
            let pods: Vec<Labels> = pods.into_iter().map(|labels| labels.into_iter().collect()).collect();
            for labels in pods.iter().chain(&pods) {
                let matches: Vec<bool> = selectors().map(|selector| selector.matches(labels)).collect();
                prop_assert_eq!(set.any_matches(labels), matches.contains(&true), "{:?}", labels);
                let mut by_default = vec![false; matches.len()];
                set.by_default().for_each(|selector| by_default[selector] = true);
                let touched = set.touched(labels.texts());
                let found = set.fold((&folds, ()), &touched, by_default, |found, selector, matches| {
                    assert_ne!(std::mem::replace(&mut found[selector], matches), matches);
                });
                prop_assert_eq!(found, matches, "{:?}", labels);
            }
        }

        #[test]
        fn selectors_match_together_as_each_alone(
            selectors in vec(selector(), 0..20),
            labels in vec(("[a-e]", "[0-4x]"), 0..5),
        ) {
            let labels: Labels = labels.into_iter().collect();
            let set = SelectorSet::new(selectors.iter().map(|selector| {
                let requirements = selector.as_ref()?.requirements().iter();
                Some(requirements.map(|requirement| (Arc::clone(&requirement.key), requirement)))
            }));
            let matching = |labels: &Labels| -> Vec<usize> {
                let matches = |selector: &Option<LabelSelector>| {
                    selector.as_ref().is_some_and(|selector| selector.matches(labels))
                };
                (0..selectors.len()).filter(|place| matches(&selectors[*place])).collect()
            };
            let touched = set.touched(labels.texts());
            let mut found: Vec<_> = set.by_default().collect();
            set.differences(&touched, |selector, matches| {
                if matches { found.push(selector) } else { found.retain(|other| *other != selector) }
            });
            found.sort_unstable();
            prop_assert_eq!(&found, &matching(&labels));
            let by_default = matching(&Labels::default());
            prop_assert_eq!(set.by_default().collect::<Vec<_>>(), by_default.clone());
            set.differences(&touched, |selector, matches| {
                assert_eq!((found.contains(&selector), by_default.contains(&selector)), (matches, !matches));
            });
        }
    }
}
