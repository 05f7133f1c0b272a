use proptest::prelude::*;

use super::*;
use crate::segment::{LONGEST_TEXT, MOST_ENTRIES};

const ATTEMPT: Attempt = Attempt { number: 1, after_flush: false };

fn key(namespace: &str, name: &str) -> PodKey {
    PodKey { namespace: namespace.into(), name: name.into() }
}

fn timeline(limit: usize) -> Timeline {
    Timeline::new(limit, HashSeed::new(7))
}

impl Timeline {
    fn add(&mut self, time: i64, pod: &PodKey, what: Happening<&str>) {
        self.push(Timestamp(time), &pod.namespace, &pod.name, &what);
    }

    fn count(&self) -> usize {
        self.notes().count()
    }
}

/// The memory of a full segment with entries of one pod.
fn segment_of(pod: &PodKey) -> usize {
    let mut timeline = timeline(usize::MAX);
    for _ in 0..MOST_ENTRIES {
        timeline.add(0, pod, Happening::Added);
    }
    timeline.bytes
}

#[test]
fn the_oldest_entries_are_dropped_beyond_the_limit() {
    let p = key("default", "p");
    let limit = 2 * segment_of(&p);
    let mut timeline = timeline(limit);
    for time in 0..2 * MOST_ENTRIES as i64 {
        timeline.add(time, &p, Happening::Added);
    }
    assert_eq!((timeline.of(&p).entries.len(), timeline.of(&p).cut_at), (2 * MOST_ENTRIES, None));
    for time in 0..10 * MOST_ENTRIES as i64 {
        timeline.add(1000 + time, &p, Happening::Added);
        assert!(timeline.bytes <= limit);
    }
    let history = timeline.of(&p);
    assert_eq!(history.entries.len(), 2 * MOST_ENTRIES);
    assert_eq!(history.cut_at, Some(history.entries[0].time));
    assert!(history.entries.is_sorted_by_key(|entry| entry.time));
    assert_eq!(timeline.of(&key("default", "q")).entries, []);
}

#[test]
fn a_namespace_that_fills_the_log_drops_its_own_entries() {
    let loud = key("default", "p");
    let mut timeline = timeline(8 * segment_of(&loud));
    let part = |pod: &PodKey| part_of(&HashSeed::new(7), &pod.namespace);
    let quiet: Vec<PodKey> = (0..PARTS)
        .map(|number| key(&format!("quiet-{number}"), "p"))
        .filter(|quiet| part(quiet) != part(&loud))
        .collect();
    for _ in 0..MOST_ENTRIES {
        timeline.add(0, &quiet[0], Happening::Added);
    }
    for time in 0..100 * MOST_ENTRIES as i64 {
        timeline.add(time, &loud, Happening::Added);
    }
    let history = timeline.of(&quiet[0]);
    assert_eq!((history.entries.len(), history.cut_at), (MOST_ENTRIES, None));
    assert!(timeline.of(&loud).cut_at.is_some());
    assert!(quiet.len() > PARTS / 2, "most namespaces are in other parts");

    // Which parts a copy has dropped entries of is not known.
    let entries: Vec<_> = timeline.notes().map(|note| note.entry()).collect();
    let mut copy = Timeline::new(usize::MAX, HashSeed::new(8));
    copy.replace(&entries, timeline.begin());
    for pod in [&quiet[0], &loud] {
        assert_eq!(copy.of(pod).entries, timeline.of(pod).entries);
        assert_eq!(copy.of(pod).cut_at, timeline.of(&loud).cut_at);
    }
}

#[test]
fn the_newest_entries_of_all_namespaces_come_first() {
    let mut timeline = timeline(usize::MAX);
    for time in 0..500 {
        timeline.add(time, &key(&format!("team-{}", time % 7), "p"), Happening::Added);
    }
    let times: Vec<i64> = timeline.newest().map(|note| note.time().0).collect();
    assert_eq!(times, (0..500).rev().collect::<Vec<_>>());
}

#[test]
fn a_log_that_is_off_keeps_nothing() {
    let (mut off, p) = (timeline(0), key("default", "p"));
    off.add(0, &p, Happening::Added);
    off.replace(&[], Some(Timestamp(7)));
    assert_eq!((off.count(), off.of(&p)), (0, History::default()));
}

#[test]
fn a_text_that_is_repeated_takes_no_memory() {
    let (mut timeline, p) = (timeline(1 << 20), key("default", "p"));
    let mut added = |pod: &PodKey, what: Happening<&str>| {
        let before = timeline.bytes;
        timeline.add(0, pod, what);
        timeline.bytes - before
    };
    let texts = |pod: &PodKey| pod.namespace.len() + pod.name.len();
    let entry = added(&p, Happening::Added) - texts(&p);
    assert_eq!(added(&p, Happening::Added), entry);
    assert_eq!(added(&p, Happening::Failed("full", ATTEMPT)), entry + 4);
    assert_eq!(added(&p, Happening::Chosen("node", ATTEMPT)), entry + 4);
    assert_eq!(added(&p, Happening::Failed("full", ATTEMPT)), entry);
    assert_eq!(added(&key("default", "pod"), Happening::Failed("full", ATTEMPT)), entry + 3);
    assert_eq!(added(&key("other", "pod"), Happening::Ended), entry + 5);
}

#[test]
fn long_messages_are_cut() {
    let (mut timeline, p) = (timeline(1 << 20), key("default", "p"));
    timeline.add(0, &p, Happening::Failed(&"é€".repeat(1000), ATTEMPT));
    let Happening::Failed(message, _) = timeline.of(&p).entries.remove(0).what else { panic!() };
    assert!(message.len() <= LONGEST_TEXT && message.len() > LONGEST_TEXT - 4, "{}", message.len());
    assert!(message.starts_with("é€é"));
}

const GUIDE: &str = include_str!("../../../docs/timeline.md");

/// With names as a cloud has them, or with messages of the longest kind.
#[test]
fn the_guide_tells_how_many_entries_the_default_limit_keeps() {
    const LIMIT: usize = 8 << 20;
    const BATCH: u32 = 100;
    let (mut usual, mut long) = (timeline(LIMIT), timeline(LIMIT));
    let pod = |i: u32| key(["team-a", "team-b", "team-c"][i as usize % 3], &format!("web-7d9f8b6c5d-{i:05}"));
    let node = |i: u32| format!("ip-10-0-{}-{}.eu-west-1.compute.internal", i % 20, i % 250);
    for batch in 0..400 {
        let pods = || (0..BATCH).map(|i| batch * BATCH + i);
        pods().for_each(|i| usual.add(0, &pod(i), Happening::Added));
        for i in pods() {
            usual.add(0, &pod(i), Happening::Chosen(&node(i), ATTEMPT));
            usual.add(0, &pod(i), Happening::Bound(&node(i)));
            long.add(0, &pod(i), Happening::Failed(&format!("{i:01024}"), ATTEMPT));
        }
        pods().for_each(|i| usual.add(0, &pod(i), Happening::Ended));
    }
    let (usual, long) = (usual.count() / 10_000 * 10, long.count() / 100);
    let stated = format!("some {usual},000, or {},{}00 with the longest messages", long / 10, long % 10);
    assert!(GUIDE.split_whitespace().collect::<Vec<_>>().join(" ").contains(&stated), "{stated}");
}

fn happening() -> impl Strategy<Value = Happening> {
    let text = || prop_oneof![4 => "[a-c]", 2 => "[ä-ü€]{1,4}", 1 => "x{1020,1030}"];
    let text = move || text().prop_map(Arc::<str>::from);
    let attempt =
        || (any::<u32>(), any::<bool>()).prop_map(|(number, after_flush)| Attempt { number, after_flush });
    prop_oneof![
        Just(Happening::Added),
        text().prop_map(Happening::Gated),
        Just(Happening::Released),
        text().prop_map(Happening::Woken),
        (text(), attempt()).prop_map(|(node, attempt)| Happening::Chosen(node, attempt)),
        text().prop_map(Happening::Waits),
        Just(Happening::Permitted),
        text().prop_map(Happening::Bound),
        (text(), attempt()).prop_map(|(message, attempt)| Happening::Failed(message, attempt)),
        (text(), any::<usize>()).prop_map(|(node, pods)| Happening::Preempts(node, pods)),
        (text(), text()).prop_map(|(namespace, name)| Happening::PreemptedBy { namespace, name }),
        text().prop_map(Happening::GaveUp),
        text().prop_map(Happening::BoundElsewhere),
        Just(Happening::Deleted),
        Just(Happening::Ended),
    ]
}

fn entry() -> impl Strategy<Value = Entry> {
    (any::<i64>(), "[a-h]", "[a-d]|é{200}", happening()).prop_map(|(time, namespace, name, what)| Entry {
        time: Timestamp(time),
        pod: key(&namespace, &name),
        what,
    })
}

/// The entry as it is kept: without the end of long texts.
fn cut(entry: &Entry) -> Entry {
    let cut = |text: &Arc<str>| text[..text.floor_char_boundary(LONGEST_TEXT)].into();
    Entry { what: entry.what.map(cut), ..entry.clone() }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// What was noted of a pod is its history; with a limit, the end of it. The memory is that of
    /// the entries that are left.
    #[test]
    fn what_comes_out_is_what_went_in(
        entries in prop::collection::vec(entry(), 0..600),
        limit in prop_oneof![Just(usize::MAX), 1_usize..40_000],
    ) {
        let mut timeline = timeline(limit);
        timeline.replace(&entries, None);
        let mut pods: Vec<_> = entries.iter().map(|entry| entry.pod.clone()).collect();
        pods.sort();
        pods.dedup();
        let mut left = 0;
        for pod in &pods {
            let history = timeline.of(pod);
            let expected: Vec<_> = entries.iter().filter(|entry| entry.pod == *pod).map(cut).collect();
            let dropped = expected.len() - history.entries.len();
            prop_assert_eq!(&history.entries[..], &expected[dropped..]);
            let part = &timeline.parts[part_of(&timeline.seed, &pod.namespace)];
            let tells = history.cut_at.is_some() || part.notes().next().is_none();
            prop_assert!(dropped == 0 || limit < usize::MAX && tells);
            left += history.entries.len();
        }
        prop_assert_eq!(timeline.count(), left);
        prop_assert_eq!(timeline.newest().count(), left);
        // A copy that drops nothing has segments with the same content.
        let mut again = self::timeline(usize::MAX);
        again.replace(&timeline.notes().map(|note| note.entry()).collect::<Vec<_>>(), timeline.begin());
        prop_assert!(limit < usize::MAX || again.bytes == timeline.bytes);
        prop_assert!(timeline.bytes <= limit || timeline.parts.iter().all(|part| part.bytes == 0));
    }
}
