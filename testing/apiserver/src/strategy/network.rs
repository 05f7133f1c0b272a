//! Networking: endpoints, ingresses, network policies.

use std::net::IpAddr;

use serde_json::{Value, json};

use super::checks::one_of;
use super::path::Path;
use super::traits::Strategy;
use super::{labels, names, status};
use crate::json::{int, list, list_mut, object_mut, present, restore, set_default, text, texts};
use crate::status::StatusCause;

/// The addresses of a service.
pub(crate) struct Endpoints;

/// A subset of the addresses of a service.
pub(crate) struct EndpointSlice;

/// External access to services.
pub(crate) struct Ingress;

/// The allowed traffic between pods.
pub(crate) struct NetworkPolicy;

const SPEC: Path<'static> = Path::root("spec");
const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];

impl Strategy for Endpoints {
    fn default(&self, endpoints: &mut Value) {
        for subset in list_mut(endpoints, "subsets") {
            for port in list_mut(subset, "ports") {
                set_default(port, "protocol", "TCP");
            }
        }
    }

    fn validate(&self, endpoints: &Value) -> Vec<StatusCause> {
        let mut causes = Vec::new();
        let path = Path::root("subsets");
        for (i, subset) in list(endpoints, "subsets").iter().enumerate() {
            check_subset(subset, &path.index(i), &mut causes);
        }
        causes
    }

    fn validate_update(&self, endpoints: &Value, old: &Value) -> Vec<StatusCause> {
        if endpoints.get("subsets") == old.get("subsets") { Vec::new() } else { self.validate(endpoints) }
    }

    fn allows_create_on_update(&self) -> bool {
        true
    }
}

fn check_subset(subset: &Value, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    let addresses = ["addresses", "notReadyAddresses"];
    if addresses.iter().all(|field| list(subset, field).is_empty()) {
        causes.push(path.required("must specify `addresses` or `notReadyAddresses`"));
    }
    for field in addresses {
        let path = path.child(field);
        for (i, address) in list(subset, field).iter().enumerate() {
            check_address(text(address, "ip"), &path.index(i).child("ip"), causes);
        }
    }
    let (ports, path) = (list(subset, "ports"), path.child("ports"));
    for (i, port) in ports.iter().enumerate() {
        let (path, name) = (path.index(i), text(port, "name"));
        if !name.is_empty() {
            path.child("name").invalid_all(name, names::dns1123_label(name), causes);
        } else if ports.len() > 1 {
            causes.push(path.child("name").required(""));
        }
        let number = int(port, "port").unwrap_or_default();
        if let Some(why) = names::port_number(number) {
            causes.push(path.child("port").invalid(number, why));
        }
        one_of(port, "protocol", &PROTOCOLS, &path, causes);
    }
}

fn check_address(address: &str, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    let Ok(parsed) = address.parse::<IpAddr>() else {
        for why in
            ["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)", "must be a valid IP address"]
        {
            causes.push(path.invalid(address, why));
        }
        return;
    };
    let is_link_local = match parsed {
        IpAddr::V4(four) => four.is_link_local(),
        IpAddr::V6(six) => six.is_unicast_link_local(),
    };
    if parsed.is_unspecified() {
        causes.push(path.invalid(address, &format!("may not be unspecified ({address})")));
    }
    if parsed.is_loopback() {
        causes.push(path.invalid(address, "may not be in the loopback range (127.0.0.0/8, ::1/128)"));
    }
    if is_link_local {
        let why = "may not be in the link-local range (169.254.0.0/16, fe80::/10)";
        causes.push(path.invalid(address, why));
    }
}

impl Strategy for EndpointSlice {
    fn default(&self, slice: &mut Value) {
        let Some(fields) = slice.as_object_mut() else { return };
        for field in ["endpoints", "ports"] {
            let items = fields.entry(field).or_insert(Value::Null);
            if items.as_array().is_some_and(Vec::is_empty) {
                *items = Value::Null;
            }
        }
        for endpoint in list_mut(slice, "endpoints") {
            object_mut(endpoint, "conditions");
        }
        for port in list_mut(slice, "ports") {
            if let Some(port) = port.as_object_mut() {
                port.entry("name").or_insert_with(|| "".into());
            }
            set_default(port, "protocol", "TCP");
        }
    }

    fn validate(&self, slice: &Value) -> Vec<StatusCause> {
        let mut causes = Vec::new();
        let (kind, kinds) = (text(slice, "addressType"), ["FQDN", "IPv4", "IPv6"]);
        if kind.is_empty() {
            causes.push(Path::root("addressType").required(""));
        } else if !kinds.contains(&kind) {
            causes.push(Path::root("addressType").not_supported(kind, &kinds));
        }
        let path = Path::root("endpoints");
        for (i, endpoint) in list(slice, "endpoints").iter().enumerate() {
            if list(endpoint, "addresses").is_empty() {
                let path = path.index(i);
                causes.push(path.child("addresses").required(""));
            }
        }
        causes
    }

    fn validate_update(&self, slice: &Value, old: &Value) -> Vec<StatusCause> {
        let mut causes = self.validate(slice);
        super::checks::immutable_by_tag(slice, old, "addressType", &mut causes);
        causes
    }

    fn has_generation(&self) -> bool {
        true
    }

    fn changes_generation(&self, slice: &Value, old: &Value) -> bool {
        let differs = |field: &str| slice.get(field) != old.get(field);
        let labels = |slice: &Value| slice["metadata"].get("labels").cloned();
        differs("endpoints") || differs("ports") || labels(slice) != labels(old)
    }
}

impl Strategy for Ingress {
    fn default(&self, ingress: &mut Value) {
        for field in ["spec", "status"] {
            object_mut(ingress, field);
        }
        object_mut(&mut ingress["status"], "loadBalancer");
    }

    fn prepare_for_create(&self, ingress: &mut Value) {
        ingress["status"] = json!({"loadBalancer": {}});
    }

    fn prepare_for_update(&self, ingress: &mut Value, old: &Value) {
        restore(ingress, old, "status");
    }

    fn prepare_for_status_update(&self, ingress: &mut Value, old: &Value) {
        status::only_status(ingress, old);
    }

    fn validate(&self, ingress: &Value) -> Vec<StatusCause> {
        let mut causes = Vec::new();
        let spec = &ingress["spec"];
        if list(spec, "rules").is_empty() && present(spec, "defaultBackend").is_none() {
            let rules = spec.get("rules").cloned().unwrap_or_default();
            causes.push(SPEC.invalid(rules, "either `defaultBackend` or `rules` must be specified"));
        }
        let path = SPEC.child("rules");
        for (i, rule) in list(spec, "rules").iter().enumerate() {
            let path = path.index(i);
            check_paths(&rule["http"], &path.child("http"), &mut causes);
        }
        causes
    }

    fn validate_update(&self, ingress: &Value, _old: &Value) -> Vec<StatusCause> {
        self.validate(ingress)
    }

    fn has_generation(&self) -> bool {
        true
    }
}

fn check_paths(http: &Value, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    let path = path.child("paths");
    for (i, rule) in list(http, "paths").iter().enumerate() {
        let path = path.index(i);
        let (kind, value) = (text(rule, "pathType"), text(rule, "path"));
        match kind {
            "" => causes.push(path.child("pathType").required("pathType must be specified")),
            "Exact" | "Prefix" if !value.starts_with('/') => {
                causes.push(path.child("path").invalid(value, "must be an absolute path"));
            }
            "ImplementationSpecific" if !value.is_empty() && !value.starts_with('/') => {
                causes.push(path.child("path").invalid(value, "must be an absolute path"));
            }
            "Exact" | "Prefix" | "ImplementationSpecific" => {}
            _ => {
                let kinds = ["Exact", "ImplementationSpecific", "Prefix"];
                causes.push(path.child("pathType").not_supported(kind, &kinds));
            }
        }
    }
}

impl Strategy for NetworkPolicy {
    fn default(&self, policy: &mut Value) {
        object_mut(policy, "spec");
        let spec = &mut policy["spec"];
        object_mut(spec, "podSelector");
        for rules in ["ingress", "egress"] {
            for rule in list_mut(spec, rules) {
                for port in list_mut(rule, "ports") {
                    set_default(port, "protocol", "TCP");
                }
            }
        }
        if list(spec, "policyTypes").is_empty() {
            let has_egress = !list(spec, "egress").is_empty();
            spec["policyTypes"] = if has_egress { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) };
        }
    }

    fn validate(&self, policy: &Value) -> Vec<StatusCause> {
        let mut causes = Vec::new();
        let spec = &policy["spec"];
        labels::check_selector(&spec["podSelector"], &SPEC.child("podSelector"), &mut causes);
        let (path, kinds) = (SPEC.child("policyTypes"), ["Ingress", "Egress"]);
        for (i, kind) in texts(spec, "policyTypes").enumerate() {
            if !kinds.contains(&kind) {
                causes.push(path.index(i).not_supported(kind, &kinds));
            }
        }
        causes
    }

    fn validate_update(&self, policy: &Value, _old: &Value) -> Vec<StatusCause> {
        self.validate(policy)
    }

    fn has_generation(&self) -> bool {
        true
    }
}
