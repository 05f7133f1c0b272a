//! What plugins may do while they bind, carried out on the table of objects.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use serde_json::Value;
use supercargo_framework::binding::{
    ApiCall, ApiError, BindingCalls, BindingContext, BoxFuture, Cluster, Predicate, WaitError,
};

use super::world::World;

/// How a wait has ended, if it has.
type Ended = Arc<Mutex<Option<Result<(), WaitError>>>>;

/// A plugin waits for objects to be in some state.
struct Wait {
    predicate: Predicate,
    deadline: Duration,
    ended: Ended,
}

/// What all bindings share.
#[derive(Default)]
struct Shared {
    now: Duration,
    waits: Vec<Wait>,
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

/// A lock that a test which failed may have poisoned.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Calls {
    pub(super) fn new(world: Arc<Mutex<World>>) -> Self {
        Self { world, shared: Arc::default() }
    }

    /// What one binding works with; it is cancelled by setting `cancelled`.
    pub(super) fn context(&self, cancelled: Arc<Mutex<bool>>) -> BindingContext {
        BindingContext::new(Arc::new(OfOne { calls: self.clone(), cancelled }))
    }

    /// A second has passed: ends the waits that it ends. Upstream looks once a second, too.
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
