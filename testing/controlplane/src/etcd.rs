//! The store.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::json;

use crate::http::{Client, Method};
use crate::ports;
use crate::process::{Process, Workspace, wait_until};

/// Starts etcd on free ports. Returns its client port.
pub(crate) fn start(
    program: &Path,
    workspace: &Workspace,
    extra: &[String],
    gogc: Option<u32>,
) -> Result<(Process, u16)> {
    ports::retry_while_taken(|| {
        let (client, peer) = (ports::free()?, ports::free()?);
        let mut process = launch(program, workspace, client, peer, extra, gogc)?;
        await_ready(&mut process, workspace, client)?;
        Ok((process, client))
    })
}

fn launch(
    program: &Path,
    workspace: &Workspace,
    client: u16,
    peer: u16,
    extra: &[String],
    gogc: Option<u32>,
) -> Result<Process> {
    let (client, peer) = (format!("http://127.0.0.1:{client}"), format!("http://127.0.0.1:{peer}"));
    let name = member_name(workspace);
    let args = [
        format!("--name={name}"),
        format!("--data-dir={}", workspace.path().join("etcd").display()),
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster={name}={peer}"),
        "--unsafe-no-fsync".to_owned(),
        "--quota-backend-bytes=8589934592".to_owned(),
        "--log-level=warn".to_owned(),
    ];
    let log = workspace.path().join("etcd.log");
    Process::start(program, args.iter().chain(extra), gogc, &log, workspace)
}

/// Another etcd may listen on this port, so readiness checks the name.
fn await_ready(process: &mut Process, workspace: &Workspace, port: u16) -> Result<()> {
    let client = Client::plain(port).probe();
    let ours = format!("\"name\":\"{}\"", member_name(workspace));
    wait_until("etcd", Duration::from_secs(30), process, || {
        let members = client.send(Method::Post, "/v3/cluster/member/list", None, Some(&json!({}))).ok()?;
        (members.status == 200 && members.body.contains(&ours)).then_some(())
    })
}

/// Compacts to the newest revision, and returns that revision.
pub(crate) fn compact(port: u16) -> Result<u64> {
    let client = Client::plain(port);
    let ask = |path: &str, question| client.send(Method::Post, path, None, Some(&question))?.json();
    let any = ask("/v3/kv/range", json!({ "key": "AA==", "limit": "1", "keys_only": true }))?;
    let revision = any["header"]["revision"].as_str().and_then(|text| text.parse().ok());
    let revision: u64 = revision.context("etcd does not say its revision")?;
    ask("/v3/kv/compaction", json!({ "revision": revision.to_string(), "physical": true }))
        .context("compact etcd")?;
    Ok(revision)
}

fn member_name(workspace: &Workspace) -> String {
    workspace.path().file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}
