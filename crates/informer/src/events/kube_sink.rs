//! The API server as a sink.

use std::collections::HashMap;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use kube::Client;
use kube::runtime::events::{Recorder, Reporter};
use parking_lot::Mutex;

use super::sink::{EventSink, Record, SinkError};

/// Writes events to the API server, as `events.k8s.io/v1`; it takes the right to create and patch `events`.
///
/// What is said again of the same object within 6 minutes becomes a series of the first event.
pub struct KubeSink {
    client: Client,
    /// Each remembers what it has written.
    recorders: Mutex<HashMap<Arc<Reporter>, Recorder>>,
}

impl KubeSink {
    /// Writes with this client.
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
        // The event of the series has expired, or was deleted. kube's recorder would go on patching it for
        // minutes; a new one begins with a new event, at the price of beginning other series anew.
        self.recorders.lock().remove(reporter);
        self.recorder(reporter).publish(event, regarding).await
    }
}

impl EventSink for KubeSink {
    fn write<'a>(&'a self, record: &'a Record) -> BoxFuture<'a, Result<(), SinkError>> {
        async { self.publish(record).await.map_err(classify) }.boxed()
    }
}

/// Whether it is an event that is not there, and not its namespace.
fn is_missing_event(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    status.code == 404 && status.details.as_ref().is_some_and(|details| details.kind == "events")
}

/// What the server has refused it will refuse again, unless it asks to be asked later; client-go does the
/// latter within its REST client.
fn classify(error: kube::Error) -> SinkError {
    let final_answer = match &error {
        kube::Error::Api(status) => {
            let wait = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
            status.code != 429 && !(status.code >= 500 && wait > 0)
        }
        // The request could not be made, and would not be the next time.
        kube::Error::BuildRequest(_) | kube::Error::HttpError(_) => true,
        _ => false,
    };
    if final_answer { SinkError::Rejected(error.into()) } else { SinkError::Unavailable(error.into()) }
}
