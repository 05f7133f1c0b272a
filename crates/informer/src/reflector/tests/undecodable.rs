//! Objects that cannot be decoded.

use super::*;

fn broken(name: &str, version: &str) -> Undecodable {
    Undecodable {
        key: Some(ObjectKey::new(Some("ns"), name)),
        resource_version: Some(version.to_owned()),
        error: DecodeError::Invalid("broken".into()),
    }
}

#[tokio::test(start_paused = true)]
async fn an_undecodable_object_is_counted_and_keeps_its_state() {
    let list = |_, _: &_| Ok(Page { undecodable: vec![broken("b", "2")], ..page("10", &[("a", "1")]) });
    let watch = |_, _: &_| {
        let modified = WatchEvent::Undecodable { deleted: false, item: broken("a", "11") };
        let deleted = WatchEvent::Undecodable { deleted: true, item: broken("b", "12") };
        Ok(Script::stay_after(vec![modified, deleted, WatchEvent::Added(pod("c", "13"))]))
    };
    let source = Scripted::new(list, no_watch_list(watch));
    let rig = Rig::start(source);
    settle().await;
    assert_eq!(rig.status.undecodable(), 3);
    assert_eq!(rig.stop().await, ["=10[a@1] keep b", "-b@?", "+c@13"]);
}

#[tokio::test(start_paused = true)]
async fn undecodable_initial_events_keep_state_unless_deleted() {
    let watch = |_, _: &_| {
        let item = |deleted, name| WatchEvent::Undecodable { deleted, item: broken(name, "2") };
        let events = vec![
            item(false, "a"),
            item(false, "b"),
            WatchEvent::Added(pod("c", "3")),
            item(true, "b"),
            bookmark("5", true),
        ];
        Ok(Script::stay_after(events))
    };
    let source = Scripted::new(|_, _| unreachable!("no list is needed"), watch);
    let rig = Rig::start(source);
    settle().await;
    assert_eq!(rig.stop().await, ["=5[c@3] keep a"]);
}

fn of_another_type(name: &str) -> Undecodable {
    let error = DecodeError::UnexpectedType { expected: "v1 Pod".to_owned(), actual: "v1 Node".to_owned() };
    Undecodable { error, ..broken(name, "2") }
}

#[tokio::test(start_paused = true)]
async fn a_list_item_of_another_type_protects_no_stored_object() {
    let list = |_, _: &_| {
        let undecodable = vec![of_another_type("b"), broken("c", "3")];
        Ok(Page { undecodable, ..page("10", &[("a", "1")]) })
    };
    let source = Scripted::new(list, no_watch_list(|_, _| Ok(Script::stay_after(vec![]))));
    let rig = Rig::start(source);
    settle().await;
    assert_eq!(rig.status.undecodable(), 2);
    assert_eq!(rig.stop().await, ["=10[a@1] keep c"]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_list_item_of_another_type_affects_no_object() {
    let watch = |_, _: &_| {
        let other = |deleted| WatchEvent::Undecodable { deleted, item: of_another_type("a") };
        let events = vec![WatchEvent::Added(pod("a", "1")), other(false), other(true), bookmark("5", true)];
        Ok(Script::stay_after(events))
    };
    let source = Scripted::new(|_, _| unreachable!("no list is needed"), watch);
    let rig = Rig::start(source);
    settle().await;
    assert_eq!(rig.status.undecodable(), 2);
    assert_eq!(rig.stop().await, ["=5[a@1]"]);
}
