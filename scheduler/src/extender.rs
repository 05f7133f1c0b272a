//! Extenders: other processes that are asked within a cycle. The call itself is injected.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};
use serde::{Deserialize, Serialize};
use supercargo_framework::{NodeIndex, PodInfo, Status};

use crate::cycle::Cycle;
use crate::diagnosis::Diagnosis;
use crate::failure::FailureKind;

/// The name under which extenders are blamed for a pod that they turned down.
pub(crate) const EXTENDER: &str = "Extender";

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

impl Cycle<'_> {
    /// Lets the extenders filter what is left, one after the other.
    pub(crate) fn extend_filter(
        &self,
        calls: &mut dyn Calls,
        diagnosis: &mut Diagnosis,
        mut feasible: Vec<NodeIndex>,
    ) -> Result<Vec<NodeIndex>, FailureKind> {
        // A panic from here on is no plugin's.
        self.running.take();
        for extender in self.extenders.iter().filter(|e| e.filters && e.is_interested(self.pod)) {
            if feasible.is_empty() {
                break;
            }
            let names = self.names(&feasible);
            let question = ExtenderQuestion::Filter { pod: self.pod, nodes: &names };
            match calls.ask(extender, question) {
                Ok(ExtenderAnswer::Filtered { nodes, failed, failed_and_unresolvable }) => {
                    self.note_failed(diagnosis, failed, Status::unschedulable);
                    self.note_failed(diagnosis, failed_and_unresolvable, Status::unresolvable);
                    let kept: FxHashSet<Arc<str>> = nodes.into_iter().collect();
                    feasible.retain(|index| kept.contains(self.cx.node(*index).name()));
                }
                Ok(ExtenderAnswer::Prioritized(_)) => {
                    let message = format!("extender {} answered another question", extender.name);
                    return Err(FailureKind::Internal(message));
                }
                Err(_) if extender.ignorable => {}
                Err(reason) => return Err(FailureKind::Internal(reason)),
            }
        }
        diagnosis.keep_last_word();
        Ok(feasible)
    }

    /// Notes the nodes that an extender turned down. No plugin is named: the extenders are blamed as one.
    fn note_failed(
        &self,
        diagnosis: &mut Diagnosis,
        failed: Vec<(Arc<str>, String)>,
        status: impl Fn(String) -> Status,
    ) {
        for (name, reason) in failed {
            if let Some(index) = self.cx.nodes().index_of(&name) {
                diagnosis.set_again(index, status(reason));
            }
        }
    }

    /// Adds what extenders think. One that fails is left out, as upstream does.
    pub(crate) fn extend_scores(&self, calls: &mut dyn Calls, feasible: &[NodeIndex], totals: &mut [i64]) {
        self.running.take();
        for extender in self.extenders.iter().filter(|e| e.is_interested(self.pod)) {
            let Some(weight) = extender.weight else { continue };
            let names = self.names(feasible);
            let question = ExtenderQuestion::Prioritize { pod: self.pod, nodes: &names };
            let Ok(ExtenderAnswer::Prioritized(scores)) = calls.ask(extender, question) else {
                continue;
            };
            let scores: FxHashMap<_, _> = scores.into_iter().collect();
            for (name, total) in names.iter().zip(totals.iter_mut()) {
                let score = scores.get(name).copied().unwrap_or(0);
                // Extenders score from 0 to 10, plugins from 0 to 100.
                *total = total.saturating_add(score.saturating_mul(weight).saturating_mul(10));
            }
        }
    }

    fn names(&self, nodes: &[NodeIndex]) -> Vec<Arc<str>> {
        nodes.iter().map(|index| Arc::clone(self.cx.node(*index).name())).collect()
    }
}
