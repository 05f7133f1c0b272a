//! Changes as a stream.

use futures::{FutureExt, StreamExt};

use super::*;
use crate::event_stream::EventStream;
use crate::notification::Notification;

fn line(change: &Notification<Pod>) -> String {
    let name = |pod: &Pod| pod.metadata.name.clone().unwrap();
    match change {
        Notification::Add { object, is_in_initial_list } => {
            format!("add {} {is_in_initial_list}", name(object))
        }
        Notification::Update { old, new } => format!("update {} {}", name(new), Arc::ptr_eq(old, new)),
        Notification::Delete(deleted) => format!("delete {}", name(deleted.object().unwrap())),
    }
}

/// The lines that can be read without waiting.
fn read(stream: &mut EventStream<Pod>) -> Vec<String> {
    std::iter::from_fn(|| stream.next().now_or_never().flatten()).map(|change| line(&change)).collect()
}

#[tokio::test(start_paused = true)]
async fn a_stream_matches_a_handler_and_syncs_with_its_reader() {
    let rig = Rig::with(&["a", "b"], InformerOptions { resync: secs(10), ..InformerOptions::default() });
    let mut stream = rig.informer.add_event_stream(HandlerOptions::named("reader")).unwrap();
    assert_eq!(stream.registration().name(), "reader");
    let running = rig.run();
    rig.informer.synced().await;
    assert_eq!(stream.registration().pending(), 2);
    assert_eq!(line(&stream.next().await.unwrap()), "add a true");
    assert_eq!(line(&stream.next().await.unwrap()), "add b true");
    assert!(!stream.registration().has_synced(), "the reader may still process it");
    assert_eq!(read(&mut stream), [""; 0]);
    assert!(stream.registration().has_synced());
    rig.source.apply(pod("b"));
    rig.source.delete(pod("a"));
    settle().await;
    assert_eq!(read(&mut stream), ["update b false", "delete a"]);
    tokio::time::sleep(secs(10)).await;
    assert_eq!((stream.registration().pending(), stream.registration().processed()), (1, 4));
    let late = rig.informer.add_event_stream(HandlerOptions::default()).unwrap();
    assert_eq!(late.map(|change| line(&change)).next().await.unwrap(), "add b true");
    // Changes read from the server remain readable after the end.
    rig.stop(running).await;
    assert!(!stream.registration().is_stopped());
    assert_eq!(stream.map(|change| line(&change)).collect::<Vec<_>>().await, ["update b true"]);
    assert!(rig.informer.add_event_stream(HandlerOptions::default()).is_err());
}

#[tokio::test(start_paused = true)]
async fn a_stream_ends_at_once_when_it_is_removed() {
    let rig = Rig::new(&["a", "b"]);
    let mut stream = rig.informer.add_event_stream(HandlerOptions::default()).unwrap();
    let registration = stream.registration().clone();
    let _running = rig.run();
    stream.next().await.unwrap();
    rig.informer.remove_event_handler(&registration);
    rig.source.apply(pod("c"));
    settle().await;
    assert!(stream.next().await.is_none() && stream.next().await.is_none());
    assert!(registration.is_stopped() && registration.pending() == 0);
    // A waiting reader is woken.
    let mut stream = rig.informer.add_event_stream(HandlerOptions::default()).unwrap();
    let registration = stream.registration().clone();
    let reader = tokio::spawn(async move { while stream.next().await.is_some() {} });
    settle().await;
    assert!(registration.has_synced() && !reader.is_finished());
    rig.informer.shut_down_event_handler(&registration).await;
    reader.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_dropped_stream_is_forgotten() {
    let rig = Rig::new(&["a"]);
    let stream = rig.informer.add_event_stream(HandlerOptions::default()).unwrap();
    let registration = stream.registration().clone();
    let running = rig.run();
    settle().await;
    assert_eq!((registration.pending(), rig.informer.registrations().len()), (1, 1));
    drop(stream);
    registration.stopped().await;
    rig.source.apply(pod("b"));
    settle().await;
    assert_eq!((registration.pending(), rig.informer.registrations().len()), (0, 0));
    rig.stop(running).await;
}

#[tokio::test(start_paused = true)]
async fn dropped_streams_do_not_accumulate() {
    let rig = Rig::new(&["a"]);
    let before = rig.informer.add_event_stream(HandlerOptions::default()).unwrap();
    drop(before);
    assert_eq!(rig.informer.registrations().len(), 0);
    let running = rig.run();
    settle().await;
    for _ in 0..100 {
        rig.informer.add_event_stream(HandlerOptions::default()).unwrap().next().await.unwrap();
    }
    assert_eq!(rig.informer.metrics().handlers.len(), 0);
    rig.stop(running).await;
}

#[test]
fn a_notification_calls_its_handler_method() {
    let kind = Arc::new(Pods::new());
    let mut log = EventLog::new(Arc::clone(&kind));
    let version = |version: &str| {
        let mut pod = pod("a");
        pod.metadata.resource_version = Some(version.to_owned());
        Arc::new(pod)
    };
    let changes = [
        Notification::Add { object: version("1"), is_in_initial_list: true },
        Notification::Update { old: version("1"), new: version("2") },
        Notification::Delete(crate::Deleted::Known(version("3"))),
    ];
    for change in &changes {
        change.clone().deliver_to(&mut log);
    }
    assert_eq!(log.lines(), ["add ns/a 1 initial", "update ns/a 1>2", "delete ns/a 3"]);
    let versions = changes.iter().map(|change| kind_version(&kind, change));
    assert_eq!(versions.collect::<Vec<_>>(), ["1", "2", "3"]);
}

fn kind_version(kind: &Pods, change: &Notification<Pod>) -> String {
    crate::Kind::resource_version(kind, change.object().unwrap()).to_owned()
}
