//! Extended resources that devices provide.

use std::time::Duration;

use supercargo_framework::binding::{BindingContext, Certainty};
use supercargo_framework::objects::{EXTENDED_RESOURCE_CLAIM, Objects};
use supercargo_framework::pod::{ExtendedResource, OwnerRef, RareSpec};
use supercargo_framework::pod_claims::ExtendedRequest;
use supercargo_framework::testing::{NodeBuilder, PodBuilder, node, node_info, nodes, objects, pod};
use supercargo_framework::{Code, Context, CycleState, Features, PodInfo, Timestamp};

use super::pre_bind::{Script, found, lines, now, refused, script};
use super::*;
use crate::extended::{Created, NewClaim};
use crate::extended_resources::ScoredDevices;
use crate::pre_bind::{Work, run};
use crate::testing::driver;
use crate::write::{self, Consumer};

const GPU: &str = "example.com/gpu";

/// A container: its place, whether it ends early, and how many devices it requests.
type Container = (u32, bool, i64);

fn requesting(containers: &[Container]) -> PodBuilder {
    let of = |(place, is_short_lived, count): &Container| ExtendedResource {
        container: format!("c{place}").into(),
        place: *place,
        is_short_lived: *is_short_lived,
        resource: GPU.into(),
        resource_place: 1,
        count: *count,
    };
    let extended_resources = containers.iter().map(of).collect();
    let lasting: i64 = containers.iter().filter(|(_, short, _)| !short).map(|(.., count)| count).sum();
    let most = containers.iter().map(|(.., count)| *count).max().unwrap_or(0).max(lasting);
    let rare = RareSpec { extended_resources, ..RareSpec::default() };
    pod("p").request(GPU, &most.to_string()).with_spec(|spec| spec.rare = Some(Box::new(rare)))
}

fn gpu_class() -> Object {
    let class = DeviceClass { extended_resource_name: Some(GPU.into()), ..DeviceClass::default() };
    object(&resources::DEVICE_CLASS, "gpu", Body::DeviceClass(class))
}

/// The code and the message for a pod that requests two devices, on a node with two.
fn verdict(pod: &PodInfo, node: NodeBuilder, more: Option<Object>) -> (Code, String) {
    let mut objects = Objects::default();
    for object in [gpu_class(), slice("s", &["a", "b"], 1)].into_iter().chain(more) {
        objects.insert(object.into());
    }
    let cluster = nodes([node_info(node.build(), [])]);
    let status = driver().verdicts(pod, &cluster, &objects).remove(0);
    (status.code(), status.message().clone())
}

fn stale(name: &str) -> Object {
    let owner = OwnerRef { uid: "p".into(), ..OwnerRef::default() };
    Object {
        controller: Some(Arc::new(owner)),
        annotations: [(EXTENDED_RESOURCE_CLAIM, "true")].into_iter().collect(),
        ..claim(name, |_| {})
    }
}

#[test]
fn devices_provide_what_a_node_does_not_offer() {
    let of = |count| requesting(&[(0, false, count)]).build();
    let success = (Code::Success, String::new());
    let rejected = |reason: &str| (Code::UnschedulableAndUnresolvable, reason.to_owned());
    assert_eq!(verdict(&of(2), node("n"), None), success);
    assert_eq!(verdict(&of(3), node("n"), None), rejected("cannot allocate all claims"));
    let offers = || node("n").allocatable(GPU, "8");
    assert_eq!(verdict(&of(3), offers(), None), success, "the other plugin looks at what the node offers");
    let other = requesting(&[(0, false, 1)]).request("example.com/other", "1").build();
    assert_eq!(verdict(&other, node("n"), None), rejected("cannot fit resource"));
    let none_left = node("n").allocatable("example.com/other", "0");
    assert_eq!(verdict(&other, none_left, None), success, "the other plugin looks at what the node reports");
    let stale_claim = rejected("cannot schedule extended resource claim");
    assert_eq!(verdict(&of(1), node("n"), Some(stale("x"))), stale_claim);
}

/// The requests and mappings of a pod on a node that offers nothing.
fn created(containers: &[Container]) -> (Vec<(String, i64)>, Vec<String>) {
    let created = new_claim(containers);
    let count = |request: &Value| request["exactly"]["count"].as_i64().unwrap();
    let raw = &crate::body(&created.claim).raw["spec"]["devices"]["requests"];
    let requests = raw.as_array().unwrap().iter();
    (
        requests.map(|it| (it["name"].as_str().unwrap().to_owned(), count(it))).collect(),
        created.mappings.iter().map(|it| format!("{} {}", it.container, it.request)).collect(),
    )
}

fn of_containers(containers: &[Container]) -> NewClaim {
    let mut objects = Objects::default();
    objects.insert(gpu_class().into());
    let pod = requesting(containers).build();
    NewClaim::of_pod(&pod, |name| objects.class_of_resource(name)).unwrap()
}

fn new_claim(containers: &[Container]) -> Created {
    let new = of_containers(containers);
    Created { claim: new.claim(&[false]).into(), mappings: new.mappings(&[false]) }
}

#[test]
fn pairs_of_many_containers_are_not_listed_before_they_have_devices() {
    // Each container that ends early would use the devices of all others.
    const MANY: u32 = 50_000;
    let early = (0..MANY).map(|place| (place, true, 1_000_000));
    let containers: Vec<Container> = early.chain((MANY..2 * MANY).map(|place| (place, false, 1))).collect();
    let claim = of_containers(&containers).claim(&[false]);
    assert_eq!(crate::body(&claim).requests.len(), MANY as usize + 1);
}

#[test]
fn containers_that_end_early_use_devices_of_later_ones() {
    let request = |place: u32, count| (format!("container-{place}-request-1"), count);
    assert_eq!(
        created(&[(0, true, 1), (1, false, 2)]),
        (vec![request(1, 2)], vec!["c1 container-1-request-1".into(), "c0 container-1-request-1".into()])
    );
    assert_eq!(
        created(&[(0, true, 3), (1, true, 5), (2, false, 1), (3, false, 1)]),
        (
            vec![request(1, 3), request(2, 1), request(3, 1)],
            [
                "c2 container-2-request-1",
                "c3 container-3-request-1",
                "c0 container-2-request-1",
                "c0 container-3-request-1",
                "c0 container-1-request-1",
                "c1 container-2-request-1",
                "c1 container-3-request-1",
                "c1 container-1-request-1",
            ]
            .map(String::from)
            .to_vec()
        ),
        "one more request for the one that needs most"
    );
    assert_eq!(
        created(&[(0, false, 1), (1, true, 1), (2, false, 1)]).0,
        [request(0, 1), request(2, 1)],
        "an earlier sidecar's devices are its own"
    );
}

#[test]
fn the_claim_to_create_names_its_pod_before_it_exists() {
    let claim = new_claim(&[(0, false, 1)]).claim;
    // By this the scheduler knows whose binding a pending allocation is.
    assert_eq!(claim.controller.as_ref().map(|owner| &*owner.uid), Some("p"));
}

/// PreBind of a pod with a claim to create, and what it sees at last.
fn bind(script: &Arc<Script>) -> Result<(), String> {
    let Created { claim, mappings } = new_claim(&[(0, false, 1)]);
    bind_with(script, &claim, mappings)
}

fn bind_with(script: &Arc<Script>, claim: &Object, mappings: Arc<[ExtendedRequest]>) -> Result<(), String> {
    let work = Work {
        pod: Consumer::of(&pod("p").build()),
        shares: false,
        group: None,
        node: "n".into(),
        claims: Box::default(),
        reserved: Arc::default(),
        created: Some(Created { claim: write::allocated(claim, allocation("a")).into(), mappings }),
        timeout: None,
        now: Timestamp(0),
    };
    now(run(BindingContext::new(Arc::<Script>::clone(script)), work))
}

const POST: &str = "POST /apis/resource.k8s.io/v1/namespaces/default/resourceclaims";
const PATCH: &str = "PATCH /api/v1/namespaces/default/pods/p/status";

#[test]
fn the_claim_is_created_before_the_pod_names_it() {
    let script =
        script([1, 2, 3].map(|version| found(version, json!({}))).into_iter().chain([Ok(json!({}))]));
    assert_eq!(bind(&script), Ok(()));
    assert_eq!(lines(&script), [POST, "PUT c", "PUT c/status", PATCH]);
    let requests = script.requests.lock().unwrap();
    assert_eq!(
        requests[0].1,
        json!({
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {
                "namespace": "default",
                "generateName": "p-extended-resources-",
                "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "p", "controller": true},
                ],
            },
            "spec": {"devices": {"requests": [{
                "name": "container-0-request-1",
                "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1},
            }]}},
        })
    );
    let mapping = json!({"containerName": "c0", "resourceName": GPU, "requestName": "container-0-request-1"});
    let status = json!({"requestMappings": [mapping], "resourceClaimName": "c"});
    assert_eq!(requests[3].1, json!({"status": {"extendedResourceClaimStatus": status}}));
    assert_eq!(*script.waits.lock().unwrap(), [Duration::from_mins(2)], "until the informer shows it");
    assert_eq!(script.written.lock().unwrap()[0]["metadata"]["resourceVersion"], "3");
    assert_eq!(*script.reports.lock().unwrap(), ["created: true"]);
}

#[test]
fn a_failure_waits_for_the_claim_that_it_leaves_behind() {
    let broken = || refused(Certainty::Unknown, "broken");
    let failed = |answers: Vec<_>| {
        let script = script(answers);
        let error = bind(&script).unwrap_err();
        let waits = script.waits.lock().unwrap().len();
        assert_eq!(*script.reports.lock().unwrap(), [format!("created: {}", waits > 0)]);
        (error, waits)
    };
    assert_eq!(
        failed(vec![broken()]),
        ("create claim for extended resources default/: broken".to_owned(), 0)
    );
    assert_eq!(
        failed(vec![found(1, json!({})), broken()]),
        ("add finalizer to claim default/c: broken".to_owned(), 1)
    );
    let claim = || [1, 2, 3].map(|version| found(version, json!({}))).to_vec();
    assert_eq!(
        failed([claim(), vec![refused(Certainty::Refused, "broken")]].concat()),
        ("update pod default/p ExtendedResourceClaimStatus: broken".to_owned(), 1)
    );
    assert_eq!(failed([claim(), vec![broken(); 4]].concat()).1, 1);
}

#[test]
fn the_pod_is_patched_again_after_a_conflict_or_an_unknown_outcome() {
    let claim = [1, 2, 3].map(|version| found(version, json!({})));
    let transient = [Certainty::Conflict, Certainty::Unknown, Certainty::Unknown];
    let script =
        script(claim.into_iter().chain(transient.map(|it| refused(it, "later"))).chain([Ok(json!({}))]));
    assert_eq!(bind(&script), Ok(()));
    assert_eq!(lines(&script)[3..], [PATCH; 4]);
}

#[test]
fn a_pod_without_mappings_is_not_bound() {
    let script = script([1, 2, 3].map(|version| found(version, json!({}))));
    let claim = new_claim(&[(0, false, 1)]).claim;
    assert_eq!(
        bind_with(&script, &claim, Arc::default()),
        Err("nil or empty request mappings, no update of pod default/p ExtendedResourceClaimStatus".into())
    );
}

/// Drivers publish their slices again and again.
#[test]
fn scores_forget_what_they_know_of_replaced_slices() {
    let scored = ScoredDevices::if_enabled(&Features::default()).unwrap();
    let class = DeviceClass {
        selectors: Box::new([Some("device.driver == 'gpu.example.com'".into())]),
        extended_resource_name: Some(GPU.into()),
        ..DeviceClass::default()
    };
    let mut objects = objects([object(&resources::DEVICE_CLASS, "gpu", Body::DeviceClass(class))]);
    let names: Vec<String> = (0..128).map(|device| format!("d{device}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let (cluster, pod) = (nodes([node_info(node("n").build(), [])]), pod("p").request(GPU, "1").build());
    for _ in 0..200 {
        objects.insert(Arc::new(slice("s", &names, 1)));
        let cx = Context::at_rest(&cluster, &objects);
        let mut state = CycleState::new();
        scored.prepare(&cx, &mut state, &pod, [GPU].into_iter());
        let record = cx.nodes().get("n").unwrap().node();
        assert_eq!(scored.usage(&state, GPU, record), Some((0, 128)));
        let bytes = scored.limit_answers(1 << 14);
        assert!(bytes < 1 << 16, "{bytes} bytes");
    }
}
