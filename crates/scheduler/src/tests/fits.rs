//! How many more pods like one fit.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use supercargo_framework::binding::BindOutcome;
use supercargo_framework::selector::LabelSelector;
use supercargo_framework::testing::{NodeBuilder, PodBuilder, node, pod};
use supercargo_framework::topology_spread::TopologySpreadConstraint;

use super::devices;
use super::tables::templates::{Shape, TEMPLATES, of_shape, of_template};
use super::test_bed::{TestBed, all_plugins, options};
use crate::{Fits, Input, Notification, WhyError};

pub(super) fn bed(nodes: &[(&str, u32)]) -> TestBed {
    let mut bed = TestBed::of(options(all_plugins(Vec::new())));
    for (name, cpus) in nodes {
        bed.node(with_cpus(name, *cpus));
    }
    bed
}

pub(super) fn with_cpus(name: &str, cpus: u32) -> NodeBuilder {
    node(name)
        .allocatable("cpu", &cpus.to_string())
        .allocatable("pods", "100")
        .label("kubernetes.io/hostname", name)
        .label("size", &cpus.to_string())
        .label("zone", &name[..1])
}

pub(super) fn asks(name: &str, cpus: u32) -> PodBuilder {
    pod(name).request("cpu", &cpus.to_string())
}

fn fits(bed: TestBed, pod: PodBuilder, most: usize) -> Result<Fits, WhyError> {
    let now = bed.now;
    bed.scheduler.fits(now, &pod.build(), most, &|| false)
}

fn by_node(fits: &Fits) -> String {
    fits.by_node.iter().map(|(node, pods)| format!("{node} {pods}")).collect::<Vec<_>>().join(", ")
}

#[test]
fn pods_fit_until_a_resource_runs_out() {
    let fits = fits(bed(&[("a", 4), ("b", 7)]), asks("p", 2), 100).unwrap();
    assert_eq!((by_node(&fits).as_str(), fits.count()), ("a 2, b 3", 5));
    let then = fits.then.unwrap();
    assert_eq!(
        then.refusals.iter().map(|it| (&*it.reason, it.nodes.len())).collect::<Vec<_>>(),
        [("Insufficient cpu", 2)]
    );
}

#[test]
fn the_limit_ends_the_count() {
    let fits = fits(bed(&[("a", 9)]), asks("p", 1), 3).unwrap();
    assert_eq!((fits.count(), fits.then.is_none()), (3, true));
}

#[test]
fn spreading_limits_what_room_allows() {
    let constraint = TopologySpreadConstraint {
        max_skew: 1,
        topology_key: "zone".into(),
        hard: true,
        selector: Some(LabelSelector::parse(&[("app", "web")].into_iter().collect(), []).unwrap()),
        min_domains: None,
        honors_affinity: true,
        honors_taints: false,
        match_label_keys: Box::default(),
    };
    let web = asks("p", 1).label("app", "web").with_spec(|spec| spec.topology_spread = [constraint].into());
    let fits = fits(bed(&[("a", 2), ("b", 9)]), web, 100).unwrap();
    assert_eq!(by_node(&fits), "a 2, b 3");
}

#[test]
fn pods_of_lower_priority_stay() {
    let mut bed = bed(&[("a", 2)]);
    bed.assigned(asks("low", 1).node("a"));
    let fits = fits(bed, asks("p", 1).priority(9), 100).unwrap();
    assert_eq!(fits.count(), 1);
}

proptest! {
    /// As many fit when they are really created, and no more.
    #[test]
    fn as_many_pods_fit_as_are_said_to(cpus in prop::collection::vec(1_u32..9, 1..6), asked in 1_u32..5) {
        let names: Vec<String> = (0..cpus.len()).map(|i| format!("{i}")).collect();
        let nodes: Vec<(&str, u32)> = names.iter().map(String::as_str).zip(cpus.iter().copied()).collect();
        let fit = fits(bed(&nodes), asks("p", asked), 100).unwrap().count();
        let mut bed = bed(&nodes);
        for i in 0..=fit {
            bed.pod(asks(&format!("p{i}"), asked));
            bed.cycle();
        }
        let placed = |i: usize| bed.scheduler.cache.node_of(&Arc::new(asks(&format!("p{i}"), asked).build()).uid).is_some();
        prop_assert!((0..fit).all(placed) && !placed(fit));
    }

    /// The same for pods with ports, constraints or extended resources, on nodes with taints and
    /// other pods: as many fit as are really scheduled one by one, and on the same nodes.
    #[test]
    fn as_many_pods_of_any_kind_fit_as_are_said_to(
        crowd in crowd(),
        asked in asked(),
        // None, or one of a class that provides the extended resource.
        devices in prop::option::of(0..4_usize),
    ) {
        let mut bed = crowd.bed();
        // A pod that waits may want to be near the first of these pods, and take room.
        for pod in bed.scheduler.pending.values().cloned().collect::<Vec<_>>() {
            bed.handle(Input::QueuedPod(Notification::Deleted(pod)));
        }
        if let Some(count) = devices {
            bed.handle(Input::Object(Notification::Added(Arc::new(devices::class(true)))));
            for node in 0..crowd.nodes.len() {
                let slice = devices::slice(node, count);
                bed.handle(Input::Object(Notification::Added(Arc::new(slice))));
            }
        }
        let fork = bed.scheduler.fork(bed.now, options(all_plugins(Vec::new()))).unwrap();
        let fits = match fork.fits(&asked.pod("p").build(), 60) {
            Ok(fits) => fits,
            Err(error) => {
                prop_assert_eq!(error, WhyError::Claims);
                return Ok(());
            }
        };
        let mut by_node = BTreeMap::new();
        for i in 0..fits.count() + usize::from(fits.then.is_some()) {
            let name = format!("p{i}");
            bed.pod(asked.pod(&name));
            while bed.cycle() {}
            if let Some(node) = bed.node_of(&name) {
                *by_node.entry(Arc::from(node)).or_default() += 1;
            }
        }
        prop_assert_eq!(by_node, fits.by_node);
    }
}

/// Nodes, and the templates of the pods that come first, with their priorities.
#[derive(Clone, Debug)]
pub(super) struct Crowd {
    nodes: Vec<Shape>,
    pods: Vec<(usize, i32)>,
}

pub(super) fn crowd() -> impl Strategy<Value = Crowd> {
    let shape = (0..3_usize, 1..7_usize, 0..7_usize, prop::bool::weighted(0.1), any::<bool>(), 2..9_usize)
        .prop_map(|(zone, cpu, taint, is_unschedulable, has_ssd, pods)| Shape {
            zone,
            cpu,
            taint,
            is_unschedulable,
            has_ssd,
            images: 0,
            pods,
        });
    let pod = (0..NOT_CLAIMING, prop_oneof![2 => Just(0), 1 => Just(5)]);
    (prop::collection::vec(shape, 1..5), prop::collection::vec(pod, 0..10))
        .prop_map(|(nodes, pods)| Crowd { nodes, pods })
}

impl Crowd {
    /// A bed in which these pods are on nodes or pending.
    pub(super) fn bed(&self) -> TestBed {
        let mut bed = TestBed::of(options(all_plugins(Vec::new())));
        for (number, shape) in self.nodes.iter().enumerate() {
            bed.handle(Input::Node(Notification::Added(Arc::new(of_shape(number, 0, *shape, 2)))));
        }
        for (number, (template, priority)) in self.pods.iter().enumerate() {
            let name = format!("old{number}");
            let pod = of_template(*template, &name).priority(*priority);
            let pod = pod.with_spec(|spec| spec.never_preempts = true);
            bed.pod(pod.clone());
            bed.cycle();
            if let Some(node) = bed.node_of(&name).map(str::to_owned) {
                bed.bound(&name, BindOutcome::Bound);
                bed.confirm(pod, &node);
            }
        }
        bed
    }
}

/// The first template of pods with claims for devices.
const NOT_CLAIMING: usize = 35;

/// A pod of a template, which may request an extended resource.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    template: usize,
    cpu: u32,
    extended: bool,
}

pub(super) fn asked() -> impl Strategy<Value = Asked> {
    (0..=NOT_CLAIMING, 0..4_u32, prop::bool::weighted(0.3)).prop_map(|(template, cpu, extended)| {
        let template = if template == NOT_CLAIMING { TEMPLATES } else { template };
        Asked { template, cpu, extended }
    })
}

impl Asked {
    pub(super) fn pod(&self, name: &str) -> PodBuilder {
        let mut pod = of_template(self.template, name);
        if self.cpu > 0 {
            pod = pod.request("cpu", &self.cpu.to_string());
        }
        if self.extended { devices::requesting(pod) } else { pod }
    }
}
