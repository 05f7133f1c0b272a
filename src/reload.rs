//! Follows the configuration file: other profiles are taken over while scheduling goes on.
//!
//! A file is read anew when its text has changed, as when the kubelet swaps a mounted ConfigMap. What is wrong with it is
//! logged once, and the last good one stays.

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

use crate::options::scheduler_options;
use crate::owner::{Mailbox, ReconfigureError};
use supercargo_client::api::full_text;
use supercargo_config::Config;

/// The configuration at work, and how it came about.
#[derive(Clone, Debug)]
pub(crate) struct Generation {
    /// The configuration.
    pub(crate) config: Arc<Config>,
    /// How many there have been; the first is the one that the process started with.
    pub(crate) number: u64,
    /// How many files have been refused since the start.
    pub(crate) failures: u64,
    /// Whether the last file that was read was taken over, or is the one that the process started with.
    pub(crate) is_current: bool,
}

impl Generation {
    /// The first.
    pub(crate) fn first(config: Arc<Config>) -> Self {
        Self { config, number: 1, failures: 0, is_current: true }
    }
}

/// Why a file is not taken over.
#[derive(Debug, Error)]
enum ReloadError {
    /// It has errors.
    #[error("{}", full_text(&**.0))]
    Config(anyhow::Error),
    /// It says something else where only a restart helps.
    #[error("{} cannot change while supercargo runs; restart it, or undo the change", .0.join(", "))]
    NeedsRestart(Vec<&'static str>),
    /// Its plugins would decide as if there were none of these.
    #[error("cannot learn of {} in time, which its plugins need: may they be listed and watched?", .0.join(", "))]
    Unknown(Vec<Text>),
    /// No scheduler can be made from it.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// The scheduler refuses it.
    #[error(transparent)]
    Refused(#[from] ReconfigureError),
}

/// What follows a file.
pub(crate) struct Reload<L> {
    /// The file.
    pub(crate) path: PathBuf,
    /// Reads it, with everything that stands above it, such as flags.
    pub(crate) load: L,
    /// How often it is looked at.
    pub(crate) period: Duration,
    /// How long it may take until a kind is known that was not needed before.
    pub(crate) patience: Duration,
    /// Where the scheduler is.
    pub(crate) mailbox: Mailbox,
    /// Tells of what is at work.
    pub(crate) generations: watch::Sender<Generation>,
}

impl<L: Fn() -> anyhow::Result<Config>> Reload<L> {
    /// Follows the file, for good. `read` is its text when the process started; `watched` are the kinds that are watched
    /// already, and `watch` has another one watched and returns when it is known.
    pub(crate) async fn follow<W: Future<Output = ()>>(
        self,
        read: Option<Vec<u8>>,
        mut watched: BTreeSet<Text>,
        watch: impl Fn(Text) -> W,
    ) {
        let mut seen = read;
        // What is known to be wrong with that which is tried again.
        let mut told = None;
        let mut ticks = interval_at(tokio::time::Instant::now() + self.period, self.period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            // While the kubelet swaps a volume there is nothing for a moment, and an empty file is being written.
            let Some(text) = self.read().await.filter(|text| !text.is_empty()) else { continue };
            if seen.as_ref() == Some(&text) {
                continue;
            }
            let result = self.reload(&mut watched, &watch).await;
            // What is missing may come without a change of the file.
            let is_tried_again = matches!(result, Err(ReloadError::Unknown(_)));
            let problem = result.err().map(|error| (text.clone(), full_text(&error)));
            seen = (!is_tried_again).then_some(text);
            if let Some((_, what)) = &problem
                && problem != told
            {
                self.generations.send_modify(|generation| {
                    generation.failures += 1;
                    generation.is_current = false;
                });
                tracing::error!("{} has changed and is not taken over: {what}", self.path.display());
            }
            told = problem;
        }
    }

    async fn read(&self) -> Option<Vec<u8>> {
        let path = self.path.clone();
        tokio::task::spawn_blocking(move || std::fs::read(path).ok()).await.ok()?
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
        self.learn(resources, watched, watch).await?;
        self.mailbox.reconfigure(options).await?;
        self.generations.send_modify(|generation| {
            generation.config = Arc::new(config);
            generation.number += 1;
            generation.is_current = true;
        });
        let number = self.generations.borrow().number;
        tracing::info!(generation = number, "{} has changed and is taken over", self.path.display());
        Ok(())
    }

    /// Has all of these kinds watched, and waits until they are known: a plugin that saw none of its objects would decide as if there
    /// were none.
    async fn learn<W: Future<Output = ()>>(
        &self,
        kinds: Vec<Text>,
        watched: &mut BTreeSet<Text>,
        watch: &impl Fn(Text) -> W,
    ) -> Result<(), ReloadError> {
        let unwatched: Vec<_> = kinds.into_iter().filter(|kind| !watched.contains(kind)).collect();
        let learned =
            join_all(unwatched.iter().map(|kind| timeout(self.patience, watch(kind.clone())))).await;
        let mut unknown = Vec::new();
        for (kind, learned) in unwatched.into_iter().zip(learned) {
            match learned {
                Ok(()) => {
                    watched.insert(kind);
                }
                Err(_) => unknown.push(kind),
            }
        }
        if unknown.is_empty() { Ok(()) } else { Err(ReloadError::Unknown(unknown)) }
    }
}

/// The parts of the configuration that differ and cannot be swapped: connections, watches, the lease and what is served stand by
/// them.
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

    use super::*;
    use crate::clock::SystemClock;
    use crate::owner::{CarryOut, MaybeRecorded, Message, Owner, StopOnDrop};
    use crate::watchdog::Watchdog;
    use supercargo_config::Catalog;

    const HEAD: &str = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n";

    struct Idle;

    impl CarryOut for Idle {
        fn carry_out(&mut self, _effect: Effect) {}

        fn has_room(&self) -> bool {
            true
        }
    }

    /// A scheduler that follows a file.
    struct ReloadTest {
        file: NamedTempFile,
        generations: watch::Receiver<Generation>,
        mailbox: Mailbox,
        watched: watch::Receiver<Vec<Text>>,
        follower: JoinHandle<()>,
        _stop: StopOnDrop,
    }

    impl Drop for ReloadTest {
        fn drop(&mut self) {
            self.follower.abort();
        }
    }

    impl ReloadTest {
        fn new(text: &str) -> Self {
            Self::unable_to_list(text, Arc::default())
        }

        /// The same, where nothing is heard of this kind for as long as it is there.
        fn unable_to_list(text: &str, unheard: Arc<Mutex<Option<Text>>>) -> Self {
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
            let clock = Box::new(SystemClock::default());
            let watchdog = Watchdog::new(Duration::ZERO);
            let owner = Owner::new(scheduler, messages, Idle, Box::new(NoCalls), clock, watchdog);
            thread::spawn(move || owner.run());
            let (sender, generations) = watch::channel(Generation::first(Arc::new(config)));
            let (told, of_watched) = watch::channel(Vec::new());
            let read = std::fs::read(&path).ok();
            let period = Duration::from_millis(5);
            let patience = Duration::from_millis(50);
            let reload =
                Reload { path, load, period, patience, mailbox: mailbox.clone(), generations: sender };
            let follower = tokio::spawn(async move {
                let watch = |kind: Text| {
                    let is_unheard = unheard.lock().as_ref() == Some(&kind);
                    told.send_modify(|kinds| kinds.push(kind));
                    async move {
                        if is_unheard {
                            pending::<()>().await;
                        }
                    }
                };
                reload.follow(read, watched, watch).await;
            });
            let watched = of_watched;
            Self { _stop: StopOnDrop(mailbox.clone()), file, generations, mailbox, watched, follower }
        }

        /// The file says something else; returns what comes of it.
        async fn write(&mut self, text: &str) -> Generation {
            // As the kubelet does it: never half a file.
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
    async fn a_changed_file_is_taken_over_and_a_bad_one_is_not() {
        let mut test = ReloadTest::new("profiles: [{schedulerName: a}]");
        assert!(test.serves("a").await);
        let second = test.write("profiles: [{schedulerName: b}]").await;
        assert_eq!((second.number, second.failures, second.is_current), (2, 0, true));
        assert!(test.serves("b").await && !test.serves("a").await);
        let refused = test.write("profiles: [{schedulerNam: c}]").await;
        assert_eq!((refused.number, refused.failures, refused.is_current), (2, 1, false));
        assert!(test.serves("b").await, "the last good one stays");
        let third = test.write("profiles: [{schedulerName: a}]").await;
        assert_eq!((third.number, third.failures, third.is_current), (3, 1, true));
        assert!(test.serves("a").await);
        assert!(test.watched.borrow().is_empty(), "the same plugins need no other kinds");
    }

    #[tokio::test]
    async fn what_cannot_be_swapped_needs_a_restart() {
        let mut test = ReloadTest::new("profiles: [{schedulerName: a}]");
        let changes = [
            "clientConnection: {qps: 7}",
            "delayCacheUntilActive: true",
            "enableProfiling: false",
            "extenders: [{urlPrefix: http://127.0.0.1:1, filterVerb: filter}]",
            "leaderElection: {resourceName: other}",
        ];
        for (failures, change) in (1..).zip(changes) {
            let refused = test.write(&format!("profiles: [{{schedulerName: b}}]\n{change}")).await;
            assert_eq!((refused.number, refused.failures), (1, failures), "{change}");
            assert!(test.serves("a").await);
        }
    }

    const WITHOUT_VOLUMES: &str = "profiles: [{plugins: {multiPoint: {disabled: [{name: InterPodAffinity}, \
        {name: PodTopologySpread}, {name: DefaultPreemption}, {name: VolumeBinding}, \
        {name: VolumeZone}, {name: NodeVolumeLimits}, {name: VolumeRestrictions}]}}}]";

    #[tokio::test]
    async fn a_kind_that_cannot_be_listed_fails_the_reload_which_is_tried_again() {
        let unheard = Arc::new(Mutex::new(Some("PersistentVolume".into())));
        let mut test = ReloadTest::unable_to_list(WITHOUT_VOLUMES, Arc::clone(&unheard));
        let refused = test.write("profiles: [{}]").await;
        assert_eq!(refused.number, 1);
        // It is tried again and again, and told once.
        let missing = unheard.lock().clone().unwrap();
        let tries = |kinds: &Vec<Text>| kinds.iter().filter(|kind| **kind == missing).count();
        test.watched.wait_for(|kinds| tries(kinds) > 3).await.unwrap();
        assert_eq!(test.generations.borrow().failures, 1);
        // As when a role is mended: the file says what it said.
        *unheard.lock() = None;
        test.generations.wait_for(|generation| generation.number == 2).await.unwrap();
    }

    #[tokio::test]
    async fn kinds_that_only_new_plugins_need_are_watched_first() {
        let mut test = ReloadTest::new(WITHOUT_VOLUMES);
        test.write("profiles: [{}]").await;
        let watched = test.watched.borrow().clone();
        assert!(watched.contains(&"PersistentVolume".into()), "{watched:?}");
    }

    #[tokio::test]
    async fn nobody_is_asked_who_has_ended() {
        let test = ReloadTest::new("profiles: [{schedulerName: a}]");
        test.mailbox.post(Message::Stop);
        while test.mailbox.ask(|_| ()).await.is_some() {}
        let options = scheduler_options(&test.generations.borrow().config);
        assert_eq!(test.mailbox.reconfigure(options).await, Err(ReconfigureError::Ended));
    }
}
