//! The server: what it is made of, and how a request comes to its answer.

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

/// Tells the time.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// How a server is to be.
#[derive(Clone)]
pub struct Settings {
    /// How many changes of each resource are remembered for watches and continued lists.
    pub history: usize,
    /// Where generated names and UIDs come from: the same seed and requests give the same.
    pub seed: u64,
    /// Whether `metadata.managedFields` is kept for all writes, not only where somebody applies.
    pub managed_fields: bool,
    /// Whether what is owned goes with its owner, and what is in a namespace with the namespace. That is the
    /// controller manager's part in a real cluster.
    pub collects_garbage: bool,
    /// Tells the time for timestamps in objects.
    pub clock: Clock,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            history: 100_000,
            seed: 1,
            managed_fields: false,
            collects_garbage: true,
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

/// An API server. Clones are handles to the same one.
#[derive(Clone, Debug)]
pub struct ApiServer {
    pub(crate) shared: Arc<Shared>,
}

/// What all requests share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) settings: Settings,
    pub(crate) state: Mutex<State>,
    pub(crate) faults: Faults,
    /// Counts restarts.
    run: watch::Sender<u64>,
    /// What ends watches from outside.
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
    /// A server with the namespaces and priority classes that every cluster has, and nothing else.
    pub fn new(settings: Settings) -> Self {
        let registry = Registry::new();
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

    /// Which requests go wrong, and how.
    pub fn faults(&self) -> &Faults {
        &self.shared.faults
    }

    /// The newest resourceVersion.
    pub fn resource_version(&self) -> u64 {
        self.shared.state.lock().store.version()
    }

    /// Forgets the past: who asks for what came after an old resourceVersion is told that it is gone (410).
    pub fn compact(&self) {
        let mut state = self.shared.state.lock();
        state.store.compact();
        state.store.wake();
    }

    /// Ends every watch and every request that waits, as a server that is started anew. Objects stay; so does the past, if `keep_history`.
    pub fn restart(&self, keep_history: bool) {
        self.shared.run.send_modify(|run| *run += 1);
        let mut state = self.shared.state.lock();
        if !keep_history {
            state.store.compact();
        }
        state.store.wake();
    }

    /// Ends the watches that match, in order or in the middle of an event.
    pub fn cut_watches(&self, matcher: Matcher, mid_frame: bool) {
        self.shared.cuts.lock().push(Cut { matcher, mid_frame });
        self.shared.state.lock().store.wake();
    }

    /// What every cluster has.
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
    /// A writer as of now.
    pub(crate) fn writer<'a>(&self, state: &'a mut State, manager: &'a str) -> Writer<'a> {
        Writer {
            state,
            now: (self.settings.clock)(),
            dry_run: false,
            applies: false,
            manager,
            managed_fields: self.settings.managed_fields,
            collects: self.settings.collects_garbage,
            cascade: Cascade::default(),
        }
    }

    /// What the CustomResourceDefinition of a custom kind says about its version.
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

    /// How often the server was restarted and watches were cut.
    pub(crate) fn interruptions(&self) -> (u64, u64) {
        (*self.run.borrow(), self.cuts.lock().len() as u64)
    }

    /// Whether a watch is among those cut since, and if so whether in the middle of an event.
    pub(crate) fn cut_since(&self, since: u64, info: &RequestInfo) -> Option<bool> {
        let cuts = self.cuts.lock();
        let since = usize::try_from(since).unwrap_or(usize::MAX);
        let cuts = cuts.iter().skip(since);
        cuts.filter(|cut| cut.matcher.matches(info)).map(|cut| cut.mid_frame).next()
    }
}
