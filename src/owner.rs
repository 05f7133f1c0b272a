//! The thread that owns the scheduler.
//!
//! It takes messages, schedules, and hands out what is to be done; nothing else touches the scheduler.

use std::fs::File;
use std::io::{self, BufWriter};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use supercargo_framework::Now;
use supercargo_framework::binding::{Predicate, WaitError};
use supercargo_scheduler::record::Recorded;
use supercargo_scheduler::{BuildError, Calls, Effect, Input, Notification, Options, Scheduler};
use thiserror::Error;
use tokio::sync::oneshot;

use crate::clock::Clock;
use crate::watchdog::Watchdog;

/// So many messages at most are taken before the next cycle, so that a storm of events does not stop scheduling.
const MESSAGES_PER_CYCLE: usize = 1000;

/// The longest sleep; a wall clock that is set must not keep the thread from noticing.
const LONGEST_SLEEP: Duration = Duration::from_secs(30);

/// Something for the owner.
pub(crate) enum Message {
    /// Something happened.
    Input(Box<Input>),
    /// A plugin waits until its objects are in some state.
    WaitFor {
        /// Decides.
        predicate: Predicate,
        /// How long at most, by the scheduler's clock.
        timeout: Duration,
        /// Told when it holds, or that the time is over.
        told: oneshot::Sender<Result<(), WaitError>>,
    },
    /// Someone wants to know something of the scheduler, between two cycles.
    Ask(Question),
    /// Go on with other profiles.
    Reconfigure {
        /// What is made from the new configuration.
        options: Box<Options>,
        /// Told whether they have been taken over.
        told: oneshot::Sender<Result<(), ReconfigureError>>,
    },
    /// Every handler has seen what exists: begin to schedule.
    Start,
    /// More may be begun again.
    Room,
    /// End at once, whatever is under way.
    Stop,
}

/// Why other profiles are not taken over.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum ReconfigureError {
    /// No scheduler can be made from them.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// A record has one configuration.
    #[error("this run is recorded, and a record has one configuration; restart to change it")]
    Recorded,
    /// The scheduler has ended.
    #[error("the scheduler has ended")]
    Ended,
}

/// Looks at the scheduler, and answers to whoever asks.
pub(crate) type Question = Box<dyn FnOnce(&Scheduler) + Send>;

/// Where to leave messages. Never blocks.
#[derive(Clone)]
pub(crate) struct Mailbox(Sender<Message>);

impl Mailbox {
    pub(crate) fn new() -> (Self, Receiver<Message>) {
        let (sender, receiver) = mpsc::channel();
        (Self(sender), receiver)
    }

    /// Leaves an input.
    pub(crate) fn send(&self, input: Input) {
        self.post(Message::Input(Box::new(input)));
    }

    /// Asks something of the scheduler, which waits meanwhile: what is asked must be quick. `None` when the owner has ended.
    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Scheduler) -> T + Send + 'static,
    ) -> Option<T> {
        let (told, answer) = oneshot::channel();
        self.post(Message::Ask(Box::new(move |scheduler| {
            // Whoever asked may have gone.
            let _ = told.send(question(scheduler));
        })));
        answer.await.ok()
    }

    /// Has the scheduler go on with other profiles.
    pub(crate) async fn reconfigure(&self, options: Options) -> Result<(), ReconfigureError> {
        let (told, answer) = oneshot::channel();
        self.post(Message::Reconfigure { options: Box::new(options), told });
        answer.await.unwrap_or(Err(ReconfigureError::Ended))
    }

    /// Leaves a message. When the owner has ended there is nobody left to care.
    pub(crate) fn post(&self, message: Message) {
        let _ = self.0.send(message);
    }
}

/// Carries out effects without blocking the owner.
pub(crate) trait CarryOut {
    fn carry_out(&mut self, effect: Effect);

    /// Whether more bindings may be begun. When there is room again, a message says so.
    fn has_room(&self) -> bool;
}

/// The scheduler, and whether its calls are recorded.
pub(crate) enum MaybeRecorded {
    Plain(Box<Scheduler>),
    Recorded(Box<Recorded<BufWriter<File>>>),
}

impl MaybeRecorded {
    fn get(&self) -> &Scheduler {
        match self {
            Self::Plain(scheduler) => scheduler,
            Self::Recorded(recorded) => recorded.scheduler(),
        }
    }

    fn handle(&mut self, now: Now, input: Input) -> io::Result<Vec<Effect>> {
        match self {
            Self::Plain(scheduler) => {
                scheduler.handle(now, input);
                Ok(scheduler.take_effects())
            }
            Self::Recorded(recorded) => recorded.handle(now, input),
        }
    }

    fn schedule_one(&mut self, now: Now, calls: &mut dyn Calls) -> io::Result<Vec<Effect>> {
        match self {
            Self::Plain(scheduler) => {
                scheduler.schedule_one(now, calls);
                Ok(scheduler.take_effects())
            }
            Self::Recorded(recorded) => recorded.schedule_one(now, calls),
        }
    }

    fn reconfigure(&mut self, now: Now, options: Options) -> Result<Vec<Effect>, ReconfigureError> {
        match self {
            Self::Plain(scheduler) => {
                scheduler.reconfigure(now, options)?;
                Ok(scheduler.take_effects())
            }
            Self::Recorded(_) => Err(ReconfigureError::Recorded),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(_) => Ok(()),
            Self::Recorded(recorded) => recorded.flush(),
        }
    }
}

/// Ends the owner when dropped: whoever started it may fail, and must not leave it behind.
pub(crate) struct StopOnDrop(pub(crate) Mailbox);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.post(Message::Stop);
    }
}

/// A plugin that waits.
struct Wait {
    predicate: Predicate,
    /// On the monotonic clock.
    deadline: Duration,
    told: oneshot::Sender<Result<(), WaitError>>,
}

/// The owner's loop.
pub(crate) struct Owner<C> {
    scheduler: MaybeRecorded,
    messages: Receiver<Message>,
    effects: C,
    /// What a cycle waits for; the only thing that the owner's thread waits for beside its messages.
    calls: Box<dyn Calls + Send>,
    clock: Box<dyn Clock>,
    /// Says to others that it goes on.
    watchdog: Watchdog,
    started: bool,
    stopped: bool,
    waits: Vec<Wait>,
}

impl<C: CarryOut> Owner<C> {
    pub(crate) fn new(
        scheduler: MaybeRecorded,
        messages: Receiver<Message>,
        effects: C,
        calls: Box<dyn Calls + Send>,
        clock: Box<dyn Clock>,
        watchdog: Watchdog,
    ) -> Self {
        let (started, stopped, waits) = (false, false, Vec::new());
        Self { scheduler, messages, effects, calls, clock, watchdog, started, stopped, waits }
    }

    /// Runs until the scheduler is drained or it is told to stop. An error means that the record cannot be written.
    pub(crate) fn run(mut self) -> io::Result<()> {
        while !self.stopped {
            self.watchdog.tick();
            self.take_messages()?;
            let now = self.clock.now();
            self.end_late_waits(now);
            let deadlines = self.waits.iter().map(|wait| wait.deadline.saturating_sub(now.monotonic));
            let idle = deadlines.fold(self.scheduler.get().next_deadline(now), Duration::min);
            if idle.is_zero() {
                self.handle(Input::Tick)?;
            }
            if self.scheduler.get().is_drained() {
                break;
            }
            if self.started && self.effects.has_room() && self.scheduler.get().has_work() {
                let now = self.clock.now();
                let effects = self.scheduler.schedule_one(now, &mut *self.calls)?;
                self.carry_out(effects);
            } else {
                self.sleep(idle)?;
            }
        }
        self.scheduler.flush()?;
        self.watchdog.idle();
        Ok(())
    }

    /// Takes what has been left, up to a number.
    fn take_messages(&mut self) -> io::Result<()> {
        for _ in 0..MESSAGES_PER_CYCLE {
            // The shell can always leave messages, so the only reason for none is that there is none.
            let Ok(message) = self.messages.try_recv() else { break };
            // Each is a step: a thousand changes that each concern all pods that wait may take long, and are no standstill.
            self.watchdog.tick();
            self.take(message)?;
        }
        Ok(())
    }

    /// Waits for a message or for time to pass.
    fn sleep(&mut self, idle: Duration) -> io::Result<()> {
        if idle.is_zero() || self.stopped {
            return Ok(());
        }
        self.scheduler.flush()?;
        self.watchdog.idle();
        let message = self.messages.recv_timeout(self.clock.wait(idle).min(LONGEST_SLEEP));
        self.watchdog.tick();
        message.map_or(Ok(()), |message| self.take(message))
    }

    fn take(&mut self, message: Message) -> io::Result<()> {
        match message {
            Message::Input(input) => {
                let concerns_waits = matters_to_waits(&input);
                self.handle(*input)?;
                if concerns_waits {
                    self.check_waits();
                }
            }
            Message::WaitFor { predicate, timeout, told } => {
                let deadline = self.clock.now().monotonic.saturating_add(timeout);
                self.waits.push(Wait { predicate, deadline, told });
                self.check_waits();
            }
            Message::Reconfigure { options, told } => {
                let effects = self.scheduler.reconfigure(self.clock.now(), *options);
                // Whoever asked may have gone.
                let _ = told.send(effects.map(|effects| self.carry_out(effects)));
            }
            Message::Ask(question) => question(self.scheduler.get()),
            Message::Start => self.started = true,
            // The loop looks for itself.
            Message::Room => {}
            Message::Stop => self.stopped = true,
        }
        Ok(())
    }

    fn handle(&mut self, input: Input) -> io::Result<()> {
        let effects = self.scheduler.handle(self.clock.now(), input)?;
        self.carry_out(effects);
        Ok(())
    }

    fn carry_out(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            self.effects.carry_out(effect);
        }
    }

    /// Tells those whose condition holds, and forgets those who no longer wait.
    fn check_waits(&mut self) {
        let cluster = self.scheduler.get();
        let (done, waiting): (Vec<_>, Vec<_>) =
            self.waits.drain(..).partition(|wait| wait.told.is_closed() || (wait.predicate)(cluster));
        self.waits = waiting;
        tell(done, Ok(()));
    }

    /// Tells those whose time is over.
    fn end_late_waits(&mut self, now: Now) {
        if self.waits.iter().all(|wait| wait.deadline > now.monotonic) {
            return;
        }
        let (late, waiting): (Vec<_>, Vec<_>) =
            self.waits.drain(..).partition(|wait| wait.deadline <= now.monotonic);
        self.waits = waiting;
        tell(late, Err(WaitError::TimedOut));
    }
}

fn tell(waits: Vec<Wait>, outcome: Result<(), WaitError>) {
    for wait in waits {
        // Whoever has stopped waiting does not mind.
        let _ = wait.told.send(outcome);
    }
}

/// Whether what bindings wait for may look different after this.
fn matters_to_waits(input: &Input) -> bool {
    match input {
        Input::Object(_) | Input::Node(_) => true,
        Input::QueuedPod(change) | Input::AssignedPod(change) => {
            matches!(change, Notification::Deleted(_))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread::{self, JoinHandle};

    use supercargo_framework::testing::{node, pod};
    use supercargo_scheduler::NoCalls;
    use tokio::time::Instant;

    use super::*;
    use crate::clock::SystemClock;
    use crate::options::scheduler_options;
    use supercargo_config::{Catalog, Config};

    /// Tells of bindings, and has room for more or not.
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

    /// Waits until the owner has taken all messages and come round to whether there is work.
    fn let_it_come_round(mailbox: &Mailbox) {
        for _ in 0..2 {
            let (told, answer) = oneshot::channel();
            let predicate: Predicate = Box::new(|_| true);
            mailbox.post(Message::WaitFor { predicate, timeout: Duration::MAX, told });
            answer.blocking_recv().unwrap().unwrap();
        }
    }

    /// Runs an owner.
    fn start(
        config: &Config,
        effects: FakeEffects,
        watchdog: Watchdog,
    ) -> (Mailbox, JoinHandle<io::Result<()>>) {
        let scheduler = Scheduler::new(scheduler_options(config)).unwrap();
        let (mailbox, messages) = Mailbox::new();
        let (scheduler, clock) =
            (MaybeRecorded::Plain(Box::new(scheduler)), Box::new(SystemClock::default()));
        let owner = Owner::new(scheduler, messages, effects, Box::new(NoCalls), clock, watchdog);
        (mailbox, thread::spawn(move || owner.run()))
    }

    /// One that has nothing to bind, and its watchdog.
    fn idle() -> (Mailbox, JoinHandle<io::Result<()>>, Watchdog) {
        let config = Config::default_with(&Catalog::in_tree()).unwrap();
        let watchdog = Watchdog::new(Duration::ZERO);
        let effects = FakeEffects { bindings: mpsc::channel().0, has_room: Arc::default() };
        let (mailbox, owner) = start(&config, effects, watchdog.clone());
        (mailbox, owner, watchdog)
    }

    #[test]
    fn an_owner_that_hangs_is_seen_to_and_one_that_waits_for_messages_is_well() {
        let (mailbox, owner, watchdog) = idle();
        let _stop = StopOnDrop(mailbox.clone());
        let is_well_in_a_minute = || watchdog.check(Instant::now() + Duration::from_mins(1)).is_ok();
        let (begun, begins) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        // As a plugin may that waits for something that never comes.
        mailbox.post(Message::Ask(Box::new(move |_| {
            begun.send(()).unwrap();
            released.recv().unwrap();
        })));
        begins.recv().unwrap();
        assert!(!is_well_in_a_minute());
        release.send(()).unwrap();
        while !is_well_in_a_minute() {
            thread::yield_now();
        }
        mailbox.post(Message::Stop);
        owner.join().unwrap().unwrap();
        assert!(is_well_in_a_minute(), "it has ended");
    }

    #[test]
    fn each_message_of_many_is_a_step() {
        let (mailbox, owner, watchdog) = idle();
        let _stop = StopOnDrop(mailbox.clone());
        let (release, released) = mpsc::channel::<()>();
        mailbox.post(Message::Ask(Box::new(move |_| released.recv().unwrap())));
        let (tell, told) = mpsc::channel();
        for _ in 0..3 {
            let (watchdog, tell) = (watchdog.clone(), tell.clone());
            mailbox.post(Message::Ask(Box::new(move |_| {
                tell.send(watchdog.step()).unwrap();
                thread::sleep(Duration::from_millis(5));
            })));
        }
        release.send(()).unwrap();
        let steps: Vec<u64> = told.iter().take(3).collect();
        assert!(steps.is_sorted_by(|one, next| one < next), "{steps:?}");
        mailbox.post(Message::Stop);
        owner.join().unwrap().unwrap();
    }

    #[test]
    fn pods_stay_in_the_queue_while_too_many_bindings_wait() {
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
        let_it_come_round(&mailbox);
        assert!(bindings.try_recv().is_err());
        has_room.store(true, Ordering::SeqCst);
        mailbox.post(Message::Room);
        bindings.recv_timeout(Duration::from_secs(30)).unwrap();
        has_room.store(false, Ordering::SeqCst);
        added("b");
        let_it_come_round(&mailbox);
        assert!(bindings.try_recv().is_err());
        mailbox.post(Message::Stop);
        owner.join().unwrap().unwrap();
    }
}
