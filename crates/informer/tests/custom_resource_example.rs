//! Runs the custom resource example on an API server in memory.

#[allow(dead_code, missing_docs, reason = "a program whose entry point is unused here")]
#[path = "../examples/custom_resource.rs"]
mod custom_resource;

use std::sync::Arc;

use custom_resource::{Widget, WidgetSpec};
use kube::Client;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube_informers::testing::settle;
use parking_lot::Mutex;
use serde_json::json;
use supercargo_apiserver::ApiServer;
use tokio_util::sync::CancellationToken;

const DEFINITION: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.dev}
spec:
  group: example.dev
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
";

#[tokio::test(start_paused = true)]
async fn custom_resource_example_prints_changes_of_its_own_type() {
    let server = ApiServer::default();
    server.load(DEFINITION).unwrap();
    let client = Client::new(server.service(), "default");
    let widgets = Api::<Widget>::default_namespaced(client.clone());
    let wheel = Widget::new("wheel", WidgetSpec { size: 3 });
    widgets.create(&PostParams::default(), &wheel).await.unwrap();
    let lines = Arc::<Mutex<Vec<String>>>::default();
    let screen = Arc::clone(&lines);
    let stop = CancellationToken::new();
    let watching = custom_resource::watch(client, &stop, move |line| screen.lock().push(line));
    let changing = async {
        settle().await;
        let larger = Patch::Merge(json!({"spec": {"size": 4}}));
        widgets.patch("wheel", &PatchParams::default(), &larger).await.unwrap();
        widgets.delete("wheel", &DeleteParams::default()).await.unwrap();
        settle().await;
        stop.cancel();
    };
    let (watched, ()) = tokio::join!(watching, changing);
    watched.unwrap();
    let expected = ["wheel has size 3", "1 widgets", "wheel grows from 3 to 4", "wheel is gone"];
    assert_eq!(*lines.lock(), expected);
}
