//! Validates pods.

use std::net::{IpAddr, Ipv4Addr};

use serde_json::Value;

use super::super::checks::required_one_of;
use super::super::labels;
use super::super::names;
use super::super::path::Path;
use super::super::taints;
use super::spec::{MIRROR, SpecOwner};
use super::{affinity, containers, requirements, security, spread, volumes};
use crate::json::{flag, int, list, present, text, text_at};
use crate::status::StatusCause;

const SPEC: Path<'static> = Path::root("spec");
const DNS_POLICIES: [&str; 4] = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];

/// Validates a new pod.
pub(crate) fn create(pod: &Value) -> Vec<StatusCause> {
    let mut causes = Vec::new();
    metadata_and_spec(pod, &mut causes);
    let Some(spec) = pod.get("spec") else { return causes };
    if !list(spec, "ephemeralContainers").is_empty() {
        causes.push(SPEC.child("ephemeralContainers").forbidden("cannot be set on create"));
    }
    if !text(spec, "nodeName").is_empty() && !list(spec, "schedulingGates").is_empty() {
        let why = "cannot be set until all schedulingGates have been cleared";
        causes.push(SPEC.child("nodeName").forbidden(why));
    }
    causes
}

/// Validates a new or changed pod.
pub(crate) fn metadata_and_spec(pod: &Value, causes: &mut Vec<StatusCause>) {
    annotations(pod, causes);
    let null = Value::Null;
    let own = pod.get("spec").unwrap_or(&null);
    spec(own, SpecOwner { pod: Some(pod) }, &SPEC, causes);
    if text(own, "serviceAccountName").is_empty() {
        tokens_without_account(own, causes);
    }
    for field in ["containers", "initContainers"] {
        let path = SPEC.child(field);
        for (i, container) in list(own, field).iter().enumerate() {
            containers::check_image_whitespace(container, &path.index(i), causes);
        }
    }
}

/// Validates the spec of a pod or of a pod template.
pub(crate) fn spec(spec: &Value, owner: SpecOwner<'_>, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    if int(spec, "terminationGracePeriodSeconds").is_none() {
        causes.push(path.child("terminationGracePeriodSeconds").required(""));
    }
    let volumes = volumes::check_volumes(spec, owner, path, causes);
    requirements::check_claims(spec, owner, path, causes);
    containers::check_all(spec, &volumes, path, causes);
    requirements::check_pod_level(spec, path, causes);
    host_network_ports(spec, owner, path, causes);
    required_one_of(spec, "restartPolicy", &["Always", "OnFailure", "Never"], path, causes);
    required_one_of(spec, "dnsPolicy", &DNS_POLICIES, path, causes);
    labels::check_labels(spec, "nodeSelector", path, causes);
    security::check_pod(spec, path, causes);
    if let Some(own) = present(spec, "affinity") {
        affinity::check(own, &path.child("affinity"), causes);
    }
    dns_config(spec, path, causes);
    gates(spec, path, causes);
    spread::check(spec, path, causes);
    host_users(spec, path, causes);
    host_name_override(spec, path, causes);
    name(spec, "serviceAccountName", names::dns1123_subdomain, path, causes);
    name(spec, "nodeName", names::dns1123_subdomain, path, causes);
    if let Some(seconds) = int(spec, "activeDeadlineSeconds")
        && !(1..=i64::from(i32::MAX)).contains(&seconds)
    {
        let why = "must be between 1 and 2147483647, inclusive";
        causes.push(path.child("activeDeadlineSeconds").invalid(seconds, why));
    }
    name(spec, "hostname", names::dns1123_label, path, causes);
    name(spec, "subdomain", names::dns1123_label, path, causes);
    taints::check_tolerations(spec, "tolerations", path, causes);
    host_aliases(spec, path, causes);
    name(spec, "priorityClassName", names::dns1123_subdomain, path, causes);
    if present(spec, "runtimeClassName").is_some() {
        let class = text(spec, "runtimeClassName");
        path.child("runtimeClassName").invalid_all(class, names::dns1123_subdomain(class), causes);
    }
    if present(spec, "preemptionPolicy").is_some() {
        required_one_of(spec, "preemptionPolicy", &["PreemptLowerPriority", "Never"], path, causes);
    }
    if let Some(overhead) = present(spec, "overhead") {
        requirements::check_overhead(overhead, &path.child("overhead"), causes);
    }
    if let Some(system) = present(spec, "os") {
        operating_system(text(system, "name"), spec, path, causes);
    }
    if let Some(group) = present(spec, "schedulingGroup") {
        scheduling_group(group, &path.child("schedulingGroup"), causes);
    }
    volumes::check_file_references(spec, path, causes);
}

fn scheduling_group(group: &Value, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    const FIELD: &str = "podGroupName";
    let path = path.child(FIELD);
    match present(group, FIELD).and_then(Value::as_str) {
        Some(name) => path.invalid_all(name, names::dns1123_subdomain(name), causes),
        None => causes.push(path.invalid(Value::Null, "must specify one of: `podGroupName`")),
    }
}

fn annotations(pod: &Value, causes: &mut Vec<StatusCause>) {
    const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
    let metadata = Path::root("metadata");
    let path = metadata.child("annotations");
    let Some(annotations) = pod.pointer("/metadata/annotations") else { return };
    if let Some(mirror) = annotations.get(MIRROR)
        && text_at(pod, "/spec/nodeName").is_empty()
    {
        let why = "must set spec.nodeName if mirror pod annotation is set";
        causes.push(path.key(MIRROR).invalid(mirror.clone(), why));
    }
    if let Some(cost) = annotations.get(DELETION_COST).and_then(Value::as_str) {
        let digits = cost.strip_prefix('-').unwrap_or(cost);
        let is_plain = !digits.starts_with('+') && (digits == "0" || !digits.starts_with('0'));
        let is_cost = (is_plain && cost.parse::<i32>().is_ok()) || cost == "0";
        if !is_cost || cost == "-0" {
            causes.push(path.key(DELETION_COST).invalid(cost, "must be a 32bit integer"));
        }
    }
}

fn tokens_without_account(spec: &Value, causes: &mut Vec<StatusCause>) {
    let volumes = SPEC.child("volumes");
    for (i, volume) in list(spec, "volumes").iter().enumerate() {
        let (volume_path, null) = (volumes.index(i), Value::Null);
        let projected = volume_path.child("projected");
        let sources = projected.child("sources");
        let projections = list(volume.get("projected").unwrap_or(&null), "sources").iter().enumerate();
        for (i, _) in projections.filter(|(_, source)| present(source, "serviceAccountToken").is_some()) {
            let why = "must not be specified when serviceAccountName is not set";
            causes.push(sources.index(i).child("serviceAccountToken").forbidden(why));
        }
    }
}

/// Validates an optional name.
fn name(
    object: &Value,
    field: &str,
    check: fn(&str) -> names::Wrong,
    path: &Path<'_>,
    causes: &mut Vec<StatusCause>,
) {
    let value = text(object, field);
    if !value.is_empty() {
        path.child(field).invalid_all(value, check(value), causes);
    }
}

fn host_network_ports(spec: &Value, owner: SpecOwner<'_>, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    if !flag(spec, "hostNetwork") {
        return;
    }
    let containers = path.child("containers");
    for (i, container) in list(spec, "containers").iter().enumerate() {
        let container_path = containers.index(i);
        let ports = container_path.child("ports");
        for (i, port) in list(container, "ports").iter().enumerate() {
            let of = |field| int(port, field).unwrap_or_default();
            let (host, own) = (of("hostPort"), of("containerPort"));
            if (owner.pod.is_some() || host != 0) && host != own {
                let why = "must match `containerPort` when `hostNetwork` is true";
                causes.push(ports.index(i).child("hostPort").invalid(host, why));
            }
        }
    }
}

fn gates(spec: &Value, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    let readiness = path.child("readinessGates");
    for (i, gate) in list(spec, "readinessGates").iter().enumerate() {
        labels::check_key(text(gate, "conditionType"), &readiness.index(i).child("conditionType"), causes);
    }
    let path = path.child("schedulingGates");
    let gates = list(spec, "schedulingGates");
    for (i, gate) in gates.iter().enumerate() {
        let (name, path) = (text(gate, "name"), path.index(i));
        labels::check_key(name, &path, causes);
        if gates[..i].iter().any(|other| text(other, "name") == name) {
            causes.push(path.duplicate(name));
        }
    }
}

fn dns_config(spec: &Value, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    let config = present(spec, "dnsConfig");
    let path = path.child("dnsConfig");
    if text(spec, "dnsPolicy") == "None" {
        let Some(config) = config else {
            causes.push(path.required("must provide `dnsConfig` when `dnsPolicy` is None"));
            return;
        };
        if list(config, "nameservers").is_empty() {
            let why = "must provide at least one DNS nameserver when `dnsPolicy` is None";
            causes.push(path.child("nameservers").required(why));
            return;
        }
    }
    let Some(config) = config else { return };
    let (servers, searches) = (list(config, "nameservers"), list(config, "searches"));
    let (servers_path, searches_path) = (path.child("nameservers"), path.child("searches"));
    if servers.len() > 3 {
        causes.push(servers_path.invalid(servers.to_vec(), "must not have more than 3 nameservers"));
    }
    for (i, server) in servers.iter().enumerate() {
        address(server.as_str().unwrap_or_default(), &servers_path.index(i), causes);
    }
    if searches.len() > 32 {
        causes.push(searches_path.invalid(searches.to_vec(), "must not have more than 32 search paths"));
    }
    let length: usize = searches.iter().filter_map(Value::as_str).map(|search| search.len() + 1).sum();
    if length.saturating_sub(1) > 2048 {
        let why = "must not have more than 2048 characters (including spaces) in the search list";
        causes.push(searches_path.invalid(searches.to_vec(), why));
    }
    for (i, search) in searches.iter().filter_map(Value::as_str).enumerate() {
        if search != "." {
            let search = search.strip_suffix('.').unwrap_or(search);
            let wrong = names::dns1123_subdomain_with_underscore(search);
            searches_path.index(i).invalid_all(search, wrong, causes);
        }
    }
    let options = path.child("options");
    for (i, option) in list(config, "options").iter().enumerate() {
        if text(option, "name").is_empty() {
            causes.push(options.index(i).required("must not be empty"));
        }
    }
}

fn host_aliases(spec: &Value, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    let path = path.child("hostAliases");
    for (i, alias) in list(spec, "hostAliases").iter().enumerate() {
        let path = path.index(i);
        address(text(alias, "ip"), &path.child("ip"), causes);
        let hostnames = path.child("hostnames");
        for (j, host) in list(alias, "hostnames").iter().filter_map(Value::as_str).enumerate() {
            hostnames.index(j).invalid_all(host, names::dns1123_subdomain(host), causes);
        }
    }
}

fn address(address: &str, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    match address.parse::<IpAddr>() {
        Ok(IpAddr::V6(v6)) if v6.to_ipv4_mapped().is_some() => {
            causes.push(path.invalid(address, "must not be an IPv4-mapped IPv6 address"));
        }
        Ok(_) => {}
        Err(_) if is_padded_v4(address) => causes.push(path.invalid(address, "must not have leading 0s")),
        Err(_) => {
            let why = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
            causes.push(path.invalid(address, why));
        }
    }
}

/// Whether the text is an IPv4 address with leading zeros.
fn is_padded_v4(address: &str) -> bool {
    let plain = |part: &str| match part.trim_start_matches('0') {
        "" if !part.is_empty() => "0".to_owned(),
        rest => rest.to_owned(),
    };
    address.split('.').map(plain).collect::<Vec<_>>().join(".").parse::<Ipv4Addr>().is_ok()
}

fn host_users(spec: &Value, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    if spec.get("hostUsers").and_then(Value::as_bool).unwrap_or(true) {
        return;
    }
    for (field, shown) in [("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")] {
        if flag(spec, field) {
            causes.push(path.child(shown).forbidden("when `hostUsers` is false"));
        }
    }
    for field in super::defaults::CONTAINERS {
        let path = path.child(field);
        for (i, container) in list(spec, field).iter().enumerate() {
            if !list(container, "volumeDevices").is_empty() {
                causes.push(path.index(i).child("volumeDevices").forbidden("when `hostUsers` is false"));
            }
        }
    }
}

fn host_name_override(spec: &Value, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    let Some(host) = present(spec, "hostnameOverride").and_then(Value::as_str) else { return };
    let path = path.child("hostnameOverride");
    if flag(spec, "setHostnameAsFQDN") {
        causes.push(path.forbidden("may not be specified when setHostnameAsFQDN is true"));
    }
    if flag(spec, "hostNetwork") {
        causes.push(path.forbidden("may not be specified when hostNetwork is true"));
    }
    if host.len() > 64 {
        causes.push(path.too_long(64));
    }
    path.invalid_all(host, names::dns1123_subdomain(host), causes);
}

fn operating_system(name: &str, spec: &Value, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    let os = path.child("os");
    match name {
        "" => causes.push(os.child("name").required("")),
        "linux" => security::check_linux(spec, path, causes),
        "windows" => security::check_windows(spec, path, causes),
        name => causes.push(os.not_supported(name, &["linux", "windows"])),
    }
}
