use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kube::core::ObjectMeta;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::kind::{DecodeError, Typed};
use crate::list_watch::WatchEvent;
use crate::reflector::ReflectorOptions;
use crate::shared::{InformerOptions, SharedInformer};
use crate::testing::{FakeSource, Script, Scripted, refused, settle};

type Pods = Typed<Pod>;

fn pod(name: &str, version: &str) -> Pod {
    let metadata = ObjectMeta {
        name: Some(name.to_owned()),
        namespace: Some("ns".to_owned()),
        resource_version: Some(version.to_owned()),
        ..ObjectMeta::default()
    };
    Pod { metadata, ..Pod::default() }
}

fn page(pods: &[(&str, &str)]) -> Page<Pod> {
    Page {
        items: pods.iter().map(|(name, version)| pod(name, version)).collect(),
        undecodable: Vec::new(),
        resource_version: "12".to_owned(),
        continue_token: None,
    }
}

fn broken(name: &str) -> Undecodable {
    let error = DecodeError::Invalid("broken".into());
    Undecodable { key: Some(ObjectKey::new(Some("ns"), name)), resource_version: None, error }
}

/// A watch-list of a@1 and b@2, up to the version.
fn watched(
    version: &'static str,
    on_list: impl Fn(usize, &ListOptions) -> Result<Page<Pod>, ListWatchError> + Send + Sync + 'static,
) -> Scripted<Pod> {
    Scripted::new(on_list, move |_, _| {
        let end = WatchEvent::Bookmark { resource_version: version.to_owned(), initial_events_end: true };
        Ok(Script::stay_after(vec![WatchEvent::Added(pod("a", "1")), WatchEvent::Added(pod("b", "2")), end]))
    })
}

fn start(source: &Scripted<Pod>) -> (Arc<SharedInformer<Pods>>, JoinHandle<()>) {
    let reflector = ReflectorOptions { detect_inconsistency: true, ..ReflectorOptions::default() };
    let options = InformerOptions { reflector, ..InformerOptions::default() };
    let informer = SharedInformer::new(Arc::new(Pods::new()), source.clone(), options);
    let running = tokio::spawn(Arc::clone(&informer).run(CancellationToken::new()));
    (informer, running)
}

#[tokio::test(start_paused = true)]
async fn initial_events_are_compared_with_a_list_at_their_version() {
    let source = watched("12", |_, _| Ok(page(&[("b", "2"), ("a", "1")])));
    let (informer, running) = start(&source);
    settle().await;
    assert_eq!(source.summaries(), ["watch-list rv=", "list rv=12"]);
    let list = &source.requests()[1].options;
    assert_eq!((list.version_match, list.limit), (Some(VersionMatch::Exact), None));
    assert!(informer.has_synced() && !running.is_finished());
}

#[tokio::test(start_paused = true)]
async fn a_difference_panics_with_a_readable_report() {
    let source = watched("12", |_, _| Ok(page(&[("b", "3"), ("c", "4")])));
    let (informer, running) = start(&source);
    let panic = running.await.unwrap_err().into_panic();
    let account = "3 v1/pods differ from the list at version \"12\"\n- ns/a at 1 is not in the list\n\
                   ~ ns/b at 2 is listed at 3\n+ ns/c at 4 is only in the list";
    assert_eq!(panic.downcast_ref::<String>().map(String::as_str), Some(account));
    assert!(!informer.has_synced() && informer.is_stopped());
    assert_eq!(source.opened_and_released(), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn the_detector_repeats_a_failed_list_unless_expired() {
    let source = watched("12", |n, _| match n {
        0 | 1 => Err(refused(500, "InternalError")),
        _ => Ok(page(&[("a", "1"), ("b", "2")])),
    });
    let (informer, _running) = start(&source);
    informer.synced().await;
    assert_eq!(source.summaries(), ["watch-list rv=", "list rv=12", "list rv=12", "list rv=12"]);
    assert_eq!(source.requests()[3].at.as_secs(), 2);

    let source = watched("12", |_, _| Err(refused(410, "Expired")));
    let (informer, _running) = start(&source);
    informer.synced().await;
    assert_eq!(source.summaries(), ["watch-list rv=", "list rv=12"]);
}

#[tokio::test(start_paused = true)]
async fn the_detector_skips_comparison_without_a_version() {
    for version in ["", "0"] {
        let source = watched(version, |_, _| unreachable!("no list can be asked for"));
        let (informer, _running) = start(&source);
        informer.synced().await;
        assert_eq!(source.requests().len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn undecodable_objects_equal_any_version() {
    let source = watched("12", |_, _| Ok(Page { undecodable: vec![broken("b")], ..page(&[("a", "1")]) }));
    let (informer, _running) = start(&source);
    settle().await;
    assert!(informer.has_synced());
    let count = check(&Pods::new(), &source, &informer.store(), Against::StoreVersion).await.unwrap();
    assert_eq!(count, 1);
}

#[tokio::test(start_paused = true)]
async fn a_running_store_can_be_checked_at_its_own_version() {
    let source = watched("12", |_, _| Ok(page(&[("a", "1"), ("b", "2")])));
    let (informer, _running) = start(&source);
    informer.synced().await;
    let store = informer.store();
    assert_eq!(check(&Pods::new(), &source, &store, Against::StoreVersion).await.unwrap(), 2);
    let list = source.requests().pop().unwrap().options;
    assert_eq!((list.resource_version.as_str(), list.version_match), ("12", Some(VersionMatch::Exact)));

    let refused =
        Scripted::new(|_, _| Err(refused(410, "Expired")), |_, _| unreachable!("nothing is watched"));
    let error = check(&Pods::new(), &refused, &store, Against::StoreVersion).await.unwrap_err();
    assert!(matches!(error, ConsistencyError::List(error) if error.is_expired()));
}

#[tokio::test(start_paused = true)]
async fn a_quiet_store_can_be_checked_against_the_most_recent_state() {
    let source = FakeSource::<Pods>::typed();
    for name in ["a", "b"] {
        source.apply(pod(name, ""));
    }
    let informer = SharedInformer::new(source.kind(), source.clone(), InformerOptions::default());
    tokio::spawn(Arc::clone(&informer).run(CancellationToken::new()));
    settle().await;
    let (kind, store) = (Pods::new(), informer.store());
    assert_eq!(check(&kind, &source, &store, Against::MostRecent).await.unwrap(), 2);
    source.delete_silently(pod("a", ""));
    source.apply_silently(pod("c", ""));
    let error = check(&kind, &source, &store, Against::MostRecent).await.unwrap_err();
    let ConsistencyError::Inconsistent(difference) = error else { panic!("{error}") };
    assert_eq!(difference.keys().map(ObjectKey::as_str).collect::<Vec<_>>(), ["ns/a", "ns/c"]);
}

#[tokio::test(start_paused = true)]
async fn the_detector_compares_contents_after_the_transform() {
    let source = watched("12", |_, _| Ok(page(&[("a", "1"), ("b", "2")])));
    let informer = SharedInformer::new(Arc::new(Pods::new()), source.clone(), InformerOptions::default());
    let label = |pod: &mut Pod| pod.metadata.labels = Some([("x".to_owned(), "y".to_owned())].into());
    informer.set_transform(label).unwrap();
    tokio::spawn(Arc::clone(&informer).run(CancellationToken::new()));
    settle().await;
    let (kind, store) = (Pods::new(), informer.store());
    let transform: Transform<Pod> = Arc::new(label);
    let same = check_objects(&kind, &source, &store, Against::StoreVersion, Some(&transform)).await;
    assert_eq!(same.unwrap(), 2);
    let error = check_objects(&kind, &source, &store, Against::StoreVersion, None).await.unwrap_err();
    let expected = "2 v1/pods differ from the list at version \"12\"\n! ns/a at 1 is listed with different content\n\
                    ! ns/b at 2 is listed with different content";
    assert_eq!(error.to_string(), expected);
    // An object at another version has other content.
    let newer = watched("12", |_, _| Ok(page(&[("a", "1"), ("b", "3")])));
    let error =
        check_objects(&kind, &newer, &store, Against::StoreVersion, Some(&transform)).await.unwrap_err();
    assert!(error.to_string().ends_with("\n~ ns/b at 2 is listed at 3"), "{error}");
}

#[test]
fn a_report_of_many_differences_is_truncated() {
    let differences = (0..MAX_SHOWN + 3)
        .map(|n| (ObjectKey::new(None, &format!("{n:02}")), Difference::OnlyHeld("1".to_owned())))
        .collect();
    let long = Inconsistency { resource: "v1/nodes".to_owned(), version: "5".to_owned(), differences };
    let text = long.to_string();
    assert!(text.starts_with("23 v1/nodes differ") && text.ends_with("\nand 3 more"), "{text}");
    assert_eq!(text.lines().count(), 1 + MAX_SHOWN + 1);
}
