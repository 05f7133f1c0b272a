mod broadcaster;
mod kube_sink;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use super::*;

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn pod(name: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        namespace: Some("default".to_owned()),
        name: Some(name.to_owned()),
        ..ObjectReference::default()
    }
}

fn event(reason: &str) -> Event {
    Event {
        type_: EventType::Normal,
        reason: reason.to_owned(),
        action: "Testing".to_owned(),
        note: Some(format!("{reason} it was")),
        secondary: None,
    }
}

/// The outcome of an attempt.
#[derive(Clone, Copy, Debug)]
enum Try {
    Succeeds,
    Fails,
    IsRejected,
    Takes(Duration),
    Hangs,
}

/// A sink with scripted outcomes. Records each attempt and its time in milliseconds.
#[derive(Clone)]
struct ScriptedSink(Arc<Mutex<Orders>>);

struct Orders {
    next: VecDeque<Try>,
    then: Try,
    since: Instant,
    tries: Vec<(u128, String)>,
    written: Vec<String>,
}

impl ScriptedSink {
    /// First the outcomes in `next`, then `then` repeatedly.
    fn new(next: impl IntoIterator<Item = Try>, then: Try) -> Self {
        let (next, since) = (next.into_iter().collect(), Instant::now());
        Self(Arc::new(Mutex::new(Orders { next, then, since, tries: Vec::new(), written: Vec::new() })))
    }

    fn tries(&self) -> Vec<(u128, String)> {
        self.0.lock().tries.clone()
    }

    fn written(&self) -> Vec<String> {
        self.0.lock().written.clone()
    }

    fn begin(&self, record: &Record) -> Try {
        let mut orders = self.0.lock();
        let at = orders.since.elapsed().as_millis();
        orders.tries.push((at, record.event.reason.clone()));
        let then = orders.then;
        orders.next.pop_front().unwrap_or(then)
    }
}

impl EventSink for ScriptedSink {
    fn write<'a>(&'a self, record: &'a Record) -> BoxFuture<'a, Result<(), SinkError>> {
        async move {
            match self.begin(record) {
                Try::Succeeds => {}
                Try::Fails => return Err(SinkError::Unavailable("nothing listens".into())),
                Try::IsRejected => return Err(SinkError::Rejected("malformed".into())),
                Try::Takes(time) => sleep(time).await,
                Try::Hangs => std::future::pending().await,
            }
            self.0.lock().written.push(record.event.reason.clone());
            Ok(())
        }
        .boxed()
    }
}
