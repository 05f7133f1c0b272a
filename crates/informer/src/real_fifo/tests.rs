//! The queue that keeps every change in order.

use super::*;
use crate::queue::tests::{Thing, known, play, play_out};

/// An empty queue that keeps lists whole.
fn atomic() -> InOrder<Thing> {
    InOrder::new(None)
}

/// A queue that splits lists, before a store with these objects.
fn per_object(stored: &str) -> InOrder<Thing> {
    InOrder::new(Some(known(stored)))
}

#[test]
fn batches_end_at_a_repeated_key_and_around_whole_lists() {
    let popped = play_out(&mut atomic(), "[a1,b1] +c2 @5 -a6 +c7 sync +a8 [] +b9");
    assert_eq!(popped, ["![a1,b1].", "+c2 @5 -a6.", "+c7.", "sync.", "+a8.", "[].", "+b9."]);
}

#[test]
fn a_batch_ends_at_a_thousand_keys_or_with_the_first_list() {
    let names = |from: usize, to: usize| (from..to).map(|n| format!("{}1", letters(n))).collect::<Vec<_>>();
    let more: Vec<_> = names(2500, 4000).iter().map(|name| format!("+{name}")).collect();
    let script = format!("[{}] {}", names(0, 2500).join(","), more.join(" "));
    let mut queue = per_object("");
    play(&mut queue, &script);
    let mut sizes = Vec::new();
    while let Some(batch) = queue.next_batch() {
        sizes.push((batch.deltas.len(), batch.in_initial_list, batch.synced));
    }
    let expected = [
        (1000, true, false),
        (1000, true, false),
        (500, true, true),
        (1000, false, true),
        (500, false, true),
    ];
    assert_eq!(sizes, expected);
}

/// Names that consist of letters.
fn letters(n: usize) -> String {
    n.to_string().bytes().map(|digit| char::from(digit - b'0' + b'a')).collect()
}

#[test]
fn batches_of_single_objects_are_laid_out_by_list_and_key() {
    for (script, expected) in [
        ("[a5,b5,c5]", vec!["!=a5 =b5 =c5."]),
        ("[a5,b5] ~c5 ~d5", vec!["!=a5 =b5.", "~c5 ~d5."]),
        ("[a5] ~a6 ~a7", vec!["!=a5.", "~a6.", "~a7."]),
        ("[a5,b5] ~b6 ~c5", vec!["!=a5 =b5.", "~b6 ~c5."]),
        ("[a5,b5,c5] ~b6", vec!["!=a5 =b5 =c5.", "~b6."]),
        ("[] ~a5 ~b5 ~c5", vec!["~a5 ~b5 ~c5."]),
        ("+a1 [a1,b1]", vec!["+a1.", "=a1 =b1."]),
        ("[a1,a2]", vec!["!=a1", "!=a2."]),
    ] {
        assert_eq!(play_out(&mut per_object(""), script), expected, "{script}");
    }
}

#[test]
fn real_fifo_keeps_every_change_and_unknown_deletions() {
    for script in ["+a1 ~a2 -a3 -a4 -b1 +a5", "-a1"] {
        let expected: Vec<_> = script.split(' ').map(str::to_owned).collect();
        for queue in [&mut atomic(), &mut per_object("")] {
            let popped = play_out(queue, script).join(" ").replace('.', "");
            assert_eq!(popped.split(' ').collect::<Vec<_>>(), expected);
            assert!(queue.deltas.is_empty());
        }
    }
}

#[test]
fn atomic_lists_and_resyncs_keep_place_and_content() {
    for (script, expected) in [
        ("[]", "![]."),
        ("+a2 []", "+a2. []."),
        ("+a2 [a2] [a3] []", "+a2. [a2]. [a3]. []."),
        ("@123 []", "!@123 ![]."),
        ("sync", "!sync"),
        ("+a2 sync", "+a2. sync."),
    ] {
        assert_eq!(play_out(&mut atomic(), script).join(" "), expected, "{script}");
    }
}

#[test]
fn a_split_list_starts_with_deletions_in_newest_state() {
    for (stored, script, expected) in [
        // Only the queue has the object.
        ("", "+a2 []", "+a2 -a?2"),
        ("", "+a2 -a2 []", "+a2 -a2"),
        ("", "+a2 [a2] [a2] []", "+a2 =a2 =a2 -a?2"),
        ("", "+a2 [] []", "+a2 -a?2"),
        ("", "+a2 -a2 +a3 []", "+a2 -a2 +a3 -a?3"),
        ("", "@123 [] []", ""),
        // The store has it, too.
        ("a1", "-a1 [a2]", "-a1 =a2"),
        ("a5 b6 c7", "-c10 [a5]", "-c10 -b?6 =a5"),
        ("a5 b6 c7", "+c10 [a5]", "+c10 -c?10 -b?6 =a5"),
        ("a5 b6 c7", "-b6 +b100 [a5]", "-b6 +b100 -b?100 -c?7 =a5"),
        ("a5 b6 c7", "[b100,a5] [a5]", "-c?7 =b100 =a5 -b?100 =a5"),
    ] {
        let popped = play_out(&mut per_object(stored), script);
        let changes = popped.join(" ").replace(['.', '!'], "");
        assert_eq!(changes.trim_end(), expected, "{stored} {script}");
    }
}

#[test]
fn a_split_list_keeps_undecodable_objects() {
    let mut queue = per_object("a1 b1 c1");
    let keep = vec![ObjectKey::new(None, "b")];
    queue.push(Delta::ReplacedAll(Replacement {
        objects: Vec::new(),
        keep,
        resource_version: String::new(),
    }));
    assert_eq!(play_out(&mut queue, ""), ["!-a?1 -c?1."]);
}

#[test]
fn a_split_resync_skips_objects_with_queued_changes() {
    for (stored, script, expected) in [
        ("", "+a1 pop sync", vec!["+a1."]),
        ("a1 b1", "[a1,b1] pop sync", vec!["!=a1 =b1.", "*a1 *b1."]),
        ("a5", "~a6 sync", vec!["~a6."]),
        ("a5 b1", "-a6 sync", vec!["-a6 *b1."]),
    ] {
        assert_eq!(play_out(&mut per_object(stored), script), expected, "{stored} {script}");
    }
}

#[test]
fn real_fifo_first_list_is_popped_with_its_last_change() {
    for (stored, script, synced) in [
        ("", "", false),
        ("", "@5 sync", false),
        ("", "+a1", true),
        ("", "-a1", true),
        ("", "[]", true),
        ("", "[a1,b2]", false),
        ("", "[a1,b2] pop", true),
        ("", "[a1,a2] pop", false),
        ("", "[a1,a2] pop pop", true),
        ("a5 b6 c7", "[a5]", false),
        ("a5 b6 c7", "[a5] pop", true),
        ("", "+a1 [b2,c3]", true),
    ] {
        let mut queue = per_object(stored);
        play(&mut queue, script);
        assert_eq!(queue.population.has_synced(), synced, "{stored} {script}");
    }
    for (script, synced) in [("[]", false), ("[] pop", true), ("[a1,b1] pop", true), ("~a1 [b1]", true)] {
        let mut queue = atomic();
        play(&mut queue, script);
        assert_eq!(queue.population.has_synced(), synced, "{script}");
    }
    assert_eq!(play_out(&mut per_object("a5 b6"), "[a5]"), ["!-b?6 =a5."], "tombstones count, too");
}

#[test]
fn an_empty_first_list_syncs_but_earlier_changes_do_not() {
    assert_eq!(play_out(&mut atomic(), "sync []"), ["!sync", "![]."]);
    assert_eq!(play_out(&mut atomic(), "+a1 []"), ["+a1.", "[]."]);
    assert_eq!(play_out(&mut per_object(""), "sync []"), ["."]);
    assert_eq!(play_out(&mut per_object(""), "[] pop [] pop +a1"), [".", "+a1."]);
}
