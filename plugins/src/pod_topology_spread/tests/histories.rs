//! The plugin's cached answers over random histories.

use proptest::prelude::*;
use proptest::sample::select;
use supercargo_framework::node::HOSTNAME;
use supercargo_framework::objects::Object;

use super::super::*;
use super::properties::{any_incoming, any_node, any_pod};
use super::service;
use crate::history::{Step, check, check_sensitivity, of_one_template, steps};
use crate::testing::{driver, driver_with_args};

/// Services, which make default constraints apply.
fn any_service() -> impl Strategy<Value = Object> {
    let selectors = vec![[("app", "web")], [("app", "db")], [("version", "1")]];
    (select(vec!["default/a", "default/b", "elsewhere/a"]), select(selectors))
        .prop_map(|(key, selector)| service(key, &selector))
}

fn any_history() -> impl Strategy<Value = (Vec<PodInfo>, Vec<Step>)> {
    let incoming = prop_oneof![3 => any_incoming(), 1 => any_pod()];
    (of_one_template(incoming, any_pod()), steps(any_pod, any_node, any_service, 3))
}

proptest! {
    #[test]
    fn updated_state_equals_a_fresh_one((pods, steps) in any_history()) {
        check(&driver(NAME), &pods, steps)?;
    }

    #[test]
    fn updated_state_is_fresh_with_list_defaults((pods, steps) in any_history()) {
        let defaults = serde_json::json!([
            {"maxSkew": 1, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule"},
            {"maxSkew": 1, "topologyKey": HOSTNAME, "whenUnsatisfiable": "ScheduleAnyway"},
            {"maxSkew": 2, "topologyKey": "rack", "whenUnsatisfiable": "ScheduleAnyway"},
        ]);
        let args = serde_json::json!({"defaultingType": "List", "defaultConstraints": defaults});
        check(&driver_with_args(NAME, args), &pods, steps)?;
    }
}

#[test]
fn histories_use_cached_answers_and_detect_stale_state() {
    check_sensitivity(&driver(NAME), any_history());
}
