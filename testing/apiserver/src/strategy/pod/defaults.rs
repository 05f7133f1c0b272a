//! The defaults of pods.

use serde_json::{Map, Value, json};

use super::image;
use crate::json::{entries, flag, int, list, list_mut, object_mut, set_default, text};
use crate::quantity::Quantity;

/// The fields that hold containers.
pub(crate) const CONTAINERS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];
const GRACE_PERIOD: &str = "terminationGracePeriodSeconds";
const FILE_MODE: i64 = 0o644;

/// Fills in the defaults of a pod. Idempotent.
pub(crate) fn pod(pod: &mut Value) {
    addresses(pod);
    let Some(spec) = pod.get_mut("spec").filter(|spec| spec.is_object()) else { return };
    for field in ["initContainers", "containers"] {
        for container in list_mut(spec, field) {
            requests_from_limits(container);
        }
    }
    set_default(spec, "enableServiceLinks", true);
    if int(spec, GRACE_PERIOD).is_some_and(|seconds| seconds < 0) {
        spec[GRACE_PERIOD] = 1.into();
    }
    if flag(spec, "hostNetwork") {
        for field in ["initContainers", "containers"] {
            list_mut(spec, field).iter_mut().for_each(host_ports);
        }
    }
    pod_spec(spec);
}

/// Fills in the defaults that the specs of pods and pod templates share.
pub(crate) fn pod_spec(spec: &mut Value) {
    if !spec.is_object() {
        return;
    }
    set_default(spec, "dnsPolicy", "ClusterFirst");
    set_default(spec, "restartPolicy", "Always");
    set_default(spec, "securityContext", json!({}));
    set_default(spec, GRACE_PERIOD, 30);
    set_default(spec, "schedulerName", "default-scheduler");
    service_account(spec);
    list_mut(spec, "volumes").iter_mut().for_each(volume);
    for field in CONTAINERS {
        list_mut(spec, field).iter_mut().for_each(container);
    }
    resource_list(spec, "overhead");
    if let Some(resources) = spec.get_mut("resources") {
        resource_list(resources, "limits");
        resource_list(resources, "requests");
    }
}

/// The deprecated field mirrors the current one. A pod with only the deprecated field gets both.
fn service_account(spec: &mut Value) {
    let named = [text(spec, "serviceAccountName"), text(spec, "serviceAccount")];
    let Some(name) = named.into_iter().find(|name| !name.is_empty()).map(str::to_owned) else { return };
    if named != [name.as_str(), name.as_str()] {
        spec["serviceAccountName"] = name.as_str().into();
        spec["serviceAccount"] = name.into();
    }
}

fn container(container: &mut Value) {
    if !container.is_object() {
        return;
    }
    if text(container, "imagePullPolicy").is_empty() {
        container["imagePullPolicy"] = image::pull_policy(text(container, "image")).into();
    }
    set_default(container, "terminationMessagePath", "/dev/termination-log");
    set_default(container, "terminationMessagePolicy", "File");
    set_default(container, "resources", json!({}));
    if let Some(resources) = container.get_mut("resources") {
        resource_list(resources, "limits");
        resource_list(resources, "requests");
    }
    for port in list_mut(container, "ports") {
        set_default(port, "protocol", "TCP");
    }
    for variable in list_mut(container, "env") {
        let Some(source) = variable.get_mut("valueFrom") else { continue };
        value_source(source);
        if let Some(file) = source.get_mut("fileKeyRef") {
            set_default(file, "optional", false);
        }
    }
    for field in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(found) = container.get_mut(field) {
            probe(found);
        }
    }
    for pointer in ["/lifecycle/postStart/httpGet", "/lifecycle/preStop/httpGet"] {
        if let Some(action) = container.pointer_mut(pointer) {
            http_get(action);
        }
    }
}

fn value_source(source: &mut Value) {
    if let Some(field) = source.get_mut("fieldRef") {
        set_default(field, "apiVersion", "v1");
    }
    if let Some(resource) = source.get_mut("resourceFieldRef") {
        set_default(resource, "divisor", "0");
    }
}

fn probe(probe: &mut Value) {
    for (field, value) in
        [("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3)]
    {
        if probe.get(field).and_then(Value::as_i64).unwrap_or_default() == 0 && probe.is_object() {
            probe[field] = value.into();
        }
    }
    if let Some(action) = probe.get_mut("httpGet") {
        http_get(action);
    }
    if let Some(action) = probe.get_mut("grpc").and_then(Value::as_object_mut) {
        let service = action.entry("service").or_insert(Value::Null);
        if service.is_null() {
            *service = "".into();
        }
    }
}

fn http_get(action: &mut Value) {
    set_default(action, "path", "/");
    set_default(action, "scheme", "HTTP");
}

fn volume(volume: &mut Value) {
    let Some(map) = volume.as_object_mut() else { return };
    if !map.iter().any(|(field, value)| field != "name" && !value.is_null()) {
        map.insert("emptyDir".to_owned(), json!({}));
        return;
    }
    if let Some(path) = map.get_mut("hostPath").and_then(Value::as_object_mut) {
        let kind = path.entry("type").or_insert(Value::Null);
        if kind.is_null() {
            *kind = "".into();
        }
    }
    for field in ["secret", "configMap", "downwardAPI", "projected"] {
        if let Some(source) = map.get_mut(field) {
            set_default(source, "defaultMode", FILE_MODE);
        }
    }
    if let Some(source) = map.get_mut("downwardAPI") {
        list_mut(source, "items").iter_mut().for_each(value_source);
    }
    if let Some(source) = map.get_mut("projected") {
        for projection in list_mut(source, "sources") {
            if let Some(token) = projection.get_mut("serviceAccountToken") {
                set_default(token, "expirationSeconds", 3600);
            }
            if let Some(downward) = projection.get_mut("downwardAPI") {
                list_mut(downward, "items").iter_mut().for_each(value_source);
            }
        }
    }
    if let Some(image) = map.get_mut("image").filter(|image| text(image, "pullPolicy").is_empty()) {
        let policy = image::pull_policy(text(image, "reference"));
        set_default(image, "pullPolicy", policy);
    }
    if let Some(template) = map.get_mut("ephemeral").and_then(|source| source.get_mut("volumeClaimTemplate"))
    {
        set_default(template, "metadata", json!({}));
        claim_spec(template);
    }
    network_volume(map);
}

fn claim_spec(template: &mut Value) {
    let Some(spec) = template.get_mut("spec") else { return };
    set_default(spec, "volumeMode", "Filesystem");
    set_default(spec, "resources", json!({}));
    if let Some(resources) = spec.get_mut("resources") {
        resource_list(resources, "limits");
        resource_list(resources, "requests");
    }
}

/// The defaults of volume sources that pods and PersistentVolumes share.
pub(crate) fn network_volume(volume: &mut Map<String, Value>) {
    let defaults: [(&str, &[(&str, Value)]); 4] = [
        ("iscsi", &[("iscsiInterface", "default".into())]),
        ("rbd", &[("pool", "rbd".into()), ("user", "admin".into()), ("keyring", "/etc/ceph/keyring".into())]),
        (
            "azureDisk",
            &[
                ("cachingMode", "ReadWrite".into()),
                ("fsType", "ext4".into()),
                ("readOnly", false.into()),
                ("kind", "Shared".into()),
            ],
        ),
        ("scaleIO", &[("storageMode", "ThinProvisioned".into()), ("fsType", "xfs".into())]),
    ];
    for (source, fields) in defaults {
        let Some(source) = volume.get_mut(source).filter(|source| source.is_object()) else { continue };
        for (field, value) in fields {
            set_default(source, field, value.clone());
        }
    }
}

fn host_ports(container: &mut Value) {
    for port in list_mut(container, "ports") {
        let is_missing = port.get("hostPort").and_then(Value::as_i64).unwrap_or_default() == 0;
        if let Some(number) = port.get("containerPort").filter(|_| is_missing).cloned() {
            port["hostPort"] = number;
        }
    }
}

/// `podIP` is the first of `podIPs`. If they differ, `podIP` replaces the list.
fn addresses(pod: &mut Value) {
    let Some(status) = pod.get_mut("status").filter(|status| status.is_object()) else { return };
    let ip = text(status, "podIP").to_owned();
    let first = list(status, "podIPs").first().map(|first| text(first, "ip").to_owned());
    match first {
        Some(first) if ip.is_empty() => status["podIP"] = first.into(),
        first if !ip.is_empty() && first.as_ref() != Some(&ip) => status["podIPs"] = json!([{"ip": ip}]),
        _ => {}
    }
}

/// Requests default to limits.
fn requests_from_limits(container: &mut Value) {
    let Some(resources) = container.get_mut("resources") else { return };
    let missing: Vec<(String, Value)> = entries(resources, "limits")
        .filter(|(name, _)| resources.get("requests").and_then(|requests| requests.get(name)).is_none())
        .map(|(name, amount)| (name.to_owned(), amount.clone()))
        .collect();
    if !missing.is_empty()
        && let Some(requests) = object_mut(resources, "requests")
    {
        requests.extend(missing);
    }
}

/// Rounds amounts up to thousandths, in canonical form.
pub(crate) fn resource_list(object: &mut Value, field: &str) {
    let Some(list) = object.get_mut(field).and_then(Value::as_object_mut) else { return };
    for amount in list.values_mut() {
        let Ok(read) = Quantity::read(amount) else { continue };
        let rounded = read.round_up_to_milli().to_string();
        if amount.as_str() != Some(rounded.as_str()) {
            *amount = rounded.into();
        }
    }
}
