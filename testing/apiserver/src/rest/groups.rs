//! Does the work of upstream's pod group protection controller at once: a deleted group goes when
//! none of its pods is active.

use serde_json::Value;

use super::writer::Writer;
use crate::json::text_at;
use crate::kinds::Kind;
use crate::object::{StoredObject, key};
use crate::store::ResourceKey;
use crate::strategy::groups::PROTECTION;

const GROUP: &str = "scheduling.k8s.io";
const RESOURCE: &str = "podgroups";

impl Writer<'_> {
    /// Releases the group of a pod that is removed or has ended, if it waits for this pod.
    pub(super) fn release_group(&mut self, kind: &Kind, pod: &StoredObject) {
        if !(self.pod_groups && self.collects && is_pod(kind)) {
            return;
        }
        let value = pod.value(kind);
        let name = group_of(&value);
        if !name.is_empty() {
            self.finish_group(&(GROUP.into(), RESOURCE.into()), &key(&pod.namespace, name));
        }
    }

    /// Releases a deleted group that has no active pod.
    pub(super) fn finish_group(&mut self, table: &ResourceKey, key: &str) {
        if (&*table.0, &*table.1) != (GROUP, RESOURCE) {
            return;
        }
        let Some(group) = self.state.store.table(table).and_then(|table| table.get(key)) else { return };
        if group.deleting && !self.has_active_pods(&group.namespace, &group.name) {
            self.drop_finalizer(table, key, PROTECTION);
        }
    }

    fn has_active_pods(&self, namespace: &str, group: &str) -> bool {
        let Ok(pods) = self.state.registry.find("", "v1", "pods") else { return false };
        let Some(table) = self.state.store.table(&pods.resource_key()) else { return false };
        // Few pods name the group, and parsing takes longer than searching.
        let names = |pod: &StoredObject| str::from_utf8(pod.body()).is_ok_and(|text| text.contains(group));
        let is_of = |pod: &StoredObject| names(pod) && group_of(&pod.value(pods)) == group;
        table.range(namespace, None).any(|pod| !is_over(pods, pod) && is_of(pod))
    }
}

/// Whether this is a pod that has ended.
pub(super) fn is_over(kind: &Kind, object: &StoredObject) -> bool {
    is_pod(kind) && matches!(object.field("status.phase"), "Failed" | "Succeeded")
}

fn is_pod(kind: &Kind) -> bool {
    kind.resource == "pods" && !kind.custom
}

fn group_of(pod: &Value) -> &str {
    text_at(pod, "/spec/schedulingGroup/podGroupName")
}
