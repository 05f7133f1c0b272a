//! The steps of the kind guide name existing files.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::install;
use super::render::is_yaml;
use crate::rbac::manifests;

/// The files with steps for readers.
const STEPS: &[&str] = &["docs/kind.md", "tests/kind/run.sh"];

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// The words of a text that name a file in `manifests/`.
fn files(text: &str) -> Vec<&str> {
    let words = text.split(|letter: char| letter.is_whitespace() || "`(),;".contains(letter));
    words.filter(|word| word.starts_with("manifests/") && is_yaml(word)).collect()
}

#[test]
fn kind_guide_names_existing_files() {
    for path in STEPS {
        let text = read(path);
        let files = files(&text);
        for needed in ["kind/cluster.yaml", "install.yaml", "examples/pod.yaml", "examples/too-large.yaml"] {
            assert!(files.contains(&format!("manifests/{needed}").as_str()), "{path} leaves out {needed}");
        }
        for file in files {
            assert!(Path::new(env!("CARGO_MANIFEST_DIR")).join(file).is_file(), "{path}: there is no {file}");
        }
    }
}

#[test]
fn kind_guide_installs_the_loaded_image() {
    let (text, image) = (read("docs/kind.md"), install::image());
    assert!(text.contains(&format!("docker build -t {image} .")), "{image}");
    assert!(text.contains(&format!("kind load docker-image {image} ")), "{image}");
}

#[test]
fn kind_cluster_has_the_documented_nodes() {
    let cluster = manifests::read("kind/cluster.yaml");
    assert_eq!(cluster["apiVersion"], "kind.x-k8s.io/v1alpha4");
    assert_eq!(cluster["kind"], "Cluster");
    let nodes = cluster["nodes"].as_array().unwrap();
    for path in STEPS {
        let reported = format!("0/{} nodes are available", nodes.len());
        assert!(read(path).contains(&reported), "{path} should say {reported}");
    }
    let workers = nodes.iter().filter(|node| node["role"] == "worker").count();
    for (app, count) in [("many", workers), ("everywhere", nodes.len())] {
        let reported = format!(" {count} nodes_of app=supercargo-{app}\n");
        assert!(read("tests/kind/run.sh").contains(&reported), "run.sh should say{reported}");
    }
}

#[test]
fn example_clusters_differ_in_name_and_size_only() {
    let (fits, mut large) =
        (manifests::read("examples/pod.yaml"), manifests::read("examples/too-large.yaml"));
    let place = "/spec/containers/0/resources";
    assert_ne!(fits.pointer(place), large.pointer(place));
    large["metadata"] = fits["metadata"].clone();
    *large.pointer_mut(place).unwrap() = fits.pointer(place).unwrap().clone();
    assert_eq!(fits, large);
}

#[test]
fn kind_script_is_valid_bash() {
    let check = |script: &str| {
        let output = Command::new("bash").args(["-n", "-c", script]).output().unwrap();
        output.status.success()
    };
    assert!(check(&read("tests/kind/run.sh")));
    assert!(!check("if true; then"), "bash takes anything");
}
