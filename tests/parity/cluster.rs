//! The cluster of a scenario: a real control plane, or the API server in memory.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::Value;
use supercargo_controlplane::{ControlPlane, Method, Response};

/// The shortest and the longest polling interval on a real control plane, whose processes do not
/// report when they are idle.
const PAUSE: (Duration, Duration) = (Duration::from_millis(15), Duration::from_millis(200));

/// An API server with a running scheduler.
pub(super) trait Cluster {
    /// Sends a request. Patches are merge patches.
    fn request(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Response>;

    /// The events of a watch, up to the one that is the end.
    fn watch(&self, path: &str, is_end: &dyn Fn(&Value) -> bool) -> Result<Vec<Value>>;

    /// The scheduler's time since any fixed point.
    fn now(&self) -> Duration;

    /// Waits until the scheduler is idle, if that can be known.
    fn settle(&self) -> Result<()>;

    /// Waits a little before the next look, longer if the first one, at this time, is long ago.
    fn pause(&self, since: Duration) -> Result<()>;

    /// Lets this much of the scheduler's time pass.
    fn elapse(&self, time: Duration) -> Result<()>;
}

/// A control plane whose scheduler runs in real time.
pub(super) struct Real {
    pub(super) plane: ControlPlane,
    began: Instant,
}

impl Real {
    pub(super) fn new(plane: ControlPlane) -> Self {
        Self { plane, began: Instant::now() }
    }
}

impl Cluster for Real {
    fn request(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Response> {
        self.plane.request(method, path, body)
    }

    fn watch(&self, path: &str, is_end: &dyn Fn(&Value) -> bool) -> Result<Vec<Value>> {
        self.plane.watch(path, is_end)
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn settle(&self) -> Result<()> {
        Ok(())
    }

    fn pause(&self, since: Duration) -> Result<()> {
        let waited = self.now().saturating_sub(since);
        thread::sleep((waited / 5).clamp(PAUSE.0, PAUSE.1));
        Ok(())
    }

    fn elapse(&self, time: Duration) -> Result<()> {
        thread::sleep(time);
        Ok(())
    }
}
