mod histories;
mod properties;

use serde_json::{Value, json};
use supercargo_framework::affinity::RawRequirement;
use supercargo_framework::event::{Change, QueueingHint};
use supercargo_framework::node::HOSTNAME;
use supercargo_framework::objects::{Body, Object, Objects, Service, Workload, resources};
use supercargo_framework::plugin::PreFilter;
use supercargo_framework::taint::TolerationOperator;
use supercargo_framework::testing::{
    self, NodeBuilder, PodBuilder, node, node_added, node_info, node_updated, nodes, object, pod,
    pod_deleted, pod_updated,
};
use supercargo_framework::{
    Code, Context, CycleState, LabelSelector, Labels, NodeInfo, NodeRecord, Nodes, OwnerRef, Status,
    TaintEffect, Toleration,
};

use super::*;
use crate::testing::{driver, driver_with_args};

pub(super) const ZONE: &str = "topology.kubernetes.io/zone";

/// A selector of one label.
pub(super) fn selector(key: &str, operator: &str, values: &[&str]) -> LabelSelector {
    let values = values.iter().map(|value| Arc::from(*value)).collect();
    let raw = RawRequirement { key: key.into(), operator: operator.into(), values };
    LabelSelector::parse(&Labels::default(), [raw]).unwrap()
}

/// A hard constraint: pods labelled `app=web`, with a maximum skew of 1.
pub(super) fn hard(key: &str) -> TopologySpreadConstraint {
    TopologySpreadConstraint {
        max_skew: 1,
        topology_key: key.into(),
        hard: true,
        selector: Some(selector("app", "In", &["web"])),
        min_domains: None,
        honors_affinity: true,
        honors_taints: false,
        match_label_keys: Box::default(),
    }
}

/// The same as a soft constraint.
pub(super) fn soft(key: &str) -> TopologySpreadConstraint {
    TopologySpreadConstraint { hard: false, ..hard(key) }
}

pub(super) trait Spread {
    fn spread<const N: usize>(self, constraints: [TopologySpreadConstraint; N]) -> Self;
}

impl Spread for PodBuilder {
    fn spread<const N: usize>(self, constraints: [TopologySpreadConstraint; N]) -> Self {
        self.with_spec(|spec| spec.topology_spread = constraints.into())
    }
}

fn web(name: &str) -> PodBuilder {
    pod(name).label("app", "web")
}

/// A node in a zone, with this many pods labelled `app=web`.
fn holding(node: NodeBuilder, pods: usize) -> NodeInfo {
    let record = node.build();
    let pods: Vec<_> = (0..pods).map(|i| web(&format!("{}-{i}", record.name)).build()).collect();
    node_info(record, pods)
}

fn host(name: &str, zone: &str) -> NodeBuilder {
    node(name).zone(zone).label(HOSTNAME, name)
}

fn verdicts(pod: PodBuilder, cluster: &Nodes) -> String {
    let verdicts = driver(NAME).verdicts(&pod.build(), cluster, &Objects::default());
    let short = verdicts.iter().map(|status| match (status.code(), &*status.message()) {
        (Code::Success, _) => "ok",
        (Code::Unschedulable, "node(s) didn't match pod topology spread constraints") => "skewed",
        (
            Code::UnschedulableAndUnresolvable,
            "node(s) didn't match pod topology spread constraints (missing required label)",
        ) => "unlabelled",
        other => panic!("{other:?}"),
    });
    short.collect::<Vec<_>>().join(" ")
}

#[test]
fn nodes_that_exceed_max_skew_are_rejected() {
    let three = || {
        nodes([
            holding(host("a", "z1"), 2),
            holding(host("b", "z2"), 1),
            holding(host("c", "z2"), 0),
            holding(node("d"), 0),
        ])
    };
    let constraint = |change: fn(&mut TopologySpreadConstraint)| {
        let mut constraint = hard(ZONE);
        change(&mut constraint);
        [constraint]
    };
    let cases = [
        ("the fuller zone is too full", web("p").spread([hard(ZONE)]), "skewed ok ok unlabelled"),
        (
            "a larger skew is allowed",
            web("p").spread(constraint(|constraint| constraint.max_skew = 2)),
            "ok ok ok unlabelled",
        ),
        ("a pod that is not spread itself", pod("p").spread([hard(ZONE)]), "ok ok ok unlabelled"),
        ("every host by itself", web("p").spread([hard(HOSTNAME)]), "skewed skewed ok unlabelled"),
        (
            "both constraints must hold",
            web("p").spread([hard(ZONE), hard(HOSTNAME)]),
            "skewed skewed ok unlabelled",
        ),
        ("preferences do not filter", web("p").spread([soft(ZONE)]), "ok ok ok ok"),
        (
            "no selector, nothing to spread",
            web("p").spread(constraint(|c| c.selector = None)),
            "ok ok ok unlabelled",
        ),
        (
            "fewer than minDomains: the minimum is 0",
            web("p").spread(constraint(|c| c.min_domains = Some(3))),
            "skewed skewed skewed unlabelled",
        ),
        (
            "as many as minDomains",
            web("p").spread(constraint(|c| c.min_domains = Some(2))),
            "skewed ok ok unlabelled",
        ),
        (
            "pods of another namespace do not count",
            web("p").namespace("other").spread([hard(ZONE)]),
            "ok ok ok unlabelled",
        ),
    ];
    for (name, pod, expected) in cases {
        assert_eq!(verdicts(pod, &three()), expected, "{name}");
    }
}

#[test]
fn an_empty_selector_counts_only_the_incoming_pod() {
    let everything = TopologySpreadConstraint { selector: Some(LabelSelector::default()), ..hard(ZONE) };
    let cluster = nodes([holding(host("a", "z1"), 5), holding(host("b", "z2"), 0)]);
    assert_eq!(verdicts(pod("p").spread([everything.clone()]), &cluster), "ok ok");
    let strict = TopologySpreadConstraint { max_skew: 0, ..everything };
    assert_eq!(verdicts(pod("p").spread([strict]), &cluster), "skewed skewed");
}

#[test]
fn terminating_pods_do_not_count() {
    let leaving = node_info(host("a", "z1").build(), [web("x").terminating().build()]);
    let cluster = nodes([leaving, holding(host("b", "z2"), 0)]);
    assert_eq!(verdicts(web("p").spread([hard(ZONE)]), &cluster), "ok ok");
}

/// Upstream's quirks of AddPod and RemovePod.
#[test]
fn dry_runs_count_terminating_pods_and_empty_selectors_match() {
    let leaving = web("x").terminating().build();
    let infos = [node_info(host("a", "z1").build(), [leaving.clone()]), holding(host("b", "z2"), 0)];
    let (cluster, none) = (nodes(infos.clone()), Objects::default());
    let cx = Context::at_rest(&cluster, &none);
    let points = driver(NAME).points.clone();
    let (pre_filter, filter) = (points.pre_filter.unwrap(), points.filter.unwrap());
    let extensions = pre_filter.extensions().unwrap();
    let verdicts = |pod: &PodInfo, change: &dyn Fn(&mut CycleState)| {
        let mut state = CycleState::new();
        pre_filter.pre_filter(&cx, &mut state, pod);
        change(&mut state);
        [0, 1].map(|i: usize| filter.filter(&cx, &state, pod, &infos[i]).is_success())
    };
    let pod = web("p").spread([hard(ZONE)]).build();
    assert_eq!(verdicts(&pod, &|_| ()), [true, true]);
    let removed = |state: &mut CycleState| {
        extensions.remove_pod(state, &pod, &leaving, &infos[0]);
    };
    assert_eq!(verdicts(&pod, &removed), [true, false], "zone 1 has one pod less than none");
    let everything = TopologySpreadConstraint { selector: Some(LabelSelector::default()), ..hard(ZONE) };
    let pod = web("p").spread([everything]).build();
    let added = |state: &mut CycleState| {
        extensions.add_pod(state, &pod, &web("y").build(), &infos[0]);
    };
    assert_eq!(verdicts(&pod, &added), [false, true]);
}

#[test]
fn node_inclusion_policies_exclude_nodes() {
    let tainted = || host("c", "z3").taint("k", "v", TaintEffect::NoSchedule);
    let cluster = |last: NodeBuilder| {
        nodes([
            holding(host("a", "z1").label("disk", "ssd"), 1),
            holding(host("b", "z2").label("disk", "ssd"), 1),
            holding(last, 0),
        ])
    };
    let constraint = |honors_affinity, honors_taints| {
        [TopologySpreadConstraint { honors_affinity, honors_taints, ..hard(ZONE) }]
    };
    let cases = [
        ("the selector leaves zone 3 out", true, false, host("c", "z3"), "ok ok ok"),
        ("zone 3 counts all the same", false, false, host("c", "z3"), "skewed skewed ok"),
        ("the taint is ignored", false, false, tainted(), "skewed skewed ok"),
        ("the taint leaves zone 3 out", false, true, tainted(), "ok ok ok"),
        (
            "a PreferNoSchedule taint",
            false,
            true,
            host("c", "z3").taint("k", "v", TaintEffect::PreferNoSchedule),
            "skewed skewed ok",
        ),
    ];
    for (name, honors_affinity, honors_taints, last, expected) in cases {
        let pod = web("p").node_selector("disk", "ssd").spread(constraint(honors_affinity, honors_taints));
        assert_eq!(verdicts(pod, &cluster(last)), expected, "{name}");
    }
    let tolerant = web("p")
        .node_selector("disk", "ssd")
        .tolerates("k", "v", TaintEffect::NoSchedule)
        .spread(constraint(false, true));
    assert_eq!(verdicts(tolerant, &cluster(tainted())), "skewed skewed ok");
}

#[test]
fn excluded_domains_count_no_pods() {
    let cluster = nodes([holding(host("a", "z1").label("disk", "ssd"), 1), holding(host("b", "z2"), 3)]);
    assert_eq!(verdicts(web("p").node_selector("disk", "ssd").spread([hard(ZONE)]), &cluster), "ok ok");
}

#[test]
fn match_label_keys_require_their_feature_gate() {
    let constraint = TopologySpreadConstraint {
        match_label_keys: ["version".into(), "absent".into()].into(),
        ..hard(ZONE)
    };
    let old = web("x").label("version", "1").build();
    let cluster = nodes([node_info(host("a", "z1").build(), [old]), holding(host("b", "z2"), 0)]);
    let pod = |version| web("p").label("version", version).spread([constraint.clone()]).build();
    let allows = |features: Features, version| {
        let plugin = from_args(&Value::Null, &features).unwrap();
        let driver = testing::Driver::new(plugin);
        let verdicts = driver.verdicts(&pod(version), &cluster, &Objects::default());
        verdicts.iter().map(Status::is_success).collect::<Vec<_>>()
    };
    let off = || Features::default().with(Feature::MatchLabelKeysInPodTopologySpread, false);
    assert_eq!(allows(Features::default(), "2"), [true, true], "another version does not count");
    assert_eq!(allows(Features::default(), "1"), [false, true]);
    assert_eq!(allows(off(), "2"), [false, true]);
}

#[test]
fn pods_without_hard_constraints_skip_filter() {
    for pod in [web("p"), web("p").spread([soft(ZONE)])] {
        assert!(matches!(driver(NAME).pre_filter(&pod.build()), PreFilter::Skip));
    }
    assert!(matches!(driver(NAME).pre_filter(&web("p").spread([hard(ZONE)]).build()), PreFilter::AllNodes));
}

/// A cluster of services and workloads.
pub(super) fn objects(list: impl IntoIterator<Item = Object>) -> Objects {
    let mut objects = Objects::default();
    for object in list {
        objects.insert(Arc::new(object));
    }
    objects
}

pub(super) fn service(key: &str, labels: &[(&str, &str)]) -> Object {
    let selector = labels.iter().copied().collect::<Labels>().into();
    object(&resources::SERVICE, key, Body::Service(Service { selector }))
}

fn workload(resource: &Text, key: &str, selector: Option<LabelSelector>) -> Object {
    object(resource, key, Body::Workload(Workload { selector }))
}

fn owned(pod: PodBuilder, api_version: &str, kind: &str) -> PodBuilder {
    let owner = OwnerRef {
        api_version: api_version.into(),
        kind: kind.into(),
        name: "owner".into(),
        uid: "owner".into(),
    };
    pod.with(|pod| pod.controller = Some(Arc::new(owner)))
}

#[test]
fn default_constraints_use_services_and_owners() {
    let list = json!({"defaultingType": "List", "defaultConstraints":
        [{"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}]});
    let driver = driver_with_args(NAME, list);
    let cluster = || nodes([holding(host("a", "z1"), 2), holding(host("b", "z2"), 0)]);
    let app = || Some(selector("app", "In", &["web"]));
    let other = || Some(selector("app", "In", &["other"]));
    let replica_set = |selector| workload(&resources::REPLICA_SET, "default/owner", selector);
    let of_replica_set = || owned(web("p"), "apps/v1", "ReplicaSet");
    let selecting = || service("default/s", &[("app", "web")]);
    let cases = vec![
        ("nothing selects the pod", web("p"), objects([]), true),
        ("a service", web("p"), objects([selecting()]), false),
        ("a service of another namespace", web("p"), objects([service("other/s", &[("app", "web")])]), true),
        ("a service that selects others", web("p"), objects([service("default/s", &[("app", "x")])]), true),
        ("a service without selector", web("p"), objects([service("default/s", &[])]), true),
        ("its replica set", of_replica_set(), objects([replica_set(app())]), false),
        ("a replica set that is not its owner", web("p"), objects([replica_set(app())]), true),
        ("an owner that is not there", of_replica_set(), objects([]), true),
        ("an owner without selector", of_replica_set(), objects([replica_set(None)]), true),
        ("both must select", of_replica_set(), objects([selecting(), replica_set(other())]), true),
        (
            "its stateful set",
            owned(web("p"), "apps/v1", "StatefulSet"),
            objects([workload(&resources::STATEFUL_SET, "default/owner", app())]),
            false,
        ),
        (
            "its replication controller",
            owned(web("p"), "v1", "ReplicationController"),
            objects([workload(&resources::REPLICATION_CONTROLLER, "default/owner", app())]),
            false,
        ),
        (
            "a replication controller takes precedence",
            owned(pod("p").label("app", "old"), "v1", "ReplicationController"),
            objects([
                service("default/s", &[("app", "old")]),
                workload(&resources::REPLICATION_CONTROLLER, "default/owner", app()),
            ]),
            false,
        ),
        (
            "an owner of another group",
            owned(web("p"), "example.com/v1", "ReplicaSet"),
            objects([replica_set(app())]),
            true,
        ),
        ("constraints of its own come first", web("p").spread([soft("rack")]), objects([selecting()]), true),
    ];
    for (name, pod, objects, fits) in cases {
        let verdicts = driver.verdicts(&pod.build(), &cluster(), &objects);
        assert_eq!(verdicts[0].is_success(), fits, "{name}");
        assert!(verdicts[1].is_success(), "{name}");
    }
}

fn scores(pod: PodBuilder, cluster: &Nodes, objects: &Objects) -> Option<Vec<i64>> {
    driver(NAME).scores_in(&pod.build(), cluster, objects)
}

#[test]
fn domains_with_fewer_pods_score_higher() {
    let cluster = nodes([
        holding(host("a", "z1"), 2),
        holding(host("b", "z1"), 0),
        holding(host("c", "z2"), 1),
        holding(node("d"), 0),
    ]);
    let none = Objects::default();
    // Zones: ln(4) per pod, counts 2, 2 and 1; hosts: ln(5) per pod, counts 2, 0 and 1.
    assert_eq!(scores(web("p").spread([soft(ZONE)]), &cluster, &none), Some(vec![33, 33, 100, 0]));
    assert_eq!(scores(web("p").spread([soft(HOSTNAME)]), &cluster, &none), Some(vec![0, 100, 33, 0]));
    assert_eq!(scores(web("p").spread([soft("rack")]), &cluster, &none), Some(vec![0, 0, 0, 0]));
    assert_eq!(scores(web("p").spread([hard(ZONE)]), &cluster, &none), None);
    assert_eq!(scores(web("p"), &cluster, &none), None, "nothing selects the pod");
    let empty = nodes([holding(host("a", "z1"), 0), holding(host("c", "z2"), 0)]);
    assert_eq!(scores(web("p").spread([soft(ZONE)]), &empty, &none), Some(vec![100, 100]));
}

#[test]
fn a_larger_max_skew_reduces_score_differences() {
    let cluster = nodes([holding(host("a", "z1"), 2), holding(host("b", "z2"), 0)]);
    let with_skew = |max_skew| {
        let constraint = TopologySpreadConstraint { max_skew, ..soft(ZONE) };
        driver(NAME).raw_scores(&web("p").spread([constraint]).build(), &cluster)
    };
    // Two pods at ln(4) each are 2.77.
    assert_eq!(with_skew(1), Some(vec![3, 0]));
    assert_eq!(with_skew(5), Some(vec![7, 4]));
}

#[test]
fn system_defaults_spread_over_hosts_and_zones() {
    let cluster = nodes([
        holding(host("a", "z1"), 1),
        holding(host("b", "z2"), 0),
        holding(node("c").label(HOSTNAME, "c"), 0),
    ]);
    let services = objects([service("default/s", &[("app", "web")])]);
    // Hosts ln(5), zones ln(5) with the nameless one, skews 3 and 5: 9.2, 6 and, by host alone, 2.
    let driver = driver(NAME);
    assert_eq!(driver.scores_in(&web("p").build(), &cluster, &services), Some(vec![22, 55, 100]));
    let off = driver_with_args(NAME, json!({"defaultingType": "List"}));
    assert_eq!(off.scores_in(&web("p").build(), &cluster, &services), None);
}

#[test]
fn default_constraints_read_only_needed_kinds() {
    let build = |args| from_args(&args, &Features::default()).unwrap();
    let list = || json!({"defaultingType": "List"});
    assert_eq!(
        build(Value::Null).reads(),
        ["Service", "ReplicationController", "apps/ReplicaSet", "apps/StatefulSet"]
    );
    assert!(build(list()).reads().is_empty());
}

#[test]
fn signatures_contain_the_effective_constraints() {
    let driver = driver(NAME);
    let sign_in = |pod: PodBuilder, objects: &Objects| {
        let mut signer = Signer::default();
        driver.sign_in(&pod.build(), &Nodes::default(), objects, &mut signer).expect("the plugin signs");
        signer.finish()
    };
    let sign = |pod| sign_in(pod, &Objects::default());
    let with = |constraint| sign(web("p").spread([constraint]));
    assert_eq!(sign(web("p")), sign(pod("q").namespace("other")), "nothing applies to either");
    assert_eq!(with(hard(ZONE)), sign(web("q").label("id", "2").priority(3).spread([hard(ZONE)])));
    for other in [
        soft(ZONE),
        hard("rack"),
        TopologySpreadConstraint { max_skew: 2, ..hard(ZONE) },
        TopologySpreadConstraint { min_domains: Some(2), ..hard(ZONE) },
        TopologySpreadConstraint { selector: None, ..hard(ZONE) },
        TopologySpreadConstraint { selector: Some(selector("app", "Exists", &[])), ..hard(ZONE) },
        TopologySpreadConstraint { honors_affinity: false, ..hard(ZONE) },
        TopologySpreadConstraint { honors_taints: true, ..hard(ZONE) },
        TopologySpreadConstraint { match_label_keys: ["app".into()].into(), ..hard(ZONE) },
    ] {
        assert_ne!(with(hard(ZONE)), with(other));
    }
    let spread = || web("p").spread([hard(ZONE)]);
    assert_ne!(sign(spread()), sign(spread().namespace("other")));
    assert_ne!(sign(spread()), sign(pod("p").spread([hard(ZONE)])), "it does not select itself");
    assert_ne!(sign(spread()), sign(spread().node_selector("disk", "ssd")), "other nodes count");
    assert_ne!(sign(spread()), sign(spread().required_affinity("disk", "Exists", &[])));
    let tolerant = |pod: PodBuilder| pod.tolerates("k", "", TaintEffect::NoSchedule);
    assert_eq!(sign(spread()), sign(tolerant(spread())), "taints are ignored");
    let tainted = || web("p").spread([TopologySpreadConstraint { honors_taints: true, ..hard(ZONE) }]);
    assert_ne!(sign(tainted()), sign(tolerant(tainted())));
    let all = || web("p").spread([TopologySpreadConstraint { honors_affinity: false, ..hard(ZONE) }]);
    assert_eq!(sign(all()), sign(all().node_selector("disk", "ssd")), "node affinity is ignored");
    let services = objects([service("default/s", &[("app", "web")])]);
    assert_ne!(sign(web("p")), sign_in(web("p"), &services), "a default constraint applies");
    assert_eq!(sign_in(web("p"), &services), sign_in(web("q").label("id", "2"), &services));
}

#[test]
fn counted_pod_changes_wake_the_pod() {
    use ActionType as Action;
    let waiting = || web("p").spread([hard(ZONE)]).build();
    let there = || web("x").node("n");
    let plain = || pod("x").node("n").build();
    let added = |pod: PodInfo| Change::Pod { old: None, new: Some(Arc::new(pod)) };
    let cases = [
        ("a new pod that counts", waiting(), Action::ADD, added(there().build()), true),
        ("a new pod that does not count", waiting(), Action::ADD, added(plain()), false),
        ("a new pod elsewhere", waiting(), Action::ADD, added(there().namespace("o").build()), false),
        ("a new pod without node", waiting(), Action::ADD, added(web("x").build()), false),
        (
            "a new pod with a nominated node",
            waiting(),
            Action::ADD,
            added(web("x").nominated("n").build()),
            true,
        ),
        ("a deleted pod that counted", waiting(), Action::DELETE, pod_deleted(there().build()), true),
        ("a deleted pod that did not count", waiting(), Action::DELETE, pod_deleted(plain()), false),
        ("a deleted pod without node", waiting(), Action::DELETE, pod_deleted(web("x").build()), false),
        (
            "a pod that counts no longer",
            waiting(),
            Action::UPDATE_POD_LABEL,
            pod_updated(there().build(), plain()),
            true,
        ),
        (
            "a pod that counts from now on",
            waiting(),
            Action::UPDATE_POD_LABEL,
            pod_updated(plain(), there().build()),
            true,
        ),
        (
            "a label that does not matter",
            waiting(),
            Action::UPDATE_POD_LABEL,
            pod_updated(there().build(), there().label("x", "").build()),
            false,
        ),
    ];
    for (name, waiting, action, change, queues) in cases {
        let hint = driver(NAME).hint(EventResource::AssignedPod, action, &waiting, &change);
        assert_eq!(hint, Some(Ok(QueueingHint::queue_if(queues))), "{name}");
    }
    let nothing = Change::Unspecified;
    let hint = driver(NAME).hint(EventResource::AssignedPod, Action::ADD, &waiting(), &nothing);
    assert!(matches!(hint, Some(Err(_))));
    let toleration = Action::UPDATE_POD_TOLERATION;
    let of_others = driver(NAME).hint(EventResource::AssignedPod, toleration, &waiting(), &nothing);
    assert_eq!(of_others, None, "tolerations of other pods do not count");
}

#[test]
fn own_labels_and_tolerations_wake_the_pod_if_they_count() {
    let (label, toleration) = (ActionType::UPDATE_POD_LABEL, ActionType::UPDATE_POD_TOLERATION);
    let waiting = || web("p").spread([hard(ZONE)]);
    let heeding = || web("p").spread([TopologySpreadConstraint { honors_taints: true, ..hard(ZONE) }]);
    let tolerant = |pod: PodBuilder| {
        pod.toleration(Toleration {
            key: "k".into(),
            operator: TolerationOperator::Exists,
            value: "".into(),
            effect: None,
        })
    };
    let plain = pod("p").spread([hard(ZONE)]);
    let cases = [
        ("it counts no longer", label, waiting(), plain, true),
        ("a label that does not matter", label, waiting(), waiting().label("x", ""), false),
        ("a new toleration, where taints count", toleration, heeding(), tolerant(heeding()), true),
        ("a new toleration, where they do not", toleration, waiting(), tolerant(waiting()), false),
    ];
    for (name, action, old, new, queues) in cases {
        let (old, new) = (old.build(), new.build());
        let change = pod_updated(old, new.clone());
        let hint = driver(NAME).hint(EventResource::TargetPod, action, &new, &change);
        assert_eq!(hint, Some(Ok(QueueingHint::queue_if(queues))), "{name}");
    }
}

#[test]
fn nodes_that_change_domain_or_inclusion_wake_the_pod() {
    use ActionType as Action;
    let both = || host("n", "z1").build();
    let one = || node("n").label(HOSTNAME, "n").build();
    let moved = || host("n", "z2").build();
    let deleted = |node: NodeRecord| Change::Node { old: Some(Arc::new(node)), new: None };
    let tainted = || host("n", "z1").taint("k", "", TaintEffect::NoSchedule).build();
    let (label, taint) = (Action::UPDATE_NODE_LABEL, Action::UPDATE_NODE_TAINT);
    let cases = [
        ("a new node with every key", Action::ADD, node_added(both()), true),
        ("a new node that lacks one", Action::ADD, node_added(one()), false),
        ("a deleted node with every key", Action::DELETE, deleted(both()), true),
        ("a deleted node that lacked one", Action::DELETE, deleted(one()), false),
        ("it has every key now", label, node_updated(one(), both()), true),
        ("it lacks one now", label, node_updated(both(), one()), true),
        ("it moved", label, node_updated(both(), moved()), true),
        ("another label", label, node_updated(both(), host("n", "z1").label("x", "").build()), false),
        ("its taints changed", taint, node_updated(tainted(), both()), true),
        (
            "it still lacks one",
            taint,
            node_updated(one(), node("n").taint("k", "", TaintEffect::NoSchedule).build()),
            false,
        ),
    ];
    let waiting = web("p").spread([hard(ZONE), hard(HOSTNAME)]).build();
    for (name, action, change, queues) in cases {
        let hint = driver(NAME).hint(EventResource::Node, action, &waiting, &change);
        assert_eq!(hint, Some(Ok(QueueingHint::queue_if(queues))), "{name}");
    }
}

#[test]
fn hints_consider_default_constraints() {
    let list = json!({"defaultingType": "List", "defaultConstraints":
        [{"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}]});
    let gone = pod_deleted(web("x").node("n").build());
    let hint = |objects: &Objects| {
        let driver = driver_with_args(NAME, list.clone());
        driver.hint_in(objects, EventResource::AssignedPod, ActionType::DELETE, &web("p").build(), &gone)
    };
    let services = objects([service("default/s", &[("app", "web")])]);
    assert_eq!(hint(&services), Some(Ok(QueueingHint::Queue)));
    assert_eq!(hint(&Objects::default()), Some(Ok(QueueingHint::Skip)));
}

#[test]
fn filter_and_score_without_state_fail() {
    let points = from_args(&Value::Null, &Features::default()).unwrap().extension_points();
    let (cluster, none) = (Nodes::default(), Objects::default());
    let cx = Context::at_rest(&cluster, &none);
    let state = CycleState::new();
    let info = holding(host("a", "z1"), 0);
    let status = points.filter.map(|filter| filter.filter(&cx, &state, &web("p").build(), &info));
    assert_eq!(
        status,
        Some(Status::error("reading \"PreFilterPodTopologySpread\" from cycleState: not found"))
    );
    let score = points.score.map(|score| score.score(&cx, &state, &web("p").build(), &info));
    assert_eq!(
        score,
        Some(Err(Status::error("error reading \"PreScorePodTopologySpread\" from cycleState: not found")))
    );
}
