//! Wraps a PostFilter plugin and records the candidates that it finds.

use std::sync::{Arc, Mutex};

use supercargo_framework::plugin::{
    Candidate, ExtensionPoints, NodeStatuses, Nomination, PostFilterPlugin, RunFilters,
};
use supercargo_framework::{Context, CycleState, NodeInfo, Plugin, PodInfo, Status};

use super::calls::lock;
use super::probe::Seen;
use crate::oracle::answer::{Preemption, Trial};

/// A wrapped plugin.
pub(super) struct CandidateRecorder {
    pub(super) name: &'static str,
    pub(super) inner: Arc<dyn PostFilterPlugin>,
    pub(super) seen: Arc<Mutex<Seen>>,
}

impl Plugin for CandidateRecorder {
    fn name(&self) -> &'static str {
        self.name
    }

    fn extension_points(self: Arc<Self>) -> ExtensionPoints {
        ExtensionPoints::new().post_filter(&self)
    }
}

impl PostFilterPlugin for CandidateRecorder {
    fn post_filter(
        &self,
        cx: &Context<'_>,
        state: &CycleState,
        pod: &Arc<PodInfo>,
        statuses: &NodeStatuses,
        filters: &dyn RunFilters,
    ) -> (Nomination, Status) {
        self.inner.post_filter(cx, state, pod, statuses, &Noting { filters, seen: &self.seen })
    }
}

/// Wraps the filters and records the dry runs.
struct Noting<'a> {
    filters: &'a dyn RunFilters,
    seen: &'a Mutex<Seen>,
}

impl RunFilters for Noting<'_> {
    fn run_filters(&self, state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Status {
        self.filters.run_filters(state, pod, node)
    }

    fn add_pod(&self, state: &mut CycleState, pod: &PodInfo, added: &PodInfo, node: &NodeInfo) -> Status {
        self.filters.add_pod(state, pod, added, node)
    }

    fn remove_pod(
        &self,
        state: &mut CycleState,
        pod: &PodInfo,
        removed: &PodInfo,
        node: &NodeInfo,
    ) -> Status {
        self.filters.remove_pod(state, pod, removed, node)
    }

    fn extend_preemption(
        &self,
        pod: &Arc<PodInfo>,
        candidates: Vec<Candidate>,
    ) -> Result<Vec<Candidate>, Status> {
        let trial = |candidate: &Candidate| Trial {
            code: "Success".to_owned(),
            reasons: Vec::new(),
            victims: candidate.victims.iter().map(|victim| victim.key().to_string()).collect(),
            violations: candidate.pdb_violations,
        };
        let nodes = candidates.iter().map(|candidate| (candidate.node.to_string(), trial(candidate)));
        let preemption = Preemption { nodes: nodes.collect(), tied: Vec::new() };
        if let Some(cycle) = &mut lock(self.seen).cycle {
            cycle.preemption = Some(preemption);
        }
        self.filters.extend_preemption(pod, candidates)
    }
}
