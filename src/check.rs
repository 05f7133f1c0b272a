//! `supercargo check`: whether a scheduler with these flags can work, and what to do if not.

mod permissions;
mod report;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use futures::stream::{self, StreamExt as _};
use http::{Method, Request, StatusCode, Uri};
use jiff::Timestamp;
use serde_json::Value;
use tokio::time::timeout;

use self::permissions::Permission;
use self::report::Report;
use crate::run::{transport, without_credentials};
use supercargo_client::api::{Api, CallError, full_text};
use supercargo_client::connection::{ConnectError, Connection};
use supercargo_client::host::Host;
use supercargo_client::transport::Transport;
use supercargo_config::flags::{Flags, ServingOptions};
use supercargo_config::{Catalog, Config, LeaderElectionConfig};

/// How long an answer may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The minor versions of Kubernetes 1 that are tested. `docs/versions.md` has the list.
const TESTED: [u32; 4] = [34, 35, 36, 37];
/// What to do about a lease that is held and not renewed.
const NO_LEADER: &str = "no process leads; look at the log of the holder";
/// Reviews in flight.
const REVIEWS_AT_ONCE: usize = 8;

/// Checks everything that `run` with these flags needs. Exits with 1 if something is missing.
pub(crate) async fn check(flags: &Flags, catalog: &Catalog) -> Result<ExitCode> {
    let mut report = Report::to(std::io::stdout());
    check_all(flags, catalog, &mut report).await?;
    report.end()
}

async fn check_all(flags: &Flags, catalog: &Catalog, report: &mut Report) -> Result<()> {
    let config = configuration(flags, catalog, report)?;
    let kubeconfig =
        config.as_ref().map_or(&flags.deprecated.kubeconfig, |config| &config.client_connection.kubeconfig);
    report.section("API server")?;
    match connect(flags.misc.master.as_ref(), kubeconfig.as_deref()).await {
        Ok((server, api)) => {
            let config = config.unwrap_or(Config::default_with(catalog)?);
            check_cluster(&server, &api, flags, &config, report).await?;
        }
        Err(error) => report.failed(&full_text(&error), connection_advice(&error))?,
    }
    check_endpoints(&flags.serving, report).await
}

/// Connects as `run` does. Returns the server's address, and requests to it.
async fn connect(server: Option<&Uri>, kubeconfig: Option<&Path>) -> Result<(String, Api), ConnectError> {
    let connection = Connection::open(server, kubeconfig).await?;
    Ok((without_credentials(&connection.server()), Api::over(transport(&connection)?, None, false)))
}

fn connection_advice(error: &ConnectError) -> &'static str {
    match error {
        // The error itself says it.
        ConnectError::NotInCluster(_) => "",
        ConnectError::ExecPlugin { .. } => "run the command of the kubeconfig by hand",
        _ => "correct the kubeconfig and the files that it names",
    }
}

/// The configuration, if it is valid.
fn configuration(flags: &Flags, catalog: &Catalog, report: &mut Report) -> Result<Option<Config>> {
    report.section("configuration")?;
    match flags.configuration(catalog) {
        Ok(config) => {
            let names: Vec<&str> = config.profiles.iter().map(|profile| &*profile.scheduler_name).collect();
            report.ok(&format!("valid; it serves pods with schedulerName {}", names.join(", ")))?;
            Ok(Some(config))
        }
        Err(error) => {
            let problem = full_text(&*error);
            let mut lines = problem.lines().peekable();
            while let Some(line) = lines.next() {
                // Once, after the last.
                let advice =
                    if lines.peek().is_none() { "docs/configuration.md lists fields and flags" } else { "" };
                report.failed(line, advice)?;
            }
            Ok(None)
        }
    }
}

async fn check_cluster(
    server: &str,
    api: &Api,
    flags: &Flags,
    config: &Config,
    report: &mut Report,
) -> Result<()> {
    let version = match get(api, "/version").await {
        Ok(version) => version,
        Err(error) => {
            let advice = "check the address, the network and the credentials";
            return report.failed(&format!("{server}: {}", error.error.message), advice);
        }
    };
    report.ok(&format!("{server} answers"))?;
    check_version(&version, report)?;
    check_resources(api, config, report).await?;
    report.section("permissions")?;
    check_permissions(api, &permissions::needed(flags, config)?, report).await?;
    if config.leader_election.leader_elect {
        report.section("lease")?;
        check_lease(api, &config.leader_election, report).await?;
    }
    Ok(())
}

async fn get(api: &Api, path: &str) -> Result<Value, CallError> {
    let answer = timeout(TIMEOUT, api.get(path)).await;
    answer.unwrap_or_else(|_| Err(CallError::late(TIMEOUT)))
}

fn check_version(version: &Value, report: &mut Report) -> Result<()> {
    let name = version["gitVersion"].as_str().unwrap_or("unknown");
    // Some providers append a plus sign.
    let minor = version["minor"].as_str().and_then(|minor| minor.trim_end_matches('+').parse::<u32>().ok());
    let tested = TESTED.map(|minor| format!("1.{minor}")).join(", ");
    match minor.filter(|_| version["major"] == "1") {
        Some(minor) if TESTED.contains(&minor) => report.ok(&format!("version {name}")),
        _ => report.warned(&format!("version {name} is not tested"), &format!("tested versions: {tested}")),
    }
}

/// Warns of resources that plugins read and the server does not serve, such as PodGroups. `run`
/// starts without them, and watches them once they are served.
async fn check_resources(api: &Api, config: &Config, report: &mut Report) -> Result<()> {
    let wanted = permissions::read_by_plugins(config)?;
    let mut served: BTreeMap<String, Value> = BTreeMap::new();
    let mut missing = 0;
    for resource in &wanted {
        let version = resource.group_version();
        if !served.contains_key(&version) {
            let prefix = if resource.group.is_empty() { "api" } else { "apis" };
            let list = match get(api, &format!("/{prefix}/{version}")).await {
                Err(error) if error.status == Some(StatusCode::NOT_FOUND) => Value::Null,
                Err(error) => {
                    let text = format!("cannot discover the resources of {version}: {}", error.error.message);
                    return report.warned(&text, "look at the log of the API server");
                }
                Ok(list) => list,
            };
            served.insert(version.clone(), list);
        }
        let list = served[&version]["resources"].as_array();
        if !list.is_some_and(|list| list.iter().any(|it| it["name"] == *resource.plural)) {
            missing += 1;
            let text = format!("{}.{version} is not served; plugins see none", resource.plural);
            report.warned(
                &text,
                "serve this API (--runtime-config of kube-apiserver), or disable the plugins that read it",
            )?;
        }
    }
    if missing == 0 {
        report.ok(&format!("serves all {} resources that plugins read", wanted.len()))?;
    }
    Ok(())
}

async fn check_permissions(api: &Api, needed: &[Permission], report: &mut Report) -> Result<()> {
    let asked = stream::iter(needed).map(async |permission| {
        let answer = timeout(TIMEOUT, permission.is_granted(api)).await;
        (permission, answer.unwrap_or_else(|_| Err(CallError::late(TIMEOUT))))
    });
    let answers: Vec<_> = asked.buffered(REVIEWS_AT_ONCE).collect().await;
    let mut granted = 0;
    for (permission, answer) in &answers {
        match answer {
            Ok(true) => granted += 1,
            Ok(false) => report.failed(&format!("no permission to {permission}"), permission.advice())?,
            Err(error) => {
                let advice = "allow this user to create selfsubjectaccessreviews";
                return report
                    .failed(&format!("cannot ask for permissions: {}", error.error.message), advice);
            }
        }
    }
    if granted == answers.len() {
        report.ok(&format!("all {granted} are granted"))?;
    }
    Ok(())
}

async fn check_lease(api: &Api, election: &LeaderElectionConfig, report: &mut Report) -> Result<()> {
    let LeaderElectionConfig { resource_namespace: namespace, resource_name: name, .. } = election;
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}");
    let lease = match get(api, &path).await {
        Ok(lease) => lease,
        Err(error) if error.status == Some(StatusCode::NOT_FOUND) => {
            return report.ok(&format!("{namespace}/{name} does not exist; the first leader creates it"));
        }
        Err(error) => {
            let advice = match error.status {
                Some(StatusCode::FORBIDDEN) => "the Role in manifests/base/role.yaml grants it",
                _ => "look at the log of the API server",
            };
            return report.failed(&format!("{namespace}/{name}: {}", error.error.message), advice);
        }
    };
    let spec = &lease["spec"];
    let Some(holder) = spec["holderIdentity"].as_str().filter(|holder| !holder.is_empty()) else {
        return report.ok(&format!("{namespace}/{name} is free"));
    };
    let Some(renewed) = spec["renewTime"].as_str().and_then(|time| time.parse::<Timestamp>().ok()) else {
        let text = format!("{namespace}/{name}: {holder} holds it, but renewTime is not set");
        return report.warned(&text, NO_LEADER);
    };
    let age = Host::local().wall().as_second() - renewed.as_second();
    let text = format!("{namespace}/{name}: {holder} leads, renewed {age} s ago");
    // The clock of the holder may differ a little.
    if age <= spec["leaseDurationSeconds"].as_i64().unwrap_or(0) {
        report.ok(&text)
    } else {
        report.warned(&text, NO_LEADER)
    }
}

/// Asks the endpoints on this machine whether they are ready.
async fn check_endpoints(serving: &ServingOptions, report: &mut Report) -> Result<()> {
    report.section("endpoints")?;
    if serving.secure_port == 0 {
        return report.skipped("not served: --secure-port=0");
    }
    let url = own_address(serving);
    let answer = timeout(TIMEOUT, ready(&url)).await.unwrap_or_else(|_| Err("no answer".to_owned()));
    match answer {
        Ok((StatusCode::OK, _)) => report.ok(&format!("{url}/readyz")),
        Ok((status, text)) => {
            let failed: Vec<&str> = text.lines().filter(|line| line.starts_with("[-]")).collect();
            let text = format!("{url}/readyz answers {}: {}", status.as_u16(), failed.join("; "));
            report.failed(&text, "docs/endpoints.md explains each check")
        }
        Err(error) => report.skipped(&format!("nothing serves on {url}: {error}")),
    }
}

fn own_address(serving: &ServingOptions) -> String {
    let address = match serving.bind_address {
        IpAddr::V4(address) if address.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(address) if address.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        address => address,
    };
    format!("https://{}", std::net::SocketAddr::new(address, serving.secure_port))
}

/// The answer of `/readyz`, which is open to everybody.
async fn ready(url: &str) -> Result<(StatusCode, String), String> {
    let mut connection =
        kube::Config::new(url.parse().map_err(|error: http::uri::InvalidUri| error.to_string())?);
    // Its certificate is usually its own.
    connection.accept_invalid_certs = true;
    connection.root_cert = Some(Vec::new());
    let transport = Transport::connect(&connection).map_err(|error| full_text(&error))?;
    let request = Request::builder().method(Method::GET).uri("/readyz?verbose").body(bytes::Bytes::new());
    let request = request.map_err(|error| error.to_string())?;
    let answer = transport.send(request).await.map_err(|error| full_text(&*error))?;
    Ok((answer.status(), String::from_utf8_lossy(answer.body()).into_owned()))
}

#[cfg(test)]
mod tests;
