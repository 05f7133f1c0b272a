//! PreBind: the requests and their conflicts.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Mutex;
use std::task::{Poll, Waker};
use std::time::Duration;

use supercargo_framework::binding::{
    ApiCall, ApiError, BindingCalls, BindingContext, BindingReport, BoxFuture, Certainty, ClusterView,
    DevicesAwaited, Occurrence, Predicate, WaitError,
};
use supercargo_framework::objects::{AllocatedDeviceStatus, DeviceCondition, Objects};
use supercargo_framework::pod::PodKey;
use supercargo_framework::testing::pod;
use supercargo_framework::{NodeRecord, Text, Timestamp, Uid};

use super::*;
use crate::pre_bind::{OfGroup, Work, run};
use crate::write::{self, Consumer};

const CLAIM: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/c";

/// An API server with prepared answers, and the objects that waits see.
#[derive(Default)]
pub(super) struct Script {
    answers: Mutex<VecDeque<Result<Value, ApiError>>>,
    pub(super) requests: Mutex<Vec<(String, Value)>>,
    pub(super) written: Mutex<Vec<Value>>,
    pub(super) reports: Mutex<Vec<String>>,
    /// What the informers show, one state per wait; the last one stays.
    states: Mutex<VecDeque<Objects>>,
    pub(super) waits: Mutex<Vec<Duration>>,
}

struct State<'a>(&'a Objects);

impl ClusterView for State<'_> {
    fn objects(&self) -> &Objects {
        self.0
    }

    fn node(&self, _: &str) -> Option<&NodeRecord> {
        None
    }

    fn has_pod(&self, _: &PodKey, _: &Uid) -> bool {
        true
    }
}

impl BindingCalls for Script {
    fn call(&self, call: ApiCall) -> BoxFuture<Result<Value, ApiError>> {
        let ApiCall::Request { method, path, body, .. } = call else { panic!("{call:?}") };
        self.requests.lock().unwrap().push((format!("{method} {}", path.replace(CLAIM, "c")), body));
        let answer = self.answers.lock().unwrap().pop_front().expect("no such request is expected");
        Box::pin(std::future::ready(answer))
    }

    fn written(&self, resource: &Text, answer: Value) {
        assert_eq!(*resource, resources::RESOURCE_CLAIM);
        self.written.lock().unwrap().push(answer);
    }

    fn report(&self, report: BindingReport) {
        self.reports.lock().unwrap().push(match report.what {
            Occurrence::Event { reason, action, note } => format!("{reason} {action}: {note}"),
            Occurrence::ClaimCreation { is_created } => format!("created: {is_created}"),
            Occurrence::DevicesAwaited(DevicesAwaited { outcome, drivers, with_conditions }) => {
                format!("{}: {drivers:?} {with_conditions:?}", outcome.as_str())
            }
        });
    }

    fn wait_for(&self, predicate: Predicate, timeout: Duration) -> BoxFuture<Result<(), WaitError>> {
        self.waits.lock().unwrap().push(timeout);
        let mut states = self.states.lock().unwrap();
        let state = if states.len() > 1 { states.pop_front() } else { states.front().cloned() };
        let is_met = predicate(&State(&state.unwrap_or_default()));
        Box::pin(std::future::ready(if is_met { Ok(()) } else { Err(WaitError::TimedOut) }))
    }

    fn cancelled(&self) -> BoxFuture<()> {
        Box::pin(std::future::pending())
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<()> {
        assert!([10, 50, 250].map(Duration::from_millis).contains(&duration), "{duration:?}");
        Box::pin(std::future::ready(()))
    }
}

/// The result of a future that is ready.
pub(super) fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut std::task::Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => panic!("it waits"),
    }
}

/// PreBind of pod `p` with this claim, and with devices for it if it has none.
fn bind(script: &Arc<Script>, claim: Object, timeout: Option<Duration>) -> Result<(), String> {
    bind_member(script, claim, timeout, None)
}

/// The same of a pod whose cycle was that of a group, which may have the claim.
pub(super) fn bind_member(
    script: &Arc<Script>,
    claim: Object,
    timeout: Option<Duration>,
    group: Option<OfGroup>,
) -> Result<(), String> {
    let is_free = crate::body(&claim).allocation.is_none();
    let reserved = is_free.then(|| Arc::new(write::allocated(&claim, allocation("gpu-0"))));
    let work = Work {
        pod: Consumer::of(&pod("p").build()),
        shares: group.is_some(),
        group,
        node: "n".into(),
        claims: Box::new([Arc::new(claim)]),
        reserved: reserved.into_iter().collect(),
        created: None,
        timeout,
        now: Timestamp(5_000_000),
    };
    now(run(BindingContext::new(Arc::<Script>::clone(script)), work))
}

pub(super) fn script(answers: impl IntoIterator<Item = Result<Value, ApiError>>) -> Arc<Script> {
    Arc::new(Script { answers: Mutex::new(answers.into_iter().collect()), ..Script::default() })
}

pub(super) fn lines(script: &Script) -> Vec<String> {
    script.requests.lock().unwrap().iter().map(|(line, _)| line.clone()).collect()
}

#[allow(clippy::unnecessary_wraps)] // it stands beside answers that are errors
pub(super) fn found(version: u64, fields: Value) -> Result<Value, ApiError> {
    let metadata = json!({"name": "c", "namespace": "default", "resourceVersion": version.to_string()});
    Ok(merged(json!({ "metadata": metadata }), fields))
}

pub(super) fn refused(certainty: Certainty, message: &str) -> Result<Value, ApiError> {
    Err(ApiError { certainty, message: message.into() })
}

pub(super) fn conflict() -> Result<Value, ApiError> {
    refused(Certainty::Conflict, "it changed")
}

#[test]
fn the_finalizer_comes_before_allocation_and_reservation() {
    let script = script([found(2, json!({})), found(3, json!({}))]);
    assert_eq!(bind(&script, claim("c", |_| {}), None), Ok(()));
    assert_eq!(lines(&script), ["PUT c", "PUT c/status"]);
    let requests = script.requests.lock().unwrap();
    let finalizers = json!(["resource.kubernetes.io/delete-protection"]);
    assert_eq!(requests[0].1["metadata"]["finalizers"], finalizers);
    assert_eq!(
        [&requests[0].1["kind"], &requests[0].1["apiVersion"]],
        ["ResourceClaim", "resource.k8s.io/v1"]
    );
    assert_eq!(requests[1].1["metadata"]["resourceVersion"], "2", "the answer to the first request");
    assert_eq!(
        requests[1].1["status"],
        json!({
            "allocation": {"devices": {"results": [{"request": "r", "device": "gpu-0"}]}},
            "reservedFor": [{"resource": "pods", "name": "p", "uid": "p"}],
        })
    );
    assert_eq!(script.written.lock().unwrap()[0]["metadata"]["resourceVersion"], "3");
}

#[test]
fn the_time_of_allocation_is_written_where_conditions_are_enabled() {
    let script = script([found(2, json!({})), found(3, json!({}))]);
    bind(&script, claim("c", |_| {}), Some(Duration::from_mins(1))).unwrap();
    let status = &script.requests.lock().unwrap()[1].1["status"];
    assert_eq!(status["allocation"]["allocationTimestamp"], "1970-01-01T00:00:05Z");
}

#[test]
fn a_claim_of_the_pod_is_not_written_again() {
    let script = script([]);
    let reserved = claim("c", |claim| {
        claim.allocation = Some(allocation("gpu-0"));
        claim.reserved_for = Box::new([consumer("p")]);
    });
    assert_eq!(bind(&script, reserved, None), Ok(()));
    assert!(lines(&script).is_empty());
}

#[test]
fn a_conflict_is_met_with_the_latest_claim() {
    let script = script([
        conflict(),
        found(5, json!({"metadata": {"resourceVersion": "5", "finalizers": ["a"]}})),
        found(6, json!({"metadata": {"resourceVersion": "6"}})),
        conflict(),
        found(
            7,
            json!({
                "metadata": {
                    "resourceVersion": "7",
                    "finalizers": ["a", "resource.kubernetes.io/delete-protection"],
                },
                "status": {"reservedFor": [{"uid": "other"}]},
            }),
        ),
        found(8, json!({})),
    ]);
    assert_eq!(bind(&script, claim("c", |_| {}), None), Ok(()));
    assert_eq!(lines(&script), ["PUT c", "GET c", "PUT c", "PUT c/status", "GET c", "PUT c/status"]);
    let requests = script.requests.lock().unwrap();
    assert_eq!(
        requests[2].1["metadata"]["finalizers"],
        json!(["a", "resource.kubernetes.io/delete-protection"])
    );
    assert_eq!(requests[5].1["status"]["reservedFor"].as_array().unwrap().len(), 2);
}

#[test]
fn five_conflicts_are_too_many() {
    let answers = (0..5).flat_map(|_| [conflict(), found(2, json!({}))]);
    let script = script(answers);
    let error = bind(&script, claim("c", |_| {}), None).unwrap_err();
    assert_eq!(error, "add finalizer to claim default/c: it changed");
    assert_eq!(lines(&script).len(), 9);
}

#[test]
fn claims_that_changed_meanwhile_end_the_binding() {
    let free = || claim("c", |_| {});
    let held = || claim("c", |claim| claim.allocation = Some(allocation("gpu-0")));
    let deleting = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    let minute = Some(Duration::from_mins(1));
    let broken = || refused(Certainty::Unknown, "broken");
    for (claim, answers, expected) in [
        (free(), vec![conflict(), found(2, deleting)], "claim default/c got deleted in the meantime"),
        (
            free(),
            vec![conflict(), found(2, json!({"status": {"allocation": {}}}))],
            "claim default/c got allocated elsewhere in the meantime",
        ),
        (
            held(),
            vec![conflict(), found(2, json!({}))],
            "claim default/c got deallocated elsewhere in the meantime",
        ),
        (free(), vec![conflict(), broken()], "get updated claim default/c after conflict: broken"),
        (free(), vec![broken()], "add finalizer to claim default/c: broken"),
        (
            free(),
            vec![found(2, json!({})), broken()],
            "add allocation and reservation to claim default/c: broken",
        ),
    ] {
        // A claim that the informer shows as allocated has it in the API, too.
        let claim = match crate::body(&claim).allocation {
            None => claim,
            Some(_) => with_allocation_in_api(claim),
        };
        assert_eq!(bind(&script(answers), claim, minute), Err(expected.to_owned()));
    }
    let error = bind(&script([broken()]), with_allocation_in_api(held()), minute).unwrap_err();
    assert_eq!(error, "add reservation to claim default/c: broken");
}

fn with_allocation_in_api(claim: Object) -> Object {
    let mut body = crate::body(&claim).clone();
    let mut raw = Value::clone(&body.raw);
    raw["status"] = json!({"allocation": {"devices": {}}});
    body.raw = Arc::new(raw);
    Object { body: Body::ResourceClaim(body), ..claim }
}

/// A claim with a device that has to get ready, and the conditions that are true.
fn with_conditions(conditions: &[&str], at: i64) -> Object {
    claim("c", |claim| {
        let mut allocation = allocation("gpu-0");
        allocation.allocated_at = Some(at);
        allocation.results[0].binding_conditions = Box::new(["ready".into(), "able".into()]);
        allocation.results[0].binding_failure_conditions = Box::new(["broken".into()]);
        let condition = |kind: &&str| DeviceCondition {
            kind: (*kind).into(),
            is_true: true,
            reason: "Why".into(),
            message: "it \"is\"".into(),
        };
        claim.devices = Box::new([AllocatedDeviceStatus {
            device: allocation.results[0].device.clone(),
            share_id: None,
            conditions: conditions.iter().map(condition).collect(),
        }]);
        claim.allocation = Some(allocation);
        claim.reserved_for = Box::new([consumer("p")]);
    })
}

/// PreBind of a pod whose device shows these conditions, one after the other: its result, the waits
/// in seconds, and how it reports the end.
fn wait(states: &[&[&str]], at: i64, timeout: u64) -> (Result<(), String>, Vec<u64>, String) {
    let objects = |conditions: &&[&str]| {
        let mut objects = Objects::default();
        objects.insert(with_conditions(conditions, at).into());
        objects
    };
    let script = Script { states: Mutex::new(states.iter().map(objects).collect()), ..Script::default() };
    let script = Arc::new(script);
    let result = bind(&script, with_conditions(&[], at), Some(Duration::from_secs(timeout)));
    let event = "BindingConditionsPending Scheduling: waiting for binding conditions for device on node n";
    let [begun, ended] = &script.reports.lock().unwrap()[..] else { panic!("not two reports") };
    assert_eq!(begun, event);
    let waits = script.waits.lock().unwrap().iter().map(Duration::as_secs).collect();
    (result, waits, ended.clone())
}

/// The report of a wait for the device that names conditions.
fn reported(status: &str) -> String {
    format!("{status}: [\"gpu.example.com\"] [\"gpu.example.com\"]")
}

#[test]
fn the_pod_waits_until_its_devices_are_ready() {
    assert_eq!(
        wait(&[&[], &["ready"], &["ready", "able"]], 5_000, 60),
        (Ok(()), vec![5, 5, 5], reported("success"))
    );
}

#[test]
fn devices_that_do_not_get_ready_end_the_binding() {
    let failed = "device binding failed: claim=c, reason=Why, message=\"it \\\"is\\\"\"";
    let late = "device binding timeout: claim=c";
    let deadline = "device binding timeout: context deadline exceeded";
    for (states, at, timeout, expected, waits, status) in [
        (&[&["ready", "able", "broken"][..]][..], 5_000, 60, failed, vec![5], "failure"),
        // Allocated at the beginning, 60 seconds before.
        (&[&[][..]][..], -55_000, 60, late, vec![5, 5], "timeout"),
        (&[&[][..]][..], 5_000, 7, deadline, vec![5, 2], "timeout"),
    ] {
        let expected = (Err(expected.to_owned()), waits, reported(status));
        assert_eq!(wait(states, at, timeout), expected, "{states:?}");
    }
}

#[test]
fn a_claim_that_is_gone_ends_the_wait() {
    let script = Arc::new(Script::default());
    let result = bind(&script, with_conditions(&[], 5_000), Some(Duration::from_mins(1)));
    assert_eq!(result, Err("could not find ResourceClaim \"default/c\"".to_owned()));
    assert_eq!(script.reports.lock().unwrap()[1], reported("error"));
}

#[test]
fn shares_have_identities_of_their_own() {
    let claims = ["a", "b"].map(|name| Arc::new(claim(name, |_| {})));
    let ids = |claims: &[Arc<Object>]| {
        let mut ids = write::ShareIds::new(claims.iter());
        [ids.next(), ids.next()]
    };
    let [a, b] = ids(&claims);
    assert_eq!((a.len(), &a[14..15]), (36, "8"));
    assert!(["8", "9", "a", "b"].contains(&&a[19..20]), "{a}");
    assert_ne!(a, b);
    assert_eq!(ids(&claims), [a.clone(), b], "a replay has the same");
    let later = Object { resource_version: "2".into(), ..(*claims[0]).clone() };
    assert_ne!(ids(&[later.into(), claims[1].clone()])[0], a, "another allocation");
}
