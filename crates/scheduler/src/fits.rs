//! How many more pods like a given one fit.

use std::collections::BTreeMap;
use std::sync::Arc;

use supercargo_framework::{Now, PodInfo};
use supercargo_queue::QueuedPod;

use crate::copies::{Copy, can_be_copied, copy_of};
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
        if !can_be_copied(&self.objects, pod) {
            return Err(WhyError::Claims);
        }
        self.extenders.clear();
        let profile = self.answering_profile(pod);
        let mut by_node = BTreeMap::new();
        for number in 0..most {
            if stop() {
                return Err(WhyError::Stopped);
            }
            let Copy { pod: copy, claims } = copy_of(&self.objects, pod, number);
            self.add_claims(now, claims);
            let queued = QueuedPod::new(Arc::new(copy), profile, now.wall);
            // As a member of a group with every node: without PostFilter.
            match self.try_member(now, &queued, None, &mut NoCalls) {
                Ok(placed) => {
                    self.write_claims(now, &queued.pod);
                    *by_node.entry(placed.node).or_default() += 1;
                }
                Err(failure) if failure.kind.is_rejection() => {
                    let then = Some(self.why(now, &queued.pod)?);
                    return Ok(Fits { by_node, then });
                }
                Err(failure) => return Err(WhyError::Failed(failure.kind.to_string())),
            }
        }
        Ok(Fits { by_node, then: None })
    }
}
