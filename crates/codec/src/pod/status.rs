//! Pod status.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

use supercargo_framework::pod::{PodCondition, SharedStatus};
use supercargo_framework::time::Timestamp;

use super::slim::{Condition, Status};
use crate::error::{Fault, FieldError};
use crate::interners::Interners;
use crate::json::Str;

impl Status<'_> {
    /// Whether the kubelet reports the requested resize as infeasible.
    pub(super) fn is_resize_infeasible(&self) -> bool {
        self.condition("PodResizePending").is_some_and(|(_, condition)| &*condition.reason == "Infeasible")
    }

    /// The start time of the pod.
    pub(super) fn started(&self) -> Result<Option<Timestamp>, FieldError> {
        timestamp(&self.start_time, format_args!("status.startTime"))
    }

    fn condition(&self, kind: &str) -> Option<(usize, &Condition<'_>)> {
        let mut conditions = self.conditions.iter().map(|condition| &**condition).enumerate();
        conditions.find(|(_, condition)| &*condition.kind == kind)
    }

    /// 0 without claims; otherwise a hash of the claim statuses that is stable within one build.
    fn claims_fingerprint(&self) -> u64 {
        if self.resource_claim_statuses.is_empty() && self.extended_resource_claim_status.is_none() {
            return 0;
        }
        let mut hasher = DefaultHasher::new();
        self.resource_claim_statuses.hash(&mut hasher);
        self.extended_resource_claim_status.hash(&mut hasher);
        hasher.finish()
    }
}

impl Interners {
    pub(super) fn shared_status(&mut self, status: &Status<'_>) -> Result<SharedStatus, FieldError> {
        let scheduled = status.condition("PodScheduled");
        let disruption =
            status.condition("DisruptionTarget").filter(|(_, condition)| &*condition.status == "True");
        let disruption = disruption.map(|(i, condition)| self.pod_condition(i, condition)).transpose()?;
        Ok(SharedStatus {
            terminal: matches!(&*status.phase, "Succeeded" | "Failed"),
            nominated_node_name: self.optional_text(&status.nominated_node_name),
            pod_scheduled: scheduled.map(|(i, condition)| self.pod_condition(i, condition)).transpose()?,
            disruption_target: disruption.map(Box::new),
            claim_statuses: status.claims_fingerprint(),
        })
    }

    fn pod_condition(&mut self, i: usize, condition: &Condition<'_>) -> Result<PodCondition, FieldError> {
        let last_transition = timestamp(
            &condition.last_transition_time,
            format_args!("status.conditions[{i}].lastTransitionTime"),
        )?;
        Ok(PodCondition {
            status: self.text(&condition.status),
            reason: self.text(&condition.reason),
            message: self.text(&condition.message),
            observed_generation: condition.observed_generation,
            // The time of a true condition is never read. Dropping it makes the statuses of
            // scheduled pods equal.
            last_transition: last_transition.filter(|_| &*condition.status == "False"),
        })
    }
}

fn timestamp(text: &Str<'_>, path: fmt::Arguments<'_>) -> Result<Option<Timestamp>, FieldError> {
    let parse = |text: &str| text.parse::<jiff::Timestamp>();
    text.non_empty()
        .map(parse)
        .transpose()
        .map(|time| time.map(|time| Timestamp(time.as_microsecond())))
        .map_err(|error| FieldError::new(path, Fault::Time(error)))
}
