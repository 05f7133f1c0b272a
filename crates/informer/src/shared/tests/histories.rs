//! Random histories: with lost events, refusals, relists, late handlers and removals, every handler
//! receives a faithful account of the changes, whose sum is the server's content.
//!
//! `INFORMER_HISTORIES` sets the number of histories; the default is a few hundred.

mod false_accounts;
mod model;
mod recording_handler;

use proptest::prelude::*;

use self::model::{Account, Initial, Model, State};
use self::recording_handler::{HandlerCall, RecordingHandler, TimedCall};
use super::*;
use crate::list_watch::WatchEvent;
use crate::testing::{connection_refused, refusal};

const OBJECTS: u8 = 6;
/// Objects with this number or above always or never pass filters.
const STEADY: u8 = 4;

/// The properties of a handler.
#[derive(Clone, Copy, Debug)]
struct Manner {
    filtered: bool,
    /// Whether it takes part in resyncs, if the informer has any.
    resynced: bool,
    /// Panics now and then, each time with a pause of this many milliseconds.
    held_up: Option<u16>,
}

#[derive(Clone, Copy, Debug)]
enum Fault {
    ListRefused(u16, &'static str),
    WatchRefused(u16, &'static str),
    Unreachable,
    WatchError(u16, &'static str),
    ShortWatches(u8),
    CloseWatches,
    BreakWatches,
    /// Watches close, and cannot be resumed.
    ForgetHistory,
    ForgetPages,
}

#[derive(Clone, Copy, Debug)]
enum How {
    Watched,
    Silently,
    Undecodable,
}

impl How {
    /// Only steady objects can become undecodable. A filter sees a deletion's own state, so whether
    /// an object passes must not change while it is undecodable.
    fn name(self, name: u8) -> u8 {
        if matches!(self, Self::Undecodable) { STEADY + name % (OBJECTS - STEADY) } else { name }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Apply { name: u8, passes: bool, how: How },
    Delete { name: u8, how: How },
    Bookmark,
    Fault(Fault),
    Join(Manner),
    Leave(u8),
    Wait(u16),
    Yield,
}

#[derive(Clone, Debug)]
struct Setting {
    queue: QueueKind,
    watch_list: WatchListSupport,
    latency: u16,
    pages: Option<usize>,
    /// The informer's resync period in seconds.
    resync: u64,
    first: Vec<Manner>,
    seed: u64,
    /// Stops after the last step, without time to catch up.
    cut_short: bool,
}

fn how() -> impl Strategy<Value = How> {
    prop_oneof![8 => Just(How::Watched), 2 => Just(How::Silently), 1 => Just(How::Undecodable)]
}

fn fault() -> impl Strategy<Value = Fault> {
    let refusals = prop::sample::select(vec![
        (500, "InternalError"),
        (403, "Forbidden"),
        (410, "Expired"),
        (429, "TooManyRequests"),
        (504, "Timeout"),
    ]);
    prop_oneof![
        2 => refusals.clone().prop_map(|(code, reason)| Fault::ListRefused(code, reason)),
        2 => refusals.clone().prop_map(|(code, reason)| Fault::WatchRefused(code, reason)),
        1 => Just(Fault::Unreachable),
        2 => refusals.prop_map(|(code, reason)| Fault::WatchError(code, reason)),
        1 => (1..4_u8).prop_map(Fault::ShortWatches),
        2 => Just(Fault::CloseWatches),
        1 => Just(Fault::BreakWatches),
        3 => Just(Fault::ForgetHistory),
        1 => Just(Fault::ForgetPages),
    ]
}

fn manner() -> impl Strategy<Value = Manner> {
    let held_up = prop::option::weighted(0.2, 1..3000_u16);
    (any::<bool>(), any::<bool>(), held_up).prop_map(|(filtered, resynced, held_up)| Manner {
        filtered,
        resynced,
        held_up,
    })
}

fn step() -> impl Strategy<Value = Step> {
    let name = 0..OBJECTS;
    prop_oneof![
        10 => (name.clone(), any::<bool>(), how()).prop_map(|(name, passes, how)| Step::Apply { name, passes, how }),
        5 => (name, how()).prop_map(|(name, how)| Step::Delete { name, how }),
        1 => Just(Step::Bookmark),
        4 => fault().prop_map(Step::Fault),
        1 => manner().prop_map(Step::Join),
        1 => any::<u8>().prop_map(Step::Leave),
        3 => (0..4000_u16).prop_map(Step::Wait),
        3 => Just(Step::Yield),
    ]
}

fn setting() -> impl Strategy<Value = Setting> {
    let watch_list = prop_oneof![
        Just(WatchListSupport::Full),
        Just(WatchListSupport::Refused),
        Just(WatchListSupport::NoEnd)
    ];
    // The default queue half the time.
    let queues = vec![
        QueueKind::default(),
        QueueKind::default(),
        QueueKind::default(),
        QueueKind::RealFifo { atomic: false },
        QueueKind::DeltaFifo { replaced: true },
        QueueKind::DeltaFifo { replaced: false },
    ];
    (
        prop::sample::select(queues),
        watch_list,
        prop_oneof![Just(0), 1..500_u16],
        prop::option::of(1..4_usize),
        prop::sample::select(vec![0, 5, 30]),
        prop::collection::vec(manner(), 0..3),
        any::<u64>(),
        prop::bool::weighted(0.2),
    )
        .prop_map(|(queue, watch_list, latency, pages, resync, first, seed, cut_short)| Setting {
            queue,
            watch_list,
            latency,
            pages,
            resync,
            first,
            seed,
            cut_short,
        })
}

/// A handler under test.
struct Player {
    recorder: RecordingHandler,
    registration: Registration,
    manner: Manner,
    initial: Initial,
    joined: Instant,
    /// The number of initial objects calls when it was first seen synced.
    synced_with: Option<usize>,
}

impl Player {
    fn account(&self, Stage { rig, setting, .. }: &Stage, complete: bool) -> Account {
        let source = &rig.source;
        let strays = matches!(setting.queue, QueueKind::RealFifo { .. });
        Account {
            calls: self.recorder.calls(),
            filtered: self.manner.filtered,
            initial: self.initial.clone(),
            gathered: !strays,
            strays,
            first_list: source.first_list().map(|version| version.parse().unwrap()),
            complete,
            no_syncs_after: self.no_syncs_after(&rig.informer),
        }
    }

    /// Until the first check, every handler receives updates without a new version. The delay of
    /// slow handlers is not tested here.
    fn no_syncs_after(&self, informer: &SharedInformer<Pods>) -> Option<Instant> {
        let exempt = self.manner.resynced || self.manner.held_up.is_some();
        if exempt { None } else { informer.processor.first_check_after(self.joined) }
    }

    fn beginning(&self) -> usize {
        let calls = self.recorder.calls();
        calls.iter().filter(|calls| matches!(calls.call, HandlerCall::Add { initial: true, .. })).count()
    }

    fn syncs_since(&self, since: Instant) -> usize {
        self.recorder.calls().iter().filter(|calls| calls.at > since && calls.call.is_sync()).count()
    }
}

struct Stage {
    rig: Rig,
    model: Model,
    setting: Setting,
    started: Instant,
    /// Whether each object passed the filter in its last delivered state. Lost changes leave it
    /// unchanged: a real watch loses none, so it never ends an object with a state that differs in
    /// this from the last delivered one.
    passing: [bool; OBJECTS as usize],
    players: Vec<Player>,
    /// Removed handlers, and how many notifications each had calls.
    gone: Vec<(Player, usize)>,
}

impl Stage {
    fn new(setting: Setting) -> Self {
        let reflector = ReflectorOptions { seed: Some(setting.seed), ..ReflectorOptions::default() };
        let resync = secs(setting.resync);
        let mut rig = Rig::with(
            &[],
            InformerOptions { resync, reflector, queue: setting.queue, ..InformerOptions::default() },
        );
        rig.source = rig.source.with_watch_list(setting.watch_list);
        rig.source = rig.source.with_latency(Duration::from_millis(setting.latency.into()));
        if let Some(size) = setting.pages {
            rig.source = rig.source.with_pages(size);
        }
        let mut stage = Self {
            rig,
            model: Model::default(),
            started: Instant::now(),
            passing: [false, false, false, false, true, false],
            players: Vec::new(),
            gone: Vec::new(),
            setting,
        };
        for manner in stage.setting.first.clone() {
            stage.join(manner);
        }
        stage
    }

    fn version(&self) -> u64 {
        self.rig.source.version().parse().unwrap()
    }

    fn apply(&mut self, name: u8, passes: bool, how: How) {
        let name = how.name(name);
        let key = format!("ns/p{name}");
        if matches!(how, How::Watched) && name < STEADY {
            self.passing[usize::from(name)] = passes;
        }
        let passes = self.passing[usize::from(name)];
        let pod = labelled(name, passes);
        match how {
            How::Watched => self.rig.source.apply(pod),
            How::Silently => self.rig.source.apply_silently(pod),
            How::Undecodable => self.rig.source.apply_undecodable(pod),
        }
        let state = match how {
            How::Undecodable => State::Unreadable,
            How::Watched | How::Silently => State::Live { passes },
        };
        self.model.note(&key, self.version(), state);
    }

    fn delete(&mut self, name: u8, how: How) {
        let name = how.name(name);
        let key = format!("ns/p{name}");
        if self.model.state(&key) == State::Gone {
            return;
        }
        let pod = labelled(name, self.passing[usize::from(name)]);
        match how {
            How::Watched => self.rig.source.delete(pod),
            How::Silently => self.rig.source.delete_silently(pod),
            How::Undecodable => self.rig.source.delete_undecodable(pod),
        }
        self.model.note(&key, self.version(), State::Gone);
    }

    fn fault(&self, fault: Fault) {
        let source = &self.rig.source;
        match fault {
            Fault::ListRefused(code, reason) => source.fail_list(refused(code, reason)),
            Fault::WatchRefused(code, reason) => source.fail_watch(refused(code, reason)),
            Fault::Unreachable => {
                source.fail_watch(connection_refused());
                source.fail_list(connection_refused());
            }
            Fault::WatchError(code, reason) => source.send(|| WatchEvent::Error(refusal(code, reason))),
            Fault::ShortWatches(count) => source.shorten_watches(count.into()),
            Fault::CloseWatches => source.close_watches(),
            Fault::BreakWatches => source.break_watches(),
            Fault::ForgetHistory => source.reset_watch(),
            Fault::ForgetPages => source.expire_pages(),
        }
    }

    fn join(&mut self, manner: Manner) {
        let informer = &self.rig.informer;
        let stored = informer.store().list();
        let shown = stored.iter().filter(|pod| !manner.filtered || passes(pod));
        let shown = shown.map(|pod| (recording_handler::key(pod), recording_handler::version(pod))).collect();
        // The store can have content only after the first list.
        let initial = if informer.has_synced() { Initial::Store(shown) } else { Initial::FirstList };
        let recorder = RecordingHandler::new(manner.held_up.map(|_| 3));
        let pause = Duration::from_millis(manner.held_up.unwrap_or_default().into());
        let options = HandlerOptions {
            resync: (!manner.resynced).then_some(Duration::ZERO),
            panic_policy: PanicPolicy::SkipAfter(pause),
            ..HandlerOptions::default()
        };
        let registration = if manner.filtered {
            informer.add_event_handler(Filtering { filter: passes, handler: recorder.clone() }, options)
        } else {
            informer.add_event_handler(recorder.clone(), options)
        };
        self.players.push(Player {
            recorder,
            registration: registration.unwrap(),
            manner,
            initial,
            joined: Instant::now(),
            synced_with: None,
        });
    }

    async fn leave(&mut self, n: u8) {
        if self.players.is_empty() {
            return;
        }
        let player = self.players.swap_remove(usize::from(n) % self.players.len());
        self.rig.informer.remove_event_handler(&player.registration);
        player.registration.stopped().await;
        let calls = player.recorder.len();
        self.gone.push((player, calls));
    }

    async fn perform(&mut self, step: Step) {
        match step {
            Step::Apply { name, passes, how } => self.apply(name, passes, how),
            Step::Delete { name, how } => self.delete(name, how),
            Step::Bookmark => self.rig.source.bookmark(),
            Step::Fault(fault) => self.fault(fault),
            Step::Join(manner) => self.join(manner),
            Step::Leave(n) => self.leave(n).await,
            Step::Wait(millis) => tokio::time::sleep(Duration::from_millis(millis.into())).await,
            Step::Yield => tokio::task::yield_now().await,
        }
        self.look_around();
    }

    fn look_around(&mut self) {
        for player in &mut self.players {
            if player.synced_with.is_none() && player.registration.has_synced() {
                player.synced_with = Some(player.beginning());
            }
        }
    }

    /// Ends all faults, and lets the informer catch up.
    async fn catch_up(&mut self) {
        for name in 0..OBJECTS {
            if self.model.state(&format!("ns/p{name}")) == State::Unreadable {
                self.apply(name, true, How::Watched);
            }
        }
        self.rig.source.serve();
        tokio::time::sleep(secs(300)).await;
        self.rig.source.reset_watch();
        // Long enough for several resyncs: the first changes hold up a slow handler.
        tokio::time::sleep(secs(600)).await;
        self.join(Manner { filtered: false, resynced: true, held_up: None });
        settle().await;
        self.look_around();
    }

    /// Without other changes, each resync delivers every object once to its handlers.
    async fn check_resyncs(&self) -> Result<(), String> {
        // Sample between two checks. Skip the next one: handlers added meanwhile may receive their
        // first resync a period late.
        let period = self.setting.resync;
        let checks = self.started.elapsed().as_secs().checked_div(period).unwrap_or_default() + 3;
        tokio::time::sleep_until(self.started + secs(checks * period) + secs(period) / 2).await;
        let since = Instant::now();
        tokio::time::sleep(secs(4 * period)).await;
        for player in self.players.iter().filter(|player| player.manner.held_up.is_none()) {
            let content = self.rig.informer.store().list();
            let shown = content.iter().filter(|pod| !player.manner.filtered || passes(pod)).count();
            let expected = if period > 0 && player.manner.resynced { 4 * shown } else { 0 };
            if player.syncs_since(since) != expected {
                return Err(format!("{} syncs instead of {expected}", player.syncs_since(since)));
            }
        }
        Ok(())
    }

    fn check(&self, complete: bool) -> Result<(), String> {
        let store = self.rig.informer.store().list();
        let stored: model::Content =
            store.iter().map(|pod| (recording_handler::key(pod), recording_handler::version(pod))).collect();
        let server: model::Content = self
            .rig
            .source
            .content()
            .into_iter()
            .map(|(key, version)| (key, version.parse().unwrap()))
            .collect();
        if complete && stored != server {
            return Err(format!("the store has {stored:?}, the server {server:?}"));
        }
        for player in &self.players {
            self.model.check(&player.account(self, complete))?;
            if complete && !player.registration.has_synced() || player.registration.pending() > 0 {
                return Err("has pending changes".to_owned());
            }
            if player.synced_with.is_some_and(|beginning| beginning != player.beginning()) {
                return Err("synced before the end of its initial objects".to_owned());
            }
        }
        for (player, calls) in &self.gone {
            self.model.check(&player.account(self, false))?;
            if player.recorder.len() != *calls {
                return Err("calls a notification after its removal".to_owned());
            }
        }
        Ok(())
    }

    /// The notifications add up to the content of the store.
    fn check_delivered(&self) -> Result<(), String> {
        let stored = self.rig.informer.store().list();
        for player in &self.players {
            let shown = stored.iter().filter(|pod| !player.manner.filtered || passes(pod));
            let shown: model::Content =
                shown.map(|pod| (recording_handler::key(pod), recording_handler::version(pod))).collect();
            let calls = fold(&player.recorder.calls());
            if calls != shown {
                return Err(format!("calls {calls:?} in total, but the store has {shown:?}"));
            }
        }
        Ok(())
    }
}

/// The content that notifications add up to.
fn fold(calls: &[TimedCall]) -> model::Content {
    let mut content = model::Content::new();
    for TimedCall { call, .. } in calls {
        match call {
            HandlerCall::Add { key, version, .. } => content.insert(key.clone(), *version),
            HandlerCall::Update { key, new, .. } => content.insert(key.clone(), *new),
            HandlerCall::Delete { key, .. } => content.remove(key),
        };
    }
    content
}

fn labelled(name: u8, passes: bool) -> Pod {
    let mut pod = pod(&format!("p{name}"));
    pod.metadata.labels = Some([("passes".to_owned(), passes.to_string())].into());
    pod
}

fn passes(pod: &Pod) -> bool {
    pod.metadata.labels.as_ref().is_some_and(|labels| labels.get("passes").is_some_and(|it| it == "true"))
}

/// Runs a history, and checks all handlers. Returns the state for the counterfeits.
async fn play(setting: Setting, steps: Vec<Step>) -> Result<Stage, String> {
    let cut_short = setting.cut_short;
    let mut stage = Stage::new(setting);
    let running = stage.rig.run();
    for step in steps {
        stage.perform(step).await;
    }
    if !cut_short {
        stage.catch_up().await;
        stage.check(true)?;
        stage.check_resyncs().await?;
    }
    stage.rig.stop(running).await;
    stage.check(!cut_short)?;
    stage.check_delivered()?;
    let left = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    if left > 0 || stage.rig.source.watchers() > 0 {
        return Err(format!("{left} tasks and {} watches remain", stage.rig.source.watchers()));
    }
    Ok(stage)
}

fn in_virtual_time<T>(future: impl Future<Output = T>) -> T {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(future)
}

fn histories() -> u32 {
    std::env::var("INFORMER_HISTORIES").ok().and_then(|count| count.parse().ok()).unwrap_or(300)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: histories(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn handlers_receive_a_faithful_account_of_any_history(
        setting in setting(),
        steps in prop::collection::vec(step(), 0..80),
    ) {
        let outcome = in_virtual_time(play(setting, steps));
        prop_assert!(outcome.is_ok(), "{}", outcome.err().unwrap_or_default());
    }
}
