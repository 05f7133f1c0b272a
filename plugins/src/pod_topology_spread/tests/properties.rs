//! Compares the plugin with a naive implementation of the API documentation: count all nodes and
//! pods, for every node.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use supercargo_framework::node::HOSTNAME;
use supercargo_framework::objects::Objects;
use supercargo_framework::taint::first_untolerated;
use supercargo_framework::testing::{node, node_info, nodes, pod};
use supercargo_framework::{LabelSelector, NodeInfo, NodeRecord, Status, TaintEffect};

use super::super::*;
use super::{ZONE, hard, selector};
use crate::dry_run;
use crate::testing::driver;

fn any_selector() -> impl Strategy<Value = Option<LabelSelector>> {
    select(vec![
        None,
        Some(LabelSelector::default()),
        Some(selector("app", "In", &["web"])),
        Some(selector("app", "Exists", &[])),
        Some(selector("app", "NotIn", &["db"])),
    ])
}

fn any_constraint() -> impl Strategy<Value = TopologySpreadConstraint> {
    let keys = select(vec![ZONE, HOSTNAME, "rack"]);
    let version = select(vec![false, true]);
    let policies = (any::<bool>(), any::<bool>());
    (keys, 1..4, any::<bool>(), any_selector(), option::of(1..4), policies, version).prop_map(
        |(key, max_skew, is_hard, selector, min_domains, (honors_affinity, honors_taints), version)| {
            TopologySpreadConstraint {
                max_skew,
                hard: is_hard,
                selector,
                min_domains: min_domains.filter(|_| is_hard),
                honors_affinity,
                honors_taints,
                match_label_keys: version.then(|| "version".into()).into_iter().collect(),
                ..hard(key)
            }
        },
    )
}

/// Any pod as it may be on a node.
pub(super) fn any_pod() -> impl Strategy<Value = PodInfo> {
    let labels = (select(vec!["", "web", "db"]), select(vec!["", "1", "2"]));
    (labels, prop::bool::weighted(0.2), prop::bool::weighted(0.1), 0..1_000_000_u32).prop_map(
        |((app, version), elsewhere, terminating, id)| {
            let mut builder = pod(&format!("pod-{id}"));
            for (key, value) in [("app", app), ("version", version)] {
                builder = if value.is_empty() { builder } else { builder.label(key, value) };
            }
            builder = if elsewhere { builder.namespace("elsewhere") } else { builder };
            (if terminating { builder.terminating() } else { builder }).build()
        },
    )
}

pub(super) fn any_node(name: String) -> impl Strategy<Value = NodeInfo> {
    let labels =
        (option::weighted(0.8, select(vec!["", "z1", "z2", "z3"])), option::of(select(vec!["r1", "r2"])));
    let flags = (prop::bool::weighted(0.9), any::<bool>(), prop::bool::weighted(0.3));
    (labels, flags, vec(any_pod(), 0..5)).prop_map(move |((zone, rack), (host, ssd, tainted), pods)| {
        let mut builder = node(&name);
        let labels = [
            (ZONE, zone),
            ("rack", rack),
            (HOSTNAME, host.then_some(&*name)),
            ("disk", ssd.then_some("ssd")),
        ];
        for (key, value) in labels {
            builder = value.into_iter().fold(builder, |builder, value| builder.label(key, value));
        }
        builder = if tainted { builder.taint("k", "", TaintEffect::NoSchedule) } else { builder };
        node_info(builder.build(), pods)
    })
}

fn any_cluster() -> impl Strategy<Value = Vec<NodeInfo>> {
    (0..7_usize)
        .prop_flat_map(|count| (0..count).map(|i| any_node(format!("n{i}")).boxed()).collect::<Vec<_>>())
}

/// An incoming pod with constraints.
pub(super) fn any_incoming() -> impl Strategy<Value = PodInfo> {
    (any_pod(), vec(any_constraint(), 1..4), any::<bool>(), any::<bool>()).prop_map(
        |(labelled, constraints, ssd, tolerant)| {
            let mut builder = pod("incoming").with_spec(|spec| spec.topology_spread = constraints.into());
            for (key, value) in labelled.labels.iter() {
                builder = builder.label(key, value);
            }
            builder = if ssd { builder.node_selector("disk", "ssd") } else { builder };
            (if tolerant { builder.tolerates("k", "", TaintEffect::NoSchedule) } else { builder }).build()
        },
    )
}

/// The documentation, one function per rule.
struct Naive<'a> {
    pod: &'a PodInfo,
    cluster: &'a [NodeInfo],
    constraints: Vec<&'a TopologySpreadConstraint>,
}

impl<'a> Naive<'a> {
    fn new(pod: &'a PodInfo, cluster: &'a [NodeInfo], hard: bool) -> Self {
        let constraints = pod.spec.topology_spread.iter().filter(|constraint| constraint.hard == hard);
        Self { pod, cluster, constraints: constraints.collect() }
    }

    fn has_all_keys(&self, node: &NodeRecord) -> bool {
        self.constraints.iter().all(|constraint| node.labels.get(&constraint.topology_key).is_some())
    }

    fn is_eligible(&self, constraint: &TopologySpreadConstraint, node: &NodeRecord) -> bool {
        let spec = &self.pod.spec;
        let affine = spec.node_selector.is_subset_of(&node.labels);
        let tolerated = first_untolerated(&node.taints, &spec.tolerations).is_none();
        self.has_all_keys(node)
            && (!constraint.honors_affinity || affine)
            && (!constraint.honors_taints || tolerated)
    }

    fn selects(&self, constraint: &TopologySpreadConstraint, other: &PodInfo) -> bool {
        constraint.selector.as_ref().is_some_and(|selector| selector.matches(&other.labels))
            && constraint.match_label_keys.iter().all(|key| {
                let value = self.pod.labels.get(key);
                value.is_none() || other.labels.get(key) == value
            })
    }

    fn count_on(&self, constraint: &TopologySpreadConstraint, info: &NodeInfo) -> i64 {
        let narrowed = constraint.match_label_keys.iter().any(|key| self.pod.labels.get(key).is_some());
        if constraint.selector.as_ref().is_some_and(LabelSelector::is_empty) && !narrowed {
            return 0; // upstream's quirk
        }
        let counted = info.pods().iter().filter(|other| {
            other.namespace == self.pod.namespace && !other.terminating && self.selects(constraint, other)
        });
        counted.count() as i64
    }

    fn domains(&self, constraint: &TopologySpreadConstraint) -> BTreeMap<&str, i64> {
        let mut domains = BTreeMap::new();
        for info in self.cluster.iter().filter(|info| self.is_eligible(constraint, info.node())) {
            if let Some(domain) = info.node().labels.get(&constraint.topology_key) {
                *domains.entry(&**domain).or_default() += self.count_on(constraint, info);
            }
        }
        domains
    }

    fn verdict(&self, node: &NodeRecord) -> Status {
        for constraint in &self.constraints {
            let Some(domain) = node.labels.get(&constraint.topology_key) else {
                return Status::unresolvable(
                    "node(s) didn't match pod topology spread constraints (missing required label)",
                );
            };
            let domains = self.domains(constraint);
            let enough = domains.len() as i64 >= i64::from(constraint.min_domains.unwrap_or(1));
            let least = if enough { domains.values().copied().min().unwrap_or(0) } else { 0 };
            let here = domains.get(&**domain).copied().unwrap_or(0);
            let with_pod = here + i64::from(self.selects(constraint, self.pod));
            if with_pod - least > i64::from(constraint.max_skew) {
                return Status::unschedulable("node(s) didn't match pod topology spread constraints");
            }
        }
        Status::success()
    }

    /// The scores of all nodes, all of them feasible.
    fn scores(&self) -> Option<Vec<i64>> {
        if self.constraints.is_empty() {
            return None;
        }
        let scored: Vec<_> = self.cluster.iter().filter(|info| self.has_all_keys(info.node())).collect();
        let raw = |info: &NodeInfo| {
            let terms = self.constraints.iter().map(|constraint| {
                let key = &constraint.topology_key;
                let domain = info.node().labels.get(key);
                let mut domains: Vec<_> = scored.iter().map(|info| info.node().labels.get(key)).collect();
                domains.sort();
                domains.dedup();
                let (size, count) = if **key == *HOSTNAME {
                    (scored.len(), self.count_on(constraint, info))
                } else {
                    let counts = self.domains(constraint);
                    let here = domain.and_then(|domain| counts.get(&**domain));
                    (domains.len(), here.copied().unwrap_or(0))
                };
                count as f64 * ((size + 2) as f64).ln() + f64::from(constraint.max_skew - 1)
            });
            terms.sum::<f64>().round() as i64
        };
        let raws: Vec<_> = scored.iter().map(|info| raw(info)).collect();
        let (least, most) = (raws.iter().min().copied(), raws.iter().max().copied());
        let (least, most) = (least.unwrap_or(0), most.unwrap_or(0));
        let normal = |info: &NodeInfo| match most {
            _ if !self.has_all_keys(info.node()) => 0,
            0 => 100,
            _ => 100 * (most + least - raw(info)) / most,
        };
        Some(self.cluster.iter().map(normal).collect())
    }
}

proptest! {
    #[test]
    fn filter_follows_the_documentation(pod in any_incoming(), cluster in any_cluster()) {
        let naive = Naive::new(&pod, &cluster, true);
        let expected: Vec<_> = cluster.iter().map(|info| naive.verdict(info.node())).collect();
        let verdicts = driver(NAME).verdicts(&pod, &nodes(cluster.clone()), &Objects::default());
        prop_assert_eq!(verdicts, expected);
    }

    #[test]
    fn score_follows_the_documentation(pod in any_incoming(), cluster in any_cluster()) {
        let expected = Naive::new(&pod, &cluster, false).scores();
        let scores = driver(NAME).scores_in(&pod, &nodes(cluster.clone()), &Objects::default());
        prop_assert_eq!(scores, expected);
    }

    /// Except for upstream's quirks: in a dry run terminating pods count, and an empty selector
    /// matches any pod.
    #[test]
    fn dry_run_state_equals_a_fresh_one(
        pod in any_incoming(),
        cluster in any_cluster(),
        steps in vec((0..7_usize, option::of(any_pod())), 1..8),
    ) {
        let empty = |constraint: &TopologySpreadConstraint| {
            constraint.selector.as_ref().is_some_and(LabelSelector::is_empty)
        };
        prop_assume!(!pod.spec.topology_spread.iter().any(empty));
        let stays = |mut pod: PodInfo| {
            pod.terminating = false;
            pod
        };
        let staying = |info: &NodeInfo| {
            node_info((**info.node()).clone(), info.pods().iter().map(|pod| stays((**pod).clone())))
        };
        let cluster: Vec<_> = cluster.iter().map(staying).collect();
        let steps = steps.into_iter().map(|(node, added)| (node, added.map(stays))).collect();
        dry_run::check(&driver(NAME), &Objects::default(), &pod, cluster, steps)?;
    }
}
