//! References between manifests, configuration and arguments resolve.

use clap::Parser as _;
use supercargo::cli::Cli;
use supercargo_config::{Catalog, Config};

use super::manifests::{self, text};

fn parse(config: &str) -> Result<Config, String> {
    Config::parse("config.yaml", config, &Catalog::in_tree()).map_err(|errors| errors.to_string())
}

#[test]
fn manifest_config_has_the_profile_of_the_example() {
    let config = parse(&manifests::config()).unwrap();
    let names: Vec<&str> = config.profiles.iter().map(|profile| &*profile.scheduler_name).collect();
    assert_eq!(names, ["supercargo"]);
    let example = manifests::read("examples/pod.yaml");
    assert_eq!(example["spec"]["schedulerName"], "supercargo");

    let misspelt = manifests::config().replace("schedulerName", "schedulersName");
    let errors = parse(&misspelt).unwrap_err();
    assert!(errors.contains("schedulersName"), "{errors}");
}

#[test]
fn deployment_arguments_are_valid() {
    let args = manifests::args();
    let command = |args: &[String]| {
        let words = std::iter::once("supercargo").chain(args.iter().map(String::as_str));
        Cli::try_parse_from(words).map(|_| ())
    };
    command(&args).unwrap();
    let more = [&args[..], &["--no-such-flag".to_owned()]].concat();
    assert!(command(&more).is_err());

    let pod = manifests::pod_of(&manifests::object("Deployment"));
    let (container, volume) = (&pod["spec"]["containers"][0], &pod["spec"]["volumes"][0]);
    let mount = &container["volumeMounts"][0];
    assert_eq!(mount["name"], volume["name"]);
    assert_eq!(volume["configMap"]["name"], manifests::object("ConfigMap")["metadata"]["name"]);
    let file = format!("--config={}/config.yaml", text(&mount["mountPath"]));
    assert!(args.contains(&file), "{args:?} should have {file}");
}

#[test]
fn manifest_references_resolve() {
    let namespace = manifests::object("Namespace")["metadata"]["name"].clone();
    let account = manifests::object("ServiceAccount");
    let mut bindings = Vec::new();
    for object in manifests::base() {
        match text(&object["kind"]) {
            "Namespace" | "ClusterRole" => {}
            "ClusterRoleBinding" => bindings.push(object),
            // The namespace of the Lease, and that of the cluster's client CA.
            "Role" => assert_eq!(object["metadata"]["namespace"], "kube-system"),
            "RoleBinding" => {
                assert_eq!(object["metadata"]["namespace"], "kube-system");
                bindings.push(object);
            }
            _ => assert_eq!(object["metadata"]["namespace"], namespace, "{object}"),
        }
    }
    for binding in &bindings {
        assert_eq!(binding["subjects"].as_array().map(Vec::len), Some(1));
        assert_eq!(binding["subjects"][0]["name"], account["metadata"]["name"]);
        assert_eq!(binding["subjects"][0]["namespace"], namespace);
    }
    let roles: Vec<(&str, &str)> = bindings
        .iter()
        .map(|binding| (text(&binding["roleRef"]["kind"]), text(&binding["roleRef"]["name"])))
        .collect();
    let [cluster_role, role] =
        ["ClusterRole", "Role"].map(|kind| manifests::object(kind)["metadata"]["name"].clone());
    // The last one belongs to the cluster.
    let expected = [
        ("ClusterRole", text(&cluster_role)),
        ("Role", text(&role)),
        ("Role", "extension-apiserver-authentication-reader"),
    ];
    assert_eq!(roles, expected);

    let deployment = manifests::object("Deployment");
    let pod = manifests::pod_of(&manifests::object("Deployment"));
    assert_eq!(pod["spec"]["serviceAccountName"], account["metadata"]["name"]);
    assert_eq!(deployment["spec"]["selector"]["matchLabels"], pod["metadata"]["labels"]);
    let service = manifests::object("Service");
    assert_eq!(service["spec"]["selector"], pod["metadata"]["labels"]);
    let ports = &pod["spec"]["containers"][0]["ports"];
    assert_eq!(service["spec"]["ports"][0]["targetPort"], ports[0]["name"]);
    for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
        assert_eq!(pod["spec"]["containers"][0][probe]["httpGet"]["port"], ports[0]["name"], "{probe}");
    }
    let quota = manifests::object("ResourceQuota");
    let scope = &quota["spec"]["scopeSelector"]["matchExpressions"][0];
    assert_eq!(scope["values"][0], pod["spec"]["priorityClassName"]);
}

#[test]
fn kustomization_lists_every_file_and_the_current_image() {
    let kustomization = manifests::read("base/kustomization.yaml");
    let mut listed: Vec<String> = serde_json::from_value(kustomization["resources"].clone()).unwrap();
    listed.push("kustomization.yaml".to_owned());
    listed.sort();
    let base = manifests::root().join("base");
    let mut files: Vec<String> = std::fs::read_dir(base)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    files.sort();
    assert_eq!(listed, files);

    let pod = manifests::pod_of(&manifests::object("Deployment"));
    let image = &kustomization["images"][0];
    assert_eq!(image["name"], pod["spec"]["containers"][0]["image"]);
    assert_eq!(image["newTag"], env!("CARGO_PKG_VERSION"));
}
