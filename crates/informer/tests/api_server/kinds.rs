//! Every kind that a scheduler reads: its path, its scope, and the decoding of its objects.

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{
    ConfigMap, Endpoints, LimitRange, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod,
    ReplicationController, ResourceQuota, Secret, Service, ServiceAccount,
};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment};
use kube::Resource;
use kube_informers::{FactoryBuilder, GenericInformer, Kind, SharedInformerFactory, Typed};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::Cluster;

/// A kind: the path of its collection, and the content of a small object beside its metadata.
struct Row {
    path: &'static str,
    namespaced: bool,
    object: Value,
    know: fn(FactoryBuilder) -> FactoryBuilder,
    /// Whether the store has what was sent.
    check: fn(&GenericInformer, &SharedInformerFactory, &Value),
}

fn row<T>(path: &'static str, namespaced: bool, rest: Value) -> Row
where
    T: Resource<DynamicType = ()> + DeserializeOwned + Serialize + Send + Sync + 'static,
{
    let namespace = if namespaced { json!("default") } else { Value::Null };
    let mut object = json!({"apiVersion": T::api_version(&()), "kind": T::kind(&()),
        "metadata": {"name": "made-for-this", "namespace": namespace}});
    let rest = rest.as_object().expect("the rest is an object").clone();
    object.as_object_mut().expect("an object").extend(rest);
    Row { path, namespaced, object, know: FactoryBuilder::known_type::<T>, check: check::<T> }
}

fn check<T>(generic: &GenericInformer, factory: &SharedInformerFactory, sent: &Value)
where
    T: Resource<DynamicType = ()> + DeserializeOwned + Serialize + Send + Sync + 'static,
{
    let informer = factory.informer(Typed::<T>::new());
    let same = generic.downcast::<Typed<T>>().unwrap();
    assert!(std::sync::Arc::ptr_eq(&informer, &same));
    let key = if informer.kind().gvr().namespaced { "default/made-for-this" } else { "made-for-this" };
    let object = informer.lister().get(key).unwrap_or_else(|| panic!("no {key} of {}", T::kind(&())));
    let read = serde_json::to_value(&*object).unwrap();
    contains(&read, sent, &T::kind(&()));
    assert_eq!(informer.undecodable(), 0);
}

/// Whether `read` contains everything that was sent; the server adds defaults.
fn contains(read: &Value, sent: &Value, place: &str) {
    match sent {
        Value::Object(members) => {
            for (name, member) in members.iter().filter(|(_, member)| !member.is_null()) {
                contains(&read[name], member, &format!("{place}.{name}"));
            }
        }
        Value::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                contains(&read[at], item, &format!("{place}[{at}]"));
            }
        }
        _ => assert_eq!(read, sent, "{place}"),
    }
}

#[rustfmt::skip] // One line for each kind.
fn rows() -> Vec<Row> {
    let template = json!({"metadata": {"labels": {"app": "a"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let selector = json!({"matchLabels": {"app": "a"}});
    let workload = json!({"spec": {"selector": selector, "template": template}});
    let role = json!({"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]});
    let binding = |kind: &str| json!({"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": "r"},
        "subjects": [{"kind": "ServiceAccount", "name": "s", "namespace": "default"}]});
    let capacity = json!({"storage": "1Gi"});
    vec![
        row::<Pod>("/api/v1/pods", true, json!({"spec": {"containers": [{"name": "c", "image": "i"}]}})),
        row::<Node>("/api/v1/nodes", false, json!({"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}})),
        row::<Namespace>("/api/v1/namespaces", false, json!({"spec": {"finalizers": ["kubernetes"]}})),
        row::<PersistentVolumeClaim>("/api/v1/persistentvolumeclaims", true, json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": capacity}}})),
        row::<PersistentVolume>("/api/v1/persistentvolumes", false, json!({"spec": {"accessModes": ["ReadWriteOnce"], "capacity": capacity, "hostPath": {"path": "/p"}}})),
        row::<ServiceAccount>("/api/v1/serviceaccounts", true, json!({"automountServiceAccountToken": false})),
        row::<LimitRange>("/api/v1/limitranges", true, json!({"spec": {"limits": [{"type": "Container", "max": {"cpu": "2"}}]}})),
        row::<ResourceQuota>("/api/v1/resourcequotas", true, json!({"spec": {"hard": {"pods": "3"}}})),
        row::<ReplicationController>("/api/v1/replicationcontrollers", true, json!({"spec": {"replicas": 2, "selector": {"app": "a"}, "template": template}})),
        row::<Service>("/api/v1/services", true, json!({"spec": {"selector": {"app": "a"}, "ports": [{"port": 80}]}})),
        row::<Endpoints>("/api/v1/endpoints", true, json!({"subsets": [{"ports": [{"port": 80}]}]})),
        row::<ConfigMap>("/api/v1/configmaps", true, json!({"data": {"k": "v"}})),
        row::<Secret>("/api/v1/secrets", true, json!({"data": {"k": "dg=="}})),
        row::<DaemonSet>("/apis/apps/v1/daemonsets", true, workload.clone()),
        row::<Deployment>("/apis/apps/v1/deployments", true, workload.clone()),
        row::<ReplicaSet>("/apis/apps/v1/replicasets", true, workload.clone()),
        row::<StatefulSet>("/apis/apps/v1/statefulsets", true, workload),
        row::<Job>("/apis/batch/v1/jobs", true, json!({"spec": {"completions": 2, "template": template}})),
        row::<CronJob>("/apis/batch/v1/cronjobs", true, json!({"spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": template}}}})),
        row::<Lease>("/apis/coordination.k8s.io/v1/leases", true, json!({"spec": {"holderIdentity": "h"}})),
        row::<PodDisruptionBudget>("/apis/policy/v1/poddisruptionbudgets", true, json!({"spec": {"minAvailable": 1, "selector": selector}})),
        row::<Role>("/apis/rbac.authorization.k8s.io/v1/roles", true, role.clone()),
        row::<ClusterRole>("/apis/rbac.authorization.k8s.io/v1/clusterroles", false, role),
        row::<RoleBinding>("/apis/rbac.authorization.k8s.io/v1/rolebindings", true, binding("Role")),
        row::<ClusterRoleBinding>("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", false, binding("ClusterRole")),
        row::<DeviceClass>("/apis/resource.k8s.io/v1/deviceclasses", false, json!({"spec": {"selectors": [{"cel": {"expression": "true"}}]}})),
        row::<ResourceClaim>("/apis/resource.k8s.io/v1/resourceclaims", true, json!({"spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "d"}}]}}})),
        row::<ResourceClaimTemplate>("/apis/resource.k8s.io/v1/resourceclaimtemplates", true, json!({"spec": {"spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "d"}}]}}}})),
        row::<ResourceSlice>("/apis/resource.k8s.io/v1/resourceslices", false, json!({"spec": {"driver": "d.example", "nodeName": "n", "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}}})),
        row::<PriorityClass>("/apis/scheduling.k8s.io/v1/priorityclasses", false, json!({"value": 1000})),
        row::<CSIDriver>("/apis/storage.k8s.io/v1/csidrivers", false, json!({"spec": {"attachRequired": false}})),
        row::<CSINode>("/apis/storage.k8s.io/v1/csinodes", false, json!({"spec": {"drivers": [{"name": "d", "nodeID": "n", "allocatable": {"count": 3}}]}})),
        row::<CSIStorageCapacity>("/apis/storage.k8s.io/v1/csistoragecapacities", true, json!({"storageClassName": "s", "capacity": "1Gi"})),
        row::<StorageClass>("/apis/storage.k8s.io/v1/storageclasses", false, json!({"provisioner": "p", "volumeBindingMode": "WaitForFirstConsumer"})),
        row::<VolumeAttachment>("/apis/storage.k8s.io/v1/volumeattachments", false, json!({"spec": {"attacher": "a", "nodeName": "n", "source": {"persistentVolumeName": "v"}}})),
    ]
}

#[tokio::test(start_paused = true)]
async fn all_kinds_of_a_scheduler_have_path_scope_and_decoder() {
    let rows = rows();
    let cluster = Cluster::new();
    let mut settings = SharedInformerFactory::builder(cluster.client.clone());
    for row in &rows {
        cluster.server.load(&row.object.to_string()).unwrap_or_else(|error| panic!("{}: {error}", row.path));
        settings = (row.know)(settings);
    }
    let factory = settings.build();
    let resources: Vec<_> = rows
        .iter()
        .map(|row| {
            let parts: Vec<&str> = row.path.trim_start_matches('/').split('/').collect();
            let (group, version, resource) = match *parts.as_slice() {
                ["api", version, resource] => ("", version, resource),
                ["apis", group, version, resource] => (group, version, resource),
                _ => panic!("{} is no path", row.path),
            };
            let make = if row.namespaced {
                kube_informers::GroupVersionResource::namespaced
            } else {
                kube_informers::GroupVersionResource::cluster
            };
            make(group.to_owned(), version.to_owned(), resource.to_owned())
        })
        .collect();
    let informers: Vec<GenericInformer> =
        resources.iter().map(|resource| factory.for_resource(resource).unwrap()).collect();
    let stop = CancellationToken::new();
    factory.start(&stop);
    factory.wait_for_cache_sync(&stop).await.into_result().unwrap();
    for (row, informer) in rows.iter().zip(&informers) {
        let scope = informer.lister().namespace("default").list().len();
        assert_eq!(scope > 0, row.namespaced, "{}", row.path);
        (row.check)(informer, &factory, &row.object);
    }
    let mut asked: Vec<String> =
        cluster.beginnings().iter().map(|uri| uri.split('?').next().unwrap_or_default().to_owned()).collect();
    asked.sort();
    let mut expected: Vec<&str> = rows.iter().map(|row| row.path).collect();
    expected.sort_unstable();
    assert_eq!(asked, expected);
    factory.shutdown().await;
}
