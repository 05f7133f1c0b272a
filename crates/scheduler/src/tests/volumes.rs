//! Pods whose volumes are bound in PreBind.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;

use serde_json::{Value, json};
use supercargo_framework::binding::{
    ApiCall, ApiError, BindOutcome, BindingCalls, BindingContext, BindingReport, BoxFuture, Certainty,
    ClusterView, Predicate, WaitError,
};
use supercargo_framework::objects::{
    Body, ClaimRef, Object, ObjectBody, PersistentVolume, PersistentVolumeClaim, StorageClass, annotations,
    resources,
};
use supercargo_framework::plugin::Permit;
use supercargo_framework::testing::{PodBuilder, node, object, pod};
use supercargo_framework::{Plugin, Status, Text, Volume, VolumeSource};

use super::fake::Fake;
use super::test_bed::{TestBed, failed};
use crate::{Effect, Input, Notification, Place};

const CLASS: &str = "local";

pub(super) fn class() -> Object {
    let body = StorageClass {
        provisioner: "kubernetes.io/no-provisioner".into(),
        waits_for_first_consumer: Some(true),
        ..Default::default()
    };
    object(&resources::STORAGE_CLASS, CLASS, Body::StorageClass(body))
}

pub(super) fn volume(version: &str, holder: Option<&str>) -> Object {
    let claim = holder.map(|name| ClaimRef {
        namespace: "default".into(),
        name: name.into(),
        uid: format!("uid-default/{name}").into(),
    });
    let body = PersistentVolume {
        capacity: 10,
        storage_class: CLASS.into(),
        phase: "Available".into(),
        claim,
        raw: json!({"metadata": {"name": "v", "resourceVersion": version}}).into(),
        ..Default::default()
    };
    let object = object(&resources::PERSISTENT_VOLUME, "v", Body::PersistentVolume(body));
    Object { resource_version: version.into(), ..object }
}

pub(super) fn claim(name: &str, version: &str, bound_to: &str) -> Object {
    let body = PersistentVolumeClaim {
        storage_class: CLASS.into(),
        request: Some(5),
        volume_name: bound_to.into(),
        ..Default::default()
    };
    let key = format!("default/{name}");
    let object = object(&resources::PERSISTENT_VOLUME_CLAIM, &key, Body::PersistentVolumeClaim(body));
    let annotations = (!bound_to.is_empty()).then_some((annotations::BIND_COMPLETED, "yes"));
    Object { resource_version: version.into(), annotations: annotations.into_iter().collect(), ..object }
}

pub(super) fn with_claim(name: &str, claim: &str) -> PodBuilder {
    let volume = Volume { name: "data".into(), source: VolumeSource::Claim(claim.into()) };
    pod(name).with_spec(|spec| spec.volumes = [volume].into())
}

fn tell(bed: &mut TestBed, object: Object) {
    let new = Arc::new(object);
    let known = bed.scheduler.objects().from_api(&new.resource, &new.key).cloned();
    bed.handle(Input::Object(match known {
        Some(old) => Notification::Updated { old, new },
        None => Notification::Added(new),
    }));
}

/// A node, a volume, the claims `a` and `b`, and the pod `a`, after one cycle.
fn tried(plugins: Vec<Arc<dyn Plugin>>) -> TestBed {
    let mut bed = TestBed::with(plugins);
    bed.node(node("n1"));
    for object in [class(), volume("1", None), claim("a", "1", ""), claim("b", "1", "")] {
        tell(&mut bed, object);
    }
    bed.pod(with_claim("a", "a"));
    bed.cycle();
    bed
}

/// The claim that holds the volume, assumptions included.
fn holder(bed: &TestBed) -> Option<String> {
    let volume = bed.scheduler.objects().get("PersistentVolume", "v").unwrap();
    PersistentVolume::of(&volume.body).unwrap().claim.as_ref().map(|holder| holder.name.to_string())
}

type Answers = Arc<dyn Fn(&str) -> Result<Value, ApiError> + Send + Sync>;
type Slot<T> = Arc<Mutex<Option<T>>>;

/// An API server, and a wait that the test ends.
struct FakeApi {
    answers: Answers,
    requests: Arc<Mutex<Vec<String>>>,
    waiting: Slot<Predicate>,
    waited: Slot<Result<(), WaitError>>,
}

impl BindingCalls for FakeApi {
    fn call(&self, call: ApiCall) -> BoxFuture<Result<Value, ApiError>> {
        let ApiCall::Request { method, path, .. } = call else {
            panic!("PreBind binds no pod");
        };
        self.requests.lock().unwrap().push(format!("{method} {path}"));
        Box::pin(std::future::ready((self.answers)(&path)))
    }

    fn written(&self, _: &Text, _: Value) {
        panic!("nothing is assumed after a write")
    }

    fn report(&self, report: BindingReport) {
        panic!("{report:?}")
    }

    fn wait_for(&self, predicate: Predicate, _: Duration) -> BoxFuture<Result<(), WaitError>> {
        *self.waiting.lock().unwrap() = Some(predicate);
        let waited = Arc::clone(&self.waited);
        Box::pin(std::future::poll_fn(move |_| waited.lock().unwrap().map_or(Poll::Pending, Poll::Ready)))
    }

    fn cancelled(&self) -> BoxFuture<()> {
        Box::pin(std::future::pending())
    }

    fn sleep(&self, _: Duration) -> BoxFuture<()> {
        panic!("there is nothing to sleep for")
    }
}

/// PreBind of the pod `a`, in progress.
struct PreBind {
    future: BoxFuture<Status>,
    requests: Arc<Mutex<Vec<String>>>,
    waiting: Slot<Predicate>,
    waited: Slot<Result<(), WaitError>>,
}

impl PreBind {
    /// Starts the PreBind that the scheduler requested.
    fn start(
        bed: &mut TestBed,
        answers: impl Fn(&str) -> Result<Value, ApiError> + Send + Sync + 'static,
    ) -> Self {
        let groups = bed.effects().into_iter().find_map(|effect| match effect {
            Effect::StartPreBind { groups, .. } => Some(groups),
            _ => None,
        });
        let work = groups.expect("PreBind is to start").remove(0).remove(0);
        assert_eq!(&*work.name, "VolumeBinding");
        let api = FakeApi {
            answers: Arc::new(answers),
            requests: Arc::default(),
            waiting: Arc::default(),
            waited: Arc::default(),
        };
        let (requests, waiting, waited) =
            (Arc::clone(&api.requests), Arc::clone(&api.waiting), Arc::clone(&api.waited));
        let future = work.plugin.pre_bind(BindingContext::new(Arc::new(api)), work.work);
        Self { future, requests, waiting, waited }
    }

    /// Polls PreBind as far as possible. Returns whether it has ended, and passes its status on.
    fn go_on(&mut self, bed: &mut TestBed) -> bool {
        let mut cx = std::task::Context::from_waker(Waker::noop());
        if let Poll::Ready(status) = Pin::new(&mut self.future).poll(&mut cx) {
            bed.pre_bound("a", status.by("VolumeBinding"));
            return true;
        }
        let met = self.waiting.lock().unwrap().as_ref().is_some_and(|predicate| predicate(&bed.scheduler));
        if !met {
            return false;
        }
        *self.waited.lock().unwrap() = Some(Ok(()));
        self.waiting.lock().unwrap().take();
        self.go_on(bed)
    }

    fn time_out(&mut self, bed: &mut TestBed) -> bool {
        *self.waited.lock().unwrap() = Some(Err(WaitError::TimedOut));
        self.go_on(bed)
    }
}

#[allow(clippy::unnecessary_wraps)] // other servers refuse
fn accepts(_: &str) -> Result<Value, ApiError> {
    Ok(json!({"metadata": {"resourceVersion": "2"}}))
}

#[test]
fn a_pod_is_bound_when_informers_show_its_bound_volume() {
    let mut bed = tried(vec![]);
    assert_eq!(holder(&bed).as_deref(), Some("a"));
    let mut pre_bind = PreBind::start(&mut bed, accepts);
    assert!(!pre_bind.go_on(&mut bed));
    assert_eq!(*pre_bind.requests.lock().unwrap(), ["PUT /api/v1/persistentvolumes/v"]);
    tell(&mut bed, volume("2", Some("a")));
    assert!(!pre_bind.go_on(&mut bed), "the claim is not bound yet");
    tell(&mut bed, claim("a", "3", "v"));
    assert!(pre_bind.go_on(&mut bed));
    assert_eq!(bed.effect_lines(), ["a bind to n1"]);
    bed.bound("a", BindOutcome::Bound);
    assert_eq!(bed.scheduler.bindings_in_flight(), 0);
}

#[test]
fn an_assumed_volume_is_not_chosen_again() {
    let mut bed = tried(vec![]);
    bed.effect_lines();
    bed.pod(with_claim("b", "b"));
    bed.cycle();
    let message = "0/1 nodes are available: 1 node(s) didn't find available persistent volumes to bind.";
    assert!(bed.effect_lines()[0].starts_with(&format!("b Warning FailedScheduling Scheduling: {message}")));
    assert_eq!(bed.place("b"), Some(Place::Unschedulable));
}

#[test]
fn a_refused_write_gives_the_volume_back_to_others() {
    let mut bed = tried(vec![]);
    let mut pre_bind = PreBind::start(&mut bed, |_| {
        Err(ApiError { certainty: Certainty::Unknown, message: "the object has been modified".to_owned() })
    });
    assert!(pre_bind.go_on(&mut bed));
    let message = "running PreBind plugin \"VolumeBinding\": the object has been modified";
    let patch = format!("a patch False SchedulerError: {message} nominated \"\"");
    assert!(bed.effect_lines().contains(&patch));
    assert_eq!((holder(&bed), bed.node_of("a"), bed.place("a")), (None, None, Some(Place::Backoff)));
    bed.pod(with_claim("b", "b"));
    bed.cycle();
    assert_eq!(holder(&bed).as_deref(), Some("b"));
}

#[test]
fn a_wait_that_takes_too_long_fails_the_binding() {
    let mut bed = tried(vec![]);
    let mut pre_bind = PreBind::start(&mut bed, accepts);
    assert!(!pre_bind.go_on(&mut bed));
    tell(&mut bed, volume("2", Some("a")));
    assert!(pre_bind.time_out(&mut bed));
    let message = "running PreBind plugin \"VolumeBinding\": binding volumes: context deadline exceeded";
    let patch = format!("a patch False SchedulerError: {message} nominated \"\"");
    assert!(bed.effect_lines().contains(&patch));
    assert_eq!(holder(&bed).as_deref(), Some("a"), "the API server reports that");
}

#[test]
fn a_later_assumption_of_another_pod_is_not_undone() {
    let mut bed = tried(vec![]);
    let mut pre_bind = PreBind::start(&mut bed, accepts);
    assert!(!pre_bind.go_on(&mut bed));
    // Somebody clears the volume's claim before it is bound.
    tell(&mut bed, volume("3", None));
    bed.pod(with_claim("b", "b"));
    bed.cycle();
    assert_eq!(holder(&bed).as_deref(), Some("b"));
    bed.effect_lines();
    assert!(pre_bind.go_on(&mut bed));
    let message =
        "running PreBind plugin \"VolumeBinding\": binding volumes: ClaimRef got reset for pv \"v\"";
    let patch = format!("a patch False SchedulerError: {message} nominated \"\"");
    assert!(bed.effect_lines().contains(&patch));
    assert_eq!(holder(&bed).as_deref(), Some("b"));
}

#[test]
fn deleting_the_pod_ends_the_wait() {
    let mut bed = tried(vec![]);
    let mut pre_bind = PreBind::start(&mut bed, accepts);
    assert!(!pre_bind.go_on(&mut bed));
    bed.delete(with_claim("a", "a"));
    assert!(pre_bind.go_on(&mut bed));
    assert_eq!((bed.scheduler.bindings_in_flight(), bed.place("a"), holder(&bed)), (0, None, None));
    assert!(bed.effect_lines().is_empty(), "a deleted pod gets no event");
}

#[test]
fn deleting_the_node_ends_the_wait() {
    let mut bed = tried(vec![]);
    let mut pre_bind = PreBind::start(&mut bed, accepts);
    assert!(!pre_bind.go_on(&mut bed));
    bed.delete_node(node("n1"));
    assert!(pre_bind.go_on(&mut bed));
    let message = "binding volumes: failed to get node \"n1\": node \"n1\" not found";
    assert!(bed.effect_lines().iter().any(|line| line.ends_with(message)));
    assert_eq!(holder(&bed), None);
}

#[test]
fn a_failure_after_reserve_gives_the_volume_back() {
    type Refusal = fn(Fake) -> Fake;
    let refusals: [(&str, Refusal); 5] = [
        ("another plugin's Reserve refuses", |fake| fake.reserve(|_, _| Status::unschedulable("no"))),
        ("another plugin's Reserve fails", |fake| fake.reserve(|_, _| Status::error("no"))),
        ("another plugin's Reserve panics", |fake| fake.reserve(|_, _| panic!("no"))),
        ("Permit refuses", |fake| fake.permit(|_, _| Permit::Reject(Status::unschedulable("no")))),
        ("Permit panics", |fake| fake.permit(|_, _| panic!("no"))),
    ];
    for (name, refusal) in refusals {
        let mut bed = tried(vec![refusal(Fake::new("F")).events(Vec::new).build()]);
        assert_eq!((holder(&bed), bed.node_of("a")), (None, None), "{name}");
        let observed = bed.observed();
        assert!(observed.iter().all(|line| !line.contains("before it was assumed")), "{name}: {observed:?}");
    }
}

#[test]
fn a_volume_stays_assumed_while_permit_holds_the_pod() {
    let holder_of_pods = Fake::new("H").permit(|_, _| Permit::Wait(Duration::from_secs(10)));
    let mut bed = tried(vec![holder_of_pods.events(Vec::new).build()]);
    assert_eq!(holder(&bed).as_deref(), Some("a"));
    bed.pass_seconds(9);
    assert_eq!(holder(&bed).as_deref(), Some("a"));
    bed.pass_seconds(1);
    assert_eq!((holder(&bed), bed.node_of("a")), (None, None));
}

#[test]
fn a_refused_bind_leaves_the_volume_to_the_claim() {
    let mut bed = tried(vec![]);
    let mut pre_bind = PreBind::start(&mut bed, accepts);
    assert!(!pre_bind.go_on(&mut bed));
    tell(&mut bed, volume("2", Some("a")));
    tell(&mut bed, claim("a", "3", "v"));
    assert!(pre_bind.go_on(&mut bed));
    bed.bound("a", failed(Certainty::Refused, "no"));
    assert_eq!(holder(&bed).as_deref(), Some("a"));
    bed.pass_seconds(2);
    bed.effect_lines();
    bed.cycle();
    assert_eq!(bed.effect_lines(), ["a bind to n1"], "its volume is bound, so PreBind has no work");
}

#[test]
fn bindings_see_the_cluster_as_it_is() {
    let mut bed = tried(vec![]);
    let (key, uid) = (pod("a").build().key(), "a".into());
    let cluster: &dyn ClusterView = &bed.scheduler;
    assert!(cluster.has_pod(&key, &uid) && !cluster.has_pod(&key, &"another".into()));
    assert!(cluster.node("n1").is_some() && cluster.node("n2").is_none());
    assert!(cluster.objects().get(&Text::from("PersistentVolume"), "v").is_some());
    bed.confirm(with_claim("a", "a"), "n2");
    assert!(bed.scheduler.has_pod(&key, &uid), "it exists on another node");
    bed.delete_assigned(with_claim("a", "a").node("n2"));
    assert!(!bed.scheduler.has_pod(&key, &uid));
}
