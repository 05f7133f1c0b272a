//! Random pods during a resize, beside a model of upstream's rule on maps by name.

use std::collections::BTreeMap;

use proptest::collection::{btree_map, vec};
use proptest::option::of;
use proptest::prelude::*;
use proptest::sample::select;

use super::super::*;
use super::WITH_STATUS;

type Map = BTreeMap<&'static str, i64>;

const NAMES: [&str; 5] = ["cpu", "memory", "ephemeral-storage", "hugepages-2Mi", "example.com/gpu"];

fn add(total: &mut Map, other: &Map) {
    for (name, amount) in other {
        *total.entry(*name).or_default() += amount;
    }
}

fn max(total: &mut Map, other: &Map) {
    for (name, amount) in other {
        let largest = total.entry(*name).or_default();
        *largest = *amount.max(largest);
    }
}

#[derive(Clone, Debug, Default)]
struct Container {
    desired: Map,
    allocated: Option<Map>,
    actuated: Option<Map>,
    restartable: bool,
}

#[derive(Clone, Debug)]
struct Pod {
    init_containers: Vec<Container>,
    containers: Vec<Container>,
    level: Option<Map>,
    /// Allocated and actuated amounts, if `status.resources` is set.
    reported: Option<(Option<Map>, Option<Map>)>,
    overhead: Map,
    infeasible: bool,
}

impl Pod {
    /// The sum, with the amounts of a container chosen by this function.
    fn sum(&self, defaults: &Map, choose: impl Fn(&Container) -> Map) -> Map {
        let own = |container: &Container| {
            let mut own = choose(container);
            for (name, amount) in defaults {
                own.entry(name).or_insert(*amount);
            }
            own
        };
        let (mut total, mut sidecars, mut peak) = (Map::new(), Map::new(), Map::new());
        self.containers.iter().for_each(|container| add(&mut total, &own(container)));
        for container in &self.init_containers {
            let mut running = sidecars.clone();
            add(&mut running, &own(container));
            if container.restartable {
                add(&mut total, &own(container));
                sidecars.clone_from(&running);
            }
            max(&mut peak, &running);
        }
        max(&mut total, &peak);
        total
    }

    fn requests(&self, defaults: &Map) -> Map {
        let desired = |c: &Container| c.desired.clone();
        let fallback = |c: &Container| if self.infeasible { Map::new() } else { desired(c) };
        let allocated = |c: &Container| c.allocated.clone().unwrap_or_else(|| fallback(c));
        let actuated = |c: &Container| c.actuated.clone().unwrap_or_else(|| allocated(c));
        let (sum_allocated, sum_actuated) = match &self.reported {
            Some((Some(allocated), Some(actuated))) => (allocated.clone(), actuated.clone()),
            _ => (self.sum(defaults, allocated), self.sum(defaults, actuated)),
        };
        let mut total = sum_allocated;
        max(&mut total, &sum_actuated);
        if !self.infeasible {
            max(&mut total, &self.sum(defaults, desired));
        }
        for (name, amount) in self.pod_level_in_effect() {
            if is_pod_level(name) {
                total.insert(name, amount);
            }
        }
        add(&mut total, &self.overhead);
        total
    }

    fn pod_level_in_effect(&self) -> Map {
        match (self.level.as_ref().filter(|list| list.keys().any(|n| is_pod_level(n))), &self.reported) {
            (None, _) => Map::new(),
            (Some(spec), None) => spec.clone(),
            (Some(spec), Some((allocated, actuated))) => {
                let mut largest = if self.infeasible { Map::new() } else { spec.clone() };
                [allocated, actuated].into_iter().flatten().for_each(|list| max(&mut largest, list));
                largest
            }
        }
    }

    fn effective(&self) -> PodRequests {
        let requests = self.requests(&Map::new());
        let mut defaults = Map::from([("cpu", DEFAULT_MILLI_CPU), ("memory", DEFAULT_MEMORY)]);
        if self.level.iter().flatten().any(|(name, _)| is_pod_level(name)) {
            defaults.retain(|name, _| !requests.contains_key(name));
        }
        let with_defaults = self.requests(&defaults);
        let of = |map: &Map, name| map.get(name).copied().unwrap_or_default();
        PodRequests {
            resource: resource_of(&list(&requests)),
            non_zero_milli_cpu: of(&with_defaults, "cpu"),
            non_zero_memory: of(&with_defaults, "memory"),
        }
    }

    fn inputs(&self) -> RequestInputs {
        let status = |allocated: &Option<Map>, actuated: &Option<Map>| StatusRequests {
            allocated: allocated.as_ref().map(list).unwrap_or_default(),
            actuated: actuated.as_ref().map(list).unwrap_or_default(),
        };
        let container = |container: &Container| ContainerRequests {
            requests: list(&container.desired),
            restartable: container.restartable,
            status: status(&container.allocated, &container.actuated),
        };
        RequestInputs {
            init_containers: self.init_containers.iter().map(container).collect(),
            containers: self.containers.iter().map(container).collect(),
            pod_level: self.level.as_ref().map(list),
            pod_level_status: self.reported.as_ref().map(|(allocated, actuated)| status(allocated, actuated)),
            overhead: list(&self.overhead),
            resize_infeasible: self.infeasible,
        }
    }
}

fn list(map: &Map) -> ResourceList {
    map.iter().map(|(name, amount)| (Arc::from(*name), *amount)).collect()
}

fn amounts(least: usize) -> impl Strategy<Value = Map> {
    btree_map(select(&NAMES[..]), 0..1000_i64, least..4)
}

fn container() -> impl Strategy<Value = Container> {
    // The API server sends no empty lists.
    (amounts(0), of(amounts(1)), of(amounts(1)), any::<bool>()).prop_map(
        |(desired, allocated, actuated, restartable)| Container { desired, allocated, actuated, restartable },
    )
}

fn pod() -> impl Strategy<Value = Pod> {
    let containers = (vec(container(), 0..3), vec(container(), 1..3));
    let whole = (of(amounts(0)), of((of(amounts(1)), of(amounts(1)))));
    (containers, whole, amounts(0), any::<bool>()).prop_map(|(containers, whole, overhead, infeasible)| Pod {
        init_containers: containers.0,
        containers: containers.1,
        level: whole.0,
        reported: whole.1,
        overhead,
        infeasible,
    })
}

proptest! {
    #[test]
    fn requests_are_the_largest_of_three_sums(pod in pod()) {
        prop_assert_eq!(pod.inputs().effective(WITH_STATUS), pod.effective());
    }

    #[test]
    fn a_status_that_cannot_count_changes_nothing(pod in pod()) {
        let inputs = pod.inputs();
        if !inputs.status_counts() {
            prop_assert_eq!(inputs.effective(WITH_STATUS), inputs.effective(RequestOptions::default()));
        }
    }

    #[test]
    fn a_finished_resize_counts_as_the_spec(pod in pod()) {
        let mut inputs = RequestInputs { pod_level_status: None, resize_infeasible: false, ..pod.inputs() };
        for container in inputs.containers.iter_mut().chain(&mut inputs.init_containers) {
            container.status = StatusRequests {
                allocated: container.requests.clone(),
                actuated: container.requests.clone(),
            };
        }
        prop_assert!(!inputs.status_counts());
        prop_assert_eq!(inputs.effective(WITH_STATUS), inputs.effective(RequestOptions::default()));
    }
}
