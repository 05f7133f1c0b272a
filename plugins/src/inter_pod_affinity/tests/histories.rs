//! The plugin's cached answers over random histories.

use proptest::prelude::*;
use proptest::sample::select;
use supercargo_framework::objects::Object;

use super::super::*;
use super::namespace;
use super::properties::{any_node, any_pod};
use crate::history::{Step, check, check_sensitivity, of_one_template, steps};
use crate::testing::{driver, driver_with_args};

fn any_namespace() -> impl Strategy<Value = Object> {
    (select(vec!["default", "blue", "unknown"]), select(vec!["red", "blue"]))
        .prop_map(|(name, team)| namespace(name, team))
}

/// Pods on nodes: many without affinity, others with few terms.
fn any_placed() -> impl Strategy<Value = PodInfo> {
    prop_oneof![2 => any_pod(0, 0), 2 => any_pod(1, 1), 1 => any_pod(1, 0)]
}

fn any_history() -> impl Strategy<Value = (Vec<PodInfo>, Vec<Step>)> {
    let incoming = prop_oneof![any_pod(2, 1), any_pod(1, 1), any_pod(0, 1), any_pod(0, 0)];
    (of_one_template(incoming, any_pod(0, 0)), steps(any_placed, any_node, any_namespace, 3))
}

proptest! {
    #[test]
    fn updated_state_equals_a_fresh_one((pods, steps) in any_history()) {
        check(&driver(NAME), &pods, steps)?;
    }

    #[test]
    fn updated_state_is_fresh_without_preferences_of_existing_pods((pods, steps) in any_history()) {
        let args = serde_json::json!({
            "hardPodAffinityWeight": 0,
            "ignorePreferredTermsOfExistingPods": true,
        });
        check(&driver_with_args(NAME, args), &pods, steps)?;
    }
}

#[test]
fn histories_use_cached_answers_and_detect_stale_state() {
    check_sensitivity(&driver(NAME), any_history());
}
