//! Discovery: resolves the name of a kind or resource to what informers require.

use kube::Client;
use kube::core::{ApiResource, GroupVersionKind, Status};
use thiserror::Error;

use crate::kind::GroupVersionResource;
use crate::list_watch::ListWatchError;

/// A resource, as the server describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Discovered {
    /// The resource that requests name, with its scope.
    pub resource: GroupVersionResource,
    /// The `kind` of its objects.
    pub kind: String,
    /// The supported verbs, such as `list` and `watch`.
    pub verbs: Vec<String>,
}

/// Why a kind or a resource could not be found.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DiscoveryError {
    /// The server serves no such kind.
    #[error("the server has no kind {kind} in {group_version}")]
    UnknownKind {
        /// The group and version, as in `apiVersion`.
        group_version: String,
        /// The kind.
        kind: String,
    },
    /// The server serves no such resource.
    #[error("the server has no resource {resource} in {group_version}")]
    UnknownResource {
        /// The group and version, as in `apiVersion`.
        group_version: String,
        /// The plural, lower-case name.
        resource: String,
    },
    /// The resource exists, but does not support list and watch.
    #[error("{0} does not support list and watch")]
    NotWatchable(GroupVersionResource),
    /// The discovery request failed.
    #[error("discovery of {group_version} failed: {source}")]
    Request {
        /// The group and version, as in `apiVersion`.
        group_version: String,
        /// The cause.
        source: ListWatchError,
    },
}

impl Discovered {
    /// Whether the resource supports this verb, such as `watch`.
    pub fn supports(&self, verb: &str) -> bool {
        self.verbs.iter().any(|known| known == verb)
    }

    /// The resource in the form that kube's dynamic API takes.
    pub fn api_resource(&self) -> ApiResource {
        let kind = GroupVersionKind::gvk(&self.resource.group, &self.resource.version, &self.kind);
        ApiResource::from_gvk_with_plural(&kind, &self.resource.resource)
    }

    /// Rejects resources that informers cannot use.
    pub(crate) fn watchable(self) -> Result<Self, DiscoveryError> {
        let watchable = self.supports("list") && self.supports("watch");
        if watchable { Ok(self) } else { Err(DiscoveryError::NotWatchable(self.resource)) }
    }
}

/// Resolves a kind to its resource, scope and verbs, with one request.
pub async fn discover_kind(client: &Client, kind: &GroupVersionKind) -> Result<Discovered, DiscoveryError> {
    let found = find(client, &kind.group, &kind.version, |_, candidate| candidate == kind.kind).await?;
    found.ok_or_else(|| DiscoveryError::UnknownKind {
        group_version: group_version(&kind.group, &kind.version),
        kind: kind.kind.clone(),
    })
}

/// Resolves the plural name of a resource to its kind and scope, with one request.
pub async fn discover_resource(
    client: &Client,
    group: &str,
    version: &str,
    resource: &str,
) -> Result<Discovered, DiscoveryError> {
    let found = find(client, group, version, |candidate, _| candidate == resource).await?;
    found.ok_or_else(|| DiscoveryError::UnknownResource {
        group_version: group_version(group, version),
        resource: resource.to_owned(),
    })
}

/// The first matching resource, ignoring subresources. A group that is not served has none.
async fn find(
    client: &Client,
    group: &str,
    version: &str,
    is_wanted: impl Fn(&str, &str) -> bool,
) -> Result<Option<Discovered>, DiscoveryError> {
    let name = group_version(group, version);
    let answer = if group.is_empty() {
        client.list_core_api_resources(version).await
    } else {
        client.list_api_group_resources(&name).await
    };
    let list = match answer {
        Ok(list) => list,
        Err(kube::Error::Api(status)) if is_absent(&status) => return Ok(None),
        Err(source) => {
            return Err(DiscoveryError::Request { group_version: name, source: cause(source) });
        }
    };
    let mut resources = list.resources.into_iter().filter(|resource| !resource.name.contains('/'));
    let found = resources.find(|resource| is_wanted(&resource.name, &resource.kind));
    Ok(found.map(|resource| Discovered {
        resource: GroupVersionResource {
            group: group.to_owned().into(),
            version: version.to_owned().into(),
            resource: resource.name.into(),
            namespaced: resource.namespaced,
        },
        kind: resource.kind,
        verbs: resource.verbs,
    }))
}

/// kube's own text of a rejection repeats the whole status as Rust prints it.
fn cause(error: kube::Error) -> ListWatchError {
    match error {
        kube::Error::Api(status) => ListWatchError::Status(status),
        error => ListWatchError::Transport(Box::new(error)),
    }
}

fn is_absent(status: &Status) -> bool {
    status.code == 404
}

fn group_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rejection_is_reported_as_the_server_words_it() {
        let status = json!({ "code": 403, "reason": "Forbidden", "message": "not yours", "details": {} });
        let rejected = kube::Error::Api(serde_json::from_value(status).unwrap());
        let error = DiscoveryError::Request { group_version: "apps/v1".to_owned(), source: cause(rejected) };
        let text = "discovery of apps/v1 failed: the server rejected the request: 403 Forbidden: not yours";
        assert_eq!(error.to_string(), text);
    }
}
