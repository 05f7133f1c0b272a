//! Pods.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::Layout;
use super::access::{
    age, condition, condition_is_true, flag_or, has, is_deleted, items, name, number, since, text, text_or,
    time,
};
use super::columns::{AGE, NAME, text as column, wide};

pub(super) static PODS: Layout = Layout {
    columns: &[
        NAME,
        column("Ready"),
        column("Status"),
        column("Restarts"),
        AGE,
        wide("IP"),
        wide("Node"),
        wide("Nominated Node"),
        wide("Readiness Gates"),
    ],
    cells,
};

fn cells(pod: &Value, now: Timestamp) -> Vec<Value> {
    let summary = Summary::of(pod);
    let first_ip = items(pod, "/status/podIPs").first().map_or("", |ip| text(ip, "/ip"));
    let ip = if first_ip.is_empty() { text_or(pod, "/status/podIP", "<none>") } else { first_ip };
    vec![
        name(pod),
        format!("{}/{}", summary.ready, summary.containers).into(),
        summary.status.into(),
        summary.restarts.cell(now).into(),
        age(pod, now),
        ip.into(),
        text_or(pod, "/spec/nodeName", "<none>").into(),
        text_or(pod, "/status/nominatedNodeName", "<none>").into(),
        readiness_gates(pod).into(),
    ]
}

/// Row conditions that mark completed pods for clients.
pub(super) fn conditions(pod: &Value) -> Option<Value> {
    let (reason, message) = match text(pod, "/status/phase") {
        "Succeeded" => ("Succeeded", "The pod has completed successfully."),
        "Failed" => ("Failed", "The pod failed."),
        _ => return None,
    };
    Some(json!([{"type": "Completed", "status": "True", "reason": reason, "message": message}]))
}

fn readiness_gates(pod: &Value) -> String {
    let gates = items(pod, "/spec/readinessGates");
    if gates.is_empty() {
        return "<none>".to_owned();
    }
    let open = gates.iter().filter(|gate| condition_is_true(pod, text(gate, "/conditionType"))).count();
    format!("{open}/{}", gates.len())
}

/// The number of container restarts, and the time of the last one.
#[derive(Clone, Copy, Default)]
struct Restarts {
    count: i64,
    last: Option<Timestamp>,
}

impl Restarts {
    fn add(&mut self, container: &Value) {
        self.count += number(container, "/restartCount");
        self.last = self.last.max(time(container, "/lastState/terminated/finishedAt"));
    }

    fn cell(self, now: Timestamp) -> String {
        match self.last {
            Some(last) if self.count != 0 => format!("{} ({} ago)", self.count, since(Some(last), now)),
            _ => self.count.to_string(),
        }
    }
}

/// The summary of all container states.
struct Summary {
    status: String,
    ready: usize,
    containers: usize,
    restarts: Restarts,
}

impl Summary {
    fn of(pod: &Value) -> Self {
        let mut summary = Self {
            status: own_status(pod).to_owned(),
            ready: 0,
            containers: items(pod, "/spec/containers").len()
                + items(pod, "/spec/initContainers").iter().filter(|container| is_sidecar(container)).count(),
            restarts: Restarts::default(),
        };
        let sidecar_restarts = summary.add_init_containers(pod);
        if let Some(sidecar_restarts) = sidecar_restarts {
            summary.restarts = sidecar_restarts;
            summary.add_containers(pod);
        }
        if is_deleted(pod) {
            if text(pod, "/status/reason") == "NodeLost" {
                "Unknown".clone_into(&mut summary.status);
            } else if !matches!(text(pod, "/status/phase"), "Succeeded" | "Failed") {
                "Terminating".clone_into(&mut summary.status);
            }
        }
        summary
    }

    /// Adds the init containers up to the first unfinished one, which determines the status. If the
    /// main containers count, returns the restarts of the sidecars, which are added to theirs.
    fn add_init_containers(&mut self, pod: &Value) -> Option<Restarts> {
        let specs = items(pod, "/spec/initContainers");
        let mut sidecars = Restarts::default();
        let mut initializing = false;
        for (index, container) in items(pod, "/status/initContainerStatuses").iter().enumerate() {
            let own_name = text(container, "/name");
            let sidecar = specs.iter().any(|spec| text(spec, "/name") == own_name && is_sidecar(spec));
            self.restarts.add(container);
            if sidecar {
                sidecars.add(container);
            }
            if has(container, "/state/terminated") && number(container, "/state/terminated/exitCode") == 0 {
                continue;
            }
            if sidecar && flag_or(container, "/started", false) {
                self.ready += usize::from(flag_or(container, "/ready", false));
                continue;
            }
            let waiting = text(container, "/state/waiting/reason");
            self.status = if has(container, "/state/terminated") {
                format!("Init:{}", termination(container))
            } else if !waiting.is_empty() && waiting != "PodInitializing" {
                format!("Init:{waiting}")
            } else {
                format!("Init:{index}/{}", specs.len())
            };
            initializing = true;
            break;
        }
        (!initializing || condition_is_true(pod, "Initialized")).then_some(sidecars)
    }

    fn add_containers(&mut self, pod: &Value) {
        let mut some_run = false;
        let mut failure = None;
        // In reverse, so that the first container determines the status.
        for container in items(pod, "/status/containerStatuses").iter().rev() {
            self.restarts.add(container);
            let waiting = text(container, "/state/waiting/reason");
            if !waiting.is_empty() {
                waiting.clone_into(&mut self.status);
            } else if has(container, "/state/terminated") {
                self.status = termination(container);
                if number(container, "/state/terminated/exitCode") != 0 {
                    failure = Some(self.status.clone());
                }
            } else if flag_or(container, "/ready", false) && has(container, "/state/running") {
                some_run = true;
                self.ready += 1;
            }
        }
        // The pod is not completed while another container is running.
        if self.status == "Completed" {
            let ready = items(pod, "/status/conditions")
                .iter()
                .any(|condition| text(condition, "/type") == "Ready" && text(condition, "/status") == "True");
            if some_run && ready {
                "Running".clone_into(&mut self.status);
            } else if let Some(failure) = failure {
                self.status = failure;
            } else if some_run {
                "NotReady".clone_into(&mut self.status);
            }
        }
    }
}

/// The status of the pod itself, before its containers are considered.
fn own_status(pod: &Value) -> &str {
    let gated = condition(pod, "PodScheduled")
        .is_some_and(|condition| text(condition, "/reason") == "SchedulingGated");
    if gated { "SchedulingGated" } else { text_or(pod, "/status/reason", text(pod, "/status/phase")) }
}

/// Why a container terminated: its reason, or its signal or exit code.
fn termination(container: &Value) -> String {
    match text(container, "/state/terminated/reason") {
        "" => match number(container, "/state/terminated/signal") {
            0 => format!("ExitCode:{}", number(container, "/state/terminated/exitCode")),
            signal => format!("Signal:{signal}"),
        },
        reason => reason.to_owned(),
    }
}

/// Whether an init container keeps running beside the main containers.
fn is_sidecar(container: &Value) -> bool {
    text(container, "/restartPolicy") == "Always"
}
