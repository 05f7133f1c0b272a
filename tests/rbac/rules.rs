//! The rules of a ClusterRole, one access at a time.

use std::collections::BTreeSet;

use serde_json::Value;
use supercargo::access::ACCESS;

use super::manifests::{self, text};

/// What may be done to what: group, resource with subresource, verb.
pub(super) type Access = (String, String, String);

/// What a ClusterRole's rules allow.
pub(super) fn allowed(role: &Value) -> Vec<Access> {
    let mut allowed = Vec::new();
    for rule in list(role, "rules") {
        let fields: Vec<&String> = rule.as_object().expect("a rule is an object").keys().collect();
        assert_eq!(
            fields,
            ["apiGroups", "resources", "verbs"],
            "what a rule says more than this is not looked at"
        );
        for group in list(rule, "apiGroups") {
            for resource in list(rule, "resources") {
                for verb in list(rule, "verbs") {
                    allowed.push((text(group).into(), text(resource).into(), text(verb).into()));
                }
            }
        }
    }
    allowed
}

fn list<'a>(object: &'a Value, field: &str) -> &'a Vec<Value> {
    object[field].as_array().unwrap_or_else(|| panic!("{field} is no list in {object}"))
}

#[test]
fn the_cluster_role_allows_what_the_code_does_and_nothing_else() {
    let allowed = allowed(&manifests::object("ClusterRole"));
    let does: Vec<Access> = ACCESS
        .iter()
        .map(|access| (access.group.into(), access.resource.into(), access.verb.into()))
        .collect();
    let (allowed_once, does_once) = (BTreeSet::from_iter(&allowed), BTreeSet::from_iter(&does));
    assert_eq!(allowed_once, does_once, "left: manifests/base/clusterrole.yaml, right: src/access.rs");
    assert_eq!(allowed.len(), allowed_once.len(), "the role allows something twice");
    assert_eq!(does.len(), does_once.len(), "the table has something twice");
    let wide = allowed
        .iter()
        .find(|(group, resource, verb)| [group, resource, verb].iter().any(|word| word.contains('*')));
    assert_eq!(wide, None, "no wildcards");
}
