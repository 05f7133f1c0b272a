//! Informers of other kinds, which plugins watch.

use std::sync::mpsc::Receiver;
use std::time::Duration;

use http::{Method, Request};
use kube::client::Body;
use kube_informers::testing::settle;
use serde_json::{Value, json};
use supercargo_apiserver::ApiServer;
use supercargo_apiserver::faults::{Fault, Matcher, Rule};
use supercargo_framework::Text;
use supercargo_framework::objects::{Body as ObjectBody, resources};
use supercargo_scheduler::{Input, Notification};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tower::util::ServiceExt as _;

use super::super::{Informers, WantedResource, kinds};
use super::cluster::Link;
use supercargo_owner::owner::{Mailbox, Message};

const WIDGETS: Text = Text::Static("widgets.v1.example.com");

async fn send(server: &ApiServer, method: Method, path: &str, object: &Value) {
    let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
    let request = request.body(Body::from(object.to_string().into_bytes())).unwrap();
    let status = server.service().oneshot(request).await.unwrap().status();
    assert!(status.is_success(), "{path}: {status}");
}

async fn serve_widgets(server: &ApiServer) {
    let names =
        json!({"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"});
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": names,
                 "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}]},
    });
    send(server, Method::POST, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &crd).await;
}

async fn make_widget(server: &ApiServer) {
    let widget =
        json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "size": 3});
    send(server, Method::POST, "/apis/example.com/v1/namespaces/default/widgets", &widget).await;
}

fn start(server: &ApiServer, link: &Link) -> (Informers, Mailbox, Receiver<Message>) {
    let (mailbox, messages) = Mailbox::new();
    let informers = Informers::new("in memory", link.client(server), &mailbox, kinds(true)).unwrap();
    informers.start();
    (informers, mailbox, messages)
}

/// The events of other kinds that the scheduler received.
fn events(messages: &Receiver<Message>) -> Vec<String> {
    let input = |message| match message {
        Message::Input(input) => match *input {
            Input::Object(Notification::Added(new)) => Some(format!("added {} {}", new.resource, new.key)),
            Input::Object(Notification::Updated { new, .. }) => {
                Some(format!("updated {} {}", new.resource, new.key))
            }
            Input::Object(Notification::Deleted(last)) => {
                Some(format!("deleted {} {}", last.resource, last.key))
            }
            _ => None,
        },
        Message::Start => Some("start".to_owned()),
        _ => None,
    };
    messages.try_iter().filter_map(input).collect()
}

#[tokio::test(start_paused = true)]
async fn only_requested_kinds_are_watched() {
    let (server, link) = (ApiServer::default(), Link::default());
    let class = json!({"metadata": {"name": "fast"}, "provisioner": "p"});
    let classes = "/apis/storage.k8s.io/v1/storageclasses";
    send(&server, Method::POST, classes, &class).await;
    let (informers, mailbox, messages) = start(&server, &link);
    let stop = CancellationToken::new();
    let wanted = [resources::STORAGE_CLASS, resources::SERVICE];
    assert_eq!(informers.watch_objects(&mailbox, &wanted, &stop).await, []);
    informers.begin_when_synced(&mailbox, &stop, &CancellationToken::new(), std::future::ready(())).await;
    // Existing objects arrive before the start message.
    assert_eq!(events(&messages), ["added storage.k8s.io/StorageClass fast", "start"]);
    let watches: Vec<_> =
        link.take_requests().into_iter().filter(|request| request.starts_with("watch")).collect();
    assert_eq!(
        watches,
        ["watch-list nodes", "watch-list pods", "watch-list services", "watch-list storageclasses"]
    );

    let service = json!({"metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}]}});
    send(&server, Method::POST, "/api/v1/namespaces/default/services", &service).await;
    send(&server, Method::DELETE, &format!("{classes}/fast"), &json!({})).await;
    settle().await;
    let mut received = events(&messages);
    received.sort();
    assert_eq!(received, ["added Service default/web", "deleted storage.k8s.io/StorageClass fast"]);
    informers.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn custom_resource_is_passed_whole_to_plugins() {
    let (server, link) = (ApiServer::default(), Link::default());
    serve_widgets(&server).await;
    make_widget(&server).await;
    let (informers, mailbox, messages) = start(&server, &link);
    let stop = CancellationToken::new();
    assert_eq!(informers.watch_objects(&mailbox, &[WIDGETS], &stop).await, []);
    informers.begin_when_synced(&mailbox, &stop, &CancellationToken::new(), std::future::ready(())).await;
    let message = messages.try_iter().next().unwrap();
    let Message::Input(input) = message else { panic!("the widget comes first") };
    let Input::Object(Notification::Added(widget)) = *input else { panic!("{input:?}") };
    assert_eq!((&widget.resource, &*widget.key), (&WIDGETS, "default/w"));
    let ObjectBody::Other(whole) = &widget.body else { panic!("{:?}", widget.body) };
    assert_eq!(whole["size"], 3);
    informers.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn unserved_kind_does_not_block_start_and_is_watched_later() {
    let (server, link) = (ApiServer::default(), Link::default());
    let (informers, mailbox, messages) = start(&server, &link);
    let stop = CancellationToken::new();
    let wanted = [WIDGETS, resources::NAMESPACE, "no-kind-at-all".into(), "example.com/Widget".into()];
    let not_served = informers.watch_objects(&mailbox, &wanted, &stop).await;
    assert_eq!(not_served.len(), 1, "{not_served:?}");
    informers.begin_when_synced(&mailbox, &stop, &CancellationToken::new(), std::future::ready(())).await;
    assert_eq!(events(&messages).last().map(String::as_str), Some("start"));

    let late = informers.watch_once_served(&mailbox, not_served);
    let come = async {
        sleep(Duration::from_mins(2)).await;
        assert_eq!(events(&messages), [""; 0]);
        serve_widgets(&server).await;
        make_widget(&server).await;
    };
    let ((), ()) = timeout(Duration::from_mins(5), async { tokio::join!(late, come) }).await.unwrap();
    sleep(Duration::from_secs(5)).await;
    assert_eq!(events(&messages), ["added widgets.v1.example.com default/w"]);
    informers.shut_down().await;
}

/// A server before 1.34, or with the group disabled, and a plugin that reads the kinds of devices.
#[tokio::test(start_paused = true)]
async fn a_server_without_devices_does_not_block_the_start() {
    let (server, link) = (ApiServer::default(), Link::default());
    let devices = [
        resources::RESOURCE_CLAIM,
        resources::RESOURCE_SLICE,
        resources::DEVICE_CLASS,
        resources::DEVICE_TAINT_RULE,
    ];
    link.hide_devices(true);
    let (informers, mailbox, messages) = start(&server, &link);
    let stop = CancellationToken::new();
    let not_served = informers.watch_objects(&mailbox, &devices, &stop).await;
    let versions: Vec<_> = not_served.iter().map(WantedResource::group_version).collect();
    assert_eq!(versions, ["resource.k8s.io/v1"; 4]);
    informers.begin_when_synced(&mailbox, &stop, &CancellationToken::new(), std::future::ready(())).await;
    assert_eq!(events(&messages), ["start"]);

    link.hide_devices(false);
    let class = json!({"metadata": {"name": "gpu"}});
    send(&server, Method::POST, "/apis/resource.k8s.io/v1/deviceclasses", &class).await;
    timeout(Duration::from_mins(5), informers.watch_once_served(&mailbox, not_served)).await.unwrap();
    for kind in &devices {
        informers.wait_for_sync(kind).await;
    }
    assert_eq!(events(&messages), ["added resource.k8s.io/DeviceClass gpu"]);
    informers.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn unlistable_kind_does_not_block_others_and_has_one_informer() {
    let (server, link) = (ApiServer::default(), Link::default());
    for verb in ["list", "watch"] {
        let services =
            Matcher { verb: verb.to_owned(), resource: "services".to_owned(), ..Matcher::default() };
        server.faults().add(Rule::new(services, Fault::Reset));
    }
    let (informers, mailbox, messages) = start(&server, &link);
    let stop = CancellationToken::new();
    let wanted = [resources::SERVICE, resources::NAMESPACE];
    assert_eq!(informers.watch_objects(&mailbox, &wanted, &stop).await, []);
    informers.wait_for_sync(&resources::NAMESPACE).await;
    assert!(timeout(Duration::from_mins(1), informers.wait_for_sync(&resources::SERVICE)).await.is_err());

    assert_eq!(informers.watch_objects(&mailbox, &wanted, &stop).await, []);
    server.faults().clear();
    informers.wait_for_sync(&resources::SERVICE).await;
    events(&messages);
    let service = json!({"metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}]}});
    send(&server, Method::POST, "/api/v1/namespaces/default/services", &service).await;
    settle().await;
    assert_eq!(events(&messages), ["added Service default/web"]);
    informers.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn failed_discovery_is_retried() {
    let (server, link) = (ApiServer::default(), Link::default());
    link.refuse(true);
    let (informers, mailbox, _messages) = start(&server, &link);
    let stop = CancellationToken::new();
    let wanted = [resources::NAMESPACE];
    let watch = informers.watch_objects(&mailbox, &wanted, &stop);
    let recover = async {
        sleep(Duration::from_secs(20)).await;
        link.refuse(false);
    };
    let (not_served, ()) = tokio::join!(watch, recover);
    assert_eq!(not_served, []);
    assert!(informers.synced(&stop).await.is_synced());

    link.refuse(true);
    stop.cancel();
    // Cancelled, so that it does not wait for a response.
    assert_eq!(informers.watch_objects(&mailbox, &wanted, &stop).await.len(), 1);
    informers.shut_down().await;
}
