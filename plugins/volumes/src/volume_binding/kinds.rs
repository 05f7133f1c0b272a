//! Which available volumes suit which claims, but for their size.

use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use smallvec::SmallVec;
use supercargo_framework::hash_seed::HashSeed;
use supercargo_framework::objects::{
    Object, ObjectBody, PersistentVolume, PersistentVolumeClaim, Typed, VolumeMode,
};
use supercargo_framework::selector::LabelSelector;
use supercargo_framework::small_map::FEW;
use supercargo_framework::{Numbering, steps};

/// The kinds of claims, and the sorts of available volumes. Claims of one kind can be bound to the
/// same volumes, and volumes of one sort to the same claims, if they are large enough.
pub(super) struct Kinds {
    of_claims: Vec<ClaimKind>,
    /// An available volume of each sort.
    sorts: Vec<Arc<Object>>,
    /// Whether volume attributes classes are enabled.
    with_attributes_classes: bool,
}

/// A kind of claims. Nodes ask about the same sorts, so answers about the first 64 are kept.
struct ClaimKind {
    /// A claim of this kind.
    claim: Arc<Object>,
    /// The sorts that have been compared with the claim, a bit each.
    compared: AtomicU64,
    /// Those that suit it.
    suited: AtomicU64,
}

impl Kinds {
    /// No kinds yet.
    pub(super) fn new(with_attributes_classes: bool) -> Self {
        Self { of_claims: Vec::new(), sorts: Vec::new(), with_attributes_classes }
    }

    /// Adds claims, and returns the kind of each.
    pub(super) fn add_claims<'a>(
        &mut self,
        claims: &[Typed<'a, PersistentVolumeClaim>],
        seed: &HashSeed,
    ) -> Vec<usize> {
        let mut known = Numbering::new(seed, claims.len());
        let kind_of = |&Typed { object, body }: &Typed<'a, PersistentVolumeClaim>| {
            let kind = known.number(AsKind(body));
            if kind == self.of_claims.len() {
                self.of_claims.push(ClaimKind::of(object));
            }
            kind
        };
        claims.iter().map(kind_of).collect()
    }

    /// Adds available volumes, and returns the sort of each. Labels that no claim selects by are
    /// ignored.
    pub(super) fn add_volumes<'a>(
        &mut self,
        available: &[Typed<'a, PersistentVolume>],
        seed: &HashSeed,
    ) -> Vec<usize> {
        // All of them suit a single kind.
        let are_one_sort = self.of_claims.len() <= 1;
        let mut keys: Numbering<'_, &str> = Numbering::new(seed, 0);
        let mut is_selected = Vec::new();
        if !are_one_sort {
            for (key, _) in available.iter().flat_map(|volume| volume.object.labels.texts()) {
                keys.number(key);
            }
            is_selected.resize(keys.len(), false);
            let kinds = self.of_claims.iter().filter_map(|kind| PersistentVolumeClaim::of(&kind.claim.body));
            let selectors = kinds.filter_map(|claim| claim.selector.as_ref());
            for requirement in selectors.flat_map(LabelSelector::requirements) {
                if let Some(key) = keys.get(&*requirement.key) {
                    is_selected[key] = true;
                }
            }
        }
        let mut known = Numbering::new(seed, available.len());
        let sort_of = |&Typed { object, body }: &Typed<'a, PersistentVolume>| {
            let sort = known.number((!are_one_sort).then(|| {
                let labels = object
                    .labels
                    .texts()
                    .filter(|(key, _)| keys.get(*key).is_some_and(|key| is_selected[key]));
                let labels: SmallVec<[(&str, &str); 2]> = labels.collect();
                let attributes = body.attributes_class.as_deref().unwrap_or("");
                (body.volume_mode, attributes, modes(&body.access_modes), labels)
            }));
            if sort == self.sorts.len() {
                self.sorts.push(Arc::clone(object));
            }
            sort
        };
        available.iter().map(sort_of).collect()
    }

    /// Whether the mode and the attributes class of a volume are those of the claim.
    pub(super) fn have_equal_properties(
        &self,
        claim: &PersistentVolumeClaim,
        volume: &PersistentVolume,
    ) -> bool {
        let wanted = claim.attributes_class.as_deref().filter(|_| self.with_attributes_classes);
        volume.volume_mode == claim.volume_mode
            && volume.attributes_class.as_deref().unwrap_or("") == wanted.unwrap_or("")
    }

    /// Whether available volumes of a sort can be bound to claims of a kind, if they are large
    /// enough.
    pub(super) fn suits(&self, kind: usize, sort: usize) -> bool {
        // All available volumes suit a single kind.
        if self.of_claims.len() == 1 {
            return true;
        }
        let kind = &self.of_claims[kind];
        let compare = || self.suits_claim(kind, &self.sorts[sort]);
        let bit = u32::try_from(sort).ok().and_then(|sort| 1_u64.checked_shl(sort));
        bit.map_or_else(compare, |bit| kind.suited(bit, compare))
    }

    /// Whether an available volume can be bound to claims of a kind, if it is large enough.
    fn suits_claim(&self, kind: &ClaimKind, volume: &Object) -> bool {
        steps::add(1);
        let (Some(claim), Some(body)) =
            (PersistentVolumeClaim::of(&kind.claim.body), PersistentVolume::of(&volume.body))
        else {
            return false;
        };
        self.have_equal_properties(claim, body)
            && claim.access_modes.iter().all(|mode| body.access_modes.contains(mode))
            && claim.selector.as_ref().is_none_or(|selector| selector.matches(&volume.labels))
    }

    /// Whether an available volume may suit any kind.
    pub(super) fn may_serve(&self, volume: &Object) -> bool {
        self.of_claims.len() > FEW || self.of_claims.iter().any(|kind| self.suits_claim(kind, volume))
    }
}

impl ClaimKind {
    fn of(claim: &Arc<Object>) -> Self {
        Self { claim: Arc::clone(claim), compared: AtomicU64::new(0), suited: AtomicU64::new(0) }
    }

    /// The answer about the sort of this bit, from `compare` the first time.
    fn suited(&self, bit: u64, compare: impl FnOnce() -> bool) -> bool {
        if self.compared.load(Ordering::Acquire) & bit != 0 {
            return self.suited.load(Ordering::Relaxed) & bit != 0;
        }
        let suits = compare();
        if suits {
            self.suited.fetch_or(bit, Ordering::Relaxed);
        }
        // The answer is there before it counts as known.
        self.compared.fetch_or(bit, Ordering::Release);
        suits
    }
}

/// A claim, equal to those of its kind. Smaller than what it compares.
struct AsKind<'a>(&'a PersistentVolumeClaim);

impl AsKind<'_> {
    fn parts(&self) -> (VolumeMode, &str, SmallVec<[&str; 4]>, &Option<LabelSelector>) {
        let Self(claim) = self;
        let attributes = claim.attributes_class.as_deref().unwrap_or("");
        (claim.volume_mode, attributes, modes(&claim.access_modes), &claim.selector)
    }
}

impl PartialEq for AsKind<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.parts() == other.parts()
    }
}

impl Eq for AsKind<'_> {}

impl Hash for AsKind<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.parts().hash(state);
    }
}

/// Access modes, each once, in one order.
fn modes(all: &[Arc<str>]) -> SmallVec<[&str; 4]> {
    let mut modes: SmallVec<[&str; 4]> = all.iter().map(|mode| &**mode).collect();
    modes.sort_unstable();
    modes.dedup();
    modes
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use supercargo_framework::Labels;
    use supercargo_framework::objects::{Body, VolumeMode, resources};
    use supercargo_framework::testing::object;

    use super::*;

    /// Access modes, whether it is a block device, the attributes class, and labels: selected ones
    /// of a claim, or those of a volume.
    type Parts = (Vec<u8>, bool, Option<u8>, BTreeMap<u8, u8>);

    /// Enough values for more than 64 sorts.
    fn parts() -> impl Strategy<Value = Parts> {
        let labels = prop::collection::btree_map(0..2_u8, 0..3_u8, 0..3);
        (prop::collection::vec(0..3_u8, 1..3), any::<bool>(), prop::option::of(0..2_u8), labels)
    }

    fn texts<T: FromIterator<Arc<str>>>(numbers: &[u8]) -> T {
        numbers.iter().map(|number| number.to_string().into()).collect()
    }

    fn labels(labels: &BTreeMap<u8, u8>) -> Labels {
        labels.iter().map(|(key, value)| (format!("k{key}"), format!("v{value}"))).collect()
    }

    fn mode(is_block: bool) -> VolumeMode {
        if is_block { VolumeMode::Block } else { VolumeMode::Filesystem }
    }

    fn claim((modes, is_block, class, selected): &Parts) -> Arc<Object> {
        let claim = PersistentVolumeClaim {
            access_modes: texts(modes),
            volume_mode: mode(*is_block),
            attributes_class: class.map(|class| class.to_string().into()),
            selector: (!selected.is_empty()).then(|| LabelSelector::parse(&labels(selected), []).unwrap()),
            ..PersistentVolumeClaim::default()
        };
        Arc::new(object(&resources::PERSISTENT_VOLUME_CLAIM, "ns/c", Body::PersistentVolumeClaim(claim)))
    }

    fn volume((modes, is_block, class, with): &Parts) -> Arc<Object> {
        let volume = PersistentVolume {
            access_modes: texts(modes),
            volume_mode: mode(*is_block),
            attributes_class: class.map(|class| class.to_string().into()),
            ..PersistentVolume::default()
        };
        let volume = object(&resources::PERSISTENT_VOLUME, "v", Body::PersistentVolume(volume));
        Arc::new(Object { labels: labels(with), ..volume })
    }

    fn typed<T: ObjectBody>(objects: &[Arc<Object>]) -> Vec<Typed<'_, T>> {
        objects.iter().map(|object| Typed { object, body: T::of(&object.body).unwrap() }).collect()
    }

    proptest! {
        /// Kinds and sorts only save comparisons: each answer is that of the claim and the volume
        /// themselves.
        #[test]
        fn a_kind_and_a_sort_answer_as_claim_and_volume(
            claims in prop::collection::vec(parts(), 1..12),
            volumes in prop::collection::vec(parts(), 0..150),
            with_classes in any::<bool>(),
        ) {
            let claim_objects: Vec<_> = claims.iter().map(claim).collect();
            // One kind of claims is compared with no volume: all that are available suit it.
            let suits = |claim: &Parts, volume: &Parts| {
                let class = claim.2.filter(|_| with_classes);
                claim.0.iter().all(|mode| volume.0.contains(mode))
                    && (claim.1, class) == (volume.1, volume.2)
                    && claim.3.iter().all(|(key, value)| volume.3.get(key) == Some(value))
            };
            let volumes: Vec<_> =
                volumes.into_iter().filter(|volume| claims.iter().any(|claim| suits(claim, volume))).collect();
            let volume_objects: Vec<_> = volumes.iter().map(volume).collect();
            let (mut kinds, seed) = (Kinds::new(with_classes), HashSeed::new(7));
            let kind_of = kinds.add_claims(&typed(&claim_objects), &seed);
            let sort_of = kinds.add_volumes(&typed(&volume_objects), &seed);
            // Twice: the second answers may be kept ones.
            for _ in 0..2 {
                for (claim, kind) in claims.iter().zip(&kind_of) {
                    for (volume, sort) in volumes.iter().zip(&sort_of) {
                        prop_assert_eq!(kinds.suits(*kind, *sort), suits(claim, volume));
                    }
                }
            }
        }
    }
}
