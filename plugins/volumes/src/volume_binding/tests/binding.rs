//! Reserve, Unreserve and PreBind.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;

use serde_json::{Value, json};
use supercargo_framework::binding::{
    ApiCall, ApiError, BindingCalls, BindingContext, BindingReport, BoxFuture, Certainty, ClusterView,
    Predicate, WaitError,
};
use supercargo_framework::objects::{
    Body, Object, ObjectBody, Objects, PersistentVolume, PersistentVolumeClaim, annotations, resources,
};
use supercargo_framework::plugin::PreFlight;
use supercargo_framework::pod::PodKey;
use supercargo_framework::testing::node;
use supercargo_framework::{CycleState, NodeRecord, PodInfo, Status, Text, Uid};

use super::world::*;
use crate::volume_binding::change::PutRequest;

/// A state of the informers.
#[derive(Clone)]
struct Moment {
    objects: Objects,
    node: Option<NodeRecord>,
    has_pod: bool,
}

impl ClusterView for Moment {
    fn objects(&self) -> &Objects {
        &self.objects
    }

    fn node(&self, name: &str) -> Option<&NodeRecord> {
        self.node.as_ref().filter(|node| &*node.name == name)
    }

    fn has_pod(&self, pod: &PodKey, uid: &Uid) -> bool {
        self.has_pod && &*pod.name == "p" && *uid == "p".into()
    }
}

/// An API server with prepared responses, and informers that step through prepared states.
#[derive(Default)]
struct Script {
    answers: Mutex<VecDeque<Result<Value, ApiError>>>,
    requests: Mutex<Vec<(String, Value)>>,
    moments: Mutex<Vec<Moment>>,
    waits: Mutex<Vec<Duration>>,
    is_cancelled: bool,
}

impl BindingCalls for Script {
    fn call(&self, call: ApiCall) -> BoxFuture<Result<Value, ApiError>> {
        let ApiCall::Request { method, path, content_type, body } = call else {
            panic!("this plugin binds no pod");
        };
        assert_eq!(&*content_type, "application/json");
        self.requests.lock().unwrap().push((format!("{method} {path}"), body));
        let answer = self.answers.lock().unwrap().pop_front().expect("no such request is expected");
        Box::pin(std::future::ready(answer))
    }

    fn written(&self, _: &Text, _: Value) {
        panic!("nothing is assumed after a write")
    }

    fn report(&self, report: BindingReport) {
        panic!("{report:?}")
    }

    fn wait_for(&self, predicate: Predicate, timeout: Duration) -> BoxFuture<Result<(), WaitError>> {
        self.waits.lock().unwrap().push(timeout);
        let met = self.moments.lock().unwrap().iter().any(|moment| predicate(moment));
        let unmet = if self.is_cancelled { WaitError::Cancelled } else { WaitError::TimedOut };
        Box::pin(std::future::ready(if met { Ok(()) } else { Err(unmet) }))
    }

    fn cancelled(&self) -> BoxFuture<()> {
        Box::pin(std::future::pending())
    }

    fn sleep(&self, _: Duration) -> BoxFuture<()> {
        panic!("there is nothing to sleep for")
    }
}

/// The result of a future that is ready.
fn now<T>(future: impl Future<Output = T>) -> T {
    let mut cx = std::task::Context::from_waker(Waker::noop());
    match pin!(future).poll(&mut cx) {
        Poll::Ready(result) => result,
        Poll::Pending => panic!("it waits"),
    }
}

fn pre_flight(world: &World, state: &CycleState, pod: &PodInfo) -> PreFlight {
    world.points.pre_bind.as_ref().unwrap().pre_flight(&world.context(), state, pod, &"n".into())
}

/// Runs PreBind of a pod that is reserved on node `n`.
fn pre_bind(world: &World, state: &CycleState, pod: &PodInfo, script: &Arc<Script>) -> Status {
    let PreFlight::Work { allow_parallel: true, work } = pre_flight(world, state, pod) else {
        panic!("there must be work that runs beside others");
    };
    let cx = BindingContext::new(Arc::<Script>::clone(script));
    now(world.points.pre_bind.as_ref().unwrap().pre_bind(cx, work))
}

#[allow(clippy::unnecessary_wraps)] // it stands beside answers that are errors
fn written(version: &str) -> Result<Value, ApiError> {
    Ok(json!({"metadata": {"resourceVersion": version}}))
}

fn latest<'a>(world: &'a World, resource: &str, key: &str) -> &'a Object {
    world.objects.get(resource, key).unwrap()
}

fn latest_volume<'a>(world: &'a World, name: &str) -> &'a PersistentVolume {
    PersistentVolume::of(&latest(world, "PersistentVolume", name).body).unwrap()
}

#[test]
fn reserve_assumes_the_volume_bound_to_the_claim() {
    let mut world = World::new([volume("v", |_| {}), claim("c", |_| {})], [node("n")]);
    let pod = pod_with(&["c"]).build();
    let mut state = world.reserve(&pod, "n");
    let assumed = latest_volume(&world, "v");
    assert_eq!(assumed.claim, claim_ref("c", "uid-default/c"));
    let holder = latest(&world, "PersistentVolumeClaim", "default/c");
    assert_eq!(
        PutRequest::volume(latest(&world, "PersistentVolume", "v"), holder).unwrap().object,
        json!({
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {
                "name": "v",
                "resourceVersion": "1",
                "annotations": {"pv.kubernetes.io/bound-by-controller": "yes"}
            },
            "spec": {"claimRef": {
                "kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": "default", "name": "c",
                "uid": "uid-default/c", "resourceVersion": "1"
            }}
        })
    );
    let annotation =
        latest(&world, "PersistentVolume", "v").annotations.get(annotations::BOUND_BY_CONTROLLER);
    assert_eq!(annotation.map(|value| &**value), Some("yes"));
    world.objects.insert(Arc::new(claim("d", |_| {})));
    assert_eq!(world.feasible(&pod_with(&["d"]).build()), [false], "no other claim gets it");
    assert_eq!(world.feasible(&pod), [true], "it is still bound to the claim");
    world.unreserve(&mut state, &pod, "n");
    assert_eq!(latest_volume(&world, "v").claim, None);
    assert_eq!(world.feasible(&pod_with(&["d"]).build()), [true]);
}

#[test]
fn user_bound_volumes_only_get_the_claims_uid() {
    let own = volume("v", |volume| volume.claim = claim_ref("c", ""));
    let mut world = World::new([own, claim("c", |_| {})], [node("n")]);
    world.reserve(&pod_with(&["c"]).build(), "n");
    assert_eq!(latest_volume(&world, "v").claim, claim_ref("c", "uid-default/c"));
    assert!(latest(&world, "PersistentVolume", "v").annotations.is_empty());
}

#[test]
fn volumes_already_bound_are_written_but_not_assumed() {
    let own = volume("v", |volume| volume.claim = claim_ref("c", "uid-default/c"));
    let mut world = World::new([own, claim("c", |_| {})], [node("n")]);
    let pod = pod_with(&["c"]).build();
    let before = world.objects.get("PersistentVolume", "v").cloned().unwrap();
    let state = world.reserve(&pod, "n");
    assert!(Arc::ptr_eq(&before, world.objects.get("PersistentVolume", "v").unwrap()));
    let script = Arc::new(Script { answers: Mutex::new([written("2")].into()), ..Default::default() });
    pre_bind(&world, &state, &pod, &script);
    assert_eq!(script.requests.lock().unwrap().len(), 1);
}

#[test]
fn reserve_assumes_the_selected_node_of_a_claim() {
    let other = annotated(dynamic_claim("c"), "other", "kept");
    let mut world = World::new([other], [node("n"), node("m")]);
    let pod = pod_with(&["c"]).build();
    let mut state = world.reserve(&pod, "n");
    let assumed = latest(&world, "PersistentVolumeClaim", "default/c");
    assert_eq!(assumed.annotations.len(), 2);
    let written = PutRequest::claim(assumed).unwrap().object;
    assert_eq!(written["metadata"]["annotations"], json!({"volume.kubernetes.io/selected-node": "n"}));
    assert_eq!((&written["kind"], &written["apiVersion"]), (&json!("PersistentVolumeClaim"), &json!("v1")));
    let body = PersistentVolumeClaim::of(&assumed.body).unwrap();
    assert!(body.raw.value().get("kind").is_none(), "the API object is not copied");
    assert_eq!(world.feasible(&pod), [true, false], "another pod with the claim goes there, too");
    world.unreserve(&mut state, &pod, "n");
    assert_eq!(world.feasible(&pod), [true, true]);
}

#[test]
fn malformed_raw_objects_are_repaired() {
    for raw in [Value::Null, json!([]), json!({"metadata": 1}), json!({"metadata": {"annotations": null}})] {
        let odd = claim("c", |claim| {
            claim.storage_class = DYNAMIC.into();
            claim.raw = raw.into();
        });
        let mut world = World::new([odd], [node("n")]);
        world.reserve(&pod_with(&["c"]).build(), "n");
        let assumed = latest(&world, "PersistentVolumeClaim", "default/c");
        let written = PutRequest::claim(assumed).unwrap().object;
        assert_eq!(written["metadata"]["annotations"][annotations::SELECTED_NODE], "n");
    }
}

#[test]
fn pre_flight_skips_when_all_claims_are_bound() {
    let mut world = World::new([volume("v", |_| {}), bound_claim("c", "v")], [node("n")]);
    for claims in [&[][..], &["c"]] {
        let pod = pod_with(claims).build();
        let mut state = world.reserve(&pod, "n");
        let flight = pre_flight(&world, &state, &pod);
        assert!(matches!(flight, PreFlight::Skip { allow_parallel: true }));
        world.unreserve(&mut state, &pod, "n");
    }
}

#[test]
fn pre_flight_without_reserve_fails() {
    let mut world = World::new([dynamic_claim("c")], [node("n")]);
    let pod = pod_with(&["c"]).build();
    let mut state = world.state(&pod);
    world.unreserve(&mut state, &pod, "n");
    let PreFlight::Fail(status) = pre_flight(&world, &state, &pod) else {
        panic!("it must fail");
    };
    assert_eq!(status, Status::error("no pod volume found for node \"n\""));
}

/// A pod with a claim for an existing volume and a claim to provision, reserved on `n`.
fn reserved() -> (World, CycleState, PodInfo) {
    let mut world = World::new(
        [volume("v", |_| {}), claim("c", |_| {}), dynamic_claim("d")],
        [node("n").label("zone", "a")],
    );
    let pod = pod_with(&["c", "d"]).build();
    let state = world.reserve(&pod, "n");
    (world, state, pod)
}

fn versioned(object: Object, version: &str) -> Object {
    Object { resource_version: version.into(), ..object }
}

/// The state of the informers once everything is bound. `v` is written as version 5, `d` as version
/// 6.
fn bound() -> Moment {
    let (world, ..) = reserved();
    let mut moment =
        Moment { objects: world.objects, node: Some(node("n").label("zone", "a").build()), has_pod: true };
    let held = volume("v", |volume| volume.claim = claim_ref("c", "uid-default/c"));
    let provisioned = annotated(bound_claim("d", "w"), annotations::SELECTED_NODE, "n");
    for object in [
        versioned(held, "5"),
        versioned(bound_claim("c", "v"), "7"),
        versioned(provisioned, "8"),
        volume("w", |_| {}),
    ] {
        moment.objects.insert(Arc::new(object));
    }
    moment
}

fn with(mut moment: Moment, object: Object) -> Moment {
    moment.objects.insert(Arc::new(object));
    moment
}

fn run(answers: Vec<Result<Value, ApiError>>, moments: Vec<Moment>) -> (Status, Arc<Script>) {
    let (world, state, pod) = reserved();
    let script = Arc::new(Script {
        answers: Mutex::new(answers.into()),
        moments: Mutex::new(moments),
        ..Default::default()
    });
    (pre_bind(&world, &state, &pod, &script), script)
}

#[test]
fn pre_bind_writes_and_waits_for_volumes_and_claims() {
    let (world, ..) = reserved();
    let early = Moment { objects: world.objects, ..bound() };
    let (status, script) = run(vec![written("5"), written("6")], vec![early, bound()]);
    assert_eq!(status, Status::success());
    let requests = script.requests.lock().unwrap();
    let lines: Vec<_> = requests.iter().map(|(line, _)| &**line).collect();
    assert_eq!(
        lines,
        ["PUT /api/v1/persistentvolumes/v", "PUT /api/v1/namespaces/default/persistentvolumeclaims/d"]
    );
    assert_eq!(requests[0].1["spec"]["claimRef"]["name"], "c");
    assert_eq!(
        requests[0].1["metadata"]["resourceVersion"], "1",
        "only the version that was seen is replaced"
    );
    assert_eq!(requests[1].1["metadata"]["annotations"][annotations::SELECTED_NODE], "n");
    assert_eq!(*script.waits.lock().unwrap(), [Duration::from_mins(10)]);
}

#[test]
fn a_failed_write_ends_pre_bind() {
    let refused = || {
        let message = "Operation cannot be fulfilled".to_owned();
        Err(ApiError { certainty: Certainty::Unknown, message })
    };
    for (answers, requests) in [(vec![refused()], 1), (vec![written("5"), refused()], 2)] {
        let (status, script) = run(answers, vec![bound()]);
        assert_eq!(status, Status::error("Operation cannot be fulfilled"));
        assert_eq!(script.requests.lock().unwrap().len(), requests);
        assert!(script.waits.lock().unwrap().is_empty());
    }
}

#[test]
fn pre_bind_ends_at_the_timeout_or_on_cancellation() {
    let (status, _) = run(vec![written("5"), written("6")], vec![]);
    assert_eq!(status, Status::error("binding volumes: context deadline exceeded"));
    let (world, state, pod) = reserved();
    let answers = Mutex::new([written("5"), written("6")].into());
    let script = Arc::new(Script { answers, is_cancelled: true, ..Default::default() });
    let status = pre_bind(&world, &state, &pod, &script);
    assert_eq!(status, Status::error("binding volumes: context canceled"));
}

#[test]
fn pre_bind_waits_for_pending_bindings() {
    let unbound = |name: &str| versioned(claim(name, |_| {}), "9");
    let selected = |object| annotated(object, annotations::SELECTED_NODE, "n");
    let mut without_volume = bound();
    without_volume.objects.remove("PersistentVolume", "w");
    let reset = volume("v", |_| {});
    let cases = [
        ("an older volume", with(bound(), versioned(reset, "4"))),
        ("an unbound claim", with(bound(), unbound("c"))),
        ("a claim without the annotation", {
            with(bound(), versioned(claim("c", |claim| claim.volume_name = "v".into()), "9"))
        }),
        ("an older claim to provision", with(bound(), versioned(dynamic_claim("d"), "5"))),
        ("a claim that is not provisioned", with(bound(), selected(versioned(dynamic_claim("d"), "9")))),
        ("a provisioned volume on its way", without_volume),
    ];
    for (name, moment) in cases {
        let (status, _) = run(vec![written("5"), written("6")], vec![moment.clone()]);
        assert_eq!(status.message(), "binding volumes: context deadline exceeded", "{name}");
        let (status, _) = run(vec![written("5"), written("6")], vec![moment, bound()]);
        assert_eq!(status, Status::success(), "{name}");
    }
}

#[test]
fn pre_bind_fails_when_a_binding_cannot_complete() {
    let mut gone: Vec<Moment> = Vec::new();
    for (resource, key) in [
        (resources::PERSISTENT_VOLUME, "v"),
        (resources::PERSISTENT_VOLUME_CLAIM, "default/c"),
        (resources::PERSISTENT_VOLUME_CLAIM, "default/d"),
    ] {
        let mut moment = bound();
        moment.objects.remove(&resource, key);
        gone.push(moment);
    }
    let held = |change: fn(&mut PersistentVolume)| {
        let held = volume("v", |volume| {
            volume.claim = claim_ref("c", "uid-default/c");
            change(volume);
        });
        with(bound(), versioned(held, "9"))
    };
    let claimed = |annotation: Option<(&str, &str)>| {
        let plain = versioned(bound_claim("d", "w"), "9");
        let plain = Object { annotations: supercargo_framework::Labels::default(), ..plain };
        let claim = match annotation {
            Some((key, value)) => annotated(plain, key, value),
            None => plain,
        };
        with(bound(), claim)
    };
    let far = |name: &str| volume(name, |volume| volume.node_affinity = affinity("zone", &["b"]));
    let migrated = |object| with(with(bound(), csi_node("n", "kubernetes.io/azure-disk")), object);
    let translating = format!("failed to translate pv to csi: {UNTRANSLATABLE}");
    let mut gone = gone.into_iter();
    let mut gone = || gone.next().unwrap();
    let cases = [
        ("failed to get node \"n\": node \"n\" not found", Moment { node: None, ..bound() }),
        ("pod does not exist any more: pod \"p\" not found", Moment { has_pod: false, ..bound() }),
        ("failed to check binding: persistentvolumes \"v\" not found", gone()),
        ("failed to check binding: persistentvolumeclaims \"default/c\" not found", gone()),
        ("failed to check provisioning pvc: persistentvolumeclaims \"default/d\" not found", gone()),
        ("ClaimRef got reset for pv \"v\"", held(|volume| volume.claim = None)),
        ("ClaimRef got reset for pv \"v\"", held(|volume| volume.claim = claim_ref("c", ""))),
        (
            "pv \"v\" node affinity doesn't match node \"n\": no matching NodeSelectorTerms",
            held(|volume| volume.node_affinity = affinity("zone", &["b"])),
        ),
        (
            "pv \"v\" node affinity doesn't match node \"n\": nodeSelectorTerms[0].matchExpressions[0].values: Invalid \
             value: []: for 'in', 'notin' operators, values set can't be empty",
            held(|volume| volume.node_affinity = affinity("zone", &[])),
        ),
        ("selectedNode annotation reset for PVC \"d\"", claimed(None)),
        ("provisioning failed for PVC \"d\"", claimed(Some(("other", "x")))),
        ("provisioning failed for PVC \"d\"", claimed(Some((annotations::SELECTED_NODE, "m")))),
        (
            "pv \"w\" node affinity doesn't match node \"n\": no matching NodeSelectorTerms",
            with(bound(), far("w")),
        ),
        (&translating, migrated(versioned(untranslatable("v"), "9"))),
        (UNTRANSLATABLE, migrated(untranslatable("w"))),
    ];
    for (expected, moment) in cases {
        let (status, _) = run(vec![written("5"), written("6")], vec![moment, bound()]);
        assert_eq!(status, Status::error(format!("binding volumes: {expected}")));
    }
}

#[test]
fn assumed_changes_of_other_pods_do_not_complete_a_binding() {
    let mut moment = bound();
    let reset = Object {
        body: Body::PersistentVolume(PersistentVolume::default()),
        ..versioned(volume("v", |_| {}), "5")
    };
    assert!(moment.objects.assume(Arc::new(reset)));
    let (status, _) = run(vec![written("5"), written("6")], vec![moment]);
    assert_eq!(status, Status::success());
}
