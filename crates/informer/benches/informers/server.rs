//! A minimal server of lists and watches of pods, in its own process: the benchmark compares
//! clients.
//!
//! `GET /api/v1/pods` lists, in pages if requested. With `watch=true` it watches, with initial
//! events if requested. A line on stdin starts the changes of all open watches.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;

use kube_informers::protobuf::{MAGIC, MEDIA_TYPE};

use crate::Result;
use crate::pods::{CHANGED_VERSION, FIRST_VERSION, LISTED_VERSION, Template, put, put_head, updated};
use crate::task::{Content, Serve, read_task, say};

/// The size of writes.
const CHUNK: usize = 64 << 10;

struct Server {
    pods: usize,
    events: usize,
    json: Template,
    protobuf: Template,
    /// How often changes were requested.
    rounds: Mutex<usize>,
    /// The encoding of the last watch.
    content: Mutex<Content>,
    asked: Condvar,
}

/// The relevant parts of a request.
struct Request {
    query: String,
    content: Content,
}

/// Serves until stdin ends.
pub(crate) fn run() -> Result<()> {
    let serve: Serve = read_task()?;
    let server = Arc::new(Server {
        pods: serve.pods,
        events: serve.events,
        json: Template::new(serve.json),
        protobuf: Template::new(serve.protobuf),
        rounds: Mutex::new(0),
        content: Mutex::default(),
        asked: Condvar::new(),
    });
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    say(&format!("http://{}", listener.local_addr()?))?;
    let accepting = Arc::clone(&server);
    thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            let server = Arc::clone(&accepting);
            // Clients may disconnect at any time.
            thread::spawn(move || server.converse(connection));
        }
    });
    for line in std::io::stdin().lock().lines() {
        line?;
        *server.rounds.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        server.asked.notify_all();
        say(&*server.content.lock().unwrap_or_else(PoisonError::into_inner))?;
    }
    Ok(())
}

impl Server {
    fn converse(&self, connection: TcpStream) -> Result<()> {
        connection.set_nodelay(true)?;
        let mut reader = BufReader::new(connection.try_clone()?);
        let mut out = Output { connection, buffer: Vec::with_capacity(2 * CHUNK) };
        while let Some(request) = read(&mut reader)? {
            if request.flag("watch") {
                self.watch(&request, &mut out)?;
            } else {
                self.list(&request, &mut out)?;
            }
        }
        Ok(())
    }

    fn list(&self, request: &Request, out: &mut Output) -> Result<()> {
        let first: usize = request.number("continue").unwrap_or(0).min(self.pods);
        let left = self.pods - first;
        let limit = request.number("limit").filter(|limit| *limit > 0).unwrap_or(left).min(left);
        let next = if limit < left { (first + limit).to_string() } else { String::new() };
        let version = LISTED_VERSION.to_string();
        let mut head = Vec::new();
        let item: fn(&Self, usize, &mut Vec<u8>) = match request.content {
            Content::Json => {
                let meta = format!(r#"{{"resourceVersion":"{version}","continue":"{next}"}}"#);
                head.extend_from_slice(
                    format!(r#"{{"kind":"PodList","apiVersion":"v1","metadata":{meta},"items":["#).as_bytes(),
                );
                |server, pod, out| {
                    server.json.write(pod, FIRST_VERSION + pod, out);
                    out.push(b',');
                }
            }
            Content::Protobuf => {
                let mut meta = Vec::new();
                put(2, version.as_bytes(), &mut meta);
                put(3, next.as_bytes(), &mut meta);
                let mut start = Vec::new();
                put(1, &meta, &mut start);
                let items = limit * (head_length(self.protobuf.len()) + self.protobuf.len());
                unknown_head("PodList", start.len() + items, &mut head);
                head.extend_from_slice(&start);
                |server, pod, out| {
                    put_head(2, server.protobuf.len(), out);
                    server.protobuf.write(pod, FIRST_VERSION + pod, out);
                }
            }
        };
        out.head(&request.content_type())?;
        out.buffer.extend_from_slice(&head);
        for pod in first..first + limit {
            item(self, pod, &mut out.buffer);
            if pod + 1 == first + limit && request.content == Content::Json {
                // No comma after the last item.
                out.buffer.pop();
            }
            out.chunk(CHUNK)?;
        }
        if request.content == Content::Json {
            out.buffer.extend_from_slice(b"]}");
        }
        out.chunk(0)?;
        out.end()
    }

    fn watch(&self, request: &Request, out: &mut Output) -> Result<()> {
        let rounds = || self.rounds.lock().unwrap_or_else(PoisonError::into_inner);
        let mut seen = *rounds();
        *self.content.lock().unwrap_or_else(PoisonError::into_inner) = request.content;
        out.head(&request.content_type())?;
        if request.flag("sendInitialEvents") {
            for pod in 0..self.pods {
                self.event(request.content, "ADDED", pod, FIRST_VERSION + pod, &mut out.buffer);
                out.chunk(CHUNK)?;
            }
            end_of_initial_events(request.content, &mut out.buffer);
        }
        out.chunk(0)?;
        loop {
            let mut asked = rounds();
            while *asked == seen {
                asked = self.asked.wait(asked).unwrap_or_else(PoisonError::into_inner);
            }
            seen = *asked;
            drop(asked);
            for index in 0..self.events {
                let pod = updated(index, self.pods);
                self.event(request.content, "MODIFIED", pod, CHANGED_VERSION + index, &mut out.buffer);
                out.chunk(CHUNK)?;
            }
            out.chunk(0)?;
        }
    }

    fn event(&self, content: Content, what: &str, pod: usize, version: usize, out: &mut Vec<u8>) {
        match content {
            Content::Json => {
                out.extend_from_slice(br#"{"type":""#);
                out.extend_from_slice(what.as_bytes());
                out.extend_from_slice(br#"","object":{"kind":"Pod","apiVersion":"v1","#);
                let brace = out.len();
                self.json.write(pod, version, out);
                // The object is already open.
                out[brace] = b' ';
                out.extend_from_slice(b"}\n");
            }
            Content::Protobuf => {
                frame(what, self.protobuf.len(), out);
                self.protobuf.write(pod, version, out);
            }
        }
    }
}

fn end_of_initial_events(content: Content, out: &mut Vec<u8>) {
    const MARK: &str = "k8s.io/initial-events-end";
    match content {
        Content::Json => {
            let meta =
                format!(r#"{{"resourceVersion":"{LISTED_VERSION}","annotations":{{"{MARK}":"true"}}}}"#);
            let object = format!(r#"{{"kind":"Pod","apiVersion":"v1","metadata":{meta}}}"#);
            out.extend_from_slice(format!("{{\"type\":\"BOOKMARK\",\"object\":{object}}}\n").as_bytes());
        }
        Content::Protobuf => {
            let (mut entry, mut meta, mut pod) = (Vec::new(), Vec::new(), Vec::new());
            put(1, MARK.as_bytes(), &mut entry);
            put(2, b"true", &mut entry);
            put(6, LISTED_VERSION.to_string().as_bytes(), &mut meta);
            put(12, &entry, &mut meta);
            put(1, &meta, &mut pod);
            frame("BOOKMARK", pod.len(), out);
            out.extend_from_slice(&pod);
        }
    }
}

/// The frame of a watch before the pod: length, event, envelope.
fn frame(what: &str, pod: usize, out: &mut Vec<u8>) {
    let mut envelope = Vec::with_capacity(32);
    unknown_head("Pod", pod, &mut envelope);
    let raw = envelope.len() + pod;
    let mut event = Vec::with_capacity(96);
    put(1, what.as_bytes(), &mut event);
    put_head(2, head_length(raw) + raw, &mut event);
    put_head(1, raw, &mut event);
    event.extend_from_slice(&envelope);
    let length = u32::try_from(event.len() + pod).unwrap_or(u32::MAX);
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(&event);
}

/// The envelope around a message of this length, which follows.
fn unknown_head(kind: &str, message: usize, out: &mut Vec<u8>) {
    let mut types = Vec::with_capacity(16);
    put(1, b"v1", &mut types);
    put(2, kind.as_bytes(), &mut types);
    out.extend_from_slice(MAGIC);
    put(1, &types, out);
    put_head(2, message, out);
}

/// The length of the tag and length of a field.
fn head_length(length: usize) -> usize {
    1 + prost::encoding::encoded_len_varint(length as u64)
}

/// The next request, if any. Method and path are not checked: there are no other clients.
fn read(reader: &mut BufReader<TcpStream>) -> Result<Option<Request>> {
    let mut line = String::new();
    // No request is longer than this.
    let mut head = reader.take(16 << 10);
    if head.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let target = line.split(' ').nth(1).unwrap_or_default();
    let query = target.split_once('?').map_or("", |(_, query)| query).to_owned();
    let mut content = Content::Json;
    loop {
        line.clear();
        head.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        if name.eq_ignore_ascii_case("accept") && value.trim_start().starts_with(MEDIA_TYPE) {
            content = Content::Protobuf;
        }
    }
    Ok(Some(Request { query, content }))
}

impl Request {
    fn value(&self, name: &str) -> Option<&str> {
        let pairs = self.query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.into_iter().find(|(key, _)| *key == name).map(|(_, value)| value)
    }

    fn flag(&self, name: &str) -> bool {
        matches!(self.value(name), Some("true" | "1"))
    }

    fn number(&self, name: &str) -> Option<usize> {
        self.value(name)?.parse().ok()
    }

    fn content_type(&self) -> String {
        match self.content {
            Content::Json => "application/json".to_owned(),
            Content::Protobuf if self.flag("watch") => format!("{MEDIA_TYPE};stream=watch"),
            Content::Protobuf => MEDIA_TYPE.to_owned(),
        }
    }
}

/// A response that is written in chunks.
struct Output {
    connection: TcpStream,
    buffer: Vec<u8>,
}

impl Output {
    fn head(&mut self, content_type: &str) -> Result<()> {
        let head =
            format!("HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\nTransfer-Encoding: chunked\r\n\r\n");
        Ok(self.connection.write_all(head.as_bytes())?)
    }

    /// Sends what has accumulated if it is more than this.
    fn chunk(&mut self, more_than: usize) -> Result<()> {
        if self.buffer.len() > more_than {
            write!(self.connection, "{:x}\r\n", self.buffer.len())?;
            self.buffer.extend_from_slice(b"\r\n");
            self.connection.write_all(&self.buffer)?;
            self.buffer.clear();
        }
        Ok(())
    }

    fn end(&mut self) -> Result<()> {
        Ok(self.connection.write_all(b"0\r\n\r\n")?)
    }
}
