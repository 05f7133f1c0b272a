//! The thread that owns the scheduler.
//!
//! It takes messages, schedules, and passes effects on. Nothing else accesses the scheduler.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use supercargo_client::host::Clock;
use supercargo_framework::Now;
use supercargo_framework::binding::{Predicate, WaitError};
use supercargo_scheduler::record::Recorded;
use supercargo_scheduler::{BuildError, Calls, Effect, Input, Notification, Options, Scheduler};
use thiserror::Error;
use tokio::sync::oneshot;

use crate::recorder::Recorder;
use crate::watchdog::{Subject, Watchdog};

/// How long messages are taken before the next cycle, so that many events do not starve scheduling.
/// One message may take longer.
const LONGEST_INTAKE: Duration = Duration::from_millis(20);

/// Longest sleep, so that the thread notices when the wall clock is set.
const LONGEST_SLEEP: Duration = Duration::from_secs(30);

/// A message to the owner.
pub enum Message {
    /// An input for the scheduler.
    Input(Box<Input>),
    /// A plugin waits for a condition on the cluster state.
    WaitFor {
        /// The condition.
        predicate: Predicate,
        /// Longest wait by the scheduler's clock.
        timeout: Duration,
        /// Gets the outcome: the condition holds, or the wait timed out.
        done: oneshot::Sender<Result<(), WaitError>>,
    },
    /// Reads the scheduler between two cycles.
    Ask(Question),
    /// Replaces the profiles.
    Reconfigure {
        /// Options of the new configuration.
        options: Box<Options>,
        /// Its text, for a record.
        text: String,
        /// Gets the outcome.
        done: oneshot::Sender<Result<(), ReconfigureError>>,
    },
    /// Starts scheduling: all handlers have synced, and this process leads.
    Start,
    /// More bindings may start.
    Room,
    /// Stops without waiting for bindings in flight.
    Stop,
}

/// Why profiles were not replaced.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ReconfigureError {
    /// The new profiles are invalid.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// The scheduler has stopped.
    #[error("the scheduler has stopped")]
    Ended,
}

/// Reads the scheduler and sends the result to the caller.
pub type Question = Box<dyn FnOnce(&Scheduler) + Send>;

/// Sends messages to the owner. Never blocks.
#[derive(Clone)]
pub struct Mailbox(Sender<Message>);

impl Mailbox {
    /// A mailbox, and what the owner receives from.
    pub fn new() -> (Self, Receiver<Message>) {
        let (sender, receiver) = mpsc::channel();
        (Self(sender), receiver)
    }

    /// Sends an input.
    pub fn send(&self, input: Input) {
        self.post(Message::Input(Box::new(input)));
    }

    /// Runs `question` on the scheduler between two cycles. It must be fast, as scheduling waits.
    /// `None` if the owner has stopped.
    pub async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Scheduler) -> T + Send + 'static,
    ) -> Option<T> {
        let (done, answer) = oneshot::channel();
        self.post(Message::Ask(Box::new(move |scheduler| {
            // The caller may have stopped waiting.
            let _ = done.send(question(scheduler));
        })));
        answer.await.ok()
    }

    /// Replaces the profiles between two cycles. A record gets the `text` of the configuration.
    pub async fn reconfigure(&self, options: Options, text: String) -> Result<(), ReconfigureError> {
        let (done, answer) = oneshot::channel();
        self.post(Message::Reconfigure { options: Box::new(options), text, done });
        answer.await.unwrap_or(Err(ReconfigureError::Ended))
    }

    /// Sends a message. A stopped owner ignores it.
    pub fn post(&self, message: Message) {
        let _ = self.0.send(message);
    }
}

/// Carries out effects without blocking the owner.
pub trait CarryOut: Send {
    /// Starts to carry out an effect.
    fn carry_out(&mut self, effect: Effect);

    /// Whether more bindings may start. A message to the owner follows when this becomes true
    /// again.
    fn has_room(&self) -> bool;

    /// Whether this process may write now: it leads, or needs no lease.
    fn may_write(&self) -> bool {
        true
    }
}

/// Carries out nothing.
struct Nothing;

impl CarryOut for Nothing {
    fn carry_out(&mut self, _: Effect) {}

    fn has_room(&self) -> bool {
        true
    }
}

/// The scheduler, with or without a record of its calls.
pub enum MaybeRecorded {
    /// Inputs are not kept.
    Plain(Box<Scheduler>),
    /// A record gets each input.
    Recorded(Box<Recorded<Recorder>>),
}

impl MaybeRecorded {
    fn get(&self) -> &Scheduler {
        match self {
            Self::Plain(scheduler) => scheduler,
            Self::Recorded(recorded) => recorded.scheduler(),
        }
    }

    fn handle(&mut self, now: Now, input: Input) -> Vec<Effect> {
        match self {
            Self::Plain(scheduler) => {
                scheduler.handle(now, input);
                scheduler.take_effects()
            }
            Self::Recorded(recorded) => recorded.handle(now, input),
        }
    }

    fn schedule_one(&mut self, now: Now, calls: &mut dyn Calls) -> Vec<Effect> {
        match self {
            Self::Plain(scheduler) => {
                scheduler.schedule_one(now, calls);
                scheduler.take_effects()
            }
            Self::Recorded(recorded) => recorded.schedule_one(now, calls),
        }
    }

    fn reconfigure(&mut self, now: Now, options: Options, text: String) -> Result<Vec<Effect>, BuildError> {
        match self {
            Self::Plain(scheduler) => {
                scheduler.reconfigure(now, options)?;
                Ok(scheduler.take_effects())
            }
            Self::Recorded(recorded) => recorded.reconfigure(now, options, text),
        }
    }
}

/// Stops the owner when dropped, so that its thread ends even if startup fails.
pub struct StopOnDrop(pub Mailbox);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.post(Message::Stop);
    }
}

/// A plugin that waits for a condition.
struct Wait {
    predicate: Predicate,
    /// On the monotonic clock.
    deadline: Duration,
    done: oneshot::Sender<Result<(), WaitError>>,
}

/// What a turn of the owner has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// There may be more to do.
    Work,
    /// There is nothing to do for this long, unless a message arrives.
    Idle(Duration),
    /// The scheduler is drained or has been stopped.
    Ended,
}

/// The owner's loop. A thread [runs](Self::run) it; a simulation calls [`turn`](Self::turn).
pub struct Owner {
    scheduler: MaybeRecorded,
    messages: Receiver<Message>,
    effects: Box<dyn CarryOut>,
    /// Calls to extenders within a cycle. Except for messages, the owner's thread waits for nothing
    /// else.
    calls: Box<dyn Calls + Send>,
    clock: Arc<dyn Clock>,
    watchdog: Watchdog,
    started: bool,
    stopped: bool,
    waits: Vec<Wait>,
}

impl Owner {
    /// An owner that has not started.
    pub fn new(
        scheduler: MaybeRecorded,
        messages: Receiver<Message>,
        effects: Box<dyn CarryOut>,
        calls: Box<dyn Calls + Send>,
        clock: Arc<dyn Clock>,
        watchdog: Watchdog,
    ) -> Self {
        let (started, stopped, waits) = (false, false, Vec::new());
        Self { scheduler, messages, effects, calls, clock, watchdog, started, stopped, waits }
    }

    /// The scheduler.
    pub fn scheduler(&self) -> &Scheduler {
        self.scheduler.get()
    }

    /// Whether this process may write now, by its own clocks.
    pub fn may_write(&self) -> bool {
        self.effects.may_write()
    }

    /// Marks the beginning of a step that nothing carries out, as if the thread hung within it.
    pub fn hang(&self) {
        self.watchdog.begin(None);
    }

    /// Replaces what carries out effects.
    pub fn wrap_effects(&mut self, wrap: impl FnOnce(Box<dyn CarryOut>) -> Box<dyn CarryOut>) {
        let effects = std::mem::replace(&mut self.effects, Box::new(Nothing));
        self.effects = wrap(effects);
    }

    /// Replaces the calls to extenders.
    pub fn set_calls(&mut self, calls: Box<dyn Calls + Send>) {
        self.calls = calls;
    }

    /// Runs until the scheduler is drained or told to stop.
    pub fn run(mut self) {
        loop {
            match self.turn() {
                Turn::Work => {}
                Turn::Idle(idle) => self.wait(idle),
                Turn::Ended => return,
            }
        }
    }

    /// Takes messages, and then schedules at most one pod.
    pub fn turn(&mut self) -> Turn {
        self.take_messages();
        self.watchdog.begin(None);
        let now = self.clock.now();
        self.fail_late_waits(now);
        let deadlines = self.waits.iter().map(|wait| wait.deadline.saturating_sub(now.monotonic));
        let idle = deadlines.fold(self.scheduler.get().next_deadline(now), Duration::min);
        if idle.is_zero() {
            self.handle(Input::Tick);
        }
        let turn = if self.stopped || self.scheduler.get().is_drained() {
            Turn::Ended
        } else if self.started && self.effects.has_room() && self.scheduler.get().has_work() {
            self.schedule_one();
            Turn::Work
        } else if idle.is_zero() {
            Turn::Work
        } else {
            Turn::Idle(idle.min(LONGEST_SLEEP))
        };
        if turn != Turn::Work {
            self.watchdog.idle();
        }
        turn
    }

    fn schedule_one(&mut self) {
        let now = self.clock.now();
        self.watchdog.begin(self.scheduler.get().next_pod().cloned().map(Subject::Cycle));
        let effects = self.scheduler.schedule_one(now, &mut *self.calls);
        self.watchdog.begin(None);
        self.carry_out(effects);
    }

    /// Takes pending messages, for a limited time.
    fn take_messages(&mut self) {
        let mut until = None;
        // Effect handlers hold senders, so the channel is not closed.
        while !self.stopped
            && let Ok(message) = self.messages.try_recv()
        {
            self.take(message);
            let now = self.clock.now().monotonic;
            if now >= *until.get_or_insert(now + LONGEST_INTAKE) {
                break;
            }
        }
    }

    /// Waits for a message or for time to pass.
    fn wait(&mut self, idle: Duration) {
        if let Ok(message) = self.messages.recv_timeout(self.clock.wait(idle)) {
            self.take(message);
        }
    }

    /// Takes a message that has arrived; `false` if there is none.
    pub fn receive(&mut self) -> bool {
        self.messages.try_recv().map(|message| self.take(message)).is_ok()
    }

    /// Each message is a step: changes that each affect all pending pods may take long without a
    /// hang.
    fn take(&mut self, message: Message) {
        self.watchdog.begin(match &message {
            Message::Input(input) => Subject::of(input),
            _ => None,
        });
        match message {
            Message::Input(input) => {
                let checks_waits = affects_waits(&input);
                self.handle(*input);
                if checks_waits {
                    self.check_waits();
                }
            }
            Message::WaitFor { predicate, timeout, done } => {
                let deadline = self.clock.now().monotonic.saturating_add(timeout);
                self.waits.push(Wait { predicate, deadline, done });
                self.check_waits();
            }
            Message::Reconfigure { options, text, done } => {
                let effects = self.scheduler.reconfigure(self.clock.now(), *options, text);
                let outcome = effects.map(|effects| self.carry_out(effects));
                // The caller may have stopped waiting.
                let _ = done.send(outcome.map_err(ReconfigureError::from));
            }
            Message::Ask(question) => question(self.scheduler.get()),
            Message::Start => self.started = true,
            // The loop checks for room in its next turn.
            Message::Room => {}
            Message::Stop => self.stopped = true,
        }
    }

    fn handle(&mut self, input: Input) {
        let effects = self.scheduler.handle(self.clock.now(), input);
        self.carry_out(effects);
    }

    fn carry_out(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            self.effects.carry_out(effect);
        }
    }

    /// Completes waits whose condition holds, and drops cancelled ones.
    fn check_waits(&mut self) {
        let cluster = self.scheduler.get();
        let (done, waiting): (Vec<_>, Vec<_>) =
            self.waits.drain(..).partition(|wait| wait.done.is_closed() || (wait.predicate)(cluster));
        self.waits = waiting;
        complete(done, Ok(()));
    }

    /// Fails waits whose deadline has passed.
    fn fail_late_waits(&mut self, now: Now) {
        if self.waits.iter().all(|wait| wait.deadline > now.monotonic) {
            return;
        }
        let (late, waiting): (Vec<_>, Vec<_>) =
            self.waits.drain(..).partition(|wait| wait.deadline <= now.monotonic);
        self.waits = waiting;
        complete(late, Err(WaitError::TimedOut));
    }
}

fn complete(waits: Vec<Wait>, outcome: Result<(), WaitError>) {
    for wait in waits {
        // The caller may have stopped waiting.
        let _ = wait.done.send(outcome);
    }
}

/// Whether the input can change the outcome of a wait.
fn affects_waits(input: &Input) -> bool {
    match input {
        Input::Object(_) | Input::Written(_) | Input::Node(_) => true,
        Input::QueuedPod(change) | Input::AssignedPod(change) => {
            matches!(change, Notification::Deleted(_))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use std::sync::{Arc, Mutex};
    use std::thread::{self, JoinHandle};

    use supercargo_client::host::SystemClock;
    use supercargo_framework::Timestamp;
    use supercargo_framework::testing::{node, pod};
    use supercargo_scheduler::NoCalls;
    use tokio::time::Instant;

    use super::*;
    use crate::options::scheduler_options;
    use supercargo_config::{Catalog, Config};

    /// Reports bindings. The test decides whether there is room for more.
    struct FakeEffects {
        bindings: Sender<()>,
        has_room: Arc<AtomicBool>,
    }

    impl CarryOut for FakeEffects {
        fn carry_out(&mut self, effect: Effect) {
            if matches!(effect, Effect::Bind { .. }) {
                self.bindings.send(()).unwrap();
            }
        }

        fn has_room(&self) -> bool {
            self.has_room.load(Ordering::SeqCst)
        }
    }

    /// Waits until the owner has taken all messages and checked for work.
    fn wait_for_a_turn(mailbox: &Mailbox) {
        for _ in 0..2 {
            let (done, answer) = oneshot::channel();
            let predicate: Predicate = Box::new(|_| true);
            mailbox.post(Message::WaitFor { predicate, timeout: Duration::MAX, done });
            answer.blocking_recv().unwrap().unwrap();
        }
    }

    /// Starts an owner.
    fn start(config: &Config, effects: FakeEffects, watchdog: Watchdog) -> (Mailbox, JoinHandle<()>) {
        let scheduler = Scheduler::new(scheduler_options(config)).unwrap();
        let (mailbox, messages) = Mailbox::new();
        let (scheduler, clock) =
            (MaybeRecorded::Plain(Box::new(scheduler)), Arc::new(SystemClock::default()));
        let owner = Owner::new(scheduler, messages, Box::new(effects), Box::new(NoCalls), clock, watchdog);
        (mailbox, thread::spawn(move || owner.run()))
    }

    /// Starts an owner without work.
    fn idle() -> (Mailbox, JoinHandle<()>, Watchdog) {
        let config = Config::default_with(&Catalog::in_tree()).unwrap();
        let watchdog = Watchdog::new(Duration::ZERO);
        let effects = FakeEffects { bindings: mpsc::channel().0, has_room: Arc::default() };
        let (mailbox, owner) = start(&config, effects, watchdog.clone());
        (mailbox, owner, watchdog)
    }

    #[test]
    fn watchdog_check_fails_while_the_owner_hangs_but_not_while_it_waits() {
        let (mailbox, owner, watchdog) = idle();
        let _stop = StopOnDrop(mailbox.clone());
        let is_healthy_in_a_minute = || watchdog.check(Instant::now() + Duration::from_mins(1)).is_ok();
        let (begun, begins) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        // Like a plugin that blocks forever.
        mailbox.post(Message::Ask(Box::new(move |_| {
            begun.send(()).unwrap();
            released.recv().unwrap();
        })));
        begins.recv().unwrap();
        assert!(!is_healthy_in_a_minute());
        release.send(()).unwrap();
        while !is_healthy_in_a_minute() {
            thread::yield_now();
        }
        mailbox.post(Message::Stop);
        owner.join().unwrap();
        assert!(is_healthy_in_a_minute(), "the owner has stopped");
    }

    #[test]
    fn each_message_is_a_watchdog_step() {
        let (mailbox, owner, watchdog) = idle();
        let _stop = StopOnDrop(mailbox.clone());
        let (release, released) = mpsc::channel::<()>();
        mailbox.post(Message::Ask(Box::new(move |_| released.recv().unwrap())));
        let (tell, received) = mpsc::channel();
        for _ in 0..3 {
            let (watchdog, tell) = (watchdog.clone(), tell.clone());
            mailbox.post(Message::Ask(Box::new(move |_| {
                tell.send(watchdog.step()).unwrap();
                thread::sleep(Duration::from_millis(5));
            })));
        }
        release.send(()).unwrap();
        let steps: Vec<u64> = received.iter().take(3).collect();
        assert!(steps.is_sorted_by(|one, next| one < next), "{steps:?}");
        mailbox.post(Message::Stop);
        owner.join().unwrap();
    }

    /// A clock that the test sets.
    #[derive(Debug)]
    struct ManualClock(Arc<AtomicU64>);

    impl Clock for ManualClock {
        fn now(&self) -> Now {
            let monotonic = Duration::from_millis(self.0.load(Ordering::SeqCst));
            Now { wall: Timestamp::default().plus(monotonic), monotonic }
        }
    }

    #[test]
    fn a_storm_of_messages_delays_a_cycle_by_20_ms() {
        let config = Config::default_with(&Catalog::in_tree()).unwrap();
        let (mailbox, messages) = Mailbox::new();
        let (bind, bindings) = mpsc::channel();
        let effects = FakeEffects { bindings: bind, has_room: Arc::new(AtomicBool::new(true)) };
        let millis = Arc::new(AtomicU64::new(0));
        let scheduler = Scheduler::new(scheduler_options(&config)).unwrap();
        let owner = Owner::new(
            MaybeRecorded::Plain(Box::new(scheduler)),
            messages,
            Box::new(effects),
            Box::new(NoCalls),
            Arc::new(ManualClock(Arc::clone(&millis))),
            Watchdog::new(Duration::ZERO),
        );
        let node = node("n").allocatable("pods", "10").build();
        mailbox.send(Input::Node(Notification::Added(Arc::new(node))));
        let pod = pod("a").scheduler(&config.profiles[0].scheduler_name).build();
        mailbox.send(Input::QueuedPod(Notification::Added(Arc::new(pod))));
        mailbox.post(Message::Start);
        let (tell, taken_before) = mpsc::channel();
        let bindings = Arc::new(Mutex::new(bindings));
        for _ in 0..10 {
            let (millis, tell, bindings) = (Arc::clone(&millis), tell.clone(), Arc::clone(&bindings));
            mailbox.post(Message::Ask(Box::new(move |_| {
                millis.fetch_add(7, Ordering::SeqCst);
                tell.send(bindings.lock().unwrap().try_recv().is_ok()).unwrap();
            })));
        }
        mailbox.post(Message::Stop);
        owner.run();
        let bound_before: Vec<bool> = taken_before.try_iter().collect();
        assert_eq!(bound_before.iter().position(|bound| *bound), Some(3), "{bound_before:?}");
    }

    #[test]
    fn pods_stay_queued_while_there_is_no_room_for_bindings() {
        let config = Config::default_with(&Catalog::in_tree()).unwrap();
        let (sender, bindings) = mpsc::channel();
        let has_room = Arc::new(AtomicBool::new(false));
        let effects = FakeEffects { bindings: sender, has_room: Arc::clone(&has_room) };
        let (mailbox, owner) = start(&config, effects, Watchdog::new(Duration::ZERO));
        let _stop = StopOnDrop(mailbox.clone());
        let added = |name: &str| {
            let pod = pod(name).scheduler(&config.profiles[0].scheduler_name).build();
            mailbox.send(Input::QueuedPod(Notification::Added(Arc::new(pod))));
        };
        mailbox.send(Input::Node(Notification::Added(Arc::new(node("n").allocatable("pods", "10").build()))));
        added("a");
        mailbox.post(Message::Start);
        wait_for_a_turn(&mailbox);
        assert!(bindings.try_recv().is_err());
        has_room.store(true, Ordering::SeqCst);
        mailbox.post(Message::Room);
        bindings.recv_timeout(Duration::from_secs(30)).unwrap();
        has_room.store(false, Ordering::SeqCst);
        added("b");
        wait_for_a_turn(&mailbox);
        assert!(bindings.try_recv().is_err());
        mailbox.post(Message::Stop);
        owner.join().unwrap();
    }
}
