//! Claims with delayed binding, and what can serve them.

use std::cell::LazyCell;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};

use supercargo_framework::objects::{
    CsiDriver, CsiStorageCapacity, Object, ObjectBody, PersistentVolume, PersistentVolumeClaim, StorageClass,
    Typed, annotations, resources,
};
use supercargo_framework::{Context, Labels, Numbering, SmallMap, steps};

use super::available::{Available, Reached};
use super::kinds::Kinds;
use crate::pod_volumes::KeyBuffer;

/// The provisioner of classes without dynamic provisioning.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

/// A claim with delayed binding. As upstream, a claim that several volumes of the pod name counts
/// as often.
pub(super) struct DelayedClaim {
    /// The claim.
    pub(super) claim: Arc<Object>,
    /// The requested bytes, if set.
    pub(super) request: Option<i64>,
    /// Its class: an index of [`Claims::classes`](super::claims::Claims::classes).
    pub(super) class: usize,
    /// The volumes whose `claimRef` is this claim: an index of [`ClassClaims::own`].
    pub(super) own: Option<usize>,
    /// The claims that can be bound to the same volumes, but for their size: one of the
    /// [`ClassClaims::kinds`].
    kind: usize,
}

/// The claims of one class, which compete for its volumes.
pub(super) struct ClassClaims {
    /// Claims with a selected node, in the pod's order.
    pub(super) selected: Vec<usize>,
    /// Claims without one, the smallest request first.
    pub(super) open: Vec<usize>,
    /// Volumes of claims, with their places.
    pub(super) own: Vec<Vec<(usize, Arc<Object>)>>,
    /// Which available volumes suit which open claims.
    kinds: Kinds,
    /// Volumes for open claims, the smallest first.
    pub(super) available: Available,
    /// Whether and where volumes can be provisioned.
    provisioning: Provisioning,
    /// The requests of all claims, each once, ascending.
    requests: Vec<i64>,
    /// For each place, the first one that is alike: see [`Available::alike`]. Made when many claims
    /// are looked at on a node.
    alike: OnceLock<Box<[usize]>>,
    /// Whether claims lack anything, for nodes with equal views.
    pub(super) lacking: Mutex<BTreeMap<View, bool>>,
    /// The first claim that lacks anything.
    pub(super) first_lacking: Mutex<BTreeMap<View, Option<usize>>>,
}

/// What a node offers to the claims of a class. The answers about them depend on nothing else.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct View {
    /// The volumes that it can access.
    pub(super) reached: Reached,
    /// The volumes that can be provisioned for it.
    pub(super) room: ProvisionableSize,
}

/// The volumes of a class that can be provisioned for a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ProvisionableSize {
    /// None.
    Nothing,
    /// Volumes of any size.
    Unlimited,
    /// Volumes up to this size, if any; all of them if the claim has no request.
    UpTo(Option<i64>),
}

/// Capacities, with the largest volume that each can hold.
type Capacities = Box<[(i64, Arc<Object>)]>;

/// Whether volumes of a class can be provisioned.
enum Provisioning {
    /// The class has no provisioner.
    Impossible,
    /// On the nodes that the class's `allowedTopologies` match.
    Possible {
        /// The class.
        class: Arc<Object>,
        /// If the driver reports capacity: the capacities, the largest first. One of these must be
        /// accessible from the node.
        storage: Option<Capacities>,
    },
}

/// A claim with its class.
pub(super) type Named<'a> = (Typed<'a, PersistentVolumeClaim>, Typed<'a, StorageClass>);

impl DelayedClaim {
    /// The claim's body.
    pub(super) fn body(&self) -> Option<&PersistentVolumeClaim> {
        PersistentVolumeClaim::of(&self.claim.body)
    }

    /// The requested bytes; 0 if unset.
    pub(super) fn size(&self) -> i64 {
        self.request.unwrap_or(0)
    }

    /// The selected node, which its volume is being provisioned for.
    pub(super) fn selected_node(&self) -> Option<&Arc<str>> {
        self.claim.annotations.get(annotations::SELECTED_NODE)
    }
}

impl ClassClaims {
    /// The claims with what can serve them, and their classes.
    pub(super) fn of<'a>(
        cx: &Context<'a>,
        named: &[Named<'a>],
        with_attributes_classes: bool,
    ) -> (Box<[DelayedClaim]>, Box<[Self]>) {
        let mut classes: Vec<(Typed<'_, StorageClass>, Vec<usize>)> = Vec::new();
        let mut by_name: SmallMap<&str, usize> = SmallMap::default();
        let mut claims: Box<[DelayedClaim]> = (0..)
            .zip(named)
            .map(|(i, (claim, class))| {
                let at = by_name.get(class.object.name()).copied().unwrap_or(classes.len());
                if at == classes.len() {
                    by_name.insert(class.object.name(), at);
                    classes.push((*class, Vec::new()));
                }
                classes[at].1.push(i);
                let claim = (Arc::clone(claim.object), claim.request);
                DelayedClaim { claim: claim.0, request: claim.1, class: at, own: None, kind: 0 }
            })
            .collect();
        let prepare =
            |(class, members)| Self::new(cx, class, members, named, &mut claims, with_attributes_classes);
        let classes = classes.into_iter().map(prepare).collect();
        (claims, classes)
    }

    fn new<'a>(
        cx: &Context<'a>,
        class: Typed<'a, StorageClass>,
        members: Vec<usize>,
        named: &[Named<'a>],
        claims: &mut [DelayedClaim],
        with_attributes_classes: bool,
    ) -> Self {
        let (selected, mut open): (Vec<_>, Vec<_>) =
            members.into_iter().partition(|i| claims[*i].selected_node().is_some());
        open.sort_by_key(|i| claims[*i].size());
        let mut requests: Vec<i64> =
            selected.iter().chain(&open).filter_map(|i| claims[*i].request).collect();
        requests.sort_unstable();
        requests.dedup();
        let mut prepared = Self {
            selected,
            open,
            own: Vec::new(),
            kinds: Kinds::new(with_attributes_classes),
            available: Available::none(cx.hash_seed()),
            provisioning: Provisioning::of(cx, class),
            requests,
            alike: OnceLock::new(),
            lacking: Mutex::default(),
            first_lacking: Mutex::default(),
        };
        if !prepared.open.is_empty() {
            prepared.collect_volumes(cx, class.object.name(), named, claims);
        }
        prepared
    }

    /// Collects the volumes for open claims.
    fn collect_volumes<'a>(
        &mut self,
        cx: &Context<'a>,
        class: &str,
        named: &[Named<'a>],
        claims: &mut [DelayedClaim],
    ) {
        let seed = cx.hash_seed();
        // Addresses are quicker to hash than keys, and are at hand.
        let mut numbers = Numbering::new(seed, self.open.len());
        let number = |i: &usize| numbers.number(Arc::as_ptr(named[*i].0.object));
        let of_open: Vec<usize> = self.open.iter().map(number).collect();
        // Each claim once.
        let mut distinct: Vec<Typed<'a, PersistentVolumeClaim>> = Vec::with_capacity(numbers.len());
        for (i, number) in self.open.iter().zip(&of_open) {
            if *number == distinct.len() {
                distinct.push(named[*i].0);
            }
        }
        // Only for volumes with a claim of the namespace.
        let by_key = LazyCell::new(|| {
            let mut by_key: Numbering<'_, &str> = Numbering::new(seed, distinct.len());
            for claim in &distinct {
                by_key.number(&claim.object.key);
            }
            by_key
        });
        let namespace = distinct.first().map_or("", |claim| claim.object.namespace());
        let kinds = self.kinds.add_claims(&distinct, seed);
        let smallest = self.open.first().map_or(0, |i| claims[*i].size());
        let mut available: Vec<Typed<'a, PersistentVolume>> = Vec::new();
        // Volumes with the number of their claim.
        let mut owned: Vec<(usize, &'a Arc<Object>)> = Vec::new();
        let mut key = KeyBuffer::default();
        for volume in cx.volumes_of_class(class).filter(|volume| !volume.object.terminating) {
            if let Some(holder) = &volume.claim {
                if *holder.namespace != *namespace {
                    continue;
                }
                let Some(number) = by_key.get(key.join(&[&holder.namespace, "/", &holder.name])) else {
                    continue;
                };
                let claim = &distinct[number];
                if holds(&volume, claim.object)
                    && volume.capacity >= claim.size()
                    && self.kinds.have_equal_properties(claim, &volume)
                {
                    owned.push((number, volume.object));
                }
            } else if &*volume.phase == "Available"
                && volume.capacity >= smallest
                && self.kinds.may_serve(volume.object)
            {
                available.push(volume);
            }
        }
        // Of equal volumes, the first by name.
        available.sort_by_key(|volume| volume.capacity);
        owned.sort_by_key(|(number, _)| *number);
        let sorts = self.kinds.add_volumes(&available, seed);
        let available = available.into_iter().map(|volume| volume.object).zip(sorts);
        let (available, places) = Available::new(available, owned.iter().map(|(_, volume)| *volume), seed);
        self.available = available;
        let mut own_of: Vec<Option<usize>> = vec![None; distinct.len()];
        for ((number, volume), place) in owned.into_iter().zip(places) {
            let own = *own_of[number].get_or_insert_with(|| {
                self.own.push(Vec::new());
                self.own.len() - 1
            });
            self.own[own].push((place, Arc::clone(volume)));
        }
        for (i, number) in self.open.iter().zip(of_open) {
            claims[*i].own = own_of[number];
            claims[*i].kind = kinds[number];
        }
    }

    /// Whether available volumes of a sort can be bound to a claim, if they are large enough.
    pub(super) fn suits(&self, claim: &DelayedClaim, sort: usize) -> bool {
        self.kinds.suits(claim.kind, sort)
    }

    /// What a node with these labels offers.
    pub(super) fn view(&self, labels: &Labels) -> View {
        let room = match self.provisioning.room(labels) {
            // Limits that the same claims meet are equal.
            ProvisionableSize::UpTo(Some(limit)) => {
                let met = self.requests.partition_point(|request| *request <= limit);
                ProvisionableSize::UpTo(self.requests[..met].last().copied())
            }
            room => room,
        };
        View { reached: self.available.reached(labels), room }
    }

    /// A view with the same answers, which is that of many nodes with local volumes of their own.
    pub(super) fn equivalent(&self, view: &View) -> View {
        let alike = self.alike.get_or_init(|| {
            let mut occupied: Vec<_> = self.own.iter().flatten().map(|(place, _)| *place).collect();
            occupied.sort_unstable();
            let met = |capacity| self.requests.partition_point(|request| *request <= capacity);
            self.available.alike(met, &occupied)
        });
        View { reached: self.available.equivalent(&view.reached, alike), room: view.room }
    }

    /// The open claims for which nothing can be provisioned, and the largest one.
    pub(super) fn without_storage(
        &self,
        claims: &[DelayedClaim],
        room: ProvisionableSize,
    ) -> Option<(usize, usize)> {
        let with_storage = match room {
            ProvisionableSize::Nothing => 0,
            ProvisionableSize::Unlimited => self.open.len(),
            ProvisionableSize::UpTo(Some(limit)) => self.open.partition_point(|i| claims[*i].size() <= limit),
            ProvisionableSize::UpTo(None) => {
                steps::add(self.open.len());
                let lacks = |i: &&usize| !room.has_place_for(claims[**i].request);
                let largest = self.open.iter().rfind(lacks)?;
                return Some((self.open.iter().filter(lacks).count(), *largest));
            }
        };
        let largest = self.open[with_storage..].last()?;
        Some((self.open.len() - with_storage, *largest))
    }

    /// Whether there is a volume for a claim, or a capacity that a driver reports: nothing else is
    /// scored.
    pub(super) fn can_score(&self) -> bool {
        !self.own.is_empty() || !self.available.is_empty() || self.provisioning.has_capacities()
    }

    /// The capacity that serves a claim on a node with these labels; `None` if there is none, or if
    /// its driver does not report capacity.
    pub(super) fn storage_for(&self, claim: &DelayedClaim, labels: &Labels) -> Option<&Arc<Object>> {
        let Provisioning::Possible { storage: Some(storage), .. } = &self.provisioning else { return None };
        let request = claim.request?;
        let large = &storage[..storage.partition_point(|(limit, _)| *limit >= request)];
        let accessible = large.iter().map(|(_, storage)| storage).filter(|it| is_accessible(it, labels));
        // The first by name.
        accessible.min_by_key(|storage| &storage.key)
    }
}

impl ProvisionableSize {
    /// Whether a volume can be provisioned for a claim with this request.
    pub(super) fn has_place_for(self, request: Option<i64>) -> bool {
        match self {
            Self::Nothing => false,
            Self::Unlimited => true,
            // A request of 0 also requires a driver with capacity.
            Self::UpTo(limit) => request.is_none_or(|request| limit.is_some_and(|limit| request <= limit)),
        }
    }
}

impl Provisioning {
    fn of(cx: &Context<'_>, class: Typed<'_, StorageClass>) -> Self {
        let provisioner = &*class.provisioner;
        if provisioner.is_empty() || provisioner == NO_PROVISIONER {
            return Self::Impossible;
        }
        let driver = cx.get::<CsiDriver>(&resources::CSI_DRIVER, provisioner);
        let storage = driver.is_some_and(|driver| driver.storage_capacity).then(|| {
            let mut storage: Vec<_> = cx
                .list::<CsiStorageCapacity>(&resources::CSI_STORAGE_CAPACITY)
                .filter(|storage| &*storage.storage_class == class.object.name())
                .filter_map(|storage| Some((volume_limit(&storage)?, Arc::clone(storage.object))))
                .collect();
            storage.sort_by_key(|(limit, _)| Reverse(*limit));
            storage.into()
        });
        Self::Possible { class: Arc::clone(class.object), storage }
    }

    fn has_capacities(&self) -> bool {
        matches!(self, Self::Possible { storage: Some(storage), .. } if !storage.is_empty())
    }

    fn room(&self, labels: &Labels) -> ProvisionableSize {
        match self {
            Self::Possible { class, storage } if is_allowed(class, labels) => {
                storage.as_ref().map_or(ProvisionableSize::Unlimited, |storage| {
                    let largest = storage.iter().find(|(_, storage)| is_accessible(storage, labels));
                    ProvisionableSize::UpTo(largest.map(|(limit, _)| *limit))
                })
            }
            _ => ProvisionableSize::Nothing,
        }
    }
}

/// Whether the class allows volumes for a node with these labels. As upstream, a term without
/// requirements allows nothing.
fn is_allowed(class: &Object, labels: &Labels) -> bool {
    StorageClass::of(&class.body).is_some_and(|class| {
        class.allowed_topologies.is_empty() || class.allowed_topologies.any_matches(labels)
    })
}

fn is_accessible(storage: &Object, labels: &Labels) -> bool {
    let topology = CsiStorageCapacity::of(&storage.body).and_then(|storage| storage.node_topology.as_ref());
    topology.is_some_and(|topology| topology.matches(labels))
}

/// Whether the volume's `claimRef` is this claim.
pub(super) fn holds(volume: &PersistentVolume, claim: &Object) -> bool {
    volume.claim.as_ref().is_some_and(|holder| {
        &*holder.name == claim.name()
            && &*holder.namespace == claim.namespace()
            && (holder.uid.is_empty() || holder.uid == claim.uid)
    })
}

/// The maximum size of a volume there.
pub(super) fn volume_limit(storage: &CsiStorageCapacity) -> Option<i64> {
    storage.maximum_volume_size.or(storage.capacity)
}
