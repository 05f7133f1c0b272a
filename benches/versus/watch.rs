//! A watch of all pods that reports bindings and other changes.

use std::collections::HashSet;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::api::{Call, Connection, PROTOBUF_WATCH, Server, Wire};
use crate::names::{Names, PodName};
use crate::proto;

/// A change of a pod.
#[derive(Clone, Debug)]
pub(crate) enum PodChange {
    Bound {
        node: String,
    },
    /// A status change, as a patch.
    Status(Value),
    Deleted,
}

/// The watch.
pub(crate) struct Watch {
    // The watch lasts as long as its connection.
    _connection: Connection,
    frames: Incoming,
    unread: Vec<u8>,
    /// The pods to be bound.
    names: Names,
    /// The pods that are bound already.
    bound: HashSet<usize>,
}

#[derive(Deserialize)]
struct List {
    metadata: ListMeta,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListMeta {
    resource_version: String,
}

impl Watch {
    /// Watches from now on, while these pods are bound.
    pub(crate) async fn begin(server: &Server, names: Names) -> Result<Self> {
        let list: List = server.read("/api/v1/pods?limit=1").await?;
        let version = list.metadata.resource_version;
        let path = format!("/api/v1/pods?watch=true&timeoutSeconds=7200&resourceVersion={version}");
        let mut connection = server.connect(Wire::Http1).await?;
        let answer = connection.open(&Call::get(path, PROTOBUF_WATCH)).await?;
        ensure!(answer.status().is_success(), "watch pods: {}", answer.status());
        let frames = answer.into_body();
        Ok(Self { _connection: connection, frames, unread: Vec::new(), names, bound: HashSet::new() })
    }

    /// The next changes; `None` after this time without any.
    pub(crate) async fn next(&mut self, patience: Duration) -> Result<Option<Vec<(PodName, PodChange)>>> {
        let Ok(frame) = tokio::time::timeout(patience, self.frames.frame()).await else { return Ok(None) };
        let frame = frame.context("the API server has ended the watch")??;
        self.unread.extend_from_slice(frame.data_ref().context("a watch has no trailers")?);
        let (mut changes, mut read) = (Vec::new(), 0);
        while let Some((head, rest)) = self.unread[read..].split_first_chunk::<4>() {
            let Some(event) = rest.get(..u32::from_be_bytes(*head) as usize) else { break };
            read += 4 + event.len();
            changes.extend(change(event, &self.names, &mut self.bound)?);
        }
        self.unread.drain(..read);
        Ok(Some(changes))
    }
}

/// The change of an event. Additions are ignored, because the benchmark creates the pods.
fn change(event: &[u8], names: &Names, bound: &mut HashSet<usize>) -> Result<Option<(PodName, PodChange)>> {
    let kind = proto::text(event, 1);
    let object = proto::object(proto::field(proto::field(event, 2), 1));
    let object = object.with_context(|| format!("an event {kind:?} has no object"))?;
    ensure!(kind != "ERROR", "the watch failed: {}", proto::text(object, 3));
    let (metadata, spec) = (proto::field(object, 1), proto::field(object, 2));
    let pod =
        PodName { namespace: proto::text(metadata, 3).to_owned(), name: proto::text(metadata, 1).to_owned() };
    let node = proto::text(spec, 10);
    Ok(match kind {
        "DELETED" => Some((pod, PodChange::Deleted)),
        "MODIFIED" if !node.is_empty() && names.index(&pod).is_some_and(|index| bound.insert(index)) => {
            Some((pod, PodChange::Bound { node: node.to_owned() }))
        }
        "MODIFIED" => {
            let status = status(proto::field(object, 3));
            Some((pod, PodChange::Status(status)))
        }
        _ => None,
    })
}

/// The fields of a status that schedulers write.
fn status(status: &[u8]) -> Value {
    let conditions = proto::messages(status, 2).map(|condition| {
        json!({
            "type": proto::text(condition, 1), "status": proto::text(condition, 2),
            "reason": proto::text(condition, 5), "message": proto::text(condition, 6),
        })
    });
    json!({ "status": {
        "conditions": conditions.collect::<Vec<_>>(),
        "nominatedNodeName": proto::text(status, 11),
    } })
}
