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
fn nth(told: &[TimedCall], key: &str, n: usize) -> usize {
    let of_key = told.iter().enumerate().filter(|(_, told)| told.said.key() == key);
    of_key.map(|(at, _)| at).nth(n).unwrap()
}

fn change(told: &mut [TimedCall], key: &str, n: usize, change: impl FnOnce(&mut HandlerCall)) {
    let at = nth(told, key, n);
    change(&mut told[at].said);
}

#[test]
fn the_model_detects_every_kind_of_false_account() {
    let (stage, account) = genuine();
    let lines: Vec<_> = account.told.iter().map(|told| format!("{:?}", told.said)).collect();
    // p0: add, update, update, tombstone, add, update; p1: add, delete; p2: add.
    assert_eq!(lines.len(), 9, "{lines:#?}");
    stage.model.check(&account).unwrap();

    type Forgery = fn(&mut Vec<TimedCall>);
    let forgeries: [(&str, Forgery); 15] = [
        ("ends with", |told| drop(told.remove(nth(told, "ns/p1", 1)))),
        ("ends with", |told| drop(told.pop())),
        ("added twice", |told| told.insert(1, told[0].clone())),
        ("added twice", |told| drop(told.remove(nth(told, "ns/p0", 3)))),
        ("does not follow", |told| drop(told.remove(nth(told, "ns/p0", 1)))),
        ("does not follow", |told| {
            let (one, two) = (nth(told, "ns/p0", 1), nth(told, "ns/p0", 2));
            told.swap(one, two);
        }),
        ("deleted while unknown", |told| {
            let delete = told[nth(told, "ns/p1", 1)].clone();
            told.push(delete);
        }),
        ("older than an earlier state", |told| {
            let add = told[nth(told, "ns/p1", 0)].clone();
            told.insert(nth(told, "ns/p1", 1) + 1, add);
        }),
        ("the object never had this state", |told| {
            change(told, "ns/p2", 0, |said| {
                *said = HandlerCall::Add { key: "ns/p2".to_owned(), version: 1000, initial: false };
            });
        }),
        ("not the object's end", |told| {
            change(told, "ns/p1", 1, |said| {
                *said =
                    HandlerCall::Delete { key: "ns/p1".to_owned(), version: Some(1000), tombstone: false };
            });
        }),
        ("deleted with another state", |told| {
            change(told, "ns/p0", 3, |said| {
                *said = HandlerCall::Delete { key: "ns/p0".to_owned(), version: Some(2), tombstone: true };
            });
        }),
        ("deleted though it lives on", |told| {
            let HandlerCall::Add { key, version, .. } = told[nth(told, "ns/p2", 0)].said.clone() else {
                panic!()
            };
            let said = HandlerCall::Delete { key, version: Some(version), tombstone: true };
            told.push(TimedCall { at: Instant::now(), said });
        }),
        ("initial objects", |told| {
            change(told, "ns/p1", 0, |said| {
                let HandlerCall::Add { initial, .. } = said else { panic!() };
                *initial = false;
            });
        }),
        ("initial flag after the initial objects", |told| {
            change(told, "ns/p2", 0, |said| {
                let HandlerCall::Add { initial, .. } = said else { panic!() };
                *initial = true;
            });
        }),
        ("unchanged update for a handler without resyncs", |told| {
            let last = told.last().unwrap().clone();
            let HandlerCall::Update { key, new, .. } = last.said else { panic!() };
            told.push(TimedCall { at: last.at, said: HandlerCall::Update { key, old: new, new } });
        }),
    ];
    for (complaint, forge) in forgeries {
        let mut forged = account.clone();
        in_virtual_time(async { forge(&mut forged.told) });
        let fault = stage.model.check(&forged).expect_err(complaint);
        assert!(fault.contains(complaint), "{fault} instead of {complaint}");
    }
}

#[test]
fn the_model_detects_a_stale_store_or_handler() {
    let (mut stage, _) = genuine();
    stage.check(true).unwrap();
    let (player, told) = (stage.players.pop().unwrap(), 0);
    stage.gone.push((player, told));
    assert_eq!(stage.check(true).unwrap_err(), "received a notification after its removal");
    stage.gone.clear();
    stage.apply(3, true, How::Watched);
    assert!(stage.check(true).unwrap_err().starts_with("the store has"));
}
