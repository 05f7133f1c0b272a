//! No event is lost: a model of the events that each pod has seen.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::Config;
use supercargo_framework::event::{Change, EventRegistration, QueueingHint};
use supercargo_framework::plugin::Permit;
use supercargo_framework::testing::{node, pod};
use supercargo_framework::{ActionType, EventResource, PodInfo};

use super::fake::Fake;
use super::test_bed::TestBed;
use crate::Place;

const HELD: Duration = Duration::from_secs(4);

/// The state of a pod in the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waits {
    /// It is to be tried.
    ItsTurn,
    /// Permit holds it until `until`; `helped` tells whether an event helped since.
    Held { until: Duration, helped: bool },
    /// It waits for an event.
    Help,
}

#[derive(Clone, Debug)]
enum Step {
    Add(usize),
    /// A node is added; whether it helps.
    Node(bool),
    Cycle,
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (0..5_usize).prop_map(Step::Add),
        2 => prop::bool::weighted(0.4).prop_map(Step::Node),
        4 => Just(Step::Cycle),
        3 => (200..2_500_u64).prop_map(Step::Pass),
    ]
}

fn hint(_: &PodInfo, change: &Change) -> Result<QueueingHint, String> {
    let node = change.new_node().ok_or("no node")?;
    Ok(QueueingHint::queue_if(node.name.starts_with("good")))
}

proptest! {
    #![proptest_config(Config { cases: 200, failure_persistence: None, ..Config::default() })]

    #[test]
    fn a_pod_waits_exactly_if_no_event_helped_since_it_was_popped(
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let holder = Fake::new("Holder")
            .permit(|_, _| Permit::Wait(HELD))
            .events(|| vec![EventRegistration::hinted(EventResource::Node, ActionType::ADD, hint)]);
        let mut bed = TestBed::with(vec![holder.build()]);
        bed.node(node("n"));
        let mut model: BTreeMap<String, Waits> = BTreeMap::new();
        for (i, step) in steps.into_iter().enumerate() {
            match step {
                Step::Add(name) => {
                    let name = format!("p{name}");
                    if let Entry::Vacant(new) = model.entry(name) {
                        bed.pod(pod(new.key()));
                        new.insert(Waits::ItsTurn);
                    }
                }
                Step::Node(helps) => {
                    bed.node(node(&format!("{}-{i}", if helps { "good" } else { "bad" })));
                    for waits in model.values_mut().filter(|_| helps) {
                        *waits = match *waits {
                            Waits::Held { until, .. } => Waits::Held { until, helped: true },
                            Waits::Help | Waits::ItsTurn => Waits::ItsTurn,
                        };
                    }
                }
                Step::Cycle => {
                    bed.cycle();
                    for (name, waits) in &mut model {
                        if *waits == Waits::ItsTurn && bed.place(name) == Some(Place::InFlight) {
                            *waits = Waits::Held { until: bed.now.monotonic + HELD, helped: false };
                        }
                    }
                }
                Step::Pass(millis) => {
                    bed.pass(Duration::from_millis(millis));
                    for waits in model.values_mut() {
                        *waits = match *waits {
                            Waits::Held { until, helped } if until <= bed.now.monotonic => {
                                if helped { Waits::ItsTurn } else { Waits::Help }
                            }
                            other => other,
                        };
                    }
                }
            }
            for (name, waits) in &model {
                let place = bed.place(name).expect("every pod has a place");
                let as_expected = match waits {
                    Waits::ItsTurn => matches!(place, Place::Active | Place::Backoff),
                    Waits::Held { .. } => place == Place::InFlight,
                    Waits::Help => place == Place::Unschedulable,
                };
                prop_assert!(as_expected, "{name} waits for {waits:?} and is in {place:?}");
            }
        }
    }
}
