//! The running supercargo that leads, reached by kubectl.
//!
//! kubectl knows the cluster and its user. It forwards a port to the leader's pod, and creates a
//! token that only supercargo accepts: the leader never sees the user's own credentials.

use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use http::Uri;
use supercargo_framework::pod::PodKey;
use supercargo_serving::AUDIENCE;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use super::cluster::ClusterOptions;

/// Whether kubectl runs this program: it finds plugins by their names.
pub(crate) fn is_plugin_of_kubectl() -> bool {
    is_called("kubectl-supercargo")
}

/// Whether kubectl runs this program to complete what is typed.
pub(crate) fn is_completion_for_kubectl() -> bool {
    is_called("kubectl_complete-supercargo")
}

fn is_called(name: &str) -> bool {
    let program = std::env::args_os().next().map(PathBuf::from);
    program.is_some_and(|program| program.file_stem().is_some_and(|stem| stem == name))
}

/// How to find and ask the leader.
#[derive(Args, Debug)]
pub(super) struct LeaderOptions {
    /// Lease that names the leader
    #[arg(long, value_name = "NAMESPACE/NAME", default_value = "kube-system/supercargo", value_parser = named)]
    lease: PodKey,
    /// Service account as which the leader is asked
    #[arg(
        long,
        value_name = "NAMESPACE/NAME",
        default_value = "supercargo-system/supercargo-insight",
        value_parser = named
    )]
    account: PodKey,
}

fn named(text: &str) -> Result<PodKey, String> {
    let (namespace, name) = text.split_once('/').ok_or("must be NAMESPACE/NAME")?;
    Ok(PodKey { namespace: namespace.into(), name: name.into() })
}

/// A way to the leader, which ends with this value.
pub(super) struct Leader {
    /// Its pod.
    pub(super) pod: PodKey,
    pub(super) server: Uri,
    pub(super) token: String,
    _forward: Forward,
}

/// A forwarded port.
struct Forward {
    port: u16,
    _kubectl: Child,
    // kubectl ends if nobody reads what it prints.
    _output: Lines<BufReader<ChildStdout>>,
}

impl LeaderOptions {
    /// Finds the leader.
    pub(super) async fn find(&self, kubectl: &Kubectl<'_>) -> Result<Leader> {
        let PodKey { namespace, name } = &self.lease;
        let holder = ["get", "lease", name, "-n", namespace, "-o", "jsonpath={.spec.holderIdentity}"];
        let holder = kubectl.output(&holder).await?;
        ensure!(!holder.is_empty(), "nobody holds the lease {}: no supercargo leads", self.lease);
        // An identity is the name of the host, which is that of the pod, and a UUID.
        let pod = holder.rsplit_once('_').map_or(&*holder, |(host, _)| host);
        let selector = format!("--field-selector=metadata.name={pod}");
        let find = ["get", "pods", "-A", &selector, "-o", "jsonpath={.items[*].metadata.namespace}"];
        let namespaces = kubectl.output(&find).await?;
        let mut namespaces = namespaces.split_whitespace();
        let (Some(namespace), None) = (namespaces.next(), namespaces.next()) else {
            bail!("the leader {pod} is not the name of one pod; ask it with --server");
        };
        let pod = PodKey { namespace: namespace.into(), name: pod.into() };

        let PodKey { namespace, name } = &self.account;
        let audience = format!("--audience={AUDIENCE}");
        let token = ["create", "token", name, "-n", namespace, &audience, "--duration=10m"];
        let token = kubectl.output(&token).await?;
        let forward = kubectl.forward(&pod).await?;
        let server = format!("https://127.0.0.1:{}", forward.port).parse()?;
        Ok(Leader { pod, server, token, _forward: forward })
    }
}

/// The program `kubectl`.
pub(super) struct Kubectl<'a>(pub(super) &'a ClusterOptions);

impl Kubectl<'_> {
    /// The namespace of the context. An error if the context does not exist.
    pub(super) async fn namespace(&self) -> Result<Option<String>> {
        if let Some(context) = &self.0.context {
            let contexts = self.output(&["config", "get-contexts", "-o", "name"]).await?;
            let contexts: Vec<&str> = contexts.lines().collect();
            ensure!(
                contexts.contains(&&**context),
                "context {context:?} does not exist; the contexts are {}",
                contexts.join(", ")
            );
        }
        // Fails without a kubeconfig, as in a pod.
        let view = ["config", "view", "--minify", "-o", "jsonpath={.contexts[0].context.namespace}"];
        Ok(self.output(&view).await.ok().filter(|namespace| !namespace.is_empty()))
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new("kubectl");
        command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.args(self.0.for_kubectl()).kill_on_drop(true);
        command
    }

    /// What it prints.
    async fn output(&self, args: &[&str]) -> Result<String> {
        let output = self.command(args).output().await.context("cannot run kubectl")?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        ensure!(output.status.success(), "kubectl {} {}: {}", args[0], args[1], complaint(&output.stderr));
        Ok(text(&output.stdout))
    }

    /// Forwards a port of this machine to the endpoints of a pod.
    async fn forward(&self, pod: &PodKey) -> Result<Forward> {
        let name = format!("pod/{}", pod.name);
        let args = ["port-forward", &name, ":https", "-n", &pod.namespace, "--address=127.0.0.1"];
        let mut child = self.command(&args).spawn().context("cannot run kubectl")?;
        let stdout = child.stdout.take().context("kubectl has no standard output")?;
        let mut lines = BufReader::new(stdout).lines();
        while let Some(line) = lines.next_line().await? {
            if let Some(port) = port_of(&line) {
                return Ok(Forward { port, _kubectl: child, _output: lines });
            }
        }
        let output = child.wait_with_output().await?;
        bail!("kubectl port-forward {name}: {}", complaint(&output.stderr))
    }
}

/// What kubectl says is wrong, without the log of its attempts.
fn complaint(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    let is_log = |line: &&str| {
        let mut letters = line.chars();
        matches!(letters.next(), Some('E' | 'W' | 'I')) && letters.take(4).all(|it| it.is_ascii_digit())
    };
    let said: Vec<&str> = text.lines().filter(|line| !is_log(line)).collect();
    if said.is_empty() { text.trim().to_owned() } else { said.join("\n").trim().to_owned() }
}

/// The port of this machine in a line such as `Forwarding from 127.0.0.1:40123 -> 10259`.
fn port_of(line: &str) -> Option<u16> {
    let (address, _) = line.strip_prefix("Forwarding from ")?.split_once(" -> ")?;
    address.rsplit_once(':')?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_of_kubectl_is_left_out() {
        let log = "E1128 18:19:23.288460    5675 memcache.go:381] \"Cannot get\"\n";
        assert_eq!(complaint(format!("{log}Error: no way\n").as_bytes()), "Error: no way");
        assert_eq!(complaint(log.as_bytes()), log.trim());
        assert_eq!(complaint(b""), "");
    }

    #[test]
    fn the_forwarded_port_is_read() {
        assert_eq!(port_of("Forwarding from 127.0.0.1:40123 -> 10259"), Some(40123));
        assert_eq!(port_of("Handling connection for 40123"), None);
    }
}
