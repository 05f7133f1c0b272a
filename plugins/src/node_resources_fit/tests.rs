use serde_json::json;
use supercargo_framework::event::{Change, QueueingHint};
use supercargo_framework::requests::PodRequests;
use supercargo_framework::testing::{
    Driver, NodeBuilder, PodBuilder, node, node_added, node_info, node_updated, pod, pod_deleted, pod_updated,
};

use super::*;
use crate::testing::{driver, driver_with_args, driver_with_features};

fn status(code: Code, reasons: &[&'static str]) -> Status {
    Status::with_reasons(code, reasons.iter().map(|reason| Text::Static(reason)).collect())
}

fn small() -> NodeBuilder {
    node("n")
        .allocatable("cpu", "2")
        .allocatable("memory", "4Gi")
        .allocatable("ephemeral-storage", "10Gi")
        .allocatable("example.com/gpu", "4")
        .allocatable("pods", "2")
}

#[test]
fn nodes_must_have_all_requested_resources() {
    let unschedulable = |reasons| status(Code::Unschedulable, reasons);
    let unresolvable = |reasons| status(Code::UnschedulableAndUnresolvable, reasons);
    let busy = || {
        vec![
            pod("a")
                .request("cpu", "1")
                .request("memory", "3Gi")
                .request("ephemeral-storage", "9Gi")
                .request("example.com/gpu", "3"),
        ]
    };
    let cases = [
        ("a pod that asks for nothing", pod("p"), vec![], Status::success()),
        (
            "exactly what is left",
            pod("p")
                .request("cpu", "1")
                .request("memory", "1Gi")
                .request("ephemeral-storage", "1Gi")
                .request("example.com/gpu", "1"),
            busy(),
            Status::success(),
        ),
        (
            "too little left of each, in upstream's order",
            pod("p")
                .request("example.com/gpu", "2")
                .request("ephemeral-storage", "2Gi")
                .request("memory", "2Gi")
                .request("cpu", "1100m"),
            busy(),
            unschedulable(&[
                "Insufficient cpu",
                "Insufficient memory",
                "Insufficient ephemeral-storage",
                "Insufficient example.com/gpu",
            ]),
        ),
        (
            "more than the empty node has",
            pod("p").request("cpu", "3"),
            vec![],
            unresolvable(&["Insufficient cpu"]),
        ),
        (
            "one unresolvable reason makes the status unresolvable",
            pod("p").request("cpu", "1100m").request("memory", "5Gi"),
            busy(),
            unresolvable(&["Insufficient cpu", "Insufficient memory"]),
        ),
        (
            "a scalar that the node does not have at all",
            pod("p").request("example.com/fpga", "1"),
            vec![],
            unresolvable(&["Insufficient example.com/fpga"]),
        ),
        (
            "several scalars in name order",
            pod("p")
                .request("hugepages-2Mi", "2Mi")
                .request("example.com/gpu", "5")
                .request("example.com/fpga", "1"),
            vec![],
            unresolvable(&[
                "Insufficient example.com/fpga",
                "Insufficient example.com/gpu",
                "Insufficient hugepages-2Mi",
            ]),
        ),
        (
            "too many pods, also for a pod without requests",
            pod("p"),
            vec![pod("a"), pod("b")],
            unschedulable(&["Too many pods"]),
        ),
        (
            "too many pods comes first and can be helped",
            pod("p").request("cpu", "1100m"),
            vec![pod("a").request("cpu", "1"), pod("b")],
            unschedulable(&["Too many pods", "Insufficient cpu"]),
        ),
        (
            "a zero request needs nothing, not even from a node that is overcommitted",
            pod("p").request("cpu", "0"),
            vec![pod("a").request("cpu", "9")],
            Status::success(),
        ),
        (
            "a zero request of a scalar beside another request",
            pod("p").request("cpu", "1").request("example.com/gpu", "0"),
            vec![pod("a").request("example.com/gpu", "9")],
            Status::success(),
        ),
        (
            "init containers count",
            pod("p").init_request("cpu", "3"),
            vec![],
            unresolvable(&["Insufficient cpu"]),
        ),
        (
            "pod-level requests replace the containers'",
            pod("p").request("cpu", "1").pod_level_request("cpu", "3"),
            vec![],
            unresolvable(&["Insufficient cpu"]),
        ),
    ];
    for (name, new, pods, expected) in cases {
        let info = node_info(small().build(), pods.into_iter().map(PodBuilder::build));
        assert_eq!(driver(NAME).filter(&new.build(), &info), expected, "{name}");
    }
}

#[test]
fn ignored_extended_resources_are_not_filtered() {
    let args = json!({
        "ignoredResources": ["example.com/ignored", "hugepages-2Mi"],
        "ignoredResourceGroups": ["vendor.io"],
    });
    let plugin = driver_with_args(NAME, args);
    let cases: [(&str, PodBuilder, &[&str]); 5] = [
        ("by name", pod("p").request("example.com/ignored", "1"), &[]),
        ("by group", pod("p").request("vendor.io/anything", "1"), &[]),
        (
            "of a group that only looks alike",
            pod("p").request("x.vendor.io/anything", "1"),
            &["Insufficient x.vendor.io/anything"],
        ),
        (
            "not an extended resource",
            pod("p").request("hugepages-2Mi", "2Mi"),
            &["Insufficient hugepages-2Mi"],
        ),
        (
            "beside one that counts",
            pod("p").request("example.com/fpga", "1").request("vendor.io/x", "1"),
            &["Insufficient example.com/fpga"],
        ),
    ];
    for (name, new, reasons) in cases {
        let status = plugin.filter(&new.build(), &node_info(small().build(), []));
        let found: Vec<_> = status.reasons().iter().map(Text::as_str).collect();
        assert_eq!(found, reasons, "{name}");
    }
}

#[test]
fn reasons_are_allocated_once_per_pod() {
    let (nodes, objects) = Default::default();
    let cx = Context::at_rest(&nodes, &objects);
    let points = driver(NAME).points.clone();
    let (pre_filter, filter) = (points.pre_filter.unwrap(), points.filter.unwrap());
    let new = pod("p").request("example.com/fpga", "1").build();
    let info = node_info(small().build(), []);
    let mut state = CycleState::new();
    let without_state = filter.filter(&cx, &state, &new, &info);
    assert!(matches!(pre_filter.pre_filter(&cx, &mut state, &new), PreFilter::AllNodes));
    let reasons = [(); 2].map(|()| filter.filter(&cx, &state, &new, &info).reasons()[0].clone());
    let [Text::Shared(first), Text::Shared(second)] = &reasons else {
        panic!("a scalar's reason is made at run time");
    };
    assert!(Arc::ptr_eq(first, second));
    assert_eq!(without_state.reasons(), &reasons[..1], "without PreFilter the answer is the same");
}

fn hint(resource: EventResource, action: ActionType, waiting: &PodInfo, change: &Change) -> QueueingHint {
    driver(NAME)
        .hint(resource, action, waiting, change)
        .expect("the event is registered")
        .expect("the change has what the hint needs")
}

#[test]
fn deleted_pods_with_a_node_wake_the_pod() {
    let cases = [
        ("assigned", pod("q").node("n"), QueueingHint::Queue),
        ("nominated", pod("q").nominated("n"), QueueingHint::Queue),
        ("waiting", pod("q"), QueueingHint::Skip),
    ];
    for (name, gone, expected) in cases {
        let change = pod_deleted(gone.build());
        let waiting = pod("p").request("cpu", "1").build();
        assert_eq!(
            hint(EventResource::AssignedPod, ActionType::DELETE, &waiting, &change),
            expected,
            "{name}"
        );
    }
}

#[test]
fn scaled_down_pods_wake_the_pod_if_they_free_its_resources() {
    let assigned = |resource: &str, amount: &str| pod("q").node("n").request(resource, amount);
    let gpu = "example.com/gpu";
    let cases = [
        ("an assigned pod, of cpu", assigned("cpu", "2"), assigned("cpu", "1"), QueueingHint::Queue),
        ("an assigned pod, of a scalar", assigned(gpu, "2"), assigned(gpu, "1"), QueueingHint::Queue),
        (
            "an assigned pod, of what is not wanted",
            assigned("memory", "2Gi"),
            assigned("memory", "1Gi"),
            QueueingHint::Skip,
        ),
        ("an assigned pod that grows", assigned("cpu", "1"), assigned("cpu", "2"), QueueingHint::Skip),
        (
            "another waiting pod",
            pod("q").request("cpu", "2"),
            pod("q").request("cpu", "1"),
            QueueingHint::Skip,
        ),
    ];
    let waiting = pod("p").request("cpu", "1").request(gpu, "1").build();
    for (name, old, new, expected) in cases {
        let change = pod_updated(old.build(), new.build());
        assert_eq!(
            hint(EventResource::AssignedPod, ActionType::UPDATE_POD_SCALE_DOWN, &waiting, &change),
            expected,
            "{name}"
        );
    }
}

#[test]
fn the_pods_own_scale_down_wakes_it() {
    let (old, new) = (pod("p").request("cpu", "2").build(), pod("p").request("cpu", "1").build());
    let change = pod_updated(old, new.clone());
    let hint = |action| driver(NAME).hint(EventResource::TargetPod, action, &new, &change);
    assert_eq!(hint(ActionType::UPDATE_POD_SCALE_DOWN), Some(Ok(QueueingHint::Queue)));
    assert_eq!(hint(ActionType::UPDATE_POD_SCALE_UP), None);
}

#[test]
fn scale_down_is_detected_from_status_requests() {
    let reporting = |milli_cpu| pod("q").node("n").build_with_status(milli_cpu);
    let waiting = pod("p").request("cpu", "1").build();
    let change = pod_updated(reporting(2000), reporting(1000));
    assert_eq!(
        hint(EventResource::AssignedPod, ActionType::UPDATE_POD_SCALE_DOWN, &waiting, &change),
        QueueingHint::Queue
    );
}

/// A pod whose effective request differs from its spec, as during a resize.
trait BuildWithStatus {
    fn build_with_status(self, milli_cpu: i64) -> PodInfo;
}

impl BuildWithStatus for PodBuilder {
    fn build_with_status(self, milli_cpu: i64) -> PodInfo {
        let mut pod = self.build();
        let resource = supercargo_framework::Resource::new(milli_cpu, 0);
        pod.status_requests = Some(Arc::new(PodRequests { resource, ..PodRequests::default() }));
        pod
    }
}

#[test]
fn new_nodes_wake_the_pod_if_it_fits_when_empty() {
    let cases = [
        ("big enough", pod("p").request("cpu", "2").request("example.com/gpu", "4"), QueueingHint::Queue),
        ("too little cpu", pod("p").request("cpu", "3"), QueueingHint::Skip),
        ("too little of a scalar", pod("p").request("example.com/gpu", "5"), QueueingHint::Skip),
        ("nothing asked for", pod("p"), QueueingHint::Queue),
    ];
    for (name, waiting, expected) in cases {
        let change = node_added(small().build());
        assert_eq!(hint(EventResource::Node, ActionType::ADD, &waiting.build(), &change), expected, "{name}");
    }
    let full = node_added(small().allocatable("pods", "0").build());
    assert_eq!(
        hint(EventResource::Node, ActionType::ADD, &pod("p").build(), &full),
        QueueingHint::Skip,
        "a node that takes no pods does not help"
    );
}

#[test]
fn hints_do_not_consider_ignored_resources() {
    let plugin = driver_with_args(NAME, json!({"ignoredResources": ["example.com/ignored"]}));
    let waiting = pod("p").request("example.com/ignored", "1").build();
    let added = plugin.hint(EventResource::Node, ActionType::ADD, &waiting, &node_added(small().build()));
    assert_eq!(added, Some(Ok(QueueingHint::Skip)));
}

#[test]
fn larger_allocatable_wakes_the_pod_if_it_requests_the_resource() {
    let cases = [
        ("more of what is wanted", small().allocatable("cpu", "4"), QueueingHint::Queue),
        ("more of a scalar that is wanted", small().allocatable("example.com/gpu", "8"), QueueingHint::Queue),
        ("room for more pods", small().allocatable("pods", "3"), QueueingHint::Queue),
        ("more of what is not wanted", small().allocatable("memory", "8Gi"), QueueingHint::Skip),
        ("nothing more", small(), QueueingHint::Skip),
        ("less", small().allocatable("cpu", "1500m"), QueueingHint::Skip),
        (
            "more, but still too little",
            small().allocatable("cpu", "4").allocatable("example.com/gpu", "0"),
            QueueingHint::Skip,
        ),
    ];
    let waiting = pod("p").request("cpu", "1").request("example.com/gpu", "1").build();
    for (name, new, expected) in cases {
        let change = node_updated(small().build(), new.build());
        assert_eq!(
            hint(EventResource::Node, ActionType::UPDATE_NODE_ALLOCATABLE, &waiting, &change),
            expected,
            "{name}"
        );
    }
    let more_memory = node_updated(small().build(), small().allocatable("memory", "8Gi").build());
    assert_eq!(
        hint(EventResource::Node, ActionType::UPDATE_NODE_ALLOCATABLE, &pod("p").build(), &more_memory),
        QueueingHint::Skip,
        "a pod without requests is only helped by a higher pod limit"
    );
}

#[test]
fn without_in_place_resize_only_deletions_wake_the_pod() {
    let off = Features::default().with(Feature::InPlacePodVerticalScaling, false);
    let running = |cpu| pod("q").node("n").request("cpu", cpu).build();
    let (waiting, change) = (pod("p").request("cpu", "1").build(), pod_updated(running("2"), running("1")));
    let hint = |plugin: &Driver, action| plugin.hint(EventResource::AssignedPod, action, &waiting, &change);
    let shrunk = ActionType::UPDATE_POD_SCALE_DOWN;
    assert_eq!(hint(&driver_with_features(NAME, &off), shrunk), None);
    assert_eq!(hint(&driver(NAME), shrunk), Some(Ok(QueueingHint::Queue)));
    assert!(hint(&driver_with_features(NAME, &off), ActionType::DELETE).is_some());
}

/// The verdict still depends on every resource: only some of them are named.
#[test]
fn at_most_64_scalar_resources_are_named() {
    let name = |i: usize| format!("example.com/r{i:03}");
    let wants = |names: std::ops::Range<usize>| names.fold(pod("p"), |pod, i| pod.request(&name(i), "1"));
    let offering = (0..90).fold(node("n"), |node, i| node.allocatable(&name(i), "1")).build();
    let full = node_info(offering, [wants(0..90).build()]);
    for (wanted, code) in [(90, Code::Unschedulable), (91, Code::UnschedulableAndUnresolvable)] {
        let status = driver(NAME).filter(&wants(0..wanted).build(), &full);
        assert_eq!((status.code(), status.reasons().len()), (code, MAX_SCALAR_REASONS), "{wanted}");
    }
}

#[test]
fn the_state_counts_with_its_texts() {
    let points = from_args(&json!({}), &Features::default()).unwrap().extension_points();
    let (pre_filter, caching) = (points.pre_filter.unwrap(), points.caching.unwrap());
    let bytes = |resources: usize| {
        let pod = (0..resources).fold(pod("p"), |pod, i| pod.request(&format!("example.com/r{i:04}"), "1"));
        let (objects, nodes) =
            (supercargo_framework::testing::objects([]), supercargo_framework::testing::nodes([]));
        let mut state = CycleState::new();
        pre_filter.pre_filter(&Context::at_rest(&nodes, &objects), &mut state, &pod.build());
        caching.state_bytes(&state)
    };
    let each = "Insufficient example.com/r0000".len();
    assert_eq!(bytes(0), 0);
    assert!(bytes(1000) >= 1000 * each, "{}", bytes(1000));
}
