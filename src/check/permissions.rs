//! What a scheduler must be allowed to do.

use std::fmt;

use anyhow::Result;
use http::Method;
use serde_json::{Value, json};
use supercargo_scheduler::Scheduler;

use crate::informers::WantedResource;
use supercargo_client::api::{Api, Call, CallError, JSON};
use supercargo_config::Config;
use supercargo_config::flags::Flags;
use supercargo_owner::options::scheduler_options;

const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

/// A kind of request, in the terms of RBAC. Empty texts mean the core group, no subresource, all
/// namespaces, and any name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Permission {
    pub(super) verb: &'static str,
    pub(super) group: String,
    pub(super) resource: String,
    pub(super) subresource: &'static str,
    pub(super) namespace: String,
    pub(super) name: String,
}

impl Permission {
    fn new(verb: &'static str, group: &str, resource: &str) -> Self {
        Self { verb, group: group.to_owned(), resource: resource.to_owned(), ..Self::default() }
    }

    fn of(self, subresource: &'static str) -> Self {
        Self { subresource, ..self }
    }

    fn named(self, namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.to_owned(), name: name.to_owned(), ..self }
    }

    /// Asks the API server. This changes nothing.
    pub(super) async fn is_granted(&self, api: &Api) -> Result<bool, CallError> {
        let body = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": { "resourceAttributes": {
                "verb": self.verb,
                "group": self.group,
                "resource": self.resource,
                "subresource": self.subresource,
                "namespace": self.namespace,
                "name": self.name,
            } },
        });
        let call = Call { method: Method::POST, path: REVIEWS, content_type: JSON, body: &body };
        Ok(api.call(call).await?["status"]["allowed"] == Value::Bool(true))
    }

    /// What grants it.
    pub(super) fn advice(&self) -> &'static str {
        if self.group == "scheduling.k8s.io" {
            "the ClusterRole in docs/groups.md grants it"
        } else if self.group == "coordination.k8s.io" {
            "the Role in manifests/base/role.yaml grants it"
        } else if self.resource == "configmaps" {
            "the RoleBinding in manifests/base/authentication-reader.yaml grants it"
        } else {
            "the ClusterRole in manifests/base/clusterrole.yaml grants it; a plugin of your own needs its own role"
        }
    }
}

impl fmt::Display for Permission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        if !self.subresource.is_empty() {
            write!(f, "/{}", self.subresource)?;
        }
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        if !self.name.is_empty() {
            write!(f, " {:?}", self.name)?;
        }
        if !self.namespace.is_empty() {
            write!(f, " in {}", self.namespace)?;
        }
        Ok(())
    }
}

/// The resources besides pods and nodes of which `run` has informers.
pub(super) fn read_by_plugins(config: &Config) -> Result<Vec<WantedResource>> {
    let resources = Scheduler::new(scheduler_options(config))?.resources();
    Ok(resources.iter().filter_map(WantedResource::new).collect())
}

/// Everything that `run` with these flags and this configuration asks of the API server.
pub(super) fn needed(flags: &Flags, config: &Config) -> Result<Vec<Permission>> {
    let core = |verb, resource| Permission::new(verb, "", resource);
    let mut needed = vec![
        core("get", "pods"),
        core("delete", "pods"),
        core("create", "pods").of("binding"),
        core("patch", "pods").of("status"),
        Permission::new("create", "events.k8s.io", "events"),
        Permission::new("patch", "events.k8s.io", "events"),
    ];
    let mut watched = vec![(String::new(), "pods".to_owned()), (String::new(), "nodes".to_owned())];
    watched.extend(read_by_plugins(config)?.into_iter().map(|resource| (resource.group, resource.plural)));
    for (group, plural) in &watched {
        needed.extend(["list", "watch"].map(|verb| Permission::new(verb, group, plural)));
        // Volumes are bound by an update of both.
        if ["persistentvolumes", "persistentvolumeclaims"].contains(&plural.as_str()) {
            needed.push(Permission::new("update", group, plural));
        }
        if plural == "podgroups" {
            needed.push(Permission::new("patch", group, plural).of("status"));
        }
        if plural == "resourceclaims" {
            needed.extend(
                ["get", "create", "update", "delete"].map(|verb| Permission::new(verb, group, plural)),
            );
            for subresource in ["status", "binding"] {
                let written =
                    ["update", "patch"].map(|verb| Permission::new(verb, group, plural).of(subresource));
                needed.extend(written);
            }
        }
    }
    let election = &config.leader_election;
    if election.leader_elect {
        let lease = |verb| Permission::new(verb, "coordination.k8s.io", "leases");
        let named = |permission: Permission, name: &str| permission.named(&election.resource_namespace, name);
        needed.push(named(lease("create"), ""));
        needed.extend(
            ["get", "update", "list", "watch"].map(|verb| named(lease(verb), &election.resource_name)),
        );
    }
    if flags.serving.secure_port != 0 {
        needed.push(Permission::new("create", "authentication.k8s.io", "tokenreviews"));
        needed.push(Permission::new("create", "authorization.k8s.io", "subjectaccessreviews"));
        if !flags.authentication.skip_lookup {
            let name = "extension-apiserver-authentication";
            needed.push(core("get", "configmaps").named("kube-system", name));
        }
    }
    Ok(needed)
}
