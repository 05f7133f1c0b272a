//! The rules of the roles, one access at a time.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::support::access::{self, ACCESS, ELECTION_ACCESS, GROUP_ACCESS, LOOKUP, REVIEWS};
use serde_json::Value;
use supercargo_config::{Catalog, Config};

use super::manifests::{self, text};

/// A permission: group, resource with subresource, verb.
pub(super) type Access = (String, String, String);

/// The permissions of a role's rules, for all names.
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

/// The permissions of a ClusterRole that scheduling needs. The others are for endpoint reviews: see
/// tests/e2e/endpoints.rs.
pub(super) fn allowed_for_scheduling(role: &Value) -> Vec<Access> {
    let reviews: Vec<Access> = REVIEWS.iter().map(in_words).collect();
    allowed(role).into_iter().filter(|access| !reviews.contains(access)).collect()
}

/// Whether every run shows the permission as a request: the server checks `resourceclaims/binding`
/// beside a write of the status, a claim is read only after a conflict, and deleted only after a
/// failure.
pub(super) fn is_seen((_, resource, verb): &Access) -> bool {
    let is_rare = matches!((&**resource, &**verb), ("resourceclaims", "get" | "delete"));
    resource != "resourceclaims/binding" && !is_rare
}

pub(super) fn in_words(access: &access::Access) -> Access {
    (access.group.into(), access.resource.into(), access.verb.into())
}

fn assert_same(allowed: &[Access], does: &[Access], file: &str) {
    let (allowed_once, does_once) = (BTreeSet::from_iter(allowed), BTreeSet::from_iter(does));
    assert_eq!(allowed_once, does_once, "left: {file}, right: tests/support/access.rs");
    assert_eq!(allowed.len(), allowed_once.len(), "the role allows something twice");
    assert_eq!(does.len(), does_once.len(), "the table has something twice");
    let wide = allowed
        .iter()
        .find(|(group, resource, verb)| [group, resource, verb].iter().any(|word| word.contains('*')));
    assert_eq!(wide, None, "no wildcards");
}

#[test]
fn cluster_role_equals_access_table() {
    let allowed = allowed(&manifests::object("ClusterRole"));
    let does: Vec<Access> = ACCESS.iter().chain(REVIEWS).map(in_words).collect();
    assert_same(&allowed, &does, "manifests/base/clusterrole.yaml");
}

#[test]
fn role_for_groups_equals_access_table() {
    let allowed = allowed(&manifests::read("groups/clusterrole.yaml"));
    let does: Vec<Access> = GROUP_ACCESS.iter().map(in_words).collect();
    assert_same(&allowed, &does, "manifests/groups/clusterrole.yaml");
}

#[test]
fn lease_role_covers_one_lease_only() {
    let role = manifests::object("Role");
    assert_same(
        &allowed(&role),
        &ELECTION_ACCESS.iter().map(in_words).collect::<Vec<_>>(),
        "manifests/base/role.yaml",
    );
    let config = Config::parse("config.yaml", &manifests::config(), &Catalog::in_tree()).unwrap();
    let election = config.leader_election;
    assert_eq!(role["metadata"]["namespace"], *election.resource_namespace);
    for rule in list(&role, "rules") {
        let names = &rule["resourceNames"];
        if rule["verbs"] == serde_json::json!(["create"]) {
            assert!(names.is_null(), "RBAC cannot restrict create by name: {rule}");
        } else {
            assert_eq!(*names, serde_json::json!([election.resource_name]), "{rule}");
        }
    }
}

/// The rows of a table in docs/security.md. One row has all verbs on a resource with one reason.
fn rows<'a>(table: impl IntoIterator<Item = &'a access::Access>) -> Vec<String> {
    let mut rows: Vec<(&access::Access, Vec<&str>)> = Vec::new();
    for access in table {
        let same = |(row, _): &&mut (&access::Access, _)| {
            (row.group, row.resource, row.reason) == (access.group, access.resource, access.reason)
        };
        match rows.iter_mut().find(same) {
            Some((_, verbs)) => verbs.push(access.verb),
            None => rows.push((access, vec![access.verb])),
        }
    }
    let row = |(access, verbs): (&access::Access, Vec<&str>)| {
        let group = if access.group.is_empty() { "core" } else { access.group };
        format!("| {group} | {} | {} | {} |", access.resource, verbs.join(", "), access.reason)
    };
    rows.into_iter().map(row).collect()
}

#[test]
fn rbac_docs_explain_every_rule() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/security.md");
    let text = fs::read_to_string(path).unwrap();
    let mut lines = text.lines();
    let base = ACCESS.iter().chain(ELECTION_ACCESS).chain(REVIEWS).chain([&LOOKUP]);
    for expected in [rows(base), rows(GROUP_ACCESS)] {
        let table = lines.by_ref().skip_while(|line| !line.starts_with("| group | resource |")).skip(2);
        let found: Vec<&str> = table.take_while(|line| line.starts_with('|')).collect();
        assert_eq!(found, expected, "docs/security.md should have this table:\n{}", expected.join("\n"));
    }
}
