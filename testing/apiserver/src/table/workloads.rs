//! Deployments and other workloads.

use jiff::Timestamp;
use serde_json::Value;

use super::Layout;
use super::access::{age, flag_or, items, name, number, text};
use super::columns::{AGE, NAME, integer, text as column, wide};
use super::selector::{label_selector, label_selector_cell, labels};

pub(super) static DEPLOYMENTS: Layout = Layout {
    columns: &[
        NAME,
        column("Ready"),
        column("Up-to-date"),
        column("Available"),
        AGE,
        wide("Containers"),
        wide("Images"),
        wide("Selector"),
    ],
    cells: deployment,
};

pub(super) static REPLICA_SETS: Layout = Layout { columns: REPLICAS, cells: replica_set };

pub(super) static REPLICATION_CONTROLLERS: Layout =
    Layout { columns: REPLICAS, cells: replication_controller };

pub(super) static STATEFUL_SETS: Layout = Layout {
    columns: &[NAME, column("Ready"), AGE, wide("Containers"), wide("Images")],
    cells: stateful_set,
};

pub(super) static DAEMON_SETS: Layout = Layout {
    columns: &[
        NAME,
        integer("Desired"),
        integer("Current"),
        integer("Ready"),
        integer("Up-to-date"),
        integer("Available"),
        column("Node Selector"),
        AGE,
        wide("Containers"),
        wide("Images"),
        wide("Selector"),
    ],
    cells: daemon_set,
};

pub(super) static POD_TEMPLATES: Layout = Layout {
    columns: &[NAME, column("Containers"), column("Images"), column("Pod Labels")],
    cells: pod_template,
};

pub(super) static CONTROLLER_REVISIONS: Layout =
    Layout { columns: &[NAME, column("Controller"), column("Revision"), AGE], cells: controller_revision };

const REPLICAS: &[super::Column] = &[
    NAME,
    integer("Desired"),
    integer("Current"),
    integer("Ready"),
    AGE,
    wide("Containers"),
    wide("Images"),
    wide("Selector"),
];

/// The names and images of the containers at a JSON pointer.
pub(super) fn containers(object: &Value, pointer: &str) -> [Value; 2] {
    ["/name", "/image"].map(|field| {
        let texts: Vec<&str> =
            items(object, pointer).iter().map(|container| text(container, field)).collect();
        texts.join(",").into()
    })
}

const CONTAINERS: &str = "/spec/template/spec/containers";

fn ready(object: &Value) -> Value {
    format!("{}/{}", number(object, "/status/readyReplicas"), number(object, "/spec/replicas")).into()
}

fn deployment(deployment: &Value, now: Timestamp) -> Vec<Value> {
    let [names, images] = containers(deployment, CONTAINERS);
    vec![
        name(deployment),
        ready(deployment),
        number(deployment, "/status/updatedReplicas").into(),
        number(deployment, "/status/availableReplicas").into(),
        age(deployment, now),
        names,
        images,
        label_selector(deployment, "/spec/selector").unwrap_or_else(|| "<invalid>".to_owned()).into(),
    ]
}

fn replicas(object: &Value, selector: String, now: Timestamp) -> Vec<Value> {
    let [names, images] = containers(object, CONTAINERS);
    vec![
        name(object),
        number(object, "/spec/replicas").into(),
        number(object, "/status/replicas").into(),
        number(object, "/status/readyReplicas").into(),
        age(object, now),
        names,
        images,
        selector.into(),
    ]
}

fn replica_set(set: &Value, now: Timestamp) -> Vec<Value> {
    replicas(set, label_selector_cell(set, "/spec/selector"), now)
}

fn replication_controller(controller: &Value, now: Timestamp) -> Vec<Value> {
    replicas(controller, labels(controller, "/spec/selector"), now)
}

fn stateful_set(set: &Value, now: Timestamp) -> Vec<Value> {
    let [names, images] = containers(set, CONTAINERS);
    vec![name(set), ready(set), age(set, now), names, images]
}

fn daemon_set(set: &Value, now: Timestamp) -> Vec<Value> {
    let [names, images] = containers(set, CONTAINERS);
    vec![
        name(set),
        number(set, "/status/desiredNumberScheduled").into(),
        number(set, "/status/currentNumberScheduled").into(),
        number(set, "/status/numberReady").into(),
        number(set, "/status/updatedNumberScheduled").into(),
        number(set, "/status/numberAvailable").into(),
        labels(set, "/spec/template/spec/nodeSelector").into(),
        age(set, now),
        names,
        images,
        label_selector_cell(set, "/spec/selector").into(),
    ]
}

fn pod_template(template: &Value, _now: Timestamp) -> Vec<Value> {
    let [names, images] = containers(template, "/template/spec/containers");
    vec![name(template), names, images, labels(template, "/template/metadata/labels").into()]
}

fn controller_revision(revision: &Value, now: Timestamp) -> Vec<Value> {
    let controller = items(revision, "/metadata/ownerReferences")
        .iter()
        .find(|owner| flag_or(owner, "/controller", false))
        .map_or_else(|| "<none>".to_owned(), owner);
    vec![name(revision), controller.into(), number(revision, "/revision").into(), age(revision, now)]
}

/// For example `statefulset.apps/web`.
fn owner(owner: &Value) -> String {
    let kind = text(owner, "/kind");
    let kind = match text(owner, "/apiVersion").split_once('/') {
        Some((group, _)) => format!("{kind}.{group}"),
        None => kind.to_owned(),
    };
    format!("{}/{}", kind.to_lowercase(), text(owner, "/name"))
}
