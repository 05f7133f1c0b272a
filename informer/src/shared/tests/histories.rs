//! Random histories: whatever is lost, relisted, joined late or removed, what a handler is told is consistent
//! and adds up to what the server has.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Apply { name: u8, silently: bool },
    Delete { name: u8, silently: bool },
    Bookmark,
    CloseWatches,
    ResetWatch,
    FailList,
    FailWatch,
    Join,
    Leave(u8),
    Wait(u16),
}

fn step() -> impl Strategy<Value = Step> {
    let name = 0..6_u8;
    prop_oneof![
        8 => (name.clone(), prop::bool::weighted(0.2)).prop_map(|(name, silently)| Step::Apply { name, silently }),
        4 => (name, prop::bool::weighted(0.2)).prop_map(|(name, silently)| Step::Delete { name, silently }),
        1 => Just(Step::Bookmark),
        1 => Just(Step::CloseWatches),
        1 => Just(Step::ResetWatch),
        1 => Just(Step::FailList),
        1 => Just(Step::FailWatch),
        1 => Just(Step::Join),
        1 => any::<u8>().prop_map(Step::Leave),
        3 => (0..4000_u16).prop_map(Step::Wait),
    ]
}

/// Plays a history, lets the informer catch up, and checks.
async fn play(steps: Vec<Step>, support: WatchListSupport) {
    let mut rig = Rig::with(&[], InformerOptions { resync: secs(30), ..InformerOptions::default() });
    rig.source = rig.source.with_watch_list(support);
    let mut present = vec![rig.log(HandlerOptions::default()), rig.log(every(0))];
    let mut gone = Vec::new();
    let running = rig.run();
    for step in steps {
        let object = |name| pod(&format!("p{name}"));
        match step {
            Step::Apply { name, silently: false } => rig.source.apply(object(name)),
            Step::Apply { name, silently: true } => rig.source.apply_silently(object(name)),
            Step::Delete { name, silently: false } => rig.source.delete(object(name)),
            Step::Delete { name, silently: true } => rig.source.delete_silently(object(name)),
            Step::Bookmark => rig.source.bookmark(),
            Step::CloseWatches => rig.source.close_watches(),
            Step::ResetWatch => rig.source.reset_watch(),
            Step::FailList => rig.source.fail_list(refused(500, "InternalError")),
            Step::FailWatch => rig.source.fail_watch(refused(429, "TooManyRequests")),
            Step::Join => present.push(rig.log(HandlerOptions::default())),
            Step::Leave(n) if !present.is_empty() => {
                let (log, registration) = present.swap_remove(usize::from(n) % present.len());
                rig.informer.remove_event_handler(&registration);
                registration.stopped().await;
                gone.push((log.lines().len(), log));
            }
            Step::Leave(_) => {}
            Step::Wait(millis) => tokio::time::sleep(Duration::from_millis(millis.into())).await,
        }
    }
    // What was changed silently comes to light with a relist; any errors still queued cost waits first.
    tokio::time::sleep(secs(3600)).await;
    rig.source.reset_watch();
    tokio::time::sleep(secs(3600)).await;
    present.push(rig.log(HandlerOptions::default()));
    settle().await;

    let expected = rig.source.content();
    let kind = rig.source.kind();
    let stored = rig.informer.store().list().into_iter();
    let stored = stored.map(|pod| (kind.key(&pod).to_string(), kind.resource_version(&pod).to_owned()));
    assert_eq!(
        stored.collect::<std::collections::BTreeMap<_, _>>(),
        expected,
        "the store has what the server has"
    );
    for (log, registration) in &present {
        assert_eq!(log.faults(), [""; 0], "each notification follows from the one before");
        assert_eq!(log.content(), expected, "the notifications add up to the store");
        assert!(registration.has_synced() && registration.pending() == 0);
    }
    for (told, log) in &gone {
        assert_eq!(log.faults(), [""; 0]);
        assert_eq!(log.lines().len(), *told, "nothing is told after a removal");
    }
    rig.stop(running).await;
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn notifications_add_up_to_the_store(
        steps in prop::collection::vec(step(), 0..80),
        support in prop_oneof![Just(WatchListSupport::Full), Just(WatchListSupport::Refused), Just(WatchListSupport::NoEnd)],
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(play(steps, support));
    }
}
