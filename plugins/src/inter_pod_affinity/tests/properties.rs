//! Compares the plugin with a naive implementation of the API documentation: every pod against
//! every other, for every node.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use supercargo_framework::node::HOSTNAME;
use supercargo_framework::objects::Objects;
use supercargo_framework::pod_affinity::{PodAffinity, PodAffinityTerm, WeightedPodAffinityTerm};
use supercargo_framework::testing::{node, node_info, nodes, pod};
use supercargo_framework::{LabelSelector, Labels, NodeInfo, NodeRecord, Status};

use super::super::*;
use super::{namespace, objects, selector};
use crate::dry_run;
use crate::testing::driver;

fn any_term() -> impl Strategy<Value = PodAffinityTerm> {
    let selectors = vec![
        None,
        Some(LabelSelector::default()),
        Some(selector("app", "In", &["web"])),
        Some(selector("app", "In", &["web"])),
        Some(selector("app", "In", &["db"])),
        Some(selector("app", "NotIn", &["web"])),
        Some(selector("tier", "In", &["1"])),
        Some(selector("tier", "DoesNotExist", &[])),
    ];
    let namespace_selectors = vec![
        None,
        None,
        Some(LabelSelector::default()),
        Some(selector("team", "In", &["blue"])),
        Some(selector("team", "NotIn", &["blue"])),
        Some(selector("team", "DoesNotExist", &[])),
    ];
    let named = option::weighted(0.2, select(vec!["default", "blue", "unknown"]));
    (select(selectors), select(vec!["zone", HOSTNAME]), named, select(namespace_selectors)).prop_map(
        |(selector, key, named, namespace_selector)| PodAffinityTerm {
            selector,
            topology_key: key.into(),
            namespaces: named.into_iter().map(Into::into).collect(),
            namespace_selector,
        },
    )
}

fn terms(most: usize) -> impl Strategy<Value = Box<[PodAffinityTerm]>> {
    vec(any_term(), 0..=most).prop_map(Into::into)
}

fn weighted(most: usize) -> impl Strategy<Value = Box<[WeightedPodAffinityTerm]>> {
    let weighted = (1..=100, any_term()).prop_map(|(weight, term)| WeightedPodAffinityTerm { weight, term });
    vec(weighted, 0..=most).prop_map(Into::into)
}

pub(super) fn any_affinity(required: usize, preferred: usize) -> impl Strategy<Value = PodAffinity> {
    (terms(required), terms(required), weighted(preferred), weighted(preferred)).prop_map(
        |(required_affinity, required_anti_affinity, preferred_affinity, preferred_anti_affinity)| {
            PodAffinity {
                required_affinity,
                required_anti_affinity,
                preferred_affinity,
                preferred_anti_affinity,
                invalid: None,
            }
        },
    )
}

pub(super) fn any_pod(required: usize, preferred: usize) -> impl Strategy<Value = PodInfo> {
    let labels = (select(vec!["", "web", "web", "db"]), select(vec!["", "1", "2"]));
    let namespaces = select(vec!["default", "default", "default", "blue", "unknown"]);
    let affinity = option::of(any_affinity(required, preferred));
    (labels, namespaces, affinity, 0..1_000_000_u32).prop_map(|((app, tier), namespace, affinity, id)| {
        let mut builder = pod(&format!("pod-{id}")).namespace(namespace);
        for (key, value) in [("app", app), ("tier", tier)] {
            builder = if value.is_empty() { builder } else { builder.label(key, value) };
        }
        builder.with_spec(|spec| spec.pod_affinity = affinity.map(Box::new)).build()
    })
}

pub(super) fn any_node(name: String) -> impl Strategy<Value = NodeInfo> {
    let labels = (option::weighted(0.8, select(vec!["z1", "z2", "z3"])), prop::bool::weighted(0.9));
    (labels, vec(any_pod(1, 1), 0..3)).prop_map(move |((zone, host), pods)| {
        let mut builder = node(&name);
        for (key, value) in [("zone", zone), (HOSTNAME, host.then_some(&*name))] {
            builder = value.into_iter().fold(builder, |builder, value| builder.label(key, value));
        }
        node_info(builder.build(), pods)
    })
}

fn any_cluster() -> impl Strategy<Value = Vec<NodeInfo>> {
    (0..6_usize)
        .prop_flat_map(|count| (0..count).map(|i| any_node(format!("n{i}")).boxed()).collect::<Vec<_>>())
}

/// The known namespaces; `unknown` is not.
fn known() -> Objects {
    objects([namespace("default", "red"), namespace("blue", "blue")])
}

fn labels_of(namespace: &str) -> Labels {
    let team = match namespace {
        "default" => "red",
        "blue" => "blue",
        _ => return Labels::default(),
    };
    [("team", team)].into_iter().collect()
}

/// Whether a term of `owner` matches `target`.
fn speaks_of(term: &PodAffinityTerm, owner: &PodInfo, target: &PodInfo) -> bool {
    let by_name = match (&term.namespaces[..], &term.namespace_selector) {
        ([], None) => target.namespace == owner.namespace,
        (names, _) => names.contains(&target.namespace),
    };
    let by_label = |labels| term.namespace_selector.as_ref().is_some_and(|selector| selector.matches(labels));
    let selected = term.selector.as_ref().is_some_and(|selector| selector.matches(&target.labels));
    selected && (by_name || by_label(&labels_of(&target.namespace)))
}

/// The same for the incoming pod: a selector that is not empty stands for namespaces that exist.
fn incoming_speaks_of(term: &PodAffinityTerm, incoming: &PodInfo, target: &PodInfo) -> bool {
    let is_unknown = &*target.namespace == "unknown";
    match &term.namespace_selector {
        Some(selector) if is_unknown && !selector.is_empty() => {
            let by_name = PodAffinityTerm { namespace_selector: Some(nothing()), ..term.clone() };
            speaks_of(&by_name, incoming, target)
        }
        _ => speaks_of(term, incoming, target),
    }
}

/// A selector that matches no namespace.
fn nothing() -> LabelSelector {
    selector("team", "In", &["nobody"])
}

fn same_domain(key: &str, a: &NodeRecord, b: &NodeRecord) -> bool {
    a.labels.get(key).is_some() && a.labels.get(key) == b.labels.get(key)
}

struct Naive<'a> {
    incoming: &'a PodInfo,
    affinity: PodAffinity,
    cluster: &'a [NodeInfo],
}

impl<'a> Naive<'a> {
    fn new(incoming: &'a PodInfo, cluster: &'a [NodeInfo]) -> Self {
        let affinity = incoming.spec.pod_affinity.as_deref().cloned().unwrap_or_default();
        Self { incoming, affinity, cluster }
    }

    fn placed(&self) -> impl Iterator<Item = (&NodeRecord, &PodInfo)> {
        self.cluster.iter().flat_map(|info| info.pods().iter().map(|pod| (&**info.node(), &**pod)))
    }

    /// Whether every required affinity term matches a pod.
    fn is_wanted(&self, pod: &PodInfo) -> bool {
        self.affinity.required_affinity.iter().all(|term| incoming_speaks_of(term, self.incoming, pod))
    }

    fn is_together(&self, node: &NodeRecord) -> bool {
        let terms = &self.affinity.required_affinity;
        let in_a_domain =
            |at: &NodeRecord| terms.iter().any(|term| at.labels.get(&term.topology_key).is_some());
        let nobody = !self.placed().any(|(at, pod)| self.is_wanted(pod) && in_a_domain(at));
        let first = nobody && self.is_wanted(self.incoming);
        terms.iter().all(|term| {
            let found = self
                .placed()
                .any(|(at, pod)| self.is_wanted(pod) && same_domain(&term.topology_key, at, node));
            node.labels.get(&term.topology_key).is_some() && (found || first)
        })
    }

    fn verdict(&self, node: &NodeRecord) -> Status {
        let near = |term: &PodAffinityTerm, at: &NodeRecord| same_domain(&term.topology_key, at, node);
        let averse = |(at, pod): (&NodeRecord, &PodInfo)| {
            let terms = self.affinity.required_anti_affinity.iter();
            terms.clone().any(|term| near(term, at) && incoming_speaks_of(term, self.incoming, pod))
        };
        let unwanted = |(at, pod): (&NodeRecord, &PodInfo)| {
            let theirs = pod.spec.pod_affinity.as_deref();
            let terms = theirs.map_or(&[][..], |affinity| &affinity.required_anti_affinity);
            terms.iter().any(|term| near(term, at) && speaks_of(term, pod, self.incoming))
        };
        if !self.is_together(node) {
            Status::unresolvable("node(s) didn't match pod affinity rules")
        } else if self.placed().any(averse) {
            Status::unschedulable("node(s) didn't match pod anti-affinity rules")
        } else if self.placed().any(unwanted) {
            Status::unschedulable("node(s) didn't satisfy existing pods anti-affinity rules")
        } else {
            Status::success()
        }
    }

    fn raw_score(&self, node: &NodeRecord, hard_weight: i64) -> i64 {
        let mut sum = 0;
        for (at, pod) in self.placed() {
            let mut count = |term: &PodAffinityTerm, weight: i64, speaks: bool| {
                if speaks && same_domain(&term.topology_key, at, node) {
                    sum += weight;
                }
            };
            let own = |term: &PodAffinityTerm| incoming_speaks_of(term, self.incoming, pod);
            let other = |term: &PodAffinityTerm| speaks_of(term, pod, self.incoming);
            for WeightedPodAffinityTerm { weight, term } in &self.affinity.preferred_affinity {
                count(term, i64::from(*weight), own(term));
            }
            for WeightedPodAffinityTerm { weight, term } in &self.affinity.preferred_anti_affinity {
                count(term, -i64::from(*weight), own(term));
            }
            let theirs = pod.spec.pod_affinity.as_deref().cloned().unwrap_or_default();
            for term in &theirs.required_affinity {
                count(term, hard_weight, other(term));
            }
            for WeightedPodAffinityTerm { weight, term } in &theirs.preferred_affinity {
                count(term, i64::from(*weight), other(term));
            }
            for WeightedPodAffinityTerm { weight, term } in &theirs.preferred_anti_affinity {
                count(term, -i64::from(*weight), other(term));
            }
        }
        sum
    }

    fn scores(&self) -> Vec<i64> {
        let raw: Vec<_> = self.cluster.iter().map(|info| self.raw_score(info.node(), 1)).collect();
        let (least, most) = (raw.iter().min().copied(), raw.iter().max().copied());
        let (least, most) = (least.unwrap_or(0), most.unwrap_or(0));
        let normal = |raw: &i64| match most - least {
            0 => 0,
            range => (100.0 * ((raw - least) as f64 / range as f64)) as i64,
        };
        raw.iter().map(normal).collect()
    }
}

proptest! {
    #[test]
    fn filter_follows_the_documentation(
        pod in prop_oneof![3 => any_pod(2, 0), 1 => any_pod(24, 0)],
        cluster in any_cluster(),
    ) {
        let naive = Naive::new(&pod, &cluster);
        let expected: Vec<_> = cluster.iter().map(|info| naive.verdict(info.node())).collect();
        let verdicts = driver(NAME).verdicts(&pod, &nodes(cluster.clone()), &known());
        prop_assert_eq!(verdicts, expected);
    }

    #[test]
    fn score_follows_the_documentation(
        pod in prop_oneof![3 => any_pod(0, 2), 1 => any_pod(0, 24)],
        cluster in any_cluster(),
    ) {
        let expected = Naive::new(&pod, &cluster).scores();
        let scores = driver(NAME).scores_in(&pod, &nodes(cluster.clone()), &known());
        // A skipped plugin gives every node the same score.
        prop_assert_eq!(scores.unwrap_or_else(|| vec![0; cluster.len()]), expected);
    }

    #[test]
    fn dry_run_state_equals_a_fresh_one(
        pod in any_pod(2, 0),
        cluster in any_cluster(),
        steps in vec((0..6_usize, option::of(any_pod(1, 0))), 1..8),
    ) {
        dry_run::check(&driver(NAME), &known(), &pod, cluster, steps)?;
    }
}
