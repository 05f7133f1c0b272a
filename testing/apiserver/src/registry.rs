//! The kinds that are currently served: built-in ones and those of CustomResourceDefinitions.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::Value;

use crate::json::{text, text_in, texts};
use crate::kinds::{Kind, Subresource, Verbs, built_in};
use crate::status::{Result, Status};
use crate::store::ResourceKey;

/// The served kinds, in discovery order.
#[derive(Clone, Debug)]
pub(crate) struct Registry {
    kinds: Vec<Arc<Kind>>,
}

impl Registry {
    /// The built-in kinds, with those of gang scheduling if `pod_groups`.
    pub(crate) fn new(pod_groups: bool) -> Self {
        let kinds = built_in().iter().filter(|kind| pod_groups || !kind.gated);
        Self { kinds: kinds.cloned().map(Arc::new).collect() }
    }

    /// All served kinds.
    pub(crate) fn kinds(&self) -> &[Arc<Kind>] {
        &self.kinds
    }

    /// The kind at a path.
    pub(crate) fn find(&self, group: &str, version: &str, resource: &str) -> Result<&Arc<Kind>> {
        let is_it =
            |kind: &&Arc<Kind>| kind.resource == resource && kind.group == group && kind.version == version;
        self.kinds.iter().find(is_it).ok_or_else(Status::no_such_path)
    }

    /// Whether a group version has any kinds.
    pub(crate) fn serves(&self, group: &str, version: &str) -> bool {
        self.kinds.iter().any(|kind| kind.group == group && kind.version == version)
    }

    /// The kind of an object by its `apiVersion` and `kind`.
    pub(crate) fn of(&self, api_version: &str, kind: &str) -> Option<&Arc<Kind>> {
        self.kinds.iter().find(|known| known.kind == kind && known.api_version() == api_version)
    }

    /// The kind that is stored under a resource key, in its stored version.
    pub(crate) fn stored(&self, resource: &ResourceKey) -> Option<&Arc<Kind>> {
        let is_it = |kind: &&Arc<Kind>| *kind.group == *resource.0 && *kind.resource == *resource.1;
        self.kinds.iter().find(is_it)
    }

    /// Serves the kinds of a CustomResourceDefinition, replacing those of its previous version.
    pub(crate) fn define(&mut self, definition: &Value) {
        let defined = custom_kinds(definition);
        let spec = &definition["spec"];
        let (group, resource) = (text_in(spec, &["group"]), text_in(spec, &["names", "plural"]));
        let is_taken =
            |kind: &Arc<Kind>| !kind.custom && *kind.group == *group && *kind.resource == *resource;
        if self.kinds.iter().any(is_taken) {
            return;
        }
        self.undefine(group, resource);
        self.kinds.extend(defined.into_iter().map(Arc::new));
        // As in upstream's discovery, groups without an assigned position are sorted by name.
        self.kinds.sort_by(|one, other| {
            let place = |kind: &Kind| kind.custom.then(|| (kind.group.clone(), kind.resource.clone()));
            place(one).cmp(&place(other))
        });
    }

    /// Stops serving a custom resource.
    pub(crate) fn undefine(&mut self, group: &str, resource: &str) {
        self.kinds.retain(|kind| !(kind.custom && kind.group == group && kind.resource == resource));
    }
}

impl Kind {
    /// Whether this is the kind of CustomResourceDefinitions.
    pub(crate) fn is_definition(&self) -> bool {
        self.resource == "customresourcedefinitions" && !self.custom
    }

    /// Whether this is the kind of namespaces.
    pub(crate) fn is_namespace(&self) -> bool {
        self.resource == "namespaces" && !self.custom
    }

    /// The key that objects are stored under.
    pub(crate) fn resource_key(&self) -> ResourceKey {
        let (group, resource) = self.store_key();
        (group.into(), resource.into())
    }
}

/// The kinds of a definition, one for each served version.
fn custom_kinds(definition: &Value) -> Vec<Kind> {
    let spec = &definition["spec"];
    let names = &spec["names"];
    let owned = |text: &str| Cow::Owned(text.to_owned());
    let all = |field: &str| texts(names, field).map(owned).collect();
    let versions = spec["versions"].as_array().into_iter().flatten();
    let kind = |version: &Value| Kind {
        group: owned(text(spec, "group")),
        version: owned(text(version, "name")),
        resource: owned(text(names, "plural")),
        kind: owned(text(names, "kind")),
        singular: owned(text(names, "singular")),
        short_names: all("shortNames"),
        categories: all("categories"),
        namespaced: spec["scope"] == "Namespaced",
        verbs: Verbs::All,
        subresources: [("status", Subresource::Status), ("scale", Subresource::Scale)]
            .into_iter()
            .filter(|(name, _)| version["subresources"].get(name).is_some())
            .map(|(_, subresource)| subresource)
            .collect(),
        stored_in_group: owned(text(spec, "group")),
        custom: true,
        gated: false,
    };
    let mut kinds: Vec<Kind> = versions.filter(|version| version["served"] == true).map(kind).collect();
    kinds.sort_by_key(|kind| std::cmp::Reverse(priority(&kind.version)));
    kinds
}

/// Upstream's version order: `v2` before `v1` before `v1beta2` before `v1alpha1` before other
/// names.
fn priority(version: &str) -> (u8, u32, u32) {
    let parse = || {
        let rest = version.strip_prefix('v')?;
        let end = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len());
        let (major, rest) = rest.split_at(end);
        let major = major.parse().ok()?;
        let (stage, minor) = match rest {
            "" => return Some((3, major, 0)),
            rest if rest.starts_with("beta") => (2, &rest[4..]),
            rest if rest.starts_with("alpha") => (1, &rest[5..]),
            _ => return None,
        };
        Some((stage, major, minor.parse().ok()?))
    };
    parse().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn definition_adds_and_removes_its_served_versions() {
        let mut registry = Registry::new(false);
        let before = registry.kinds().len();
        let definition = json!({"spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "things", "kind": "Thing", "singular": "thing", "shortNames": ["th"]},
            "versions": [
                {"name": "v1beta1", "served": true, "storage": false},
                {"name": "v1", "served": true, "storage": true, "subresources": {"status": {}}},
                {"name": "v1alpha1", "served": false, "storage": false},
            ],
        }});
        registry.define(&definition);
        registry.define(&definition);
        let versions: Vec<&str> = registry.kinds()[before..].iter().map(|kind| &*kind.version).collect();
        assert_eq!(versions, ["v1", "v1beta1"]);
        assert!(registry.find("example.com", "v1", "things").unwrap().has(Subresource::Status));
        assert!(registry.of("example.com/v1beta1", "Thing").is_some());
        registry.undefine("example.com", "things");
        assert_eq!(registry.kinds().len(), before);
    }

    #[test]
    fn versions_are_ordered_as_upstream_orders_them() {
        let mut versions = ["v1alpha1", "foo", "v2", "v1beta2", "v10", "v1", "v1beta10"];
        versions.sort_by_key(|version| std::cmp::Reverse(priority(version)));
        assert_eq!(versions, ["v10", "v2", "v1", "v1beta10", "v1beta2", "v1alpha1", "foo"]);
    }
}
