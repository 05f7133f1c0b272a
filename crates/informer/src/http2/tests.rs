//! Against an API server on loopback, behind a proxy that can stop forwarding.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::config::{KubeConfigOptions, Kubeconfig};
use supercargo_apiserver::{ApiServer, Endpoint, Listen};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::kind::Typed;
use crate::kube_list_watch::KubeListWatch;
use crate::shared::{InformerOptions, SharedInformer};

/// Forwards connections until it freezes those that exist. They stay open.
struct Proxy {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    freeze: CancellationToken,
    _forwarding: JoinSet<()>,
}

impl Proxy {
    async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (connections, freeze) = (Arc::<AtomicUsize>::default(), CancellationToken::new());
        let (count, frozen) = (Arc::clone(&connections), freeze.clone());
        let mut forwarding = JoinSet::new();
        forwarding.spawn(async move {
            let mut both = JoinSet::new();
            while let Ok((mut near, _)) = listener.accept().await {
                // Only the first one freezes: there is another way to the server.
                let is_first = count.fetch_add(1, Ordering::Relaxed) == 0;
                let freeze = if is_first { frozen.clone() } else { CancellationToken::new() };
                let mut far = TcpStream::connect(server).await.unwrap();
                both.spawn(async move {
                    freeze.run_until_cancelled(copy_bidirectional(&mut near, &mut far)).await;
                    std::future::pending::<()>().await;
                });
            }
        });
        Self { address, connections, freeze, _forwarding: forwarding }
    }
}

async fn config(endpoint: &Endpoint) -> Config {
    let kubeconfig = Kubeconfig::from_yaml(&endpoint.kubeconfig()).unwrap();
    Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap()
}

fn config_map(name: &str) -> String {
    serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}).to_string()
}

/// Fails unless an informer notices that its connection to this server forwards nothing.
async fn is_noticed(listen: Listen, patience: Patience, read_timeout: Option<Duration>) {
    let server = ApiServer::default();
    let endpoint = server.listen(listen).await.unwrap();
    let mut config = config(&endpoint).await;
    config.read_timeout = read_timeout;
    let address = config.cluster_url.authority().unwrap().as_str().parse().unwrap();
    let proxy = Proxy::to(address).await;
    config.cluster_url =
        format!("{}://{}", config.cluster_url.scheme_str().unwrap(), proxy.address).parse().unwrap();
    let client = connect(config, patience).unwrap();

    server.load(&config_map("before")).unwrap();
    let kind = Arc::new(Typed::<ConfigMap>::new());
    let source = KubeListWatch::new(client, Arc::clone(&kind));
    let maps = SharedInformer::new(kind, source, InformerOptions::default());
    let stop = CancellationToken::new();
    let running = tokio::spawn(Arc::clone(&maps).run(stop.clone()));
    maps.synced().await;
    proxy.freeze.cancel();
    server.load(&config_map("after")).unwrap();
    // Otherwise, only the end of the watch's timeout would show it: five minutes later.
    let noticed = async {
        while maps.store().get("default/after").is_none() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(Duration::from_mins(1), noticed).await.expect("the dead connection is noticed");
    assert!(proxy.connections.load(Ordering::Relaxed) > 1);
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test]
async fn pings_notice_a_connection_that_forwards_nothing() {
    let patience = Patience { silence: Duration::from_millis(100), answer: Duration::from_millis(100) };
    is_noticed(Listen::default(), patience, None).await;
}

#[tokio::test]
async fn the_read_timeout_notices_it_over_http1() {
    // Without TLS there is no negotiation of HTTP/2.
    let plain = Listen { tls: false, ..Listen::default() };
    is_noticed(plain, Patience::default(), Some(Duration::from_millis(200))).await;
}

#[tokio::test]
async fn more_watches_than_one_connection_carries_use_another() {
    let server = ApiServer::default();
    let endpoint = server.listen(Listen::default()).await.unwrap();
    let config = config(&endpoint).await;
    let address = config.cluster_url.authority().unwrap().as_str().parse().unwrap();
    let proxy = Proxy::to(address).await;
    let mut through = config.clone();
    through.cluster_url = format!("https://{}", proxy.address).parse().unwrap();
    let client = connect(through, Patience::default()).unwrap();
    let watch = |version: u32| {
        let uri = format!("/api/v1/namespaces/n{version}/configmaps?watch=true&resourceVersion=0");
        let request = Request::get(uri).body(Body::empty()).unwrap();
        let client = client.clone();
        async move { client.send(request).await.unwrap() }
    };
    let mut watches = Vec::new();
    for n in 0..=u32::try_from(REQUESTS_PER_CONNECTION).unwrap() {
        watches.push(watch(n).await);
    }
    assert_eq!(proxy.connections.load(Ordering::Relaxed), 2);
    // Their places are free again once they end.
    watches.clear();
    for n in 0..10 {
        drop(watch(n).await);
    }
    assert_eq!(proxy.connections.load(Ordering::Relaxed), 2);
}
