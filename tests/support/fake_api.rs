//! A scripted API server over plain HTTP with the endpoints that a scheduler uses. It can give
//! answers that a real server never gives.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::name_of;

/// The longest sleep of a waiting thread before it checks whether a client is still connected.
const BREATH: Duration = Duration::from_millis(200);

/// A request with its body.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) method: String,
    /// Without the query.
    pub(crate) path: String,
    pub(crate) body: Value,
}

#[derive(Default)]
struct State {
    version: u64,
    /// The current objects by `nodes` or `pods` and name.
    objects: Vec<(&'static str, Value)>,
    /// The events for watches.
    changes: Vec<(&'static str, u64, Value)>,
    received: Vec<Received>,
    holds_bindings: bool,
    stopped: bool,
}

impl State {
    fn set(&mut self, resource: &'static str, mut object: Value) {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let same = |(of, other): &&mut (&str, Value)| *of == resource && name_of(other) == name_of(&object);
        let kind = match self.objects.iter_mut().find(same) {
            Some((_, known)) => {
                known.clone_from(&object);
                "MODIFIED"
            }
            None => {
                self.objects.push((resource, object.clone()));
                "ADDED"
            }
        };
        let change = json!({ "type": kind, "object": object });
        self.changes.push((resource, self.version, change));
    }

    fn all(&self, resource: &str) -> Vec<&Value> {
        let of = self.objects.iter().filter(|(of, _)| *of == resource);
        of.map(|(_, object)| object).collect()
    }

    fn changes_since(&self, resource: &str, version: u64) -> Vec<Value> {
        let new = self.changes.iter().filter(|(of, at, _)| *of == resource && *at > version);
        new.map(|(.., change)| change.clone()).collect()
    }
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        let result = change(&mut self.lock());
        self.changed.notify_all();
        result
    }
}

/// The server. It ends with this value.
pub(crate) struct FakeApi {
    shared: Arc<Shared>,
    address: String,
    folder: TempDir,
}

impl FakeApi {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let shared = Arc::new(Shared::default());
        let server = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming() {
                if server.lock().stopped {
                    return;
                }
                let (server, Ok(stream)) = (Arc::clone(&server), stream) else { return };
                // An error means that the client has disconnected.
                thread::spawn(move || drop(serve(&server, &stream)));
            }
        });
        let folder = tempfile::tempdir().unwrap();
        let api = Self { shared, address, folder };
        std::fs::write(api.kubeconfig(), kubeconfig(&api.address)).unwrap();
        api
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("kubeconfig")
    }

    /// Creates or updates a node.
    pub(crate) fn set_node(&self, node: Value) {
        self.shared.change(|state| state.set("nodes", node));
    }

    /// Creates or updates a pod. Names are unique here.
    pub(crate) fn set_pod(&self, mut pod: Value) {
        pod["metadata"]["uid"] = json!(format!("uid-{}", name_of(&pod)));
        self.shared.change(|state| state.set("pods", pod));
    }

    /// Whether binding requests are held without an answer.
    pub(crate) fn hold_bindings(&self, hold: bool) {
        self.shared.change(|state| state.holds_bindings = hold);
    }

    /// Write requests in order, by the end of their path.
    pub(crate) fn received(&self, path_end: &str) -> Vec<Received> {
        let received = &self.shared.lock().received;
        received.iter().filter(|one| one.path.ends_with(path_end)).cloned().collect()
    }
}

impl Drop for FakeApi {
    fn drop(&mut self) {
        self.shared.change(|state| state.stopped = true);
        // Wakes the listening thread.
        drop(TcpStream::connect(&self.address));
    }
}

fn kubeconfig(address: &str) -> String {
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": "fake", "cluster": { "server": format!("http://{address}") } }],
        "users": [{ "name": "fake", "user": {} }],
        "contexts": [{ "name": "fake", "context": { "cluster": "fake", "user": "fake" } }],
        "current-context": "fake",
    })
    .to_string()
}

/// Answers requests one after the other.
fn serve(shared: &Shared, stream: &TcpStream) -> io::Result<()> {
    let mut reader = BufReader::new(stream);
    while let Some((request, query, is_json)) = read_request(&mut reader)? {
        let resource = if request.path.ends_with("/nodes") { "nodes" } else { "pods" };
        if request.method == "GET" && query.contains("watch=true") {
            watch(shared, stream, resource, &query)?;
            return stream.shutdown(Shutdown::Both);
        }
        // The server reads only JSON and answers 415 otherwise.
        let unread = || (415, json!({ "kind": "Status", "status": "Failure", "code": 415 }));
        let (status, body) = if is_json { answer(shared, request, resource) } else { unread() };
        let body = body.to_string();
        let length = body.len();
        let head = format!(
            "HTTP/1.1 {status} -\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
        );
        let mut stream = stream;
        stream.write_all((head + &body).as_bytes())?;
    }
    Ok(())
}

fn read_request(reader: &mut impl BufRead) -> io::Result<Option<(Received, String, bool)>> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split_whitespace().map(str::to_owned);
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let mut length = 0;
    loop {
        let mut header = String::new();
        reader.read_line(&mut header)?;
        let header = header.trim().to_ascii_lowercase();
        if header.is_empty() {
            break;
        }
        if let Some(value) = header.strip_prefix("content-length:") {
            length = value.trim().parse().map_err(io::Error::other)?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let parsed = serde_json::from_slice(&body);
    let is_json = body.is_empty() || parsed.is_ok();
    let body = parsed.unwrap_or_default();
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let request = Received { method, path: path.to_owned(), body };
    Ok(Some((request, query.to_owned(), is_json)))
}

fn answer(shared: &Shared, request: Received, resource: &str) -> (u16, Value) {
    if request.method == "GET" {
        let state = shared.lock();
        let name = request.path.rsplit('/').next().unwrap_or_default();
        return match state.all(resource).into_iter().find(|object| name_of(object) == name) {
            Some(object) => (200, object.clone()),
            None if request.path.ends_with(resource) => (200, list(&state, resource)),
            None => {
                (404, json!({ "kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404 }))
            }
        };
    }
    shared.change(|state| state.received.push(request.clone()));
    if let Some(path) = request.path.strip_suffix("/binding") {
        let name = path.rsplit('/').next().unwrap_or_default();
        bind(shared, name, &request.body["target"]["name"]);
    }
    (201, json!({ "kind": "Status", "apiVersion": "v1", "status": "Success" }))
}

fn list(state: &State, resource: &str) -> Value {
    let version = state.version.to_string();
    json!({ "kind": "List", "metadata": { "resourceVersion": version }, "items": state.all(resource) })
}

fn bind(shared: &Shared, name: &str, node: &Value) {
    let mut state = shared.lock();
    while state.holds_bindings && !state.stopped {
        state = shared.changed.wait_timeout(state, BREATH).unwrap_or_else(PoisonError::into_inner).0;
    }
    let pod = state.all("pods").into_iter().find(|pod| name_of(pod) == name).cloned();
    if let Some(mut pod) = pod {
        pod["spec"]["nodeName"] = node.clone();
        state.set("pods", pod);
        shared.changed.notify_all();
    }
}

/// Sends events until client or server is gone.
fn watch(shared: &Shared, mut stream: &TcpStream, resource: &str, query: &str) -> io::Result<()> {
    stream.write_all(
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n",
    )?;
    let parameter = |name: &str| query.split('&').find_map(|part| part.strip_prefix(name)?.strip_prefix('='));
    let mut version = parameter("resourceVersion").and_then(|text| text.parse().ok()).unwrap_or(0);
    if parameter("sendInitialEvents") == Some("true") {
        let state = shared.lock();
        version = state.version;
        let mut events: Vec<Value> = state
            .all(resource)
            .into_iter()
            .map(|object| json!({ "type": "ADDED", "object": object }))
            .collect();
        drop(state);
        let annotations = json!({ "k8s.io/initial-events-end": "true" });
        let metadata = json!({ "resourceVersion": version.to_string(), "annotations": annotations });
        events.push(json!({ "type": "BOOKMARK", "object": { "metadata": metadata } }));
        send(stream, &events)?;
    }
    loop {
        let mut state = shared.lock();
        let new = state.changes_since(resource, version);
        version = state.version;
        if new.is_empty() {
            state = shared.changed.wait_timeout(state, BREATH).unwrap_or_else(PoisonError::into_inner).0;
        }
        if state.stopped {
            return Ok(());
        }
        drop(state);
        send(stream, &new)?;
    }
}

fn send(mut stream: &TcpStream, events: &[Value]) -> io::Result<()> {
    for event in events {
        let line = format!("{event}\n");
        stream.write_all(format!("{:x}\r\n{line}\r\n", line.len()).as_bytes())?;
    }
    Ok(())
}
