//! What the processes say to each other: a task, then step by step what to do, each answered by a line of JSON. The Go
//! program (`testing/controlplane/informerbench`) says the same.

use std::io::{BufRead, Write as _};

use serde::{Deserialize, Serialize};

use crate::Result;

/// Who watches the pods.
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

/// Where pods come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mode {
    /// From memory, decoded before.
    Pipeline,
    /// From a server.
    Wire,
}

/// How a server is to encode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Content {
    #[default]
    Json,
    Protobuf,
}

/// What a process is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Task {
    pub(crate) client: Client,
    pub(crate) mode: Mode,
    pub(crate) pods: usize,
    pub(crate) events: usize,
    pub(crate) listeners: usize,
    /// The pods to decode, in JSON and with marks in it. Empty where a server sends them.
    #[serde(default)]
    pub(crate) template: String,
    /// The server.
    #[serde(default)]
    pub(crate) url: String,
    #[serde(default)]
    pub(crate) content: Content,
}

/// What a server of pods is to serve.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Serve {
    pub(crate) pods: usize,
    pub(crate) events: usize,
    pub(crate) json: Vec<u8>,
    pub(crate) protobuf: Vec<u8>,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Watch, until every listener has been shown all pods.
    Start,
    /// Let the changes come, until every listener has been shown the last one.
    Events,
    /// Clear away what is not needed, where that is not done as soon as it can be.
    Collect,
    /// The same, and give it back to the system.
    Trim,
}

/// What a step came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Answer {
    pub(crate) nanos: u64,
    /// Objects in the store.
    pub(crate) stored: usize,
    // What all listeners were told, together.
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

    /// The next step that is asked for on stdin; `None` at its end.
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

/// Reads the first line on stdin: the task.
pub(crate) fn read_task<T: for<'de> Deserialize<'de>>() -> Result<T> {
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    Ok(serde_json::from_str(&line)?)
}

/// Writes a line on stdout.
pub(crate) fn say(what: &impl Serialize) -> Result<()> {
    let mut line = serde_json::to_vec(what)?;
    line.push(b'\n');
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(&line)?;
    Ok(stdout.flush()?)
}
