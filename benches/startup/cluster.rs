//! The cluster for the schedulers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use http_body_util::BodyExt as _;
use serde_json::Value;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, timeout};

use crate::client::{Call, Frames, Target};
use crate::objects::{self, Pods, node_name};

/// The number of concurrent requests that fill the cluster.
const CONNECTIONS: usize = 32;
/// The time limit for the first binding.
const PATIENCE: Duration = Duration::from_mins(5);

/// Nodes with pods.
pub(crate) struct Cluster {
    target: Target,
    pods: Pods,
    waiting: AtomicUsize,
}

/// A pending pod with its watch.
pub(crate) struct Waiting {
    name: String,
    watcher: JoinHandle<Result<Instant>>,
}

impl Cluster {
    /// Creates nodes with the same number of bound pods on each.
    pub(crate) async fn load(target: &Target, nodes: usize, count: usize, pods: Pods) -> Result<Self> {
        eprintln!("startup: creating {nodes} nodes and {count} pods");
        send_all(target, nodes, objects::node).await.context("create nodes")?;
        send_all(target, count, move |i| {
            pods.pod(&format!("web-5d9f7c8b6d-{i:06}"), Some(&node_name(i % nodes)))
        })
        .await
        .context("create pods")?;
        Ok(Self { target: target.clone(), pods, waiting: AtomicUsize::new(0) })
    }

    /// Creates a pod without a node.
    pub(crate) async fn add_waiting(&self) -> Result<Waiting> {
        let name = format!("waiting-{}", self.waiting.fetch_add(1, Ordering::Relaxed));
        let mut connection = self.target.connect().await?;
        connection.send(self.pods.pod(&name, None)).await?;
        let mut connection = self.target.connect().await?;
        let events = connection.open(objects::watch(&name)).await?;
        let watcher = tokio::spawn(async move {
            let _connection = connection;
            timeout(PATIENCE, bound(events)).await.context("the pod got no node")?
        });
        Ok(Waiting { name, watcher })
    }

    /// The time when the pod got its node. Deletes the pod.
    pub(crate) async fn bound(&self, waiting: Waiting) -> Result<Instant> {
        let at = waiting.watcher.await.context("the watcher")??;
        self.target.connect().await?.send(objects::delete(&waiting.name)).await?;
        Ok(at)
    }
}

/// Reads a watch until its pod has a node.
async fn bound(mut events: Frames) -> Result<Instant> {
    let mut text = Vec::new();
    while let Some(frame) = events.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        let now = Instant::now();
        text.extend_from_slice(&data);
        while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = text.drain(..=end).collect();
            let event: Value = serde_json::from_slice(&line).context("a watch event")?;
            if event["object"]["spec"]["nodeName"].is_string() {
                return Ok(now);
            }
        }
    }
    anyhow::bail!("the watch ended before the pod got a node")
}

async fn send_all(
    target: &Target,
    count: usize,
    call: impl Fn(usize) -> Call + Send + Sync + 'static,
) -> Result<()> {
    let (call, next) = (Arc::new(call), Arc::new(AtomicUsize::new(0)));
    let mut senders: JoinSet<Result<()>> = JoinSet::new();
    for _ in 0..CONNECTIONS.min(count) {
        let (call, next, mut connection) = (Arc::clone(&call), Arc::clone(&next), target.connect().await?);
        senders.spawn(async move {
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= count {
                    return Ok(());
                }
                connection.send(call(index)).await?;
            }
        });
    }
    while let Some(sent) = senders.join_next().await {
        sent.context("a sender")??;
    }
    Ok(())
}
