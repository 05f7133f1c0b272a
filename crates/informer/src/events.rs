//! Events about objects, as `kubectl describe` shows them.
//!
//! An [`EventBroadcaster`] passes events from any number of [`EventRecorder`]s to its sinks: the
//! API server ([`KubeSink`]), the log, or your own. Recording never waits: each sink has its own
//! queue, and events that do not fit are dropped and counted.
//!
//! Same as client-go's `tools/events`, built on kube's
//! [`Recorder`](kube::runtime::events::Recorder), which counts repeated events in a series.
//! Differences: a sink receives events one after another, every repetition is written immediately,
//! and a shutdown writes the queued events.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use k8s_openapi::api::core::v1::Pod;
//! use kube::Resource as _;
//! use kube_informers::events::{Event, EventBroadcaster, EventType, KubeSink};
//!
//! # async fn example(client: kube::Client, pod: Pod) {
//! let broadcaster = EventBroadcaster::new();
//! broadcaster.start_logging();
//! broadcaster.start_recording_to_sink(KubeSink::new(client));
//!
//! let recorder = broadcaster.new_recorder("my-controller");
//! let pulled = Event {
//!     type_: EventType::Normal,
//!     reason: "Pulled".to_owned(),
//!     action: "Pulling".to_owned(),
//!     note: Some("The image is there".to_owned()),
//!     secondary: None,
//! };
//! recorder.record(pod.object_ref(&()), pulled);
//!
//! if !broadcaster.shutdown(Duration::from_secs(5)).await {
//!     eprintln!("some events could not be written in time");
//! }
//! # }
//! ```

mod broadcaster;
mod delivery;
mod kube_sink;
mod sink;
#[cfg(test)]
mod tests;

pub use broadcaster::{EventBroadcaster, EventOptions, EventRecorder};
pub use k8s_openapi::api::core::v1::ObjectReference;
pub use kube::runtime::events::{Event, EventType, Reporter};
pub use kube_sink::KubeSink;
pub use sink::{EventSink, Record, SinkError};
