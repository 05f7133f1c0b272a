//! Authentication and authorization of the endpoints on a real API server, and comparison with
//! kube-scheduler.

mod test_bed;
mod upstream;

use std::fs;
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use self::test_bed::bed_or_skip;
use crate::support::{answer, eventually, pod};

/// Every path except health checks.
const GUARDED: &[&str] = &[
    "/",
    "/metrics",
    "/metrics/resources",
    "/metrics/slis",
    "/configz",
    "/flagz",
    "/statusz",
    "/debug/cache",
    "/debug/flags/v",
    "/debug/pprof/heap",
    "/insight/",
    "/insight/assets/main.js",
    "/insight/capture",
    "/insight/decisions",
    "/insight/devices",
    "/insight/empty",
    "/insight/fits",
    "/insight/groups",
    "/insight/node",
    "/insight/overview",
    "/insight/pending",
    "/insight/pod",
    "/insight/resilience",
    "/insight/search",
    "/insight/stream",
    "/insight/timeline",
    "/insight/what-if",
    "/insight/why",
    "/debug/queue",
    "/healthz/ping",
    "/livez/ping",
    "/readyz/shutdown",
    "/nothing",
];
const OPEN: &[&str] = &["/healthz", "/livez", "/readyz"];
/// Longer than any condition here takes on a busy machine.
const PATIENCE: Duration = Duration::from_mins(1);

#[test]
fn tokens_are_authorized_by_role() {
    let Some(bed) = bed_or_skip() else { return };
    let (reader, stranger) = (bed.account("token-reader"), bed.account("token-stranger"));
    bed.allow("token-reader", &json!([{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]));
    let server = bed.serve("supercargo", &bed.options());
    let client = server.client(None);
    for path in GUARDED {
        for token in [None, Some("made-up")] {
            assert_eq!(client.get(path, token).status, 401, "{path}");
        }
        let answered = client.get(path, Some(&stranger));
        assert_eq!(answered.status, 403, "{path}");
        let user = "system:serviceaccount:default:token-stranger";
        let body: Value = serde_json::from_str(&answered.body).unwrap();
        assert_eq!(body["message"], format!("forbidden: User {user:?} cannot get path {path:?}"));
        let expected = if *path == "/metrics" { 200 } else { 403 };
        assert_eq!(client.get(path, Some(&reader)).status, expected, "{path}");
        // The group system:masters.
        let admin = client.get(path, Some(bed.plane.token("admin").unwrap())).status;
        assert!(![401, 403].contains(&admin), "{path}: {admin}");
    }
    assert_eq!(client.get("/metrics", Some(&reader)).body, "a_metric 1\n");
    let post = client.try_send(Method::POST, "/metrics", Some(&reader), "").unwrap();
    assert_eq!(post.status, 403, "it may only read");
    for path in OPEN {
        for token in [None, Some("made-up"), Some(&*stranger)] {
            let answered = client.get(path, token);
            assert_eq!((answered.status, answered.body.as_str()), (200, "ok"), "{path}");
        }
    }
}

#[test]
fn client_certificates_are_accepted_after_ca_lookup() {
    let Some(bed) = bed_or_skip() else { return };
    bed.allow_user("certificate-reader", &json!([{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]));
    let server = bed.serve("supercargo", &bed.options());
    let status = |name: &str, group: Option<&str>, path: &str| {
        server.client(Some(&bed.authority.client(name, group))).get(path, None).status
    };
    let looked_up = || (status("certificate-reader", None, "/metrics") == 200).then_some(());
    eventually("the authority is looked up", PATIENCE, looked_up, String::new);
    assert_eq!(status("certificate-reader", None, "/configz"), 403);
    assert_eq!(status("certificate-stranger", None, "/metrics"), 403);
    assert_eq!(status("certificate-root", Some("system:masters"), "/configz"), 200);
    let other = test_bed::Authority::new();
    let strange = other.client("certificate-root", Some("system:masters"));
    assert_eq!(server.client(Some(&strange)).get("/metrics", None).status, 401);
    assert_eq!(server.client(Some(&strange)).get("/livez", None).status, 200);
}

#[test]
fn without_review_permissions_every_caller_is_rejected() {
    let Some(bed) = bed_or_skip() else { return };
    let reader = bed.account("needs-reader");
    bed.allow("needs-reader", &json!([{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]));
    let may = |user: &str, group: &str, resource: &str| {
        bed.allow_user(user, &json!([{"apiGroups": [group], "resources": [resource], "verbs": ["create"]}]));
    };
    may("only-tokens", "authentication.k8s.io", "tokenreviews");
    may("only-access", "authorization.k8s.io", "subjectaccessreviews");
    let get = |server: &test_bed::Served, token| server.client(None).get("/metrics", Some(token)).status;

    let server = bed.serve("only-tokens", &bed.options());
    assert_eq!(get(&server, &reader), 500, "whether it may is not known");
    let server = bed.serve("only-access", &bed.options());
    assert_eq!(get(&server, &reader), 401, "who it is is not known");
    // Neither user may read the cluster's client CA. With an explicit flag, that prevents the
    // start.
    let jane = bed.authority.client("jane", Some("system:masters"));
    assert_eq!(server.client(Some(&jane)).get("/metrics", None).status, 401);
    let mut intolerant = bed.options();
    intolerant.authentication.tolerate_lookup_failure = false;
    let error = bed.try_serve("only-access", &intolerant).err().unwrap();
    assert!(error.contains("extension-apiserver-authentication") && error.contains("403"), "{error}");
    bed.try_serve("supercargo", &intolerant).unwrap();
}

#[test]
fn ca_files_replace_cluster_ca_and_are_reloaded() {
    let Some(bed) = bed_or_skip() else { return };
    let (first, second) = (test_bed::Authority::new(), test_bed::Authority::new());
    let file = bed.folder.path().join("followed-ca.crt");
    fs::write(&file, &first.pem).unwrap();
    let mut options = bed.options();
    options.authentication.client_ca_file = Some(file.clone());
    let server = bed.serve("supercargo", &options);
    let status = |authority: &test_bed::Authority| {
        let root = authority.client("root", Some("system:masters"));
        server.client(Some(&root)).get("/metrics", None).status
    };
    assert_eq!((status(&first), status(&second), status(&bed.authority)), (200, 401, 401));
    fs::write(&file, "not PEM").unwrap();
    fs::write(&file, &second.pem).unwrap();
    eventually(
        "the new authority is believed",
        PATIENCE,
        || (status(&second) == 200).then_some(()),
        String::new,
    );
    assert_eq!(status(&first), 401);
}

#[test]
fn scheduler_serves_every_endpoint_and_logs_no_secrets() {
    let Some(bed) = bed_or_skip() else { return };
    let (token, admin) = (bed.account("logged"), bed.plane.token("admin").unwrap());
    let (supercargo, client, [url, certificate]) = bed.process("supercargo", &["--insight"]);
    let statusz = client.get("/statusz", Some(admin)).body;
    let served = statusz.lines().find_map(|line| line.strip_prefix("Paths: ")).unwrap();
    for path in served.split_whitespace() {
        assert!(
            GUARDED.contains(&path) || OPEN.contains(&path),
            "nobody asks for {path} without being allowed to"
        );
    }
    for path in GUARDED {
        assert_eq!(client.get(path, None).status, 401, "{path}");
        let expected = match *path {
            "/" | "/nothing" | "/debug/pprof/heap" => 404,
            // The request names nothing.
            path if ["/insight/node", "/insight/pod", "/insight/search"].contains(&path) => 404,
            // It lasts: `page::doors` reads one.
            "/insight/stream" => continue,
            // These need arguments.
            "/insight/why" | "/insight/fits" | "/insight/what-if" | "/insight/timeline" => 400,
            // There is no node.
            "/insight/resilience" => 422,
            _ => 200,
        };
        assert_eq!(client.get(path, Some(admin)).status, expected, "{path}");
    }
    let tokens = tempfile::tempdir().unwrap();
    let ask = |token: &str| {
        let file = tokens.path().join("token");
        std::fs::write(&file, token).unwrap();
        let file = file.display().to_string();
        let server = ["--server", &url, "--certificate-authority", &certificate, "--token-file", &file];
        answer(&[&["pending", "--namespace=nobody"][..], &server[..]].concat())
    };
    assert_eq!(ask(admin), (Some(0), "No pod is pending\n".to_owned(), String::new()));
    let (code, _, error) = ask(&token);
    assert!(code == Some(3) && error.contains("supercargo-insight-reader"), "{error}");
    // From here on, the log level is the highest.
    let set = client.try_send(Method::PUT, "/debug/flags/v", Some(admin), "10").unwrap();
    assert_eq!((set.status, set.body.as_str()), (200, "logging trace from now on\n"));
    assert_eq!(client.get("/metrics?password=hunter2", Some(&token)).status, 403);
    assert_eq!(client.get("/configz", Some("made-up-secret")).status, 401);
    let mut secretive = pod("secretive").by("supercargo").build();
    secretive["spec"]["containers"][0]["env"] = json!([{"name": "PASSWORD", "value": "pod-secret"}]);
    bed.create(&secretive);
    supercargo.wait_for_line(&["default/secretive"]);
    supercargo.wait_for_line(&["/metrics", "status=403"]);
    supercargo.wait_for_line(&["/configz", "status=401"]);
    let log = supercargo.log();
    supercargo.stop();
    let own = bed.plane.token("supercargo").unwrap();
    for secret in [&token, admin, own, "made-up-secret", "hunter2", "pod-secret"] {
        let line = log.lines().find(|line| line.contains(secret));
        assert_eq!(line, None, "{secret} should not be there");
    }
}

#[test]
fn without_api_server_callers_are_rejected_and_health_is_ok() {
    // Nothing listens on this port.
    let server = test_bed::serve_nowhere();
    let client = server.client(None);
    assert_eq!(client.get("/metrics", Some("any")).status, 401);
    assert_eq!(client.get("/metrics", None).status, 401);
    assert_eq!(client.get("/readyz", Some("any")).status, 200);
}
