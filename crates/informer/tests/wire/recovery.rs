//! The state of an informer after a period of damaged responses.
//!
//! Damage can be invisible: a flipped bit in a name or label yields another valid object. So
//! recovery means that the store is correct after the next list, which the test has to provoke.
//! After the damage ends, the server discards its history and closes all watches, and the next
//! watch fails with 410. Discarding the history alone would suffice in most cases, but not for a
//! version that was damaged into a future one: the server accepts a watch from there, on which
//! nothing arrives.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::stream;
use http::Request;
use http_body_util::{BodyExt, StreamBody};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::client::Body;
use kube::{Api, Client};
use kube_informers::testing::EventLog;
use kube_informers::{
    HandlerOptions, InformerOptions, Kind, KubeListWatch, ReflectorOptions, SharedInformer,
};
use parking_lot::Mutex;
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::json;
use supercargo_apiserver::ApiServer;
use supercargo_apiserver::faults::{Fault, Matcher, Rule};
use supercargo_apiserver::status::Status;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use super::damage::{Damage, Damager, config, damage, runtime};
use super::kinds::{Asking, config_maps};
use super::server::{config_map, create};

/// A change at the server while responses are damaged.
#[derive(Clone, Debug)]
enum Step {
    Put(u8),
    Delete(u8),
    Wait(u64),
    Compact,
    Cut { mid_frame: bool },
}

#[derive(Clone, Debug)]
struct Case {
    protobuf: bool,
    watch_list: bool,
    page_size: Option<u32>,
    seed: u64,
    steps: Vec<Step>,
    /// The damages of the first responses, one each.
    damages: Vec<Damage>,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (0_u8..8).prop_map(Step::Put),
        3 => (0_u8..8).prop_map(Step::Delete),
        4 => (0_u64..40).prop_map(Step::Wait),
        1 => Just(Step::Compact),
        1 => any::<bool>().prop_map(|mid_frame| Step::Cut { mid_frame }),
    ]
}

fn case() -> impl Strategy<Value = Case> {
    let options = (any::<bool>(), any::<bool>(), prop::option::of(1_u32..4), any::<u64>());
    (options, vec(step(), 1..20), vec(damage(2500), 1..16)).prop_map(
        |((protobuf, watch_list, page_size, seed), steps, damages)| Case {
            protobuf,
            watch_list,
            page_size,
            seed,
            steps,
            damages,
        },
    )
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A client whose responses are damaged in turn until the flag is set.
fn damaged(server: &ApiServer, damages: Vec<Damage>, healed: Arc<AtomicBool>) -> Client {
    let damages = Arc::new(Mutex::new(VecDeque::from(damages)));
    let service = server.service();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (service, damages, healed) = (service.clone(), Arc::clone(&damages), Arc::clone(&healed));
        async move {
            let answer = service.oneshot(request).await?;
            let damage = damages.lock().pop_front();
            let damage = damage.unwrap_or(Damage { harms: Vec::new(), chunks: vec![1000] });
            Ok::<_, supercargo_apiserver::Disconnect>(answer.map(|body| {
                let state = (body, Damager::new(damage), VecDeque::<Vec<u8>>::new());
                StreamBody::new(stream::unfold(state, move |(mut body, mut damager, mut chunks)| {
                    let healed = Arc::clone(&healed);
                    async move {
                        while chunks.is_empty() && !damager.over {
                            let frame = match body.frame().await? {
                                Ok(frame) => frame,
                                Err(error) => return Some((Err(error.into()), (body, damager, chunks))),
                            };
                            if healed.load(Ordering::Relaxed) {
                                damager.relent();
                            }
                            chunks.extend(
                                frame.into_data().map(|data| damager.damage(&data)).unwrap_or_default(),
                            );
                        }
                        let frame = Body::from(chunks.pop_front()?).frame().await?;
                        Some((frame.map_err(BoxError::from), (body, damager, chunks)))
                    }
                }))
            }))
        }
    });
    Client::new(service, "default")
}

async fn take(step: Step, server: &ApiServer, maps: &Api<ConfigMap>, count: usize) {
    match step {
        Step::Put(n) => {
            let name = format!("map-{n}");
            if maps.get_opt(&name).await.unwrap().is_none() {
                create(maps, config_map(&name, "first")).await;
            } else {
                let patch = Patch::Merge(json!({"data": {"key": format!("{count} \"{{}}[]\\ ä")}}));
                maps.patch(&name, &PatchParams::default(), &patch).await.unwrap();
            }
        }
        Step::Delete(n) => drop(maps.delete(&format!("map-{n}"), &DeleteParams::default()).await),
        Step::Wait(seconds) => tokio::time::sleep(Duration::from_secs(seconds)).await,
        Step::Compact => server.compact(),
        Step::Cut { mid_frame } => server.cut_watches(Matcher::default(), mid_frame),
    }
}

/// The server's content by key.
async fn truth(maps: &Api<ConfigMap>) -> BTreeMap<String, ConfigMap> {
    let list = maps.list(&ListParams::default()).await.unwrap();
    list.items
        .into_iter()
        .map(|map| (format!("default/{}", map.metadata.name.as_deref().unwrap()), map))
        .collect()
}

fn held<K: Kind<Object = ConfigMap>>(informer: &SharedInformer<K>) -> BTreeMap<String, ConfigMap> {
    let all = informer.store().list();
    all.iter().map(|map| (informer.kind().key(map).to_string(), ConfigMap::clone(map))).collect()
}

async fn recover(case: Case) -> Result<(), TestCaseError> {
    let server = ApiServer::default();
    let maps = Api::<ConfigMap>::default_namespaced(Client::new(server.service(), "default"));
    for name in ["map-0", "map-1", "map-2"] {
        create(&maps, config_map(name, "before")).await;
    }
    let healed = Arc::new(AtomicBool::new(false));
    let client = damaged(&server, case.damages, Arc::clone(&healed));
    let kind =
        Arc::new(if case.protobuf { Asking::as_is(config_maps()) } else { Asking::json(config_maps()) });
    let mut reflector = ReflectorOptions::default().watch_list(case.watch_list).seed(case.seed);
    reflector.page_size = case.page_size;
    let source = KubeListWatch::new(client, Arc::clone(&kind));
    let informer =
        SharedInformer::new(Arc::clone(&kind), source, InformerOptions::default().reflector(reflector));
    let log = EventLog::new(kind);
    informer.add_event_handler(log.clone(), HandlerOptions::named("log")).unwrap();
    let stop = CancellationToken::new();
    let running = tokio::spawn(Arc::clone(&informer).run(stop.clone()));
    for (count, step) in case.steps.into_iter().enumerate() {
        take(step, &server, &maps, count).await;
    }

    healed.store(true, Ordering::Relaxed);
    let watches = Matcher { verb: "watch".into(), resource: "configmaps".into(), ..Matcher::default() };
    let expired = Fault::Answer(Status::expired("too old resource version"));
    let rule = server.faults().add(Rule::new(watches, expired).times(1));
    server.compact();
    server.cut_watches(Matcher::default(), false);
    // Twice the longest wait.
    tokio::time::sleep(Duration::from_mins(3)).await;
    prop_assert_eq!(server.faults().remaining(rule), 0, "has not watched again");
    prop_assert!(informer.has_synced());
    prop_assert_eq!(held(&informer), truth(&maps).await);

    // And continues from there.
    take(Step::Put(9), &server, &maps, 0).await;
    take(Step::Delete(0), &server, &maps, 0).await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    let truth = truth(&maps).await;
    prop_assert_eq!(&held(&informer), &truth);
    let versions: BTreeMap<_, _> =
        truth.into_iter().map(|(key, map)| (key, map.metadata.resource_version.unwrap())).collect();
    prop_assert_eq!(log.content(), versions);
    stop.cancel();
    prop_assert!(running.await.is_ok(), "panicked");
    Ok(())
}

proptest! {
    #![proptest_config(config(100))]

    /// Nothing on the wire makes an informer panic or hang. After the next list, its store and the
    /// notifications of its handlers match the server.
    #[test]
    fn an_informer_recovers_from_damaged_answers(case in case()) {
        runtime().block_on(async {
            tokio::time::timeout(Duration::from_hours(24), recover(case)).await.expect("an end")
        })?;
    }
}
