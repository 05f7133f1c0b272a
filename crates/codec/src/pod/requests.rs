//! Resource requests and limits of a pod.

use std::collections::HashMap;

use supercargo_framework::requests::{
    ContainerRequests, ContainerStatusRequests, PodRequests, RequestInputs, RequestOptions,
};
use supercargo_framework::resource::Resource;
use supercargo_framework::{Feature, Features};

use super::slim::{Container, Pod, Spec, Status};
use crate::error::FieldError;
use crate::interners::Interners;
use crate::json::{Obj, Pairs};

/// Removes the inputs that these features do not use.
pub(super) fn counted(mut inputs: RequestInputs, features: &Features) -> RequestInputs {
    let enabled = |feature| features.enabled(feature);
    if !enabled(Feature::PodLevelResources) {
        inputs.pod_level = None;
    }
    if !enabled(Feature::PodLevelResources) || !enabled(Feature::InPlacePodLevelResourcesVerticalScaling) {
        inputs.pod_level_status = None;
    }
    if !enabled(Feature::InPlacePodVerticalScaling) {
        for container in inputs.containers.iter_mut().chain(&mut inputs.init_containers) {
            container.status = None;
        }
    }
    inputs
}

/// The request without pod-level resources, if it differs.
pub(super) fn without_pod_level(inputs: &RequestInputs, requests: &PodRequests) -> Option<PodRequests> {
    inputs.pod_level.as_ref()?;
    let options = RequestOptions { skip_pod_level: true, ..Default::default() };
    Some(inputs.effective(options)).filter(|other| other != requests)
}

/// The request with the kubelet's reports, if it differs.
pub(super) fn with_status(inputs: &RequestInputs, requests: &PodRequests) -> Option<PodRequests> {
    let mut containers = inputs.containers.iter().chain(&inputs.init_containers);
    if inputs.pod_level_status.is_none() && !containers.any(|container| container.status.is_some()) {
        return None;
    }
    let options = RequestOptions { use_status: true, ..Default::default() };
    Some(inputs.effective(options)).filter(|other| other != requests)
}

/// The kubelet's report about the resources of a container or of the pod, and its path.
struct Report<'p> {
    /// The list of containers and the index in it; `None` for the pod.
    container: Option<(&'static str, usize)>,
    actual: &'p Pairs<'p>,
    allocated: &'p Pairs<'p>,
}

/// Reports by container name. A report without `resources` is ignored: such a kubelet is too old to
/// report the actual resources.
fn reports<'p>(status: &'p Status<'_>) -> HashMap<&'p str, Report<'p>> {
    let lists = [
        ("containerStatuses", &status.container_statuses),
        ("initContainerStatuses", &status.init_container_statuses),
    ];
    let statuses = lists.into_iter().flat_map(|(list, statuses)| {
        let numbered = statuses.iter().enumerate();
        numbered.map(move |(index, status)| (list, index, status))
    });
    statuses
        .filter_map(|(list, index, status)| {
            let report = Report {
                container: Some((list, index)),
                actual: &status.resources.as_ref()?.requests,
                allocated: &status.allocated_resources,
            };
            Some((&*status.name, report))
        })
        .collect()
}

impl Interners {
    /// The inputs of the pod's effective request.
    pub(super) fn request_inputs(&mut self, pod: &Pod<'_>) -> Result<RequestInputs, FieldError> {
        let (spec, reports) = (&pod.spec, reports(&pod.status));
        let pod_level =
            self.resource_list(&spec.resources.requests, format_args!("spec.resources.requests"))?;
        Ok(RequestInputs {
            init_containers: self.containers("initContainers", &spec.init_containers, |container| {
                reports.get(&*container.name).filter(|_| container.is_sidecar())
            })?,
            containers: self
                .containers("containers", &spec.containers, |container| reports.get(&*container.name))?,
            pod_level: Some(pod_level).filter(|list| !list.is_empty()),
            pod_level_status: self.pod_report(&pod.status)?,
            overhead: self.resource_list(&spec.overhead, format_args!("spec.overhead"))?,
            resize_infeasible: pod.status.is_resize_infeasible(),
        })
    }

    fn containers<'p>(
        &mut self,
        list: &str,
        containers: &[Obj<Container<'_>>],
        report_of: impl Fn(&Container<'_>) -> Option<&'p Report<'p>>,
    ) -> Result<Vec<ContainerRequests>, FieldError> {
        let containers = containers.iter().enumerate();
        containers
            .map(|(i, container)| {
                let requests = &container.resources.requests;
                let report = report_of(container).map(|report| self.report(report));
                Ok(ContainerRequests {
                    requests: self
                        .resource_list(requests, format_args!("spec.{list}[{i}].resources.requests"))?,
                    restartable: container.is_sidecar(),
                    status: report.transpose()?,
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
                    status: None,
                })
            })
            .collect()
    }

    /// The kubelet's report about pod-level resources. As for containers, it is ignored without
    /// `resources`.
    fn pod_report(&mut self, status: &Status<'_>) -> Result<Option<ContainerStatusRequests>, FieldError> {
        let report = status.resources.as_ref().map(|resources| Report {
            container: None,
            actual: &resources.requests,
            allocated: &status.allocated_resources,
        });
        report.map(|report| self.report(&report)).transpose()
    }

    fn report(&mut self, report: &Report<'_>) -> Result<ContainerStatusRequests, FieldError> {
        let Report { container, actual, allocated } = report;
        let place = container.map_or_else(String::new, |(list, index)| format!("{list}[{index}]."));
        Ok(ContainerStatusRequests {
            actual: self.resource_list(actual, format_args!("status.{place}resources.requests"))?,
            allocated: self.resource_list(allocated, format_args!("status.{place}allocatedResources"))?,
        })
    }
}
