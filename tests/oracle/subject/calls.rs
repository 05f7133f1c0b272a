//! The API calls of plugins during PreBind, on the table of objects.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use serde_json::Value;
use supercargo_framework::Text;
use supercargo_framework::binding::{
    ApiCall, ApiError, BindingCalls, BindingContext, BindingEvent, BoxFuture, Cluster, Predicate, WaitError,
};

use super::world::World;

/// The result of a wait, once it has ended.
type Ended = Arc<Mutex<Option<Result<(), WaitError>>>>;

/// A plugin's wait for a state of objects.
struct Wait {
    predicate: Predicate,
    deadline: Duration,
    ended: Ended,
}

/// The state that all bindings share.
#[derive(Default)]
struct Shared {
    now: Duration,
    waits: Vec<Wait>,
    events: Vec<BindingEvent>,
}

/// The calls of all bindings.
#[derive(Clone)]
pub(super) struct Calls {
    world: Arc<Mutex<World>>,
    shared: Arc<Mutex<Shared>>,
}

/// The calls of one binding.
struct OfOne {
    calls: Calls,
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

    /// The context of one binding. Setting `cancelled` cancels it.
    pub(super) fn context(&self, cancelled: Arc<Mutex<bool>>) -> BindingContext {
        BindingContext::new(Arc::new(OfOne { calls: self.clone(), cancelled }))
    }

    /// The events since the last call.
    pub(super) fn take_events(&self) -> Vec<BindingEvent> {
        std::mem::take(&mut lock(&self.shared).events)
    }

    /// Advances by a second and ends the waits whose state is reached. Upstream polls once a
    /// second, too.
    pub(super) fn tick(&self, now: Duration, cluster: &dyn Cluster) {
        let mut shared = lock(&self.shared);
        shared.now = now;
        shared.waits.retain(|wait| {
            let end = if (wait.predicate)(cluster) {
                Ok(())
            } else if wait.deadline <= now {
                Err(WaitError::TimedOut)
            } else {
                return true;
            };
            *lock(&wait.ended) = Some(end);
            false
        });
    }
}

impl BindingCalls for OfOne {
    fn call(&self, call: ApiCall) -> BoxFuture<Result<Value, ApiError>> {
        let result = lock(&self.calls.world).call(call);
        Box::pin(std::future::ready(result))
    }

    /// The object is in the table, whose change is an event.
    fn written(&self, _: &Text, _: Value) {}

    fn record_event(&self, event: BindingEvent) {
        lock(&self.calls.shared).events.push(event);
    }

    fn wait_for(&self, predicate: Predicate, timeout: Duration) -> BoxFuture<Result<(), WaitError>> {
        let ended = Ended::default();
        let mut shared = lock(&self.calls.shared);
        let deadline = shared.now + timeout;
        shared.waits.push(Wait { predicate, deadline, ended: Arc::clone(&ended) });
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

    fn sleep(&self, duration: Duration) -> BoxFuture<()> {
        let until = lock(&self.calls.shared).now + duration;
        let shared = Arc::clone(&self.calls.shared);
        Box::pin(poll_fn(move |_| if lock(&shared).now >= until { Poll::Ready(()) } else { Poll::Pending }))
    }
}
