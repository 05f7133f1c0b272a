use k8s_openapi::api::core::v1::Pod;
use kube::core::ObjectMeta;

use super::*;
use crate::kind::Typed;

fn pod(name: &str, version: &str, labels: &[&str]) -> Arc<Pod> {
    let labels = labels.iter().map(|label| ((*label).to_owned(), String::new())).collect();
    Arc::new(Pod {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some("ns".to_owned()),
            resource_version: Some(version.to_owned()),
            labels: Some(labels),
            ..ObjectMeta::default()
        },
        ..Pod::default()
    })
}

fn pods() -> Arc<Typed<Pod>> {
    Arc::default()
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new(Some("ns"), name)
}

fn put(name: &str, version: &str, labels: &[&str]) -> Delta<Pod> {
    Delta::Updated(key(name), pod(name, version, labels))
}

fn list(version: &str, pods: &[(&str, &str)], keep: &[&str]) -> Delta<Pod> {
    Delta::ReplacedAll(Replacement {
        objects: pods.iter().map(|(name, version)| (key(name), pod(name, version, &[]))).collect(),
        keep: keep.iter().map(|name| key(name)).collect(),
        resource_version: version.to_owned(),
    })
}

fn by_label() -> Indexers<Pod> {
    let labels: IndexFn<Pod> =
        Arc::new(|_, pod, file| pod.metadata.labels.iter().flatten().for_each(|(label, _)| file(label)));
    Indexers::from([("label".to_owned(), labels)])
}

fn version(pod: &Pod) -> &str {
    pod.metadata.resource_version.as_deref().unwrap()
}

fn apply(store: &Store<Pod>, deltas: Vec<Delta<Pod>>) -> Vec<String> {
    let changes = store.apply(&Typed::<Pod>::new(), deltas);
    let text = changes.iter().map(|change| match change {
        StoreChange::Added(new) => format!("+{}", version(new)),
        StoreChange::Updated(old, new) => format!("{}>{}", version(old), version(new)),
        StoreChange::Deleted(Deleted::Known(last)) => format!("-{}", version(last)),
        StoreChange::Deleted(Deleted::FinalStateUnknown { key, last }) => {
            format!("-{}?{}", key.name(), last.as_ref().map_or("", |last| version(last)))
        }
    });
    text.collect()
}

fn names(store: &Store<Pod>, value: &str) -> Vec<String> {
    let mut names: Vec<_> = store
        .by_index("label", value)
        .unwrap()
        .iter()
        .map(|pod| pod.metadata.name.clone().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn the_store_decides_between_add_and_update() {
    let store = Store::new(pods(), Indexers::new());
    let added_twice = || Delta::Added(key("a"), pod("a", "2", &[]));
    assert_eq!(apply(&store, vec![put("a", "1", &[]), added_twice()]), ["+1", "1>2"]);
    assert!(!store.is_empty());
    let gone = |name: &str| Delta::Deleted(key(name), Deleted::Known(pod(name, "3", &[])));
    assert_eq!(apply(&store, vec![gone("a")]), ["-3"]);
    assert!(store.is_empty());
}

#[test]
fn unknown_deletions_are_changes_if_the_object_is_known() {
    let store = Store::new(pods(), by_label());
    let gone = Delta::Deleted(key("a"), Deleted::Known(pod("a", "3", &["x"])));
    assert_eq!(apply(&store, vec![gone]), ["-3"]);
    assert_eq!(apply(&store, vec![Delta::tombstone(key("a"), Some(pod("a", "2", &[])))]), ["-a?2"]);
    assert_eq!(apply(&store, vec![Delta::tombstone(key("a"), None)]), [""; 0]);
    assert!(store.is_empty() && store.index_values("label").unwrap().is_empty());
    assert_eq!(store.resource_version(), "3");
}

#[test]
fn replaced_and_sync_deltas_are_stored_like_others() {
    let store = Store::unversioned(pods(), by_label());
    let stored = pod("a", "1", &["x"]);
    let again = Delta::Sync(key("a"), Arc::clone(&stored));
    let deltas = vec![
        Delta::Replaced(key("a"), stored),
        again,
        Delta::Replaced(key("a"), pod("a", "2", &["y"])),
        Delta::tombstone(key("a"), Some(pod("a", "2", &[]))),
    ];
    assert_eq!(apply(&store, deltas), ["+1", "1>1", "1>2", "-a?2"]);
    assert!(store.index_values("label").unwrap().is_empty());
    assert_eq!(store.resource_version(), "", "a store of partial lists has no version");
}

#[test]
fn a_list_deletes_before_it_updates_and_adds() {
    let store = Store::new(pods(), Indexers::new());
    apply(&store, vec![list("10", &[("a", "1"), ("b", "2"), ("c", "3")], &[])]);
    let changes = apply(&store, vec![list("20", &[("a", "1"), ("b", "12"), ("d", "13")], &[])]);
    assert_eq!(changes, ["-c?3", "1>1", "2>12", "+13"]);
    assert_eq!(store.resource_version(), "20");
    assert_eq!(store.len(), 3);
}

#[test]
fn the_store_keeps_undecodable_objects_of_a_list() {
    let store = Store::new(pods(), Indexers::new());
    apply(&store, vec![list("10", &[("a", "1"), ("b", "2")], &[])]);
    assert_eq!(apply(&store, vec![list("20", &[("a", "1")], &["b", "unknown"])]), ["1>1"]);
    assert!(store.get("ns/b").is_some() && store.get("ns/unknown").is_none());
}

#[test]
fn a_tombstone_without_an_object_gets_the_stored_one() {
    let store = Store::new(pods(), Indexers::new());
    apply(&store, vec![put("a", "1", &[])]);
    let tombstone = Deleted::FinalStateUnknown { key: key("a"), last: None };
    assert_eq!(apply(&store, vec![Delta::Deleted(key("a"), tombstone)]), ["-a?1"]);
}

#[test]
fn a_resync_delivers_one_update_per_object() {
    let store = Store::new(pods(), Indexers::new());
    apply(&store, vec![put("a", "1", &[]), put("b", "2", &[])]);
    let mut changes = apply(&store, vec![Delta::SyncAll]);
    changes.sort();
    assert_eq!(changes, ["1>1", "2>2"]);
}

#[test]
fn the_store_version_follows_lists_events_and_bookmarks() {
    let store = Store::new(pods(), Indexers::new());
    let steps = [
        (list("10", &[("a", "1")], &[]), "10"),
        (put("a", "11", &[]), "11"),
        (Delta::Bookmark("15".to_owned()), "15"),
        (Delta::SyncAll, "15"),
        (Delta::Deleted(key("a"), Deleted::Known(pod("a", "16", &[]))), "16"),
        (Delta::Deleted(key("b"), Deleted::FinalStateUnknown { key: key("b"), last: None }), "16"),
        // An object whose metadata a transform removed.
        (put("c", "", &[]), "16"),
    ];
    for (delta, expected) in steps {
        apply(&store, vec![delta]);
        assert_eq!(store.resource_version(), expected);
    }
}

#[test]
fn the_store_version_is_the_last_one_in_a_batch() {
    let store = Store::new(pods(), Indexers::new());
    assert_eq!(store.resource_version(), "");
    apply(&store, vec![put("a", "40", &[]), put("b", "30", &[]), put("c", "50", &[])]);
    assert_eq!(store.resource_version(), "50");
    apply(&store, vec![put("a", "60", &[]), put("b", "55", &[]), Delta::tombstone(key("c"), None)]);
    assert_eq!(store.resource_version(), "55");
    apply(&store, vec![list("50", &[("a", "70")], &[])]);
    assert_eq!(store.resource_version(), "50", "a list has its own version");
}

#[test]
fn an_index_follows_growing_and_shrinking_values() {
    let store = Store::new(pods(), by_label());
    let steps: [(&str, &[&str]); 5] =
        [("1", &["x"]), ("2", &["x", "y"]), ("3", &["y", "z"]), ("4", &[]), ("5", &["z"])];
    apply(&store, vec![put("other", "1", &["x", "z"])]);
    for (version, labels) in steps {
        apply(&store, vec![put("a", version, labels)]);
        for value in ["x", "y", "z"] {
            let other = ["x", "z"].contains(&value).then_some("other");
            let expected: Vec<_> = labels.contains(&value).then_some("a").into_iter().chain(other).collect();
            assert_eq!(names(&store, value), expected, "{value} at {version}");
        }
    }
}

#[test]
fn empty_index_sets_are_removed() {
    let store = Store::new(pods(), by_label());
    apply(&store, vec![put("a", "1", &["x", "y"]), put("b", "2", &["y"])]);
    apply(&store, vec![Delta::Deleted(key("a"), Deleted::Known(pod("a", "3", &[])))]);
    assert_eq!(store.index_values("label").unwrap(), ["y"]);
    assert_eq!(store.index_keys("label", "y").unwrap(), [key("b")]);
    apply(&store, vec![list("9", &[], &[])]);
    assert!(store.index_values("label").unwrap().is_empty());
}

#[test]
fn an_index_added_late_covers_stored_objects() {
    let store = Store::new(pods(), namespace_indexer());
    apply(&store, vec![put("a", "1", &["x"]), put("b", "2", &[])]);
    assert_eq!(store.by_index("label", "x"), Err(IndexError::Unknown("label".to_owned())));
    store.add_indexers(by_label()).unwrap();
    assert_eq!(names(&store, "x"), ["a"]);
    assert_eq!(store.by_index(NAMESPACE_INDEX, "ns").unwrap().len(), 2);
}

#[test]
fn an_existing_index_name_is_rejected_and_nothing_added() {
    let store = Store::new(pods(), by_label());
    let mut both = by_label();
    both.extend(namespace_indexer());
    assert_eq!(store.add_indexers(both), Err(IndexError::Conflict("label".to_owned())));
    assert!(!store.has_index(NAMESPACE_INDEX));
}

#[test]
fn stores_read_from_memory() {
    let store = Store::new(pods(), Indexers::new());
    apply(&store, vec![put("a", "1", &[]), put("b", "2", &[])]);
    assert_eq!(version(&store.get(key("a")).unwrap()), "1");
    let newer = store.list_where(|pod| version(pod) > "1");
    assert_eq!(newer.len(), 1);
    let mut keys = store.keys();
    keys.sort();
    assert_eq!(keys, [key("a"), key("b")]);
    assert_eq!(store.list().len(), 2);
}

#[test]
fn a_list_reindexes_its_objects() {
    let store = Store::new(pods(), by_label());
    apply(&store, vec![put("a", "1", &["x"]), put("b", "2", &["x"])]);
    let objects = vec![(key("b"), pod("b", "3", &["y"])), (key("c"), pod("c", "4", &["x", "y"]))];
    let list = Replacement { objects, keep: Vec::new(), resource_version: "9".to_owned() };
    apply(&store, vec![Delta::ReplacedAll(list)]);
    assert_eq!(
        (names(&store, "x"), names(&store, "y")),
        (vec!["c".to_owned()], vec!["b".into(), "c".into()])
    );
}

#[test]
fn index_returns_related_objects_once_each() {
    let store = Store::new(pods(), by_label());
    apply(&store, vec![put("a", "1", &["x", "y"]), put("b", "2", &["y"]), put("c", "3", &["z"])]);
    let like = |labels: &[&str]| {
        let found = store.index("label", &key("new"), &pod("new", "9", labels)).unwrap();
        let mut versions: Vec<_> = found.iter().map(|pod| version(pod).to_owned()).collect();
        versions.sort();
        versions
    };
    assert_eq!(
        (like(&["x", "y"]), like(&["z"]), like(&[])),
        (vec!["1".into(), "2".into()], vec!["3".into()], vec![])
    );
    let unknown = store.index("other", &key("new"), &pod("new", "9", &[]));
    assert_eq!(unknown, Err(IndexError::Unknown("other".to_owned())));
}

#[test]
fn readers_see_either_an_object_or_its_replacement() {
    let store = Store::new(pods(), by_label());
    apply(&store, vec![put("p0", "1", &["x"])]);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for n in 0..5000 {
                let (old, new) = (format!("p{n}"), format!("p{}", n + 1));
                let gone = Delta::Deleted(key(&old), Deleted::Known(pod(&old, "2", &[])));
                apply(&store, vec![gone, put(&new, "1", &["x"])]);
            }
        });
        while !writer.is_finished() {
            assert_eq!(store.by_index("label", "x").unwrap().len(), 1);
            assert_eq!(store.list().len(), 1);
        }
    });
}
