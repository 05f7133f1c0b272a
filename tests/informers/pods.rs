//! Pods in the forms that these informers keep.

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;

use super::model::State;
use crate::support::Slim;

/// A pod in any form.
pub(super) trait AnyPod: Send + Sync + 'static {
    /// `namespace/name`.
    fn key(&self) -> String;
    fn state(&self) -> State;
    fn is_assigned(&self) -> bool;
}

impl AnyPod for Pod {
    fn key(&self) -> String {
        format!("{}/{}", self.namespace().unwrap_or_default(), self.name_any())
    }

    fn state(&self) -> State {
        (self.uid().unwrap_or_default(), self.resource_version().unwrap_or_default())
    }

    fn is_assigned(&self) -> bool {
        self.spec.as_ref().is_some_and(|spec| spec.node_name.is_some())
    }
}

impl AnyPod for Slim {
    fn key(&self) -> String {
        format!("{}/{}", self.metadata.namespace, self.metadata.name)
    }

    fn state(&self) -> State {
        (self.metadata.uid.clone(), self.metadata.resource_version.clone())
    }

    fn is_assigned(&self) -> bool {
        !self.spec.node_name.is_empty()
    }
}
