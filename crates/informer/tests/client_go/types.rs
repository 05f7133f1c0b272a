//! Objects of another type than requested.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube_informers::testing::settle;
use kube_informers::{
    ContentType, Dynamic, InformerOptions, Kind, KubeListWatch, ReflectorOptions, SharedInformer, Typed,
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::server::{Answer, Requests, Verb, bookmark, client, content, list, pod};

fn widgets() -> Dynamic {
    Dynamic::namespaced(ApiResource::from_gvk(&GroupVersionKind::gvk("example.dev", "v1", "Widget")))
}

fn object(api_version: &str, kind: &str, name: &str, version: &str) -> Value {
    json!({"apiVersion": api_version, "kind": kind,
        "metadata": {"name": name, "namespace": "ns", "resourceVersion": version}})
}

fn widget(name: &str, version: &str) -> Value {
    object("example.dev/v1", "Widget", name, version)
}

fn table(version: &str) -> Value {
    json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {"resourceVersion": version},
        "columnDefinitions": [], "rows": [{"cells": []}]})
}

/// A running informer.
fn start<K: Kind>(
    kind: K,
    watch_list: bool,
    answer: impl Fn(Verb, usize) -> Answer + Clone + Send + 'static,
) -> (Arc<SharedInformer<K>>, Requests) {
    let (client, requests) = client(answer);
    let kind = Arc::new(kind);
    let reflector = ReflectorOptions::default().watch_list(watch_list).seed(1);
    let options = InformerOptions::default().reflector(reflector);
    let informer = SharedInformer::new(Arc::clone(&kind), KubeListWatch::new(client, kind), options);
    tokio::spawn(Arc::clone(&informer).run(CancellationToken::new()));
    (informer, requests)
}

fn versions(informer: &SharedInformer<Dynamic>) -> Vec<String> {
    let name = |widget: &DynamicObject| {
        let metadata = &widget.metadata;
        format!("{}@{}", metadata.name.as_deref().unwrap(), metadata.resource_version.as_deref().unwrap())
    };
    let mut versions: Vec<_> = informer.store().list().iter().map(|widget| name(widget)).collect();
    versions.sort_unstable();
    versions
}

#[tokio::test(start_paused = true)]
async fn an_event_of_another_type_is_ignored() {
    let (informer, requests) = start(widgets(), false, |verb, _| match verb {
        Verb::List => Answer::json(&list("10", &[widget("a", "1"), widget("b", "2")])),
        _ => Answer::events(&[
            ("MODIFIED", object("example.dev/v1", "Gadget", "a", "11")),
            ("DELETED", object("example.dev/v2", "Widget", "b", "12")),
            ("ADDED", table("13")),
            ("MODIFIED", widget("a", "14")),
            ("DELETED", object("v1", "Pod", "a", "15")),
        ])
        .and_stay_open(),
    });
    settle().await;
    assert_eq!(versions(&informer), ["a@14", "b@2"]);
    assert_eq!(informer.undecodable(), 4);
    assert_eq!(informer.last_sync_resource_version(), "14");
    assert_eq!(requests.lock().len(), 2, "the watch goes on");
}

#[tokio::test(start_paused = true)]
async fn an_initial_event_of_another_type_is_skipped() {
    let (informer, _) = start(widgets(), true, |_, _| {
        Answer::events(&[
            ("ADDED", widget("a", "1")),
            ("ADDED", object("example.dev/v1", "Gadget", "c", "2")),
            ("DELETED", object("example.dev/v1", "Gadget", "a", "3")),
            ("BOOKMARK", bookmark("5", true)),
        ])
        .and_stay_open()
    });
    settle().await;
    assert!(informer.has_synced());
    assert_eq!((versions(&informer), informer.undecodable()), (vec!["a@1".to_owned()], 2));
}

#[tokio::test(start_paused = true)]
async fn static_kinds_reject_objects_of_another_type() {
    let (informer, _) = start(Typed::<Pod>::new(), false, |verb, _| match verb {
        Verb::List => Answer::json(&list("10", &[pod("a", "1"), object("v1", "Node", "n", "3")])),
        _ => Answer::events(&[
            ("DELETED", object("v1", "Node", "a", "11")),
            ("ADDED", table("12")),
            ("ADDED", pod("b", "13")),
        ])
        .and_stay_open(),
    });
    settle().await;
    assert_eq!(content(&informer.store()), ["a@1", "b@13"]);
    assert_eq!((informer.undecodable(), informer.last_sync_resource_version()), (3, "13".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_table_response_is_rejected_and_keeps_the_store() {
    let (client, _) = client(|verb, before| match (verb, before) {
        (Verb::List, 0) => Answer::json(&list("10", &[pod("a", "1")])),
        (Verb::List, _) => Answer::json(&table("11")),
        _ => Answer::events(&[]),
    });
    let kind = Arc::new(Typed::<Pod>::new());
    let source = KubeListWatch::new(client, Arc::clone(&kind)).watch_list(false);
    let informer = SharedInformer::new(kind, source, InformerOptions::default());
    let errors = Arc::<Mutex<Vec<String>>>::default();
    let log = Arc::clone(&errors);
    let on_error = move |_: &_, error: &kube_informers::ReflectorError| log.lock().push(error.to_string());
    informer.set_watch_error_handler(Arc::new(on_error)).unwrap();
    tokio::spawn(Arc::clone(&informer).run(CancellationToken::new()));
    tokio::time::sleep(Duration::from_secs(2)).await;
    let errors = errors.lock().clone();
    assert!(errors.len() == 1 && errors[0].contains("is not a list"), "{errors:?}");
    assert_eq!(content(&informer.store()), ["a@1"]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_with_only_undecodable_events_is_very_short() {
    let (informer, requests) = start(Typed::<Pod>::new(), false, |verb, _| match verb {
        Verb::List => Answer::json(&list("10", &[pod("a", "1")])),
        _ => Answer::events(&[("ADDED", object("v1", "Node", "a", "11")), ("ADDED", table("12"))]),
    });
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(requests.lock().len() <= 12, "{} requests", requests.lock().len());
    assert_eq!(content(&informer.store()), ["a@1"]);
}

#[test]
fn type_errors_name_expected_and_actual_type() {
    let decode = |kind: &str| {
        let object = object("example.dev/v1", kind, "a", "1").to_string();
        widgets().decode(ContentType::Json, object.as_bytes())
    };
    let error = decode("Gadget").unwrap_err();
    assert_eq!(error.to_string(), "expected example.dev/v1 Widget, found example.dev/v1 Gadget");
    assert_eq!(decode("Widget").unwrap().types.unwrap().kind, "Widget");
    let error = Typed::<Pod>::new().decode(ContentType::Json, table("1").to_string().as_bytes()).unwrap_err();
    assert_eq!(error.to_string(), "expected v1 Pod, found meta.k8s.io/v1 Table");
}
