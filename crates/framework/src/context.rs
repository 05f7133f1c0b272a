//! What a plugin can read and request during a cycle.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashSet;

use crate::node_index::NodeIndex;
use crate::node_info::NodeInfo;
use crate::nodes::{ImageState, Nodes};
use crate::objects::{Object, ObjectBody, Objects, PersistentVolume, Typed, resources};
use crate::pod::{PodInfo, PodKey, Uid};
use crate::small_map::SmallMap;
use crate::text::Text;
use crate::time::Now;

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
    /// Make room for a pod. Bindings of victims that are not bound yet are rejected; other victims
    /// are deleted, the last one after all others. The pod is not retried until all deletions are
    /// in flight.
    Preempt {
        /// The pod.
        preemptor: Arc<PodInfo>,
        /// The node.
        node: Arc<str>,
        /// The victims, the most important first.
        victims: Vec<Arc<PodInfo>>,
        /// The plugin that makes the request.
        plugin: Text,
        /// Whether the pod's attempt ends before the victims are deleted. If not, no other pod is
        /// scheduled meanwhile, as upstream without `SchedulerAsyncPreemption`.
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

/// A pod that waits on Permit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingPod {
    /// Its UID.
    pub uid: Uid,
    /// Its name.
    pub key: PodKey,
    /// The node reserved for it.
    pub node_name: Arc<str>,
    /// The plugins that still hold it, each with its timeout, counted from the start of the wait.
    pub pending: Vec<(Text, Duration)>,
}

/// What PreEnqueue and queueing hints can read, apart from the pod.
#[derive(Clone, Copy, Debug)]
pub struct QueueContext<'a> {
    /// The objects of other kinds, after the event.
    pub objects: &'a Objects,
    /// The pods with a preemption in flight.
    pub preempting: &'a FxHashSet<Uid>,
}

/// The view of one call into a plugin.
pub struct Context<'a> {
    nodes: &'a Nodes,
    objects: &'a Objects,
    waiting: &'a [WaitingPod],
    now: Now,
    reads: RefCell<Option<SmallMap<Read, ()>>>,
    commands: RefCell<Vec<Command>>,
}

impl<'a> Context<'a> {
    /// A view of the scheduler's state that does not record reads.
    pub fn new(nodes: &'a Nodes, objects: &'a Objects, waiting: &'a [WaitingPod], now: Now) -> Self {
        Self { nodes, objects, waiting, now, reads: RefCell::new(None), commands: RefCell::default() }
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

    /// An object of another kind.
    pub fn object(&self, resource: &Text, key: &str) -> Option<&'a Arc<Object>> {
        self.note(|| Read::Object { resource: resource.clone(), key: key.into() });
        self.objects.get(resource, key)
    }

    /// One object of a kind with its own type.
    pub fn get<T: ObjectBody>(&self, resource: &Text, key: &str) -> Option<Typed<'a, T>> {
        Typed::of(self.object(resource, key)?)
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

    /// The time of the call.
    pub fn now(&self) -> Now {
        self.note(|| Read::Now);
        self.now
    }

    /// The pods that wait on Permit, the longest wait first.
    pub fn waiting_pods(&self) -> &'a [WaitingPod] {
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

    #[test]
    fn reads_are_recorded_once_including_misses() {
        let (nodes, objects) = (Nodes::default(), Objects::default());
        let cx = Context::new(&nodes, &objects, &[], Now::default()).tracking();
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
