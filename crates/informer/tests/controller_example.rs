//! Runs the controller example to its end on its embedded cluster, with a paused clock.

#[allow(dead_code, reason = "its main")]
#[path = "../examples/controller.rs"]
mod controller;

use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use controller::common::Options;
use parking_lot::Mutex;

fn options(line: &str) -> Result<Options, String> {
    Options::parse(line.split_whitespace().map(str::to_owned)).map_err(|error| error.to_string())
}

async fn output_of(line: &str) -> Vec<String> {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let print = Arc::new({
        let lines = Arc::clone(&lines);
        move |line| lines.lock().push(line)
    });
    let options = options(line).expect("options");
    controller::run(&options, print).await.expect("an end in order");
    let lines = lines.lock();
    lines.clone()
}

fn position(lines: &[String], line: &str) -> usize {
    lines.iter().position(|other| other == line).unwrap_or_else(|| panic!("no {line:?} in {lines:#?}"))
}

#[tokio::test(start_paused = true)]
async fn controller_example_syncs_retries_drops_and_stops_in_order() {
    let lines = output_of("--embedded --for 5.5s").await;
    assert_eq!(lines[..2], ["Starting Pod controller", "3 pods known, starting 2 workers"]);
    assert_eq!(lines[lines.len() - 2..], ["Stopping Pod controller", "Stopped Pod controller"]);

    let syncs = |name: &str| {
        let line = format!("Sync/Add/Update for Pod {name}");
        lines.iter().filter(|other| **other == line).count()
    };
    assert_eq!((syncs("mypod"), syncs("web-1"), syncs("web-2")), (1, 2, 2), "{lines:#?}");
    let gone = position(&lines, "Pod default/web-1 does not exist anymore");
    assert!(position(&lines, "Sync/Add/Update for Pod web-1") < gone);
    assert!(gone < position(&lines, "Sync/Add/Update for Pod web-2"));

    for (name, error) in [("fails", "its label requests it"), ("panics", "the worker panicked")] {
        let failure = format!("Error syncing Pod default/{name}: {error}");
        assert_eq!(lines.iter().filter(|line| **line == failure).count(), 5, "{lines:#?}");
        let dropped = format!("Dropping Pod default/{name} out of the queue: {error}");
        assert!(lines.iter().rposition(|line| *line == failure) < Some(position(&lines, &dropped)));
        assert!(position(&lines, &dropped) < gone, "and the workers went on");
        assert_eq!(lines.iter().filter(|line| line.contains(name)).count(), 6, "after that it is left alone");
    }
}

#[tokio::test(start_paused = true)]
async fn controller_example_starts_workers_after_the_handlers_sync() {
    // Accepts connections, and never responds.
    let mute = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let server = format!("http://{}", mute.local_addr().unwrap());
    let kubeconfig = serde_json::json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "mute",
        "clusters": [{"name": "mute", "cluster": {"server": server}}],
        "contexts": [{"name": "mute", "context": {"cluster": "mute", "user": ""}}],
    });
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("controller_example_kubeconfig.json");
    std::fs::write(&file, kubeconfig.to_string()).unwrap();
    let lines = output_of(&format!("--kubeconfig {} --for 5s", file.display())).await;
    std::fs::remove_file(file).unwrap();
    let expected = [
        "Starting Pod controller",
        "Timed out waiting for caches to sync",
        "Stopping Pod controller",
        "Stopped Pod controller",
    ];
    assert_eq!(lines, expected);
}

#[test]
fn examples_report_unknown_options() {
    let understood = options("--kubeconfig some/file --for 3").unwrap();
    assert_eq!(understood.kubeconfig.as_deref(), Some("some/file".as_ref()));
    assert_eq!((understood.run_for, understood.embedded), (Some(Duration::from_secs(3)), false));
    for wrong in ["--kubeconfig", "--for", "--for soon", "--for -1s", "--for 1e30s", "--workers", "pods"] {
        assert!(options(wrong).is_err(), "{wrong}");
    }
}
