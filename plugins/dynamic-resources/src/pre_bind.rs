//! PreBind: writes allocations and reservations to the pod's claims, and waits until the devices
//! are ready.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde_json::{Value, json};
use supercargo_devices::readiness::{self, Readiness};
use supercargo_framework::Timestamp;
use supercargo_framework::binding::{
    ApiCall, ApiError, BindingContext, BindingReport, Certainty, ClusterView, DeviceWait, DevicesAwaited,
    Occurrence, WaitError,
};
use supercargo_framework::objects::{
    AllocationResult, ClaimAllocation, ClaimConsumer, GroupKey, Object, PodGroup, ResourceClaim, Typed,
    resources,
};
use supercargo_framework::pod_claims::ExtendedRequest;
use supercargo_framework::{Context, PodInfo};

use super::claims::{self, body};
use super::extended::Created;
use super::write::{Consumer, Written, claims_path, path_of};

/// How often a write is tried that meets a conflict, and how long it waits between.
const TRIES: usize = 5;
const RETRY_DELAY: Duration = Duration::from_millis(10);
/// Milliseconds between attempts to patch the pod: upstream's default backoff.
const PATCH_DELAYS: [u64; 3] = [10, 50, 250];
/// How often claims are looked at that do not change, as upstream.
const CHECK_PERIOD: Duration = Duration::from_secs(5);

/// How long the informer may take to show the claim for extended resources, as upstream.
const CREATED_TIMEOUT: Duration = Duration::from_mins(2);

/// The work of PreBind for a pod.
pub(super) struct Work {
    /// The pod.
    pub(super) pod: Consumer,
    /// Whether other pods of its group may write the same allocation.
    pub(super) shares: bool,
    /// Its group, if groups have claims.
    pub(super) group: Option<OfGroup>,
    /// Its node.
    pub(super) node: Arc<str>,
    /// Its claims, in order, as the cycle has seen them.
    pub(super) claims: Box<[Arc<Object>]>,
    /// Those to allocate, in order, with their allocation.
    pub(super) reserved: Arc<[Arc<Object>]>,
    /// The claim to create for extended resources, with its allocation.
    pub(super) created: Option<Created>,
    /// How long devices may take; `None` if none is waited for.
    pub(super) timeout: Option<Duration>,
    /// When it begins.
    pub(super) now: Timestamp,
}

/// What concerns the pod's group.
pub(super) struct OfGroup {
    /// Its name.
    name: Arc<str>,
    /// How its claims are reserved.
    reservation: ClaimConsumer,
    /// Which of the pod's claims are those of the group.
    claims: Box<[bool]>,
}

impl OfGroup {
    /// `None` if the pod has no group.
    pub(super) fn new(cx: &Context<'_>, pod: &PodInfo) -> Option<Self> {
        let key = GroupKey::of_pods(pod.group_key()?);
        let group = cx.forest().get(&key).and_then(Typed::<PodGroup>::of);
        let reservation = group.map(|group| ClaimConsumer::of_group(group.object));
        Some(Self {
            name: Arc::clone(pod.spec.group()?),
            reservation: reservation.unwrap_or_default(),
            claims: group.map(|group| claims::of_group(pod, &group)).unwrap_or_default(),
        })
    }
}

impl Work {
    /// Whether a claim need not be reserved. As upstream, any reservation for the group counts.
    fn is_reserved(&self, claim: &ResourceClaim) -> bool {
        claims::is_reserved_for(claim, &self.pod.uid)
            || self.group.as_ref().is_some_and(|group| claim.is_reserved_for_group(&group.name))
    }

    /// For whom a claim is reserved, by its position.
    fn reservation(&self, index: usize) -> ClaimConsumer {
        let group = self.group.as_ref().filter(|group| group.claims.get(index) == Some(&true));
        group.map_or_else(|| self.pod.reservation(), |group| group.reservation.clone())
    }
}

/// A claim of the pod, and the allocation that it has or gets.
struct Allocated<'a> {
    key: Arc<str>,
    allocation: Option<&'a ClaimAllocation>,
}

/// Does the work. Errors have upstream's texts.
pub(super) async fn run(cx: BindingContext, work: Work) -> Result<(), String> {
    let mut reserved = work.reserved.iter();
    let mut claims = Vec::with_capacity(work.claims.len());
    for (index, claim) in work.claims.iter().enumerate() {
        let new = match &body(claim).allocation {
            Some(_) => None,
            None => reserved.next().and_then(|claim| body(claim).allocation.as_ref()),
        };
        let allocation = new.or(body(claim).allocation.as_ref());
        claims.push(Allocated { key: Arc::clone(&claim.key), allocation });
        if !work.is_reserved(body(claim)) {
            let wanted = Wanted { key: &claim.key, allocation: new, reservation: work.reservation(index) };
            let answer = write(&cx, &work, wanted, Written::of(claim)).await?;
            cx.written(&claim.resource, answer);
        }
    }
    if let Some(created) = &work.created {
        let key = create(&cx, &work, created).await?;
        claims.push(Allocated { key, allocation: body(&created.claim).allocation.as_ref() });
    }
    let mut allocations = claims.iter().filter_map(|claim| claim.allocation);
    match work.timeout {
        Some(timeout) if allocations.any(readiness::has_conditions) => {
            wait(&cx, &work, &claims, timeout).await
        }
        _ => Ok(()),
    }
}

/// Creates the claim for extended resources, and writes its allocation. Returns its key.
///
/// As upstream, it waits until the informer shows the claim, also if a later write fails: Unreserve
/// has to find it.
async fn create(cx: &BindingContext, work: &Work, created: &Created) -> Result<Arc<str>, String> {
    let namespace = &work.pod.pod.namespace;
    let claim = Written::of(&created.claim).into_value();
    let answer = call(cx, "POST", claims_path(namespace), claim).await;
    report(cx, work, Occurrence::ClaimCreation { is_created: answer.is_ok() });
    let answer =
        answer.map_err(|error| format!("create claim for extended resources {namespace}/: {error}"))?;
    let name = answer["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let key: Arc<str> = format!("{namespace}/{name}").into();
    let allocation = body(&created.claim).allocation.as_ref();
    let wanted = Wanted { key: &key, allocation, reservation: work.pod.reservation() };
    let written = write(cx, work, wanted, Written::answer(answer)).await;
    let outcome = match &written {
        Ok(_) => patch_pod(cx, work, &name, &created.mappings).await,
        Err(error) => Err(error.clone()),
    };
    let known = Arc::clone(&key);
    let predicate =
        move |cluster: &dyn ClusterView| cluster.objects().get(&resources::RESOURCE_CLAIM, &known).is_some();
    // As upstream, the pod is bound even if it is not there.
    let _ = cx.wait_for(Box::new(predicate), CREATED_TIMEOUT).await;
    if let Ok(answer) = written {
        cx.written(&resources::RESOURCE_CLAIM, answer);
    }
    outcome.map(|()| key)
}

/// Writes the claim and the containers that use it to the pod's status.
async fn patch_pod(
    cx: &BindingContext,
    work: &Work,
    claim: &str,
    mappings: &[ExtendedRequest],
) -> Result<(), String> {
    let pod = &work.pod.pod;
    if mappings.is_empty() {
        return Err(format!(
            "nil or empty request mappings, no update of pod {pod} ExtendedResourceClaimStatus"
        ));
    }
    let mapping = |it: &ExtendedRequest| json!({ "containerName": it.container, "resourceName": it.resource, "requestName": it.request });
    let mappings: Vec<Value> = mappings.iter().map(mapping).collect();
    let status = json!({ "requestMappings": mappings, "resourceClaimName": claim });
    let patch = json!({ "status": { "extendedResourceClaimStatus": status } });
    let path = format!("/api/v1/namespaces/{}/pods/{}/status", pod.namespace, pod.name);
    let call = ApiCall::request("PATCH", path, "application/strategic-merge-patch+json", patch);
    let mut delays = PATCH_DELAYS.iter();
    let answer = loop {
        let answer = cx.call(call.clone()).await;
        let transient =
            |error: &ApiError| matches!(error.certainty, Certainty::Conflict | Certainty::Unknown);
        match delays.next().filter(|_| answer.as_ref().is_err_and(transient)) {
            Some(delay) => cx.sleep(Duration::from_millis(*delay)).await,
            None => break answer,
        }
    };
    answer.map_err(|error| format!("update pod {pod} ExtendedResourceClaimStatus: {error}")).map(drop)
}

/// What a claim is to have.
struct Wanted<'a> {
    key: &'a str,
    /// Its new allocation, if it had none.
    allocation: Option<&'a ClaimAllocation>,
    reservation: ClaimConsumer,
}

/// Writes the allocation and the reservation. Returns the claim as it is then.
async fn write(
    cx: &BindingContext,
    work: &Work,
    wanted: Wanted<'_>,
    mut written: Written,
) -> Result<Value, String> {
    let key = wanted.key;
    let mut tries = 1;
    loop {
        match attempt(cx, work, &wanted, &mut written).await? {
            Ok(answer) => return Ok(answer),
            Err(conflict) if tries == TRIES => return Err(conflict),
            Err(_) => {}
        }
        tries += 1;
        cx.sleep(RETRY_DELAY).await;
        let latest = call(cx, "GET", path_of(key, ""), Value::Null).await;
        let latest = latest.map_err(|error| format!("get updated claim {key} after conflict: {error}"))?;
        written = Written::answer(latest);
    }
}

/// The inner error is a conflict.
async fn attempt(
    cx: &BindingContext,
    work: &Work,
    wanted: &Wanted<'_>,
    written: &mut Written,
) -> Result<Result<Value, String>, String> {
    let key = wanted.key;
    if written.is_deleting() {
        return Err(format!("claim {key} got deleted in the meantime"));
    }
    // Pods of a group share an allocation. The first one writes it, and may reserve the claim.
    let is_there = |it: &&ClaimAllocation| work.shares && written.has_devices_of(it);
    let allocation = wanted.allocation.filter(|it| !is_there(it));
    if let Some(allocation) = allocation {
        if written.is_allocated() {
            return Err(format!("claim {key} got allocated elsewhere in the meantime"));
        }
        if !written.has_finalizer() {
            written.add_finalizer();
            match call(cx, "PUT", path_of(key, ""), written.to_value()).await {
                Ok(answer) => *written = Written::answer(answer),
                Err(error) => return failed(&error, format!("add finalizer to claim {key}")),
            }
        }
        written.allocate(allocation);
    }
    if work.shares && allocation.is_none() && written.is_reserved_for(&wanted.reservation.uid) {
        return Ok(Ok(written.to_value()));
    }
    written.reserve_for(&wanted.reservation);
    if work.timeout.is_some() {
        if !written.is_allocated() {
            return Err(format!("claim {key} got deallocated elsewhere in the meantime"));
        }
        written.stamp(work.now);
    }
    match call(cx, "PUT", path_of(key, "/status"), written.to_value()).await {
        Ok(answer) => Ok(Ok(answer)),
        Err(error) => {
            let what = if allocation.is_some() { "allocation and reservation" } else { "reservation" };
            failed(&error, format!("add {what} to claim {key}"))
        }
    }
}

fn failed(error: &ApiError, what: String) -> Result<Result<Value, String>, String> {
    let text = format!("{what}: {error}");
    if error.certainty == Certainty::Conflict { Ok(Err(text)) } else { Err(text) }
}

async fn call(cx: &BindingContext, method: &str, path: String, body: Value) -> Result<Value, ApiError> {
    cx.call(ApiCall::request(method, path, "application/json", body)).await
}

/// Waits until all devices are ready, and reports how that ended.
async fn wait(
    cx: &BindingContext,
    work: &Work,
    claims: &[Allocated<'_>],
    timeout: Duration,
) -> Result<(), String> {
    let note = format!("waiting for binding conditions for device on node {}", work.node);
    let (reason, action) = ("BindingConditionsPending".into(), "Scheduling".into());
    report(cx, work, Occurrence::Event { reason, action, note });
    let ended = wait_for_devices(cx, work, claims, timeout).await;
    let outcome = ended.as_ref().map_or_else(|failure| failure.outcome, |()| DeviceWait::Success);
    report(cx, work, Occurrence::DevicesAwaited(awaited(claims, outcome)));
    ended.map_err(|failure| failure.message)
}

fn awaited(claims: &[Allocated<'_>], outcome: DeviceWait) -> DevicesAwaited {
    let results = || claims.iter().filter_map(|claim| claim.allocation).flat_map(|it| &it.results);
    let driver = |result: &AllocationResult| Arc::clone(&result.device.driver);
    let with_conditions = results().filter(|result| !result.binding_conditions.is_empty());
    DevicesAwaited {
        outcome,
        drivers: results().map(driver).collect(),
        with_conditions: with_conditions.map(driver).collect(),
    }
}

fn report(cx: &BindingContext, work: &Work, what: Occurrence) {
    cx.report(BindingReport { pod: work.pod.uid.clone(), what });
}

/// Why the wait for devices ended early.
#[derive(Clone)]
struct WaitFailure {
    outcome: DeviceWait,
    message: String,
}

impl WaitFailure {
    fn new(outcome: DeviceWait, message: impl Into<String>) -> Self {
        Self { outcome, message: message.into() }
    }
}

async fn wait_for_devices(
    cx: &BindingContext,
    work: &Work,
    claims: &[Allocated<'_>],
    timeout: Duration,
) -> Result<(), WaitFailure> {
    let keys: Vec<Arc<str>> = claims.iter().map(|claim| Arc::clone(&claim.key)).collect();
    let mut waited = Duration::ZERO;
    loop {
        let failure = Arc::<OnceLock<WaitFailure>>::default();
        let (noticed, keys, now) = (Arc::clone(&failure), keys.clone(), work.now.plus(waited));
        let predicate = move |cluster: &dyn ClusterView| {
            are_ready(cluster, &keys, timeout, now).unwrap_or_else(|error| {
                // Only the first failure is reported.
                let _ = noticed.set(error);
                true
            })
        };
        let period = CHECK_PERIOD.min(timeout.saturating_sub(waited));
        match cx.wait_for(Box::new(predicate), period).await {
            Ok(()) => return failure.get().map_or(Ok(()), |failure| Err(failure.clone())),
            Err(WaitError::Cancelled) => return Err(WaitFailure::new(DeviceWait::Error, "context canceled")),
            Err(WaitError::TimedOut) => waited += period,
        }
        if waited >= timeout {
            let message = "device binding timeout: context deadline exceeded";
            return Err(WaitFailure::new(DeviceWait::Timeout, message));
        }
    }
}

/// Whether all devices are ready. The first claim that is not decides.
fn are_ready(
    cluster: &dyn ClusterView,
    keys: &[Arc<str>],
    timeout: Duration,
    now: Timestamp,
) -> Result<bool, WaitFailure> {
    for key in keys {
        let latest =
            cluster.objects().get(&resources::RESOURCE_CLAIM, key).and_then(Typed::<ResourceClaim>::of);
        let Some(latest) = latest else {
            let message = format!("could not find ResourceClaim {:?}", &**key);
            return Err(WaitFailure::new(DeviceWait::Error, message));
        };
        let name = latest.object.name();
        match readiness::of(&latest, name) {
            Readiness::Ready => {}
            Readiness::Failed(reason) => return Err(WaitFailure::new(DeviceWait::Failure, reason)),
            Readiness::Waiting if readiness::is_late(&latest, timeout, now) => {
                let message = format!("device binding timeout: claim={name}");
                return Err(WaitFailure::new(DeviceWait::Timeout, message));
            }
            Readiness::Waiting => return Ok(false),
        }
    }
    Ok(true)
}
