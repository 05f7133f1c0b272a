//! Simulates the workload controllers. Each reconciles the pods of one object with its spec, in a
//! loop.

mod budget;
mod daemonset;
mod deployment;
mod job;
mod nodes;
mod pods;
mod replicaset;
mod rollout;
mod statefulset;
mod template;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::select_all;
use rustc_hash::{FxHashMap, FxHashSet};
use serde_json::Value;
use tokio::time::Instant;

use super::feed::{Feed, Update};
use super::objects::{Identity, Objects};
use super::timers::Timers;
use crate::json::{int, list, text};
use crate::kinds::Kind;
use crate::object::StoredObject;
use crate::rest::Part;
use crate::server::Shared;
use crate::store::EventType;
use nodes::Nodes;
use pods::{Pods, Uid};

/// The maximum number of objects that a workload creates or deletes at a time.
const BURST: usize = 250;
/// The delay that batches changes: the changes of many pods are reconciled together.
const PAUSE: Duration = Duration::from_millis(10);
/// Disruption budgets consider all pods, so they are reconciled less often.
const BUDGET_PAUSE: Duration = Duration::from_millis(500);
/// The delay before a failed write is retried.
const RETRY: Duration = Duration::from_secs(1);

/// A kind with a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Managed {
    Budget,
    DaemonSet,
    Deployment,
    Job,
    ReplicaSet,
    ReplicationController,
    StatefulSet,
}

const MANAGED: [(Managed, &str, &str); 7] = [
    (Managed::Budget, "policy", "poddisruptionbudgets"),
    (Managed::DaemonSet, "apps", "daemonsets"),
    (Managed::Deployment, "apps", "deployments"),
    (Managed::Job, "batch", "jobs"),
    (Managed::ReplicaSet, "apps", "replicasets"),
    (Managed::ReplicationController, "", "replicationcontrollers"),
    (Managed::StatefulSet, "apps", "statefulsets"),
];

/// An object with a controller.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    managed: Managed,
    namespace: Box<str>,
    name: Box<str>,
}

#[derive(Clone, Copy, Debug)]
enum Source {
    Pods,
    Nodes,
    Managed(Managed),
}

/// All workload controllers.
#[derive(Debug)]
pub(super) struct Workloads {
    objects: Objects,
    kinds: FxHashMap<Managed, Arc<Kind>>,
    pod_kind: Arc<Kind>,
    feeds: Vec<(Source, Feed)>,
    pods: Pods,
    nodes: Nodes,
    /// The existing workloads, by UID.
    keys: FxHashMap<Uid, Key>,
    /// The selectors of disruption budgets, by namespace and name.
    budgets: FxHashMap<Box<str>, BTreeMap<Box<str>, Value>>,
    /// The metadata and status of their pods, and the version, by UID: parsing takes long.
    parsed_pods: FxHashMap<Uid, (u64, Value)>,
    /// The finished pods of jobs, including those that are gone.
    jobs: FxHashMap<Uid, job::Tally>,
    queue: VecDeque<Key>,
    queued: FxHashSet<Key>,
    later: Timers<Key>,
    budgets_due: FxHashSet<Key>,
}

impl Workloads {
    /// `None` if the resources are not served.
    pub(super) fn new(shared: &Arc<Shared>) -> Option<Self> {
        let objects = Objects::new(shared, "kube-controller-manager");
        let (pod_kind, node_kind) = (objects.kind("", "pods")?, objects.kind("", "nodes")?);
        let mut kinds = FxHashMap::default();
        let mut feeds = vec![
            (Source::Nodes, Feed::new(&objects, &node_kind)),
            (Source::Pods, Feed::new(&objects, &pod_kind)),
        ];
        for (managed, group, resource) in MANAGED {
            let kind = objects.kind(group, resource)?;
            feeds.push((Source::Managed(managed), Feed::new(&objects, &kind)));
            kinds.insert(managed, kind);
        }
        Some(Self {
            nodes: Nodes::new(node_kind),
            objects,
            kinds,
            pod_kind,
            feeds,
            pods: Pods::default(),
            keys: FxHashMap::default(),
            budgets: FxHashMap::default(),
            parsed_pods: FxHashMap::default(),
            jobs: FxHashMap::default(),
            queue: VecDeque::new(),
            queued: FxHashSet::default(),
            later: Timers::new(),
            budgets_due: FxHashSet::default(),
        })
    }

    pub(super) async fn run(mut self) {
        loop {
            self.read().await;
            while let Some(key) = self.later.take(Instant::now()) {
                self.enqueue(key);
            }
            if self.queue.is_empty() {
                let news = select_all(self.feeds.iter_mut().map(|(_, feed)| feed.changed().boxed()));
                tokio::select! {
                    _ = news => {}
                    () = self.later.due() => {}
                }
                continue;
            }
            // Only the keys that are queued now; later ones are handled after the pause.
            for _ in 0..self.queue.len() {
                let Some(key) = self.queue.pop_front() else { break };
                self.queued.remove(&key);
                self.reconcile(&key);
                tokio::task::yield_now().await;
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    fn enqueue(&mut self, key: Key) {
        self.budgets_due.remove(&key);
        if self.queued.insert(key.clone()) {
            self.queue.push_back(key);
        }
    }

    /// Schedules an object to be reconciled again.
    fn enqueue_at(&mut self, at: Instant, key: &Key) {
        self.later.set(at, key.clone());
    }

    fn retry(&mut self, key: &Key) {
        self.enqueue_at(Instant::now() + RETRY, key);
    }

    fn reconcile(&mut self, key: &Key) {
        let Some(object) = self.value(key) else { return };
        match key.managed {
            Managed::Budget => self.reconcile_budget(key, &object),
            Managed::DaemonSet => self.reconcile_daemon_set(key, &object),
            Managed::Deployment => self.reconcile_deployment(key, &object),
            Managed::Job => self.reconcile_job(key, &object),
            Managed::ReplicaSet | Managed::ReplicationController => {
                self.reconcile_replica_set(key, &object);
            }
            Managed::StatefulSet => self.reconcile_stateful_set(key, &object),
        }
    }

    /// Reads all changes.
    async fn read(&mut self) {
        for at in 0..self.feeds.len() {
            loop {
                let (source, feed) = &mut self.feeds[at];
                let source = *source;
                match feed.read() {
                    Update::None => break,
                    Update::All(objects) => {
                        self.forget(source);
                        for object in objects {
                            self.changed(source, &object);
                        }
                    }
                    Update::Changes(changes) => {
                        for change in changes {
                            if change.event == EventType::Deleted {
                                self.gone(source, &change.object);
                            } else {
                                self.changed(source, &change.object);
                            }
                        }
                    }
                }
                tokio::task::yield_now().await;
            }
        }
    }

    /// Drops the state of a resource that will be listed again.
    fn forget(&mut self, source: Source) {
        match source {
            Source::Pods => {
                self.pods.clear();
                self.parsed_pods.clear();
            }
            Source::Nodes => self.nodes.clear(),
            Source::Managed(Managed::Budget) => self.budgets.clear(),
            Source::Managed(managed) => self.keys.retain(|_, key| key.managed != managed),
        }
        // Removed objects may affect any of them.
        let all: Vec<Key> = self.keys.values().cloned().collect();
        for key in all {
            self.enqueue(key);
        }
    }

    fn changed(&mut self, source: Source, object: &Arc<StoredObject>) {
        match source {
            Source::Pods => {
                let concerned = self.pods.put(object, Instant::now());
                self.enqueue_all(&concerned);
                self.pod_concerns_budgets(object);
            }
            Source::Nodes => {
                if self.nodes.put(object) {
                    self.nodes_changed();
                }
            }
            Source::Managed(managed) => self.workload_changed(managed, object),
        }
    }

    fn gone(&mut self, source: Source, object: &Arc<StoredObject>) {
        match source {
            Source::Pods => {
                self.parsed_pods.remove(&object.uid);
                let concerned = self.pods.remove(object);
                self.enqueue_all(&concerned);
                self.pod_concerns_budgets(object);
            }
            Source::Nodes => {
                self.nodes.remove(&object.name);
                self.nodes_changed();
            }
            Source::Managed(managed) => {
                self.keys.remove(&object.uid);
                self.jobs.remove(&object.uid);
                if managed == Managed::Budget
                    && let Some(budgets) = self.budgets.get_mut(&object.namespace)
                {
                    budgets.remove(&object.name);
                }
                self.enqueue_all(&object.owners);
            }
        }
    }

    fn workload_changed(&mut self, managed: Managed, object: &Arc<StoredObject>) {
        let key = Key { managed, namespace: object.namespace.clone(), name: object.name.clone() };
        if managed == Managed::Budget {
            self.budget_changed(&key, object);
        } else {
            self.keys.insert(object.uid.clone(), key.clone());
        }
        // A replica set affects its deployment.
        self.enqueue_all(&object.owners);
        self.enqueue(key);
    }

    fn enqueue_all(&mut self, owners: &[Uid]) {
        for owner in owners {
            if let Some(key) = self.keys.get(owner).cloned() {
                self.enqueue(key);
            }
        }
    }

    fn nodes_changed(&mut self) {
        let is_concerned = |key: &&Key| key.managed == Managed::DaemonSet;
        let concerned: Vec<Key> = self.keys.values().filter(is_concerned).cloned().collect();
        for key in concerned {
            self.enqueue(key);
        }
    }

    fn kind(&self, managed: Managed) -> &Arc<Kind> {
        &self.kinds[&managed]
    }

    /// An object, unless it is gone or terminating, and so no longer reconciled.
    fn value(&self, key: &Key) -> Option<Value> {
        let kind = self.kind(key.managed);
        let object = self.objects.get(kind, &key.namespace, &key.name).filter(|object| !object.deleting)?;
        Some(object.value(kind))
    }

    /// Writes an object's status if it changed.
    fn set_status(&mut self, key: &Key, object: &Value, change: impl FnOnce(&mut Value)) {
        let kind = Arc::clone(self.kind(key.managed));
        if let Err(status) = self.objects.update(&kind, &Identity::of(object), Part::Status, change) {
            tracing::debug!(message = status.message, "cannot update the status");
            self.retry(key);
        }
    }

    /// Creates pods, up to the limit and until one is rejected.
    fn create_pods(&mut self, key: &Key, pods: impl IntoIterator<Item = Value>) {
        for pod in pods.into_iter().take(BURST) {
            if let Err(status) = self.objects.create(&self.pod_kind, &key.namespace, pod) {
                tracing::debug!(message = status.message, "cannot create a pod");
                self.retry(key);
                return;
            }
        }
    }

    fn delete_pod(&self, object: &StoredObject) {
        let name = Identity { namespace: &object.namespace, name: &object.name, uid: &object.uid };
        if let Err(status) = self.objects.delete(&self.pod_kind, &name, None) {
            tracing::debug!(message = status.message, "cannot delete a pod");
        }
    }
}

/// Writes the counts of a status as Go does: zeros are omitted, except for some fields.
fn set_counts(status: &mut Value, always: &[(&str, i64)], otherwise: &[(&str, i64)]) {
    let Some(fields) = status.as_object_mut() else { return };
    for (field, number) in always {
        fields.insert((*field).to_owned(), (*number).into());
    }
    for (field, number) in otherwise {
        if *number == 0 {
            fields.remove(*field);
        } else {
            fields.insert((*field).to_owned(), (*number).into());
        }
    }
}

/// A number, or a percentage of the total.
fn scaled(value: &Value, whole: i64, rounds_up: bool) -> i64 {
    if let Some(number) = value.as_i64() {
        return number;
    }
    let percent = value.as_str().and_then(|text| text.strip_suffix('%')).and_then(|text| text.parse().ok());
    let product = whole.saturating_mul(percent.unwrap_or_default());
    product / 100 + i64::from(rounds_up && product % 100 > 0)
}

/// How long a pod must be ready to count as available.
fn min_ready(spec: &Value) -> Duration {
    Duration::from_secs(
        int(spec, "minReadySeconds").and_then(|seconds| u64::try_from(seconds).ok()).unwrap_or_default(),
    )
}

/// Whether one object controls another.
fn controls(owner: &str, object: &Value) -> bool {
    list(&object["metadata"], "ownerReferences")
        .iter()
        .any(|reference| reference["controller"] == true && text(reference, "uid") == owner)
}
