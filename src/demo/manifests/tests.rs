use std::fs;

use super::*;

/// The plan of a folder with these files, or the error.
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
fn plan_has_nodes_pods_and_workloads() {
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
    assert_eq!(named(&plan, "Pod"), ["default/p"]);
    for (kind, name) in [
        ("Deployment", "web"),
        ("StatefulSet", "db"),
        ("ReplicaSet", "one"),
        ("Job", "job"),
        ("DaemonSet", "agent"),
    ] {
        assert_eq!(named(&plan, kind), [format!("shop/{name}")]);
    }
    assert_eq!(plan.pods, 9);
    let web = plan.objects().find(|object| object.name() == "web").unwrap();
    assert_eq!(web.collection(), "/apis/apps/v1/namespaces/shop/deployments");
    assert_eq!(web.value["spec"]["template"]["spec"]["schedulerName"], "supercargo");
    assert!(plan.first.iter().all(|object| object.value["metadata"]["uid"].is_null()));
    assert!(plan.steps.is_sorted_by_key(|step| step.at));
    assert_eq!(
        plan.notes,
        [
            "9 pods were given spec.schedulerName supercargo here; in a cluster, set it in the manifests.",
            "Skipped: 1 Service."
        ]
    );
}

#[test]
fn output_of_kubectl_get_is_accepted() {
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
            "1 pod was on nodes that are not in the manifests; they are scheduled again.",
            "1 pod was given spec.schedulerName supercargo here; in a cluster, set it in the manifests.",
            "Skipped: 1 finished pod."
        ]
    );
}

#[test]
fn classes_slices_templates_and_claims_come_before_pods() {
    let devices = "apiVersion: resource.k8s.io/v1\nkind: List\nitems:\n\
        - {apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {name: c, namespace: shop}, status: {allocation: {}}}\n\
        - {apiVersion: resource.k8s.io/v1, kind: ResourceClaimTemplate, metadata: {name: t}}\n\
        - {apiVersion: resource.k8s.io/v1, kind: ResourceSlice, metadata: {name: s}}\n\
        - {apiVersion: resource.k8s.io/v1, kind: DeviceClass, metadata: {name: d}}\n";
    let plan = planned(&[("p.yaml", POD), ("devices.yaml", devices)]).unwrap();
    let paths: Vec<String> = plan.first.iter().map(Manifest::collection).collect();
    for path in [
        "namespaces/shop/resourceclaims",
        "namespaces/default/resourceclaimtemplates",
        "resourceslices",
        "deviceclasses",
    ] {
        assert!(paths.contains(&format!("/apis/resource.k8s.io/v1/{path}")), "{path}: {paths:?}");
    }
    let claim = plan.objects().find(|object| object.name() == "c").unwrap();
    assert_eq!(claim.value.get("status"), None, "it is allocated again");
    assert_eq!(named(&plan, "Namespace"), ["default/shop"]);
}

#[test]
fn nodes_of_the_demo_are_the_default() {
    let plan = planned(&[("p.yaml", POD)]).unwrap();
    assert_eq!(named(&plan, "Node"), ["default/own"]);
    assert_eq!(plan.notes[0], "No nodes in the manifests; using 1 node of the demo.");
}

#[test]
fn expected_pods_of_a_daemon_set_include_nodes_of_the_demo() {
    let daemons = "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: d}\nspec: {template: {spec: {containers: []}}}\n";
    assert_eq!(planned(&[("d.yaml", daemons)]).unwrap().pods, 1);
}

#[test]
fn cron_job_becomes_its_first_job() {
    let cron_job = "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: app, namespace: shop}\nspec:\n  \
                    jobTemplate: {spec: {parallelism: 2, template: {spec: {containers: []}}}}\n";
    let plan = planned(&[("c.yaml", cron_job)]).unwrap();
    assert_eq!((named(&plan, "Job"), plan.pods), (vec!["shop/app-1".to_owned()], 2));
    let job = plan.objects().find(|object| object.kind() == "Job").unwrap();
    assert_eq!(job.value["spec"]["template"]["spec"]["schedulerName"], "supercargo");
}

#[test]
fn errors_have_a_position_and_a_remedy() {
    let deployment = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec: ";
    let cases: &[(&str, &[&str])] = &[
        ("kind: Pod\n  metadata: x\n", &["f.yaml:2:", "this is not YAML", "fix it"]),
        ("a: 1\na: 2\n", &["f.yaml:2:1: this is not YAML: duplicate mapping key: a; fix it"]),
        ("a: 1\nb: {{ .Values.b }}\n", &["f.yaml:2:", "if it is a template"]),
        ("a: [1, 2\n", &["f.yaml:", "this is not YAML"]),
        ("- a\n- b\n", &["f.yaml:1:1: not a Kubernetes object"]),
        ("apiVersion: v1\nmetadata: {name: x}\n", &["f.yaml:1:1: kind is missing"]),
        ("---\nkind: Pod\n", &["f.yaml:2:1: apiVersion is missing"]),
        ("apiVersion: v1\nkind: Pod\nspec: {}\n", &["f.yaml:1:1: Pod without a name; set metadata.name"]),
        (
            &format!("{deployment}{{replicas: two, template: {{spec: {{}}}}}}"),
            &["f.yaml:1:1: spec.replicas of Deployment d must be a number, is \"two\""],
        ),
        (
            &format!("{deployment}{{replicas: 99999999, template: {{spec: {{}}}}}}"),
            &["DIR: 99999999 pods; at most 50000 are supported"],
        ),
        (&format!("{deployment}{{}}"), &["f.yaml:1:1: Deployment d has no pod template; set spec.template"]),
        ("apiVersion: v1\nkind: Service\nmetadata: {name: s}\n", &["DIR: no pods and no workloads"]),
        ("", &["DIR: no pods and no workloads"]),
        (
            "{apiVersion: v1, kind: List, items: [{kind: Pod}]}",
            &["f.yaml:1:1: items[0]: apiVersion is missing"],
        ),
        ("{apiVersion: v1, kind: List, items: [7]}", &["items[0]: not a Kubernetes object"]),
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
