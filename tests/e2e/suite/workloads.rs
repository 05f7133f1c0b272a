//! Pods of controllers: Deployments, DaemonSets, Jobs.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::scenario::{Scenario, phase};
use crate::support::{name_of, node_of};

#[test]
fn deployment_scales_beyond_capacity_and_back() {
    let Some(scenario) = Scenario::begin("deployment") else { return };
    // Room for four pods on each.
    let nodes = scenario.nodes(3, 1000);
    let (web, batch) = (scenario.template("web", 250), scenario.template("batch", 250));
    let web = scenario.workload("Deployment", "web", &web, &json!({ "replicas": 3 }));
    let pods = scenario.await_running("web", 3);
    let used: BTreeSet<_> = pods.iter().filter_map(node_of).collect();
    assert_eq!(used.len(), 3, "the emptier nodes come first: {used:?}");
    assert_eq!(scenario.scheduled_by(name_of(&pods[0])), "supercargo");

    scenario.scale(&web, 12);
    scenario.await_running("web", 12);
    assert_eq!(scenario.fill(1000), nodes.iter().map(|node| (node.clone(), 4)).collect());
    scenario.workload("Deployment", "batch", &batch, &json!({ "replicas": 4 }));
    let waiting = scenario.eventually("the others wait", || {
        let pods = scenario.pods_of("batch");
        (pods.len() == 4).then_some(pods)
    });
    for pod in &waiting {
        let message = scenario.await_unschedulable(name_of(pod));
        assert!(message.contains("3 Insufficient cpu"), "{message}");
    }
    scenario.scale(&web, 8);
    scenario.await_running("batch", 4);
    assert_eq!(scenario.await_running("web", 8).len(), 8);
    scenario.fill(1000);
}

#[test]
fn rolling_update_completes_with_room_for_the_surge_only() {
    let Some(scenario) = Scenario::begin("rolling") else { return };
    // Room for eight pods, six of which exist.
    scenario.nodes(2, 1000);
    let template = scenario.template("web", 250);
    let strategy = json!({ "rollingUpdate": { "maxSurge": 2, "maxUnavailable": 1 } });
    let web =
        scenario.workload("Deployment", "web", &template, &json!({ "replicas": 6, "strategy": strategy }));
    let before: BTreeSet<String> =
        scenario.await_running("web", 6).iter().map(|pod| name_of(pod).to_owned()).collect();

    let annotations = json!({ "supercargo.dev/version": "2" });
    let change = json!({ "spec": { "template": { "metadata": { "annotations": annotations } } } });
    scenario.cluster().patch(&web, &change);
    scenario.eventually("the Deployment is made of its new template", || {
        scenario.fill(1000);
        let deployment = scenario.cluster().get(&web);
        let status = &deployment["status"];
        let is_seen = status["observedGeneration"] == deployment["metadata"]["generation"];
        let all = ["replicas", "updatedReplicas", "availableReplicas"];
        (is_seen && all.iter().all(|count| status[count] == 6)).then_some(())
    });
    let after = scenario.await_running("web", 6);
    assert!(after.iter().all(|pod| !before.contains(name_of(pod))), "some pods are old");
}

#[test]
fn daemon_set_covers_new_and_cordoned_nodes() {
    let Some(scenario) = Scenario::begin("daemonset") else { return };
    let mut nodes = scenario.nodes(3, 1000);
    let cordoned = json!({ "spec": { "unschedulable": true } });
    scenario.cluster().patch(&format!("/api/v1/nodes/{}", nodes[0]), &cordoned);
    scenario.workload("DaemonSet", "agent", &scenario.template("agent", 100), &json!({}));
    let everywhere = |nodes: &[String]| {
        let pods = scenario.await_running("agent", nodes.len());
        let used: BTreeSet<_> = pods.iter().filter_map(node_of).collect();
        assert_eq!(used, nodes.iter().map(String::as_str).collect());
        pods
    };
    let pods = everywhere(&nodes);
    // The scheduler has bound them to the nodes that the controller chose.
    assert!(pods.iter().all(|pod| pod["spec"]["schedulerName"] == "supercargo"));
    let term = &pods[0]["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    assert_eq!(term["nodeSelectorTerms"][0]["matchFields"][0]["key"], "metadata.name", "{term}");
    assert_eq!(scenario.scheduled_by(name_of(&pods[0])), "supercargo");

    nodes.extend(scenario.nodes(1, 1000));
    everywhere(&nodes);
    scenario.delete_node(&nodes.remove(1));
    scenario.eventually("nothing but the pods of the nodes that are left", || {
        (scenario.pods_of("agent").len() == nodes.len()).then_some(())
    });
    everywhere(&nodes);
}

#[test]
fn job_pods_reuse_resources_of_completed_pods() {
    let Some(scenario) = Scenario::begin("job") else { return };
    // Room for two pods at a time on each.
    scenario.nodes(2, 1000);
    let mut template = scenario.template("sums", 500);
    template["spec"]["restartPolicy"] = json!("Never");
    scenario.create(&json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": { "name": "sums" },
        "spec": { "completions": 12, "parallelism": 12, "template": template },
    }));
    let path = format!("/apis/batch/v1/namespaces/{}/jobs/sums", scenario.namespace);
    let job = scenario.eventually("the job is complete", || {
        scenario.fill(1000);
        let job = scenario.cluster().get(&path);
        let conditions = job["status"]["conditions"].as_array()?;
        conditions.iter().any(|condition| condition["type"] == "Complete").then_some(job.clone())
    });
    assert_eq!(job["status"]["succeeded"], 12, "{}", job["status"]);
    assert_eq!(job["status"]["failed"], Value::Null, "{}", job["status"]);
    let succeeded = scenario.pods().iter().filter(|pod| phase(pod) == "Succeeded").count();
    assert_eq!(succeeded, 12);
}
