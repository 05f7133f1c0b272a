//! Schedulers that are replaced or killed while pods are created.

use std::thread;
use std::time::Duration;

use serde_json::json;

use super::scenario::Scenario;
use crate::support::{Cluster, name_of};

/// The number of Deployments and replicas that are created while the schedulers change.
const DEPLOYMENTS: usize = 12;
const REPLICAS: usize = 20;

/// Creates pods during and after `change`. All must run at the end, each bound once.
fn under_load(name: &'static str, change: impl FnOnce(&Scenario, &Cluster) + Send) {
    let Some(scenario) = Scenario::begin_alone(name) else { return };
    scenario.nodes(6, 10_000);
    let app = |index: usize| format!("load-{index}");
    thread::scope(|scope| {
        let changing = scope.spawn(|| change(&scenario, scenario.cluster()));
        for index in 0..DEPLOYMENTS {
            let template = scenario.template(&app(index), 100);
            scenario.workload("Deployment", &app(index), &template, &json!({ "replicas": REPLICAS }));
            // Slow enough that some are bound before, some during and some after the change.
            thread::sleep(Duration::from_millis(500));
        }
        changing.join().unwrap();
    });
    scenario.say("the change is done and all pods are asked for");
    let late = scenario.template("late", 100);
    scenario.workload("Deployment", "late", &late, &json!({ "replicas": 1 }));
    let pod = name_of(&scenario.await_running("late", 1)[0]).to_owned();
    for index in 0..DEPLOYMENTS {
        scenario.await_running(&app(index), REPLICAS);
    }
    assert_eq!(scenario.scheduled_by(&pod), "supercargo");
    let counts = scenario.fill(10_000);
    assert_eq!(counts.values().sum::<usize>(), DEPLOYMENTS * REPLICAS + 1);
}

#[test]
fn upgrade_under_load_loses_no_pod() {
    under_load("upgrade", |scenario, cluster| scenario.site.schedulers.upgrade(cluster));
}

#[test]
fn leader_failure_under_load_loses_no_pod() {
    under_load("failover", |scenario, cluster| scenario.site.schedulers.kill_leader(cluster));
}
