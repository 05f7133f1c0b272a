//! Kinds that select pods, and namespaces.

use serde::Deserialize;
use supercargo_framework::objects::{self, Body, Namespace, PodDisruptionBudget, Workload};
use supercargo_framework::raw_object::RawObject;
use supercargo_framework::selector::LabelSelector;

use super::document::Document;
use crate::error::FieldError;
use crate::interners::Interners;
use crate::json::{Keys, Obj, Pairs};
use crate::metadata::Metadata;
use crate::selector::WireLabelSelector;

/// A Service.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Service<'a> {
    #[serde(borrow)]
    metadata: Obj<Metadata<'a>>,
    #[serde(borrow)]
    spec: Obj<PlainSelection<'a>>,
}

/// A selector that is a map of labels.
#[derive(Default, Deserialize)]
#[serde(default)]
struct PlainSelection<'a> {
    #[serde(borrow)]
    selector: Pairs<'a>,
}

impl<'a> Document<'a> for Service<'a> {
    fn metadata(&self) -> &Metadata<'a> {
        &self.metadata
    }

    fn body(&self, shared: &mut Interners, _: Option<RawObject>) -> Result<Body, FieldError> {
        Ok(Body::Service(objects::Service { selector: shared.labels(self.spec.selector.iter()).into() }))
    }
}

/// A ReplicationController.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Controller<'a> {
    #[serde(borrow)]
    metadata: Obj<Metadata<'a>>,
    #[serde(borrow)]
    spec: Obj<PlainSelection<'a>>,
}

impl<'a> Document<'a> for Controller<'a> {
    fn metadata(&self) -> &Metadata<'a> {
        &self.metadata
    }

    fn body(&self, shared: &mut Interners, _: Option<RawObject>) -> Result<Body, FieldError> {
        let exact = shared.labels(self.spec.selector.iter());
        let selector = if exact.is_empty() { None } else { LabelSelector::parse(&exact, []).ok() };
        Ok(Body::Workload(Workload { selector }))
    }
}

/// A ReplicaSet or a StatefulSet.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Selecting<'a> {
    #[serde(borrow)]
    metadata: Obj<Metadata<'a>>,
    #[serde(borrow)]
    spec: Obj<Selection<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Selection<'a> {
    #[serde(borrow)]
    selector: Option<Obj<WireLabelSelector<'a>>>,
}

impl Selection<'_> {
    /// The selector. An invalid one matches nothing, as upstream.
    fn selector(&self, shared: &mut Interners) -> Option<LabelSelector> {
        shared.label_selector(self.selector.as_ref()).unwrap_or_default()
    }
}

impl<'a> Document<'a> for Selecting<'a> {
    fn metadata(&self) -> &Metadata<'a> {
        &self.metadata
    }

    fn body(&self, shared: &mut Interners, _: Option<RawObject>) -> Result<Body, FieldError> {
        Ok(Body::Workload(Workload { selector: self.spec.selector(shared) }))
    }
}

/// A PodDisruptionBudget.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Budget<'a> {
    #[serde(borrow)]
    metadata: Obj<Metadata<'a>>,
    #[serde(borrow)]
    spec: Obj<Selection<'a>>,
    #[serde(borrow)]
    status: Obj<BudgetStatus<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct BudgetStatus<'a> {
    disruptions_allowed: Option<i32>,
    current_healthy: Option<i32>,
    desired_healthy: Option<i32>,
    #[serde(borrow)]
    disrupted_pods: Keys<'a>,
}

impl<'a> Document<'a> for Budget<'a> {
    fn metadata(&self) -> &Metadata<'a> {
        &self.metadata
    }

    fn body(&self, shared: &mut Interners, _: Option<RawObject>) -> Result<Body, FieldError> {
        let mut disrupted_pods = shared.texts(&self.status.disrupted_pods.0);
        disrupted_pods.sort();
        let BudgetStatus { disruptions_allowed, current_healthy, desired_healthy, .. } = *self.status;
        let disruptions_allowed = disruptions_allowed.unwrap_or_default();
        let missing =
            i64::from(desired_healthy.unwrap_or_default()) - i64::from(current_healthy.unwrap_or_default());
        Ok(Body::PodDisruptionBudget(PodDisruptionBudget {
            selector: self.spec.selector(shared),
            disruptions_allowed,
            missing_pods: if disruptions_allowed > 0 { 0 } else { missing.clamp(0, i32::MAX.into()) as i32 },
            disrupted_pods,
        }))
    }
}

/// A Namespace, of which only metadata is read.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Named<'a> {
    #[serde(borrow)]
    metadata: Obj<Metadata<'a>>,
}

impl<'a> Document<'a> for Named<'a> {
    fn metadata(&self) -> &Metadata<'a> {
        &self.metadata
    }

    fn body(&self, _: &mut Interners, _: Option<RawObject>) -> Result<Body, FieldError> {
        Ok(Body::Namespace(Namespace {}))
    }
}
