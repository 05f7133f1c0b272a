//! The resource claims of pods: `spec.resourceClaims` and what the status says of them.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::indexed::{Indexed, Keyed};
use crate::pod::PodInfo;

/// An entry of `spec.resourceClaims` of a pod or a PodGroup.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PodClaim {
    /// `name`: containers and the status refer to the entry by it.
    pub name: Arc<str>,
    /// The claim, or where it comes from.
    pub source: PodClaimSource,
}

/// The claim of an entry of `spec.resourceClaims`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum PodClaimSource {
    /// `resourceClaimName`: a claim in the pod's namespace.
    Claim(Arc<str>),
    /// `resourceClaimTemplateName`: a controller creates the claim and writes its name to the
    /// status.
    Template(Arc<str>),
    /// A source that this version does not know.
    Unknown,
}

/// What a pod's status says of its claims.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PodClaimStatuses {
    /// `resourceClaimStatuses`.
    pub generated: Indexed<PodClaimStatus>,
    /// `extendedResourceClaimStatus`.
    pub extended: Option<ExtendedClaimStatus>,
}

/// An entry of `status.resourceClaimStatuses` of a pod or a PodGroup.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PodClaimStatus {
    /// `name`: that of the entry in the spec.
    pub name: Arc<str>,
    /// `resourceClaimName`; `None` if no claim is needed.
    pub claim: Option<Arc<str>>,
}

impl Keyed for PodClaimStatus {
    type Key<'a> = &'a str;

    fn key(&self) -> &str {
        &self.name
    }
}

/// `status.extendedResourceClaimStatus`: the claim that serves the pod's extended resources.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ExtendedClaimStatus {
    /// `resourceClaimName`.
    pub claim: Arc<str>,
    /// `requestMappings`.
    pub mappings: Box<[ExtendedRequest]>,
}

/// An entry of `requestMappings`: which request serves a container's extended resource.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ExtendedRequest {
    /// `containerName`.
    pub container: Arc<str>,
    /// `resourceName`.
    pub resource: Arc<str>,
    /// `requestName`: a request of the claim.
    pub request: Arc<str>,
}

/// The name of the claim of an entry, as far as it is known (upstream's `resourceclaim.Name`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodClaimName<'a> {
    /// The name in the spec.
    Given(&'a Arc<str>),
    /// The name of a claim that a controller created; the pod or its group must control it.
    Generated(&'a Arc<str>),
    /// The status says that no claim is needed.
    NotNeeded,
    /// The status does not have the entry yet.
    NotCreated,
    /// The spec has no source that this version knows.
    Unknown,
}

impl PodClaim {
    /// The name of the claim of this entry, with the status of an entry.
    pub(crate) fn name_by<'a>(
        &'a self,
        status: impl FnOnce(&'a str) -> Option<&'a PodClaimStatus>,
    ) -> PodClaimName<'a> {
        match &self.source {
            PodClaimSource::Claim(name) => PodClaimName::Given(name),
            PodClaimSource::Unknown => PodClaimName::Unknown,
            PodClaimSource::Template(_) => match status(&self.name) {
                None => PodClaimName::NotCreated,
                Some(PodClaimStatus { claim: None, .. }) => PodClaimName::NotNeeded,
                Some(PodClaimStatus { claim: Some(name), .. }) => PodClaimName::Generated(name),
            },
        }
    }
}

impl PodInfo {
    /// The names of the pod's claims, as far as they are known; in the order of the spec.
    pub fn claim_names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.spec.resource_claims().iter().filter_map(|entry| match self.claim_name(entry) {
            PodClaimName::Given(name) | PodClaimName::Generated(name) => Some(name),
            PodClaimName::NotNeeded | PodClaimName::NotCreated | PodClaimName::Unknown => None,
        })
    }

    /// The name of the claim of an entry of this pod's spec. Of several statuses with the entry's
    /// name, the first applies.
    pub fn claim_name<'a>(&'a self, claim: &'a PodClaim) -> PodClaimName<'a> {
        claim.name_by(|entry| self.claim_status(entry))
    }

    fn claim_status<'a>(&'a self, entry: &'a str) -> Option<&'a PodClaimStatus> {
        let claims = self.status.claims.as_ref()?;
        claims.generated.find_by(move |name: &str| name.cmp(entry)).next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::pod;

    fn status(name: &str, claim: Option<&str>) -> PodClaimStatus {
        PodClaimStatus { name: name.into(), claim: claim.map(Into::into) }
    }

    #[test]
    fn missing_statuses_differ_from_claims_that_are_not_needed() {
        let statuses = [status("a", Some("p-a-x")), status("b", None), status("a", Some("later"))];
        let claims = PodClaimStatuses { generated: Vec::from(statuses).into(), extended: None };
        let pod = pod("p").with(|pod| pod.status.claims = Some(Box::new(claims))).build();
        let name: Arc<str> = "p-a-x".into();
        for (entry, expected) in [
            ("a", PodClaimName::Generated(&name)),
            ("b", PodClaimName::NotNeeded),
            ("c", PodClaimName::NotCreated),
        ] {
            let claim = PodClaim { name: entry.into(), source: PodClaimSource::Template("t".into()) };
            assert_eq!(pod.claim_name(&claim), expected, "{entry}");
        }
    }

    #[test]
    fn claims_of_the_spec_need_no_status() {
        let pod = pod("p").build();
        let claim = PodClaim { name: "a".into(), source: PodClaimSource::Claim("mine".into()) };
        assert_eq!(pod.claim_name(&claim), PodClaimName::Given(&"mine".into()));
        let unknown = PodClaim { name: "a".into(), source: PodClaimSource::Unknown };
        assert_eq!(pod.claim_name(&unknown), PodClaimName::Unknown);
    }
}
