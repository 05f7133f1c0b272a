//! Random clusters that reach every feature of the allocator.

use std::sync::Arc;

use serde_json::json;
use supercargo_devices::Features;
use supercargo_framework::TaintEffect;
use supercargo_framework::affinity::{NodeSelectorTerm, RawRequirement};
use supercargo_framework::objects::*;

use super::case::{Case, toleration_json};

const DRIVERS: [&str; 2] = ["a.example.com", "b.example.com"];
const NODES: [(&str, &str); 2] = [("n0", "east"), ("n1", "west")];
const REQUESTS: [&str; 3] = ["r0", "r1", "r2"];
const SUBREQUESTS: [&str; 3] = ["s0", "s1", "s2"];
const SELECTORS: &[&str] = &[
    "true",
    "device.driver == 'a.example.com'",
    "device.driver == 'b.example.com'",
    "device.attributes['a.example.com'].?numa.orValue(0) == 0",
    "device.attributes[device.driver].?numa.orValue(0) < 2",
    "device.attributes[device.driver].?model.orValue('x') in ['x', 'y']",
    "device.capacity[device.driver].?memory.orValue(quantity('3Gi')).isGreaterThan(quantity('2Gi'))",
    "'memory' in device.capacity[device.driver]",
    "device.allowMultipleAllocations",
    "!device.allowMultipleAllocations",
    "device.attributes[device.driver].?version.orValue(semver('1.0.0')).isLessThan(semver('2.0.0'))",
];
const WRONG_SELECTORS: &[&str] = &[
    "device.numa == 0",
    "1 +",
    "device.driver",
    "device.attributes['a.example.com'].none == 1",
    "device.capacity[device.driver].memory.isGreaterThan(quantity('2Gi'))",
    "device.attributes[device.driver].numa == 0",
];
const ATTRIBUTES: [&str; 4] =
    ["a.example.com/numa", "b.example.com/numa", "a.example.com/model", "example.com/rack"];
const QUANTITIES: &[&str] =
    &["1", "2", "3", "5", "1Gi", "2Gi", "3Gi", "8Gi", "1500m", "1.5Gi", "0", "512Mi", "2.5"];

pub struct Generator(fastrand::Rng);

impl Generator {
    pub fn new(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    fn percent(&mut self, percent: u32) -> bool {
        self.0.u32(..100) < percent
    }

    fn one<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.0.usize(..of.len())].clone()
    }

    fn text(&mut self, of: &[&str]) -> Arc<str> {
        self.one(of).into()
    }

    /// Each with this chance.
    fn some<T: Clone>(&mut self, of: &[T], percent: u32) -> Vec<T> {
        of.iter().filter(|_| self.percent(percent)).cloned().collect()
    }

    pub fn case(&mut self) -> Case {
        let features = self.features();
        let mut case = Case { features, ..Case::default() };
        case.nodes = NODES
            .iter()
            .map(|(name, zone)| ((*name).into(), [("zone".into(), (*zone).into())].into()))
            .collect();
        // Names of slices do not follow pools. The allocator `stable` tries pools in random order:
        // with few of them, upstream soon takes the one of names.
        let pools = if features.is_stable() { 1..3 } else { 1..6 };
        for pool in 0..self.0.usize(pools) {
            for slice in self.pool(pool) {
                case.slices.push((format!("{:02}-{}", self.0.u32(..100), case.slices.len()), slice));
            }
        }
        case.slices.sort_by(|(a, _), (b, _)| a.cmp(b));
        case.classes = (0..3).map(|i| (format!("c{i}"), self.class())).collect();
        if self.percent(15) {
            case.rules = (0..self.0.usize(1..4)).map(|i| (format!("rule{i}"), self.rule())).collect();
        }
        case.allocated = self.allocated(&case);
        case.claims = (0..self.one(&[1, 1, 1, 2, 2, 3]))
            .map(|i| (format!("claim{i}"), self.claim(features.is_stable())))
            .collect();
        case
    }

    fn features(&mut self) -> Features {
        match self.0.u32(..100) {
            0..50 => Features::default(),
            50..65 => Features::ALL,
            65..82 => Features {
                admin_access: self.percent(75),
                binding_conditions: self.percent(60),
                consumable_capacity: self.percent(75),
                device_taints: self.percent(60),
                fractional_capacity_range: self.percent(60),
                partitionable_devices: self.percent(60),
                prioritized_list: self.percent(85),
            },
            _ => Features {
                binding_conditions: false,
                consumable_capacity: false,
                fractional_capacity_range: false,
                admin_access: self.percent(85),
                device_taints: self.percent(85),
                partitionable_devices: self.percent(85),
                prioritized_list: self.percent(85),
            },
        }
    }

    fn selector(&mut self) -> DeviceNodeSelector {
        let zones = ["east", "west", "east west"];
        let values: Vec<&str> = self.one(&zones).split(' ').collect();
        let key = if self.percent(90) { "zone" } else { "none" };
        let requirement = RawRequirement {
            key: key.into(),
            operator: "In".into(),
            values: values.iter().map(|value| Arc::from(*value)).collect(),
        };
        let raw = json!({ "nodeSelectorTerms": [{
            "matchExpressions": [{ "key": key, "operator": "In", "values": values }],
        }] });
        let terms = [NodeSelectorTerm::parse(vec![requirement], Vec::new())].into();
        DeviceNodeSelector { terms, raw: Arc::new(raw) }
    }

    fn place(&mut self) -> DevicePlace {
        match self.0.u32(..100) {
            0..40 => DevicePlace::Node("n0".into()),
            40..55 => DevicePlace::Node("n1".into()),
            55..80 => DevicePlace::AllNodes,
            _ => DevicePlace::Selector(self.selector()),
        }
    }

    /// The slices of a pool, which is complete and valid more often than not.
    fn pool(&mut self, number: usize) -> Vec<ResourceSlice> {
        let driver = self.text(&DRIVERS);
        // Now and then two drivers use one name, or two pools are one.
        let name = if self.percent(20) { "pool".into() } else { format!("pool{number}") };
        let has_counters = self.percent(30);
        let is_per_device = self.percent(12);
        let place = self.place();
        let mut names = 0;
        let mut slices: Vec<ResourceSlice> = (0..self.0.usize(1..4))
            .map(|_| {
                let moved = self.percent(20);
                let place = if moved { self.place() } else { place.clone() };
                let count = if self.percent(2) { 36 } else { self.0.usize(1..6) };
                let devices: Box<[Device]> = (0..count)
                    .map(|_| {
                        names += u32::from(self.0.u32(..400) != 0);
                        self.device(&driver, names, has_counters, is_per_device)
                    })
                    .collect();
                let place = if is_per_device { DevicePlace::PerDevice } else { place };
                ResourceSlice { place, devices, generation: 1, ..ResourceSlice::default() }
            })
            .collect();
        if has_counters && !self.percent(5) {
            let sets: Box<[CounterSet]> = (0..2).map(|set| self.counter_set(set)).collect();
            let place = if is_per_device { DevicePlace::AllNodes } else { place };
            slices.push(ResourceSlice {
                place,
                shared_counters: sets,
                generation: 1,
                ..ResourceSlice::default()
            });
        }
        let is_replaced = self.percent(5);
        let replaced = self.0.usize(..slices.len());
        for (place, slice) in slices.iter_mut().enumerate() {
            if is_replaced && place == replaced {
                slice.generation = 2;
            }
        }
        let total = slices.len() as i64 + i64::from(self.percent(4));
        let count = if is_replaced && self.percent(50) { 1 } else { total };
        for slice in &mut slices {
            slice.driver = Arc::clone(&driver);
            slice.pool = (*name).into();
            slice.slice_count = count;
        }
        slices
    }

    fn counter_set(&mut self, number: usize) -> CounterSet {
        let counters = ["cores", "memory"]
            .iter()
            .map(|name| ((*name).into(), self.text(&["2", "4", "8", "6", "5", "2Gi", "3500m", "-1"])));
        CounterSet { name: format!("set{number}").into(), counters: counters.collect() }
    }

    fn consumption(&mut self) -> CounterConsumption {
        let counters =
            if self.0.u32(..300) == 0 { vec!["gone"] } else { self.some(&["cores", "memory"], 70) };
        CounterConsumption {
            counter_set: if self.0.u32(..300) == 0 { "set9".into() } else { self.text(&["set0", "set1"]) },
            counters: counters
                .into_iter()
                .map(|name| (name.into(), self.text(&["1", "2", "1", "500m", "3"])))
                .collect(),
            has_compatibility_groups: self.0.u32(..150) == 0,
        }
    }

    fn device(&mut self, driver: &str, number: u32, has_counters: bool, is_per_device: bool) -> Device {
        let mut attributes: Vec<(Arc<str>, DeviceAttribute)> = Vec::new();
        let numa = DeviceAttribute::Int(self.0.i64(0..3));
        if self.percent(92) {
            attributes
                .push((if self.percent(30) { format!("{driver}/numa") } else { "numa".into() }.into(), numa));
        }
        if self.percent(50) {
            let value = match self.0.u32(..10) {
                0 => DeviceAttribute::Bool(self.percent(50)),
                1 => DeviceAttribute::Version(self.text(&["1.0.0", "2.1.0"])),
                _ => DeviceAttribute::String(self.text(&["x", "y", "z"])),
            };
            attributes.push(("model".into(), value));
        }
        if self.percent(25) {
            attributes.push(("example.com/rack".into(), DeviceAttribute::String(self.text(&["1", "2"]))));
        }
        if self.percent(15) {
            let version = if self.percent(4) { "one".into() } else { self.text(&["1.0.0", "2.1.0"]) };
            attributes.push(("version".into(), DeviceAttribute::Version(version)));
        }
        if self.0.u32(..250) == 0 {
            attributes.push(("future".into(), DeviceAttribute::Unsupported));
        }
        attributes.sort_by(|(a, _), (b, _)| a.cmp(b));
        let capacity = self
            .some(&["cores", "memory"], 60)
            .into_iter()
            .map(|name| (name.into(), self.capacity()))
            .collect();
        let consumes_counters: Box<[CounterConsumption]> =
            (0..if has_counters { self.0.usize(..3) } else { 0 }).map(|_| self.consumption()).collect();
        Device {
            name: format!("dev{number}").into(),
            attributes: attributes.into(),
            capacity,
            consumes_counters,
            place: if is_per_device { self.place() } else { DevicePlace::Unset },
            taints: if self.percent(15) {
                (0..self.0.usize(1..3)).map(|_| self.taint()).collect()
            } else {
                Box::default()
            },
            binds_to_node: self.percent(10),
            binding_conditions: self
                .percent(8)
                .then(|| self.some(&["ready", "attached"], 60).into_iter().map(Arc::from).collect()),
            binding_failure_conditions: if self.percent(5) {
                Box::new(["failed".into()])
            } else {
                Box::default()
            },
            allows_multiple_allocations: self.percent(35),
        }
    }

    fn capacity(&mut self) -> DeviceCapacity {
        let value = self.text(&["8Gi", "10", "4Gi", "5", "2.5", "10G", "1e3"]);
        let policy = self.percent(45).then(|| {
            let default = self.percent(60).then(|| self.text(QUANTITIES));
            let mut policy = CapacityPolicy { default, ..CapacityPolicy::default() };
            match self.0.u32(..3) {
                0 => {
                    policy.valid_values =
                        self.some(&["1".into(), "2".into(), "1.5Gi".into(), "3Gi".into()], 70).into();
                }
                1 => {
                    let step =
                        self.percent(65).then(|| self.text(&["1", "2", "512Mi", "500m", "0.7", "1Gi"]));
                    let needs_min = step.is_some() || self.percent(70);
                    policy.valid_range = Some(CapacityRange {
                        min: needs_min.then(|| self.text(&["1", "2", "1Gi", "0.5", "1.5Gi"])),
                        max: self
                            .percent(60)
                            .then(|| self.text(&["5", "4Gi", "8Gi", "9223372036854775807", "2.5"])),
                        step,
                    });
                }
                _ => {}
            }
            policy
        });
        DeviceCapacity { value, policy }
    }

    fn taint(&mut self) -> DeviceTaint {
        DeviceTaint {
            key: self.text(&["k0", "k1"]),
            value: self.text(&["", "v"]),
            effect: self.one(&[TaintEffect::NoSchedule, TaintEffect::NoExecute, TaintEffect::Unknown]),
        }
    }

    fn toleration(&mut self) -> DeviceToleration {
        use DeviceTolerationOperator::{Equal, Exists, Unknown};
        let mut toleration = DeviceToleration {
            key: self.text(&["k0", "k1", ""]),
            operator: self.one(&[Equal, Equal, Exists, Exists, Exists, Unknown]),
            value: self.text(&["", "v"]),
            effect: self.one(&[None, None, Some(TaintEffect::NoSchedule), Some(TaintEffect::NoExecute)]),
            raw: Arc::default(),
        };
        toleration.raw = Arc::new(toleration_json(&toleration));
        toleration
    }

    fn rule(&mut self) -> DeviceTaintRule {
        let selector = self.percent(90).then(|| TaintRuleSelector {
            driver: self.percent(50).then(|| self.text(&DRIVERS)),
            pool: self.percent(40).then(|| self.text(&["pool", "pool0", "pool1"])),
            device: self.percent(50).then(|| self.text(&["dev1", "dev2"])),
        });
        DeviceTaintRule { selector, taint: self.taint() }
    }

    fn selectors(&mut self, percent: u32) -> Box<[DeviceSelector]> {
        let count = if self.percent(percent) { self.0.usize(1..3) } else { 0 };
        (0..count)
            .map(|_| Some(if self.percent(2) { self.text(WRONG_SELECTORS) } else { self.text(SELECTORS) }))
            .collect()
    }

    fn config(&mut self) -> Arc<serde_json::Value> {
        let number = self.0.u32(..100);
        Arc::new(
            json!({ "opaque": { "driver": "a.example.com", "parameters": { "n": number, "a": [1, "x"] } } }),
        )
    }

    fn class(&mut self) -> DeviceClass {
        DeviceClass {
            selectors: self.selectors(40),
            config: (0..self.0.usize(..3)).map(|_| self.config()).collect(),
            ..DeviceClass::default()
        }
    }

    fn count(&mut self) -> DeviceCount {
        match self.0.u32(..100) {
            0..58 => DeviceCount::Exact(1),
            58..84 => DeviceCount::Exact(self.0.i64(2..4)),
            84..96 => DeviceCount::All,
            96..99 => DeviceCount::Exact(self.0.i64(14..36)),
            _ if self.percent(20) => DeviceCount::Unknown("Half".into()),
            _ => DeviceCount::Exact(4),
        }
    }

    fn request(&mut self, is_sub: bool, name: &str) -> DeviceRequest {
        let mut selectors = self.selectors(30).into_vec();
        if self.0.u32(..500) == 0 {
            selectors.push(None);
        }
        DeviceRequest {
            name: if is_sub { name.into() } else { "".into() },
            class: match self.0.u32(..700) {
                0 => "".into(),
                1 => "gone".into(),
                _ => self.text(&["c0", "c1", "c2"]),
            },
            selectors: selectors.into(),
            count: self.count(),
            admin_access: (!is_sub && self.percent(10)).then(|| self.percent(80)),
            tolerations: if self.percent(15) {
                (0..2).map(|_| self.toleration()).collect()
            } else {
                Box::default()
            },
            capacity: self.percent(if is_sub { 15 } else { 20 }).then(|| {
                let names = self.some(&["cores", "memory"], 55);
                names
                    .into_iter()
                    .map(|name| {
                        let strange = self.percent(4);
                        let strange_ones = ["9223372036854775807", "1e20", "1n", "-1", "0.30001"];
                        (name.into(), if strange { self.text(&strange_ones) } else { self.text(QUANTITIES) })
                    })
                    .collect()
            }),
            has_derived_attributes: self.0.u32(..1000) == 0,
        }
    }

    /// Names of requests and alternatives, of this claim or not.
    fn names(&mut self) -> Box<[Arc<str>]> {
        let mut names: Vec<Arc<str>> = Vec::new();
        for request in self.some(&REQUESTS, 45) {
            if self.percent(70) {
                names.push(request.into());
            } else {
                let sub = self.one(&SUBREQUESTS);
                names.push(format!("{request}/{sub}").into());
            }
        }
        names.into()
    }

    fn claim(&mut self, is_stable: bool) -> ResourceClaim {
        let requests = REQUESTS[..self.one(&[1, 1, 2, 2, 3])].iter().map(|name| {
            let choice = if self.percent(30) {
                let subs = &SUBREQUESTS[..self.0.usize(1..4)];
                RequestChoice::FirstAvailable(subs.iter().map(|name| self.request(true, name)).collect())
            } else {
                RequestChoice::Exactly(self.request(false, name))
            };
            ClaimRequest { name: (*name).into(), choice }
        });
        let requests = requests.collect();
        let constraint_count = if self.percent(30) { self.0.usize(1..3) } else { 0 };
        let constraints = (0..constraint_count).map(|_| {
            let attribute = self.text(&ATTRIBUTES);
            let rule = match self.0.u32(..100) {
                0 => ConstraintRule::Unknown,
                1..24 if self.percent(if is_stable { 10 } else { 100 }) => {
                    ConstraintRule::Distinct(attribute)
                }
                _ => ConstraintRule::Match(attribute),
            };
            ClaimConstraint { requests: if self.percent(50) { Box::default() } else { self.names() }, rule }
        });
        let constraints = constraints.collect();
        let config =
            (0..self.0.usize(..3)).map(|_| ClaimConfig { requests: self.names(), raw: self.config() });
        ResourceClaim { requests, constraints, config: config.collect(), ..ResourceClaim::default() }
    }

    fn allocated(&mut self, case: &Case) -> Vec<AllocationResult> {
        let mut allocated = Vec::new();
        let percent = self.one(&[0, 10, 30]);
        for (_, slice) in &case.slices {
            for device in &slice.devices {
                if !self.percent(percent) {
                    continue;
                }
                let mut result = AllocationResult {
                    device: DeviceId {
                        driver: Arc::clone(&slice.driver),
                        pool: Arc::clone(&slice.pool),
                        device: Arc::clone(&device.name),
                    },
                    admin_access: self.percent(10),
                    ..AllocationResult::default()
                };
                if device.allows_multiple_allocations && self.percent(85) {
                    result.share_id = Some(format!("share-{}", allocated.len()).into());
                    let used = |(name, _): &(Arc<str>, DeviceCapacity)| {
                        (Arc::clone(name), Arc::from(QUANTITIES[self.0.usize(..QUANTITIES.len())]))
                    };
                    result.consumed = device.capacity.iter().map(used).collect();
                }
                allocated.push(result);
            }
        }
        allocated
    }
}
