//! The plugin's arguments.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;
use supercargo_framework::labels::{MAX_LABEL_VALUE, is_label_key};
use supercargo_framework::registry::{ArgsError, decode_args};
use supercargo_framework::topology_spread::TopologySpreadConstraint;

use supercargo_framework::node::HOSTNAME;

/// The default constraints, for pods without constraints.
pub(super) struct Defaults {
    pub(super) constraints: Box<[TopologySpreadConstraint]>,
    /// Whether these are the system defaults.
    pub(super) system: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Args {
    default_constraints: Option<Vec<DefaultConstraint>>,
    defaulting_type: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct DefaultConstraint {
    max_skew: Option<i32>,
    topology_key: Option<String>,
    when_unsatisfiable: Option<String>,
    label_selector: Option<Value>,
    min_domains: Option<i32>,
    node_affinity_policy: Option<String>,
    node_taints_policy: Option<String>,
    /// Accepted and, as upstream, ignored: the selector is always derived.
    #[serde(rename = "matchLabelKeys")]
    _match_label_keys: Option<Vec<String>>,
}

/// Decodes and validates the arguments.
pub(super) fn parse(args: &Value) -> Result<Defaults, ArgsError> {
    let args: Args = decode_args(args)?;
    let constraints = args.default_constraints.unwrap_or_default();
    for (i, constraint) in constraints.iter().enumerate() {
        check(constraint, &constraints[..i]).map_err(|(field, message)| {
            let dot = if field.is_empty() { "" } else { "." };
            ArgsError::new(format!("defaultConstraints[{i}]{dot}{field}"), message)
        })?;
    }
    let system = match args.defaulting_type.as_deref().unwrap_or_default() {
        "" | "System" if !constraints.is_empty() => {
            let message = "Invalid value: \"System\": when .defaultConstraints are not empty";
            return Err(ArgsError::new("defaultingType", message));
        }
        "" | "System" => true,
        "List" => false,
        other => {
            let message = format!("Unsupported value: {other:?}: supported values: \"System\", \"List\"");
            return Err(ArgsError::new("defaultingType", message));
        }
    };
    let constraints =
        if system { system_defaults() } else { constraints.into_iter().map(Into::into).collect() };
    Ok(Defaults { constraints, system })
}

/// The first error of a constraint. Fields that are missing come last: to find all errors, the
/// configuration removes what is rejected and asks again.
fn check(constraint: &DefaultConstraint, before: &[DefaultConstraint]) -> Result<(), (&'static str, String)> {
    let DefaultConstraint { max_skew, topology_key, when_unsatisfiable, label_selector, .. } = constraint;
    let faults = [
        ("maxSkew", max_skew.is_none(), skew_fault(max_skew.unwrap_or_default())),
        ("topologyKey", topology_key.is_none(), key_fault(constraint.key())),
        ("whenUnsatisfiable", when_unsatisfiable.is_none(), action_fault(constraint.action())),
        ("labelSelector", false, label_selector.as_ref().map(|_| SELECTOR_FAULT.to_owned())),
    ];
    let faults =
        faults.into_iter().filter_map(|(field, is_missing, fault)| Some((is_missing, field, fault?)));
    if let Some((_, field, message)) = faults.min_by_key(|(is_missing, ..)| *is_missing) {
        return Err((field, message));
    }
    let (key, action) = (constraint.key(), constraint.action());
    if before.iter().any(|other| other.key() == key && other.action() == action) {
        return Err(("", format!("Duplicate value: \"{{{key}, {action}}}\"")));
    }
    Ok(())
}

const REQUIRED: &str = "Required value: can not be empty";
const SELECTOR_FAULT: &str = "Forbidden: constraint must not define a selector, as they deduced for each pod";

fn skew_fault(skew: i32) -> Option<String> {
    (skew <= 0).then(|| format!("Invalid value: {skew}: not in valid range (0, inf)"))
}

fn key_fault(key: &str) -> Option<String> {
    if key.is_empty() {
        return Some(REQUIRED.to_owned());
    }
    label_key_fault(key).map(|fault| format!("Invalid value: {key:?}: {fault}"))
}

fn action_fault(action: &str) -> Option<String> {
    match action {
        "DoNotSchedule" | "ScheduleAnyway" => None,
        "" => Some(REQUIRED.to_owned()),
        other => {
            let supported = "\"DoNotSchedule\", \"ScheduleAnyway\"";
            Some(format!("Unsupported value: {other:?}: supported values: {supported}"))
        }
    }
}

impl DefaultConstraint {
    fn key(&self) -> &str {
        self.topology_key.as_deref().unwrap_or_default()
    }

    fn action(&self) -> &str {
        self.when_unsatisfiable.as_deref().unwrap_or_default()
    }
}

/// The first error of a label key, in the API's words.
fn label_key_fault(key: &str) -> Option<String> {
    if is_label_key(key) {
        return None;
    }
    let syntax = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
                  alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
                  '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    Some(match prefix {
        _ if name.contains('/') => format!(
            "a valid label key {syntax} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        ),
        Some("") => "prefix part must be non-empty".to_owned(),
        Some(prefix) if !is_label_key(&format!("{prefix}/x")) => {
            "prefix part a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
             and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
             '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
                .to_owned()
        }
        _ if name.is_empty() => "name part must be non-empty".to_owned(),
        _ if name.len() > MAX_LABEL_VALUE => "name part must be no more than 63 bytes".to_owned(),
        _ => format!("name part {syntax}"),
    })
}

impl From<DefaultConstraint> for TopologySpreadConstraint {
    fn from(constraint: DefaultConstraint) -> Self {
        let honors = |policy: Option<String>, default| policy.map_or(default, |policy| policy == "Honor");
        Self {
            max_skew: constraint.max_skew.unwrap_or_default(),
            topology_key: constraint.key().into(),
            hard: constraint.action() == "DoNotSchedule",
            selector: None,
            min_domains: constraint.min_domains,
            honors_affinity: honors(constraint.node_affinity_policy, true),
            honors_taints: honors(constraint.node_taints_policy, false),
            match_label_keys: Box::default(),
        }
    }
}

/// The system defaults: hosts, and less strictly zones.
fn system_defaults() -> Box<[TopologySpreadConstraint]> {
    let preference = |key: &str, max_skew| TopologySpreadConstraint {
        max_skew,
        topology_key: Arc::from(key),
        hard: false,
        selector: None,
        min_domains: None,
        honors_affinity: true,
        honors_taints: false,
        match_label_keys: Box::default(),
    };
    [preference(HOSTNAME, 3), preference("topology.kubernetes.io/zone", 5)].into()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::pod_topology_spread::NAME;
    use crate::testing::args_error;

    fn list(constraints: Value) -> Value {
        json!({"defaultingType": "List", "defaultConstraints": constraints})
    }

    #[test]
    fn valid_arguments_are_accepted() {
        let zone = json!({"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"});
        let both =
            json!([zone, {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}]);
        let full = json!([{"maxSkew": 2, "topologyKey": "example.com/rack", "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": null, "minDomains": 3, "nodeAffinityPolicy": "Ignore", "nodeTaintsPolicy": "Honor",
            "matchLabelKeys": ["x"]}]);
        for args in [json!({}), json!({"defaultingType": ""}), list(json!([])), list(both), list(full)] {
            assert_eq!(args_error(NAME, args.clone()), None, "{args}");
        }
    }

    #[test]
    fn constraints_are_read_field_by_field() {
        let defaults = parse(&list(json!([
            {"maxSkew": 2, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule", "minDomains": 3,
                "nodeAffinityPolicy": "Ignore", "nodeTaintsPolicy": "Honor"},
            {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"},
        ])));
        let defaults = defaults.unwrap_or_else(|error| panic!("{error}"));
        let rack = TopologySpreadConstraint {
            max_skew: 2,
            topology_key: "rack".into(),
            hard: true,
            selector: None,
            min_domains: Some(3),
            honors_affinity: false,
            honors_taints: true,
            match_label_keys: Box::default(),
        };
        let zone = TopologySpreadConstraint {
            max_skew: 1,
            topology_key: "zone".into(),
            hard: false,
            min_domains: None,
            honors_affinity: true,
            honors_taints: false,
            ..rack.clone()
        };
        assert_eq!((&*defaults.constraints, defaults.system), (&[rack, zone][..], false));
    }

    #[test]
    fn invalid_topology_keys_are_rejected() {
        let long = "x".repeat(64);
        let cases = [
            ("/a", "prefix part must be non-empty"),
            ("a/", "name part must be non-empty"),
            ("A/x", "prefix part a lowercase RFC 1123 subdomain must"),
            ("a/b/c", "a valid label key must consist"),
            (&long, "name part must be no more than 63 bytes"),
            ("-", "name part must consist"),
        ];
        for (key, expected) in cases {
            let fault = label_key_fault(key).unwrap_or_default();
            assert!(fault.starts_with(expected), "{key}: {fault}");
        }
        assert_eq!(label_key_fault("example.com/rack"), None);
    }

    #[test]
    fn what_is_wrong_is_reported_before_what_is_missing() {
        let first = |constraint: Value| args_error(NAME, list(json!([constraint]))).unwrap_or_default();
        let cases = [
            (json!({"maxSkew": 0, "topologyKey": "", "whenUnsatisfiable": "X"}), "maxSkew"),
            (json!({"topologyKey": "", "whenUnsatisfiable": "X"}), "topologyKey"),
            (json!({"whenUnsatisfiable": "X"}), "whenUnsatisfiable"),
            (json!({"labelSelector": {}}), "labelSelector"),
            (json!({}), "maxSkew"),
        ];
        for (constraint, field) in cases {
            let error = first(constraint.clone());
            assert!(error.starts_with(&format!("defaultConstraints[0].{field}: ")), "{constraint}: {error}");
        }
        let both = json!({"defaultingType": "Lists", "defaultConstraints": [{}]});
        assert!(args_error(NAME, both).is_some_and(|error| error.starts_with("defaultConstraints[0]")));
    }

    #[test]
    fn invalid_arguments_have_upstreams_errors() {
        let zone = |skew: i32, action: &str| json!({"maxSkew": skew, "topologyKey": "zone", "whenUnsatisfiable": action});
        let hard = || zone(1, "DoNotSchedule");
        let mut selecting = hard();
        selecting["labelSelector"] = json!({});
        let key =
            |key: &str| json!([{"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule"}]);
        let bad = [
            (
                json!({"defaultConstraints": [hard()]}),
                "defaultingType: Invalid value: \"System\": when .defaultConstraints are not empty",
            ),
            (
                json!({"defaultingType": "Lists"}),
                "defaultingType: Unsupported value: \"Lists\": supported values: \"System\", \"List\"",
            ),
            (
                list(json!([zone(0, "DoNotSchedule")])),
                "defaultConstraints[0].maxSkew: Invalid value: 0: not in valid range (0, inf)",
            ),
            (
                list(json!([hard(), zone(1, "Sometimes")])),
                "defaultConstraints[1].whenUnsatisfiable: Unsupported value: \"Sometimes\": supported values: \"DoNotSchedule\", \"ScheduleAnyway\"",
            ),
            (
                list(json!([zone(1, "")])),
                "defaultConstraints[0].whenUnsatisfiable: Required value: can not be empty",
            ),
            (list(key("")), "defaultConstraints[0].topologyKey: Required value: can not be empty"),
            (
                list(key("a b")),
                "defaultConstraints[0].topologyKey: Invalid value: \"a b\": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
            ),
            (
                list(json!([selecting])),
                "defaultConstraints[0].labelSelector: Forbidden: constraint must not define a selector, as they deduced for each pod",
            ),
            (
                list(json!([hard(), zone(2, "ScheduleAnyway"), zone(2, "DoNotSchedule")])),
                "defaultConstraints[2]: Duplicate value: \"{zone, DoNotSchedule}\"",
            ),
            (
                json!({"defaults": []}),
                "defaults: unknown field `defaults`, expected `defaultConstraints` or `defaultingType`",
            ),
        ];
        for (args, message) in bad {
            assert_eq!(args_error(NAME, args.clone()).as_deref(), Some(message), "{args}");
        }
    }
}
