//! The plugin's states over any history, as evaluation tables keep them.

use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use supercargo_framework::caching::Stateless;
use supercargo_framework::objects::Object;

use super::properties::{any_node, any_pod};
use super::tests::namespace;
use super::*;
use crate::history::{Step, check, of_one_template, steps};
use crate::testing::Driver;

fn any_namespace() -> impl Strategy<Value = Object> {
    (select(vec!["default", "blue", "unknown"]), select(vec!["red", "blue"]))
        .prop_map(|(name, team)| namespace(name, team))
}

/// Pods on nodes: many without affinity, the others with few terms.
fn any_placed() -> impl Strategy<Value = PodInfo> {
    prop_oneof![2 => any_pod(0, 0), 2 => any_pod(1, 1), 1 => any_pod(1, 0)]
}

fn any_history() -> impl Strategy<Value = (Vec<PodInfo>, Vec<Step>)> {
    let incoming = prop_oneof![any_pod(2, 1), any_pod(1, 1), any_pod(0, 1), any_pod(0, 0)];
    (of_one_template(incoming, any_pod(0, 0)), steps(any_placed, any_node, any_namespace, 3))
}

proptest! {
    #[test]
    fn a_state_that_follows_changes_is_as_good_as_a_new_one((pods, steps) in any_history()) {
        check(&Driver::new(NAME), &pods, steps)?;
    }

    #[test]
    fn so_it_is_without_the_preferences_of_others((pods, steps) in any_history()) {
        let args = serde_json::json!({
            "hardPodAffinityWeight": 0,
            "ignorePreferredTermsOfExistingPods": true,
        });
        check(&Driver::with_args(NAME, args), &pods, steps)?;
    }
}

#[test]
fn states_are_kept_as_a_rule_and_one_that_follows_nothing_is_found_out() {
    let mut runner = TestRunner::deterministic();
    let mut deaf = Driver::new(NAME);
    deaf.points.incremental = Some(Arc::new(Stateless));
    let (mut kept, mut found) = (0, 0);
    for _ in 0..100 {
        let (pods, steps) = any_history().new_tree(&mut runner).unwrap().current();
        kept += check(&Driver::new(NAME), &pods, steps.clone()).unwrap();
        found += usize::from(check(&deaf, &pods, steps).is_err());
    }
    assert!(kept > 200 && found > 30, "kept {kept} times, found out {found} times");
}
