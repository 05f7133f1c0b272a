//! What changes of the cluster lead to.

use std::sync::Arc;

use proptest::prelude::*;
use supercargo_framework::objects::{Body, PodDisruptionBudget, resources};
use supercargo_framework::pod::{OwnerRef, PodKey};
use supercargo_framework::testing::{PodBuilder, object, pod};
use supercargo_framework::volume::{Volume, VolumeSource};
use supercargo_framework::{LabelSelector, TaintEffect};

use super::fits::{asks, bed, with_cpus};
use super::test_bed::{TestBed, all_plugins, options};
use crate::{End, ExtenderSpec, Fork, Input, Notification, Options, Verb, WhatIf, WhatIfError};

pub(super) fn owned(pod: PodBuilder, kind: &str) -> PodBuilder {
    let owner = OwnerRef {
        api_version: "apps/v1".into(),
        kind: kind.into(),
        name: "owner".into(),
        uid: "owner".into(),
    };
    pod.with(|pod| pod.controller = Some(Arc::new(owner)))
}

fn replica(name: &str, cpus: u32) -> PodBuilder {
    owned(asks(name, cpus).label("app", "web"), "ReplicaSet")
}

fn budget(name: &str, allowed: i32) -> Input {
    let labels = pod("web").label("app", "web").build().labels;
    let body = PodDisruptionBudget {
        selector: Some(LabelSelector::parse(&labels, []).unwrap()),
        disruptions_allowed: allowed,
        ..PodDisruptionBudget::default()
    };
    let key = format!("default/{name}");
    let object = object(&resources::POD_DISRUPTION_BUDGET, &key, Body::PodDisruptionBudget(body));
    Input::Object(Notification::Added(Arc::new(object)))
}

pub(super) fn key(name: &str) -> PodKey {
    PodKey { namespace: "default".into(), name: name.into() }
}

fn drain(name: &str) -> Verb {
    Verb::Drain(vec![name.into()])
}

fn fail(name: &str) -> Verb {
    Verb::Fail(vec![name.into()])
}

fn try_what_if(bed: TestBed, verbs: &[Verb]) -> Result<WhatIf, WhatIfError> {
    Fork::new(bed.scheduler, bed.now).what_if(verbs, 20)
}

pub(super) fn what_if(bed: TestBed, verbs: &[Verb]) -> WhatIf {
    let what_if = try_what_if(bed, verbs).unwrap();
    assert!(what_if.is_still);
    what_if
}

pub(super) fn lines(what_if: &WhatIf) -> Vec<String> {
    let line = |it: &crate::PodOutcome| {
        let from = it.from.as_deref().unwrap_or("none");
        let end = match &it.end {
            End::On(node) => node.to_string(),
            End::Pending(why) => {
                let reasons = why.iter().flat_map(|why| &why.refusals).map(|it| it.reason.to_string());
                format!("pending: {}", reasons.collect::<Vec<_>>().join(", "))
            }
            End::Gone => "gone".to_owned(),
            End::HeldUp { node, budgets } if **node == *from => format!("held up by {}", budgets.join(", ")),
            End::HeldUp { node, budgets } => format!("{node}, held up by {}", budgets.join(", ")),
            End::Back(node) => format!("{node} again"),
            End::Unknown => "unknown".to_owned(),
        };
        format!("{}: {from} to {end}{}", it.pod.name, if it.is_preempted { ", preempted" } else { "" })
    };
    what_if.pods.iter().map(line).collect()
}

#[test]
fn without_a_change_nothing_differs() {
    let mut bed = bed(&[("a", 4)]);
    bed.assigned(replica("old", 1).node("a"));
    bed.pod(replica("new", 1));
    bed.pod(replica("big", 9));
    assert_eq!(lines(&what_if(bed, &[])), Vec::<String>::new());
}

#[test]
fn drained_pods_go_where_there_is_room() {
    let mut bed = bed(&[("a", 8), ("b", 3)]);
    for name in ["w1", "w2"] {
        bed.assigned(replica(name, 2).node("a"));
    }
    bed.assigned(owned(asks("agent", 1), "DaemonSet").node("a"));
    bed.assigned(owned(asks("static", 1), "Node").node("a"));
    bed.assigned(asks("bare", 1).node("a"));
    let what_if = what_if(bed, &[drain("a")]);
    let refused = "pending: node(s) were unschedulable, Insufficient cpu";
    assert_eq!(
        lines(&what_if),
        ["bare: a to gone".to_owned(), "w1: a to b".to_owned(), format!("w2: a to {refused}")]
    );
    assert_eq!(what_if.of_nodes, 2);
}

#[test]
fn a_drain_waits_for_replacements_that_budgets_demand() {
    let with_room = |cpus| {
        let mut bed = bed(&[("a", 8), ("b", cpus)]);
        for name in ["w1", "w2", "w3"] {
            bed.assigned(replica(name, 1).node("a"));
        }
        bed.handle(budget("web", 1));
        lines(&what_if(bed, &[drain("a")]))
    };
    assert_eq!(with_room(8), ["w1: a to b", "w2: a to b", "w3: a to b"]);
    let refused = "pending: node(s) were unschedulable, Insufficient cpu";
    assert_eq!(
        with_room(1),
        ["w1: a to b".to_owned(), format!("w2: a to {refused}"), "w3: a to held up by web".to_owned()]
    );
}

#[test]
fn budgets_count_the_pods_that_have_a_node() {
    let drained = |verbs: &[Verb]| {
        let mut bed = bed(&[("a", 8), ("b", 1), ("c", 8)]);
        bed.assigned(replica("w1", 1).node("a"));
        bed.assigned(replica("w2", 1).node("a"));
        bed.assigned(replica("w3", 1).node("c").terminating());
        bed.handle(budget("web", 1));
        lines(&what_if(bed, verbs))
    };
    assert_eq!(drained(&[drain("a")]), ["w1: a to c", "w2: a to c"]);
    let delete = Verb::Delete(key("w1"));
    assert_eq!(drained(&[delete, drain("a")]), ["w2: a to held up by web"]);
    assert_eq!(drained(&[drain("c")]), Vec::<String>::new(), "no budget protects a terminating pod");
}

#[test]
fn a_new_pod_is_held_up_where_it_went() {
    let mut bed = bed(&[("a", 8)]);
    bed.assigned(replica("w", 1).node("a"));
    bed.handle(budget("web", 0));
    let more = Verb::AddPods { like: key("w"), count: 1 };
    // The second one makes room for the eviction of the first.
    assert_eq!(lines(&what_if(bed, &[more, drain("a")]))[1], "w-copy-1: none to a, held up by web");
}

#[test]
fn a_pod_that_tolerates_the_cordon_comes_back() {
    let mut bed = bed(&[("a", 8)]);
    let tolerant = replica("w", 1).tolerates("node.kubernetes.io/unschedulable", "", TaintEffect::NoSchedule);
    bed.assigned(tolerant.node("a"));
    assert_eq!(lines(&what_if(bed, &[drain("a")])), ["w: a to a again"]);
}

#[test]
fn extenders_are_not_asked() {
    let extender = ExtenderSpec { name: "x".into(), filters: true, ..ExtenderSpec::default() };
    let options = Options { extenders: vec![extender], ..options(all_plugins(Vec::new())) };
    let mut bed = TestBed::of(options);
    bed.node(with_cpus("a", 4));
    bed.node(with_cpus("b", 4));
    bed.assigned(replica("w", 1).node("a"));
    assert_eq!(lines(&what_if(bed, &[fail("a")])), ["w: a to b"]);
}

#[test]
fn new_names_do_not_collide() {
    let mut bed = bed(&[("a", 1), ("a-new-1", 1)]);
    bed.pod(replica("p", 1).node_selector("size", "2"));
    let more = |count| Verb::AddPods { like: key("p"), count };
    let nodes = || Verb::AddNodes { like: "a".into(), count: 1 };
    let what_if = what_if(bed, &[more(1), more(2), nodes(), nodes()]);
    assert_eq!(what_if.pods.len(), 3, "{:?}", lines(&what_if));
}

#[test]
fn preemption_that_happens_anyhow_is_not_the_changes() {
    let mut bed = bed(&[("a", 4), ("b", 1), ("c", 1)]);
    bed.assigned(replica("low", 1).node("a"));
    bed.pod(asks("high", 4).priority(10));
    let lines = lines(&what_if(bed, &[fail("b"), fail("c")]));
    assert_eq!(lines, ["low: b to pending: Insufficient cpu"]);
}

#[test]
fn a_pod_with_two_budgets_cannot_be_drained() {
    let mut bed = bed(&[("a", 8), ("b", 8)]);
    bed.assigned(replica("w", 1).node("a"));
    bed.handle(budget("web", 1));
    bed.handle(budget("also", 1));
    assert_eq!(lines(&what_if(bed, &[drain("a")])), ["w: a to held up by also, web"]);
}

#[test]
fn all_pods_of_failed_nodes_leave() {
    let mut bed = bed(&[("a", 8), ("b", 8), ("c", 1)]);
    bed.assigned(replica("w1", 1).node("a"));
    bed.assigned(replica("w2", 1).node("b"));
    bed.assigned(owned(asks("agent", 1), "DaemonSet").node("a"));
    bed.handle(budget("web", 0));
    let verb = Verb::Fail(vec!["a".into(), "b".into()]);
    let what_if = what_if(bed, &[verb]);
    assert_eq!(lines(&what_if), ["w1: a to c", "w2: b to pending: Insufficient cpu"]);
    assert_eq!(what_if.of_nodes, 1);
}

#[test]
fn new_nodes_take_pending_pods_and_are_well() {
    let mut bed = TestBed::of(options(all_plugins(Vec::new())));
    bed.node(with_cpus("a", 2).unschedulable());
    bed.pod(replica("p1", 2));
    bed.pod(replica("p2", 2));
    let like = Verb::AddNodes { like: "a".into(), count: 2 };
    assert_eq!(lines(&what_if(bed, &[like])), ["p1: none to a-new-1", "p2: none to a-new-2"]);
}

#[test]
fn new_nodes_have_the_pods_of_daemon_sets() {
    let mut bed = bed(&[("a", 3)]);
    bed.assigned(owned(asks("agent", 1), "DaemonSet").node("a"));
    bed.assigned(replica("w", 2).node("a"));
    bed.pod(replica("p", 3));
    let like = Verb::AddNodes { like: "a".into(), count: 1 };
    assert_eq!(lines(&what_if(bed, &[like])), Vec::<String>::new());
}

#[test]
fn a_terminating_pod_is_not_replaced_again() {
    let mut bed = bed(&[("a", 4), ("b", 4)]);
    bed.assigned(replica("old", 1).node("a").terminating());
    bed.assigned(replica("its-replacement", 1).node("b"));
    assert_eq!(lines(&what_if(bed, &[drain("a")])), Vec::<String>::new());
}

#[test]
fn verbs_apply_in_order() {
    let cluster = || {
        let mut bed = bed(&[("a", 4), ("b", 4)]);
        bed.assigned(replica("w", 4).node("a"));
        bed.assigned(replica("x", 4).node("b"));
        bed
    };
    let delete = || Verb::Delete(key("x"));
    assert_eq!(lines(&what_if(cluster(), &[delete(), fail("a")])), ["w: a to b"]);
    let cordon = Verb::Cordon("b".into());
    let what_if = what_if(cluster(), &[delete(), cordon, fail("a"), Verb::Uncordon("b".into())]);
    assert_eq!(lines(&what_if), ["w: a to b"]);
}

#[test]
fn victims_are_replaced_elsewhere() {
    let mut bed = bed(&[("a", 4), ("b", 1)]);
    bed.assigned(replica("low", 1).node("a"));
    bed.assigned(asks("like", 4).priority(10).node("c"));
    let more = Verb::AddPods { like: key("like"), count: 1 };
    assert_eq!(lines(&what_if(bed, &[more])), ["like-copy-1: none to a", "low: a to b, preempted"]);
}

#[test]
fn pods_of_other_schedulers_are_scheduled_by_the_first_profile() {
    let mut bed = bed(&[("a", 4), ("b", 4)]);
    bed.assigned(replica("w", 1).scheduler("another").node("a"));
    bed.pod(replica("p", 4).scheduler("another"));
    bed.assigned(replica("x", 4).node("b"));
    let what_if = what_if(bed, &[Verb::Delete(key("w")), Verb::Delete(key("x"))]);
    assert_eq!(lines(&what_if), ["p: none to a"]);
}

#[test]
fn ephemeral_volumes_of_replacements_are_not_simulated() {
    let volume = Volume { name: "scratch".into(), source: VolumeSource::Ephemeral };
    let with_volume = || replica("w", 1).with_spec(|spec| spec.volumes = [volume.clone()].into()).node("a");
    let mut on_a = bed(&[("a", 4), ("b", 4)]);
    on_a.assigned(with_volume());
    assert_eq!(lines(&what_if(on_a, &[drain("a")])), ["w: a to unknown"]);
    let mut on_a = bed(&[("a", 4)]);
    on_a.assigned(with_volume());
    let more = [Verb::AddPods { like: key("w"), count: 1 }];
    assert_eq!(try_what_if(on_a, &more).unwrap_err(), WhatIfError::Claims(key("w")));
}

#[test]
fn unknown_names_are_errors() {
    assert_eq!(try_what_if(bed(&[]), &[drain("x")]).unwrap_err().to_string(), "there is no node x");
    let delete = Verb::Delete(key("p"));
    let error = try_what_if(bed(&[]), &[delete]).unwrap_err();
    assert_eq!(error.to_string(), "pod default/p does not exist or has ended");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever fails or is drained: nodes are not overcommitted, who stays pending fits nowhere,
    /// and pods on other nodes stay where they are.
    #[test]
    fn the_outcome_is_a_cluster_at_rest(
        cpus in proptest::collection::vec(1..9_u32, 2..5),
        pods in proptest::collection::vec((0..4_usize, 1..4_u32), 0..12),
        pending in proptest::collection::vec(1..6_u32, 0..3),
        allowed in proptest::option::of(0..3_i32),
        drains in any::<bool>(),
    ) {
        let names: Vec<String> = (0..cpus.len()).map(|i| format!("n{i}")).collect();
        let mut bed = bed(&[]);
        for (name, cpus) in names.iter().zip(&cpus) {
            bed.node(with_cpus(name, *cpus));
        }
        let mut free: Vec<i64> = cpus.iter().map(|cpus| i64::from(*cpus)).collect();
        let mut size = std::collections::BTreeMap::new();
        let mut at = std::collections::BTreeMap::new();
        for (i, (node, cpu)) in pods.iter().enumerate() {
            let node = node % cpus.len();
            if free[node] >= i64::from(*cpu) {
                free[node] -= i64::from(*cpu);
                let name = format!("p{i}");
                bed.assigned(replica(&name, *cpu).node(&names[node]));
                at.insert(name.clone(), Some(node));
                size.insert(name, i64::from(*cpu));
            }
        }
        for (i, cpu) in pending.iter().enumerate() {
            bed.pod(replica(&format!("q{i}"), *cpu));
        }
        if let Some(allowed) = allowed {
            bed.handle(budget("web", allowed));
        }
        let verb = if drains { drain("n0") } else { fail("n0") };
        let what_if = what_if(bed, std::slice::from_ref(&verb));
        for outcome in &what_if.pods {
            let is_affected = outcome.from.as_deref() == Some("n0");
            let was_pending = outcome.pod.name.starts_with('q');
            prop_assert!(is_affected || was_pending, "{:?}", lines(&what_if));
            if let Some(place) = at.get_mut(&*outcome.pod.name) {
                *place = match &outcome.end {
                    End::On(node) => names.iter().position(|name| **name == **node),
                    End::HeldUp { .. } => Some(0),
                    _ => None,
                };
            }
            prop_assert!(!matches!(outcome.end, End::Gone | End::Unknown));
            let is_held_up = matches!(outcome.end, End::HeldUp { .. });
            prop_assert!(drains && allowed.is_some() || !is_held_up);
        }
        for (node, cpus) in cpus.iter().enumerate() {
            let on_it: i64 =
                at.iter().filter(|(_, at)| **at == Some(node)).map(|(name, _)| size[name]).sum();
            prop_assert!(on_it <= i64::from(*cpus), "{:?}", lines(&what_if));
        }
        for outcome in &what_if.pods {
            if let End::Pending(Some(why)) = &outcome.end {
                prop_assert!(why.feasible.is_empty(), "{:?}", lines(&what_if));
            }
        }
    }
}
