//! The whole content on every change.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;

use super::*;
use crate::testing::{FakeSource, settle};

fn pod(name: &str) -> Pod {
    let mut pod = Pod::default();
    pod.metadata.name = Some(name.to_owned());
    pod
}

fn show(pods: &[Arc<Pod>]) -> String {
    let meta = pods.iter().map(|pod| &pod.metadata);
    let mut pods: Vec<_> = meta
        .map(|meta| {
            format!("{}@{}", meta.name.as_deref().unwrap(), meta.resource_version.as_deref().unwrap())
        })
        .collect();
    pods.sort();
    pods.join(" ")
}

#[tokio::test(start_paused = true)]
async fn undelta_store_pushes_whole_content_per_change_or_list() {
    let source = FakeSource::typed();
    source.apply(pod("a"));
    source.apply(pod("b"));
    let states = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&states);
    let push = move |pods: Vec<Arc<Pod>>| seen.lock().push(show(&pods));
    let undelta = UndeltaStore::new(source.kind(), source.clone(), ReflectorOptions::default(), push);
    let stop = CancellationToken::new();
    let running = tokio::spawn(Arc::clone(&undelta).run(stop.clone()));
    assert!(!undelta.has_synced());
    undelta.synced().await;
    source.apply(pod("c"));
    source.apply(pod("a"));
    source.delete(pod("b"));
    source.bookmark();
    settle().await;
    assert_eq!(undelta.store().list().len(), 2);
    assert_eq!(undelta.last_sync_resource_version(), "6");
    let expected = ["a@2 b@3", "a@2 b@3 c@4", "a@5 b@3 c@4", "a@5 c@4"];
    assert_eq!(std::mem::take(&mut *states.lock()), expected);
    // Several changes at once.
    source.delete_silently(pod("a"));
    source.apply_silently(pod("d"));
    source.apply_silently(pod("c"));
    source.reset_watch();
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(*states.lock(), ["c@9 d@8"]);
    assert_eq!(undelta.last_error(), None);
    stop.cancel();
    running.await.unwrap();
    assert_eq!(source.watchers(), 0);
    Arc::clone(&undelta).run(CancellationToken::new()).await;
}
