//! The API server as a sink.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use kube::Client;
use kube::runtime::events::{Recorder, Reporter};
use parking_lot::Mutex;

use super::sink::{EventSink, Record, SinkError};

/// Writes events to the API server as `events.k8s.io/v1`. Requires permission to create and patch
/// `events`.
///
/// An event repeated for the same object within 6 minutes becomes a series of the first one.
pub struct KubeSink {
    client: Client,
    /// Each recorder caches the events it has written.
    recorders: Mutex<HashMap<Arc<Reporter>, Recorder>>,
}

impl fmt::Debug for KubeSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KubeSink").finish_non_exhaustive()
    }
}

impl KubeSink {
    /// A sink that writes with this client.
    pub fn new(client: Client) -> Self {
        Self { client, recorders: Mutex::default() }
    }

    fn recorder(&self, reporter: &Arc<Reporter>) -> Recorder {
        let mut recorders = self.recorders.lock();
        let recorder = recorders.entry(Arc::clone(reporter));
        recorder.or_insert_with(|| Recorder::new(self.client.clone(), (**reporter).clone())).clone()
    }

    async fn publish(&self, record: &Record) -> Result<(), kube::Error> {
        let Record { reporter, regarding, event } = record;
        let result = self.recorder(reporter).publish(event, regarding).await;
        if !result.as_ref().is_err_and(is_missing_event) {
            return result;
        }
        // The event of the series has expired or was deleted. kube's recorder would keep patching
        // it for minutes. A new recorder creates a new event, and restarts the other series, too.
        self.recorders.lock().remove(reporter);
        self.recorder(reporter).publish(event, regarding).await
    }
}

impl EventSink for KubeSink {
    fn write<'a>(&'a self, record: &'a Record) -> BoxFuture<'a, Result<(), SinkError>> {
        async { self.publish(record).await.map_err(classify) }.boxed()
    }
}

/// Whether the event is missing, as opposed to its namespace.
fn is_missing_event(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    status.code == 404 && status.details.as_ref().is_some_and(|details| details.kind == "events")
}

/// A rejected event will be rejected again, unless the server asks to retry later. client-go
/// retries such events in its REST client.
fn classify(error: kube::Error) -> SinkError {
    let final_answer = match &error {
        kube::Error::Api(status) => {
            let wait = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
            status.code != 429 && !(status.code >= 500 && wait > 0)
        }
        // The request could not be built, and never can.
        kube::Error::BuildRequest(_) | kube::Error::HttpError(_) => true,
        _ => false,
    };
    if final_answer { SinkError::Rejected(error.into()) } else { SinkError::Unavailable(error.into()) }
}
