//! The status of a pod through its lifecycle. Each change is idempotent.

use std::hash::BuildHasher as _;

use rustc_hash::FxBuildHasher;
use serde_json::{Map, Value, json};

use crate::json::{int, list, object_mut, present, text, text_at};
use crate::sim::conditions::{self, Condition};
use crate::strategy::pod::requests::is_sidecar;

/// The node and addresses of a running pod.
#[derive(Clone, Debug)]
pub(super) struct PodAddresses {
    pub(super) host: String,
    pub(super) address: String,
}

const READY: [&str; 2] = ["Ready", "ContainersReady"];
const TIMES: [&str; 1] = ["lastTransitionTime"];

/// Starts all containers, and restarts those that crashed.
pub(super) fn run(pod: &mut Value, place: &PodAddresses, now: &str) {
    set_containers(pod, |container, known, pod| {
        let restarts = known.and_then(|known| int(known, "restartCount")).unwrap_or_default();
        let has_crashed = known.is_some_and(|known| known.pointer("/state/waiting").is_some());
        let restarts = restarts + i64::from(has_crashed);
        let running = known.and_then(|known| known.pointer("/state/running")).cloned();
        let state = json!({"running": running.unwrap_or_else(|| json!({"startedAt": now}))});
        container_status(container, pod, known, (state, restarts, true))
    });
    set_init_containers(pod, now);
    let fields = [("phase", "Running"), ("hostIP", &place.host), ("podIP", &place.address)];
    set_fields(pod, &fields, now);
    set_addresses(pod, place);
    set_condition(pod, Condition::new("PodReadyToStartContainers", true), now);
    set_condition(pod, Condition::new("Initialized", true), now);
    let unready = unready_gates(pod);
    let mut ready = Condition::new("Ready", unready.is_empty());
    if !unready.is_empty() {
        ready = ready.because("ReadinessGatesNotReady", &unready);
    }
    set_condition(pod, ready, now);
    set_condition(pod, Condition::new("ContainersReady", true), now);
}

/// Terminates all containers and ends the pod.
pub(super) fn end(pod: &mut Value, exit_code: i64, now: &str) {
    let has_run = !list(&pod["status"], "containerStatuses").is_empty();
    if has_run {
        set_containers(pod, |container, known, pod| exited(container, known, pod, exit_code, now));
        end_sidecars(pod, now);
    }
    let succeeds = has_run && exit_code == 0;
    let (phase, reason) = if succeeds { ("Succeeded", "PodCompleted") } else { ("Failed", "PodFailed") };
    set_fields(pod, &[("phase", phase)], now);
    set_condition(pod, Condition::new("PodReadyToStartContainers", false), now);
    if succeeds {
        set_condition(pod, Condition::new("Initialized", true).because("PodCompleted", ""), now);
    }
    for kind in READY {
        set_condition(pod, Condition::new(kind, false).because(reason, ""), now);
    }
}

/// Fails the pod before it starts.
pub(super) fn reject(pod: &mut Value, reason: &str, message: &str, now: &str) {
    set_fields(pod, &[("phase", "Failed"), ("reason", reason), ("message", message)], now);
    for kind in READY {
        set_condition(pod, Condition::new(kind, false).because("PodFailed", ""), now);
    }
}

/// Crashes all containers, which wait to be restarted.
pub(super) fn crash(pod: &mut Value, exit_code: i64, pause: u64, now: &str) {
    let whose = format!(
        "pod={}_{}({})",
        text_at(pod, "/metadata/name"),
        text_at(pod, "/metadata/namespace"),
        text_at(pod, "/metadata/uid"),
    );
    set_containers(pod, |container, known, pod| {
        let restarts = known.and_then(|known| int(known, "restartCount")).unwrap_or_default();
        let mut status = exited(container, known, pod, exit_code, now);
        status["lastState"] = status["state"].take();
        let message =
            format!("back-off {pause}s restarting failed container={} {whose}", text(container, "name"));
        status["state"] = json!({"waiting": {"reason": "CrashLoopBackOff", "message": message}});
        status["restartCount"] = restarts.into();
        status
    });
    let containers = list(&pod["spec"], "containers");
    let names: Vec<&str> = containers.iter().map(|container| text(container, "name")).collect();
    let message = format!("containers with unready status: [{}]", names.join(" "));
    for kind in READY {
        set_condition(pod, Condition::new(kind, false).because("ContainersNotReady", &message), now);
    }
}

/// The restart count of the containers.
pub(super) fn restarts(pod: &Value) -> i64 {
    let statuses = list(&pod["status"], "containerStatuses");
    statuses.iter().filter_map(|status| int(status, "restartCount")).max().unwrap_or_default()
}

fn set_fields(pod: &mut Value, fields: &[(&str, &str)], now: &str) {
    let generation = pod["metadata"]["generation"].clone();
    let Some(status) = object_mut(pod, "status") else { return };
    for (field, value) in fields.iter().filter(|(_, value)| !value.is_empty()) {
        status.insert((*field).to_owned(), (*value).into());
    }
    status.entry("startTime").or_insert_with(|| now.into());
    status.insert("observedGeneration".to_owned(), generation);
}

fn set_addresses(pod: &mut Value, place: &PodAddresses) {
    for (field, address) in [("hostIPs", &place.host), ("podIPs", &place.address)] {
        if !address.is_empty() {
            pod["status"][field] = json!([{"ip": address}]);
        }
    }
}

fn set_condition(pod: &mut Value, condition: Condition<'_>, now: &str) {
    let generation = pod["metadata"]["generation"].clone();
    conditions::set(pod, condition, &TIMES, now);
    let all = pod.pointer_mut("/status/conditions").and_then(Value::as_array_mut);
    let own = all.and_then(|all| all.iter_mut().find(|one| text(one, "type") == condition.kind));
    if let Some(fields) = own.and_then(Value::as_object_mut) {
        fields.insert("observedGeneration".to_owned(), generation);
        fields.entry("lastProbeTime").or_insert(Value::Null);
    }
}

/// The readiness gates that keep a pod with ready containers from being ready.
fn unready_gates(pod: &Value) -> String {
    let gates = pod.get("spec").map_or(&[][..], |spec| list(spec, "readinessGates"));
    let why = |gate: &Value| {
        let kind = text(gate, "conditionType");
        match conditions::find(pod, kind).map(|condition| text(condition, "status")) {
            Some("True") => None,
            Some(status) => {
                Some(format!(r#"the status of pod readiness gate "{kind}" is not "True", but {status}"#))
            }
            None => {
                Some(format!(r#"corresponding condition of pod readiness gate "{kind}" does not exist."#))
            }
        }
    };
    gates.iter().filter_map(why).collect::<Vec<_>>().join(", ")
}

/// Sets the status of each container to the result of `status` for the container, its previous
/// status and the pod.
fn set_containers(pod: &mut Value, status: impl Fn(&Value, Option<&Value>, &Value) -> Value) {
    set_statuses(pod, "containers", "containerStatuses", status);
}

fn set_init_containers(pod: &mut Value, now: &str) {
    set_statuses(pod, "initContainers", "initContainerStatuses", |container, known, pod| {
        let restarts = known.and_then(|known| int(known, "restartCount")).unwrap_or_default();
        let known_state = |state: &str| known.and_then(|known| known["state"].get(state)).cloned();
        let state = if is_sidecar(container) {
            json!({"running": known_state("running").unwrap_or_else(|| json!({"startedAt": now}))})
        } else {
            let id = container_id(pod, container, restarts);
            let ended = || terminated(0, now, now, &id);
            json!({"terminated": known_state("terminated").unwrap_or_else(ended)})
        };
        let mut status = container_status(container, pod, known, (state, restarts, true));
        status["started"] = is_sidecar(container).into();
        status
    });
}

fn end_sidecars(pod: &mut Value, now: &str) {
    set_statuses(pod, "initContainers", "initContainerStatuses", |container, known, pod| {
        match known.filter(|_| !is_sidecar(container)) {
            Some(known) => known.clone(),
            None => exited(container, known, pod, 0, now),
        }
    });
}

fn set_statuses(
    pod: &mut Value,
    containers: &str,
    statuses: &str,
    status: impl Fn(&Value, Option<&Value>, &Value) -> Value,
) {
    let all = pod.get("spec").map_or(&[][..], |spec| list(spec, containers));
    if all.is_empty() {
        return;
    }
    let known = pod.get("status").map_or(&[][..], |status| list(status, statuses));
    let of = |container: &Value| {
        let known = known.iter().find(|known| known.get("name") == container.get("name"));
        status(container, known, pod)
    };
    let new: Vec<Value> = all.iter().map(of).collect();
    pod["status"][statuses] = new.into();
}

fn container_status(
    container: &Value,
    pod: &Value,
    known: Option<&Value>,
    (state, restarts, is_ready): (Value, i64, bool),
) -> Value {
    let image = text(container, "image");
    let mut status = json!({
        "name": container["name"],
        "image": image,
        "imageID": image_id(image),
        "containerID": container_id(pod, container, restarts),
        "state": state,
        "lastState": known.and_then(|known| known.get("lastState")).cloned().unwrap_or_else(|| json!({})),
        "ready": is_ready,
        "started": is_ready,
        "restartCount": restarts,
    });
    let resources = present(container, "resources").and_then(Value::as_object).filter(|own| !own.is_empty());
    if let Some(resources) = resources {
        let granted = resources.iter().filter(|(field, _)| *field != "claims");
        let granted: Map<String, Value> =
            granted.map(|(field, amounts)| (field.clone(), amounts.clone())).collect();
        if let Some(requests) = granted.get("requests") {
            status["allocatedResources"] = requests.clone();
        }
        status["resources"] = granted.into();
    }
    status
}

/// A running container exits; one that has already exited is unchanged.
fn exited(container: &Value, known: Option<&Value>, pod: &Value, exit_code: i64, now: &str) -> Value {
    let restarts = known.and_then(|known| int(known, "restartCount")).unwrap_or_default();
    let started = known.map_or("", |known| text_at(known, "/state/running/startedAt"));
    let started = if started.is_empty() { now } else { started };
    let ended = known.and_then(|known| known.pointer("/state/terminated")).cloned();
    let ended =
        ended.unwrap_or_else(|| terminated(exit_code, started, now, &container_id(pod, container, restarts)));
    container_status(container, pod, known, (json!({"terminated": ended}), restarts, false))
}

fn terminated(exit_code: i64, started: &str, now: &str, id: &str) -> Value {
    json!({
        "exitCode": exit_code,
        "reason": if exit_code == 0 { "Completed" } else { "Error" },
        "startedAt": started,
        "finishedAt": now,
        "containerID": id,
    })
}

fn container_id(pod: &Value, container: &Value, restarts: i64) -> String {
    let uid = text_at(pod, "/metadata/uid");
    format!("containerd://{}", digest(&(uid, text(container, "name"), restarts)))
}

fn image_id(image: &str) -> String {
    let name = image.rsplit_once(':').filter(|(_, tag)| !tag.contains('/')).map_or(image, |(name, _)| name);
    let name = name.split_once('@').map_or(name, |(name, _)| name);
    format!("{name}@sha256:{}", digest(&image))
}

/// 64 hexadecimal digits that resemble a digest.
fn digest(of: &impl std::hash::Hash) -> String {
    let mut random = fastrand::Rng::with_seed(FxBuildHasher.hash_one(of));
    let parts: [u64; 4] = std::array::from_fn(|_| random.u64(..));
    format!("{:016x}{:016x}{:016x}{:016x}", parts[0], parts[1], parts[2], parts[3])
}
