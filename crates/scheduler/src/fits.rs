//! How many more pods like a given one fit.

use std::collections::BTreeMap;
use std::sync::Arc;

use supercargo_framework::pod::PodStatus;
use supercargo_framework::{Now, PodInfo, Uid};
use supercargo_queue::QueuedPod;

use crate::scheduler::Scheduler;
use crate::why::{Why, WhyError};
use supercargo_evaluation::extender::NoCalls;

/// How many pods fit.
#[derive(Clone, Debug)]
pub struct Fits {
    /// The number of pods that each node gets.
    pub by_node: BTreeMap<Arc<str>, usize>,
    /// Why the next pod does not fit; `None` if the limit was reached.
    pub then: Option<Why>,
}

impl Fits {
    /// The number of pods.
    pub fn count(&self) -> usize {
        self.by_node.values().sum()
    }
}

impl Scheduler {
    /// See [`Fork::fits`](crate::Fork::fits). Afterwards, the state has pods that do not exist.
    pub(crate) fn fits(
        mut self,
        now: Now,
        pod: &PodInfo,
        most: usize,
        stop: &dyn Fn() -> bool,
    ) -> Result<Fits, WhyError> {
        if !can_be_copied(pod) {
            return Err(WhyError::Claims);
        }
        self.extenders.clear();
        let profile = self.answering_profile(pod);
        let mut by_node = BTreeMap::new();
        for number in 0..most {
            if stop() {
                return Err(WhyError::Stopped);
            }
            let copy = Arc::new(copy_of(pod, number));
            let queued = QueuedPod::new(Arc::clone(&copy), profile, now.wall);
            // As a member of a group with every node: without PostFilter.
            match self.try_member(now, &queued, None, &mut NoCalls) {
                Ok(placed) => *by_node.entry(placed.node).or_default() += 1,
                Err(failure) if failure.kind.is_rejection() => {
                    let then = Some(self.why(now, &copy)?);
                    return Ok(Fits { by_node, then });
                }
                Err(failure) => return Err(WhyError::Failed(failure.kind.to_string())),
            }
        }
        Ok(Fits { by_node, then: None })
    }
}

/// Whether copies of the pod need nothing that it has alone.
pub(crate) fn can_be_copied(pod: &PodInfo) -> bool {
    pod.spec.resource_claims().is_empty() && pod.spec.volumes.is_empty()
}

/// A pod like this one, and new.
pub(crate) fn copy_of(pod: &PodInfo, number: usize) -> PodInfo {
    let name = format!("{}-copy-{number}", pod.name);
    PodInfo {
        uid: Uid::from(format!("copy-{number}-of-{}", pod.uid).as_str()),
        name: name.into(),
        node_name: None,
        terminating: false,
        status: PodStatus::default(),
        status_requests: None,
        ..pod.clone()
    }
}
