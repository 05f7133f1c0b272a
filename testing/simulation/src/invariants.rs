//! What must hold all the time, as seen at the server: the checker looks at each write of a
//! scheduler before and after it takes effect.

mod devices;
mod gangs;
mod mirror;
#[cfg(test)]
mod tests;
mod waits;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::Value;
use supercargo_apiserver::ApiServer;
use supercargo_framework::quantity;
use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::api::{ask, get, text};
use crate::trace::Trace;

pub use devices::claim_of;
pub use gangs::{OnNodes, is_incomplete};
pub use waits::Waiting;

/// How long a lease lasts: the default of the configuration.
pub const LEASE: Duration = Duration::from_secs(15);
/// How long a write may stay on its way: until a dead connection ends, and while the network is
/// slow.
const LATEST: Duration = Duration::from_secs(30);
/// How long a scheduler may act on what a node or etcd was before a change: watches lag by up to
/// 20 s, and dead connections are noticed after 20 s more.
const FORGIVEN: Duration = Duration::from_mins(2);

/// Who sent a request, and when.
#[derive(Clone, Debug)]
pub struct Sender {
    /// The machine.
    pub machine: usize,
    /// The process: the name of its host.
    pub process: Arc<str>,
    /// The true time of sending.
    pub sent: Duration,
}

/// Checks the writes of schedulers against what it saw before.
pub struct InvariantChecker {
    /// The trace of the run.
    pub trace: Trace,
    zero: Instant,
    /// The runtime whose time is the true one.
    runtime: Handle,
    /// The holders of the lease since the given times.
    holders: Vec<(Duration, Option<Arc<str>>)>,
    /// When processes renewed the lease.
    renewals: BTreeMap<Arc<str>, Vec<Duration>>,
    /// When a process acquired the lease.
    acquired: BTreeMap<Arc<str>, Duration>,
    /// By whom and when pods were bound, by UID.
    bound: BTreeMap<String, (Arc<str>, Duration)>,
    /// By whom and when claims got their devices, by UID.
    allocated: BTreeMap<String, (Arc<str>, Duration)>,
    devices: devices::Devices,
    gangs: gangs::Gangs,
    waits: waits::Waits,
    /// By whom and when the statuses of claims were last written, by path.
    claim_writes: BTreeMap<String, (Arc<str>, Duration)>,
    /// When rules that taint devices were added, by name.
    taint_rules: BTreeMap<String, Duration>,
    /// When nodes last changed.
    touched: BTreeMap<String, Duration>,
    /// Until when nothing is checked, because etcd was restored.
    forgiven_until: Duration,
    /// Until when schedulers may not know what others did shortly before.
    views_lag_until: Duration,
    /// The violations.
    pub failures: Vec<String>,
}

/// A write as seen before it takes effect.
pub struct Seen {
    from: Sender,
    method: Method,
    path: String,
    kind: RequestKind,
    /// Of a claim: whether it had devices.
    was_allocated: bool,
    /// Of a PodGroup: whether its condition said that it had been scheduled.
    was_scheduled: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum RequestKind {
    Read,
    Lease,
    Event,
    Binding,
    /// The status of a claim for devices.
    Claim,
    /// Any other write, which only a leader may send.
    Write,
}

impl RequestKind {
    fn of(request: &Request<Bytes>) -> Self {
        let path = request.uri().path();
        match () {
            () if request.method() == Method::GET => Self::Read,
            () if path.contains("/leases") => Self::Lease,
            () if path.contains("/events") => Self::Event,
            () if path.ends_with("/binding") => Self::Binding,
            () if devices::claim_of_status(path).is_some() => Self::Claim,
            () => Self::Write,
        }
    }
}

impl InvariantChecker {
    /// A checker of a run that begins now. Call it in the runtime of the server.
    pub fn new(trace: Trace) -> Arc<Mutex<Self>> {
        Arc::new(Mutex::new(Self {
            trace,
            zero: Instant::now(),
            runtime: Handle::current(),
            holders: vec![(Duration::ZERO, None)],
            renewals: BTreeMap::new(),
            acquired: BTreeMap::new(),
            bound: BTreeMap::new(),
            allocated: BTreeMap::new(),
            devices: devices::Devices::default(),
            gangs: gangs::Gangs::default(),
            waits: waits::Waits::default(),
            claim_writes: BTreeMap::new(),
            taint_rules: BTreeMap::new(),
            touched: BTreeMap::new(),
            forgiven_until: Duration::ZERO,
            views_lag_until: Duration::ZERO,
            failures: Vec::new(),
        }))
    }

    /// The true time.
    pub fn now(&self) -> Duration {
        let _entered = self.runtime.enter();
        self.zero.elapsed()
    }

    /// Adds a line to the trace.
    pub fn note(&mut self, what: fmt::Arguments<'_>) {
        let now = self.now();
        self.trace.add(now, what);
    }

    /// Notes that something did not hold.
    pub fn fail(&mut self, what: String) {
        self.note(format_args!("FAILED {what}"));
        self.failures.push(what);
    }

    /// A node has changed, so that a scheduler may act on what it was.
    pub fn touch(&mut self, node: &str) {
        self.touched.insert(node.to_owned(), self.now());
    }

    /// Until this time, watches may be late or interrupted.
    pub fn views_lag(&mut self, until: Duration) {
        self.views_lag_until = self.views_lag_until.max(until + FORGIVEN);
    }

    /// etcd was restored: pods and the lease are as they were before.
    pub fn restored(&mut self) {
        let now = self.now();
        self.bound.clear();
        self.allocated.clear();
        self.devices = devices::Devices::default();
        self.gangs.restored();
        self.waits = waits::Waits::default();
        self.holders.push((now, None));
        self.forgiven_until = now + FORGIVEN;
    }

    /// Who holds the lease.
    pub fn leader(&self) -> Option<&Arc<str>> {
        self.holders.last().and_then(|(_, holder)| holder.as_ref())
    }

    /// When a pod was bound.
    pub fn bound_at(&self, uid: &str) -> Option<Duration> {
        self.bound.get(uid).map(|(_, at)| *at)
    }

    /// Whether the process that bound a pod still holds the lease.
    pub fn is_bound_by_leader(&self, uid: &str) -> bool {
        self.bound.get(uid).is_some_and(|(by, _)| self.leader() == Some(by))
    }

    /// Sees a request that is about to take effect.
    pub async fn before(
        checker: &Mutex<Self>,
        server: &ApiServer,
        from: &Sender,
        request: &Request<Bytes>,
    ) -> Seen {
        let kind = RequestKind::of(request);
        let path = request.uri().path().to_owned();
        if matches!(kind, RequestKind::Binding | RequestKind::Claim | RequestKind::Write) {
            checker.lock().check_lease(from, request.method(), &path);
        }
        let was_allocated = kind == RequestKind::Claim && Self::is_allocated(server, &path).await;
        if kind == RequestKind::Binding {
            let pod = pod_of_binding(server, &path).await;
            let mut checker = checker.lock();
            let is_again = checker.bound.get(&pod.metadata.uid).is_some_and(|(by, _)| *by == from.process);
            if is_again && !checker.is_forgiving() {
                checker.fail(format!("{}: {path} sent again, although it had taken effect", from.process));
            }
        }
        if kind == RequestKind::Write && request.method() == Method::DELETE {
            let pod = ask(server, Method::GET, &path, None).await.1;
            Self::lose_member(checker, server, &pod).await;
        }
        let was_scheduled = Self::is_scheduled(server, &path).await;
        Seen {
            from: from.clone(),
            method: request.method().clone(),
            path,
            kind,
            was_allocated,
            was_scheduled,
        }
    }

    /// Sees the outcome of a request.
    pub async fn after(checker: &Mutex<Self>, server: &ApiServer, seen: Seen, status: StatusCode) {
        let Seen { from, method, path, kind, was_allocated, was_scheduled } = seen;
        {
            let mut checker = checker.lock();
            checker.note(format_args!("{} {method} {path} {}", from.process, status.as_u16()));
            let what = match kind {
                RequestKind::Read => "reads",
                RequestKind::Event => "events",
                RequestKind::Lease => "lease writes",
                RequestKind::Binding => "bindings",
                RequestKind::Claim => "writes of claims",
                RequestKind::Write => "other writes",
            };
            checker.trace.count(what, 1);
        }
        if !status.is_success() {
            return;
        }
        if kind == RequestKind::Claim {
            checker.lock().see_claim_write(&from, &path);
        }
        match kind {
            RequestKind::Lease => {
                let lease = ask(server, Method::GET, LEASE_PATH, None).await.1;
                checker.lock().see_lease(&from, text(&lease, "/spec/holderIdentity"));
            }
            RequestKind::Binding => {
                let pod = pod_of_binding(server, &path).await;
                checker.lock().see_binding(&from, &pod);
                Self::check_room(checker, server, &from, &pod.spec.node_name).await;
                Self::check_reservations(checker, server, &from, &pod).await;
                Self::check_extended_resources(checker, server, &from, &pod).await;
                Self::see_member(checker, server, &from, &pod).await;
            }
            RequestKind::Claim => {
                let new = devices::claim_of_status(&path).filter(|_| !was_allocated);
                checker.lock().add_up_claims(server, new.map(|claim| (&from, claim)));
            }
            RequestKind::Write => Self::check_condition(checker, server, &from, &path, was_scheduled).await,
            _ => {}
        }
    }

    /// Whether nothing is checked, because etcd was restored.
    pub fn is_forgiving(&self) -> bool {
        self.now() < self.forgiven_until
    }

    /// No write by a process whose lease has ended, by true time. What was sent in time may arrive
    /// late, and is counted.
    fn check_lease(&mut self, from: &Sender, method: &Method, path: &str) {
        if from.sent < self.forgiven_until {
            return;
        }
        self.trace.count("checks of the lease", 1);
        let now = self.now();
        let at_sending = self.holders.iter().rev().find(|(since, _)| *since <= from.sent);
        let led = at_sending.is_some_and(|(_, holder)| holder.as_ref() == Some(&from.process));
        let end = self.lease_end(from);
        if !led || end.is_none_or(|end| from.sent > end) {
            let holder = at_sending.and_then(|(_, holder)| holder.clone());
            self.fail(format!(
                "{}: {method} {path} sent at {:?}, when {holder:?} led; its lease lasted until {end:?}",
                from.process, from.sent
            ));
        }
        let ended = self.ended(&from.process);
        let late = ended.map_or(Duration::ZERO, |ended| now.saturating_sub(ended));
        if !late.is_zero() {
            self.trace.count("writes that arrived after the lease", 1);
            self.trace.greatest("latest write after the lease, ms", late.as_millis() as u64);
            if late > LATEST {
                self.fail(format!("{}: {method} {path} arrived {late:?} after its lease", from.process));
            }
        }
    }

    /// When the lease of a process ends or ended: by time, or when it was released or taken.
    fn ended(&self, process: &Arc<str>) -> Option<Duration> {
        let end = *self.renewals.get(process)?.last()? + LEASE;
        let is_own = |holder: &Option<Arc<str>>| holder.as_ref() == Some(process);
        let after = self.holders.iter().rev().take_while(|(_, holder)| !is_own(holder)).last();
        Some(after.map_or(end, |(since, _)| end.min(*since)))
    }

    /// When the lease of a sender ends, by its renewals up to the time of sending.
    fn lease_end(&self, from: &Sender) -> Option<Duration> {
        let renewals = self.renewals.get(&from.process)?;
        renewals.iter().rfind(|at| **at <= from.sent).map(|at| *at + LEASE)
    }

    fn see_lease(&mut self, from: &Sender, holder: &str) {
        let now = self.now();
        let is_own = holder.strip_prefix(&*from.process).is_some_and(|rest| rest.starts_with('_'));
        let holder = is_own.then(|| Arc::clone(&from.process));
        if is_own {
            self.renewals.entry(Arc::clone(&from.process)).or_default().push(now);
        }
        if self.leader() != holder.as_ref() {
            if let Some(holder) = &holder {
                self.acquired.insert(Arc::clone(holder), now);
                self.trace.count("changes of the leader", 1);
            }
            self.holders.push((now, holder));
        }
    }

    fn see_binding(&mut self, from: &Sender, pod: &BoundPod) {
        let now = self.now();
        // The trace has the decision, too.
        self.note(format_args!("{} bound to {}", pod.metadata.name, pod.spec.node_name));
        let before = self.bound.insert(pod.metadata.uid.clone(), (Arc::clone(&from.process), now));
        if let Some((by, at)) = before
            && !self.is_forgiving()
        {
            self.fail(format!(
                "pod {} bound twice: by {by} at {at:?}, and by {}",
                pod.metadata.name, from.process
            ));
        }
        self.trace.count("pods bound", 1);
    }

    /// No node has more pods than it holds by the decisions of one leader: those of others that it
    /// could not know do not count.
    async fn check_room(checker: &Mutex<Self>, server: &ApiServer, from: &Sender, node_name: &str) {
        let (status, node) = ask(server, Method::GET, &format!("/api/v1/nodes/{node_name}"), None).await;
        let pods = format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{node_name}");
        let pods = get::<BoundPods>(server, &pods).await.unwrap_or_default().items;
        let mut checker = checker.lock();
        let now = checker.now();
        let is_old = |at: Option<&Duration>| at.is_none_or(|at| *at + FORGIVEN < now);
        if checker.is_forgiving() || !status.is_success() || !is_old(checker.touched.get(node_name)) {
            return;
        }
        checker.trace.count("checks of a node's room", 1);
        let since = checker.acquired.get(&from.process).copied().unwrap_or_default();
        // What a new leader may not have seen.
        let late = if now < checker.views_lag_until { FORGIVEN } else { Duration::ZERO };
        let is_known = |pod: &&BoundPod| match checker.bound.get(&pod.metadata.uid) {
            Some((by, at)) => *by == from.process || *at + late < since,
            None => true,
        };
        let mut used = [0, 0, 0];
        let is_over = |pod: &BoundPod| matches!(&*pod.status.phase, "Succeeded" | "Failed");
        for pod in pods.iter().filter(|pod| !is_over(pod)).filter(is_known) {
            used[0] += 1;
            for container in &pod.spec.containers {
                let [_, cpu, memory] = amounts(&container["resources"]["requests"]);
                (used[1], used[2]) = (used[1] + cpu, used[2] + memory);
            }
        }
        let room = amounts(&node["status"]["allocatable"]);
        if used.iter().zip(room).any(|(used, room)| *used > room) {
            checker.fail(format!("{}: node {node_name} holds {room:?}, and has {used:?}", from.process));
        }
    }
}

/// The path of the lease.
pub const LEASE_PATH: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/supercargo";

/// What is checked of a pod. The rest may be large.
#[derive(Default, Deserialize)]
struct BoundPod {
    metadata: Named,
    spec: BoundSpec,
    #[serde(default)]
    status: Phase,
}

#[derive(Default, Deserialize)]
struct BoundPods {
    items: Vec<BoundPod>,
}

#[derive(Default, Deserialize)]
struct Named {
    name: String,
    uid: String,
}

#[derive(Default, Deserialize)]
struct BoundSpec {
    #[serde(default, rename = "nodeName")]
    node_name: String,
    containers: Vec<Value>,
    #[serde(default, rename = "resourceClaims")]
    claims: Vec<Value>,
    #[serde(default, rename = "schedulingGroup")]
    scheduling_group: Value,
}

#[derive(Default, Deserialize)]
struct Phase {
    #[serde(default)]
    phase: String,
    #[serde(default, rename = "resourceClaimStatuses")]
    claims: Vec<Value>,
    #[serde(default, rename = "extendedResourceClaimStatus")]
    extended: ExtendedStatus,
}

#[derive(Default, Deserialize)]
struct ExtendedStatus {
    #[serde(default, rename = "resourceClaimName")]
    claim: String,
}

impl ExtendedStatus {
    /// The claim for the pod's extended resources.
    fn claim(&self) -> Option<&str> {
        Some(&*self.claim).filter(|claim| !claim.is_empty())
    }
}

/// The pod of a binding; empty if it is gone.
async fn pod_of_binding(server: &ApiServer, path: &str) -> BoundPod {
    get(server, path.trim_end_matches("/binding")).await.unwrap_or_default()
}

/// Pods, thousandths of a CPU, and bytes of memory.
fn amounts(of: &Value) -> [i64; 3] {
    let text = |name: &str| of[name].as_str().unwrap_or("0");
    let [pods, memory] = ["pods", "memory"].map(|name| quantity::value(text(name)).unwrap_or_default());
    [pods, quantity::milli_value(text("cpu")).unwrap_or_default(), memory]
}
