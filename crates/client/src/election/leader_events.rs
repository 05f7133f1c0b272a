//! Events about leadership: `<identity> became leader`, `<identity> stopped leading`.

use std::sync::Arc;

use http::Method;
use serde_json::json;

use super::lease::{Lease, LeaseName, micros};
use crate::api::{Api, Call, JSON};
use crate::host::Host;

/// The reason and the action. Upstream's core/v1 events have no action.
const LEADER_ELECTION: &str = "LeaderElection";

/// Writes events about a candidate.
#[derive(Clone)]
pub(super) struct LeaderEvents {
    pub(super) api: Api,
    pub(super) name: LeaseName,
    pub(super) identity: Arc<str>,
    /// The scheduler name of the first profile, as upstream.
    pub(super) component: Arc<str>,
    pub(super) host: Host,
}

impl LeaderEvents {
    /// Creates the event. Failures are only logged.
    pub(super) async fn record(self, lease: Lease, what: &str) {
        let now = self.host.wall();
        let event = json!({
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {
                "name": format!("{}.{:x}", self.name.name, now.as_nanosecond()),
                "namespace": self.name.namespace,
            },
            "eventTime": micros(now),
            "reportingController": self.component,
            "reportingInstance": format!("{}-{}", self.component, self.host.name),
            "action": LEADER_ELECTION,
            "reason": LEADER_ELECTION,
            "regarding": lease.reference(),
            "note": format!("{} {what}", self.identity),
            "type": "Normal",
        });
        let path = format!("/apis/events.k8s.io/v1/namespaces/{}/events", self.name.namespace);
        let call = Call { method: Method::POST, path: &path, content_type: JSON, body: &event };
        if let Err(error) = self.api.write(call).await {
            tracing::warn!(error = %error.error, lease = %self.name, "cannot write event: {what}");
        }
    }
}
