mod resizes;

use super::*;

fn container(cpu: i64, memory: i64) -> ContainerRequests {
    let requests = [("cpu", cpu), ("memory", memory)];
    let requests = requests.into_iter().filter(|(_, amount)| *amount >= 0);
    ContainerRequests { requests: requests.map(|(n, a)| (n.into(), a)).collect(), ..Default::default() }
}

fn sidecar(cpu: i64) -> ContainerRequests {
    ContainerRequests { restartable: true, ..container(cpu, 0) }
}

fn cpu(inputs: &RequestInputs, options: RequestOptions) -> i64 {
    inputs.effective(options).resource.milli_cpu
}

#[test]
fn containers_add_up_and_init_containers_peak() {
    let cases = [
        ("containers add up", vec![], vec![container(100, 1), container(200, 1)], 300),
        ("a larger init container wins", vec![container(500, 1)], vec![container(100, 1)], 500),
        ("sidecars count with the containers", vec![sidecar(50)], vec![container(100, 1)], 150),
        (
            "an init container runs beside the sidecars before it",
            vec![sidecar(50), container(500, 1), sidecar(30)],
            vec![container(100, 1)],
            550,
        ),
    ];
    for (name, init_containers, containers, expected) in cases {
        let inputs = RequestInputs { init_containers, containers, ..Default::default() };
        assert_eq!(cpu(&inputs, RequestOptions::default()), expected, "{name}");
    }
}

#[test]
fn scalar_resources_count_like_cpu() {
    let of_both = |amount: i64, restartable| ContainerRequests {
        requests: vec![("cpu".into(), amount), ("example.com/gpu".into(), amount)],
        restartable,
        ..Default::default()
    };
    let [peak, low] = [
        [of_both(50, true), of_both(500, false), of_both(30, true)],
        [5, 6, 7].map(|amount| of_both(amount, false)),
    ];
    for (init_containers, expected) in [(peak, 550), (low, 110)] {
        let containers = vec![of_both(10, false), of_both(100, false)];
        let inputs =
            RequestInputs { init_containers: init_containers.into(), containers, ..Default::default() };
        let requests = inputs.effective(RequestOptions::default()).resource;
        assert_eq!((requests.milli_cpu, requests.scalar("example.com/gpu")), (expected, expected));
    }
}

#[test]
fn pod_level_requests_replace_and_overhead_adds() {
    let inputs = RequestInputs {
        containers: vec![container(100, 10)],
        pod_level: Some(vec![("cpu".into(), 70)]),
        overhead: vec![("cpu".into(), 5), ("memory".into(), 1)],
        ..Default::default()
    };
    let requests = inputs.effective(RequestOptions::default());
    assert_eq!((requests.resource.milli_cpu, requests.resource.memory), (75, 11));
    assert_eq!(cpu(&inputs, RequestOptions { skip_pod_level: true, ..Default::default() }), 105);
}

#[test]
fn limits_add_up_and_overhead_alone_is_no_limit() {
    let inputs = RequestInputs {
        init_containers: vec![sidecar(50), container(500, 0)],
        containers: vec![container(100, 0)],
        overhead: vec![("cpu".into(), 5), ("memory".into(), 1)],
        ..Default::default()
    };
    assert_eq!(inputs.limits(), Resource::new(555, 0));
    let pod_level = RequestInputs { pod_level: Some(vec![("memory".into(), 10)]), ..inputs };
    assert_eq!(pod_level.limits(), Resource::new(555, 11));
}

#[test]
fn scoring_uses_defaults_for_containers_without_requests() {
    let inputs = RequestInputs {
        containers: vec![container(-1, -1), container(300, -1), container(0, 0)],
        ..Default::default()
    };
    let requests = inputs.effective(RequestOptions::default());
    assert_eq!(requests.resource, Resource::new(300, 0));
    assert_eq!(requests.non_zero_milli_cpu, 100 + 300);
    assert_eq!(requests.non_zero_memory, 2 * DEFAULT_MEMORY);
}

#[test]
fn pod_level_requests_limit_scoring_defaults() {
    let with_pod_level = |name: &str, containers, overhead: &[&str]| RequestInputs {
        containers,
        pod_level: Some(vec![(name.into(), 64)]),
        overhead: overhead.iter().map(|name| (Arc::from(*name), 1)).collect(),
        ..Default::default()
    };
    let half = || vec![container(100, -1), container(-1, -1)];
    let cases = [
        ("asked for by one container", with_pod_level("memory", half(), &[]), (100, 64)),
        ("asked for by none", with_pod_level("cpu", half(), &[]), (64, 2 * DEFAULT_MEMORY)),
        ("asked for by the overhead", with_pod_level("cpu", half(), &["memory"]), (64, 1)),
        (
            "pod-level amounts that do not count",
            with_pod_level("example.com/gpu", half(), &[]),
            (200, 2 * DEFAULT_MEMORY),
        ),
    ];
    for (name, inputs, expected) in cases {
        let requests = inputs.effective(RequestOptions::default());
        assert_eq!((requests.non_zero_milli_cpu, requests.non_zero_memory), expected, "{name}");
    }
}

const WITH_STATUS: RequestOptions = RequestOptions { use_status: true, skip_pod_level: false };

/// Amounts of cpu.
fn cpus(milli: Option<i64>) -> ResourceList {
    milli.map(|milli| ("cpu".into(), milli)).into_iter().collect()
}

/// A container that is resized: the desired, the allocated and the actuated cpu.
fn resized(desired: i64, allocated: Option<i64>, actuated: Option<i64>) -> ContainerRequests {
    ContainerRequests {
        requests: cpus(Some(desired)),
        status: StatusRequests { allocated: cpus(allocated), actuated: cpus(actuated) },
        restartable: false,
    }
}

#[test]
fn the_largest_of_three_sums_counts_during_a_resize() {
    let sidecar = |container| ContainerRequests { restartable: true, ..container };
    let cases = [
        ("nothing reported", vec![], vec![resized(400, None, None)], (400, 0)),
        ("desired", vec![], vec![resized(400, Some(250), Some(200))], (400, 250)),
        ("allocated", vec![], vec![resized(100, Some(250), Some(200))], (250, 250)),
        ("actuated", vec![], vec![resized(100, Some(250), Some(300))], (300, 300)),
        ("allocated is actuated too", vec![], vec![resized(100, Some(250), None)], (250, 250)),
        ("desired is allocated too", vec![], vec![resized(100, None, Some(50))], (100, 50)),
        (
            "one container grows, the other shrinks",
            vec![],
            vec![resized(400, Some(100), Some(100)), resized(100, Some(400), Some(400))],
            (500, 500),
        ),
        (
            "one container without a report",
            vec![],
            vec![resized(400, Some(500), None), resized(100, None, None)],
            (600, 500),
        ),
        (
            "an init container",
            vec![resized(100, Some(600), None)],
            vec![resized(400, None, None)],
            (600, 600),
        ),
        (
            "a sidecar",
            vec![sidecar(resized(100, Some(200), Some(150)))],
            vec![resized(400, None, None)],
            (600, 200),
        ),
    ];
    for (name, init_containers, containers, (feasible, infeasible)) in cases {
        let mut inputs = RequestInputs { init_containers, containers, ..Default::default() };
        let desired = cpu(&inputs, RequestOptions::default());
        assert_eq!(cpu(&inputs, WITH_STATUS), feasible, "{name}");
        inputs.resize_infeasible = true;
        assert_eq!(cpu(&inputs, WITH_STATUS), infeasible, "infeasible: {name}");
        assert_eq!(cpu(&inputs, RequestOptions::default()), desired, "without the status: {name}");
    }
}

#[test]
fn each_resource_has_its_own_largest_sum() {
    let list = |cpu, memory| vec![("cpu".into(), cpu), ("memory".into(), memory)];
    let inputs = RequestInputs {
        containers: vec![ContainerRequests {
            requests: list(400, 10),
            status: StatusRequests { allocated: list(100, 30), actuated: list(200, 20) },
            restartable: false,
        }],
        ..Default::default()
    };
    assert_eq!(inputs.effective(WITH_STATUS).resource, Resource::new(400, 30));
}

#[test]
fn a_reported_list_replaces_the_spec_of_a_container() {
    let inputs = RequestInputs {
        containers: vec![ContainerRequests {
            requests: vec![("cpu".into(), 100), ("example.com/gpu".into(), 2)],
            status: StatusRequests { allocated: cpus(Some(200)), actuated: vec![] },
            restartable: false,
        }],
        resize_infeasible: true,
        ..Default::default()
    };
    let requests = inputs.effective(WITH_STATUS);
    assert_eq!(requests.resource, Resource::new(200, 0));
    assert_eq!(requests.non_zero_memory, DEFAULT_MEMORY);
}

/// A pod with a container of 100 milli-cores, and with these pod-level amounts of cpu.
fn with_pod_level(desired: Option<i64>, status: Option<(Option<i64>, Option<i64>)>) -> RequestInputs {
    RequestInputs {
        containers: vec![container(100, 1)],
        pod_level: desired.map(|milli| cpus(Some(milli))),
        pod_level_status: status.map(|(allocated, actuated)| StatusRequests {
            allocated: cpus(allocated),
            actuated: cpus(actuated),
        }),
        ..Default::default()
    }
}

#[test]
fn the_largest_pod_level_amount_counts_during_a_resize() {
    let (all, no_pod_level) = (WITH_STATUS, RequestOptions { skip_pod_level: true, ..WITH_STATUS });
    let cases = [
        ("not reported", with_pod_level(Some(400), None), (400, 400)),
        ("desired", with_pod_level(Some(400), Some((Some(300), Some(200)))), (400, 300)),
        ("allocated", with_pod_level(Some(400), Some((Some(450), Some(200)))), (450, 450)),
        ("actuated", with_pod_level(Some(400), Some((Some(450), Some(500)))), (500, 500)),
        ("allocated alone", with_pod_level(Some(400), Some((Some(450), None))), (450, 450)),
        ("no amounts", with_pod_level(Some(400), Some((None, None))), (400, 0)),
    ];
    for (name, mut inputs, (feasible, infeasible)) in cases {
        assert_eq!(cpu(&inputs, all), feasible, "{name}");
        assert_eq!(cpu(&inputs, RequestOptions::default()), 400, "without the status: {name}");
        inputs.resize_infeasible = true;
        assert_eq!(cpu(&inputs, all), infeasible, "infeasible: {name}");
    }
    let inputs = with_pod_level(Some(400), Some((Some(50), None)));
    assert_eq!(cpu(&inputs, no_pod_level), 100);
}

#[test]
fn pod_level_status_is_the_sum_if_both_lists_are_reported() {
    let cases = [
        ("both", with_pod_level(None, Some((Some(450), Some(500)))), (500, 500)),
        ("both, smaller than desired", with_pod_level(None, Some((Some(50), Some(60)))), (100, 60)),
        ("allocated alone", with_pod_level(None, Some((Some(450), None))), (100, 0)),
        ("actuated alone", with_pod_level(None, Some((None, Some(500)))), (100, 0)),
    ];
    for (name, mut inputs, (feasible, infeasible)) in cases {
        assert_eq!(cpu(&inputs, WITH_STATUS), feasible, "{name}");
        inputs.resize_infeasible = true;
        assert_eq!(cpu(&inputs, WITH_STATUS), infeasible, "infeasible: {name}");
    }
    let mut reported = with_pod_level(None, Some((Some(450), Some(500))));
    reported.containers[0].status.allocated = cpus(Some(900));
    assert_eq!(cpu(&reported, WITH_STATUS), 500, "the containers' statuses do not count beside it");
}

#[test]
fn the_pod_level_status_can_name_more_than_the_spec() {
    let mut inputs = with_pod_level(Some(400), Some((Some(300), Some(300))));
    let status = inputs.pod_level_status.get_or_insert_default();
    status.actuated.extend([("memory".into(), 7), ("example.com/gpu".into(), 3)]);
    let requests = inputs.effective(WITH_STATUS);
    assert_eq!((requests.resource.milli_cpu, requests.resource.memory), (400, 7));
    assert_eq!(requests.resource.scalar("example.com/gpu"), 3, "as a part of the sum");
    assert_eq!(requests.non_zero_memory, 7);

    let gpu_only = vec![("example.com/gpu".into(), 3)];
    let unsupported =
        RequestInputs { pod_level: Some(gpu_only), ..with_pod_level(None, Some((Some(900), None))) };
    assert_eq!(cpu(&unsupported, WITH_STATUS), 100, "a spec without pod-level amounts has none");
}
