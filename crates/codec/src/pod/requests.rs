//! What a pod asks for, and what it may use at most.

use std::collections::HashMap;

use supercargo_framework::requests::{
    ContainerRequests, ContainerStatusRequests, PodRequests, RequestInputs, RequestOptions,
};
use supercargo_framework::resource::Resource;
use supercargo_framework::{Feature, Features};

use super::slim::{Container, Pod, Spec, Status};
use crate::error::Misfit;
use crate::interners::Interners;
use crate::json::{Obj, Pairs};

/// What of the inputs counts with these features.
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

/// The request without pod-level amounts, when that makes a difference.
pub(super) fn without_pod_level(inputs: &RequestInputs, requests: &PodRequests) -> Option<PodRequests> {
    inputs.pod_level.as_ref()?;
    let options = RequestOptions { skip_pod_level: true, ..Default::default() };
    Some(inputs.effective(options)).filter(|other| other != requests)
}

/// The request with what the kubelet reports, when that makes a difference.
pub(super) fn with_status(inputs: &RequestInputs, requests: &PodRequests) -> Option<PodRequests> {
    let mut containers = inputs.containers.iter().chain(&inputs.init_containers);
    if inputs.pod_level_status.is_none() && !containers.any(|container| container.status.is_some()) {
        return None;
    }
    let options = RequestOptions { use_status: true, ..Default::default() };
    Some(inputs.effective(options)).filter(|other| other != requests)
}

/// What the kubelet reports of the resources of one container or of the pod, and where in the document.
struct Report<'p> {
    /// The list of containers and the place in it; `None` for the pod.
    container: Option<(&'static str, usize)>,
    actual: &'p Pairs<'p>,
    allocated: &'p Pairs<'p>,
}

/// Reports by container name. One counts only with `resources`: without that the kubelet is too old to know what is
/// in force.
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
    /// Everything that the effective request of the pod is derived from.
    pub(super) fn request_inputs(&mut self, pod: &Pod<'_>) -> Result<RequestInputs, Misfit> {
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
    ) -> Result<Vec<ContainerRequests>, Misfit> {
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

    /// What the pod may use at most, where anything says so.
    pub(super) fn limits(&mut self, spec: &Spec<'_>) -> Result<Option<Box<Resource>>, Misfit> {
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
    ) -> Result<Vec<ContainerRequests>, Misfit> {
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

    /// What the kubelet reports of the pod's own resources. Like a container's it counts only with `resources`.
    fn pod_report(&mut self, status: &Status<'_>) -> Result<Option<ContainerStatusRequests>, Misfit> {
        let report = status.resources.as_ref().map(|resources| Report {
            container: None,
            actual: &resources.requests,
            allocated: &status.allocated_resources,
        });
        report.map(|report| self.report(&report)).transpose()
    }

    fn report(&mut self, report: &Report<'_>) -> Result<ContainerStatusRequests, Misfit> {
        let Report { container, actual, allocated } = report;
        let place = container.map_or_else(String::new, |(list, index)| format!("{list}[{index}]."));
        Ok(ContainerStatusRequests {
            actual: self.resource_list(actual, format_args!("status.{place}resources.requests"))?,
            allocated: self.resource_list(allocated, format_args!("status.{place}allocatedResources"))?,
        })
    }
}
