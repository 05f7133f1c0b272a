//! kube-scheduler gives the same answers.

use serde_json::{Value, json};
use supercargo_controlplane::{Handle, SchedulerOptions};

use super::test_bed::{TestBed, bed_or_skip, ready};
use crate::support::{Answered, Https, free_port};

/// Starts kube-scheduler with its endpoints on a port that was free a moment ago.
fn kube_scheduler(bed: &TestBed) -> (Https, Handle) {
    let folder = tempfile::tempdir_in(bed.folder.path()).unwrap().keep();
    let kubeconfig = bed.plane.kubeconfig("system:kube-scheduler").unwrap();
    let port = free_port();
    let extra_args = vec![
        format!("--secure-port={port}"),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--cert-dir={}", folder.display()),
        format!("--authentication-kubeconfig={}", kubeconfig.display()),
        format!("--authorization-kubeconfig={}", kubeconfig.display()),
    ];
    let options = SchedulerOptions {
        scheduler_name: "nobody-asks-for-it".to_owned(),
        extra_args,
        ..SchedulerOptions::default()
    };
    let handle = bed.plane.start_kube_scheduler(&options).unwrap();
    let client = ready(port, &folder, String::new);
    (client, handle)
}

/// The parts of an answer that must be equal.
fn received(answered: &Answered) -> (u16, &str, &str, Value) {
    let body = serde_json::from_str(&answered.body).unwrap_or_else(|_| json!(answered.body));
    (answered.status, answered.header("content-type"), answered.header("cache-control"), body)
}

/// The results of the health checks, without the one that only supercargo has.
fn health_checks(of: &Https, token: &str) -> Vec<String> {
    let text = of.get("/metrics/slis", Some(token)).body;
    let lines = text.lines().filter(|line| line.starts_with("kubernetes_healthcheck{"));
    let lines: Vec<String> =
        lines.filter(|line| !line.contains("name=\"scheduler\"")).map(str::to_owned).collect();
    assert!(!lines.is_empty(), "{text}");
    lines
}

#[test]
fn endpoint_answers_match_kube_scheduler() {
    let Some(bed) = bed_or_skip() else { return };
    let (theirs, _running) = kube_scheduler(&bed);
    let (_supercargo, ours, _) = bed.process("supercargo", &[]);
    let (reader, stranger) = (bed.account("compared-reader"), bed.account("compared-stranger"));
    bed.allow("compared-reader", &json!([{"nonResourceURLs": ["*"], "verbs": ["get"]}]));

    let health = [
        "/healthz",
        "/healthz?verbose",
        "/livez?verbose",
        "/readyz?verbose",
        "/readyz?verbose&exclude=shutdown&exclude=x&exclude=a",
    ];
    for path in health {
        let (mut ours, theirs) = (ours.get(path, None), theirs.get(path, None));
        // The only additional check of supercargo: see docs/endpoints.md.
        ours.body = ours.body.replace("[+]scheduler ok\n", "");
        assert_eq!(received(&ours), received(&theirs), "{path}");
    }
    for path in ["/healthz?verbose", "/livez?verbose"] {
        assert!(ours.get(path, None).body.contains("[+]scheduler ok\n"), "{path}");
    }
    assert_eq!(health_checks(&ours, &reader), health_checks(&theirs, &reader));
    for path in ["/livez/ping", "/readyz/shutdown", "/readyz/nothing", "/nothing"] {
        let (ours, theirs) = (ours.get(path, Some(&reader)), theirs.get(path, Some(&reader)));
        assert_eq!((ours.status, &ours.body), (theirs.status, &theirs.body), "{path}");
    }
    for path in ["/metrics", "/configz", "/livez/ping"] {
        for token in [&*stranger, "made-up"] {
            let (ours, theirs) = (ours.get(path, Some(token)), theirs.get(path, Some(token)));
            assert_eq!(received(&ours), received(&theirs), "{path}");
        }
    }
    for path in ["/metrics", "/metrics/resources", "/metrics/slis"] {
        let (ours, theirs) = (ours.get(path, Some(&reader)), theirs.get(path, Some(&reader)));
        assert_eq!((ours.status, theirs.status), (200, 200), "{path}");
        let format = |answered: &Answered| {
            answered.header("content-type").split("; charset").next().unwrap().to_owned()
        };
        assert_eq!(format(&ours), format(&theirs), "{path}");
    }
    let configuration = |client: &Https| -> Value {
        serde_json::from_str(&client.get("/configz", Some(&reader)).body).unwrap()
    };
    let (ours_configuration, theirs_configuration) = (configuration(&ours), configuration(&theirs));
    for configuration in [&ours_configuration, &theirs_configuration] {
        assert_eq!(configuration.as_object().unwrap().keys().collect::<Vec<_>>(), ["componentconfig"]);
        assert_eq!(configuration["componentconfig"]["kind"], "KubeSchedulerConfiguration");
    }
    // The only difference: see docs/deviations.md.
    assert_eq!((ours.get("/metrics", None).status, theirs.get("/metrics", None).status), (401, 403));
    let (ours, theirs) = (ours.get("/livez", Some("made-up")), theirs.get("/livez", Some("made-up")));
    assert_eq!((ours.status, theirs.status), (200, 401));
}
