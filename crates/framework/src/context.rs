//! What a plugin may read and ask for during a cycle.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashSet;

use crate::node_index::NodeIndex;
use crate::node_info::NodeInfo;
use crate::nodes::{ImageState, Nodes};
use crate::objects::{Object, ObjectBody, Objects, PersistentVolume, Typed, resources};
use crate::pod::{PodInfo, PodKey, Uid};
use crate::text::Text;
use crate::time::Now;

/// Something that a plugin's answer depended on, beside the pod and the node it was asked about.
///
/// An answer may be kept until something it read changes. A miss is a read too: the object may appear.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
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
    /// How widely images are spread.
    Images,
    /// The time.
    Now,
    /// The pods that wait on Permit.
    WaitingPods,
}

/// Something that a plugin asks the scheduler to do once it has returned.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Move pods to the active queue.
    Activate(Vec<PodKey>),
    /// Let a pod that waits on Permit go, as far as `plugin` is concerned.
    Allow {
        /// The waiting pod.
        pod: Uid,
        /// In whose name.
        plugin: Text,
    },
    /// Make PreBind of a pod give up, as preemption does with a victim that is not on its node yet.
    CancelBinding {
        /// The pod.
        pod: Uid,
        /// In whose name.
        plugin: Text,
        /// Why.
        message: Text,
    },
    /// Take an object to be like this until the API says so; see [`Objects::assume`].
    Assume(Arc<Object>),
    /// Take an object to be what the API says again, unless it has changed since this was assumed; see
    /// [`Objects::restore`].
    Restore(Arc<Object>),
    /// Make room for a pod: victims that are on their way to the node are turned back, the others are deleted, the last
    /// one after all others, and until that is under way the pod is not tried again.
    Preempt {
        /// The pod.
        preemptor: Arc<PodInfo>,
        /// The node.
        node: Arc<str>,
        /// The pods that go, the most important first.
        victims: Vec<Arc<PodInfo>>,
        /// In whose name.
        plugin: Text,
        /// Whether the pod's attempt ends before that is done. If not, no pod is tried meanwhile, as upstream has it
        /// without `SchedulerAsyncPreemption`.
        asynchronous: bool,
    },
    /// Turn a pod that waits on Permit down.
    Reject {
        /// The waiting pod.
        pod: Uid,
        /// In whose name.
        plugin: Text,
        /// Why.
        message: Text,
    },
}

/// A pod that waits on Permit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingPod {
    /// Its identity.
    pub uid: Uid,
    /// Its name.
    pub key: PodKey,
    /// The node reserved for it.
    pub node_name: Arc<str>,
    /// The plugins that still hold it, and how long at most from when it began to wait.
    pub pending: Vec<(Text, Duration)>,
}

/// What PreEnqueue and queueing hints may read beside the pod.
#[derive(Clone, Copy, Debug)]
pub struct QueueContext<'a> {
    /// The objects of other kinds, as they are after the event.
    pub objects: &'a Objects,
    /// The pods for which preemption makes room at the moment.
    pub preempting: &'a FxHashSet<Uid>,
}

/// The view of one call into a plugin.
pub struct Context<'a> {
    nodes: &'a Nodes,
    objects: &'a Objects,
    waiting: &'a [WaitingPod],
    now: Now,
    reads: RefCell<Option<Vec<Read>>>,
    commands: RefCell<Vec<Command>>,
}

impl<'a> Context<'a> {
    /// A view of the scheduler's state that does not note what is read.
    pub fn new(nodes: &'a Nodes, objects: &'a Objects, waiting: &'a [WaitingPod], now: Now) -> Self {
        Self { nodes, objects, waiting, now, reads: RefCell::new(None), commands: RefCell::default() }
    }

    /// The same, noting what is read.
    pub fn tracking(mut self) -> Self {
        self.reads = RefCell::new(Some(Vec::new()));
        self
    }

    /// Every node. Reading one node through this depends on all of them; the node that a plugin is asked about is
    /// handed to it and is no such read.
    pub fn nodes(&self) -> &'a Nodes {
        self.note(|| Read::AllNodes);
        self.nodes
    }

    /// The number of nodes.
    pub fn node_count(&self) -> usize {
        self.note(|| Read::NodeCount);
        self.nodes.len()
    }

    /// How widely an image is spread, by normalised name.
    pub fn image(&self, name: &str) -> Option<ImageState> {
        self.note(|| Read::Images);
        self.nodes.image(name)
    }

    /// An object of another kind.
    pub fn object(&self, resource: &Text, key: &str) -> Option<&'a Arc<Object>> {
        self.note(|| Read::Object { resource: resource.clone(), key: key.into() });
        self.objects.get(resource, key)
    }

    /// One object of a kind with a type of its own.
    pub fn get<T: ObjectBody>(&self, resource: &Text, key: &str) -> Option<Typed<'a, T>> {
        Typed::of(self.object(resource, key)?)
    }

    /// Every object of a kind, ordered by key.
    pub fn objects(&self, resource: &Text) -> impl Iterator<Item = &'a Arc<Object>> {
        self.note(|| Read::Kind(resource.clone()));
        self.objects.list(resource)
    }

    /// Every object of a kind with a type of its own, ordered by key.
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

    /// Every object of a kind with a type of its own that belongs to a node, ordered by key.
    pub fn list_on<T: ObjectBody>(&self, resource: &Text, node: &str) -> impl Iterator<Item = Typed<'a, T>> {
        self.note(|| Read::Kind(resource.clone()));
        self.objects.list_on(resource, node).filter_map(Typed::of)
    }

    /// When the call is made.
    pub fn now(&self) -> Now {
        self.note(|| Read::Now);
        self.now
    }

    /// The pods that wait on Permit, in the order they began to.
    pub fn waiting_pods(&self) -> &'a [WaitingPod] {
        self.note(|| Read::WaitingPods);
        self.waiting
    }

    /// Asks for something to be done after this call.
    pub fn command(&self, command: Command) {
        self.commands.borrow_mut().push(command);
    }

    /// What was read since the last call of this, without repetitions.
    pub fn take_reads(&self) -> Vec<Read> {
        self.reads.borrow_mut().as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Whether something was asked for since the last call of [`take_commands`](Self::take_commands).
    pub fn has_commands(&self) -> bool {
        !self.commands.borrow().is_empty()
    }

    /// What was asked for since the last call of this.
    pub fn take_commands(&self) -> Vec<Command> {
        std::mem::take(&mut self.commands.borrow_mut())
    }

    /// The node at an index that the scheduler handed out; not noted as a read.
    pub fn node(&self, index: NodeIndex) -> &'a NodeInfo {
        self.nodes.at(index)
    }

    fn note(&self, read: impl FnOnce() -> Read) {
        if let Some(reads) = &mut *self.reads.borrow_mut() {
            let read = read();
            if !reads.contains(&read) {
                reads.push(read);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_read_is_noted_once_misses_included() {
        let (nodes, objects) = (Nodes::default(), Objects::default());
        let cx = Context::new(&nodes, &objects, &[], Now::default()).tracking();
        let class = Text::from("storage.k8s.io/StorageClass");
        assert!(cx.object(&class, "fast").is_none());
        assert!(cx.object(&class, "fast").is_none());
        assert_eq!(cx.node_count(), 0);
        assert_eq!(cx.take_reads(), [Read::Object { resource: class, key: "fast".into() }, Read::NodeCount]);
        assert!(cx.take_reads().is_empty());
    }
}
