//! The server's settings and shared state, and the operations that tests and demos run on it.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::faults::{Faults, Matcher, RequestInfo};
use crate::kinds::Kind;
use crate::random::Random;
use crate::registry::Registry;
use crate::rest::{Cascade, State, Writer};
use crate::store::Store;
use crate::strategy::Lookup;
use crate::strategy::priority_class::SYSTEM_CLASSES;

/// Returns the current time.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// The settings of a server.
#[derive(Clone)]
pub struct Settings {
    /// The number of changes of each resource kept for watches and continued lists.
    pub history: usize,
    /// The seed of generated names and UIDs. The same seed and requests generate the same ones.
    pub seed: u64,
    /// Whether every write records `metadata.managedFields`. Otherwise recording starts at the
    /// first apply.
    pub managed_fields: bool,
    /// Whether deleting an owner deletes its dependents, deleting a namespace its content, and a
    /// deleted pod group goes with its last active pod. In a real cluster the controller manager
    /// does this.
    pub collects_garbage: bool,
    /// Whether the kinds of gang scheduling are served, and pods keep `spec.schedulingGroup`. As in
    /// kube-apiserver they are off by default. Its flags that turn them on are
    /// `--runtime-config=scheduling.k8s.io/v1beta1=true,scheduling.k8s.io/v1alpha3=true` and the
    /// feature gates GenericWorkload, TopologyAwareWorkloadScheduling, CompositePodGroup,
    /// PodGroupPreemptionPolicy and DRAWorkloadResourceClaims.
    pub pod_groups: bool,
    /// The clock for timestamps in objects.
    pub clock: Clock,
}

impl Default for Settings {
    #[expect(clippy::disallowed_methods, reason = "the only clock of the server")]
    fn default() -> Self {
        Self {
            history: 100_000,
            seed: 1,
            managed_fields: false,
            collects_garbage: true,
            pod_groups: false,
            clock: Arc::new(Timestamp::now),
        }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("history", &self.history)
            .field("seed", &self.seed)
            .finish_non_exhaustive()
    }
}

/// An API server. Clones are handles to the same server.
#[derive(Clone, Debug)]
pub struct ApiServer {
    pub(crate) shared: Arc<Shared>,
}

/// The state of a server at one time.
#[derive(Clone, Debug)]
pub struct Backup(State);

/// The state that all requests share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) settings: Settings,
    pub(crate) state: Mutex<State>,
    pub(crate) faults: Faults,
    /// The number of restarts.
    run: watch::Sender<u64>,
    /// Requested ends of watches.
    cuts: Mutex<Vec<Cut>>,
}

#[derive(Debug)]
struct Cut {
    matcher: Matcher,
    mid_frame: bool,
}

impl Default for ApiServer {
    fn default() -> Self {
        Self::new(Settings::default())
    }
}

impl ApiServer {
    /// A server that contains only the namespaces and priority classes of every cluster.
    pub fn new(settings: Settings) -> Self {
        let registry = Registry::new(settings.pod_groups);
        let mut store = Store::new(settings.history.max(1));
        for kind in registry.kinds() {
            store.add_table(kind.resource_key());
        }
        let state = State {
            store,
            registry,
            random: Random::new(settings.seed),
            dry_random: Random::new(!settings.seed),
        };
        let shared = Shared {
            settings,
            state: Mutex::new(state),
            faults: Faults::default(),
            run: watch::Sender::default(),
            cuts: Mutex::default(),
        };
        let server = Self { shared: Arc::new(shared) };
        server.create_initial_objects();
        server
    }

    /// The faults to inject into requests.
    pub fn faults(&self) -> &Faults {
        &self.shared.faults
    }

    /// The latest resourceVersion.
    pub fn resource_version(&self) -> u64 {
        self.shared.state.lock().store.version()
    }

    /// Drops the history. Watches and lists from an older resourceVersion get 410.
    pub fn compact(&self) {
        let mut state = self.shared.state.lock();
        state.store.compact();
        state.store.wake();
    }

    /// Ends every watch and pending request, like a server restart. Objects stay, and so does the
    /// history if `keep_history`.
    pub fn restart(&self, keep_history: bool) {
        self.shared.run.send_modify(|run| *run += 1);
        let mut state = self.shared.state.lock();
        if !keep_history {
            state.store.compact();
        }
        state.store.wake();
    }

    /// Copies the state, like a snapshot of etcd.
    pub fn backup(&self) -> Backup {
        Backup(self.shared.state.lock().clone())
    }

    /// Returns to a backup and restarts, like `etcdutl snapshot restore --bump-revision
    /// --mark-compacted`: objects are as they were, resourceVersions go on, and clients list anew.
    /// A simulation must be started anew, too.
    pub fn restore(&self, backup: &Backup) {
        let mut state = self.shared.state.lock();
        let State { store, registry, .. } = backup.0.clone();
        state.store.restore(store);
        state.registry = registry;
        drop(state);
        self.restart(false);
    }

    /// Ends the matching watches, cleanly or in the middle of an event.
    pub fn cut_watches(&self, matcher: Matcher, mid_frame: bool) {
        self.shared.cuts.lock().push(Cut { matcher, mid_frame });
        self.shared.state.lock().store.wake();
    }

    /// Creates the objects that every cluster has.
    fn create_initial_objects(&self) {
        for name in ["default", "kube-node-lease", "kube-public", "kube-system"] {
            self.must_create("namespaces", json!({"metadata": {"name": name}}));
        }
        for (name, value, description) in SYSTEM_CLASSES {
            self.must_create(
                "priorityclasses",
                json!({"metadata": {"name": name}, "value": value, "description": description}),
            );
        }
    }

    fn must_create(&self, resource: &str, object: Value) {
        let mut state = self.shared.state.lock();
        let kinds = state.registry.kinds().iter();
        let kind = kinds.filter(|kind| kind.resource == resource).map(Arc::clone).next();
        let created = kind.map(|kind| self.shared.writer(&mut state, "apiserver").create(&kind, "", object));
        debug_assert!(matches!(created, Some(Ok(_))), "{created:?}");
    }
}

impl Shared {
    /// A writer that uses the current time.
    pub(crate) fn writer<'a>(&self, state: &'a mut State, manager: &'a str) -> Writer<'a> {
        Writer {
            state,
            now: (self.settings.clock)(),
            dry_run: false,
            applies: false,
            manager,
            managed_fields: self.settings.managed_fields,
            collects: self.settings.collects_garbage,
            pod_groups: self.settings.pod_groups,
            cascade: Cascade::default(),
        }
    }

    /// The entry for a custom kind's version in its CustomResourceDefinition.
    pub(crate) fn definition(&self, kind: &Kind) -> Option<Value> {
        let name = kind.qualified();
        let mut definition = {
            let state = self.state.lock();
            Lookup::get(&*state, "apiextensions.k8s.io", "customresourcedefinitions", "", &name)?
        };
        let versions = definition["spec"]["versions"].as_array_mut()?;
        let at = versions.iter().position(|version| version["name"] == *kind.version)?;
        Some(versions.swap_remove(at))
    }

    /// Changes when the server is restarted.
    pub(crate) fn restarts(&self) -> watch::Receiver<u64> {
        self.run.subscribe()
    }

    /// The numbers of restarts and of cuts so far.
    pub(crate) fn interruptions(&self) -> (u64, u64) {
        (*self.run.borrow(), self.cuts.lock().len() as u64)
    }

    /// Whether a cut after the first `since` ones ends a watch; `Some(true)` means in the middle of
    /// an event.
    pub(crate) fn cut_since(&self, since: u64, info: &RequestInfo) -> Option<bool> {
        let cuts = self.cuts.lock();
        let since = usize::try_from(since).unwrap_or(usize::MAX);
        let cuts = cuts.iter().skip(since);
        cuts.filter(|cut| cut.matcher.matches(info)).map(|cut| cut.mid_frame).next()
    }
}
