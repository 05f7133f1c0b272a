//! The plugin's states over any history, as evaluation tables keep them.

use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use supercargo_framework::caching::Stateless;
use supercargo_framework::objects::Object;

use super::properties::{any_incoming, any_node, any_pod};
use super::tests::service;
use super::*;
use crate::history::{Step, check, of_one_template, steps};
use crate::testing::Driver;

/// Services make default constraints apply.
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
    fn a_state_that_follows_changes_is_as_good_as_a_new_one((pods, steps) in any_history()) {
        check(&Driver::new(NAME), &pods, steps)?;
    }

    #[test]
    fn so_it_is_where_all_labels_are_required((pods, steps) in any_history()) {
        let defaults = serde_json::json!([
            {"maxSkew": 1, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule"},
            {"maxSkew": 1, "topologyKey": HOSTNAME, "whenUnsatisfiable": "ScheduleAnyway"},
            {"maxSkew": 2, "topologyKey": "rack", "whenUnsatisfiable": "ScheduleAnyway"},
        ]);
        let args = serde_json::json!({"defaultingType": "List", "defaultConstraints": defaults});
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
