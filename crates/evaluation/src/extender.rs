//! Extenders: other processes that take part in scheduling. The caller injects the calls.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use supercargo_framework::plugin::Candidate;
use supercargo_framework::{NodeRecord, PodInfo, Uid};

/// An extender.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExtenderSpec {
    /// Identifies the extender to the implementation of [`Calls`]: two may share a name.
    pub id: usize,
    /// Its name in logs and messages; upstream uses the URL prefix.
    pub name: Arc<str>,
    /// Whether it filters.
    pub filters: bool,
    /// Whether it takes part in preemption.
    pub preempts: bool,
    /// Its weight, if it prioritizes.
    pub weight: Option<i64>,
    /// Whether it binds.
    pub binds: bool,
    /// Whether scheduling continues without it if it fails.
    pub ignorable: bool,
    /// The resources that make a pod relevant to it; empty means that every pod is.
    pub managed_resources: Vec<Arc<str>>,
}

impl ExtenderSpec {
    /// Whether the extender is interested in the pod: a container names one of its resources, even
    /// with the amount 0.
    pub fn is_interested(&self, pod: &PodInfo) -> bool {
        if self.managed_resources.is_empty() {
            return true;
        }
        let manages = |name: &str| self.managed_resources.iter().any(|managed| **managed == *name);
        match pod.raw.as_deref().map(serde_json::from_str::<WholePod<'_>>) {
            Some(Ok(whole)) => whole.resource_names().any(manages),
            _ => {
                let requests = &pod.spec.requests.resource;
                self.managed_resources.iter().any(|name| requests.get(name) != 0)
            }
        }
    }
}

/// The resource names of a whole pod. [`PodInfo`] has no requests for the amount 0.
#[derive(Deserialize)]
struct WholePod<'a> {
    #[serde(borrow, default)]
    spec: WholeSpec<'a>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WholeSpec<'a> {
    #[serde(borrow, default)]
    containers: Option<Vec<Container<'a>>>,
    #[serde(borrow, default)]
    init_containers: Option<Vec<Container<'a>>>,
}

#[derive(Deserialize)]
struct Container<'a> {
    #[serde(borrow, default)]
    resources: Option<Resources<'a>>,
}

#[expect(clippy::zero_sized_map_values, reason = "JSON has a map here")]
#[derive(Deserialize)]
struct Resources<'a> {
    #[serde(borrow, default)]
    requests: Option<Amounts<'a>>,
    #[serde(borrow, default)]
    limits: Option<Amounts<'a>>,
}

#[expect(clippy::zero_sized_map_values, reason = "JSON has a map here")]
type Amounts<'a> = BTreeMap<std::borrow::Cow<'a, str>, IgnoredAny>;

impl WholePod<'_> {
    fn resource_names(&self) -> impl Iterator<Item = &str> {
        let containers = self.spec.containers.iter().chain(&self.spec.init_containers).flatten();
        let resources = containers.filter_map(|container| container.resources.as_ref());
        let amounts = resources.flat_map(|resources| resources.requests.iter().chain(&resources.limits));
        amounts.flat_map(|amounts| amounts.keys().map(|name| &**name))
    }
}

/// A question to an extender.
#[derive(Clone, Copy, Debug)]
pub enum ExtenderQuestion<'a> {
    /// Which nodes fit?
    Filter {
        /// The pod.
        pod: &'a Arc<PodInfo>,
        /// The nodes that have passed all filters so far.
        nodes: &'a [Arc<NodeRecord>],
    },
    /// How do the nodes score?
    Prioritize {
        /// The pod.
        pod: &'a Arc<PodInfo>,
        /// The feasible nodes.
        nodes: &'a [Arc<NodeRecord>],
    },
    /// Which nodes and victims may preemption choose?
    Preempt {
        /// The pod.
        pod: &'a Arc<PodInfo>,
        /// The nodes that the pod fits without some of their pods.
        candidates: &'a [Candidate],
    },
}

/// A node where an extender agrees to preemption.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExtenderVictims {
    /// The node.
    pub node: Arc<str>,
    /// The victims.
    pub victims: Vec<Uid>,
    /// The number of victims that a PodDisruptionBudget protects.
    pub pdb_violations: i64,
}

/// The answer of an extender.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExtenderAnswer {
    /// The answer to Filter.
    Filtered {
        /// The nodes that fit.
        nodes: Vec<Arc<str>>,
        /// Rejected nodes with reasons; removing pods might help.
        failed: Vec<(Arc<str>, String)>,
        /// Rejected nodes with reasons; removing pods does not help.
        failed_and_unresolvable: Vec<(Arc<str>, String)>,
    },
    /// The answer to Prioritize: nodes with scores from 0 to 10.
    Prioritized(Vec<(Arc<str>, i64)>),
    /// The answer to Preempt.
    Preempted(Vec<ExtenderVictims>),
}

/// Calls that a cycle waits for. The implementation in production blocks the scheduler's thread on
/// the network for a bounded time; that of a replay reads the record.
pub trait Calls {
    /// Calls an extender. The error is a text for users.
    fn ask(
        &mut self,
        extender: &ExtenderSpec,
        question: ExtenderQuestion<'_>,
    ) -> Result<ExtenderAnswer, String>;
}

/// Calls of a scheduler without extenders: they fail.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoCalls;

impl Calls for NoCalls {
    fn ask(&mut self, extender: &ExtenderSpec, _: ExtenderQuestion<'_>) -> Result<ExtenderAnswer, String> {
        Err(format!("no way to call extender {} was given", extender.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use supercargo_framework::testing::pod;

    #[test]
    fn extender_is_interested_if_a_container_names_its_resource() {
        let spec = ExtenderSpec { managed_resources: vec!["example.com/gpu".into()], ..Default::default() };
        let cases = [
            (
                "in requests",
                r#"{"containers":[{},{"resources":{"requests":{"example.com/gpu":"1"}}}]}"#,
                true,
            ),
            ("in limits", r#"{"containers":[{"resources":{"limits":{"example.com/gpu":"1"}}}]}"#, true),
            ("asking for none", r#"{"containers":[{"resources":{"limits":{"example.com/gpu":"0"}}}]}"#, true),
            (
                "in an init container",
                r#"{"containers":[],"initContainers":[{"resources":{"requests":{"example.com/gpu":1}}}]}"#,
                true,
            ),
            ("of others", r#"{"containers":[{"resources":{"requests":{"example.com/tpu":"1"}}}]}"#, false),
            ("of none", r#"{"containers":[{"resources":{"requests":null}}],"initContainers":null}"#, false),
            ("elsewhere", r#"{"overhead":{"example.com/gpu":"1"},"containers":[{"resources":{}}]}"#, false),
        ];
        for (name, whole, expected) in cases {
            let raw = format!(r#"{{"metadata":{{"name":"p"}},"spec":{whole}}}"#);
            let pod = pod("p").with(|pod| pod.raw = Some(raw.into())).build();
            assert_eq!(spec.is_interested(&pod), expected, "{name}");
        }
        assert!(
            spec.is_interested(&pod("p").request("example.com/gpu", "1").build()),
            "without the whole pod"
        );
        assert!(!spec.is_interested(&pod("p").build()));
        assert!(ExtenderSpec::default().is_interested(&pod("p").build()), "interested in every pod");
    }
}
