//! Services, with allocated addresses and ports.

use std::net::{IpAddr, Ipv4Addr};

use serde_json::{Value, json};

use super::checks::{Shown, duplicate_shown, one_of, shown};
use super::path::Path;
use super::traits::{Lookup, Strategy};
use super::{labels, names, status};
use crate::json::{
    flag, int, list, list_mut, object_mut, present, remove, restore, set_default, text, texts,
};
use crate::status::{Result, StatusCause};

/// Services.
pub(crate) struct Service;

const SPEC: Path<'static> = Path::root("spec");
const NONE: &str = "None";
const EXTERNAL_NAME: &str = "ExternalName";
const LOAD_BALANCER: &str = "LoadBalancer";
const TYPES: [&str; 4] = ["ClusterIP", EXTERNAL_NAME, LOAD_BALANCER, "NodePort"];
/// The network of cluster IPs, 10.0.0.0/16.
const NETWORK: u32 = 0x0a00_0000;
const ADDRESSES: u64 = 1 << 16;
const FIRST_PORT: u64 = 30_000;
const PORTS: u64 = 2_768;
/// Three hours.
const AFFINITY_SECONDS: i64 = 10_800;

impl Strategy for Service {
    fn default(&self, service: &mut Value) {
        for field in ["spec", "status"] {
            object_mut(service, field);
        }
        object_mut(&mut service["status"], "loadBalancer");
        default_spec(&mut service["spec"]);
    }

    fn admit(&self, service: &mut Value, objects: &dyn Lookup) -> Result<()> {
        allocate(service, objects);
        Ok(())
    }

    fn admit_update(&self, service: &mut Value, old: &Value, objects: &dyn Lookup) -> Result<()> {
        let spec = &mut service["spec"];
        keep_allocated(spec, &old["spec"]);
        drop_dependent(spec, &old["spec"]);
        allocate(service, objects);
        Ok(())
    }

    fn prepare_for_create(&self, service: &mut Value) {
        service["status"] = json!({"loadBalancer": {}});
    }

    fn prepare_for_update(&self, service: &mut Value, old: &Value) {
        restore(service, old, "status");
    }

    fn prepare_for_status_update(&self, service: &mut Value, old: &Value) {
        status::only_status(service, old);
    }

    fn validate(&self, service: &Value) -> Vec<StatusCause> {
        let mut causes = Vec::new();
        let spec = &service["spec"];
        check_type(spec, &mut causes);
        check_ports(spec, &mut causes);
        labels::check_labels(spec, "selector", &SPEC, &mut causes);
        one_of(spec, "sessionAffinity", &["ClientIP", NONE], &SPEC, &mut causes);
        check_addresses(spec, &mut causes);
        one_of(spec, "type", &TYPES, &SPEC, &mut causes);
        check_port_pairs(spec, &mut causes);
        check_load_balancer(spec, &mut causes);
        check_policies(spec, &mut causes);
        causes
    }

    fn validate_update(&self, service: &Value, old: &Value) -> Vec<StatusCause> {
        let mut causes = Vec::new();
        let (spec, old) = (&service["spec"], &old["spec"]);
        let first = text(old, "clusterIP");
        let is_kept = needs_address(spec) && needs_address(old) && !first.is_empty();
        if is_kept && text(spec, "clusterIP") != first {
            let path = SPEC.child("clusterIPs");
            let addresses = spec.get("clusterIPs").cloned().unwrap_or_default();
            causes.push(path.index(0).invalid(addresses, "may not change once set"));
        }
        causes.extend(self.validate(service));
        causes
    }

    fn validate_status_update(&self, service: &Value, _old: &Value) -> Vec<StatusCause> {
        let given = list(&service["status"]["loadBalancer"], "ingress");
        if given.is_empty() || text(&service["spec"], "type") == LOAD_BALANCER {
            return Vec::new();
        }
        let path = Path::root("status");
        let path = path.child("loadBalancer");
        vec![path.child("ingress").forbidden("may only be used when `spec.type` is 'LoadBalancer'")]
    }

    fn selectable_fields(&self) -> &'static [&'static str] {
        &["spec.clusterIP", "spec.type"]
    }

    fn field(&self, service: &Value, name: &str) -> String {
        match name.strip_prefix("spec.") {
            Some(field @ ("clusterIP" | "type")) => text(&service["spec"], field).to_owned(),
            _ => String::new(),
        }
    }

    fn check_name(&self, name: &str) -> names::Wrong {
        names::dns1123_label(name)
    }

    fn allows_create_on_update(&self) -> bool {
        true
    }
}

fn default_spec(spec: &mut Value) {
    set_default(spec, "sessionAffinity", NONE);
    set_default(spec, "type", "ClusterIP");
    if list(spec, "ports").is_empty() {
        remove(spec, "ports");
    }
    match text(spec, "sessionAffinity") {
        NONE => remove(spec, "sessionAffinityConfig"),
        "ClientIP" if spec.pointer("/sessionAffinityConfig/clientIP/timeoutSeconds").is_none() => {
            spec["sessionAffinityConfig"] = json!({"clientIP": {"timeoutSeconds": AFFINITY_SECONDS}});
        }
        _ => {}
    }
    for port in list_mut(spec, "ports") {
        set_default(port, "protocol", "TCP");
        let number = int(port, "port").unwrap_or_default();
        if port.get("targetPort").is_none_or(|target| *target == 0 || target == "" || target.is_null()) {
            set_target(port, number);
        }
    }
    if is_reachable_from_outside(spec) {
        set_default(spec, "externalTrafficPolicy", "Cluster");
    }
    if needs_address(spec) && TYPES.contains(&text(spec, "type")) {
        set_default(spec, "internalTrafficPolicy", "Cluster");
    }
    if text(spec, "type") == LOAD_BALANCER {
        set_default(spec, "allocateLoadBalancerNodePorts", true);
    }
    default_addresses(spec);
}

fn set_target(port: &mut Value, number: i64) {
    if let Some(port) = port.as_object_mut() {
        port.insert("targetPort".to_owned(), number.into());
    }
}

/// `clusterIP` is the first of `clusterIPs`.
fn default_addresses(spec: &mut Value) {
    let first = text(spec, "clusterIP").to_owned();
    match (first.is_empty(), list(spec, "clusterIPs").first().cloned()) {
        (false, None) => spec["clusterIPs"] = json!([first]),
        (true, Some(address)) => spec["clusterIP"] = address,
        _ => {}
    }
}

fn is_headless(spec: &Value) -> bool {
    text(spec, "clusterIP") == NONE
}

fn needs_address(spec: &Value) -> bool {
    text(spec, "type") != EXTERNAL_NAME
}

fn needs_node_ports(spec: &Value) -> bool {
    match text(spec, "type") {
        "NodePort" => true,
        LOAD_BALANCER => flag(spec, "allocateLoadBalancerNodePorts"),
        _ => false,
    }
}

fn is_balanced(spec: &Value) -> bool {
    text(spec, "type") == LOAD_BALANCER
}

fn needs_health_port(spec: &Value) -> bool {
    text(spec, "type") == LOAD_BALANCER && text(spec, "externalTrafficPolicy") == "Local"
}

fn is_reachable_from_outside(spec: &Value) -> bool {
    let kind = text(spec, "type");
    matches!(kind, "NodePort" | LOAD_BALANCER) || kind == "ClusterIP" && !list(spec, "externalIPs").is_empty()
}

/// Keeps allocated fields that an update omits.
fn keep_allocated(spec: &mut Value, old: &Value) {
    if needs_address(spec) && needs_address(old) {
        if text(spec, "clusterIP").is_empty() {
            restore(spec, old, "clusterIP");
            restore(spec, old, "clusterIPs");
        } else if spec.get("clusterIPs") == old.get("clusterIPs")
            && spec.get("clusterIP") != old.get("clusterIP")
        {
            // Old clients only know the first address.
            spec["clusterIPs"] = json!([text(spec, "clusterIP")]);
        }
        for field in ["ipFamilies", "ipFamilyPolicy"] {
            if present(spec, field).is_none() {
                restore(spec, old, field);
            }
        }
    }
    if needs_node_ports(spec) && needs_node_ports(old) {
        let same = |port: &Value, other: &Value| {
            port.get("port") == other.get("port") && port.get("protocol") == other.get("protocol")
        };
        for port in list_mut(spec, "ports") {
            if int(port, "nodePort").unwrap_or_default() == 0
                && let Some(before) = list(old, "ports").iter().find(|before| same(port, before))
            {
                restore(port, before, "nodePort");
            }
        }
    }
    if needs_health_port(spec) && needs_health_port(old) && present(spec, "healthCheckNodePort").is_none() {
        restore(spec, old, "healthCheckNodePort");
    }
}

/// Drops allocated fields that the service's new type does not have, unless the update sets them.
fn drop_dependent(spec: &mut Value, old: &Value) {
    type Applies = fn(&Value) -> bool;
    const GROUPS: [(Applies, &[&str]); 8] = [
        (needs_address, &["clusterIP", "clusterIPs"]),
        (needs_address, &["ipFamilies"]),
        (needs_address, &["ipFamilyPolicy"]),
        (needs_address, &["internalTrafficPolicy"]),
        (needs_health_port, &["healthCheckNodePort"]),
        (is_reachable_from_outside, &["externalTrafficPolicy"]),
        (is_balanced, &["allocateLoadBalancerNodePorts"]),
        (is_balanced, &["loadBalancerClass"]),
    ];
    let is_unchanged =
        |spec: &Value, fields: &[&str]| fields.iter().all(|field| spec.get(*field) == old.get(*field));
    let mut dropped: Vec<&str> = Vec::new();
    for (applies, fields) in GROUPS {
        if applies(old) && !applies(spec) && is_unchanged(spec, fields) {
            dropped.extend(fields);
        }
    }
    let drops_ports = needs_node_ports(old) && !needs_node_ports(spec) && is_unchanged(spec, &["ports"]);
    for field in dropped {
        remove(spec, field);
    }
    if drops_ports {
        for port in list_mut(spec, "ports") {
            remove(port, "nodePort");
        }
    }
}

/// Allocates addresses and ports.
fn allocate(service: &mut Value, objects: &dyn Lookup) {
    let seed = seed_of(service);
    let spec = &mut service["spec"];
    if needs_address(spec) {
        let is_given = !text(spec, "clusterIP").is_empty();
        if !is_given {
            let services = objects.list("", "services", "");
            let taken = |address: &str| {
                services
                    .iter()
                    .any(|service| texts(&service["spec"], "clusterIPs").any(|other| other == address))
            };
            // The first two are the network and the API server's own address.
            let count = ADDRESSES - 3;
            let address = (0..count)
                .map(|step| 2 + (seed + step) % count)
                .filter_map(|number| u32::try_from(number).ok())
                .map(|number| Ipv4Addr::from(NETWORK + number).to_string())
                .find(|address| !taken(address));
            if let Some(address) = address {
                spec["clusterIPs"] = json!([address]);
                spec["clusterIP"] = address.into();
            }
        }
        default_families(spec);
    }
    allocate_ports(spec, seed, objects);
}

fn default_families(spec: &mut Value) {
    let is_unselective = is_headless(spec) && present(spec, "selector").is_none();
    if is_unselective && present(spec, "ipFamilyPolicy").is_none() && list(spec, "ipFamilies").is_empty() {
        spec["ipFamilies"] = json!(["IPv4", "IPv6"]);
        spec["ipFamilyPolicy"] = "RequireDualStack".into();
        return;
    }
    set_default(spec, "ipFamilyPolicy", "SingleStack");
    if list(spec, "ipFamilies").is_empty() {
        let is_six = text(spec, "clusterIP").contains(':');
        spec["ipFamilies"] = json!([if is_six { "IPv6" } else { "IPv4" }]);
    }
}

fn allocate_ports(spec: &mut Value, seed: u64, objects: &dyn Lookup) {
    let needs_ports = needs_node_ports(spec)
        && list(spec, "ports").iter().any(|port| int(port, "nodePort").unwrap_or_default() == 0);
    let needs_health = needs_health_port(spec) && int(spec, "healthCheckNodePort").unwrap_or_default() == 0;
    if !needs_ports && !needs_health {
        return;
    }
    let ports_of = |spec: &Value| -> Vec<i64> {
        let ports = list(spec, "ports").iter().filter_map(|port| int(port, "nodePort"));
        ports.chain(int(spec, "healthCheckNodePort")).collect()
    };
    let services = objects.list("", "services", "");
    let mut taken: Vec<i64> = services.iter().flat_map(|service| ports_of(&service["spec"])).collect();
    taken.extend(ports_of(spec));
    let mut next = || {
        let port = (0..PORTS)
            .map(|step| FIRST_PORT + (seed + step) % PORTS)
            .filter_map(|port| i64::try_from(port).ok())
            .find(|port| !taken.contains(port));
        taken.extend(port);
        port
    };
    if needs_ports {
        for port in list_mut(spec, "ports") {
            if int(port, "nodePort").unwrap_or_default() == 0
                && let (Some(given), Some(port)) = (next(), port.as_object_mut())
            {
                port.insert("nodePort".to_owned(), given.into());
            }
        }
    }
    if needs_health && let Some(given) = next() {
        spec["healthCheckNodePort"] = given.into();
    }
}

/// A seed from the name, so that allocations are reproducible.
fn seed_of(service: &Value) -> u64 {
    let metadata = &service["metadata"];
    let name = format!("{}/{}", text(metadata, "namespace"), text(metadata, "name"));
    name.bytes().fold(0, |seed: u64, byte| (seed * 31 + u64::from(byte)) % 1_000_003)
}

fn check_type(spec: &Value, causes: &mut Vec<StatusCause>) {
    let kind = text(spec, "type");
    if list(spec, "ports").is_empty() && !is_headless(spec) && kind != EXTERNAL_NAME {
        causes.push(SPEC.child("ports").required(""));
    }
    match kind {
        LOAD_BALANCER | "NodePort" if is_headless(spec) => {
            let why = format!("may not be set to 'None' for {kind} services");
            causes.push(SPEC.child("clusterIPs").index(0).invalid(NONE, &why));
        }
        EXTERNAL_NAME => {
            for field in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
                if present(spec, field).is_some() {
                    causes.push(SPEC.child(field).forbidden("may not be set for ExternalName services"));
                }
            }
            let (name, path) = (text(spec, "externalName"), SPEC.child("externalName"));
            match name.strip_suffix('.').unwrap_or(name) {
                "" => causes.push(path.required("")),
                name => path.invalid_all(name, names::dns1123_subdomain(name), causes),
            }
        }
        _ => {}
    }
}

fn check_ports(spec: &Value, causes: &mut Vec<StatusCause>) {
    let (ports, path) = (list(spec, "ports"), SPEC.child("ports"));
    for (i, port) in ports.iter().enumerate() {
        let path = path.index(i);
        let name = text(port, "name");
        if name.is_empty() {
            if ports.len() > 1 {
                causes.push(path.child("name").required(""));
            }
        } else {
            path.child("name").invalid_all(name, names::dns1123_label(name), causes);
            if ports[..i].iter().any(|other| text(other, "name") == name) {
                causes.push(path.child("name").duplicate(name));
            }
        }
        let number = int(port, "port").unwrap_or_default();
        if let Some(why) = names::port_number(number) {
            causes.push(path.child("port").invalid(number, why));
        }
        one_of(port, "protocol", &["SCTP", "TCP", "UDP"], &path, causes);
        let path = path.child("targetPort");
        match &port["targetPort"] {
            Value::String(name) => path.invalid_all(name, names::port_name(name), causes),
            target => {
                let number = target.as_i64().unwrap_or_default();
                if let Some(why) = names::port_number(number) {
                    causes.push(path.invalid(number, why));
                }
            }
        }
    }
}

fn check_port_pairs(spec: &Value, causes: &mut Vec<StatusCause>) {
    let (ports, path) = (list(spec, "ports"), SPEC.child("ports"));
    let same = |left: &Value, right: &Value, field: &str| {
        left.get(field) == right.get(field) && left.get("protocol") == right.get("protocol")
    };
    let node_port = |port: &Value| int(port, "nodePort").filter(|number| *number != 0);
    for (i, port) in ports.iter().enumerate() {
        let path = path.index(i).child("nodePort").to_string();
        let Some(number) = node_port(port) else { continue };
        let path = Path::root(&path);
        if text(spec, "type") == "ClusterIP" {
            causes.push(path.forbidden("may not be used when `type` is 'ClusterIP'"));
        }
        if ports[..i].iter().any(|other| same(port, other, "nodePort")) {
            causes.push(path.duplicate(number));
        }
    }
    for (i, port) in ports.iter().enumerate() {
        if ports[..i].iter().any(|other| same(port, other, "port")) {
            let key = json!({"protocol": port["protocol"], "port": port["port"]});
            let fields = [
                ("Name", "", Shown::Text),
                ("Protocol", "protocol", Shown::Text),
                ("AppProtocol", "", Shown::Null),
                ("Port", "port", Shown::Number),
                ("TargetPort", "", Shown::Number),
                ("NodePort", "", Shown::Number),
            ];
            causes.push(duplicate_shown(&path.index(i), &shown(&key, &fields)));
        }
    }
}

fn check_addresses(spec: &Value, causes: &mut Vec<StatusCause>) {
    for field in ["clusterIPs", "externalIPs"] {
        let path = SPEC.child(field);
        for (i, address) in texts(spec, field).enumerate() {
            let is_none = field == "clusterIPs" && address == NONE;
            if !is_none && address.parse::<IpAddr>().is_err() {
                let why = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
                causes.push(path.index(i).invalid(address, why));
            }
        }
    }
}

fn check_load_balancer(spec: &Value, causes: &mut Vec<StatusCause>) {
    if text(spec, "type") == LOAD_BALANCER {
        return;
    }
    let fields = [
        ("loadBalancerSourceRanges", "LoadBalancerSourceRanges"),
        ("allocateLoadBalancerNodePorts", "allocateLoadBalancerNodePorts"),
        ("loadBalancerClass", "loadBalancerClass"),
    ];
    for (field, shown) in fields {
        if present(spec, field).is_some() {
            causes.push(SPEC.child(shown).forbidden("may only be used when `type` is 'LoadBalancer'"));
        }
    }
}

fn check_policies(spec: &Value, causes: &mut Vec<StatusCause>) {
    let policies = ["Cluster", "Local"];
    let external = text(spec, "externalTrafficPolicy");
    if is_reachable_from_outside(spec) {
        one_of(spec, "externalTrafficPolicy", &policies, &SPEC, causes);
    } else if !external.is_empty() {
        let why = "may only be set for externally-accessible services";
        causes.push(SPEC.child("externalTrafficPolicy").invalid(external, why));
    }
    let health = int(spec, "healthCheckNodePort").filter(|port| *port != 0);
    if let Some(port) = health.filter(|_| !needs_health_port(spec)) {
        let why = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
        causes.push(SPEC.child("healthCheckNodePort").invalid(port, why));
    }
    one_of(spec, "internalTrafficPolicy", &policies, &SPEC, causes);
    let distributions = ["PreferClose", "PreferSameZone", "PreferSameNode"];
    one_of(spec, "trafficDistribution", &distributions, &SPEC, causes);
}
