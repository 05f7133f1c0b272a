//! Informers of whole objects and of metadata, for resources known only at run time.

use std::sync::Arc;

use kube::core::{GroupVersionKind, Resource};
use kube_informers::{
    DiscoveryError, Dynamic, DynamicInformerFactory, FactoryBuilder, FromDiscovery, GroupVersionResource,
    Kind, Metadata, MetadataInformerFactory, NAMESPACE_INDEX, SharedInformer, SharedInformerFactory,
    SyncResult,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{Cluster, log_of};

/// The definitions of widgets, which are namespaced, and plants, which are not.
fn definitions() -> String {
    let definition = |scope, plural, singular, kind| {
        json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.example.dev")},
            "spec": {
                "group": "example.dev",
                "scope": scope,
                "names": {"plural": plural, "singular": singular, "kind": kind, "listKind": format!("{kind}List")},
                "versions": [{
                    "name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
                }],
            },
        })
    };
    let widgets = definition("Namespaced", "widgets", "widget", "Widget");
    let plants = definition("Cluster", "plants", "plant", "Plant");
    format!("{widgets}\n---\n{plants}")
}

fn path(namespace: &str) -> String {
    format!("/apis/example.dev/v1/namespaces/{namespace}/widgets")
}

fn widget(name: &str, label: &str) -> Value {
    json!({"apiVersion": "example.dev/v1", "kind": "Widget",
        "metadata": {"name": name, "labels": {"size": label}}, "spec": {"size": 3}})
}

fn cluster() -> Cluster {
    let cluster = Cluster::new();
    cluster.load(&definitions());
    for namespace in ["shop", "other"] {
        cluster.load(&format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {namespace}}}}}"));
    }
    cluster
}

/// A factory of either form.
trait Factory: Sized {
    type Kind: FromDiscovery<Object: Resource>;
    fn new(settings: FactoryBuilder) -> Self;
    async fn widgets(&self) -> Arc<SharedInformer<Self::Kind>>;
    async fn run(&self, stop: &CancellationToken) -> SyncResult;
    async fn end(&self);
}

macro_rules! factory {
    ($factory:ty, $kind:ty) => {
        impl Factory for $factory {
            type Kind = $kind;

            fn new(settings: FactoryBuilder) -> Self {
                <$factory>::new(settings)
            }

            async fn widgets(&self) -> Arc<SharedInformer<$kind>> {
                self.for_resource("example.dev", "v1", "widgets").await.unwrap()
            }

            async fn run(&self, stop: &CancellationToken) -> SyncResult {
                self.start(stop);
                self.wait_for_handlers_sync(stop).await
            }

            async fn end(&self) {
                self.shutdown().await;
            }
        }
    };
}

factory!(DynamicInformerFactory, Dynamic);
factory!(MetadataInformerFactory, Metadata);

/// What an informer with these settings sees of an initial object, an addition, a change and a
/// deletion in the namespace `shop`, while the same happens in another one.
async fn history<F: Factory>(
    settings: impl FnOnce(FactoryBuilder) -> FactoryBuilder,
) -> (Vec<String>, Cluster) {
    let cluster = cluster();
    for namespace in ["shop", "other"] {
        cluster.send("POST", &path(namespace), &widget("first", "small")).await;
    }
    let factory = F::new(settings(SharedInformerFactory::builder(cluster.client.clone())));
    let widgets = factory.widgets().await;
    let log = log_of(&widgets);
    let stop = CancellationToken::new();
    factory.run(&stop).await.into_result().unwrap();
    log.lock().sort();
    for namespace in ["shop", "other"] {
        let path = path(namespace);
        cluster.send("POST", &path, &widget("second", "large")).await;
        let larger = json!({"spec": {"size": 4}});
        cluster.send("PATCH", &format!("{path}/second"), &larger).await;
        cluster.send("DELETE", &format!("{path}/second"), &json!({})).await;
    }
    let left = widgets.lister().list();
    assert!(left.iter().all(|object| object.meta().name.as_deref() == Some("first")));
    factory.end().await;
    let log = log.lock().clone();
    (log, cluster)
}

/// Tests all settings that limit what informers see.
async fn limits<F: Factory>() {
    let of_one = |namespace: &str| -> Vec<String> {
        let happened = ["add", "update", "delete"].map(|what| format!("{what} {namespace}/second"));
        [vec![format!("add {namespace}/first initially")], happened.to_vec()].concat()
    };
    for watch_list in [true, false] {
        let (seen, cluster) = history::<F>(|settings| settings.watch_list(watch_list)).await;
        let initially = ["add other/first initially", "add shop/first initially"].map(str::to_owned);
        assert_eq!(seen, [&initially[..], &of_one("shop")[1..], &of_one("other")[1..]].concat());
        let begun: Vec<String> =
            cluster.beginnings().into_iter().filter(|uri| uri.contains("widgets")).collect();
        assert_eq!(begun.len(), 1, "{begun:?}");
        assert_eq!(begun[0].contains("sendInitialEvents"), watch_list, "{begun:?}");

        let settings = |settings: FactoryBuilder| settings.watch_list(watch_list).namespace("shop");
        let (seen, cluster) = history::<F>(settings).await;
        assert_eq!(seen, of_one("shop"));
        let watches = cluster.watches();
        assert!(watches.iter().all(|uri| uri.starts_with(&path("shop"))), "{watches:?}");

        let (seen, _) = history::<F>(|settings| {
            settings
                .watch_list(watch_list)
                .tweak(|selectors| selectors.labels = Some("size=large".to_owned()))
                .namespace("other")
        })
        .await;
        assert_eq!(seen, of_one("other")[1..]);
        let (seen, _) = history::<F>(|settings| {
            settings
                .watch_list(watch_list)
                .tweak(|selectors| selectors.fields = Some("metadata.name=first".to_owned()))
        })
        .await;
        assert_eq!(seen, initially);
    }
}

#[tokio::test(start_paused = true)]
async fn dynamic_informers_respect_factory_limits() {
    limits::<DynamicInformerFactory>().await;
}

#[tokio::test(start_paused = true)]
async fn metadata_informers_respect_factory_limits() {
    limits::<MetadataInformerFactory>().await;
}

#[tokio::test(start_paused = true)]
async fn a_resource_has_one_informer_by_plural_or_kind() {
    let cluster = cluster();
    cluster.send("POST", &path("shop"), &widget("w", "small")).await;
    let factory = DynamicInformerFactory::new(SharedInformerFactory::builder(cluster.client.clone()));
    // The kinds that two plugins watch. A scheduler without custom resources has no factory.
    let interests =
        ["Widget", "Plant", "Widget"].map(|kind| GroupVersionKind::gvk("example.dev", "v1", kind));
    let register = async |factory: Option<&DynamicInformerFactory>| {
        let Some(factory) = factory else { return Vec::new() };
        let mut informers = Vec::new();
        for kind in &interests {
            informers.push(factory.for_kind(kind).await.unwrap());
        }
        informers
    };
    assert!(register(None).await.is_empty());
    let informers = register(Some(&factory)).await;
    let widgets = factory.for_resource("example.dev", "v1", "widgets").await.unwrap();
    assert!(Arc::ptr_eq(&informers[0], &informers[2]) && Arc::ptr_eq(&informers[0], &widgets));
    assert_eq!(cluster.beginnings().len(), 2, "each kind was asked for once");
    let plants = &informers[1];
    assert_eq!(plants.kind().gvr(), &GroupVersionResource::cluster("example.dev", "v1", "plants"));
    assert!(widgets.store().has_index(NAMESPACE_INDEX) && !plants.store().has_index(NAMESPACE_INDEX));
    // The underlying factory returns the same informer.
    let same = factory.informers().informer_for(Arc::clone(widgets.kind()), |_| unreachable!("made already"));
    assert!(Arc::ptr_eq(&same, &widgets));

    let stop = CancellationToken::new();
    factory.start(&stop);
    factory.wait_for_cache_sync(&stop).await.into_result().unwrap();
    let watches = cluster.watches();
    assert_eq!(watches.len(), 2, "{watches:?}");
    let object = widgets.lister().namespace("shop").get("w").unwrap();
    assert_eq!(object.data["spec"]["size"], 3);
    assert_eq!(object.types.as_ref().map(|types| types.kind.as_str()), Some("Widget"));
    assert_eq!(widgets.lister().select(&"size=small".parse().unwrap()).len(), 1);
    factory.shutdown().await;
    assert!(widgets.is_stopped() && plants.is_stopped());
}

#[tokio::test(start_paused = true)]
async fn metadata_informers_keep_only_metadata() {
    let cluster = cluster();
    cluster.send("POST", &path("shop"), &widget("w", "small")).await;
    let factory = MetadataInformerFactory::new(SharedInformerFactory::builder(cluster.client.clone()));
    let widgets = factory.for_kind(&GroupVersionKind::gvk("example.dev", "v1", "Widget")).await.unwrap();
    let stop = CancellationToken::new();
    factory.start(&stop);
    factory.wait_for_cache_sync(&stop).await.into_result().unwrap();
    let object = widgets.lister().get("shop/w").unwrap();
    assert_eq!(object.meta().labels.as_ref().unwrap()["size"], "small");
    assert_eq!(widgets.kind().key(&object).as_str(), "shop/w");
    let json = serde_json::to_value(&*object).unwrap();
    assert!(json["metadata"]["uid"].is_string() && json.get("spec").is_none(), "{json}");
    factory.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn unknown_and_unwatchable_resources_are_errors() {
    let cluster = Cluster::new();
    let factory = DynamicInformerFactory::new(SharedInformerFactory::builder(cluster.client.clone()));
    let unknown = factory.for_resource("example.dev", "v1", "widgets").await.err().unwrap();
    assert_eq!(unknown.to_string(), "the server has no resource widgets in example.dev/v1");
    let review = GroupVersionKind::gvk("authorization.k8s.io", "v1", "SubjectAccessReview");
    let error = factory.for_kind(&review).await.err().unwrap();
    assert!(matches!(error, DiscoveryError::NotWatchable(_)), "{error}");
    // Once the server serves it, discovery finds it.
    cluster.load(&definitions());
    assert!(factory.for_resource("example.dev", "v1", "widgets").await.is_ok());
}
