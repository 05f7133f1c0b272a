//! Clients that follow a server: `kube::runtime`'s watcher in this process, client-go's informers
//! in another.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::runtime::reflector::{self, Store};
use kube::runtime::watcher;
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::task::JoinSet;

use super::target::RUNTIME;

/// The resource version of each object, by resource and `namespace/name`.
pub(super) type Held = BTreeMap<String, BTreeMap<String, String>>;

/// A client that stores what it watches.
pub(super) trait Follower {
    fn name(&self) -> &str;

    /// The current content of its stores.
    fn held(&mut self) -> Held;

    /// Notifications that are inconsistent with earlier ones.
    fn inconsistencies(&mut self) -> Vec<String> {
        Vec::new()
    }
}

/// `kube::runtime::watcher`, with a store per resource.
pub(super) struct KubeWatchers {
    name: &'static str,
    stores: BTreeMap<String, Box<dyn Fn() -> BTreeMap<String, String>>>,
    errors: Arc<AtomicUsize>,
    // Dropping it ends the watchers.
    watching: JoinSet<()>,
}

impl KubeWatchers {
    pub(super) fn start(name: &'static str, client: &Client, config: &watcher::Config) -> Self {
        let mut watchers =
            Self { name, stores: BTreeMap::new(), errors: Arc::default(), watching: JoinSet::new() };
        watchers.watch::<Pod>("pods", client, config);
        watchers.watch::<Node>("nodes", client, config);
        watchers.watch::<ConfigMap>("configmaps", client, config);
        watchers
    }

    /// The number of failed lists and watches.
    pub(super) fn errors(&mut self) -> usize {
        self.errors.load(Ordering::Relaxed)
    }

    fn watch<K>(&mut self, resource: &str, client: &Client, config: &watcher::Config)
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    {
        let (store, writer) = reflector::store::<K>();
        let events = watcher(Api::<K>::all(client.clone()), config.clone());
        let errors = self.errors.clone();
        let watching = reflector::reflector(writer, events).for_each(move |event| {
            let failed = event.is_err();
            errors.fetch_add(usize::from(failed), Ordering::Relaxed);
            async move {
                if failed {
                    // The watcher retries at once.
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
        });
        self.watching.spawn_on(watching, RUNTIME.handle());
        self.stores.insert(resource.to_owned(), Box::new(move || versions(&store)));
    }
}

impl Follower for KubeWatchers {
    fn name(&self) -> &str {
        self.name
    }

    fn held(&mut self) -> Held {
        self.stores.iter().map(|(resource, versions)| (resource.clone(), versions())).collect()
    }
}

fn versions<K: Resource<DynamicType = ()> + Clone>(store: &Store<K>) -> BTreeMap<String, String> {
    let version = |object: &Arc<K>| {
        let key = match object.namespace() {
            Some(namespace) => format!("{namespace}/{}", object.name_any()),
            None => object.name_any(),
        };
        (key, object.resource_version().unwrap_or_default())
    };
    store.state().iter().map(version).collect()
}

/// client-go's shared informers: `testing/controlplane/clientgo`.
pub(super) struct ClientGo {
    name: &'static str,
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

/// The program's report about one resource.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct State {
    synced: bool,
    store: BTreeMap<String, String>,
    #[serde(rename = "told")]
    received: BTreeMap<String, String>,
    strange: Option<Vec<String>>,
}

impl ClientGo {
    /// `content` is `json` or `protobuf`.
    pub(super) fn start(
        name: &'static str,
        program: &Path,
        kubeconfig: &Path,
        content: &str,
        resources: &[&str],
    ) -> Self {
        let mut child = Command::new(program)
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .arg(format!("--content={content}"))
            .arg(format!("--resources={}", resources.join(",")))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self { name, child, input, output: BufReader::new(output) }
    }

    fn ask<T: DeserializeOwned>(&mut self, question: &str) -> T {
        writeln!(self.input, "{question}").unwrap();
        let mut answer = String::new();
        self.output.read_line(&mut answer).unwrap();
        serde_json::from_str(&answer).unwrap_or_else(|error| panic!("{}: {error}: {answer}", self.name))
    }

    /// The number of rejected or unanswered requests.
    pub(super) fn errors(&mut self) -> usize {
        self.ask("failures")
    }

    fn states(&mut self) -> BTreeMap<String, State> {
        self.ask("state")
    }

    /// The objects of a resource by `namespace/name`, without empty values.
    pub(super) fn objects(&mut self, resource: &str) -> BTreeMap<String, Value> {
        let mut objects: BTreeMap<String, Value> = self.ask(&format!("objects {resource}"));
        objects.values_mut().for_each(drop_empty);
        objects
    }
}

/// Drops values without meaning: Go writes some empty values, and objects in lists lack their type.
pub(super) fn drop_empty(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.values_mut().for_each(drop_empty);
            let is_empty = |value: &Value| match value {
                Value::Null => true,
                Value::Object(fields) => fields.is_empty(),
                _ => false,
            };
            fields.retain(|_, value| !is_empty(value));
        }
        Value::Array(items) => items.iter_mut().for_each(drop_empty),
        _ => {}
    }
}

impl Follower for ClientGo {
    fn name(&self) -> &str {
        self.name
    }

    fn held(&mut self) -> Held {
        let held = |(resource, state): (String, State)| {
            // Handlers lag behind the store.
            let agree = state.synced && state.received == state.store;
            (resource, if agree { state.store } else { BTreeMap::new() })
        };
        self.states().into_iter().map(held).collect()
    }

    fn inconsistencies(&mut self) -> Vec<String> {
        self.states().into_values().flat_map(|state| state.strange.unwrap_or_default()).collect()
    }
}

impl Drop for ClientGo {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
