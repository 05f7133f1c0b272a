//! Other kinds are watched where a plugin wants them and the server has them.

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

use super::super::{Informers, kinds};
use super::cluster::Link;
use crate::owner::{Mailbox, Message};

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
    let informers = Informers::new(link.client(server), &mailbox, kinds(true)).unwrap();
    informers.start();
    (informers, mailbox, messages)
}

/// What the scheduler was told of other kinds: what happened, and to which object.
fn told(messages: &Receiver<Message>) -> Vec<String> {
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
async fn the_kinds_that_are_wanted_are_watched_and_no_other() {
    let (server, link) = (ApiServer::default(), Link::default());
    let class = json!({"metadata": {"name": "fast"}, "provisioner": "p"});
    let classes = "/apis/storage.k8s.io/v1/storageclasses";
    send(&server, Method::POST, classes, &class).await;
    let (informers, mailbox, messages) = start(&server, &link);
    let stop = CancellationToken::new();
    let wanted = [resources::STORAGE_CLASS, resources::SERVICE];
    assert_eq!(informers.watch_objects(&mailbox, &wanted, &stop).await, []);
    informers.begin_when_synced(&mailbox, &stop, &CancellationToken::new(), std::future::ready(())).await;
    // What exists is known before the word to begin.
    assert_eq!(told(&messages), ["added storage.k8s.io/StorageClass fast", "start"]);
    let watches: Vec<_> = link.take_asked().into_iter().filter(|asked| asked.starts_with("watch")).collect();
    assert_eq!(
        watches,
        ["watch-list nodes", "watch-list pods", "watch-list services", "watch-list storageclasses"]
    );

    let service = json!({"metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}]}});
    send(&server, Method::POST, "/api/v1/namespaces/default/services", &service).await;
    send(&server, Method::DELETE, &format!("{classes}/fast"), &json!({})).await;
    settle().await;
    let mut heard = told(&messages);
    heard.sort();
    assert_eq!(heard, ["added Service default/web", "deleted storage.k8s.io/StorageClass fast"]);
    informers.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_kind_of_a_plugin_of_ones_own_is_watched_whole() {
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
async fn a_kind_that_is_not_served_holds_nothing_up_and_is_watched_once_it_is() {
    let (server, link) = (ApiServer::default(), Link::default());
    let (informers, mailbox, messages) = start(&server, &link);
    let stop = CancellationToken::new();
    let wanted =
        [WIDGETS, resources::NAMESPACE, "no-kind-at-all".into(), "resource.k8s.io/DeviceClass".into()];
    let not_served = informers.watch_objects(&mailbox, &wanted, &stop).await;
    assert_eq!(not_served.len(), 1, "{not_served:?}");
    informers.begin_when_synced(&mailbox, &stop, &CancellationToken::new(), std::future::ready(())).await;
    assert_eq!(told(&messages).last().map(String::as_str), Some("start"));

    let late = informers.watch_once_served(&mailbox, not_served);
    let come = async {
        sleep(Duration::from_mins(2)).await;
        assert_eq!(told(&messages), [""; 0]);
        serve_widgets(&server).await;
        make_widget(&server).await;
    };
    let ((), ()) = timeout(Duration::from_mins(5), async { tokio::join!(late, come) }).await.unwrap();
    sleep(Duration::from_secs(5)).await;
    assert_eq!(told(&messages), ["added widgets.v1.example.com default/w"]);
    informers.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_cannot_be_listed_holds_up_no_other_and_is_watched_once_however_often_it_is_wanted() {
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
    informers.known(&resources::NAMESPACE).await;
    assert!(timeout(Duration::from_mins(1), informers.known(&resources::SERVICE)).await.is_err());

    assert_eq!(informers.watch_objects(&mailbox, &wanted, &stop).await, []);
    server.faults().clear();
    informers.known(&resources::SERVICE).await;
    told(&messages);
    let service = json!({"metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}]}});
    send(&server, Method::POST, "/api/v1/namespaces/default/services", &service).await;
    settle().await;
    assert_eq!(told(&messages), ["added Service default/web"]);
    informers.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_cannot_say_what_it_serves_is_asked_again() {
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
    // Nobody waits for an answer any more.
    assert_eq!(informers.watch_objects(&mailbox, &wanted, &stop).await.len(), 1);
    informers.shut_down().await;
}
