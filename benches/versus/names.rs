//! The names of pods and their claims.

use supercargo_benches::claims;

/// A pod's namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PodName {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// The pods of a turn.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    pub(crate) namespace: String,
    pub(crate) turn: usize,
    pub(crate) count: usize,
}

impl Names {
    pub(crate) fn pod(&self, index: usize) -> PodName {
        PodName { namespace: self.namespace.clone(), name: format!("{}{index:06}", self.prefix()) }
    }

    /// The path of the claims.
    pub(crate) fn claims_path(&self) -> String {
        format!("/apis/resource.k8s.io/v1/namespaces/{}/resourceclaims", self.namespace)
    }

    /// The path of the claim of a pod.
    pub(crate) fn claim_path(&self, index: usize) -> String {
        format!("{}/{}", self.claims_path(), claims::claim_name(&self.pod(index).name))
    }

    /// The index of a pod, if it belongs to this turn.
    pub(crate) fn index(&self, pod: &PodName) -> Option<usize> {
        let index = pod.name.strip_prefix(&self.prefix())?.parse().ok()?;
        (pod.namespace == self.namespace && index < self.count).then_some(index)
    }

    fn prefix(&self) -> String {
        format!("pod-{:03}-", self.turn)
    }
}
