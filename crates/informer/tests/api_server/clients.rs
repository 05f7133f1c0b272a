//! Clients: from a kubeconfig to typed, dynamic and discovery requests.

use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{Api, ListParams, ObjectList, PostParams};
use kube::core::{DynamicObject, GroupVersionKind};
use kube::discovery::{Discovery, Scope};
use kube::{Client, ResourceExt};
use kube_informers::{
    ClientError, DiscoveryError, discover_kind, discover_resource, informer_client, informer_config,
};
use serde_json::json;
use supercargo_apiserver::faults::{Fault, Matcher, Rule};
use supercargo_apiserver::status::Status;
use supercargo_apiserver::{ApiServer, Listen};

use super::pod;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

/// A file that is removed after the test.
struct Kubeconfig(PathBuf);

impl Kubeconfig {
    fn write(name: &str, text: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        std::fs::write(&path, text).unwrap();
        Self(path)
    }
}

impl Drop for Kubeconfig {
    fn drop(&mut self) {
        // Failure to remove it is harmless.
        let _ = std::fs::remove_file(&self.0);
    }
}

#[tokio::test]
async fn kubeconfig_provides_server_ca_token_and_namespace() {
    let config = informer_config(Some(&fixture("kubeconfig"))).await.unwrap();
    assert_eq!(config.cluster_url, "https://shop.example:6443");
    assert_eq!(config.default_namespace, "till");
    assert_eq!(serde_json::to_value(&config.auth_info).unwrap()["token"], "fixture-token");
    // The path of the certificate authority is relative to the kubeconfig; the file has one
    // certificate.
    assert_eq!(config.root_cert.map(|certificates| certificates.len()), Some(1));
    assert!(!config.default_retry, "retries below an informer hide failures");
    informer_client(Some(&fixture("kubeconfig"))).await.unwrap();
}

#[tokio::test]
async fn errors_name_an_invalid_kubeconfig_without_its_content() {
    let path = fixture("none");
    let missing = informer_config(Some(&path)).await.unwrap_err();
    assert!(matches!(missing, ClientError::Kubeconfig { .. }));
    let expected = format!("kubeconfig {}: No such file or directory (os error 2)", path.display());
    assert_eq!(missing.to_string(), expected);
    let malformed = informer_client(Some(&fixture("malformed-kubeconfig"))).await.err().unwrap();
    let text = malformed.to_string();
    assert!(text.contains("fixtures/malformed-kubeconfig:") && text.ends_with("not a kubeconfig"), "{text}");
    assert!(!text.contains("fixture-token"), "{text}");
    let contextless = informer_config(Some(&fixture("contextless-kubeconfig"))).await.unwrap_err();
    let text = contextless.to_string();
    assert!(text.contains("fixtures/contextless-kubeconfig: ") && text.contains("closed"), "{text}");
    // A folder is not a kubeconfig either.
    let folder = informer_config(Some(&fixture(""))).await.unwrap_err();
    assert!(folder.to_string().contains("tests/fixtures"), "{folder}");
}

#[tokio::test]
async fn without_kubeconfig_the_service_account_is_used() {
    for path in [None, Some(Path::new(""))] {
        let found = informer_config(path).await;
        if std::env::var_os("KUBERNETES_SERVICE_HOST").is_none() {
            let error = found.unwrap_err();
            assert!(matches!(error, ClientError::NotInCluster(_)), "{error}");
            assert!(error.to_string().ends_with("; give the path of a kubeconfig"), "{error}");
        } else {
            assert!(!matches!(found, Err(ClientError::Kubeconfig { .. } | ClientError::Malformed { .. })));
        }
    }
}

/// Uses typed and dynamic clients, and discovery.
async fn use_clients(client: Client) {
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let made: Pod = serde_json::from_value(pod("a", &json!({"app": "web"}))).unwrap();
    pods.create(&PostParams::default(), &made).await.unwrap();
    let typed = pods.list(&ListParams::default().labels("app=web")).await.unwrap();
    assert_eq!(typed.items[0].spec.as_ref().unwrap().containers[0].image.as_deref(), Some("i"));
    let conflict = pods.create(&PostParams::default(), &made).await.unwrap_err();
    assert!(matches!(conflict, kube::Error::Api(status) if status.is_already_exists()));
    assert!(matches!(pods.get("b").await, Err(kube::Error::Api(status)) if status.is_not_found()));

    let found = discover_kind(&client, &GroupVersionKind::gvk("", "v1", "Pod")).await.unwrap();
    let dynamic: Api<DynamicObject> = Api::all_with(client.clone(), &found.api_resource());
    let objects: ObjectList<DynamicObject> = dynamic.list(&ListParams::default()).await.unwrap();
    assert_eq!(objects.items[0].name_any(), "a");
    assert_eq!(objects.items[0].data["spec"]["containers"][0]["name"], "c");
    let dynamic: Api<DynamicObject> = Api::default_namespaced_with(client.clone(), &found.api_resource());
    let object = dynamic.get("a").await.unwrap();
    assert_eq!(object.types.map(|types| types.kind).as_deref(), Some("Pod"));

    let served = Discovery::new(client).run_aggregated().await.unwrap();
    let (deployments, can) = served.resolve_gvk(&GroupVersionKind::gvk("apps", "v1", "Deployment")).unwrap();
    assert_eq!((deployments.plural.as_str(), can.scope), ("deployments", Scope::Namespaced));
}

#[tokio::test]
async fn typed_dynamic_and_discovery_clients_work_on_both_transports() {
    use_clients(Client::new(ApiServer::default().service(), "default")).await;

    let server = ApiServer::default();
    let endpoint = server.listen(Listen::default()).await.unwrap();
    let kubeconfig = Kubeconfig::write("kubeconfig-for-clients", &endpoint.kubeconfig());
    let client = informer_client(Some(&kubeconfig.0)).await.unwrap();
    use_clients(client.clone()).await;
    // A rejection reaches the caller immediately, as informers require.
    let too_many = Fault::Answer(Status::too_many_requests("later", 1));
    server.faults().add(Rule::new(Matcher::default(), too_many).times(1));
    let namespaces: Api<Namespace> = Api::all(client);
    let refused = namespaces.list(&ListParams::default()).await.unwrap_err();
    assert!(matches!(refused, kube::Error::Api(status) if status.code == 429));
    assert!(!namespaces.list(&ListParams::default()).await.unwrap().items.is_empty());

    // Requests without the token are rejected, so the client used the kubeconfig's.
    let stranger =
        Kubeconfig::write("kubeconfig-of-a-stranger", &endpoint.kubeconfig().replace(endpoint.token(), "no"));
    let client = informer_client(Some(&stranger.0)).await.unwrap();
    let refused = Api::<Namespace>::all(client).list(&ListParams::default()).await.unwrap_err();
    assert!(matches!(refused, kube::Error::Api(status) if status.code == 401));
}

#[tokio::test(start_paused = true)]
async fn discovery_resolves_plural_scope_and_verbs_of_a_kind() {
    let server = ApiServer::default();
    let client = Client::new(server.service(), "default");
    for (group, version, kind, plural, namespaced) in [
        ("", "v1", "Pod", "pods", true),
        ("", "v1", "Node", "nodes", false),
        ("", "v1", "Endpoints", "endpoints", true),
        ("storage.k8s.io", "v1", "StorageClass", "storageclasses", false),
        ("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", true),
    ] {
        let by_kind = discover_kind(&client, &GroupVersionKind::gvk(group, version, kind)).await.unwrap();
        let by_name = discover_resource(&client, group, version, plural).await.unwrap();
        assert_eq!(by_kind, by_name);
        assert_eq!((&*by_kind.resource.resource, by_kind.resource.namespaced), (plural, namespaced));
        assert_eq!((by_kind.kind.as_str(), by_kind.api_resource().plural.as_str()), (kind, plural));
        let verbs = ["get", "list", "watch", "create", "update", "patch", "delete"];
        assert!(verbs.iter().all(|verb| by_kind.supports(verb)) && !by_kind.supports("dance"), "{by_kind:?}");
    }
    let unknown = |group, version, kind| {
        let kind = GroupVersionKind::gvk(group, version, kind);
        let client = client.clone();
        async move { discover_kind(&client, &kind).await.unwrap_err() }
    };
    let no_kind = unknown("apps", "v1", "Widget").await;
    assert!(matches!(no_kind, DiscoveryError::UnknownKind { .. }));
    assert_eq!(no_kind.to_string(), "the server has no kind Widget in apps/v1");
    let no_group = unknown("example.dev", "v1", "Widget").await;
    assert_eq!(no_group.to_string(), "the server has no kind Widget in example.dev/v1");
    let no_version = unknown("", "v7", "Pod").await;
    assert_eq!(no_version.to_string(), "the server has no kind Pod in v7");
    // A subresource is not a resource.
    let part = discover_resource(&client, "", "v1", "pods/status").await.unwrap_err();
    assert_eq!(part.to_string(), "the server has no resource pods/status in v1");
    server.faults().add(Rule::new(Matcher::default(), Fault::Answer(Status::timeout("time ran out"))));
    server.faults().add(Rule::new(Matcher::default(), Fault::Reset));
    let unreachable = discover_kind(&client, &GroupVersionKind::gvk("apps", "v1", "Deployment")).await;
    let error = unreachable.unwrap_err();
    assert!(matches!(error, DiscoveryError::Request { .. }), "{error}");
    assert!(error.to_string().starts_with("discovery of apps/v1 failed: "), "{error}");
}
