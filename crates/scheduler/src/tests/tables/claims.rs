//! Pods with claims: their answers are kept by what the claims request, and are those of the plain
//! path.

use std::collections::BTreeMap;
use std::sync::Arc;

use supercargo_framework::binding::BindOutcome;
use supercargo_framework::objects::{
    Body, ClaimConsumer, ClaimRequest, CounterConsumption, CounterSet, Device, DeviceCount, DevicePlace,
    DeviceRequest, Object, RequestChoice, ResourceClaim, ResourceSlice, resources,
    uid_of_extended_resource_claim,
};
use supercargo_framework::pod::RareSpec;
use supercargo_framework::pod_claims::{PodClaim, PodClaimSource};
use supercargo_framework::testing::{NodeBuilder, PodBuilder, SplitMix64, node, object, pod};
use supercargo_framework::{PodInfo, Status};

use crate::tests::devices;
use crate::tests::test_bed::{TestBed, all_plugins, options};
use crate::{Effect, Input, Notification, TableStats};

const DRIVER: &str = "gpu.example.com";

/// A cluster with devices.
struct Cluster {
    bed: TestBed,
    /// The version that an object gets when it is written next.
    version: u64,
    /// Bound pods, by name.
    bound: BTreeMap<String, Arc<PodInfo>>,
}

fn machine(number: usize, zone: &str) -> NodeBuilder {
    node(&format!("n{number}")).label("zone", zone)
}

/// The devices of a node. Two of them, and the third, exclude each other.
fn slice(node: usize, devices: usize) -> [Object; 2] {
    let quantities = |amount: usize| -> Box<[_]> { Box::new([("memory".into(), amount.to_string().into())]) };
    let device = |number: usize| Device {
        name: format!("gpu-{number}").into(),
        consumes_counters: Box::new([CounterConsumption {
            counter_set: "set".into(),
            counters: quantities(if number == 2 { 2 } else { 1 }),
            has_compatibility_groups: false,
        }]),
        ..Device::default()
    };
    let place = DevicePlace::Node(format!("n{node}").into());
    let slice = ResourceSlice {
        driver: DRIVER.into(),
        pool: format!("n{node}").into(),
        slice_count: 2,
        place,
        ..ResourceSlice::default()
    };
    let counters = Box::new([CounterSet { name: "set".into(), counters: quantities(2) }]);
    let bodies = [
        ResourceSlice { devices: (0..devices).map(device).collect(), ..slice.clone() },
        ResourceSlice { shared_counters: counters, ..slice },
    ];
    let mut number = 0;
    bodies.map(|body| {
        number += 1;
        object(&resources::RESOURCE_SLICE, &format!("n{node}-{number}"), Body::ResourceSlice(body))
    })
}

fn pod_with_claim(name: &str) -> PodBuilder {
    let claim = PodClaim { name: "c".into(), source: PodClaimSource::Claim(name.into()) };
    let rare = RareSpec { resource_claims: Box::new([claim]), ..RareSpec::default() };
    pod(name).request("cpu", "100m").with_spec(|spec| spec.rare = Some(Box::new(rare)))
}

/// A claim of one of three shapes.
fn claim(name: &str, shape: usize) -> Object {
    let of = |name: &str, count| DeviceRequest {
        name: name.into(),
        class: "gpu".into(),
        count: DeviceCount::Exact(count),
        ..DeviceRequest::default()
    };
    let choice = match shape {
        0 => RequestChoice::Exactly(of("", 1)),
        1 => RequestChoice::Exactly(of("", 2)),
        _ => RequestChoice::FirstAvailable(Box::new([of("two", 2), of("one", 1)])),
    };
    let body = ResourceClaim {
        requests: Box::new([ClaimRequest { name: "r".into(), choice }]),
        raw: Arc::new(serde_json::json!({})),
        ..ResourceClaim::default()
    };
    object(&resources::RESOURCE_CLAIM, &format!("default/{name}"), Body::ResourceClaim(body))
}

impl Cluster {
    fn new(nodes: usize) -> Self {
        let mut bed = TestBed::of(options(all_plugins(Vec::new())));
        bed.scheduler.compare_tables();
        let mut cluster = Self { bed, version: 1, bound: BTreeMap::new() };
        for number in 0..nodes {
            cluster.bed.node(machine(number, ["a", "b"][number % 2]));
            cluster.publish(number, 3);
        }
        cluster.add(devices::class(true));
        cluster
    }

    fn versioned(&mut self, object: Object) -> Arc<Object> {
        self.version += 1;
        Arc::new(Object { resource_version: self.version.to_string().into(), ..object })
    }

    /// Adds an object, or updates it.
    fn add(&mut self, object: Object) {
        let new = self.versioned(object);
        let old = self.bed.scheduler.objects().from_api(&new.resource, &new.key).cloned();
        self.bed.handle(Input::Object(match old {
            None => Notification::Added(new),
            Some(old) => Notification::Updated { old, new },
        }));
    }

    /// Publishes the devices of a node.
    fn publish(&mut self, node: usize, devices: usize) {
        for slice in slice(node, devices) {
            self.add(slice);
        }
    }

    /// Adds a pod with a claim, and tries it.
    fn try_pod(&mut self, name: &str, shape: usize) {
        self.add(claim(name, shape));
        self.bed.pod(pod_with_claim(name));
        while self.bed.cycle() {}
    }

    /// Adds a pod with an extended resource, and tries it.
    fn try_extended_pod(&mut self, name: &str) {
        self.bed.pod(devices::requesting(pod(name).request("cpu", "100m")));
        while self.bed.cycle() {}
    }

    /// Carries out bindings: writes claims, and confirms everything. With `fails`, PreBind fails.
    fn bind(&mut self, fails: bool) {
        loop {
            let effects = self.bed.effects();
            if effects.is_empty() {
                return;
            }
            for effect in effects {
                match effect {
                    Effect::StartPreBind { pod, .. } if fails => {
                        self.bed.pre_bound(&pod.uid.text(), Status::error("no"));
                    }
                    Effect::StartPreBind { pod, .. } => self.write_claim(&pod),
                    Effect::Bind { pod, node, .. } => {
                        self.bed.bound(&pod.uid.text(), BindOutcome::Bound);
                        let on_node =
                            PodInfo { node_name: Some(node), resource_version: "9".into(), ..(*pod).clone() };
                        let on_node = Arc::new(on_node);
                        self.bed.handle(Input::AssignedPod(Notification::Added(Arc::clone(&on_node))));
                        self.bed.handle(Input::QueuedPod(Notification::Deleted(Arc::clone(&pod))));
                        self.bound.insert(pod.name.to_string(), on_node);
                    }
                    _ => {}
                }
            }
        }
    }

    fn write_claim(&mut self, pod: &PodInfo) {
        let objects = self.bed.scheduler.objects();
        let Some(known) = objects.get(&resources::RESOURCE_CLAIM, &format!("default/{}", pod.name)) else {
            return self.create_claim(pod);
        };
        let mut new = (**objects.pending(&known.uid).unwrap_or(known)).clone();
        if let Body::ResourceClaim(claim) = &mut new.body {
            let uid = (*pod.uid.text()).into();
            claim.reserved_for = Box::new([ClaimConsumer { uid, ..ClaimConsumer::default() }]);
        }
        let new = self.versioned(new);
        self.bed.handle(Input::Written(Arc::clone(&new)));
        self.bed.pre_bound(&pod.uid.text(), Status::success());
        self.add((*new).clone());
    }

    /// Creates the claim for the pod's extended resources.
    fn create_claim(&mut self, pod: &PodInfo) {
        let uid = uid_of_extended_resource_claim(&pod.uid.text());
        let pending = self.bed.scheduler.objects().pending(&uid).expect("Reserve has noted it");
        let name = format!("{}-extended-resources", pod.name);
        let new = Object { key: format!("default/{name}").into(), uid: name.into(), ..(**pending).clone() };
        self.bed.pre_bound(&pod.uid.text(), Status::success());
        self.add(new);
    }

    /// Deletes a bound pod, and its claim.
    fn delete(&mut self, name: &str) {
        let Some(pod) = self.bound.remove(name) else { return };
        self.bed.handle(Input::AssignedPod(Notification::Deleted(pod)));
        for key in [format!("default/{name}"), format!("default/{name}-extended-resources")] {
            let claim = self.bed.scheduler.objects().from_api(&resources::RESOURCE_CLAIM, &key).cloned();
            if let Some(claim) = claim {
                self.bed.handle(Input::Object(Notification::Deleted(claim)));
            }
        }
    }

    fn stats(&self) -> TableStats {
        self.bed.scheduler.table_stats()
    }

    /// Checks that every answer of tables was that of the plain path. Returns how many there were.
    fn compared(&self) -> u64 {
        let comparison = self.bed.scheduler.comparison.as_ref().unwrap();
        assert_eq!(comparison.differences, [""; 0]);
        comparison.compared
    }
}

#[test]
fn pods_with_claims_of_one_shape_share_a_table() {
    let mut cluster = Cluster::new(4);
    for number in 0..4 {
        cluster.try_pod(&format!("p{number}"), 0);
        cluster.bind(false);
    }
    let stats = cluster.stats();
    assert_eq!((stats.hits, stats.builds, stats.plain, stats.tables), (3, 1, 0, 1), "{stats:?}");
    assert_eq!(cluster.bed.nodes_of(&["p0", "p1", "p2", "p3"]), "n0 n1 n2 n3");
    assert_eq!(cluster.compared(), 4);
}

#[test]
fn pods_with_extended_resources_of_devices_share_a_table() {
    let mut cluster = Cluster::new(4);
    // Until there is a claim, tables do not learn about the next one in detail.
    cluster.try_pod("first", 0);
    cluster.bind(false);
    for number in 1..5 {
        cluster.try_extended_pod(&format!("p{number}"));
        cluster.bind(false);
    }
    let stats = cluster.stats();
    assert_eq!((stats.hits, stats.builds, stats.plain, stats.tables), (3, 2, 0, 2), "{stats:?}");
    assert_eq!(cluster.bed.nodes_of(&["p1", "p2", "p3", "p4"]), "n1 n2 n3 n0");
    assert_eq!(cluster.compared(), 5);
}

#[test]
fn devices_in_flight_are_taken_until_their_binding_fails() {
    let mut cluster = Cluster::new(1);
    cluster.try_pod("first", 1);
    cluster.try_pod("second", 1);
    assert_eq!(cluster.bed.node_of("second"), None, "the devices are pending");
    cluster.bind(true);
    cluster.try_pod("third", 1);
    assert_eq!(cluster.bed.node_of("third"), Some("n0"));
    assert!(cluster.compared() >= 3);
}

#[test]
fn histories_with_claims_are_decided_as_on_the_plain_path() {
    let (mut hits, mut compared) = (0, 0);
    for seed in 0..20 {
        let mut random = SplitMix64::new(seed);
        let mut cluster = Cluster::new(5);
        for step in 0..60 {
            let node = random.below(5);
            match random.below(12) {
                0..4 => cluster.try_pod(&format!("p{step}"), random.below(3)),
                4 | 5 => cluster.try_extended_pod(&format!("p{step}")),
                6..8 => cluster.bind(random.chance(10)),
                8 | 9 => {
                    let names: Vec<String> = cluster.bound.keys().cloned().collect();
                    if !names.is_empty() {
                        cluster.delete(&names[random.below(names.len())]);
                    }
                }
                10 => cluster.publish(node, random.below(4)),
                _ => {
                    let (old, new) = (machine(node, "a"), machine(node, "b").resource_version("2"));
                    cluster.bed.update_node(old, new);
                }
            }
            cluster.bed.pass_seconds(random.below(3) as u64);
            while cluster.bed.cycle() {}
        }
        hits += cluster.stats().hits;
        compared += cluster.compared();
        assert_eq!(cluster.bed.scheduler.inconsistencies(), [""; 0]);
    }
    assert!(hits > 200 && compared > hits, "{hits} hits, {compared} compared");
}
