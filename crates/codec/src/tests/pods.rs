//! Decoding of pods.

use serde_json::json;
use supercargo_framework::pod::PodInfo;
use supercargo_framework::ports::Protocol;
use supercargo_framework::selector::LabelSelector;
use supercargo_framework::taint::{TaintEffect, TolerationOperator};
use supercargo_framework::time::Timestamp;
use supercargo_framework::volume::VolumeSource;

use super::{PENDING_POD, RUNNING_POD, pod_json, pod_kind};

fn running() -> PodInfo {
    pod_kind().decode(RUNNING_POD).unwrap()
}

fn decoded(spec: serde_json::Value) -> PodInfo {
    pod_kind().decode(&pod_json(spec, json!({}))).unwrap()
}

fn pending() -> PodInfo {
    pod_kind().decode(PENDING_POD).unwrap()
}

#[test]
fn metadata_keeps_what_scheduling_reads() {
    let pod = running();
    assert_eq!(pod.key().to_string(), "shop/web-5d78c9869d-x2lqk");
    assert_eq!((&*pod.resource_version, pod.generation, pod.terminating), ("48213", 2, false));
    assert_eq!(&*pod.controller.unwrap().uid, "rs-uid");
    assert_eq!(pod.annotations.iter().map(|(key, _)| &**key).collect::<Vec<_>>(), ["example.com/declared"]);
    assert!(pending().terminating);
}

#[test]
fn bytes_that_are_not_utf8_are_replaced() {
    let mut json = pod_json(json!({"nodeName": "n?"}), json!({}));
    *json.iter_mut().find(|byte| **byte == b'?').unwrap() = 0xff;
    let pod = pod_kind().decode(&json).unwrap();
    assert_eq!(pod.node_name.as_deref(), Some("n\u{fffd}"));
}

#[test]
fn only_sidecars_among_init_containers_hold_host_ports() {
    let ports: Vec<_> =
        running().spec.host_ports.iter().map(|p| (p.ip.to_string(), p.protocol, p.port)).collect();
    assert_eq!(ports, [(String::new(), Protocol::Tcp, 8080), ("127.0.0.1".to_owned(), Protocol::Udp, 15001)]);
}

#[test]
fn images_of_volumes_follow_those_of_containers() {
    let spec = running().spec;
    let images: Vec<_> = spec.images.iter().map(|image| &**image).collect();
    assert_eq!(
        images,
        [
            "proxy:2",
            "localhost:5000/migrate:latest",
            "nginx:latest",
            "registry.example.com/models/small:latest"
        ]
    );
}

#[test]
fn unknown_values_in_a_toleration_tolerate_nothing() {
    let tolerations = running().spec.tolerations.clone();
    let parsed: Vec<_> = tolerations.iter().map(|t| (t.operator, t.effect)).collect();
    assert_eq!(
        parsed,
        [
            (TolerationOperator::Exists, Some(TaintEffect::NoExecute)),
            (TolerationOperator::Equal, None),
            (TolerationOperator::Unknown, Some(TaintEffect::Unknown)),
        ]
    );
}

#[test]
fn pod_level_requests_override_containers() {
    let spec = pending().spec;
    assert_eq!(
        (spec.requests.resource.milli_cpu, spec.requests.resource.get("hugepages-2Mi")),
        (3000, 4 << 20)
    );
    assert!(spec.container_requests.is_some());
    assert!(spec.container_requests().resource.is_zero());
    assert!(running().spec.container_requests.is_none());
}

/// The CPU request of a pod.
fn counted_cpu(spec: serde_json::Value, status: serde_json::Value) -> i64 {
    pod_kind().decode(&pod_json(spec, status)).unwrap().requests().resource.milli_cpu
}

/// A container status.
fn report(name: &str, actuated: Option<&str>, allocated: Option<&str>) -> serde_json::Value {
    let mut report = json!({"name": name});
    if let Some(cpu) = actuated {
        report["resources"] = json!({"requests": {"cpu": cpu}});
    }
    if let Some(cpu) = allocated {
        report["allocatedResources"] = json!({"cpu": cpu});
    }
    report
}

#[test]
fn container_statuses_count_during_a_resize() {
    let container = |name| json!({"name": name, "resources": {"requests": {"cpu": "400m"}}});
    let spec = json!({"containers": [container("c")]});
    let absent = json!({"name": "c", "resources": null, "allocatedResources": null});
    let cases = [
        ("a larger amount in force", json!([report("c", Some("500m"), None)]), 500),
        ("a larger amount allocated", json!([report("c", Some("100m"), Some("600m"))]), 600),
        ("a smaller amount in force", json!([report("c", Some("100m"), None)]), 400),
        ("allocated alone", json!([report("c", None, Some("600m"))]), 600),
        ("nothing reported", json!([absent]), 400),
        ("another container's", json!([report("d", Some("500m"), None)]), 400),
        ("two of one name", json!([report("c", Some("500m"), None), report("c", Some("600m"), None)]), 500),
    ];
    for (name, reports, expected) in cases {
        assert_eq!(counted_cpu(spec.clone(), json!({"containerStatuses": reports})), expected, "{name}");
        let init = json!({"initContainers": [container("c")]});
        assert_eq!(counted_cpu(init, json!({"initContainerStatuses": reports})), expected, "init: {name}");
    }
    let both = json!({
        "containerStatuses": [report("c", Some("500m"), None)],
        "initContainerStatuses": [report("c", Some("600m"), None)],
    });
    assert_eq!(counted_cpu(spec, both), 500, "the status of the container comes first");
}

#[test]
fn an_infeasible_resize_leaves_the_spec_out() {
    let spec = json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": "400m"}}}]});
    let reports = json!([report("c", Some("100m"), None)]);
    let pending = |reason| json!({"type": "PodResizePending", "status": "True", "reason": reason});
    let cases = [
        (json!([pending("Infeasible")]), 100),
        (json!([pending("Deferred")]), 400),
        (json!([pending("Deferred"), pending("Infeasible")]), 400),
        (json!([{"type": "PodResizeInProgress", "reason": "Infeasible"}]), 400),
    ];
    for (conditions, expected) in cases {
        let status = json!({"conditions": conditions, "containerStatuses": reports});
        assert_eq!(counted_cpu(spec.clone(), status), expected, "{conditions}");
    }
    let unreported = json!({"conditions": [pending("Infeasible")]});
    assert_eq!(counted_cpu(spec, unreported), 0, "nothing is known to be in force");
}

#[test]
fn the_pod_level_status_counts_during_a_resize() {
    let containers = json!([{"name": "c", "resources": {"requests": {"cpu": "300m"}}}]);
    let with_pod_level = json!({"resources": {"requests": {"cpu": "400m"}}, "containers": containers});
    let without = json!({"containers": containers});
    let cpu = |amount: &str| json!({"requests": {"cpu": amount}});
    let cases = [
        ("no report", json!({}), 400, 300),
        ("a larger amount in force", json!({"resources": cpu("500m")}), 500, 300),
        ("a smaller amount in force", json!({"resources": cpu("200m")}), 400, 300),
        (
            "a larger amount allocated",
            json!({"resources": cpu("100m"), "allocatedResources": {"cpu": "600m"}}),
            600,
            600,
        ),
        ("allocated alone", json!({"allocatedResources": {"cpu": "600m"}}), 400, 300),
        (
            "resources without requests",
            json!({"resources": {}, "allocatedResources": {"cpu": "600m"}}),
            600,
            300,
        ),
        (
            "beside a container's",
            json!({"resources": cpu("100m"), "allocatedResources": {"cpu": "200m"},
                "containerStatuses": [report("c", Some("900m"), None)]}),
            400,
            300,
        ),
    ];
    for (name, status, expected, of_containers) in cases {
        assert_eq!(counted_cpu(with_pod_level.clone(), status.clone()), expected, "{name}");
        assert_eq!(counted_cpu(without.clone(), status), of_containers, "without pod-level requests: {name}");
    }
}

#[test]
fn the_group_of_a_pod_is_its_name() {
    assert_eq!(pending().spec.group().map(|name| &**name), Some("gang"));
    assert_eq!(running().spec.group(), None);
    let spec = json!({"resourceClaims": null, "schedulingGroup": null});
    assert_eq!(decoded(spec).spec.rare, None);
}

#[test]
fn pod_affinity_terms_are_parsed() {
    let affinity = pending().spec.pod_affinity.clone().unwrap();
    let [term] = &*affinity.required_affinity else { panic!("{affinity:?}") };
    assert_eq!(&*term.topology_key, "zone");
    assert!(term.selector.as_ref().is_some_and(LabelSelector::is_empty));
    assert_eq!((term.namespaces.len(), &term.namespace_selector), (0, &None));
    let [term] = &*affinity.required_anti_affinity else { panic!("{affinity:?}") };
    assert_eq!(term.selector, None);
    assert_eq!(affinity.invalid, None);
    assert!(
        decoded(json!({"affinity": {"podAffinity": {}, "podAntiAffinity": null}}))
            .spec
            .pod_affinity
            .is_none()
    );
}

#[test]
fn namespaces_of_a_term_are_a_set() {
    let term = json!({"topologyKey": "k", "namespaces": ["b", "a", "b"], "namespaceSelector": {}});
    let preferred = json!([{"weight": 7, "podAffinityTerm": term}]);
    let affinity = json!({"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}});
    let affinity = decoded(json!({"affinity": affinity})).spec.pod_affinity.clone().unwrap();
    let [preference] = &*affinity.preferred_anti_affinity else { panic!("{affinity:?}") };
    assert_eq!(preference.weight, 7);
    assert_eq!(preference.term.namespaces.iter().map(|name| &**name).collect::<Vec<_>>(), ["a", "b"]);
    assert!(preference.term.namespace_selector.as_ref().is_some_and(LabelSelector::is_empty));
}

#[test]
fn invalid_terms_are_reported_in_upstreams_format() {
    let terms =
        json!([{"labelSelector": {"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]}}]);
    let required = json!({"requiredDuringSchedulingIgnoredDuringExecution": terms});
    let reason = r#"requiredAffinityTerms: "Gt" is not a valid label selector operator"#;
    let invalid = |affinity| {
        let affinity = decoded(json!({"affinity": affinity})).spec.pod_affinity.clone().unwrap();
        assert!(affinity.required_affinity.is_empty());
        affinity.invalid.unwrap().to_string()
    };
    assert_eq!(invalid(json!({"podAffinity": required})), reason);
    assert_eq!(
        invalid(json!({"podAffinity": required, "podAntiAffinity": required})),
        format!("[{reason}, {}]", reason.replace("requiredAff", "requiredAntiAff"))
    );
}

#[test]
fn spread_constraints_have_defaults() {
    let constraints = json!([
        {"maxSkew": 2, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
         "labelSelector": {"matchLabels": {"app": "web"}}, "matchLabelKeys": ["rev"], "minDomains": 3},
        {"maxSkew": 1, "topologyKey": "host", "whenUnsatisfiable": "ScheduleAnyway",
         "nodeAffinityPolicy": "Ignore", "nodeTaintsPolicy": "Honor"}
    ]);
    let pod = decoded(json!({"topologySpreadConstraints": constraints}));
    let [zone, host] = &*pod.spec.topology_spread else { panic!("{:?}", pod.spec.topology_spread) };
    assert_eq!((zone.max_skew, &*zone.topology_key, zone.hard, zone.min_domains), (2, "zone", true, Some(3)));
    assert_eq!((zone.honors_affinity, zone.honors_taints, zone.match_label_keys.len()), (true, false, 1));
    assert_eq!(zone.selector.as_ref().map(|selector| selector.requirements().len()), Some(1));
    assert_eq!((host.hard, host.honors_affinity, host.honors_taints), (false, false, true));
    assert_eq!((&host.selector, host.min_domains), (&None, None));
}

#[test]
fn an_invalid_spread_constraint_is_unsupported() {
    let faulty = json!({"matchExpressions": [{"key": "a", "operator": "In", "values": []}]});
    let constraints = json!([{"labelSelector": {}}, {"labelSelector": faulty}]);
    let spec = decoded(json!({"topologySpreadConstraints": constraints})).spec;
    assert_eq!(spec.topology_spread.len(), 1);
    assert_eq!(
        spec.unsupported().iter().map(|path| &**path).collect::<Vec<_>>(),
        ["spec.topologySpreadConstraints[1].labelSelector"]
    );
}

#[test]
fn only_volumes_that_constrain_nodes_are_kept() {
    let volumes = pending().spec.volumes.clone();
    let names: Vec<_> = volumes.iter().map(|volume| &*volume.name).collect();
    assert_eq!(names, ["data", "scratch", "gce", "aws", "iscsi", "rbd", "inline"]);
    assert_eq!(volumes[0].source, VolumeSource::Claim("data".into()));
    assert_eq!(volumes[1].claim_name("trainer").as_deref(), Some("trainer-scratch"));
    assert_eq!(volumes[6].source, VolumeSource::Csi("secrets.example.com".into()));
    let lun = VolumeSource::Iscsi { target_portal: "t".into(), iqn: "i".into(), lun: 0, read_only: false };
    assert_eq!(volumes[4].source, lun);
    assert!(
        decoded(json!({"volumes": [{"name": "v", "persistentVolumeClaim": null}]})).spec.volumes.is_empty()
    );
}

#[test]
fn required_features_are_derived_from_the_spec() {
    let rules = |action| json!([{"name": "c", "restartPolicyRules": [{"action": action}]}]);
    let mounts =
        |options| json!([{"name": "c", "volumeMounts": [{"name": "v"}, {"bindMountOptions": options}]}]);
    let mount = "VolumeBindMountOptions";
    let restart = "RestartAllContainersOnContainerExits";
    let user = "UserNamespacesHostNetworkSupport";
    let cases = [
        (json!({"containers": rules("Restart")}), vec![]),
        (json!({"containers": rules("RestartAllContainers")}), vec![restart]),
        (json!({"initContainers": rules("RestartAllContainers")}), vec![restart]),
        (json!({"hostNetwork": true, "hostUsers": false}), vec![user]),
        (json!({"hostNetwork": true}), vec![]),
        (json!({"hostNetwork": false, "hostUsers": false}), vec![]),
        (json!({"containers": mounts(json!(["noexec"]))}), vec![mount]),
        (json!({"initContainers": mounts(json!(["noexec", "nodev"]))}), vec![mount]),
        (json!({"containers": mounts(json!([]))}), vec![]),
        (
            json!({
                "hostNetwork": true,
                "hostUsers": false,
                "containers": rules("RestartAllContainers"),
                "initContainers": mounts(json!(["nosuid"])),
            }),
            vec![restart, user, mount],
        ),
    ];
    for (spec, expected) in cases {
        let found = decoded(spec.clone()).spec;
        assert_eq!(found.required_features.iter().map(|f| &**f).collect::<Vec<_>>(), expected, "{spec}");
    }
}

#[test]
fn affinity_terms_are_parsed_and_invalid_ones_reported() {
    let affinity = pending().spec.node_affinity.clone().unwrap();
    let required = affinity.required.unwrap();
    assert_eq!(required.len(), 4);
    assert_eq!(required[0].match_expressions.len(), 2);
    assert_eq!(required[1].match_fields.len(), 1);
    assert!(!required[2].invalid.is_empty());
    assert!(required[3].is_empty());
    assert_eq!(affinity.preferred[0].weight, 10);
}

#[test]
fn the_status_keeps_what_scheduling_reads() {
    let status = pending().status;
    assert!(!status.terminal);
    assert_eq!(status.nominated_node_name.as_deref(), Some("node-9"));
    let disruption = status.disruption_target.as_ref().unwrap();
    assert_eq!(&*disruption.reason, "PreemptionByScheduler");
    let claims = status.claims.as_ref().unwrap();
    let generated: Vec<_> = claims.generated.iter().map(|one| (&*one.name, one.claim.as_deref())).collect();
    assert_eq!(generated, [("gpu", Some("trainer-gpu-x"))]);
    assert_eq!(&*claims.extended.as_ref().unwrap().claim, "trainer-extended");
    let scheduled = status.pod_scheduled.as_ref().unwrap();
    assert_eq!((&*scheduled.status, &*scheduled.reason), ("False", "Unschedulable"));
    assert_eq!(&*scheduled.message, "0/3 nodes are available: 3 node(s) didn't match \"it\".");
    assert_eq!(scheduled.last_transition, Some(Timestamp(1_772_366_399_000_000)));

    let status = running().status;
    assert_eq!(status.start_time, Some(Timestamp(1_772_359_201_123_456)));
    assert_eq!(status.claims, None);
    assert_eq!(status.pod_scheduled.as_ref().unwrap().observed_generation, Some(1));
}

#[test]
fn a_false_disruption_condition_is_ignored() {
    let status = json!({"conditions": [{"type": "DisruptionTarget", "status": "False", "reason": "R"}]});
    let pod = pod_kind().decode(&pod_json(json!({}), status)).unwrap();
    assert_eq!(pod.status.disruption_target, None);
}

#[test]
fn succeeded_and_failed_pods_are_terminal() {
    for (phase, terminal) in [("Pending", false), ("Running", false), ("Succeeded", true), ("Failed", true)] {
        let pod = pod_kind().decode(&pod_json(json!({}), json!({"phase": phase}))).unwrap();
        assert_eq!(pod.status.terminal, terminal, "{phase}");
    }
}

#[test]
fn escapes_in_any_text_are_resolved() {
    let json = r#"{"metadata": {"namespace": "n\u0073", "name": "\u0070", "uid": "u",
        "labels": {"\u0061pp": "w\u00e9b \"x\" \ud83d\ude80"}}, "sp\u0065c": {"nodeName": "n\/1"}}"#;
    let pod = pod_kind().decode(json.as_bytes()).unwrap();
    assert_eq!(pod.key().to_string(), "ns/p");
    assert_eq!(pod.labels.get("app").map(|value| &**value), Some("wéb \"x\" 🚀"));
    assert_eq!(pod.node_name.as_deref(), Some("n/1"));
}
