//! Resource requests and limits of a pod.

use std::collections::HashMap;

use supercargo_framework::requests::{
    ContainerRequests, PodRequests, RequestInputs, RequestOptions, StatusRequests,
};
use supercargo_framework::resource::Resource;
use supercargo_framework::{Feature, Features};

use super::slim::{Container, ContainerStatus, Pod, Spec, Status};
use crate::error::FieldError;
use crate::interners::Interners;
use crate::json::Obj;

/// Removes the pod-level inputs that these features do not use.
pub(super) fn counted(mut inputs: RequestInputs, features: &Features) -> RequestInputs {
    if !features.enabled(Feature::PodLevelResources) {
        inputs.pod_level = None;
    }
    if !features.enabled(Feature::InPlacePodLevelResourcesVerticalScaling) {
        inputs.pod_level_status = None;
    }
    inputs
}

/// The request without pod-level resources, if it differs.
pub(super) fn without_pod_level(inputs: &RequestInputs, requests: &PodRequests) -> Option<PodRequests> {
    inputs.pod_level.as_ref()?;
    let options = RequestOptions { skip_pod_level: true, ..Default::default() };
    Some(inputs.effective(options)).filter(|other| other != requests)
}

/// The request with the status, if it differs.
pub(super) fn with_status(
    inputs: &RequestInputs,
    requests: &PodRequests,
    features: &Features,
) -> Option<PodRequests> {
    if !features.enabled(Feature::InPlacePodVerticalScaling) || !inputs.status_counts() {
        return None;
    }
    let options = RequestOptions { use_status: true, ..Default::default() };
    Some(inputs.effective(options)).filter(|other| other != requests)
}

/// The status of a container, with the list and the index where it is.
struct Report<'p> {
    list: &'static str,
    index: usize,
    status: &'p ContainerStatus<'p>,
}

/// Statuses by container name. As upstream, the first of a name counts, and those of init
/// containers come last.
fn reports<'p>(status: &'p Status<'_>) -> HashMap<&'p str, Report<'p>> {
    let lists = [
        ("containerStatuses", &status.container_statuses),
        ("initContainerStatuses", &status.init_container_statuses),
    ];
    let mut reports = HashMap::new();
    for (list, statuses) in lists {
        for (index, status) in statuses.iter().enumerate() {
            reports.entry(&*status.name).or_insert(Report { list, index, status });
        }
    }
    reports
}

impl Interners {
    /// The inputs of the pod's effective request.
    pub(super) fn request_inputs(&mut self, pod: &Pod<'_>) -> Result<RequestInputs, FieldError> {
        let (spec, reports) = (&pod.spec, reports(&pod.status));
        let pod_level =
            self.resource_list(&spec.resources.requests, format_args!("spec.resources.requests"))?;
        Ok(RequestInputs {
            init_containers: self.containers("initContainers", &spec.init_containers, &reports)?,
            containers: self.containers("containers", &spec.containers, &reports)?,
            pod_level: Some(pod_level).filter(|list| !list.is_empty()),
            pod_level_status: self.pod_level_status(&pod.status)?,
            overhead: self.resource_list(&spec.overhead, format_args!("spec.overhead"))?,
            resize_infeasible: pod.status.is_resize_infeasible(),
        })
    }

    fn containers(
        &mut self,
        list: &str,
        containers: &[Obj<Container<'_>>],
        reports: &HashMap<&str, Report<'_>>,
    ) -> Result<Vec<ContainerRequests>, FieldError> {
        let containers = containers.iter().enumerate();
        containers
            .map(|(i, container)| {
                let requests = &container.resources.requests;
                let report = reports.get(&*container.name).map(|report| self.report(report));
                Ok(ContainerRequests {
                    requests: self
                        .resource_list(requests, format_args!("spec.{list}[{i}].resources.requests"))?,
                    restartable: container.is_sidecar(),
                    status: report.transpose()?.unwrap_or_default(),
                })
            })
            .collect()
    }

    /// The limits of the pod, if any are set.
    pub(super) fn limits(&mut self, spec: &Spec<'_>) -> Result<Option<Box<Resource>>, FieldError> {
        let mut containers = spec.containers.iter().chain(&*spec.init_containers);
        if !spec.resources.have_limits() && !containers.any(|container| container.resources.have_limits()) {
            return Ok(None);
        }
        let pod_level = self.resource_list(&spec.resources.limits, format_args!("spec.resources.limits"))?;
        let inputs = RequestInputs {
            init_containers: self.container_limits("initContainers", &spec.init_containers)?,
            containers: self.container_limits("containers", &spec.containers)?,
            pod_level: Some(pod_level),
            overhead: self.resource_list(&spec.overhead, format_args!("spec.overhead"))?,
            ..RequestInputs::default()
        };
        Ok(Some(inputs.limits()).filter(|limits| !limits.is_zero()).map(Box::new))
    }

    fn container_limits(
        &mut self,
        list: &str,
        containers: &[Obj<Container<'_>>],
    ) -> Result<Vec<ContainerRequests>, FieldError> {
        let containers = containers.iter().enumerate();
        containers
            .map(|(i, container)| {
                let limits = &container.resources.limits;
                Ok(ContainerRequests {
                    requests: self
                        .resource_list(limits, format_args!("spec.{list}[{i}].resources.limits"))?,
                    restartable: container.is_sidecar(),
                    status: StatusRequests::default(),
                })
            })
            .collect()
    }

    /// The pod-level status. As upstream, it does not count without `resources`.
    fn pod_level_status(&mut self, status: &Status<'_>) -> Result<Option<StatusRequests>, FieldError> {
        let Some(resources) = &status.resources else { return Ok(None) };
        Ok(Some(StatusRequests {
            actuated: self.resource_list(&resources.requests, format_args!("status.resources.requests"))?,
            allocated: self
                .resource_list(&status.allocated_resources, format_args!("status.allocatedResources"))?,
        }))
    }

    fn report(&mut self, report: &Report<'_>) -> Result<StatusRequests, FieldError> {
        let Report { list, index, status } = report;
        let mut read =
            |amounts, field| self.resource_list(amounts, format_args!("status.{list}[{index}].{field}"));
        Ok(StatusRequests {
            actuated: read(&status.resources.requests, "resources.requests")?,
            allocated: read(&status.allocated_resources, "allocatedResources")?,
        })
    }
}
