//! Pod status.

use std::fmt;

use supercargo_framework::pod::{PodCondition, SharedStatus};
use supercargo_framework::pod_claims::{self, ExtendedRequest, PodClaimStatus, PodClaimStatuses};
use supercargo_framework::time::Timestamp;

use super::slim::{ClaimStatus, Condition, ExtendedClaimStatus, RequestMapping, Status};
use crate::error::FieldError;
use crate::interners::Interners;
use crate::json::{Obj, Str};
use crate::metadata::time;

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
            claims: self.claim_statuses(status),
        })
    }

    fn claim_statuses(&mut self, status: &Status<'_>) -> Option<Box<PodClaimStatuses>> {
        let (generated, extended) = (&status.resource_claim_statuses, &status.extended_resource_claim_status);
        if generated.is_empty() && extended.is_none() {
            return None;
        }
        let generated = generated.iter().map(|status| self.claim_status(status)).collect();
        let extended = extended.as_ref().map(|status| self.extended_claim(status));
        Some(Box::new(PodClaimStatuses { generated, extended }))
    }

    pub(crate) fn claim_status(&mut self, status: &ClaimStatus<'_>) -> PodClaimStatus {
        PodClaimStatus {
            name: self.text(&status.name),
            claim: status.resource_claim_name.as_ref().map(|name| self.text(name)),
        }
    }

    fn extended_claim(&mut self, status: &ExtendedClaimStatus<'_>) -> pod_claims::ExtendedClaimStatus {
        let mapping = |mapping: &Obj<RequestMapping<'_>>| ExtendedRequest {
            container: self.text(&mapping.container_name),
            resource: self.text(&mapping.resource_name),
            request: self.text(&mapping.request_name),
        };
        let mappings = status.request_mappings.iter().map(mapping).collect();
        pod_claims::ExtendedClaimStatus { claim: self.text(&status.resource_claim_name), mappings }
    }

    pub(crate) fn pod_condition(
        &mut self,
        i: usize,
        condition: &Condition<'_>,
    ) -> Result<PodCondition, FieldError> {
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
    Ok(time(text, path)?.map(|time| Timestamp(time.as_microsecond())))
}
