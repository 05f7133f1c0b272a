//! Records and replays.

use std::sync::Arc;
use std::time::Duration;

use supercargo_framework::binding::BindOutcome;
use supercargo_framework::testing::{node, pod};
use supercargo_framework::{Now, PodInfo, Timestamp};

use super::bed::{WALL, options, plugins};
use crate::record::{Recorded, ReplayError, replay};
use crate::{
    Calls, ExtenderAnswer, ExtenderQuestion, ExtenderSpec, Input, NoCalls, Notification, Options, Scheduler,
};

fn scheduler() -> Scheduler {
    let extender = ExtenderSpec { name: "x".into(), filters: true, ..ExtenderSpec::default() };
    Scheduler::new(Options { extenders: vec![extender], ..options(plugins(Vec::new())) }).unwrap()
}

fn at(seconds: u64) -> Now {
    let monotonic = Duration::from_secs(seconds);
    Now { wall: Timestamp(WALL.0).plus(monotonic), monotonic }
}

/// Keeps the last of the nodes.
struct Last;

impl Calls for Last {
    fn ask(&mut self, _: &ExtenderSpec, question: ExtenderQuestion<'_>) -> Result<ExtenderAnswer, String> {
        match question {
            ExtenderQuestion::Filter { nodes, .. } => Ok(ExtenderAnswer::Filtered {
                nodes: nodes.last().map(|node| Arc::clone(&node.name)).into_iter().collect(),
                failed: Vec::new(),
                failed_and_unresolvable: Vec::new(),
            }),
            _ => Err("it does not".to_owned()),
        }
    }
}

fn record() -> String {
    let mut log = Vec::new();
    let mut recorded = Recorded::new(scheduler(), &mut log);
    for name in ["n1", "n2"] {
        let input = Input::Node(Notification::Added(Arc::new(node(name).build())));
        recorded.handle(at(0), input).unwrap();
    }
    let a: PodInfo = pod("a").request("cpu", "100m").label("x", "y").build();
    recorded.handle(at(1), Input::QueuedPod(Notification::Added(Arc::new(a)))).unwrap();
    let effects = recorded.schedule_one(at(2), &mut Last).unwrap();
    assert_eq!(format!("{effects:?}"), "[Bind default/a a to n2]");
    recorded
        .handle(
            at(3),
            Input::Bound { pod: "a".into(), by: "DefaultBinder".into(), outcome: BindOutcome::Bound },
        )
        .unwrap();
    recorded.flush().unwrap();
    assert!(!recorded.scheduler().has_work());
    String::from_utf8(log).unwrap()
}

#[test]
fn a_record_replays_with_the_extenders_answers() {
    let record = record();
    assert_eq!(replay(&mut scheduler(), record.as_bytes()).unwrap(), 5);
    // The extender's choice comes from the record; without it the first node would have been taken.
    let mut scheduler = scheduler();
    scheduler.schedule_one(at(0), &mut NoCalls);
    assert!(record.contains("\"Filtered\":{\"nodes\":[\"n2\"]"));
}

#[test]
fn a_record_that_says_something_else_is_reported_with_its_line() {
    let cases = [
        ("other effects", ("Bind default/a a to n2", "Bind default/a a to n1"), 4),
        ("other inputs", ("\"Filtered\":{\"nodes\":[\"n2\"]", "\"Filtered\":{\"nodes\":[\"n1\"]"), 4),
    ];
    for (name, (from, to), expected) in cases {
        let tampered = record().replace(from, to);
        match replay(&mut scheduler(), tampered.as_bytes()) {
            Err(ReplayError::Differs { line, .. }) => assert_eq!(line, expected, "{name}"),
            other => panic!("{name}: {other:?}"),
        }
    }
    let broken = record().replace("\"now\"", "\"then\"");
    match replay(&mut scheduler(), broken.as_bytes()) {
        Err(ReplayError::Read { line, .. }) => assert_eq!(line, 1),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_answer_that_the_record_does_not_have_is_an_error_of_the_extender() {
    let without = record().replace(
        "[{\"Ok\":{\"Filtered\":{\"nodes\":[\"n2\"],\"failed\":[],\"failed_and_unresolvable\":[]}}}]",
        "[]",
    );
    match replay(&mut scheduler(), without.as_bytes()) {
        Err(ReplayError::Differs { line, replayed, .. }) => {
            assert_eq!(line, 4);
            assert!(replayed[0].contains("the record has no answer of extender x"), "{replayed:?}");
        }
        other => panic!("{other:?}"),
    }
}
