//! The measured steps, equal for every server.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use http_body_util::BodyExt as _;
use supercargo_benches::Progress;
use tokio::sync::Barrier;
use tokio::task::{JoinHandle, JoinSet};

use crate::client::{Call, Connection, Frames, JSON, PROTOBUF, Target};
use crate::objects::{self, MARK, PODS, Template, node_name, pod_name};
use crate::report::Measure;

/// The sizes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    pub(crate) nodes: usize,
    pub(crate) pods: usize,
    pub(crate) connections: usize,
    pub(crate) watchers: usize,
    /// The number of lists of each kind.
    pub(crate) rounds: usize,
    /// The number of changes that are awaited one by one.
    pub(crate) lone_changes: usize,
}

/// The page size, that of client-go.
const PAGE: usize = 500;

/// A rate per second, or a duration.
pub(crate) async fn measure(target: &Target, scale: Scale, progress: Progress) -> Result<Vec<Measure>> {
    let work = Work { target, scale, progress };
    let mut measures = Vec::new();
    let (nodes, pods) = work.load().await?;
    measures.push(Measure::rate("create nodes", scale.nodes, nodes));
    measures.push(Measure::rate("create pods", scale.pods, pods));
    for (encoding, whole, paged) in [
        (JSON, "list pods, JSON", "list pods by 500, JSON"),
        (PROTOBUF, "list pods, protobuf", "list pods by 500, protobuf"),
    ] {
        measures.push(Measure::rate(
            whole,
            scale.pods * scale.rounds,
            work.lists(encoding, usize::MAX).await?,
        ));
        measures.push(Measure::rate(paged, scale.pods * scale.rounds, work.lists(encoding, PAGE).await?));
    }
    for (round, encoding, events, changes) in [
        (0, JSON, "watch events, JSON", "changes under that watch"),
        (1, PROTOBUF, "watch events, protobuf", "changes under that watch"),
    ] {
        let (written, seen, ended) = work.fan_out(encoding, round * scale.pods).await?;
        measures.push(Measure::rate(events, scale.pods * scale.watchers, seen));
        measures.push(Measure::count("watches that it ended", ended));
        measures.push(Measure::rate(changes, scale.pods, written));
    }
    let mut delays = work.delays().await?;
    delays.sort();
    measures.push(Measure::time("last watcher sees it, median", delays[delays.len() / 2]));
    measures.push(Measure::time("last watcher sees it, 99 %", delays[(delays.len() * 99).div_ceil(100) - 1]));
    let bound = work.send_all("bind", scale.pods, move |pod| objects::bind(pod, pod % scale.nodes)).await?;
    measures.push(Measure::rate("bind", scale.pods, bound));
    let running = work.send_all("patch the status", scale.pods, objects::run).await?;
    measures.push(Measure::rate("patch the status", scale.pods, running));
    work.check_end().await?;
    Ok(measures)
}

/// Creates nodes and pods. Returns both times.
pub(crate) async fn load(target: &Target, scale: Scale, progress: Progress) -> Result<(Duration, Duration)> {
    Work { target, scale, progress }.load().await
}

struct Work<'a> {
    target: &'a Target,
    scale: Scale,
    progress: Progress,
}

impl Work<'_> {
    async fn load(&self) -> Result<(Duration, Duration)> {
        let (node, pod) = (Template::node(), Template::pod());
        let nodes = self
            .send_all("create nodes", self.scale.nodes, move |index| node.create(&node_name(index)))
            .await?;
        let pods =
            self.send_all("create pods", self.scale.pods, move |index| pod.create(&pod_name(index))).await?;
        let mut connection = self.target.connect().await?;
        let page = connection.send(Call::get(format!("{PODS}?limit=1"), JSON)).await?;
        let page: serde_json::Value = serde_json::from_slice(&page)?;
        let rest = page["metadata"]["remainingItemCount"].as_u64().unwrap_or_default() as usize;
        ensure!(rest + 1 == self.scale.pods, "{} has {} pods", self.target.name, rest + 1);
        Ok((nodes, pods))
    }

    /// Sends this many requests over all connections and returns the time without connecting.
    async fn send_all(
        &self,
        what: &'static str,
        count: usize,
        call: impl Fn(usize) -> Call + Send + Sync + 'static,
    ) -> Result<Duration> {
        let (call, next) = (Arc::new(call), Arc::new(AtomicUsize::new(0)));
        let mut connections = Vec::new();
        for _ in 0..self.scale.connections.min(count) {
            connections.push(self.target.connect().await?);
        }
        let started = Instant::now();
        let mut senders: JoinSet<Result<()>> = JoinSet::new();
        for mut connection in connections {
            let (call, next) = (Arc::clone(&call), Arc::clone(&next));
            let (progress, name) = (self.progress, self.target.name);
            senders.spawn(async move {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= count {
                        return Ok(());
                    }
                    progress.at(name, what, index, count);
                    connection.send(call(index)).await?;
                }
            });
        }
        while let Some(sent) = senders.join_next().await {
            sent.context("a sender")??;
        }
        Ok(started.elapsed())
    }

    /// Lists all pods, page by page.
    async fn lists(&self, encoding: &'static str, page: usize) -> Result<Duration> {
        let mut connection = self.target.connect().await?;
        let pages = self.scale.pods.div_ceil(page);
        let started = Instant::now();
        for round in 0..self.scale.rounds {
            self.progress.at(self.target.name, "list pods", round, self.scale.rounds);
            let mut path = if page == usize::MAX { PODS.to_owned() } else { format!("{PODS}?limit={page}") };
            let mut read = 0;
            loop {
                let list = connection.send(Call::get(path, encoding)).await?;
                read += 1;
                let Some(token) = continue_token(&list) else { break };
                path = format!("{PODS}?limit={page}&continue={token}");
            }
            ensure!(read == pages, "{} lists {read} pages, not {pages}", self.target.name);
        }
        Ok(started.elapsed())
    }

    /// Changes every pod while all are watched. Returns the time of the changes, the time of the
    /// last event, and the number of watches that the server ended. The annotation counts from
    /// `first`, because an equal value would change nothing.
    async fn fan_out(&self, encoding: &'static str, first: usize) -> Result<(Duration, Duration, usize)> {
        let changes = self.scale.pods;
        let watchers = self.watch(encoding, changes, None).await?;
        let started = Instant::now();
        let mark = move |pod| objects::mark(pod, first + pod);
        let written = self.send_all("changes under watch", changes, mark).await?;
        let (mut last, mut ended) = (started, 0);
        for watcher in watchers {
            let seen = watcher.await??;
            ended += seen.ended;
            last = seen.at.into_iter().max().map_or(last, |seen| seen.max(last));
        }
        Ok((written, last - started, ended))
    }

    /// Changes pods one by one while all are watched. Returns the times until the last watcher has
    /// the event.
    async fn delays(&self) -> Result<Vec<Duration>> {
        let changes = self.scale.lone_changes;
        let barrier = Arc::new(Barrier::new(self.scale.watchers + 1));
        let watchers = self.watch(JSON, changes, Some(&barrier)).await?;
        let mut connection = self.target.connect().await?;
        let mut sent = Vec::new();
        for change in 0..changes {
            self.progress.at(self.target.name, "lone changes", change, changes);
            let call = objects::mark(change % self.scale.pods, 2 * self.scale.pods + change);
            sent.push(Instant::now());
            connection.send(call).await?;
            barrier.wait().await;
        }
        let mut delays = vec![Duration::ZERO; changes];
        for watcher in watchers {
            let seen = watcher.await??;
            for ((delay, sent), seen) in delays.iter_mut().zip(&sent).zip(seen.at) {
                *delay = (*delay).max(seen - *sent);
            }
        }
        Ok(delays)
    }

    /// Watches all pods from now on until each watcher has seen this many changes. With a barrier,
    /// each waits there after every event.
    async fn watch(
        &self,
        encoding: &'static str,
        changes: usize,
        barrier: Option<&Arc<Barrier>>,
    ) -> Result<Vec<JoinHandle<Result<Seen>>>> {
        let mut connection = self.target.connect().await?;
        let list = connection.send(Call::get(format!("{PODS}?limit=1"), JSON)).await?;
        let list: serde_json::Value = serde_json::from_slice(&list)?;
        let version = list["metadata"]["resourceVersion"].as_str().context("a list has a version")?;
        let mut watchers = Vec::new();
        for _ in 0..self.scale.watchers {
            let watcher = Watcher::begin(self.target.clone(), encoding, version.to_owned()).await?;
            watchers.push(tokio::spawn(watcher.watch(changes, barrier.map(Arc::clone))));
        }
        Ok(watchers)
    }

    /// Checks the final state of the last pod.
    async fn check_end(&self) -> Result<()> {
        let mut connection = self.target.connect().await?;
        let pod = pod_name(self.scale.pods - 1);
        let pod = connection.send(Call::get(format!("{PODS}/{pod}"), JSON)).await?;
        let pod: serde_json::Value = serde_json::from_slice(&pod)?;
        let node = node_name((self.scale.pods - 1) % self.scale.nodes);
        ensure!(pod["spec"]["nodeName"] == node, "the last pod is bound to {}", pod["spec"]["nodeName"]);
        ensure!(pod["status"]["phase"] == "Running", "the last pod is {}", pod["status"]["phase"]);
        Ok(())
    }
}

/// A watcher of all pods.
struct Watcher {
    target: Target,
    encoding: &'static str,
    /// The version up to which it has seen everything.
    version: String,
    connection: Connection,
    frames: Frames,
}

/// The observations of a watcher.
struct Seen {
    /// The time of each change.
    at: Vec<Instant>,
    /// How often the server ended the watch early, as the real one does to slow clients.
    ended: usize,
}

impl Watcher {
    async fn begin(target: Target, encoding: &'static str, version: String) -> Result<Self> {
        let (connection, frames) = Self::open(&target, encoding, &version).await?;
        Ok(Self { target, encoding, version, connection, frames })
    }

    async fn open(target: &Target, encoding: &'static str, version: &str) -> Result<(Connection, Frames)> {
        let accept = if encoding == JSON { JSON } else { "application/vnd.kubernetes.protobuf;stream=watch" };
        let mut connection = target.connect().await?;
        let path = format!("{PODS}?watch=true&resourceVersion={version}");
        let frames = connection.open(Call::get(path, accept)).await?;
        Ok((connection, frames))
    }

    /// Watches until it has seen this many changes. With a barrier, it waits there after every
    /// event.
    async fn watch(mut self, changes: usize, barrier: Option<Arc<Barrier>>) -> Result<Seen> {
        let mut seen = Seen { at: Vec::with_capacity(changes), ended: 0 };
        let mut unread: Vec<u8> = Vec::new();
        while seen.at.len() < changes {
            let Some(frame) = self.frames.frame().await else {
                seen.ended += 1;
                unread.clear();
                (self.connection, self.frames) =
                    Self::open(&self.target, self.encoding, &self.version).await?;
                continue;
            };
            let now = Instant::now();
            unread.extend_from_slice(frame?.data_ref().context("a watch has no trailers")?);
            let mut read = 0;
            while let Some(length) = event_length(&unread[read..], self.encoding == JSON) {
                let event = &unread[read..read + length];
                read += length;
                ensure!(find(event, MARK.as_bytes()).is_some(), "{}", String::from_utf8_lossy(event));
                let version = version_of(event, self.encoding == JSON).context("an event has a version")?;
                version.clone_into(&mut self.version);
                seen.at.push(now);
                if let Some(barrier) = &barrier {
                    barrier.wait().await;
                }
            }
            unread.drain(..read);
        }
        // Dropping the connection would end the watch.
        drop(self.connection);
        Ok(seen)
    }
}

/// The resourceVersion of an event's object. In protobuf it may come before or after the UID.
fn version_of(event: &[u8], json: bool) -> Option<&str> {
    const KEY: &[u8] = b"\"resourceVersion\":\"";
    let version = if json {
        let text = &event[find(event, KEY)? + KEY.len()..];
        &text[..text.iter().take_while(|byte| byte.is_ascii_digit()).count()]
    } else {
        const UID: u8 = 36;
        const NUMBERS: [u8; 2] = [5 << 3 | 2, 6 << 3 | 2];
        let is_uid = |at: &[u8]| at[..2] == [NUMBERS[0], UID] && at[10] == b'-' && at[15] == b'-';
        let uid = event.windows(2 + usize::from(UID)).position(is_uid)?;
        let (before, after) = (&event[..uid], event.get(uid + 2 + usize::from(UID)..)?);
        if after.first() == Some(&NUMBERS[1]) {
            after.get(2..2 + usize::from(*after.get(1)?))?
        } else {
            let length = before.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
            &before[uid - length..]
        }
    };
    std::str::from_utf8(version).ok().filter(|version| !version.is_empty())
}

/// The length of the first event, if it is complete.
fn event_length(unread: &[u8], json: bool) -> Option<usize> {
    if json {
        return unread.iter().position(|byte| *byte == b'\n').map(|end| end + 1);
    }
    let (head, rest) = unread.split_first_chunk::<4>()?;
    let length = u32::from_be_bytes(*head) as usize;
    (rest.len() >= length).then_some(4 + length)
}

/// The token for the next page in any encoding: it is near the start, and in JSON it is base64.
fn continue_token(list: &[u8]) -> Option<&str> {
    let head = &list[..list.len().min(400)];
    let start = find(head, b"eyJ")?;
    let in_token = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let length = head[start..].iter().take_while(|byte| in_token(byte)).count();
    std::str::from_utf8(&head[start..start + length]).ok()
}

fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len()).position(|window| window == wanted)
}
