//! Tests the model: it detects each kind of false account.

use super::*;

const PLAIN: Manner = Manner { filtered: false, resynced: false, held_up: None };

/// The notifications of a plain handler for a short history that contains everything.
fn genuine() -> (Stage, Account) {
    let setting = Setting {
        queue: QueueKind::default(),
        watch_list: WatchListSupport::Full,
        latency: 0,
        pages: None,
        resync: 30,
        first: vec![PLAIN],
        seed: 1,
        cut_short: false,
    };
    let apply = |name| Step::Apply { name, passes: true, how: How::Watched };
    let steps = vec![
        apply(0),
        apply(1),
        Step::Wait(10),
        apply(0),
        apply(0),
        apply(2),
        Step::Delete { name: 1, how: How::Watched },
        Step::Wait(40_000),
        Step::Delete { name: 0, how: How::Silently },
        Step::Fault(Fault::ForgetHistory),
        Step::Wait(40_000),
        apply(0),
        apply(0),
    ];
    let stage = in_virtual_time(play(setting, steps)).unwrap();
    let account = stage.players[0].account(&stage, true);
    (stage, account)
}

/// The position of the `n`th notification for the key.
fn nth(calls: &[TimedCall], key: &str, n: usize) -> usize {
    let of_key = calls.iter().enumerate().filter(|(_, calls)| calls.call.key() == key);
    of_key.map(|(at, _)| at).nth(n).unwrap()
}

fn change(calls: &mut [TimedCall], key: &str, n: usize, change: impl FnOnce(&mut HandlerCall)) {
    let at = nth(calls, key, n);
    change(&mut calls[at].call);
}

#[test]
fn the_model_detects_every_kind_of_false_account() {
    let (stage, account) = genuine();
    let lines: Vec<_> = account.calls.iter().map(|calls| format!("{:?}", calls.call)).collect();
    // p0: add, update, update, tombstone, add, update; p1: add, delete; p2: add.
    assert_eq!(lines.len(), 9, "{lines:#?}");
    stage.model.check(&account).unwrap();

    type Forgery = fn(&mut Vec<TimedCall>);
    let forgeries: [(&str, Forgery); 15] = [
        ("ends with", |calls| drop(calls.remove(nth(calls, "ns/p1", 1)))),
        ("ends with", |calls| drop(calls.pop())),
        ("added twice", |calls| calls.insert(1, calls[0].clone())),
        ("added twice", |calls| drop(calls.remove(nth(calls, "ns/p0", 3)))),
        ("does not follow", |calls| drop(calls.remove(nth(calls, "ns/p0", 1)))),
        ("does not follow", |calls| {
            let (one, two) = (nth(calls, "ns/p0", 1), nth(calls, "ns/p0", 2));
            calls.swap(one, two);
        }),
        ("deleted while unknown", |calls| {
            let delete = calls[nth(calls, "ns/p1", 1)].clone();
            calls.push(delete);
        }),
        ("older than an earlier state", |calls| {
            let add = calls[nth(calls, "ns/p1", 0)].clone();
            calls.insert(nth(calls, "ns/p1", 1) + 1, add);
        }),
        ("the object never had this state", |calls| {
            change(calls, "ns/p2", 0, |call| {
                *call = HandlerCall::Add { key: "ns/p2".to_owned(), version: 1000, initial: false };
            });
        }),
        ("not the object's end", |calls| {
            change(calls, "ns/p1", 1, |call| {
                *call =
                    HandlerCall::Delete { key: "ns/p1".to_owned(), version: Some(1000), tombstone: false };
            });
        }),
        ("deleted with another state", |calls| {
            change(calls, "ns/p0", 3, |call| {
                *call = HandlerCall::Delete { key: "ns/p0".to_owned(), version: Some(2), tombstone: true };
            });
        }),
        ("deleted though it lives on", |calls| {
            let HandlerCall::Add { key, version, .. } = calls[nth(calls, "ns/p2", 0)].call.clone() else {
                panic!()
            };
            let call = HandlerCall::Delete { key, version: Some(version), tombstone: true };
            calls.push(TimedCall { at: Instant::now(), call });
        }),
        ("initial objects", |calls| {
            change(calls, "ns/p1", 0, |call| {
                let HandlerCall::Add { initial, .. } = call else { panic!() };
                *initial = false;
            });
        }),
        ("initial flag after the initial objects", |calls| {
            change(calls, "ns/p2", 0, |call| {
                let HandlerCall::Add { initial, .. } = call else { panic!() };
                *initial = true;
            });
        }),
        ("unchanged update for a handler without resyncs", |calls| {
            let last = calls.last().unwrap().clone();
            let HandlerCall::Update { key, new, .. } = last.call else { panic!() };
            calls.push(TimedCall { at: last.at, call: HandlerCall::Update { key, old: new, new } });
        }),
    ];
    for (complaint, forge) in forgeries {
        let mut forged = account.clone();
        in_virtual_time(async { forge(&mut forged.calls) });
        let fault = stage.model.check(&forged).expect_err(complaint);
        assert!(fault.contains(complaint), "{fault} instead of {complaint}");
    }
}

#[test]
fn the_model_detects_a_stale_store_or_handler() {
    let (mut stage, _) = genuine();
    stage.check(true).unwrap();
    let (player, calls) = (stage.players.pop().unwrap(), 0);
    stage.gone.push((player, calls));
    assert_eq!(stage.check(true).unwrap_err(), "calls a notification after its removal");
    stage.gone.clear();
    stage.apply(3, true, How::Watched);
    assert!(stage.check(true).unwrap_err().starts_with("the store has"));
}
