use std::fs;

use super::*;

/// The plan of a folder with these files, or what is wrong with it.
fn planned(files: &[(&str, &str)]) -> Result<Plan, String> {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(folder.path().join(name), text).unwrap();
    }
    let own = || vec![Manifest::new(json!({ "kind": "Node", "metadata": { "name": "own" } }))];
    let error = |error: anyhow::Error| {
        format!("{error:#}")
            .replace(&format!("{}/", folder.path().display()), "")
            .replace(&folder.path().display().to_string(), "DIR")
    };
    plan(folder.path(), "supercargo", own).map_err(error)
}

fn named(plan: &Plan, kind: &str) -> Vec<String> {
    let objects = plan.objects().filter(|object| object.kind() == kind);
    objects.map(|object| format!("{}/{}", object.namespace(), object.name())).collect()
}

fn pod<'a>(plan: &'a Plan, name: &str) -> &'a Manifest {
    plan.objects().find(|object| object.kind() == "Pod" && object.name() == name).unwrap()
}

const POD: &str =
    "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, image: i}]}\n";

#[test]
fn nodes_pods_and_workloads_become_a_plan() {
    let workload = |kind: &str, name: &str, extra: &str| {
        format!(
            "apiVersion: apps/v1\nkind: {kind}\nmetadata: {{name: {name}, namespace: shop}}\nspec:\n  {extra}\n  template:\n    \
             metadata: {{labels: {{app: {name}}}}}\n    spec: {{containers: [{{name: c, image: i}}]}}\n---\n"
        )
    };
    let text = [
        workload("Deployment", "web", "replicas: 2"),
        workload("StatefulSet", "db", "replicas: 2"),
        workload("ReplicaSet", "one", "selector: {}"),
        workload("Job", "job", "{parallelism: 3, completions: 2}")
            .replace("{parallelism: 3, completions: 2}", "parallelism: 3\n  completions: 2"),
        workload("DaemonSet", "agent", "selector: {}"),
        "apiVersion: v1\nkind: Service\nmetadata: {name: s}\n---\n".to_owned(),
    ]
    .concat();
    let node = "apiVersion: v1\nkind: Node\nmetadata: {name: n1, uid: x, labels: {a: b}}\nstatus: {allocatable: {pods: 9}}\n";
    let plan = planned(&[("1.yaml", node), ("2.yaml", &text), ("3.yml", POD), ("notes.txt", "not YAML: [")])
        .unwrap();
    assert_eq!(named(&plan, "Node"), ["default/n1"]);
    assert_eq!(named(&plan, "Namespace"), ["default/shop"]);
    let expected = [
        "default/p",
        "shop/web-1",
        "shop/web-2",
        "shop/db-0",
        "shop/db-1",
        "shop/one-1",
        "shop/job-1",
        "shop/job-2",
        "shop/agent-1",
    ];
    assert_eq!(named(&plan, "Pod"), expected);
    assert_eq!(pod(&plan, "web-2").value["metadata"]["labels"]["app"], "web");
    let terms =
        "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
    let pinned = pod(&plan, "agent-1").value.pointer(terms).unwrap();
    assert_eq!(pinned[0]["matchFields"][0]["values"], json!(["n1"]));
    assert!(plan.first.iter().all(|object| object.value["metadata"]["uid"].is_null()));
    assert!(plan.steps.is_sorted_by_key(|step| step.at));
    assert_eq!(
        plan.notes,
        [
            "9 pods were given spec.schedulerName supercargo here; in a cluster, set it in the manifests.",
            "Left out: 1 Service."
        ]
    );
}

#[test]
fn what_kubectl_prints_can_be_scheduled_again() {
    let list = r#"{"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "resourceVersion": "7"}, "status": {"capacity": {"pods": "1"}}},
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "here", "uid": "u", "ownerReferences": [{}]},
         "spec": {"nodeName": "n1", "schedulerName": "default-scheduler"}, "status": {"phase": "Running"}},
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "away"}, "spec": {"nodeName": "n9"}, "status": {"phase": "Running"}},
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "done"}, "spec": {}, "status": {"phase": "Succeeded"}}
    ]}"#;
    let typed = "apiVersion: v1\nkind: PodList\nitems:\n- metadata: {name: typed}\n  spec: {schedulerName: supercargo}\n";
    let plan = planned(&[("all.json", list), ("typed.yaml", typed)]).unwrap();
    assert_eq!(named(&plan, "Pod"), ["default/here", "default/away", "default/typed"]);
    let here = &pod(&plan, "here").value;
    assert_eq!(
        (&here["spec"]["nodeName"], &here["spec"]["schedulerName"]),
        (&json!("n1"), &json!("default-scheduler"))
    );
    assert_eq!((here.get("status"), here["metadata"].get("ownerReferences")), (None, None));
    let away = &pod(&plan, "away").value["spec"];
    assert_eq!((away.get("nodeName"), &away["schedulerName"]), (None, &json!("supercargo")));
    assert_eq!(pod(&plan, "typed").value["apiVersion"], "v1");
    assert_eq!(
        plan.notes,
        [
            "1 pod was on nodes that are not here; they are scheduled anew.",
            "1 pod was given spec.schedulerName supercargo here; in a cluster, set it in the manifests.",
            "1 pod that has ended is left out."
        ]
    );
}

#[test]
fn without_nodes_the_demos_are_used() {
    let plan = planned(&[("p.yaml", POD)]).unwrap();
    assert_eq!(named(&plan, "Node"), ["default/own"]);
    assert_eq!(plan.notes[0], "The folder has no nodes; the demo's 1 are used.");
}

#[test]
fn a_daemon_set_has_pods_on_the_demos_nodes_too() {
    let daemons = "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: d}\nspec: {template: {spec: {containers: []}}}\n";
    assert_eq!(named(&planned(&[("d.yaml", daemons)]).unwrap(), "Pod"), ["default/d-1"]);
}

#[test]
fn the_pods_of_a_stateful_set_have_its_claims() {
    let set = "apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: db}\nspec:\n  replicas: 2\n  \
               template: {spec: {volumes: [{name: data, emptyDir: {}}, {name: tmp, emptyDir: {}}], containers: []}}\n  \
               volumeClaimTemplates: [{metadata: {name: data}}, {metadata: {name: log}}]\n";
    let plan = planned(&[("s.yaml", set)]).unwrap();
    let claim =
        |name: &str, claim: &str| json!({"name": name, "persistentVolumeClaim": {"claimName": claim}});
    let tmp = json!({"name": "tmp", "emptyDir": {}});
    let expected = json!([tmp, claim("data", "data-db-1"), claim("log", "log-db-1")]);
    assert_eq!(pod(&plan, "db-1").value["spec"]["volumes"], expected);
}

#[test]
fn workloads_of_one_name_have_pods_of_different_names() {
    let workload = |kind: &str, spec: &str| {
        format!("apiVersion: x/v1\nkind: {kind}\nmetadata: {{name: app}}\nspec: {{{spec}}}\n---\n")
    };
    let template = "template: {spec: {containers: []}}";
    let deployment = workload("Deployment", template);
    let cron = workload("CronJob", &format!("jobTemplate: {{spec: {{{template}}}}}"));
    let plan = planned(&[("a.yaml", &deployment), ("b.yaml", &cron)]).unwrap();
    assert_eq!(named(&plan, "Pod"), ["default/app-1", "default/app-cronjob-1"]);
    let error = planned(&[("a.yaml", &deployment), ("b.yaml", &deployment)]).unwrap_err();
    assert_eq!(error, "b.yaml:1:1: Deployment app is there twice; take one of them out");
}

#[test]
fn what_is_wrong_is_said_with_its_place_and_what_to_do() {
    let deployment = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec: ";
    let cases: &[(&str, &[&str])] = &[
        ("kind: Pod\n  metadata: x\n", &["f.yaml:2:", "this is not YAML", "correct it"]),
        ("a: 1\na: 2\n", &["f.yaml:2:1: this is not YAML: duplicate mapping key: a; correct it"]),
        ("a: 1\nb: {{ .Values.b }}\n", &["f.yaml:2:", "is it a template?"]),
        ("a: [1, 2\n", &["f.yaml:", "this is not YAML"]),
        ("- a\n- b\n", &["f.yaml:1:1: not an object of Kubernetes"]),
        ("apiVersion: v1\nmetadata: {name: x}\n", &["f.yaml:1:1: kind is missing"]),
        ("---\nkind: Pod\n", &["f.yaml:2:1: apiVersion is missing"]),
        ("apiVersion: v1\nkind: Pod\nspec: {}\n", &["f.yaml:1:1: a Pod without a name; set metadata.name"]),
        (
            &format!("{deployment}{{replicas: two, template: {{spec: {{}}}}}}"),
            &["f.yaml:1:1: spec.replicas of Deployment d must be a number, is \"two\""],
        ),
        (
            &format!("{deployment}{{replicas: 99999999, template: {{spec: {{}}}}}}"),
            &["99999999 pods, which is too many", "lower spec.replicas"],
        ),
        (&format!("{deployment}{{}}"), &["f.yaml:1:1: Deployment d has no pod template; set spec.template"]),
        ("apiVersion: v1\nkind: Service\nmetadata: {name: s}\n", &["DIR: no pods in it"]),
        ("", &["DIR: no pods in it"]),
        (
            "{apiVersion: v1, kind: List, items: [{kind: Pod}]}",
            &["f.yaml:1:1: items[0]: apiVersion is missing"],
        ),
        ("{apiVersion: v1, kind: List, items: [7]}", &["items[0]: not an object"]),
    ];
    for (text, expected) in cases {
        let error = planned(&[("f.yaml", text)]).unwrap_err();
        for part in *expected {
            assert!(error.contains(part), "{text:?}: {error}");
        }
    }
    assert!(planned(&[("x.txt", "")]).unwrap_err().contains("no .yaml, .yml or .json file"));
    let missing = plan(Path::new("/nowhere/at/all"), "s", Vec::new).unwrap_err();
    assert!(format!("{missing:#}").contains("--manifests /nowhere/at/all: No such file"), "{missing:#}");
}
