//! The queue that groups changes by object.

use super::*;
use crate::queue::tests::{Thing, known, play, play_out};

/// An empty queue before a store with these objects.
fn queue(stored: &str) -> ByKey<Thing> {
    ByKey::new(known(stored), true)
}

#[test]
fn changes_are_grouped_at_the_objects_first_change() {
    let mut queue = queue("");
    let popped = play_out(&mut queue, "+a10 +b1 ~a11 -a13 +c30 pop +a14");
    assert_eq!(popped, ["+a10 ~a11 -a13.", "+b1.", "+c30.", "+a14."]);
    assert!(queue.deltas.is_empty() && queue.order.is_empty());
}

#[test]
fn consecutive_deletions_merge_into_the_better_informed() {
    for (script, expected) in [
        ("+a1 -a2 -a3", "+a1 -a2."),
        ("+a1 -a?1 -a3", "+a1 -a3."),
        ("+a1 -a2 -a?1", "+a1 -a2."),
        ("+a1 -a2 +a3 -a4", "+a1 -a2 +a3 -a4."),
    ] {
        assert_eq!(play_out(&mut queue(""), script), [expected], "{script}");
    }
}

#[test]
fn delta_fifo_drops_deletions_of_unknown_objects() {
    for (stored, script, expected) in [
        ("", "-a1", vec![""; 0]),
        ("", "+a1 -a2", vec!["+a1 -a2."]),
        ("", "+a1 pop -a2", vec!["+a1."]),
        ("a1", "-a2", vec!["-a2."]),
        ("b1", "-a2 +b2", vec!["+b2."]),
    ] {
        let popped = play_out(&mut queue(stored), script);
        // An empty batch reports that there is no first list to wait for.
        let popped: Vec<_> = popped.into_iter().filter(|batch| batch != ".").collect();
        assert_eq!(popped, expected, "{stored} {script}");
    }
}

#[test]
fn a_list_deletes_missing_objects_once_with_their_newest_state() {
    for (stored, script, expected) in [
        // Only the queue has the object.
        ("", "+a2 []", vec!["+a2 -a?2."]),
        ("", "+a2 [a2] []", vec!["+a2 =a2 -a?2."]),
        ("", "+a2 -a2 []", vec!["+a2 -a2."]),
        ("", "+a2 [a2] [a2] []", vec!["+a2 =a2 =a2 -a?2."]),
        ("", "+a2 [] []", vec!["+a2 -a?2."]),
        ("", "+a2 -a2 +a3 []", vec!["+a2 -a2 +a3 -a?3."]),
        // The store has it, too.
        ("a5 b6 c7", "-c10 [a5]", vec!["-c10.", "=a5.", "-b?6."]),
        ("a5 b6 c7", "+c10 [a5]", vec!["+c10 -c?10.", "=a5.", "-b?6."]),
        ("a5 b6 c7", "-b6 +b100 [a5]", vec!["-b6 +b100 -b?100.", "=a5.", "-c?7."]),
        ("a5 b6 c7", "[b100,a5] [a5]", vec!["!=b100 -b?100", "!=a5 =a5", "!-c?7."]),
    ] {
        assert_eq!(play_out(&mut queue(stored), script), expected, "{stored} {script}");
    }
}

#[test]
fn a_list_restores_an_object_whose_deletion_is_queued() {
    assert_eq!(play_out(&mut queue("a1"), "-a1 [a2]"), ["-a1 =a2."]);
    assert_eq!(play_out(&mut queue(""), "+a1 -a1 [a2]"), ["+a1 -a1 =a2."]);
}

#[test]
fn delta_fifo_list_keeps_undecodable_objects() {
    let mut queue = queue("a1 b1 c1");
    let keep = vec![ObjectKey::new(None, "b")];
    queue.push(Delta::ReplacedAll(Replacement {
        objects: Vec::new(),
        keep,
        resource_version: String::new(),
    }));
    assert_eq!(play_out(&mut queue, ""), ["!-a?1", "!-c?1."]);
}

#[test]
fn list_items_are_replaced_or_sync_deltas() {
    let popped = |replaced| play_out(&mut ByKey::new(known("a1 b1"), replaced), "[a2]");
    assert_eq!(popped(true), ["!=a2", "!-b?1."]);
    assert_eq!(popped(false), ["!*a2", "!-b?1."]);
}

#[test]
fn delta_fifo_resync_skips_objects_with_queued_changes() {
    for (stored, script, expected) in [
        ("", "+a1 pop sync", vec!["+a1."]),
        ("a1 b1", "[a1,b1] pop pop sync", vec!["!=a1", "!=b1.", "*a1.", "*b1."]),
        ("a5", "~a6 sync", vec!["~a6."]),
        ("a5 b1", "-a6 sync", vec!["-a6.", "*b1."]),
    ] {
        assert_eq!(play_out(&mut queue(stored), script), expected, "{stored} {script}");
    }
    // A resync without objects is no first list.
    let mut queue = queue("");
    assert_eq!(play_out(&mut queue, "sync"), [""; 0]);
    assert!(!queue.population.has_synced());
}

#[test]
fn the_first_list_ends_with_its_last_object_or_tombstone() {
    for (stored, script, synced) in [
        ("", "", false),
        ("", "@5 sync", false),
        ("", "+a1", true),
        ("", "~a1", true),
        ("", "-a1", true),
        ("", "[]", true),
        ("", "[a1,b2]", false),
        ("", "[a1,b2] pop", false),
        ("", "[a1,b2] pop pop", true),
        ("", "[a1,a2]", false),
        ("", "[a1,a2] pop", true),
        ("a5 b6 c7", "[a5] pop pop", false),
        ("a5 b6 c7", "[a5] pop pop pop", true),
        ("", "+a1 [b2,c3]", true),
    ] {
        let mut queue = queue(stored);
        play(&mut queue, script);
        assert_eq!(queue.population.has_synced(), synced, "{stored} {script}");
    }
}

#[test]
fn initial_flags_follow_queue_position_and_empty_lists_count() {
    let flagged = play_out(&mut queue(""), "[a1,b1] +c2 ~b2");
    // One pop of b takes all its changes, including the update.
    assert_eq!(flagged, ["!=a1", "!=b1 ~b2.", "+c2."]);
    assert_eq!(play_out(&mut queue(""), "[]"), ["."]);
    assert_eq!(play_out(&mut queue(""), "[] pop [] +a1"), [".", "+a1."]);
}
