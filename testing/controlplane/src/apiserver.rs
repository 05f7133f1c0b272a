//! The API server.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::json;

use crate::certs::Certs;
use crate::controlplane::Options;
use crate::http::{Client, Method};
use crate::process::{Process, Workspace, wait_until};

/// Starts kube-apiserver, also again on the same port.
#[derive(Debug)]
pub(crate) struct Launcher {
    program: PathBuf,
    args: Vec<String>,
    gogc: Option<u32>,
    client: Client,
    token: String,
}

impl Launcher {
    pub(crate) fn new(
        program: PathBuf,
        args: Vec<String>,
        gogc: Option<u32>,
        port: u16,
        ca_pem: &str,
        token: String,
    ) -> Result<Self> {
        let args = args.into_iter().chain([format!("--secure-port={port}")]).collect();
        Ok(Self { program, args, gogc, client: Client::tls(port, ca_pem)?, token })
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Starts it and waits until it is ready and has created the namespace `default`.
    pub(crate) fn start(&self, workspace: &Workspace) -> Result<Process> {
        let log = workspace.path().join("kube-apiserver.log");
        let mut process = Process::start(&self.program, &self.args, self.gogc, &log, workspace)?;
        let probe = self.client.probe();
        let is_ok = |path: &&str| {
            let answer = probe.send(Method::Get, path, Some(&self.token), None);
            answer.is_ok_and(|answer| answer.status == 200)
        };
        wait_until("kube-apiserver", Duration::from_secs(90), &mut process, || {
            ["/readyz", "/api/v1/namespaces/default"].iter().all(is_ok).then_some(())
        })?;
        Ok(process)
    }
}

/// The path of the audit log.
pub(crate) fn audit_log(dir: &Path) -> PathBuf {
    dir.join("audit.log")
}

/// Every flag except the port.
pub(crate) fn args(dir: &Path, etcd_port: u16, certs: &Certs, options: &Options) -> Result<Vec<String>> {
    let show = |path: &Path| path.display().to_string();
    let mut args = vec![
        format!("--etcd-servers=http://127.0.0.1:{etcd_port}"),
        "--bind-address=127.0.0.1".to_owned(),
        // By default it looks for an interface with a route, and none may exist.
        "--advertise-address=127.0.0.1".to_owned(),
        "--endpoint-reconciler-type=none".to_owned(),
        "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
        "--authorization-mode=RBAC".to_owned(),
        format!("--cert-dir={}", show(dir)),
        format!("--tls-cert-file={}", show(&certs.serving)),
        format!("--tls-private-key-file={}", show(&certs.serving_key)),
        format!("--token-auth-file={}", show(&dir.join("tokens.csv"))),
        "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
        format!("--service-account-key-file={}", show(&certs.service_account_public_key)),
        format!("--service-account-signing-key-file={}", show(&certs.service_account_key)),
        // A test may have many clients.
        "--max-requests-inflight=1200".to_owned(),
        "--max-mutating-requests-inflight=600".to_owned(),
        // Work that no test needs.
        "--etcd-count-metric-poll-period=0".to_owned(),
        "--etcd-db-metric-poll-interval=0".to_owned(),
        "--event-ttl=30m".to_owned(),
        "--profiling=false".to_owned(),
    ];
    if !options.disabled_admission_plugins.is_empty() {
        args.push(format!("--disable-admission-plugins={}", options.disabled_admission_plugins.join(",")));
    }
    if !options.feature_gates.is_empty() {
        args.push(format!("--feature-gates={}", options.feature_gates.join(",")));
    }
    if options.audit {
        args.push(format!("--audit-policy-file={}", show(&write_audit_policy(dir)?)));
        args.push(format!("--audit-log-path={}", show(&audit_log(dir))));
    }
    args.extend(options.apiserver_args.iter().cloned());
    Ok(args)
}

/// One event per completed request: with bodies for writes to pods, otherwise metadata only.
fn write_audit_policy(dir: &Path) -> Result<PathBuf> {
    let policy = json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived", "ResponseStarted"],
        "omitManagedFields": true,
        "rules": [
            {
                "level": "RequestResponse",
                "verbs": ["create", "update", "patch", "delete"],
                "resources": [{ "group": "", "resources": ["pods", "pods/*"] }],
            },
            { "level": "Metadata" },
        ],
    });
    let path = dir.join("audit-policy.json");
    fs::write(&path, policy.to_string()).with_context(|| format!("write {}", path.display()))?;
    Ok(path)
}
