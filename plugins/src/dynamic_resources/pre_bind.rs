//! PreBind: writes allocations and reservations to the pod's claims, and waits until the devices are
//! ready.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde_json::Value;
use supercargo_framework::Timestamp;
use supercargo_framework::binding::{
    ApiCall, ApiError, BindingContext, BindingEvent, Certainty, Cluster, WaitError,
};
use supercargo_framework::objects::{ClaimAllocation, Object, ObjectBody as _, ResourceClaim, resources};

use super::readiness::{self, Readiness};
use super::write::{Consumer, Written, path};
use super::{body, claims};

/// How often a write is tried that meets a conflict, and how long it waits between.
const TRIES: usize = 5;
const RETRY_DELAY: Duration = Duration::from_millis(10);
/// How often claims are looked at that do not change, as upstream.
const CHECK_PERIOD: Duration = Duration::from_secs(5);

/// The work of PreBind for a pod.
pub(super) struct Work {
    /// The pod.
    pub(super) pod: Consumer,
    /// Its node.
    pub(super) node: Arc<str>,
    /// Its claims, in order, as the cycle has seen them.
    pub(super) claims: Box<[Arc<Object>]>,
    /// Those to allocate, in order, with their allocation.
    pub(super) reserved: Arc<[Arc<Object>]>,
    /// How long devices may take; `None` if none is waited for.
    pub(super) timeout: Option<Duration>,
    /// When it begins.
    pub(super) now: Timestamp,
}

/// Does the work. Errors have upstream's texts.
pub(super) async fn run(cx: BindingContext, work: Work) -> Result<(), String> {
    let mut reserved = work.reserved.iter();
    let mut has_conditions = false;
    for claim in &work.claims {
        let new = match &body(claim).allocation {
            Some(_) => None,
            None => reserved.next().and_then(|claim| body(claim).allocation.as_ref()),
        };
        let allocation = new.or(body(claim).allocation.as_ref());
        has_conditions |= allocation.is_some_and(readiness::has_conditions);
        if !claims::is_reserved_for(body(claim), &work.pod.uid) {
            let answer = write(&cx, &work, claim, new).await?;
            cx.written(&claim.resource, answer);
        }
    }
    match work.timeout {
        Some(timeout) if has_conditions => wait(&cx, work, timeout).await,
        _ => Ok(()),
    }
}

/// Writes the allocation and the reservation for the pod. Returns the claim as it is then.
async fn write(
    cx: &BindingContext,
    work: &Work,
    claim: &Object,
    allocation: Option<&ClaimAllocation>,
) -> Result<Value, String> {
    let key = &claim.key;
    let mut written = Written::of(claim);
    let mut tries = 1;
    loop {
        match attempt(cx, work, claim, allocation, &mut written).await? {
            Ok(answer) => return Ok(answer),
            Err(conflict) if tries == TRIES => return Err(conflict),
            Err(_) => {}
        }
        tries += 1;
        cx.sleep(RETRY_DELAY).await;
        let latest = call(cx, "GET", path(claim, ""), Value::Null).await;
        let latest = latest.map_err(|error| format!("get updated claim {key} after conflict: {error}"))?;
        written = Written::answer(latest);
    }
}

/// The inner error is a conflict.
async fn attempt(
    cx: &BindingContext,
    work: &Work,
    claim: &Object,
    allocation: Option<&ClaimAllocation>,
    written: &mut Written,
) -> Result<Result<Value, String>, String> {
    let key = &claim.key;
    if written.is_deleting() {
        return Err(format!("claim {key} got deleted in the meantime"));
    }
    if let Some(allocation) = allocation {
        if written.is_allocated() {
            return Err(format!("claim {key} got allocated elsewhere in the meantime"));
        }
        if !written.has_finalizer() {
            written.add_finalizer();
            match call(cx, "PUT", path(claim, ""), written.to_value()).await {
                Ok(answer) => *written = Written::answer(answer),
                Err(error) => return failed(&error, format!("add finalizer to claim {key}")),
            }
        }
        written.allocate(allocation);
    }
    written.reserve_for(&work.pod);
    if work.timeout.is_some() {
        if !written.is_allocated() {
            return Err(format!("claim {key} got deallocated elsewhere in the meantime"));
        }
        written.stamp(work.now);
    }
    match call(cx, "PUT", path(claim, "/status"), written.to_value()).await {
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
    let (method, path, content_type) = (method.into(), path.into(), "application/json".into());
    cx.call(ApiCall::Request { method, path, content_type, body }).await
}

/// Waits until all devices are ready.
async fn wait(cx: &BindingContext, work: Work, timeout: Duration) -> Result<(), String> {
    let node = &work.node;
    cx.record_event(BindingEvent {
        pod: work.pod.uid.clone(),
        reason: "BindingConditionsPending".into(),
        action: "Scheduling".into(),
        note: format!("waiting for binding conditions for device on node {node}"),
    });
    let mut waited = Duration::ZERO;
    loop {
        let failure = Arc::<OnceLock<String>>::default();
        let (noticed, claims, now) = (Arc::clone(&failure), work.claims.clone(), work.now.plus(waited));
        let predicate = move |cluster: &dyn Cluster| {
            are_ready(cluster, &claims, timeout, now).unwrap_or_else(|error| {
                // Only the first failure is reported.
                let _ = noticed.set(error);
                true
            })
        };
        let period = CHECK_PERIOD.min(timeout.saturating_sub(waited));
        match cx.wait_for(Box::new(predicate), period).await {
            Ok(()) => return failure.get().map_or(Ok(()), |failure| Err(failure.clone())),
            Err(WaitError::Cancelled) => return Err("context canceled".to_owned()),
            Err(WaitError::TimedOut) => waited += period,
        }
        if waited >= timeout {
            return Err("device binding timeout: context deadline exceeded".to_owned());
        }
    }
}

/// Whether all devices are ready. The first claim that is not decides.
fn are_ready(
    cluster: &dyn Cluster,
    claims: &[Arc<Object>],
    timeout: Duration,
    now: Timestamp,
) -> Result<bool, String> {
    for claim in claims {
        let latest = cluster.objects().get(&resources::RESOURCE_CLAIM, &claim.key);
        let Some(latest) = latest.and_then(|latest| ResourceClaim::of(&latest.body)) else {
            return Err(format!("could not find ResourceClaim {:?}", &*claim.key));
        };
        match readiness::of(latest, claim.name()) {
            Readiness::Ready => {}
            Readiness::Failed(reason) => return Err(reason),
            Readiness::Waiting if readiness::is_late(latest, timeout, now) => {
                return Err(format!("device binding timeout: claim={}", claim.name()));
            }
            Readiness::Waiting => return Ok(false),
        }
    }
    Ok(true)
}
