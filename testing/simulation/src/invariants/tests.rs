//! Checks that no deliberate fault of the program shows alone.

use serde_json::json;
use tokio::runtime::Builder;
use tokio::time::advance;

use super::*;

/// Runs a test in true time that the test advances.
pub(super) fn in_true_time(test: impl AsyncFnOnce(&mut InvariantChecker)) {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let checker = InvariantChecker::new(Trace::new(false));
        let checker = Arc::into_inner(checker).expect("nothing else holds it");
        test(&mut checker.into_inner()).await;
    });
}

pub(super) fn sender(process: &str, sent: u64) -> Sender {
    Sender { machine: 0, process: process.into(), sent: Duration::from_secs(sent) }
}

fn renew(checker: &mut InvariantChecker, process: &str) {
    checker.see_lease(&sender(process, 0), &format!("{process}_1"));
}

/// Whether a write that arrives now may have been sent at this second.
fn may_send(checker: &mut InvariantChecker, process: &str, sent: u64) -> bool {
    let before = checker.failures.len();
    checker.check_lease(&sender(process, sent), &Method::PATCH, "/a");
    checker.failures.len() == before
}

fn bound(name: &str) -> BoundPod {
    BoundPod { metadata: Named { name: name.into(), uid: name.into() }, ..BoundPod::default() }
}

#[test]
fn a_write_is_sent_within_the_lease() {
    in_true_time(async |checker| {
        assert!(!may_send(checker, "a", 0));
        renew(checker, "a");
        assert!(may_send(checker, "a", 0));
        advance(Duration::from_secs(20)).await;
        assert!(may_send(checker, "a", 15));
        assert!(!may_send(checker, "a", 16));
    });
}

#[test]
fn a_later_renewal_does_not_help_a_write() {
    in_true_time(async |checker| {
        renew(checker, "a");
        advance(Duration::from_secs(20)).await;
        renew(checker, "a");
        assert!(!may_send(checker, "a", 16));
        assert!(may_send(checker, "a", 20));
    });
}

#[test]
fn a_write_does_not_arrive_long_after_the_lease() {
    in_true_time(async |checker| {
        renew(checker, "a");
        advance(Duration::from_secs(5)).await;
        // The lease is released and taken several times: the first end counts.
        checker.see_lease(&sender("a", 5), "");
        renew(checker, "b");
        advance(Duration::from_secs(5)).await;
        renew(checker, "c");
        advance(LATEST - Duration::from_secs(5)).await;
        assert!(may_send(checker, "a", 4));
        advance(Duration::from_secs(1)).await;
        assert!(!may_send(checker, "a", 4));
    });
}

#[test]
fn a_lease_that_nobody_takes_ends_by_time() {
    in_true_time(async |checker| {
        renew(checker, "a");
        advance(LEASE + LATEST).await;
        assert!(may_send(checker, "a", 14));
        advance(Duration::from_secs(1)).await;
        assert!(!may_send(checker, "a", 14));
    });
}

#[test]
fn no_pod_is_bound_twice() {
    in_true_time(async |checker| {
        checker.see_binding(&sender("a", 0), &bound("one"));
        checker.see_binding(&sender("a", 0), &bound("other"));
        assert!(checker.failures.is_empty());
        checker.see_binding(&sender("b", 0), &bound("one"));
        assert_eq!(checker.failures, ["pod one bound twice: by a at 0ns, and by b"]);
    });
}

#[test]
fn nothing_is_demanded_shortly_after_a_restore() {
    in_true_time(async |checker| {
        checker.restored();
        assert!(may_send(checker, "a", 0));
        advance(FORGIVEN).await;
        assert!(!may_send(checker, "a", 121));
    });
}

#[test]
fn pods_of_incomplete_gangs_and_trees_may_wait_silently() {
    let gang = |name: &str, least: u64, tree: Value| {
        json!({
            "metadata": { "name": name },
            "spec": {
                "schedulingPolicy": { "gang": { "minCount": least } },
                "parentCompositePodGroupName": tree,
            },
        })
    };
    let pod = |gang: &str| json!({ "spec": { "schedulingGroup": { "podGroupName": gang } } });
    let tree = json!({
        "metadata": { "name": "tree" },
        "spec": { "schedulingPolicy": { "gang": { "minGroupCount": 2 } } },
    });
    let gangs =
        [gang("alone", 2, Value::Null), gang("left", 1, json!("tree")), gang("right", 1, json!("tree"))];
    let trees = [tree];
    let waits = |name: &str, pods: &[&str], trees: &[Value]| {
        is_incomplete(&pod(name), &gangs, trees, &pods.iter().map(|name| pod(name)).collect::<Vec<_>>())
    };
    assert!(!is_incomplete(&json!({ "spec": {} }), &gangs, &trees, &[]));
    assert!(waits("gone", &["gone"], &trees));
    assert!(waits("alone", &["alone"], &trees));
    assert!(!waits("alone", &["alone", "alone"], &trees));
    assert!(waits("left", &["left"], &trees));
    assert!(!waits("left", &["left", "right"], &trees));
    assert!(waits("left", &["left", "right"], &[]));
}
