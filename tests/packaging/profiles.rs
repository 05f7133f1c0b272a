//! The published configurations are valid and have their documented effect.

use std::path::Path;
use std::sync::Arc;

use supercargo_config::{Catalog, Config};
use supercargo_framework::Now;
use supercargo_framework::testing::{node, pod};
use supercargo_owner::options::scheduler_options;
use supercargo_scheduler::{Effect, Input, NoCalls, Notification, Scheduler};

fn profile(name: &str) -> Config {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests/profiles").join(name);
    Config::load(&path, &Catalog::in_tree()).unwrap_or_else(|errors| panic!("{errors}"))
}

#[test]
fn published_profiles_are_valid() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests/profiles");
    for entry in std::fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name();
        assert!(!profile(name.to_str().unwrap()).profiles.is_empty(), "{}", name.display());
    }
}

/// The number of nodes that six pods of this scheduler use, where one would suffice.
fn nodes_used(scheduler_name: &str) -> usize {
    let mut scheduler = Scheduler::new(scheduler_options(&profile("bin-packing.yaml"))).unwrap();
    let now = Now::default();
    for name in ["a", "b", "c"] {
        let node = node(name).allocatable("cpu", "8").allocatable("memory", "32Gi").build();
        scheduler.handle(now, Input::Node(Notification::Added(Arc::new(node))));
    }
    let mut used = std::collections::BTreeSet::new();
    for i in 0..6 {
        let pod =
            pod(&format!("p{i}")).scheduler(scheduler_name).request("cpu", "1").request("memory", "1Gi");
        scheduler.handle(now, Input::QueuedPod(Notification::Added(Arc::new(pod.build()))));
        scheduler.schedule_one(now, &mut NoCalls);
        for effect in scheduler.take_effects() {
            if let Effect::Bind { node, .. } = effect {
                used.insert(node);
            }
        }
    }
    used.len()
}

#[test]
fn bin_packing_profile_fills_node_by_node() {
    assert_eq!((nodes_used("supercargo-bin-packing"), nodes_used("supercargo")), (1, 3));
}
