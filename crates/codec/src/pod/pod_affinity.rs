//! Constraints on other pods: affinity, anti-affinity and topology spread.

use serde::Deserialize;
use supercargo_framework::errors::aggregate;
use supercargo_framework::pod_affinity::{PodAffinity, PodAffinityTerm, WeightedPodAffinityTerm};
use supercargo_framework::topology_spread::TopologySpreadConstraint;

use super::slim::Affinity;
use crate::interners::Interners;
use crate::json::{List, Obj, Str};
use crate::proto::message;
use crate::selector::WireLabelSelector;

/// `podAffinity` and `podAntiAffinity`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct WirePodAffinity<'a> {
    #[serde(borrow, rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    required: List<Obj<Term<'a>>>,
    #[serde(borrow, rename = "preferredDuringSchedulingIgnoredDuringExecution")]
    preferred: List<Obj<WeightedTerm<'a>>>,
}

message!(WirePodAffinity { 1 => required, 2 => preferred });

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct WeightedTerm<'a> {
    weight: Option<i32>,
    #[serde(borrow)]
    pod_affinity_term: Obj<Term<'a>>,
}

message!(WeightedTerm { 1 => weight, 2 => pod_affinity_term });

/// `matchLabelKeys` and `mismatchLabelKeys` are omitted: the API server merges them into the
/// selector.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Term<'a> {
    #[serde(borrow)]
    label_selector: Option<Obj<WireLabelSelector<'a>>>,
    #[serde(borrow)]
    namespaces: List<Str<'a>>,
    #[serde(borrow)]
    topology_key: Str<'a>,
    #[serde(borrow)]
    namespace_selector: Option<Obj<WireLabelSelector<'a>>>,
}

message!(Term { 1 => label_selector, 2 => namespaces, 3 => topology_key, 4 => namespace_selector });

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct SpreadConstraint<'a> {
    max_skew: Option<i32>,
    #[serde(borrow)]
    topology_key: Str<'a>,
    #[serde(borrow)]
    when_unsatisfiable: Str<'a>,
    #[serde(borrow)]
    label_selector: Option<Obj<WireLabelSelector<'a>>>,
    min_domains: Option<i32>,
    #[serde(borrow)]
    node_affinity_policy: Str<'a>,
    #[serde(borrow)]
    node_taints_policy: Str<'a>,
    #[serde(borrow)]
    match_label_keys: List<Str<'a>>,
}

message!(SpreadConstraint { 1 => max_skew, 2 => topology_key, 3 => when_unsatisfiable, 4 => label_selector, 5 => min_domains, 6 => node_affinity_policy, 7 => node_taints_policy, 8 => match_label_keys });

impl Interners {
    /// Affinity and anti-affinity. A list with an invalid term becomes empty, and the reason is
    /// kept, as upstream.
    pub(super) fn pod_affinity(&mut self, affinity: &Affinity<'_>) -> Option<Box<PodAffinity>> {
        let (attract, repel) = (&affinity.pod_affinity, &affinity.pod_anti_affinity);
        let mut reasons = Vec::new();
        let parsed = PodAffinity {
            required_affinity: kept("requiredAffinityTerms", self.terms(&attract.required), &mut reasons),
            required_anti_affinity: kept(
                "requiredAntiAffinityTerms",
                self.terms(&repel.required),
                &mut reasons,
            ),
            preferred_affinity: kept(
                "preferredAffinityTerms",
                self.weighted_terms(&attract.preferred),
                &mut reasons,
            ),
            preferred_anti_affinity: kept(
                "preferredAntiAffinityTerms",
                self.weighted_terms(&repel.preferred),
                &mut reasons,
            ),
            invalid: aggregate(reasons).map(|text| self.text(&text)),
        };
        (parsed != PodAffinity::default()).then(|| Box::new(parsed))
    }

    fn terms(&mut self, terms: &[Obj<Term<'_>>]) -> Result<Box<[PodAffinityTerm]>, String> {
        terms.iter().map(|term| self.pod_affinity_term(term)).collect()
    }

    fn weighted_terms(
        &mut self,
        terms: &[Obj<WeightedTerm<'_>>],
    ) -> Result<Box<[WeightedPodAffinityTerm]>, String> {
        let weighted = |term: &Obj<WeightedTerm<'_>>| {
            Ok(WeightedPodAffinityTerm {
                weight: term.weight.unwrap_or_default(),
                term: self.pod_affinity_term(&term.pod_affinity_term)?,
            })
        };
        terms.iter().map(weighted).collect()
    }

    fn pod_affinity_term(&mut self, term: &Term<'_>) -> Result<PodAffinityTerm, String> {
        let mut namespaces: Vec<_> = term.namespaces.iter().map(|name| self.text(name)).collect();
        namespaces.sort();
        namespaces.dedup();
        Ok(PodAffinityTerm {
            selector: self.label_selector(term.label_selector.as_ref())?,
            topology_key: self.text(&term.topology_key),
            namespaces: namespaces.into(),
            namespace_selector: self.label_selector(term.namespace_selector.as_ref())?,
        })
    }

    /// The constraint. The error is the reason why its selector is invalid.
    pub(super) fn spread_constraint(
        &mut self,
        constraint: &SpreadConstraint<'_>,
    ) -> Result<TopologySpreadConstraint, String> {
        Ok(TopologySpreadConstraint {
            max_skew: constraint.max_skew.unwrap_or_default(),
            topology_key: self.text(&constraint.topology_key),
            hard: &*constraint.when_unsatisfiable == "DoNotSchedule",
            selector: self.label_selector(constraint.label_selector.as_ref())?,
            min_domains: constraint.min_domains,
            honors_affinity: constraint
                .node_affinity_policy
                .non_empty()
                .is_none_or(|policy| policy == "Honor"),
            honors_taints: &*constraint.node_taints_policy == "Honor",
            match_label_keys: constraint.match_label_keys.iter().map(|key| self.text(key)).collect(),
        })
    }
}

fn kept<T>(list: &str, parsed: Result<Box<[T]>, String>, reasons: &mut Vec<String>) -> Box<[T]> {
    parsed.unwrap_or_else(|reason| {
        reasons.push(format!("{list}: {reason}"));
        Box::default()
    })
}
