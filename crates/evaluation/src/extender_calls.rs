//! Calls of extenders within a cycle.

use std::cell::RefCell;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use supercargo_framework::plugin::Candidate;
use supercargo_framework::{Context, NodeIndex, NodeRecord, PodInfo, Status};

use crate::extender::{Calls, ExtenderAnswer, ExtenderQuestion, ExtenderSpec, ExtenderVictims};
use crate::tie_breakers::TieBreakers;
use supercargo_runtime::diagnosis::Diagnosis;
use supercargo_runtime::failure::FailureKind;
use supercargo_runtime::plugin_calls::PluginCalls;

/// The extenders of a cycle.
pub struct Extenders<'a> {
    cx: &'a Context<'a>,
    pod: &'a Arc<PodInfo>,
    plugins: &'a PluginCalls<'a>,
    /// Whether there are extenders at all, interested in the pod or not.
    pub are_configured: bool,
    interested: SmallVec<[&'a ExtenderSpec; 2]>,
    /// In a cell because PostFilter calls extenders through a shared reference.
    calls: RefCell<&'a mut dyn Calls>,
}

impl<'a> Extenders<'a> {
    /// The extenders among `all` that are interested in the pod.
    pub fn of_pod(
        all: &'a [ExtenderSpec],
        cx: &'a Context<'a>,
        pod: &'a Arc<PodInfo>,
        plugins: &'a PluginCalls<'a>,
        calls: &'a mut dyn Calls,
    ) -> Self {
        let interested = all.iter().filter(|extender| extender.is_interested(pod)).collect();
        Self { cx, pod, plugins, are_configured: !all.is_empty(), interested, calls: RefCell::new(calls) }
    }

    fn ask(&self, extender: &ExtenderSpec, question: ExtenderQuestion<'_>) -> Result<ExtenderAnswer, String> {
        self.plugins.call_other(|| self.calls.borrow_mut().ask(extender, question))
    }

    /// Lets the extenders filter the feasible nodes, one after the other.
    pub fn filter(
        &self,
        diagnosis: &mut Diagnosis,
        mut feasible: Vec<NodeIndex>,
    ) -> Result<Vec<NodeIndex>, FailureKind> {
        for extender in self.interested.iter().filter(|extender| extender.filters) {
            if feasible.is_empty() {
                break;
            }
            let nodes = self.records(&feasible);
            let question = ExtenderQuestion::Filter { pod: self.pod, nodes: &nodes };
            match self.ask(extender, question) {
                Ok(ExtenderAnswer::Filtered { nodes, failed, failed_and_unresolvable }) => {
                    // A node in both maps is unresolvable: the later status wins.
                    self.note_failed(diagnosis, failed, Status::unschedulable);
                    self.note_failed(diagnosis, failed_and_unresolvable, Status::unresolvable);
                    feasible = self.kept(&feasible, &nodes);
                }
                Ok(_) => return Err(FailureKind::Internal(another_question(extender))),
                Err(_) if extender.ignorable => {}
                Err(reason) => return Err(FailureKind::Internal(reason)),
            }
        }
        diagnosis.keep_last_status();
        Ok(feasible)
    }

    /// The nodes that an extender keeps, in its order, which later decides among equals.
    fn kept(&self, feasible: &[NodeIndex], names: &[Arc<str>]) -> Vec<NodeIndex> {
        let mut asked: FxHashMap<&str, NodeIndex> =
            feasible.iter().map(|index| (&**self.cx.node(*index).name(), *index)).collect();
        names.iter().filter_map(|name| asked.remove(&**name)).collect()
    }

    /// Notes the nodes that an extender rejected. Extenders share one name in the diagnosis.
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

    /// Adds the extenders' scores, and returns what decides among equals. As upstream, an extender
    /// that fails is ignored.
    pub(crate) fn score(&self, feasible: &[NodeIndex], totals: &mut [i64]) -> TieBreakers {
        let mut breakers = TieBreakers::default();
        if self.interested.is_empty() {
            return breakers;
        }
        let nodes = self.records(feasible);
        let positions: FxHashMap<&str, usize> =
            nodes.iter().enumerate().map(|(position, node)| (&*node.name, position)).collect();
        for extender in &self.interested {
            let Some(weight) = extender.weight else {
                // Upstream treats an extender that does not prioritize as scoring every node 0.
                breakers.draw_all(self.pod, &nodes);
                continue;
            };
            let question = ExtenderQuestion::Prioritize { pod: self.pod, nodes: &nodes };
            let Ok(ExtenderAnswer::Prioritized(scores)) = self.ask(extender, question) else {
                continue;
            };
            for (name, score) in scores {
                let Some(position) = positions.get(&*name) else { continue };
                // Extenders score from 0 to 10, plugins from 0 to 100.
                let score = score.saturating_mul(weight).saturating_mul(10);
                totals[*position] = totals[*position].saturating_add(score);
                breakers.draw(self.pod, &nodes, *position);
            }
        }
        breakers
    }

    /// Lets the extenders that take part in preemption remove candidates and victims, one after the
    /// other.
    pub fn preempt(
        &self,
        pod: &Arc<PodInfo>,
        mut candidates: Vec<Candidate>,
    ) -> Result<Vec<Candidate>, Status> {
        for extender in self.interested.iter().filter(|extender| extender.preempts) {
            if candidates.is_empty() {
                break;
            }
            let question = ExtenderQuestion::Preempt { pod, candidates: &candidates };
            let agreed = self.ask(extender, question).and_then(|answer| match answer {
                ExtenderAnswer::Preempted(agreed) => self.find_victims(extender, agreed),
                _ => Err(another_question(extender)),
            });
            match agreed {
                Ok(agreed) => candidates = in_order(&candidates, with_victims(extender, agreed)?),
                Err(_) if extender.ignorable => {}
                Err(reason) => return Err(Status::error(reason)),
            }
        }
        Ok(candidates)
    }

    /// Finds the pods that an extender names. It may name pods that it was not asked about, even on
    /// other nodes.
    fn find_victims(
        &self,
        extender: &ExtenderSpec,
        agreed: Vec<ExtenderVictims>,
    ) -> Result<Vec<Candidate>, String> {
        let find_on_node = |ExtenderVictims { node, victims, pdb_violations }: ExtenderVictims| {
            let Some(index) = self.cx.nodes().index_of(&node) else {
                return Err(format!("nodeinfo not found for node name {node:?}"));
            };
            let pods = self.cx.node(index).pods();
            let find = |uid| {
                pods.iter().find(|pod| pod.uid == uid).cloned().ok_or_else(|| {
                    // Upstream prints a Go pointer to a struct here.
                    format!(
                        "extender: {} claims to preempt pod (UID: &{{{uid}}}) on node: {node}, but the pod is not found \
                         on that node",
                        extender.name
                    )
                })
            };
            let victims = victims.into_iter().map(find).collect::<Result<_, _>>()?;
            Ok(Candidate { node, victims, pdb_violations: usize::try_from(pdb_violations).unwrap_or(0) })
        };
        agreed.into_iter().map(find_on_node).collect()
    }

    fn records(&self, nodes: &[NodeIndex]) -> Vec<Arc<NodeRecord>> {
        nodes.iter().map(|index| Arc::clone(self.cx.node(*index).node())).collect()
    }
}

/// The error for an answer to another question than the one asked.
fn another_question(extender: &ExtenderSpec) -> String {
    format!("extender {} answered another question", extender.name)
}

/// Removes or rejects candidates without victims.
fn with_victims(extender: &ExtenderSpec, mut candidates: Vec<Candidate>) -> Result<Vec<Candidate>, Status> {
    if extender.ignorable {
        candidates.retain(|candidate| !candidate.victims.is_empty());
    }
    match candidates.iter().find(|candidate| candidate.victims.is_empty()) {
        None => Ok(candidates),
        Some(Candidate { node, .. }) => {
            Err(Status::error(format!("expected at least one victim pod on node {node:?}")))
        }
    }
}

/// Sorts candidates: those known before in their old order, then those the extender added, by name.
fn in_order(before: &[Candidate], mut candidates: Vec<Candidate>) -> Vec<Candidate> {
    let order: FxHashMap<&str, usize> =
        before.iter().enumerate().map(|(position, candidate)| (&*candidate.node, position)).collect();
    candidates.sort_by(|a, b| {
        let place = |candidate: &Candidate| order.get(&*candidate.node).copied().unwrap_or(usize::MAX);
        place(a).cmp(&place(b)).then_with(|| a.node.cmp(&b.node))
    });
    candidates
}
