//! The protocol of the processes: a task, then one step at a time, each answered with a line of
//! JSON. The Go program (`testing/controlplane/informerbench`) uses the same protocol.

use std::io::{BufRead, Write as _};

use serde::{Deserialize, Serialize};

use crate::Result;

/// The client under measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Client {
    /// This crate, with `k8s-openapi`'s pods.
    Typed,
    /// This crate, with a kind that has only what a scheduler reads.
    Slim,
    /// `kube_runtime`'s watcher and reflector.
    Kube,
    /// client-go's shared informer.
    Go,
}

/// The source of pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mode {
    /// From memory, already decoded.
    Pipeline,
    /// From a server.
    Wire,
}

/// The encoding of the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Content {
    #[default]
    Json,
    Protobuf,
}

/// The task of a process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Task {
    pub(crate) client: Client,
    pub(crate) mode: Mode,
    pub(crate) pods: usize,
    pub(crate) events: usize,
    pub(crate) listeners: usize,
    /// The pods to decode, in JSON and with placeholders. Empty if a server sends them.
    #[serde(default)]
    pub(crate) template: String,
    /// The server.
    #[serde(default)]
    pub(crate) url: String,
    #[serde(default)]
    pub(crate) content: Content,
}

/// The task of a server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Serve {
    pub(crate) pods: usize,
    pub(crate) events: usize,
    pub(crate) json: Vec<u8>,
    pub(crate) protobuf: Vec<u8>,
}

/// The next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Watch until every listener has received all pods.
    Start,
    /// Release the changes, and wait until every listener has received the last one.
    Events,
    /// Run the garbage collector, if there is one.
    Collect,
    /// Run the garbage collector, and return memory to the system.
    Trim,
}

/// The result of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Answer {
    pub(crate) nanos: u64,
    /// The number of objects in the store.
    pub(crate) stored: usize,
    // The notifications of all listeners together.
    pub(crate) adds: u64,
    pub(crate) updates: u64,
    pub(crate) deletes: u64,
}

impl Step {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Events => "events",
            Self::Collect => "collect",
            Self::Trim => "trim",
        }
    }

    /// Reads the next step from stdin; `None` at its end.
    pub(crate) fn read() -> Result<Option<Self>> {
        let mut line = String::new();
        if std::io::stdin().lock().read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let all = [Self::Start, Self::Events, Self::Collect, Self::Trim];
        let step = all.into_iter().find(|step| step.name() == line.trim_end());
        step.map(Some).ok_or_else(|| format!("no step is called {line:?}").into())
    }
}

/// Reads the task, the first line on stdin.
pub(crate) fn read_task<T: for<'de> Deserialize<'de>>() -> Result<T> {
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    Ok(serde_json::from_str(&line)?)
}

/// Writes a line to stdout.
pub(crate) fn say(what: &impl Serialize) -> Result<()> {
    let mut line = serde_json::to_vec(what)?;
    line.push(b'\n');
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(&line)?;
    Ok(stdout.flush()?)
}
