//! Reloads the configuration file: new profiles take effect without a restart.
//!
//! The file is parsed again when its content changes, for example when the kubelet updates a
//! mounted ConfigMap. Errors are logged once, and the last valid configuration stays in effect.

use std::collections::BTreeSet;
use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use supercargo_framework::Text;
use supercargo_scheduler::{BuildError, Scheduler};
use thiserror::Error;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval_at, timeout};

use supercargo_client::api::full_text;
use supercargo_config::Config;
use supercargo_owner::options::scheduler_options;
use supercargo_owner::owner::{Mailbox, ReconfigureError};

/// The configuration in effect, and the counts of reloads.
#[derive(Clone, Debug)]
pub(crate) struct Generation {
    /// The configuration.
    pub(crate) config: Arc<Config>,
    /// Number of configurations so far; 1 at the start.
    pub(crate) number: u64,
    /// Number of rejected files since the start.
    pub(crate) failures: u64,
    /// Whether the last file that was read is in effect.
    pub(crate) is_current: bool,
}

impl Generation {
    /// The configuration of the start.
    pub(crate) fn first(config: Arc<Config>) -> Self {
        Self { config, number: 1, failures: 0, is_current: true }
    }
}

/// Why a file is rejected.
#[derive(Debug, Error)]
enum ReloadError {
    /// The file has errors.
    #[error("{}", full_text(&**.0))]
    Config(anyhow::Error),
    /// The file changes settings that require a restart.
    #[error("{} cannot change while supercargo runs; restart supercargo or revert the change", .0.join(", "))]
    NeedsRestart(Vec<&'static str>),
    /// The new plugins watch kinds that could not be listed. Without them the plugins would see no
    /// objects.
    #[error("timed out listing {}, which the new plugins require; check that RBAC allows list and watch", .0.join(", "))]
    Unknown(Vec<Text>),
    /// The profiles are invalid.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// The scheduler rejects the change.
    #[error(transparent)]
    Rejected(#[from] ReconfigureError),
}

/// Watches a configuration file.
pub(crate) struct Reload<L> {
    /// Path of the file.
    pub(crate) path: PathBuf,
    /// Reads the file and applies what overrides it, such as flags.
    pub(crate) load: L,
    /// How often the file is checked.
    pub(crate) period: Duration,
    /// Longest wait for the initial list of a new kind.
    pub(crate) timeout: Duration,
    /// The mailbox of the owner.
    pub(crate) mailbox: Mailbox,
    /// Publishes the configuration in effect.
    pub(crate) generations: watch::Sender<Generation>,
}

impl<L: Fn() -> anyhow::Result<Config>> Reload<L> {
    /// Watches the file forever. `read` is its content at the start of the process. `watched` are
    /// the kinds with an informer. `watch` starts the informer of another kind, and returns once it
    /// has synced.
    pub(crate) async fn follow<W: Future<Output = ()>>(
        self,
        read: Option<Vec<u8>>,
        mut watched: BTreeSet<Text>,
        watch: impl Fn(Text) -> W,
    ) {
        let mut seen = read;
        // The last error that was logged.
        let mut logged = None;
        let mut ticks = interval_at(tokio::time::Instant::now() + self.period, self.period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            // The file may be missing while the kubelet swaps a volume; an empty file is still
            // being written.
            let Some(text) = self.read().filter(|text| !text.is_empty()) else { continue };
            if seen.as_ref() == Some(&text) {
                continue;
            }
            let result = self.reload(&mut watched, &watch).await;
            // Kinds may become available without a change of the file.
            let is_retried = matches!(result, Err(ReloadError::Unknown(_)));
            let problem = result.err().map(|error| (text.clone(), full_text(&error)));
            seen = (!is_retried).then_some(text);
            if let Some((_, what)) = &problem
                && problem != logged
            {
                self.generations.send_modify(|generation| {
                    generation.failures += 1;
                    generation.is_current = false;
                });
                tracing::error!("configuration file {} rejected: {what}", self.path.display());
            }
            logged = problem;
        }
    }

    fn read(&self) -> Option<Vec<u8>> {
        std::fs::read(&self.path).ok()
    }

    async fn reload<W: Future<Output = ()>>(
        &self,
        watched: &mut BTreeSet<Text>,
        watch: &impl Fn(Text) -> W,
    ) -> Result<(), ReloadError> {
        let config = (self.load)().map_err(ReloadError::Config)?;
        let fixed = fixed_parts(&self.generations.borrow().config, &config);
        if !fixed.is_empty() {
            return Err(ReloadError::NeedsRestart(fixed));
        }
        let options = scheduler_options(&config);
        let resources = Scheduler::new(options.clone())?.resources();
        self.watch_kinds(resources, watched, watch).await?;
        self.mailbox.reconfigure(options, config.to_yaml_without_keys()).await?;
        self.generations.send_modify(|generation| {
            generation.config = Arc::new(config);
            generation.number += 1;
            generation.is_current = true;
        });
        let number = self.generations.borrow().number;
        tracing::info!(generation = number, "configuration file {} reloaded", self.path.display());
        Ok(())
    }

    /// Starts informers of these kinds, and waits until they have synced: without them plugins
    /// would see no objects.
    async fn watch_kinds<W: Future<Output = ()>>(
        &self,
        kinds: Vec<Text>,
        watched: &mut BTreeSet<Text>,
        watch: &impl Fn(Text) -> W,
    ) -> Result<(), ReloadError> {
        let unwatched: Vec<_> = kinds.into_iter().filter(|kind| !watched.contains(kind)).collect();
        let synced = join_all(unwatched.iter().map(|kind| timeout(self.timeout, watch(kind.clone())))).await;
        let mut unknown = Vec::new();
        for (kind, synced) in unwatched.into_iter().zip(synced) {
            match synced {
                Ok(()) => {
                    watched.insert(kind);
                }
                Err(_) => unknown.push(kind),
            }
        }
        if unknown.is_empty() { Ok(()) } else { Err(ReloadError::Unknown(unknown)) }
    }
}

/// Changed settings that require a restart: connections, watches, the lease and the endpoints
/// depend on them.
fn fixed_parts(running: &Config, new: &Config) -> Vec<&'static str> {
    let parts = [
        ("clientConnection", running.client_connection == new.client_connection),
        ("extenders", running.extenders == new.extenders),
        ("leaderElection", running.leader_election == new.leader_election),
        ("delayCacheUntilActive", running.delay_cache_until_active == new.delay_cache_until_active),
        ("enableProfiling", running.enable_profiling == new.enable_profiling),
    ];
    parts.into_iter().filter(|(_, same)| !same).map(|(part, _)| part).collect()
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::thread;

    use parking_lot::Mutex;
    use supercargo_scheduler::{Effect, NoCalls};
    use tempfile::NamedTempFile;
    use tokio::task::JoinHandle;

    use supercargo_client::host::SystemClock;

    use super::*;
    use supercargo_config::Catalog;
    use supercargo_owner::owner::{CarryOut, MaybeRecorded, Message, Owner, StopOnDrop};
    use supercargo_owner::watchdog::Watchdog;

    const HEAD: &str = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n";

    struct Idle;

    impl CarryOut for Idle {
        fn carry_out(&mut self, _effect: Effect) {}

        fn has_room(&self) -> bool {
            true
        }
    }

    /// A scheduler that reloads a file.
    struct ReloadTest {
        file: NamedTempFile,
        generations: watch::Receiver<Generation>,
        mailbox: Mailbox,
        watched: watch::Receiver<Vec<Text>>,
        reloading: JoinHandle<()>,
        _stop: StopOnDrop,
    }

    impl Drop for ReloadTest {
        fn drop(&mut self) {
            self.reloading.abort();
        }
    }

    impl ReloadTest {
        fn new(text: &str) -> Self {
            Self::unable_to_list(text, Arc::default())
        }

        /// The same, but this kind does not sync while it is set.
        fn unable_to_list(text: &str, unsynced: Arc<Mutex<Option<Text>>>) -> Self {
            let file = NamedTempFile::new().unwrap();
            std::fs::write(&file, format!("{HEAD}{text}")).unwrap();
            let path = file.path().to_owned();
            let of_load = path.clone();
            let load = move || Ok(Config::load(&of_load, &Catalog::in_tree())?);
            let config = load().unwrap();
            let scheduler = Scheduler::new(scheduler_options(&config)).unwrap();
            let watched = scheduler.resources().into_iter().collect();
            let (mailbox, messages) = Mailbox::new();
            let scheduler = MaybeRecorded::Plain(Box::new(scheduler));
            let clock = Arc::new(SystemClock::default());
            let watchdog = Watchdog::new(Duration::ZERO);
            let owner = Owner::new(scheduler, messages, Box::new(Idle), Box::new(NoCalls), clock, watchdog);
            thread::spawn(move || owner.run());
            let (sender, generations) = watch::channel(Generation::first(Arc::new(config)));
            let (report, of_watched) = watch::channel(Vec::new());
            let read = std::fs::read(&path).ok();
            let period = Duration::from_millis(5);
            let timeout = Duration::from_millis(50);
            let reload =
                Reload { path, load, period, timeout, mailbox: mailbox.clone(), generations: sender };
            let reloading = tokio::spawn(async move {
                let watch = |kind: Text| {
                    let is_unsynced = unsynced.lock().as_ref() == Some(&kind);
                    report.send_modify(|kinds| kinds.push(kind));
                    async move {
                        if is_unsynced {
                            pending::<()>().await;
                        }
                    }
                };
                reload.follow(read, watched, watch).await;
            });
            let watched = of_watched;
            Self { _stop: StopOnDrop(mailbox.clone()), file, generations, mailbox, watched, reloading }
        }

        /// Changes the file; returns the resulting generation.
        async fn write(&mut self, text: &str) -> Generation {
            // Atomically, like the kubelet.
            let next = NamedTempFile::new_in(self.file.path().parent().unwrap()).unwrap();
            std::fs::write(&next, format!("{HEAD}{text}")).unwrap();
            next.persist(self.file.path()).unwrap();
            self.generations.changed().await.unwrap();
            self.generations.borrow_and_update().clone()
        }

        async fn serves(&self, name: &'static str) -> bool {
            self.mailbox.ask(move |scheduler| scheduler.is_responsible_for(name)).await.unwrap()
        }
    }

    #[tokio::test]
    async fn changed_file_is_reloaded_and_an_invalid_one_rejected() {
        let mut test = ReloadTest::new("profiles: [{schedulerName: a}]");
        assert!(test.serves("a").await);
        let second = test.write("profiles: [{schedulerName: b}]").await;
        assert_eq!((second.number, second.failures, second.is_current), (2, 0, true));
        assert!(test.serves("b").await && !test.serves("a").await);
        let rejected = test.write("profiles: [{schedulerNam: c}]").await;
        assert_eq!((rejected.number, rejected.failures, rejected.is_current), (2, 1, false));
        assert!(test.serves("b").await, "the last valid configuration stays in effect");
        let third = test.write("profiles: [{schedulerName: a}]").await;
        assert_eq!((third.number, third.failures, third.is_current), (3, 1, true));
        assert!(test.serves("a").await);
        assert!(test.watched.borrow().is_empty(), "the same plugins watch the same kinds");
    }

    #[tokio::test]
    async fn changes_that_require_a_restart_are_rejected() {
        let mut test = ReloadTest::new("profiles: [{schedulerName: a}]");
        let changes = [
            "clientConnection: {qps: 7}",
            "delayCacheUntilActive: true",
            "enableProfiling: false",
            "extenders: [{urlPrefix: http://127.0.0.1:1, filterVerb: filter}]",
            "leaderElection: {resourceName: other}",
        ];
        for (failures, change) in (1..).zip(changes) {
            let rejected = test.write(&format!("profiles: [{{schedulerName: b}}]\n{change}")).await;
            assert_eq!((rejected.number, rejected.failures), (1, failures), "{change}");
            assert!(test.serves("a").await);
        }
    }

    const WITHOUT_VOLUMES: &str = "profiles: [{plugins: {multiPoint: {disabled: [{name: InterPodAffinity}, \
        {name: PodTopologySpread}, {name: DefaultPreemption}, {name: VolumeBinding}, \
        {name: VolumeZone}, {name: NodeVolumeLimits}, {name: VolumeRestrictions}]}}}]";

    #[tokio::test]
    async fn reload_is_retried_while_a_kind_cannot_be_listed() {
        let unsynced = Arc::new(Mutex::new(Some("PersistentVolume".into())));
        let mut test = ReloadTest::unable_to_list(WITHOUT_VOLUMES, Arc::clone(&unsynced));
        let rejected = test.write("profiles: [{}]").await;
        assert_eq!(rejected.number, 1);
        // The reload is retried, and the error is logged once.
        let missing = unsynced.lock().clone().unwrap();
        let tries = |kinds: &Vec<Text>| kinds.iter().filter(|kind| **kind == missing).count();
        test.watched.wait_for(|kinds| tries(kinds) > 3).await.unwrap();
        assert_eq!(test.generations.borrow().failures, 1);
        // As after a fix of the RBAC role, with the file unchanged.
        *unsynced.lock() = None;
        test.generations.wait_for(|generation| generation.number == 2).await.unwrap();
    }

    #[tokio::test]
    async fn kinds_that_new_plugins_need_are_watched_before_the_reload() {
        let mut test = ReloadTest::new(WITHOUT_VOLUMES);
        test.write("profiles: [{}]").await;
        let watched = test.watched.borrow().clone();
        assert!(watched.contains(&"PersistentVolume".into()), "{watched:?}");
    }

    #[tokio::test]
    async fn reconfigure_fails_after_the_owner_has_stopped() {
        let test = ReloadTest::new("profiles: [{schedulerName: a}]");
        test.mailbox.post(Message::Stop);
        while test.mailbox.ask(|_| ()).await.is_some() {}
        let options = scheduler_options(&test.generations.borrow().config);
        assert_eq!(test.mailbox.reconfigure(options, String::new()).await, Err(ReconfigureError::Ended));
    }
}
