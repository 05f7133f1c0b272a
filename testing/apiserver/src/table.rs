//! Tables, as printed by `kubectl get`.
//!
//! | `Accept` | one object | list | watch event |
//! |---|---|---|---|
//! | `application/json;as=Table;v=v1;g=meta.k8s.io` | [`Printer::table`] of one | [`Printer::table`] | [`Printer::row_table`] |
//! | `application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io` | [`partial_object_metadata`] | 406 | [`partial_object_metadata`] |
//! | `application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io` | 406 | [`partial_object_metadata_list`] | |
//! | `application/json` | the object | the list | the object |
//!
//! kubectl accepts `Table` in v1, in v1beta1, and plain JSON in one request, and gets v1. v1beta1
//! alone is not served (upstream still serves it). A list requested as a single
//! PartialObjectMetadata is rejected with `you requested PartialObjectMetadata, but the requested
//! object is a list (*core.NamespaceList)`, and a single object requested as a list with `you
//! requested PartialObjectMetadataList, but the requested object is not a list (*core.Namespace)`.
//! [`IncludeObject::parse`] reads the query parameter `includeObject`. In a watch, only the table
//! of the first event has column definitions. A table always has the columns of `-o wide`; clients
//! omit columns whose priority is not 0.

mod access;
mod autoscaling;
mod batch;
mod columns;
mod custom;
mod duration;
mod events;
mod groups;
mod network;
mod nodes;
mod plain;
mod pods;
mod selector;
mod storage;
mod workloads;

#[cfg(test)]
mod tests;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::kinds::Kind;
use crate::status::{Result, Status};
use columns::Column;
pub(crate) use custom::PrinterColumn;

/// How much of each object accompanies its row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum IncludeObject {
    /// Nothing.
    None,
    /// The metadata, as a PartialObjectMetadata.
    #[default]
    Metadata,
    /// The whole object.
    Object,
}

impl IncludeObject {
    /// Parses the query parameter. The default is `Metadata`.
    pub(crate) fn parse(value: &str) -> Result<Self> {
        match value {
            "" | "Metadata" => Ok(Self::Metadata),
            "None" => Ok(Self::None),
            "Object" => Ok(Self::Object),
            other => Err(Status::bad_request(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: {other:?}: must be \
                 'Metadata', 'Object', 'None', or empty"
            ))),
        }
    }
}

/// Prints the rows of one kind.
#[derive(Clone, Debug)]
pub(crate) struct Printer(Rows);

#[derive(Clone, Debug)]
enum Rows {
    BuiltIn(&'static Layout),
    Custom(Vec<PrinterColumn>),
}

/// The columns of a built-in kind, and their cells.
#[derive(Debug)]
struct Layout {
    columns: &'static [Column],
    cells: fn(&Value, Timestamp) -> Vec<Value>,
}

impl Printer {
    /// The printer of a built-in kind, or of a custom resource without printer columns.
    pub(crate) fn of(kind: &Kind) -> Self {
        if kind.custom {
            Self::custom(None)
        } else {
            Self(Rows::BuiltIn(layout(&kind.group, &kind.resource)))
        }
    }

    /// The printer of a custom resource, from the `additionalPrinterColumns` of its version.
    pub(crate) fn custom(additional_printer_columns: Option<&Value>) -> Self {
        Self(Rows::Custom(PrinterColumn::parse_all(additional_printer_columns)))
    }

    /// The `metav1.Table` of a list, with the list's metadata.
    pub(crate) fn table<'a>(
        &self,
        objects: impl IntoIterator<Item = &'a Value>,
        list_meta: Value,
        include: IncludeObject,
        now: Timestamp,
    ) -> Value {
        let objects: Vec<&Value> = objects.into_iter().collect();
        let mut rows = self.rows(objects.iter().copied(), include, now);
        if self.is_of(&storage::STORAGE_CLASSES) {
            storage::mark_default(&objects, &mut rows);
        }
        Self::assemble(self.column_definitions(), rows, list_meta)
    }

    /// The table of one object, alone or of a watch event. Only the first event of a watch has
    /// headers. The bookmark that ends the initial events always keeps its metadata, because
    /// clients wait for its annotation.
    pub(crate) fn row_table(
        &self,
        object: &Value,
        headers: bool,
        include: IncludeObject,
        now: Timestamp,
    ) -> Value {
        let include = match include {
            IncludeObject::None if access::has(object, INITIAL_EVENTS_END) => IncludeObject::Metadata,
            include => include,
        };
        let columns = if headers { self.column_definitions() } else { Value::Null };
        Self::assemble(columns, self.rows([object], include, now), list_meta_of(object))
    }

    fn assemble(columns: Value, rows: Vec<Value>, list_meta: Value) -> Value {
        let mut table = Map::new();
        table.insert("kind".to_owned(), "Table".into());
        table.insert("apiVersion".to_owned(), META.into());
        table.insert("metadata".to_owned(), list_meta);
        table.insert("columnDefinitions".to_owned(), columns);
        table.insert("rows".to_owned(), rows.into());
        Value::Object(table)
    }

    fn column_definitions(&self) -> Value {
        match &self.0 {
            Rows::BuiltIn(layout) => layout.columns.iter().map(Column::to_json).collect(),
            Rows::Custom(columns) => std::iter::once(columns::NAME.to_json())
                .chain(columns.iter().map(PrinterColumn::to_json))
                .collect(),
        }
    }

    fn rows<'a>(
        &self,
        objects: impl IntoIterator<Item = &'a Value>,
        include: IncludeObject,
        now: Timestamp,
    ) -> Vec<Value> {
        objects
            .into_iter()
            .map(|object| {
                let mut row = Map::new();
                row.insert("cells".to_owned(), self.cells(object, now).into());
                if let Some(conditions) = self.conditions(object) {
                    row.insert("conditions".to_owned(), conditions);
                }
                let beside = match include {
                    IncludeObject::None => Value::Null,
                    IncludeObject::Metadata => partial_object_metadata(object),
                    IncludeObject::Object => object.clone(),
                };
                row.insert("object".to_owned(), beside);
                Value::Object(row)
            })
            .collect()
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        match &self.0 {
            Rows::BuiltIn(layout) => (layout.cells)(object, now),
            Rows::Custom(columns) => custom::cells(columns, object, now),
        }
    }

    /// The row conditions of completed pods.
    fn conditions(&self, object: &Value) -> Option<Value> {
        if self.is_of(&pods::PODS) { pods::conditions(object) } else { None }
    }

    fn is_of(&self, layout: &'static Layout) -> bool {
        matches!(&self.0, Rows::BuiltIn(own) if std::ptr::eq(*own, layout))
    }
}

const META: &str = "meta.k8s.io/v1";
const INITIAL_EVENTS_END: &str = "/metadata/annotations/k8s.io~1initial-events-end";

/// The metadata of a table of one object.
pub(crate) fn list_meta_of(object: &Value) -> Value {
    json!({"resourceVersion": access::text(object, "/metadata/resourceVersion")})
}

/// An object's metadata as a `metav1.PartialObjectMetadata`.
pub(crate) fn partial_object_metadata(object: &Value) -> Value {
    let metadata = object.get("metadata").cloned().unwrap_or_else(|| json!({}));
    let mut partial = Map::new();
    partial.insert("kind".to_owned(), "PartialObjectMetadata".into());
    partial.insert("apiVersion".to_owned(), META.into());
    partial.insert("metadata".to_owned(), metadata);
    Value::Object(partial)
}

/// The metadata of a list's objects as a `metav1.PartialObjectMetadataList`.
pub(crate) fn partial_object_metadata_list<'a>(
    objects: impl IntoIterator<Item = &'a Value>,
    list_meta: Value,
) -> Value {
    let items: Vec<Value> = objects.into_iter().map(partial_object_metadata).collect();
    json!({"kind": "PartialObjectMetadataList", "apiVersion": META, "metadata": list_meta, "items": items})
}

fn layout(group: &str, resource: &str) -> &'static Layout {
    match (group, resource) {
        ("", "pods") => &pods::PODS,
        ("", "nodes") => &nodes::NODES,
        ("" | "events.k8s.io", "events") => &events::EVENTS,
        ("", "namespaces") => &plain::NAMESPACES,
        ("", "configmaps") => &plain::CONFIG_MAPS,
        ("", "secrets") => &plain::SECRETS,
        ("", "resourcequotas") => &plain::RESOURCE_QUOTAS,
        ("", "podtemplates") => &workloads::POD_TEMPLATES,
        ("", "replicationcontrollers") => &workloads::REPLICATION_CONTROLLERS,
        ("", "services") => &network::SERVICES,
        ("", "endpoints") => &network::ENDPOINTS,
        ("", "persistentvolumes") => &storage::PERSISTENT_VOLUMES,
        ("", "persistentvolumeclaims") => &storage::PERSISTENT_VOLUME_CLAIMS,
        ("apps", "controllerrevisions") => &workloads::CONTROLLER_REVISIONS,
        ("apps", "daemonsets") => &workloads::DAEMON_SETS,
        ("apps", "deployments") => &workloads::DEPLOYMENTS,
        ("apps", "replicasets") => &workloads::REPLICA_SETS,
        ("apps", "statefulsets") => &workloads::STATEFUL_SETS,
        ("autoscaling", "horizontalpodautoscalers") => &autoscaling::HORIZONTAL_POD_AUTOSCALERS,
        ("apiextensions.k8s.io", "customresourcedefinitions") => &plain::CUSTOM_RESOURCE_DEFINITIONS,
        ("batch", "cronjobs") => &batch::CRON_JOBS,
        ("batch", "jobs") => &batch::JOBS,
        ("networking.k8s.io", "ingresses") => &network::INGRESSES,
        ("networking.k8s.io", "networkpolicies") => &network::NETWORK_POLICIES,
        ("policy", "poddisruptionbudgets") => &plain::POD_DISRUPTION_BUDGETS,
        ("rbac.authorization.k8s.io", "clusterrolebindings" | "rolebindings") => &plain::ROLE_BINDINGS,
        ("storage.k8s.io", "csidrivers") => &storage::CSI_DRIVERS,
        ("storage.k8s.io", "csinodes") => &storage::CSI_NODES,
        ("storage.k8s.io", "storageclasses") => &storage::STORAGE_CLASSES,
        ("storage.k8s.io", "volumeattachments") => &storage::VOLUME_ATTACHMENTS,
        ("scheduling.k8s.io", "compositepodgroups") => &groups::COMPOSITE_POD_GROUPS,
        ("scheduling.k8s.io", "podgroups") => &groups::POD_GROUPS,
        ("scheduling.k8s.io", "priorityclasses") => &plain::PRIORITY_CLASSES,
        ("coordination.k8s.io", "leases") => &plain::LEASES,
        ("node.k8s.io", "runtimeclasses") => &plain::RUNTIME_CLASSES,
        ("discovery.k8s.io", "endpointslices") => &network::ENDPOINT_SLICES,
        ("", "serviceaccounts")
        | ("resource.k8s.io", "deviceclasses" | "resourceclaimtemplates")
        | ("scheduling.k8s.io", "workloads") => &plain::NAME_AND_AGE,
        ("resource.k8s.io", "devicetaintrules") => &plain::DEVICE_TAINT_RULES,
        ("resource.k8s.io", "resourceclaims") => &plain::RESOURCE_CLAIMS,
        ("resource.k8s.io", "resourceslices") => &plain::RESOURCE_SLICES,
        _ => &plain::DEFAULT,
    }
}
