//! Claims with delayed binding, and what can serve them.

use std::sync::Arc;

use supercargo_framework::objects::{
    CsiDriver, CsiStorageCapacity, Object, ObjectBody, PersistentVolume, PersistentVolumeClaim, StorageClass,
    Typed, VolumeMode, annotations, resources,
};
use supercargo_framework::{Context, Labels, SmallMap};

use super::available::Available;
use crate::pod_volumes::KeyBuffer;

/// The provisioner of classes without dynamic provisioning.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

/// A claim with delayed binding.
pub(super) struct DelayedClaim {
    /// The claim.
    pub(super) claim: Arc<Object>,
    /// The selected node, which its volume is being provisioned for.
    pub(super) selected_node: Option<Arc<str>>,
    /// Its class: an index of [`Claims::classes`](super::claims::Claims::classes).
    pub(super) class: usize,
    /// The volume whose `claimRef` is this claim.
    pub(super) own: Option<Arc<Object>>,
    /// The volumes that can be bound to it, if they are large enough and match its selector: an
    /// index of [`ClassClaims::pools`].
    pub(super) pool: Option<usize>,
}

/// The claims of one class, which compete for its volumes.
pub(super) struct ClassClaims {
    /// Claims with a selected node.
    pub(super) selected: Vec<usize>,
    /// Claims without one, the smallest request first.
    pub(super) open: Vec<usize>,
    /// Available volumes, the smallest first, by the properties that claims require. A volume can
    /// be in several pools.
    pub(super) pools: Vec<Available>,
    /// The number of claims with a volume of their own.
    pub(super) own_volumes: usize,
    /// Whether several claims can want one volume, other than in the order of one pool.
    pub(super) is_contended: bool,
    /// Whether and where volumes can be provisioned.
    pub(super) provisioning: Provisioning,
}

/// Capacities, with the largest volume that each can hold.
type Capacities = Box<[(i64, Arc<Object>)]>;

/// Whether volumes of a class can be provisioned.
pub(super) enum Provisioning {
    /// The class has no provisioner.
    Impossible,
    /// On the nodes that the class's `allowedTopologies` match.
    Possible {
        /// The class.
        class: Arc<Object>,
        /// If the driver reports capacity. One of these must be accessible from the node.
        storage: Option<Capacities>,
    },
}

/// A claim with its class.
type Named<'a> = (Typed<'a, PersistentVolumeClaim>, Typed<'a, StorageClass>);

/// The mode and the attributes class, which must be those of the claim.
type Properties<'a> = (VolumeMode, &'a str);

impl DelayedClaim {
    fn new(claim: &Arc<Object>, class: usize) -> Self {
        let selected_node = claim.annotations.get(annotations::SELECTED_NODE).cloned();
        Self { claim: Arc::clone(claim), selected_node, class, own: None, pool: None }
    }

    /// The claim's body.
    pub(super) fn body(&self) -> Option<&PersistentVolumeClaim> {
        PersistentVolumeClaim::of(&self.claim.body)
    }

    /// The requested bytes; 0 if unset.
    pub(super) fn size(&self) -> i64 {
        self.body().map_or(0, PersistentVolumeClaim::size)
    }

    /// The requested bytes, if set.
    pub(super) fn request(&self) -> Option<i64> {
        self.body().and_then(|body| body.request)
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
                DelayedClaim::new(claim.object, at)
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
        let smallest = members.iter().map(|i| claims[*i].size()).min().unwrap_or(0);
        let (selected, mut open): (Vec<_>, Vec<_>) =
            members.into_iter().partition(|i| claims[*i].selected_node.is_some());
        // A claim without a request needs no storage, so it comes before a claim on 0 bytes.
        open.sort_by_key(|i| (claims[*i].size(), claims[*i].request()));
        let mut prepared = Self {
            selected,
            open,
            pools: Vec::new(),
            own_volumes: 0,
            is_contended: false,
            provisioning: provisioning(cx, class, smallest),
        };
        if !prepared.open.is_empty() {
            prepared.collect_volumes(cx, class.object.name(), named, claims, with_attributes_classes);
        }
        prepared
    }

    /// Collects the volumes for claims without a selected node.
    fn collect_volumes<'a>(
        &mut self,
        cx: &Context<'a>,
        class: &str,
        named: &[Named<'a>],
        claims: &mut [DelayedClaim],
        with_attributes_classes: bool,
    ) {
        let wanted = |claim: &Typed<'a, PersistentVolumeClaim>| -> Properties<'a> {
            let attributes = claim.body.attributes_class.as_deref().filter(|_| with_attributes_classes);
            (claim.volume_mode, attributes.unwrap_or(""))
        };
        let by_key: SmallMap<&str, usize> =
            self.open.iter().map(|i| (&*named[*i].0.object.key, *i)).collect();
        let mut available: SmallMap<Properties<'a>, Vec<Typed<'a, PersistentVolume>>> = SmallMap::default();
        let mut key = KeyBuffer::default();
        for volume in cx.volumes_of_class(class).filter(|volume| !volume.object.terminating) {
            let properties = (volume.volume_mode, volume.body.attributes_class.as_deref().unwrap_or(""));
            if let Some(holder) = &volume.claim {
                let Some(i) = by_key.get(key.join(&[&holder.namespace, "/", &holder.name])) else { continue };
                let (claim, _) = named[*i];
                let suits = holds(&volume, claim.object)
                    && volume.capacity >= claim.size()
                    && properties == wanted(&claim);
                // Of several, the first by name.
                if suits && claims[*i].own.is_none() {
                    claims[*i].own = Some(Arc::clone(volume.object));
                    self.own_volumes += 1;
                }
            } else if &*volume.phase == "Available" {
                available.or_default(&properties).push(volume);
            }
        }
        let mut known: SmallMap<(Properties<'a>, Vec<&str>), usize> = SmallMap::default();
        for i in &self.open {
            let (claim, _) = named[*i];
            let properties = wanted(&claim);
            let Some(volumes) = available.get(&properties) else { continue };
            let mut modes: Vec<&str> = claim.body.access_modes.iter().map(|mode| &**mode).collect();
            modes.sort_unstable();
            modes.dedup();
            let of_kind = (properties, modes);
            let pool = known.get(&of_kind).copied().unwrap_or(self.pools.len());
            if pool == self.pools.len() {
                // The other claims of the pool follow, and are not smaller.
                self.pools.push(pool_of(volumes, &of_kind.1, claim.size()));
                known.insert(of_kind, pool);
            }
            claims[*i].pool = Some(pool);
        }
        let selects = |i: &usize| named[*i].0.selector.is_some();
        self.is_contended = self.open.len() > 1 && (self.pools.len() > 1 || self.open.iter().any(selects));
    }
}

/// The volumes of at least this size that have these access modes.
fn pool_of(volumes: &[Typed<'_, PersistentVolume>], modes: &[&str], size: i64) -> Available {
    let has =
        |volume: &PersistentVolume, mode: &str| volume.access_modes.iter().any(|known| **known == *mode);
    let suits = |volume: &&Typed<'_, PersistentVolume>| {
        volume.capacity >= size && modes.iter().all(|mode| has(volume, mode))
    };
    let mut suitable: Vec<_> = volumes.iter().filter(suits).collect();
    // Of equal volumes, the first by name.
    suitable.sort_by_key(|volume| volume.capacity);
    Available::new(suitable.into_iter().map(|volume| Arc::clone(volume.object)).collect::<Vec<_>>())
}

/// Whether the volume's `claimRef` is this claim.
pub(super) fn holds(volume: &PersistentVolume, claim: &Object) -> bool {
    volume.claim.as_ref().is_some_and(|holder| {
        &*holder.name == claim.name()
            && &*holder.namespace == claim.namespace()
            && (holder.uid.is_empty() || holder.uid == claim.uid)
    })
}

impl Provisioning {
    /// Whether the class allows volumes for a node with these labels. As upstream, a term without
    /// requirements allows nothing.
    pub(super) fn is_allowed(class: &Object, labels: &Labels) -> bool {
        let Some(class) = StorageClass::of(&class.body) else {
            return false;
        };
        let meets = |(key, values): &(Arc<str>, Box<[Arc<str>]>)| {
            labels.get(key).is_some_and(|value| values.contains(value))
        };
        class.allowed_topologies.is_empty()
            || class.allowed_topologies.iter().any(|term| !term.is_empty() && term.iter().all(meets))
    }
}

/// Whether volumes of the class can be provisioned, and the storage for one of this size or larger.
fn provisioning(cx: &Context<'_>, class: Typed<'_, StorageClass>, size: i64) -> Provisioning {
    let provisioner = &*class.provisioner;
    if provisioner.is_empty() || provisioner == NO_PROVISIONER {
        return Provisioning::Impossible;
    }
    let driver = cx.get::<CsiDriver>(&resources::CSI_DRIVER, provisioner);
    let storage = driver.is_some_and(|driver| driver.storage_capacity).then(|| {
        cx.list::<CsiStorageCapacity>(&resources::CSI_STORAGE_CAPACITY)
            .filter(|storage| &*storage.storage_class == class.object.name())
            .filter_map(|storage| Some((volume_limit(&storage)?, Arc::clone(storage.object))))
            .filter(|(limit, _)| *limit >= size)
            .collect()
    });
    Provisioning::Possible { class: Arc::clone(class.object), storage }
}

/// The maximum size of a volume there.
pub(super) fn volume_limit(storage: &CsiStorageCapacity) -> Option<i64> {
    storage.maximum_volume_size.or(storage.capacity)
}
