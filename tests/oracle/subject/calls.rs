//! The API calls of plugins during PreBind, on the table of objects.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use serde_json::Value;
use supercargo_framework::Text;
use supercargo_framework::binding::{
    ApiCall, ApiError, BindingCalls, BindingContext, BindingReport, BoxFuture, ClusterView, Predicate,
    WaitError,
};

use super::world::World;

/// The result of a wait, once it has ended.
type Ended = Arc<Mutex<Option<Result<(), WaitError>>>>;

/// When a wait looks at the objects. Upstream's plugins poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Polling {
    /// At every whole second.
    EverySecond,
    /// When it begins. The plugin begins another wait each time that upstream looks again.
    AtStart,
}

/// A plugin's wait for a state of objects.
struct Wait {
    predicate: Predicate,
    polling: Polling,
    /// Whether it has just begun.
    is_new: bool,
    deadline: Duration,
    ended: Ended,
}

impl Wait {
    /// Ends the wait if it must. Returns `false` then.
    fn goes_on(&self, cluster: &dyn ClusterView, second: Duration) -> bool {
        let looks = self.is_new == (self.polling == Polling::AtStart);
        let end = if looks && (self.predicate)(cluster) {
            Ok(())
        } else if self.deadline <= second {
            Err(WaitError::TimedOut)
        } else {
            return true;
        };
        *lock(&self.ended) = Some(end);
        false
    }
}

/// The state that all bindings share.
#[derive(Default)]
struct Shared {
    now: Duration,
    /// The last whole second that was handled.
    second: Duration,
    /// When the next sleep ends.
    wake: Option<Duration>,
    waits: Vec<Wait>,
    reports: Vec<BindingReport>,
}

/// The calls of all bindings.
#[derive(Clone)]
pub(super) struct Calls {
    world: Arc<Mutex<World>>,
    shared: Arc<Mutex<Shared>>,
}

/// The calls of a plugin for one binding.
struct OfOne {
    calls: Calls,
    polling: Polling,
    cancelled: Arc<Mutex<bool>>,
}

/// Locks, even if a failing test has poisoned the lock.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Calls {
    pub(super) fn new(world: Arc<Mutex<World>>) -> Self {
        Self { world, shared: Arc::default() }
    }

    /// The context of a plugin for one binding. Setting `cancelled` cancels it.
    pub(super) fn context(&self, polling: Polling, cancelled: Arc<Mutex<bool>>) -> BindingContext {
        BindingContext::new(Arc::new(OfOne { calls: self.clone(), polling, cancelled }))
    }

    /// The reports since the last call.
    pub(super) fn take_reports(&self) -> Vec<BindingReport> {
        std::mem::take(&mut lock(&self.shared).reports)
    }

    /// Advances the clock. Returns whether a sleep has ended.
    pub(super) fn pass(&self, now: Duration) -> bool {
        let mut shared = lock(&self.shared);
        shared.now = now;
        shared.wake.take_if(|wake| *wake < now).is_some()
    }

    /// Handles a whole second: ends the waits whose state is reached.
    pub(super) fn tick(&self, second: Duration, cluster: &dyn ClusterView) {
        let mut shared = lock(&self.shared);
        shared.second = second;
        shared.waits.retain(|wait| wait.goes_on(cluster, second));
    }

    /// Handles waits that have begun. Returns whether there are any.
    pub(super) fn begin_waits(&self, cluster: &dyn ClusterView) -> bool {
        let mut shared = lock(&self.shared);
        let second = shared.second;
        let mut began = false;
        shared.waits.retain_mut(|wait| {
            let is_new = wait.is_new;
            began |= is_new;
            let goes_on = !is_new || wait.goes_on(cluster, second);
            wait.is_new = false;
            goes_on
        });
        began
    }
}

impl BindingCalls for OfOne {
    fn call(&self, call: ApiCall) -> BoxFuture<Result<Value, ApiError>> {
        let result = lock(&self.calls.world).call(call);
        Box::pin(std::future::ready(result))
    }

    /// The object is in the table, whose change is an event.
    fn written(&self, _: &Text, _: Value) {}

    fn report(&self, report: BindingReport) {
        lock(&self.calls.shared).reports.push(report);
    }

    fn wait_for(&self, predicate: Predicate, timeout: Duration) -> BoxFuture<Result<(), WaitError>> {
        let ended = Ended::default();
        let mut shared = lock(&self.calls.shared);
        let deadline = shared.second + timeout;
        let (polling, to_end) = (self.polling, Arc::clone(&ended));
        shared.waits.push(Wait { predicate, polling, is_new: true, deadline, ended: to_end });
        let cancelled = Arc::clone(&self.cancelled);
        Box::pin(poll_fn(move |_| {
            if *lock(&cancelled) {
                return Poll::Ready(Err(WaitError::Cancelled));
            }
            lock(&ended).take().map_or(Poll::Pending, Poll::Ready)
        }))
    }

    fn cancelled(&self) -> BoxFuture<()> {
        let cancelled = Arc::clone(&self.cancelled);
        Box::pin(poll_fn(move |_| if *lock(&cancelled) { Poll::Ready(()) } else { Poll::Pending }))
    }

    /// Sleeps a little longer: upstream prolongs its sleeps by a random time of less than a step.
    fn sleep(&self, duration: Duration) -> BoxFuture<()> {
        let mut shared = lock(&self.calls.shared);
        let until = shared.now + duration;
        shared.wake = Some(shared.wake.map_or(until, |wake| wake.min(until)));
        drop(shared);
        let shared = Arc::clone(&self.calls.shared);
        Box::pin(poll_fn(move |_| if lock(&shared).now > until { Poll::Ready(()) } else { Poll::Pending }))
    }
}
