//! The rules of the roles, one access at a time.

use std::collections::BTreeSet;

use serde_json::Value;
use supercargo::access::{self, ACCESS, ELECTION_ACCESS};
use supercargo::config::{Catalog, Config};

use super::manifests::{self, text};

/// What may be done to what: group, resource with subresource, verb.
pub(super) type Access = (String, String, String);

/// What a role's rules allow, of whatever names.
pub(super) fn allowed(role: &Value) -> Vec<Access> {
    let mut allowed = Vec::new();
    for rule in list(role, "rules") {
        let mut fields: Vec<&str> =
            rule.as_object().expect("a rule is an object").keys().map(String::as_str).collect();
        if role["kind"] == "Role" {
            fields.retain(|field| *field != "resourceNames");
        }
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

/// The table's lines, as the roles have them.
fn table(lines: &[access::Access]) -> Vec<Access> {
    let words = |line: &access::Access| (line.group.into(), line.resource.into(), line.verb.into());
    lines.iter().map(words).collect()
}

fn assert_same(allowed: &[Access], does: &[Access], file: &str) {
    let (allowed_once, does_once) = (BTreeSet::from_iter(allowed), BTreeSet::from_iter(does));
    assert_eq!(allowed_once, does_once, "left: {file}, right: src/access.rs");
    assert_eq!(allowed.len(), allowed_once.len(), "the role allows something twice");
    assert_eq!(does.len(), does_once.len(), "the table has something twice");
    let wide = allowed
        .iter()
        .find(|(group, resource, verb)| [group, resource, verb].iter().any(|word| word.contains('*')));
    assert_eq!(wide, None, "no wildcards");
}

#[test]
fn the_cluster_role_allows_what_the_code_does_and_nothing_else() {
    let allowed = allowed(&manifests::object("ClusterRole"));
    assert_same(&allowed, &table(ACCESS), "manifests/base/clusterrole.yaml");
}

#[test]
fn the_role_allows_what_an_election_takes_and_of_one_lease_only() {
    let role = manifests::object("Role");
    assert_same(&allowed(&role), &table(ELECTION_ACCESS), "manifests/base/role.yaml");
    let config = Config::parse("config.yaml", &manifests::config(), &Catalog::in_tree()).unwrap();
    let election = config.leader_election;
    assert_eq!(role["metadata"]["namespace"], *election.resource_namespace);
    for rule in list(&role, "rules") {
        let names = &rule["resourceNames"];
        if rule["verbs"] == serde_json::json!(["create"]) {
            assert!(names.is_null(), "whoever creates something has no name to be held to: {rule}");
        } else {
            assert_eq!(*names, serde_json::json!([election.resource_name]), "{rule}");
        }
    }
}
