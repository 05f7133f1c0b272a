//! What extenders have to say within a cycle.

use std::cell::RefCell;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use supercargo_framework::plugin::Candidate;
use supercargo_framework::{NodeIndex, NodeRecord, PodInfo, Status};

use crate::cycle::Cycle;
use crate::diagnosis::Diagnosis;
use crate::extender::{Calls, ExtenderAnswer, ExtenderQuestion, ExtenderSpec, ExtenderVictims};
use crate::failure::FailureKind;

/// The extenders of a cycle.
pub(crate) struct Extenders<'a> {
    /// Whether there is any, interested or not.
    pub(crate) are_configured: bool,
    interested: SmallVec<[&'a ExtenderSpec; 2]>,
    /// PostFilter asks through a shared reference.
    calls: RefCell<&'a mut dyn Calls>,
}

impl<'a> Extenders<'a> {
    /// Those of `all` whose business the pod is.
    pub(crate) fn of_pod(all: &'a [ExtenderSpec], pod: &PodInfo, calls: &'a mut dyn Calls) -> Self {
        let interested = all.iter().filter(|extender| extender.is_interested(pod)).collect();
        Self { are_configured: !all.is_empty(), interested, calls: RefCell::new(calls) }
    }

    fn ask(&self, extender: &ExtenderSpec, question: ExtenderQuestion<'_>) -> Result<ExtenderAnswer, String> {
        self.calls.borrow_mut().ask(extender, question)
    }
}

/// The error for an answer to something that was not asked.
fn another_question(extender: &ExtenderSpec) -> String {
    format!("extender {} answered another question", extender.name)
}

impl Cycle<'_> {
    /// Lets the extenders filter what is left, one after the other.
    pub(crate) fn extend_filter(
        &self,
        diagnosis: &mut Diagnosis,
        mut feasible: Vec<NodeIndex>,
    ) -> Result<Vec<NodeIndex>, FailureKind> {
        // A panic from here on is no plugin's.
        self.running.take();
        for extender in self.extenders.interested.iter().filter(|extender| extender.filters) {
            if feasible.is_empty() {
                break;
            }
            let nodes = self.records(&feasible);
            let question = ExtenderQuestion::Filter { pod: self.pod, nodes: &nodes };
            match self.extenders.ask(extender, question) {
                Ok(ExtenderAnswer::Filtered { nodes, failed, failed_and_unresolvable }) => {
                    // A node in both maps is unresolvable: the last word counts.
                    self.note_failed(diagnosis, failed, Status::unschedulable);
                    self.note_failed(diagnosis, failed_and_unresolvable, Status::unresolvable);
                    feasible = self.kept(&feasible, &nodes);
                }
                Ok(_) => return Err(FailureKind::Internal(another_question(extender))),
                Err(_) if extender.ignorable => {}
                Err(reason) => return Err(FailureKind::Internal(reason)),
            }
        }
        diagnosis.keep_last_word();
        Ok(feasible)
    }

    /// The nodes that an extender keeps, in its order, which is what decides among equals later.
    fn kept(&self, feasible: &[NodeIndex], names: &[Arc<str>]) -> Vec<NodeIndex> {
        let mut asked: FxHashMap<&str, NodeIndex> =
            feasible.iter().map(|index| (&**self.cx.node(*index).name(), *index)).collect();
        names.iter().filter_map(|name| asked.remove(&**name)).collect()
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

    /// Adds what extenders think of the nodes; says how to choose among equals. An extender that fails is left out, as
    /// upstream does.
    pub(crate) fn extend_scores(&self, feasible: &[NodeIndex], totals: &mut [i64]) -> TieBreakers {
        self.running.take();
        let mut breakers = TieBreakers::default();
        if self.extenders.interested.is_empty() {
            return breakers;
        }
        let nodes = self.records(feasible);
        let positions: FxHashMap<&str, usize> =
            nodes.iter().enumerate().map(|(position, node)| (&*node.name, position)).collect();
        for extender in &self.extenders.interested {
            let Some(weight) = extender.weight else {
                // Upstream counts one that does not prioritize as giving every node 0.
                breakers.draw_all(self.pod, &nodes);
                continue;
            };
            let question = ExtenderQuestion::Prioritize { pod: self.pod, nodes: &nodes };
            let Ok(ExtenderAnswer::Prioritized(scores)) = self.extenders.ask(extender, question) else {
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

    /// Lets the extenders that have a say in preemption strike out candidates and victims, one after the other.
    pub(crate) fn extend_candidates(
        &self,
        pod: &Arc<PodInfo>,
        mut candidates: Vec<Candidate>,
    ) -> Result<Vec<Candidate>, Status> {
        let running = self.running.take();
        for extender in self.extenders.interested.iter().filter(|extender| extender.preempts) {
            if candidates.is_empty() {
                break;
            }
            let question = ExtenderQuestion::Preempt { pod, candidates: &candidates };
            let agreed = self.extenders.ask(extender, question).and_then(|answer| match answer {
                ExtenderAnswer::Preempted(agreed) => self.find_victims(extender, agreed),
                _ => Err(another_question(extender)),
            });
            match agreed {
                Ok(agreed) => candidates = in_order(&candidates, with_victims(extender, agreed)?),
                Err(_) if extender.ignorable => {}
                Err(reason) => return Err(Status::error(reason)),
            }
        }
        if let Some((point, plugin)) = running {
            self.running.set(point, plugin);
        }
        Ok(candidates)
    }

    /// Finds the pods that an extender names. It may name others than it was asked about, even on other nodes.
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

/// A candidate without victims makes no sense.
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

/// What is left of the candidates in their order, and then what the extender added, by name.
fn in_order(before: &[Candidate], mut candidates: Vec<Candidate>) -> Vec<Candidate> {
    let order: FxHashMap<&str, usize> =
        before.iter().enumerate().map(|(position, candidate)| (&*candidate.node, position)).collect();
    candidates.sort_by(|a, b| {
        let place = |candidate: &Candidate| order.get(&*candidate.node).copied().unwrap_or(usize::MAX);
        place(a).cmp(&place(b)).then_with(|| a.node.cmp(&b.node))
    });
    candidates
}

/// What decides among equal scores. Upstream gives every node that an extender has scored a random number. Here the
/// number follows from the pod's UID and the node's name, so that pods spread and a replay does the same.
#[derive(Default)]
pub(crate) struct TieBreakers(Vec<u64>);

impl TieBreakers {
    /// The number of the node at a position among the feasible ones; 0 when no extender has scored it.
    pub(crate) fn get(&self, position: usize) -> u64 {
        self.0.get(position).copied().unwrap_or(0)
    }

    fn draw(&mut self, pod: &PodInfo, nodes: &[Arc<NodeRecord>], position: usize) {
        self.0.resize(nodes.len(), 0);
        self.0[position] = mixed([&pod.uid.text(), &nodes[position].name]).max(1);
    }

    fn draw_all(&mut self, pod: &PodInfo, nodes: &[Arc<NodeRecord>]) {
        for position in 0..nodes.len() {
            self.draw(pod, nodes, position);
        }
    }
}

/// A number that looks random: FNV-1a, and its bits stirred as MurmurHash does in the end. Always the same, so that a
/// record replays by another build, too.
fn mixed(words: [&str; 2]) -> u64 {
    let bytes = words.iter().flat_map(|word| word.bytes().chain([0]));
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}
