//! Credentials of an exec plugin: a command of the kubeconfig that prints an ExecCredential.

use std::io;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kube::config::{ExecConfig, ExecInteractiveMode};
use rustix::process::{Pid, Signal, kill_process_group};
use serde::Deserialize;
use serde_json::{Value, json};
use thiserror::Error;
use tokio::io::AsyncReadExt as _;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::host::machine_time;

/// Timeout of a run.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum size of an ExecCredential.
const MAX_OUTPUT: u64 = 1 << 20;
/// Credentials are renewed this long before they expire.
const RENEW_BEFORE: SignedDuration = SignedDuration::from_mins(1);

/// Why a plugin gave no credentials. Contains neither its environment nor its output.
#[derive(Debug, Error)]
pub enum PluginError {
    /// The kubeconfig names no command.
    #[error("no command")]
    NoCommand,
    /// The plugin wants to ask a person.
    #[error("interactiveMode is Always, but the scheduler has no terminal")]
    Interactive,
    /// The command cannot be started, or its output cannot be read.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The command did not end in time, and was ended.
    #[error("no credentials within {} s", TIMEOUT.as_secs())]
    Late,
    /// The command failed. Its own words are on standard error.
    #[error("{0}")]
    Failed(ExitStatus),
    /// The output is no ExecCredential.
    #[error("the output is not an ExecCredential")]
    Malformed,
    /// There is neither a token nor a client certificate with its key.
    #[error("the output contains neither a token nor a client certificate and key")]
    Empty,
}

/// The last credentials of a plugin.
#[derive(Default)]
pub(crate) struct ExecPlugin {
    /// With the configuration that gave them.
    last: Option<(Value, Credential)>,
}

#[derive(Deserialize)]
struct ExecCredential {
    status: Credential,
}

/// The status of an ExecCredential.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Credential {
    expiration_timestamp: Option<Timestamp>,
    pub(crate) token: Option<String>,
    pub(crate) client_certificate_data: Option<String>,
    pub(crate) client_key_data: Option<String>,
}

impl ExecPlugin {
    /// The last credentials, unless they expire soon; else new ones.
    pub(crate) async fn credential(&mut self, exec: &ExecConfig) -> Result<&Credential, PluginError> {
        let config = serde_json::to_value(exec).unwrap_or_default();
        let credential = match self.last.take() {
            Some((of, credential)) if of == config && !credential.is_due() => credential,
            _ => run(exec).await?,
        };
        Ok(&self.last.insert((config, credential)).1)
    }

    /// Runs the plugin for the next credentials, however long the last ones are valid.
    pub(crate) fn forget(&mut self) {
        self.last = None;
    }
}

impl Credential {
    pub(crate) fn expires(&self) -> Option<Timestamp> {
        self.expiration_timestamp
    }

    fn is_due(&self) -> bool {
        self.expiration_timestamp.is_some_and(|at| at.duration_since(machine_time()) < RENEW_BEFORE)
    }

    fn parse(output: &[u8]) -> Result<Self, PluginError> {
        // YAML, as in client-go, which includes JSON.
        let parsed = serde_saphyr::from_slice(output).map_err(|_| PluginError::Malformed)?;
        let ExecCredential { status } = parsed;
        let has_certificate = status.client_certificate_data.is_some() && status.client_key_data.is_some();
        if status.token.is_some() || has_certificate { Ok(status) } else { Err(PluginError::Empty) }
    }
}

/// Runs the plugin, and ends it if it hangs.
async fn run(exec: &ExecConfig) -> Result<Credential, PluginError> {
    let mut child = command(exec)?.spawn()?;
    match timeout(TIMEOUT, output(&mut child)).await {
        Ok(output) => Credential::parse(&output?),
        Err(_) => {
            end(child).await;
            Err(PluginError::Late)
        }
    }
}

fn command(exec: &ExecConfig) -> Result<Command, PluginError> {
    if exec.interactive_mode == Some(ExecInteractiveMode::Always) {
        return Err(PluginError::Interactive);
    }
    let mut command = Command::new(exec.command.as_ref().ok_or(PluginError::NoCommand)?);
    let variables = exec.env.iter().flatten();
    let mut info = json!({
        "kind": "ExecCredential",
        "apiVersion": exec.api_version,
        "spec": { "interactive": false },
    });
    if exec.provide_cluster_info {
        info["spec"]["cluster"] = json!(exec.cluster);
    }
    command
        .args(exec.args.iter().flatten())
        .envs(variables.filter_map(|one| Some((one.get("name")?, one.get("value")?))))
        .env("KUBERNETES_EXEC_INFO", info.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        // A group of its own, so that its children can be ended, too.
        .process_group(0)
        .kill_on_drop(true);
    Ok(command)
}

async fn output(child: &mut Child) -> Result<Vec<u8>, PluginError> {
    let mut output = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        stdout.take(MAX_OUTPUT).read_to_end(&mut output).await?;
    }
    let status = child.wait().await?;
    if status.success() { Ok(output) } else { Err(PluginError::Failed(status)) }
}

/// Ends a plugin that hangs, with its children.
async fn end(mut child: Child) {
    let group = child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?));
    // It may have ended by now.
    let _ = group.map(|group| kill_process_group(group, Signal::KILL));
    let _ = child.wait().await;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> ExecConfig {
        let exec = json!({
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": "/bin/sh",
            "args": ["-c", script],
            "env": [{ "name": "PASSWORD", "value": "s3cret" }],
        });
        serde_json::from_value(exec).unwrap()
    }

    fn status(expires: &str) -> String {
        format!(r#"{{"status": {{"token": "'$PASSWORD'", "expirationTimestamp": "{expires}"}}}}"#)
    }

    #[tokio::test]
    async fn credentials_are_kept_until_shortly_before_they_expire() {
        let dir = tempfile::tempdir().unwrap();
        let runs = dir.path().join("runs");
        let script = |expires: &str| format!("echo >> {}; echo '{}'", runs.display(), status(expires));
        let mut plugin = ExecPlugin::default();
        for (expires, expected) in [("2999-01-01T00:00:00Z", 1), ("2020-01-01T00:00:00Z", 3)] {
            let exec = shell(&script(expires));
            for _ in 0..2 {
                let credential = plugin.credential(&exec).await.unwrap();
                assert_eq!(credential.token.as_deref(), Some("s3cret"));
            }
            assert_eq!(std::fs::read(&runs).unwrap().len(), expected, "{expires}");
        }
    }

    #[tokio::test]
    async fn plugins_are_told_about_the_cluster_and_may_print_yaml() {
        let mut exec =
            shell(r#"printf 'status: {token: "%s"}' "$(echo "$KUBERNETES_EXEC_INFO" | tr -d '"')""#);
        exec.provide_cluster_info = true;
        exec.cluster = Some(serde_json::from_value(json!({ "server": "https://10.0.0.1" })).unwrap());
        let mut plugin = ExecPlugin::default();
        let token = plugin.credential(&exec).await.unwrap().token.clone().unwrap();
        for part in
            ["kind:ExecCredential", "client.authentication.k8s.io/v1", "interactive:false", "10.0.0.1"]
        {
            assert!(token.contains(part), "{token}");
        }
    }

    #[tokio::test]
    async fn errors_contain_neither_environment_nor_output() {
        for (script, expected) in [
            ("echo $PASSWORD; exit 3", "exit status: 3"),
            ("echo $PASSWORD", "the output is not an ExecCredential"),
            ("echo \"status: {token: [$PASSWORD]}\"", "the output is not an ExecCredential"),
            ("echo \"status: {clientKeyData: $PASSWORD}\"", "neither a token nor a client certificate"),
            ("exec yes $PASSWORD", "signal: 13"),
        ] {
            let error = ExecPlugin::default().credential(&shell(script)).await.err().unwrap();
            assert!(error.to_string().contains(expected), "{script}: {error}");
            assert!(!format!("{error} {error:?}").contains("s3cret"), "{script}: {error:?}");
        }
        let missing = ExecConfig { command: Some("/nowhere/plugin".to_owned()), ..shell("") };
        let error = ExecPlugin::default().credential(&missing).await.err().unwrap();
        assert!(matches!(error, PluginError::Io(_)), "{error}");
    }

    #[tokio::test]
    async fn a_hanging_plugin_and_its_children_are_ended() {
        let dir = tempfile::tempdir().unwrap();
        let pids = dir.path().join("pids");
        let exec = shell(&format!("sleep 1000 & echo $$ $! > {}; wait", pids.display()));
        let run = tokio::spawn(async move { ExecPlugin::default().credential(&exec).await.err() });
        let pids = loop {
            match std::fs::read_to_string(&pids) {
                Ok(text) if text.ends_with('\n') => break text,
                _ => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        };
        tokio::time::pause();
        tokio::time::advance(TIMEOUT).await;
        tokio::time::resume();
        assert!(matches!(run.await.unwrap(), Some(PluginError::Late)));
        for pid in pids.split_whitespace() {
            let state = || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            // A child of an ended parent may stay as a zombie.
            while !(state().is_empty() || state().contains(") Z ")) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    }
}
