//! What a plugin can read and request during a cycle.

use std::cell::RefCell;
use std::sync::Arc;

use rustc_hash::FxHashSet;

use crate::binding::ApiCall;
use crate::hash_seed::HashSeed;
use crate::node_index::NodeIndex;
use crate::node_info::NodeInfo;
use crate::nodes::{ImageState, Nodes};
use crate::objects::{
    DeviceClass, GroupForest, GroupKey, GroupKind, Members, Object, ObjectBody, Objects, PersistentVolume,
    PersistentVolumeClaim, ResourceClaim, Typed, resources,
};
use crate::pod::{PodInfo, PodKey, Uid};
use crate::small_map::SmallMap;
use crate::text::Text;
use crate::time::Now;
use crate::waiting_pods::WaitingPods;

/// A read that a plugin's answer depends on, apart from the pod and the node passed to it.
///
/// An answer can be cached until something it read changes. A miss is also a read: the object may
/// be created.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Read {
    /// One object of a kind.
    Object {
        /// The kind.
        resource: Text,
        /// The key.
        key: Arc<str>,
    },
    /// Any object of a kind.
    Kind(Text),
    /// Any object of a kind whose changes the plugin follows.
    Followed(Text),
    /// The set of nodes, or anything on any of them.
    AllNodes,
    /// The number of nodes.
    NodeCount,
    /// Which nodes have which images.
    Images,
    /// The time.
    Now,
    /// The pods that wait on Permit.
    WaitingPods,
}

/// A request to the scheduler, executed when the plugin returns.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Move pods to activeQ.
    Activate(Vec<PodKey>),
    /// Allow a pod that waits on Permit, on behalf of `plugin`.
    Allow {
        /// The waiting pod.
        pod: Uid,
        /// The plugin that makes the request.
        plugin: Text,
    },
    /// Cancel PreBind of a pod, as preemption does with a victim that is not bound yet.
    CancelBinding {
        /// The pod.
        pod: Uid,
        /// The plugin that makes the request.
        plugin: Text,
        /// The reason.
        message: Text,
    },
    /// Assume this state of an object until the API confirms it; see [`Objects::assume`].
    Assume(Arc<Object>),
    /// Drop an assumed state, unless the object has changed since; see [`Objects::restore`].
    Restore(Arc<Object>),
    /// Note that the pod's binding is about to write the allocation in this copy of a claim; see
    /// [`Objects::add_pending`].
    AddPending(Arc<Object>),
    /// The same for a pod of a group. Other pods of it may use the allocation in the same cycle;
    /// see [`Objects::add_pending_of`].
    SharePending {
        /// The copy of the claim.
        claim: Arc<Object>,
        /// The key of the group.
        group: Arc<str>,
    },
    /// End a pending allocation, for one pod that uses it.
    RemovePending(Arc<Object>),
    /// Send a request that writes an object, and [assume](Objects::assume) the answer.
    Write {
        /// The object's kind.
        resource: Text,
        /// The request.
        call: ApiCall,
        /// A request to send after it, whose answer nobody needs.
        then: Option<ApiCall>,
        /// The pod for which it is. It is not tried again before the answer: until then, it sees
        /// the object as it was.
        pod: Option<Uid>,
        /// Whether to try the pod again after its backoff if a request fails.
        retries: bool,
    },
    /// Make room for a pod or a group. Bindings of victims that are not bound yet are rejected;
    /// other victims are deleted, the last one after all others. The preemptor is not retried until
    /// all deletions are in flight.
    Preempt {
        /// Who needs room.
        preemptor: Preemptor,
        /// The node; for a group, `cluster`.
        node: Arc<str>,
        /// The victims.
        victims: Victims,
        /// The plugin that makes the request.
        plugin: Text,
        /// Whether the attempt ends before the victims are deleted. If not, no other pod is
        /// scheduled meanwhile, as upstream without `SchedulerAsyncPreemption`. The attempt of a
        /// group always ends before.
        asynchronous: bool,
    },
    /// Reject a pod that waits on Permit.
    Reject {
        /// The waiting pod.
        pod: Uid,
        /// The plugin that makes the request.
        plugin: Text,
        /// The reason.
        message: Text,
    },
}

/// What a preemption evicts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Victims {
    /// The pods, the most important first.
    pub pods: Vec<Arc<PodInfo>>,
    /// How many of them a PodDisruptionBudget protects.
    pub pdb_violations: usize,
    /// How many are groups that are preempted whole, or pods of other groups. As upstream, 0 if a
    /// pod preempts.
    pub of_groups: usize,
}

/// Who preempts.
#[derive(Clone, Debug, PartialEq)]
pub struct Preemptor {
    /// The pod, or the first pod of the group.
    pub pod: Arc<PodInfo>,
    /// The group, if it is one.
    pub group: Option<PreemptorGroup>,
}

/// A group that preempts.
#[derive(Clone, Debug, PartialEq)]
pub struct PreemptorGroup {
    /// Its key.
    pub key: GroupKey,
    /// The UID of its object.
    pub uid: Uid,
    /// The version of its object.
    pub resource_version: Arc<str>,
    /// Its other pods without a node.
    pub others: Vec<Arc<PodInfo>>,
}

impl Preemptor {
    /// The UID of the pod, or of the group's object.
    pub fn uid(&self) -> &Uid {
        self.group.as_ref().map_or(&self.pod.uid, |group| &group.uid)
    }

    /// What it is, in events and conditions of victims.
    pub fn kind(&self) -> &'static str {
        match self.group.as_ref().map(|group| group.key.kind) {
            None => "pod",
            Some(GroupKind::Pods) => "podgroup",
            Some(GroupKind::Groups) => "compositepodgroup",
        }
    }

    /// All its pods.
    pub fn pods(&self) -> impl Iterator<Item = &Arc<PodInfo>> {
        let others = self.group.iter().flat_map(|group| &group.others);
        std::iter::once(&self.pod).chain(others)
    }
}

impl From<Arc<PodInfo>> for Preemptor {
    fn from(pod: Arc<PodInfo>) -> Self {
        Self { pod, group: None }
    }
}

/// What PreEnqueue and queueing hints can read, apart from the pod.
#[derive(Clone, Copy, Debug)]
pub struct QueueContext<'a> {
    /// The objects of other kinds, after the event.
    pub objects: &'a Objects,
    /// The pods with a preemption in flight.
    pub preempting: &'a FxHashSet<Uid>,
}

/// A claim that a volume of a pod names.
#[derive(Clone, Debug)]
pub struct NamedClaim {
    claim: Option<Arc<Object>>,
    volume: Option<Arc<Object>>,
}

impl NamedClaim {
    /// The claim, if it exists.
    pub fn claim(&self) -> Option<Typed<'_, PersistentVolumeClaim>> {
        self.claim.as_ref().and_then(Typed::of)
    }

    /// The PersistentVolume that the claim names, if it exists.
    pub fn volume(&self) -> Option<Typed<'_, PersistentVolume>> {
        self.volume.as_ref().and_then(Typed::of)
    }
}

/// The view of one call into a plugin.
pub struct Context<'a> {
    nodes: &'a Nodes,
    objects: &'a Objects,
    waiting: &'a WaitingPods,
    now: Now,
    reads: RefCell<Option<SmallMap<Read, ()>>>,
    commands: RefCell<Vec<Command>>,
    /// The claims of the last pod that was asked for.
    claims: RefCell<Option<(Uid, Arc<[NamedClaim]>)>>,
}

impl<'a> Context<'a> {
    /// A view of a scheduler that holds no pods, at time 0: for calls that read neither.
    pub fn at_rest(nodes: &'a Nodes, objects: &'a Objects) -> Self {
        Self::new(nodes, objects, WaitingPods::NONE, Now::default())
    }

    /// A view of the scheduler's state that does not record reads.
    pub fn new(nodes: &'a Nodes, objects: &'a Objects, waiting: &'a WaitingPods, now: Now) -> Self {
        let (reads, commands, claims) = Default::default();
        Self { nodes, objects, waiting, now, reads, commands, claims }
    }

    /// The same, recording reads.
    pub fn tracking(mut self) -> Self {
        self.reads = RefCell::new(Some(SmallMap::default()));
        self
    }

    /// All nodes. Any use is recorded as a read of all nodes. The node that is passed to a plugin
    /// is not a read.
    pub fn nodes(&self) -> &'a Nodes {
        self.note(|| Read::AllNodes);
        self.nodes
    }

    /// The number of nodes.
    pub fn node_count(&self) -> usize {
        self.note(|| Read::NodeCount);
        self.nodes.len()
    }

    /// The size of an image and the number of nodes that have it, by normalised name.
    pub fn image(&self, name: &str) -> Option<ImageState> {
        self.note(|| Read::Images);
        self.nodes.image(name)
    }

    /// The seed of maps whose keys strangers choose. No answer depends on it, so it is no read.
    pub fn hash_seed(&self) -> &'a HashSeed {
        self.objects.hash_seed()
    }

    /// An object of another kind.
    pub fn object(&self, resource: &Text, key: &str) -> Option<&'a Arc<Object>> {
        self.note(|| Read::Object { resource: resource.clone(), key: key.into() });
        self.objects.get(resource, key)
    }

    /// One object of a kind with its own type.
    pub fn get<T: ObjectBody>(&self, resource: &Text, key: &str) -> Option<Typed<'a, T>> {
        Typed::of(self.object(resource, key)?)
    }

    /// The claim with this key, and its volume.
    pub fn named_claim(&self, key: &str) -> NamedClaim {
        let claim = self.object(&resources::PERSISTENT_VOLUME_CLAIM, key);
        let body = claim.and_then(|claim| PersistentVolumeClaim::of(&claim.body));
        let name = body.map(|body| &*body.volume_name).filter(|name| !name.is_empty());
        let volume = name.and_then(|name| self.object(&resources::PERSISTENT_VOLUME, name));
        NamedClaim { claim: claim.cloned(), volume: volume.cloned() }
    }

    /// The claims of the pod's volumes, in order, ephemeral ones included. Several plugins read
    /// them, and a pod may have tens of thousands, so they are looked up once.
    pub fn claims_of(&self, pod: &PodInfo) -> Arc<[NamedClaim]> {
        if !pod.spec.volumes.iter().any(|volume| volume.source.is_claim()) {
            return Arc::default();
        }
        // Reads that are recorded have to happen.
        let is_tracked = self.reads.borrow().is_some();
        if let Some((uid, claims)) = &*self.claims.borrow()
            && *uid == pod.uid
            && !is_tracked
        {
            return Arc::clone(claims);
        }
        let mut key = String::new();
        let names = pod.spec.volumes.iter().filter_map(|volume| volume.claim_name(&pod.name));
        let claims: Arc<[NamedClaim]> = names
            .map(|name| {
                key.clear();
                key.extend([&*pod.namespace, "/", &name]);
                self.named_claim(&key)
            })
            .collect();
        self.claims.replace(Some((pod.uid.clone(), Arc::clone(&claims))));
        claims
    }

    /// Every object of a kind, ordered by key.
    pub fn objects(&self, resource: &Text) -> impl Iterator<Item = &'a Arc<Object>> {
        self.note(|| Read::Kind(resource.clone()));
        self.objects.list(resource)
    }

    /// Every object of a kind with its own type, ordered by key.
    pub fn list<T: ObjectBody>(&self, resource: &Text) -> impl Iterator<Item = Typed<'a, T>> {
        self.objects(resource).filter_map(Typed::of)
    }

    /// The same within a namespace.
    pub fn list_in<T: ObjectBody>(
        &self,
        resource: &Text,
        namespace: &str,
    ) -> impl Iterator<Item = Typed<'a, T>> {
        self.note(|| Read::Kind(resource.clone()));
        self.objects.list_in(resource, namespace).filter_map(Typed::of)
    }

    /// The PersistentVolumes of a storage class, ordered by name.
    pub fn volumes_of_class(&self, class: &str) -> impl Iterator<Item = Typed<'a, PersistentVolume>> {
        self.note(|| Read::Kind(resources::PERSISTENT_VOLUME));
        self.objects.volumes_of_class(class).filter_map(Typed::of)
    }

    /// Every object of a kind with its own type that belongs to a node, ordered by key.
    pub fn list_on<T: ObjectBody>(&self, resource: &Text, node: &str) -> impl Iterator<Item = Typed<'a, T>> {
        self.note(|| Read::Kind(resource.clone()));
        self.objects.list_on(resource, node).filter_map(Typed::of)
    }

    /// The pending allocation of a claim; see [`Objects::add_pending`].
    pub fn pending_allocation(&self, claim: &Object) -> Option<&'a Arc<Object>> {
        self.note(|| Read::Object { resource: claim.resource.clone(), key: Arc::clone(&claim.key) });
        self.objects.pending(&claim.uid)
    }

    /// The same if the pods of a group, by its key, may share it; see [`Objects::add_pending_of`].
    pub fn shared_allocation(&self, claim: &Object, group: &str) -> Option<&'a Arc<Object>> {
        self.note(|| Read::Object { resource: claim.resource.clone(), key: Arc::clone(&claim.key) });
        self.objects.shared_pending(&claim.uid, group)
    }

    /// All objects of these kinds, and their pending allocations, for a plugin that follows their
    /// [changes](Objects::changes_since). An answer stays until
    /// [`objects_changed`](crate::caching::IncrementalPlugin::objects_changed) says otherwise.
    pub fn follow(&self, kinds: &[Text]) -> &'a Objects {
        for kind in kinds {
            self.note(|| Read::Followed(kind.clone()));
        }
        self.objects
    }

    /// The ResourceClaims that an owner controls, by its UID, ordered by key.
    pub fn claims_of_owner(&self, uid: &str) -> impl Iterator<Item = Typed<'a, ResourceClaim>> {
        self.note(|| Read::Kind(resources::RESOURCE_CLAIM));
        self.objects.claims_of_owner(uid).filter_map(Typed::of)
    }

    /// The DeviceClass whose devices provide an extended resource; see
    /// [`Objects::class_of_resource`].
    pub fn class_of_resource(&self, name: &str) -> Option<Typed<'a, DeviceClass>> {
        self.note(|| Read::Kind(resources::DEVICE_CLASS));
        self.objects.class_of_resource(name)
    }

    /// The time of the call.
    pub fn now(&self) -> Now {
        self.note(|| Read::Now);
        self.now
    }

    /// The pods of a group, by its key. Not a read that is recorded: nothing that is kept depends
    /// on it.
    pub fn members_of(&self, group: &str) -> Option<&'a Members> {
        self.objects.members().get(group)
    }

    /// The groups, as trees. Not a read that is recorded, either.
    pub fn forest(&self) -> &'a GroupForest {
        self.objects.forest()
    }

    /// The pods that wait on Permit, the longest wait first.
    pub fn waiting_pods(&self) -> &'a WaitingPods {
        self.note(|| Read::WaitingPods);
        self.waiting
    }

    /// Requests a command, executed after this call.
    pub fn command(&self, command: Command) {
        self.commands.borrow_mut().push(command);
    }

    /// Calls a plugin without recording its reads: nobody keeps its answer.
    pub fn untracked<T>(&self, call: impl FnOnce() -> T) -> T {
        let reads = self.reads.take();
        let answer = call();
        self.reads.replace(reads);
        answer
    }

    /// The reads since the last call, without repetitions.
    pub fn take_reads(&self) -> Vec<Read> {
        match &mut *self.reads.borrow_mut() {
            Some(reads) if !reads.is_empty() => std::mem::take(reads).into_keys(),
            _ => Vec::new(),
        }
    }

    /// Whether there are commands since the last call of [`take_commands`](Self::take_commands).
    pub fn has_commands(&self) -> bool {
        !self.commands.borrow().is_empty()
    }

    /// The commands since the last call.
    pub fn take_commands(&self) -> Vec<Command> {
        std::mem::take(&mut self.commands.borrow_mut())
    }

    /// The node at an index that the scheduler passed to the plugin; not recorded as a read.
    pub fn node(&self, index: NodeIndex) -> &'a NodeInfo {
        self.nodes.at(index)
    }

    fn note(&self, read: impl FnOnce() -> Read) {
        if let Some(reads) = &mut *self.reads.borrow_mut() {
            reads.insert(read(), ());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::Body;
    use crate::testing::{object, pod};
    use crate::volume::{Volume, VolumeSource};

    #[test]
    fn claims_are_looked_up_once_unless_reads_are_recorded() {
        let claim = |name: &str| VolumeSource::Claim(name.into());
        let volume = |source| Volume { name: "v".into(), source };
        let named = |name: &str, sources: Vec<VolumeSource>| {
            let volumes: Vec<Volume> = sources.into_iter().map(volume).collect();
            pod(name).with_spec(|spec| spec.volumes = volumes.into_iter().collect()).build()
        };
        let mut objects = Objects::default();
        let bound = PersistentVolumeClaim { volume_name: "disk".into(), ..Default::default() };
        let resource = resources::PERSISTENT_VOLUME_CLAIM;
        objects.insert(object(&resource, "default/a", Body::PersistentVolumeClaim(bound)).into());
        let resource = resources::PERSISTENT_VOLUME;
        objects.insert(object(&resource, "disk", Body::PersistentVolume(PersistentVolume::default())).into());
        let nodes = Nodes::default();
        let cx = Context::at_rest(&nodes, &objects);
        let pod = named("p", vec![claim("a"), VolumeSource::AzureFile, VolumeSource::Ephemeral]);
        let [first, second] = [cx.claims_of(&pod), cx.claims_of(&pod)];
        assert!(Arc::ptr_eq(&first, &second));
        let found: Vec<_> =
            first.iter().map(|named| (named.claim().is_some(), named.volume().is_some())).collect();
        assert_eq!(found, [(true, true), (false, false)]);
        let other = cx.claims_of(&named("q", vec![claim("missing")]));
        assert!(other.iter().all(|named| named.claim().is_none()) && other.len() == 1);

        let cx = cx.tracking();
        assert_eq!([cx.claims_of(&pod).len(), cx.take_reads().len()], [2, 3]);
        assert_eq!([cx.claims_of(&pod).len(), cx.take_reads().len()], [2, 3]);
    }

    #[test]
    fn reads_are_recorded_once_including_misses() {
        let (nodes, objects) = (Nodes::default(), Objects::default());
        let cx = Context::at_rest(&nodes, &objects).tracking();
        let class = Text::from("storage.k8s.io/StorageClass");
        assert!(cx.object(&class, "fast").is_none());
        assert!(cx.object(&class, "fast").is_none());
        assert_eq!(cx.node_count(), 0);
        assert_eq!(cx.take_reads(), [Read::Object { resource: class, key: "fast".into() }, Read::NodeCount]);
        assert!(cx.take_reads().is_empty());
        assert_eq!(cx.untracked(|| cx.node_count()), 0);
        assert!(cx.take_reads().is_empty());
        cx.node_count();
        assert_eq!(cx.take_reads(), [Read::NodeCount], "tracking goes on");
    }
}
