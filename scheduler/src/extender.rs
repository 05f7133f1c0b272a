//! Extenders: other processes that are asked within a cycle. The call itself is injected.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use supercargo_framework::PodInfo;

/// An extender as far as the cycle is concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtenderSpec {
    /// What names it in logs and to [`Calls`]; upstream uses the URL prefix.
    pub name: Arc<str>,
    /// Whether it filters.
    pub filters: bool,
    /// Its weight, if it prioritizes.
    pub weight: Option<i64>,
    /// Whether scheduling goes on without it when it fails.
    pub ignorable: bool,
    /// The resources that make a pod its business; empty means every pod is.
    pub managed_resources: Vec<Arc<str>>,
}

impl ExtenderSpec {
    /// Whether the pod is any business of the extender.
    pub(crate) fn is_interested(&self, pod: &PodInfo) -> bool {
        let requests = &pod.spec.requests.resource;
        self.managed_resources.is_empty() || self.managed_resources.iter().any(|name| requests.get(name) != 0)
    }
}

/// A question to an extender.
#[derive(Clone, Debug)]
pub enum ExtenderQuestion<'a> {
    /// Which of the nodes will do?
    Filter {
        /// The pod.
        pod: &'a Arc<PodInfo>,
        /// The nodes that have passed so far.
        nodes: &'a [Arc<str>],
    },
    /// How good are they?
    Prioritize {
        /// The pod.
        pod: &'a Arc<PodInfo>,
        /// The feasible nodes.
        nodes: &'a [Arc<str>],
    },
}

/// An extender's answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExtenderAnswer {
    /// To Filter.
    Filtered {
        /// The nodes that will do.
        nodes: Vec<Arc<str>>,
        /// The others, with reasons; removing pods might help.
        failed: Vec<(Arc<str>, String)>,
        /// The others, with reasons; removing pods does not help.
        failed_and_unresolvable: Vec<(Arc<str>, String)>,
    },
    /// To Prioritize: nodes with scores from 0 to 10.
    Prioritized(Vec<(Arc<str>, i64)>),
}

/// What a cycle waits for. The shell's implementation blocks the scheduler's thread on the network for a bounded time; a
/// replay's answers from its log.
pub trait Calls {
    /// Asks an extender. The error is a text for people.
    fn ask(
        &mut self,
        extender: &ExtenderSpec,
        question: ExtenderQuestion<'_>,
    ) -> Result<ExtenderAnswer, String>;
}

/// For a scheduler without extenders.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoCalls;

impl Calls for NoCalls {
    fn ask(&mut self, extender: &ExtenderSpec, _: ExtenderQuestion<'_>) -> Result<ExtenderAnswer, String> {
        Err(format!("no way to call extender {} was given", extender.name))
    }
}
