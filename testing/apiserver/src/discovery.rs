//! Discovery in plain and aggregated form, the version, and the responses of the health endpoints.
//!
//! | path | `Accept` | form |
//! |---|---|---|
//! | `/api` | `application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList` (also with `;profile=nopeer`) | [`aggregated_core`] |
//! | `/api` | anything else that takes JSON | [`api_versions`] |
//! | `/apis` | `application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList` (also with `;profile=nopeer`) | [`aggregated_groups`] |
//! | `/apis` | anything else that takes JSON | [`api_group_list`] |
//! | `/apis/GROUP` | | [`api_group`] |
//! | `/api/v1`, `/apis/GROUP/VERSION` | | [`api_resource_list`] |
//! | `/version` | | [`version`] |
//! | `/healthz`, `/livez`, `/readyz` | `text/plain` in any case | [`health`] |
//!
//! client-go accepts v2, v2beta1 and plain JSON in one request and takes the first that the server
//! offers. The real server does not serve v2beta1: a request for v2beta1 alone gets 406, here too.
//! The response's content type must be [`AGGREGATED`], or client-go reads it as the plain form.

use std::cmp::Ordering;

use serde_json::{Value, json};

use crate::kinds::{Kind, Subresource, Verbs};

/// The content type of aggregated discovery.
pub(crate) const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// The emulated Kubernetes version, marked as not the real server.
pub(crate) const GIT_VERSION: &str = "v1.37.2+supercargo";

/// `/api`: the versions of the core group. The address is the listener's, for example
/// `127.0.0.1:6443`.
pub(crate) fn api_versions(server_address: &str) -> Value {
    json!({
        "kind": "APIVersions", "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": server_address}],
    })
}

/// `/apis`: every group but the core one, in the order in which the kinds list them.
pub(crate) fn api_group_list<'a>(kinds: impl IntoIterator<Item = &'a Kind>) -> Value {
    let groups: Vec<Value> =
        groups(kinds).iter().skip_while(|group| group.name.is_empty()).map(Group::to_json).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// `/apis/GROUP`; `None` when nothing is served in the group.
pub(crate) fn api_group<'a>(kinds: impl IntoIterator<Item = &'a Kind>, name: &str) -> Option<Value> {
    let groups = groups(kinds.into_iter().filter(|kind| kind.group == name && !name.is_empty()));
    let mut group = groups.first()?.to_json();
    group["kind"] = "APIGroup".into();
    group["apiVersion"] = "v1".into();
    Some(group)
}

/// `/api/v1` (for the group `""`) and `/apis/GROUP/VERSION`; `None` when nothing is served there.
pub(crate) fn api_resource_list<'a>(
    kinds: impl IntoIterator<Item = &'a Kind>,
    group: &str,
    version: &str,
) -> Option<Value> {
    let kinds = sorted(kinds.into_iter().filter(|kind| kind.group == group && kind.version == version));
    let first = kinds.first()?;
    let mut list = json!({"kind": "APIResourceList", "groupVersion": first.api_version()});
    // Upstream omits it in the core group.
    if !group.is_empty() {
        list["apiVersion"] = "v1".into();
    }
    list["resources"] = kinds.iter().flat_map(|kind| api_resources(kind)).collect();
    Some(list)
}

/// `/api` in aggregated form.
pub(crate) fn aggregated_core<'a>(kinds: impl IntoIterator<Item = &'a Kind>) -> Value {
    aggregated(groups(kinds.into_iter().filter(|kind| kind.group.is_empty())))
}

/// `/apis` in aggregated form.
pub(crate) fn aggregated_groups<'a>(kinds: impl IntoIterator<Item = &'a Kind>) -> Value {
    aggregated(groups(kinds.into_iter().filter(|kind| !kind.group.is_empty())))
}

/// `/version`. Clients derive the server's features from the minor version.
pub(crate) fn version() -> Value {
    json!({
        "major": "1", "minor": "37", "emulationMajor": "1", "emulationMinor": "37",
        "minCompatibilityMajor": "1", "minCompatibilityMinor": "36",
        "gitVersion": GIT_VERSION, "gitCommit": "", "gitTreeState": "", "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "", "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, go_architecture()),
    })
}

/// The response of a health endpoint (`healthz`, `livez`, `readyz`) whose checks all pass: `ok`, or
/// every check if verbose.
pub(crate) fn health(endpoint: &str, checks: &[&str], verbose: bool) -> String {
    if !verbose {
        return "ok".to_owned();
    }
    let mut lines: Vec<String> = checks.iter().map(|check| format!("[+]{check} ok")).collect();
    lines.push(format!("{endpoint} check passed\n"));
    lines.join("\n")
}

/// Go's name for the machine's architecture.
fn go_architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// A group with its versions, preferred version first.
struct Group<'a> {
    name: &'a str,
    versions: Vec<(&'a str, Vec<&'a Kind>)>,
}

impl Group<'_> {
    fn to_json(&self) -> Value {
        let versions: Vec<Value> = self
            .versions
            .iter()
            .map(|(version, _)| json!({"groupVersion": format!("{}/{version}", self.name), "version": version}))
            .collect();
        json!({"name": self.name, "versions": versions, "preferredVersion": versions[0]})
    }

    fn to_aggregated(&self) -> Value {
        let metadata = if self.name.is_empty() { json!({}) } else { json!({"name": self.name}) };
        let versions: Vec<Value> = self
            .versions
            .iter()
            .map(|(version, kinds)| {
                let resources: Vec<Value> =
                    sorted(kinds.iter().copied()).into_iter().map(aggregated_resource).collect();
                json!({"version": version, "resources": resources, "freshness": "Current"})
            })
            .collect();
        json!({"metadata": metadata, "versions": versions})
    }
}

fn aggregated(groups: Vec<Group<'_>>) -> Value {
    json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {},
        "items": groups.iter().map(Group::to_aggregated).collect::<Vec<_>>(),
    })
}

/// The groups in the order of their first kind, so the core group, if present, is first.
fn groups<'a>(kinds: impl IntoIterator<Item = &'a Kind>) -> Vec<Group<'a>> {
    let mut groups: Vec<Group<'a>> = Vec::new();
    for kind in kinds {
        let index = groups.iter().position(|group| group.name == kind.group).unwrap_or_else(|| {
            groups.push(Group { name: &kind.group, versions: Vec::new() });
            groups.len() - 1
        });
        let versions = &mut groups[index].versions;
        match versions.iter_mut().find(|(version, _)| *version == kind.version) {
            Some((_, kinds)) => kinds.push(kind),
            None => versions.push((&kind.version, vec![kind])),
        }
    }
    for group in &mut groups {
        group.versions.sort_by(|(one, _), (other, _)| compare_versions(one, other));
    }
    groups.sort_by_key(|group| !group.name.is_empty());
    groups
}

fn sorted<'a>(kinds: impl IntoIterator<Item = &'a Kind>) -> Vec<&'a Kind> {
    let mut kinds: Vec<&Kind> = kinds.into_iter().collect();
    kinds.sort_by(|one, other| one.resource.cmp(&other.resource));
    kinds
}

/// Orders versions by preference: stable before beta before alpha, higher numbers first. Other
/// names come last, in alphabetical order.
pub(crate) fn compare_versions(one: &str, other: &str) -> Ordering {
    match (maturity(one), maturity(other)) {
        (Some(one), Some(other)) => other.cmp(&one),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => one.cmp(other),
    }
}

/// `v2beta3` as (1, 2, 3): stable is 2, beta 1, alpha 0.
fn maturity(version: &str) -> Option<(u8, u32, u32)> {
    let rest = version.strip_prefix('v')?;
    let digits = rest.find(|character: char| !character.is_ascii_digit()).unwrap_or(rest.len());
    let (major, stage) = rest.split_at(digits);
    let major = major.parse().ok()?;
    if stage.is_empty() {
        return Some((2, major, 0));
    }
    let (level, number) = match stage.strip_prefix("beta") {
        Some(number) => (1, number),
        None => (0, stage.strip_prefix("alpha")?),
    };
    Some((level, major, number.parse().ok()?))
}

/// The entry of a resource and those of its subresources.
fn api_resources(kind: &Kind) -> Vec<Value> {
    let mut resource = json!({
        "name": kind.resource, "singularName": kind.singular, "namespaced": kind.namespaced, "kind": kind.kind,
        "verbs": verbs(kind),
    });
    name_shortly(&mut resource, kind);
    let mut resources = vec![resource];
    for subresource in subresources(kind) {
        let (foreign, name) = response_kind(kind, subresource);
        let mut entry = json!({
            "name": format!("{}/{}", kind.resource, subresource.name()), "singularName": "",
            "namespaced": kind.namespaced, "kind": name, "verbs": subresource_verbs(subresource),
        });
        if let Some((group, version)) = foreign {
            entry["group"] = group.into();
            entry["version"] = version.into();
        }
        resources.push(entry);
    }
    resources
}

fn aggregated_resource(kind: &Kind) -> Value {
    // Upstream leaves group and version empty where they equal the list's, except for custom
    // resources.
    let own = if kind.custom { (&*kind.group, &*kind.version) } else { ("", "") };
    let mut resource = json!({
        "resource": kind.resource,
        "responseKind": {"group": own.0, "version": own.1, "kind": kind.kind},
        "scope": if kind.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": kind.singular, "verbs": verbs(kind),
    });
    name_shortly(&mut resource, kind);
    let subresources: Vec<Value> = subresources(kind)
        .into_iter()
        .map(|subresource| {
            let (foreign, name) = response_kind(kind, subresource);
            let (group, version) = foreign.unwrap_or(own);
            json!({
                "subresource": subresource.name(),
                "responseKind": {"group": group, "version": version, "kind": name},
                "verbs": subresource_verbs(subresource),
            })
        })
        .collect();
    if !subresources.is_empty() {
        resource["subresources"] = subresources.into();
    }
    resource
}

fn name_shortly(resource: &mut Value, kind: &Kind) {
    if !kind.short_names.is_empty() {
        resource["shortNames"] = json!(kind.short_names);
    }
    if !kind.categories.is_empty() {
        resource["categories"] = json!(kind.categories);
    }
}

fn subresources(kind: &Kind) -> Vec<Subresource> {
    let mut subresources = kind.subresources.to_vec();
    subresources.sort_by_key(|subresource| subresource.name());
    subresources
}

/// The verbs of a resource, in the words of discovery.
pub(crate) fn verbs(kind: &Kind) -> &'static [&'static str] {
    match kind.verbs {
        Verbs::Create => &["create"],
        Verbs::All if kind.custom => {
            &["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"]
        }
        Verbs::All if kind.group.is_empty() && kind.resource == "namespaces" => {
            &["create", "delete", "get", "list", "patch", "update", "watch"]
        }
        Verbs::All => &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
    }
}

fn subresource_verbs(subresource: Subresource) -> &'static [&'static str] {
    match subresource {
        Subresource::Binding | Subresource::Eviction | Subresource::Token => &["create"],
        Subresource::Finalize => &["update"],
        Subresource::Status | Subresource::Scale | Subresource::EphemeralContainers | Subresource::Resize => {
            &["get", "patch", "update"]
        }
    }
}

/// The kind that a subresource reads and writes, with its group and version if they differ from the
/// resource's.
pub(crate) fn response_kind(
    kind: &Kind,
    subresource: Subresource,
) -> (Option<(&'static str, &'static str)>, &str) {
    match subresource {
        Subresource::Scale => (Some(("autoscaling", "v1")), "Scale"),
        Subresource::Eviction => (Some(("policy", "v1")), "Eviction"),
        Subresource::Token => (Some(("authentication.k8s.io", "v1")), "TokenRequest"),
        Subresource::Binding => (None, "Binding"),
        Subresource::Status
        | Subresource::EphemeralContainers
        | Subresource::Resize
        | Subresource::Finalize => (None, &kind.kind),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::built_in;

    fn widgets(version: &'static str) -> Kind {
        let mut kind = built_in().iter().find(|kind| kind.resource == "leases").unwrap().clone();
        kind.group = "example.com".into();
        kind.stored_in_group = "example.com".into();
        kind.version = version.into();
        kind.resource = "widgets".into();
        kind.kind = "Widget".into();
        kind.singular = "widget".into();
        kind.subresources = vec![Subresource::Status, Subresource::Scale].into();
        kind.custom = true;
        kind
    }

    fn entry(list: &Value, name: &str) -> Value {
        let resources = list["resources"].as_array().unwrap();
        resources.iter().find(|resource| resource["name"] == name).unwrap_or(&Value::Null).clone()
    }

    #[test]
    fn core_group_is_listed_as_upstream_lists_it() {
        let list = api_resource_list(built_in(), "", "v1").unwrap();
        assert_eq!((&list["groupVersion"], &list["apiVersion"]), (&json!("v1"), &Value::Null));
        assert_eq!(
            entry(&list, "pods"),
            json!({"name": "pods", "singularName": "pod", "namespaced": true, "kind": "Pod",
                "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
                "shortNames": ["po"], "categories": ["all"]})
        );
        assert_eq!(
            entry(&list, "pods/eviction"),
            json!({"name": "pods/eviction", "singularName": "", "namespaced": true, "group": "policy",
                "version": "v1", "kind": "Eviction", "verbs": ["create"]})
        );
        assert_eq!(
            entry(&list, "pods/binding"),
            json!({"name": "pods/binding", "singularName": "", "namespaced": true, "kind": "Binding",
                "verbs": ["create"]})
        );
        assert_eq!(
            entry(&list, "namespaces")["verbs"],
            json!(["create", "delete", "get", "list", "patch", "update", "watch"])
        );
        let names: Vec<&str> = list["resources"]
            .as_array()
            .unwrap()
            .iter()
            .map(|entry| entry["name"].as_str().unwrap())
            .collect();
        assert!(names.is_sorted(), "{names:?}");
    }

    #[test]
    fn group_list_omits_the_core_group() {
        let list = api_group_list(built_in());
        assert_eq!(
            list["groups"][0],
            json!({"name": "apps", "versions": [{"groupVersion": "apps/v1", "version": "v1"}],
                "preferredVersion": {"groupVersion": "apps/v1", "version": "v1"}})
        );
        assert!(list["groups"].as_array().unwrap().iter().all(|group| group["name"] != ""));
        assert_eq!(api_group(built_in(), "apps").unwrap()["kind"], "APIGroup");
        assert_eq!(api_group(built_in(), ""), None);
        assert_eq!(api_group(built_in(), "nothing.example.com"), None);
        assert_eq!(api_resource_list(built_in(), "apps", "v2"), None);
    }

    #[test]
    fn preferred_version_is_the_most_stable_and_newest() {
        let kinds = ["v1beta1", "v1alpha1", "v1", "v2", "v10", "odd", "v2beta2", "v2beta10"].map(widgets);
        let group = api_group(&kinds, "example.com").unwrap();
        let versions: Vec<&str> = group["versions"]
            .as_array()
            .unwrap()
            .iter()
            .map(|entry| entry["version"].as_str().unwrap())
            .collect();
        assert_eq!(versions, ["v10", "v2", "v1", "v2beta10", "v2beta2", "v1beta1", "v1alpha1", "odd"]);
        assert_eq!(group["preferredVersion"]["groupVersion"], "example.com/v10");
    }

    #[test]
    fn aggregated_form_nests_subresources() {
        let core = aggregated_core(built_in());
        assert_eq!(core["items"][0]["metadata"], json!({}));
        let resources = core["items"][0]["versions"][0]["resources"].as_array().unwrap();
        let accounts = resources.iter().find(|entry| entry["resource"] == "serviceaccounts").unwrap();
        assert_eq!(
            *accounts,
            json!({"resource": "serviceaccounts",
                "responseKind": {"group": "", "version": "", "kind": "ServiceAccount"},
                "scope": "Namespaced", "singularResource": "serviceaccount",
                "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
                "shortNames": ["sa"],
                "subresources": [{"subresource": "token", "verbs": ["create"],
                    "responseKind": {"group": "authentication.k8s.io", "version": "v1", "kind": "TokenRequest"}}]})
        );
        let groups = aggregated_groups(built_in());
        assert_eq!(groups["items"][0]["metadata"]["name"], "apps");
    }

    #[test]
    fn custom_resources_name_their_group_in_aggregated_form() {
        let groups = aggregated_groups(&[widgets("v1")]);
        let widget = &groups["items"][0]["versions"][0]["resources"][0];
        assert_eq!(
            widget["responseKind"],
            json!({"group": "example.com", "version": "v1", "kind": "Widget"})
        );
        assert_eq!(
            widget["subresources"][0]["responseKind"],
            json!({"group": "autoscaling", "version": "v1", "kind": "Scale"})
        );
        assert_eq!(
            widget["subresources"][1]["responseKind"],
            json!({"group": "example.com", "version": "v1", "kind": "Widget"})
        );
    }

    #[test]
    fn health_responds_ok_or_every_check() {
        assert_eq!(health("livez", &["ping"], false), "ok");
        assert_eq!(health("readyz", &["ping", "log"], true), "[+]ping ok\n[+]log ok\nreadyz check passed\n");
    }
}
