//! Simulates the kubelets of all nodes, and the node lifecycle controller.

mod addresses;
mod admission;
mod devices;
pub(super) mod heartbeat;
mod node_status;
mod nodes;
mod pod_status;
mod pods;
mod script;

use std::net::Ipv4Addr;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};
use tokio::time::Instant;

use super::Options;
use super::feed::{Feed, Update};
use super::objects::Objects;
use super::timers::Timers;
use crate::kinds::Kind;
use crate::object::StoredObject;
use crate::server::Shared;
use crate::store::EventType;
use addresses::{Addresses, Range};
use admission::{Load, Room};
use script::Script;

pub use script::{SIMULATE, SIMULATE_AFTER, SIMULATE_EXIT_CODE};

/// The number of actions before yielding to other tasks.
const AT_ONCE: usize = 64;

type Uid = Arc<str>;
type NodeName = Arc<str>;

/// The kubelets of all nodes.
#[derive(Debug)]
pub(super) struct Kubelets {
    objects: Objects,
    pod_kind: Arc<Kind>,
    node_kind: Arc<Kind>,
    /// `None` if claims are not served.
    claim_kind: Option<Arc<Kind>>,
    pod_feed: Feed,
    node_feed: Feed,
    options: Options,
    pods: FxHashMap<Uid, Pod>,
    nodes: FxHashMap<NodeName, Node>,
    addresses: Addresses,
    timers: Timers<Action>,
}

/// A pod that is bound to a node.
#[derive(Debug)]
struct Pod {
    namespace: Box<str>,
    name: Box<str>,
    node: NodeName,
    stage: Stage,
    script: Script,
    /// Whether the pod names claims.
    has_claims: bool,
    /// The version of the simulation's last write, whose change is skipped.
    written: u64,
    /// Whether its end is scheduled.
    stops: bool,
    /// Its load on the node, once it is admitted.
    load: Option<Load>,
    address: Option<Ipv4Addr>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Waits for its node, which is missing or not ready.
    Waiting,
    /// Admitted, and about to run.
    Starting,
    Running,
    /// Crashed, and about to restart.
    Crashed,
    /// Completed or failed.
    Over,
}

/// A node, or the name of a missing node that pods are bound to.
#[derive(Debug, Default)]
struct Node {
    /// The UID; `None` while no node of this name exists.
    uid: Option<Box<str>>,
    is_ready: bool,
    room: Room,
    address: String,
    range: Option<Range>,
    pods: FxHashSet<Uid>,
}

/// A scheduled action.
#[derive(Debug)]
enum Action {
    /// Runs a pod that is starting or has crashed.
    Run(Uid),
    /// Applies the script of a running pod, unless it has changed.
    FollowScript(Uid, Script),
    /// Ends a pod that has exceeded its active deadline.
    Deadline(Uid),
    /// Ends a pod that is being deleted.
    Stop(Uid),
    /// Deletes the pods of a removed node.
    DeleteOrphans(NodeName),
}

impl Kubelets {
    /// `None` if pods or nodes are not served.
    pub(super) fn new(shared: &Arc<Shared>, options: &Options) -> Option<Self> {
        let objects = Objects::new(shared, "kubelet");
        let (pod_kind, node_kind) = (objects.kind("", "pods")?, objects.kind("", "nodes")?);
        Some(Self {
            pod_feed: Feed::new(&objects, &pod_kind),
            node_feed: Feed::new(&objects, &node_kind),
            claim_kind: objects.kind("resource.k8s.io", "resourceclaims"),
            objects,
            pod_kind,
            node_kind,
            options: options.clone(),
            pods: FxHashMap::default(),
            nodes: FxHashMap::default(),
            addresses: Addresses::default(),
            timers: Timers::new(),
        })
    }

    pub(super) async fn run(mut self) {
        loop {
            if self.read_nodes() | self.read_pods() | self.act() {
                tokio::task::yield_now().await;
                continue;
            }
            tokio::select! {
                () = self.node_feed.changed() => {}
                () = self.pod_feed.changed() => {}
                () = self.timers.due() => {}
            }
        }
    }

    /// Reads the changes of nodes. Returns whether there were any.
    fn read_nodes(&mut self) -> bool {
        match self.node_feed.read() {
            Update::None => return false,
            Update::All(objects) => {
                let there: FxHashSet<&str> = objects.iter().map(|node| &*node.name).collect();
                let known = self.nodes.iter().filter(|(_, node)| node.uid.is_some());
                let gone =
                    known.filter(|(name, _)| !there.contains(&***name)).map(|(name, _)| Arc::clone(name));
                for name in gone.collect::<Vec<_>>() {
                    self.node_gone(&name);
                }
                for node in objects {
                    self.node_changed(&node);
                }
            }
            Update::Changes(changes) => {
                for change in changes {
                    if change.event == EventType::Deleted {
                        self.node_gone(&change.object.name);
                    } else {
                        self.node_changed(&change.object);
                    }
                }
            }
        }
        true
    }

    /// Reads the changes of pods. Returns whether there were any.
    fn read_pods(&mut self) -> bool {
        match self.pod_feed.read() {
            Update::None => return false,
            Update::All(objects) => {
                let there: FxHashSet<&str> = objects.iter().map(|pod| &*pod.uid).collect();
                let gone = self.pods.keys().filter(|uid| !there.contains(&***uid)).map(Arc::clone);
                for uid in gone.collect::<Vec<_>>() {
                    self.pod_gone(&uid);
                }
                for pod in objects {
                    self.pod_changed(&pod);
                }
            }
            Update::Changes(changes) => {
                for change in changes {
                    if change.event == EventType::Deleted {
                        self.pod_gone(&change.object.uid);
                    } else {
                        self.pod_changed(&change.object);
                    }
                }
            }
        }
        true
    }

    /// Takes some of the actions that are due. Returns whether there were any.
    fn act(&mut self) -> bool {
        let now = Instant::now();
        for count in 0..AT_ONCE {
            match self.timers.take(now) {
                Some(Action::Run(uid)) => self.start(&uid),
                Some(Action::FollowScript(uid, script)) => self.follow_script(&uid, script),
                Some(Action::Deadline(uid)) => self.deadline(&uid),
                Some(Action::Stop(uid)) => self.stop(&uid),
                Some(Action::DeleteOrphans(node)) => self.delete_orphans(&node),
                None => return count > 0,
            }
        }
        true
    }

    /// Logs a failed write: a concurrent write came first, or the object was rejected.
    fn log(result: crate::status::Result<Arc<StoredObject>>) -> Option<Arc<StoredObject>> {
        result.inspect_err(|status| tracing::debug!(message = status.message, "write failed")).ok()
    }
}
