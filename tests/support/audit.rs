//! Bindings in the audit log of the API server.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;
use supercargo_controlplane::ControlPlane;

use super::{eventually, name_of};

/// The answered binding requests by pod (`namespace/name`).
pub(crate) struct Bindings(BTreeMap<String, Vec<Request>>);

struct Request {
    /// The HTTP status.
    status: u64,
    /// The user.
    by: String,
    received: Timestamp,
}

impl Bindings {
    /// The bindings of these pods, each of which must be bound once. If a server is killed, or a
    /// client in the middle of a request, up to `unseen` successful requests may be missing in the
    /// log or logged as failures.
    pub(crate) fn of_each_once(plane: &ControlPlane, pods: &[Value], unseen: usize) -> Self {
        let complete = || Some(Self::of(plane)).filter(|bindings| bindings.unseen(pods) <= unseen);
        // The server logs an event just after the response.
        let bindings = eventually("the audit log is complete", Duration::from_mins(1), complete, || {
            format!("it lacks {} bindings", Self::of(plane).unseen(pods))
        });
        for pod in pods {
            assert!(bindings.successes(pod) <= 1, "{} was bound twice", name_of(pod));
        }
        bindings
    }

    /// The requests that have been answered so far.
    pub(crate) fn of(plane: &ControlPlane) -> Self {
        let mut bindings: BTreeMap<String, Vec<_>> = BTreeMap::new();
        for event in plane.audit_log().unwrap() {
            let object = &event["objectRef"];
            if event["verb"] != "create" || object["resource"] != "pods" || object["subresource"] != "binding"
            {
                continue;
            }
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let pod = format!("{}/{}", text(&object["namespace"]), text(&object["name"]));
            let status = event["responseStatus"]["code"].as_u64().unwrap_or_default();
            let by = text(&event["user"]["username"]);
            let received = text(&event["requestReceivedTimestamp"]).parse().unwrap();
            bindings.entry(pod).or_default().push(Request { status, by, received });
        }
        Self(bindings)
    }

    /// The number of these pods without a successful binding.
    pub(crate) fn unseen(&self, pods: &[Value]) -> usize {
        pods.iter().filter(|pod| self.successes(pod) == 0).count()
    }

    fn successes(&self, pod: &Value) -> usize {
        let key = format!("{}/{}", pod["metadata"]["namespace"].as_str().unwrap_or_default(), name_of(pod));
        self.0.get(&key).map_or(0, |all| all.iter().filter(|request| request.status == 201).count())
    }

    /// The number of pods that a user has bound.
    pub(crate) fn successes_by(&self, user: &str) -> usize {
        let all = self.0.values().flatten();
        all.filter(|request| request.status == 201 && request.by == user).count()
    }

    /// The number of a user's binding requests, successful or not, that the server received after
    /// this time.
    pub(crate) fn received_from(&self, user: &str, after: Timestamp) -> usize {
        let all = self.0.values().flatten();
        all.filter(|request| request.by == user && request.received > after).count()
    }

    /// The number of failed requests by HTTP status.
    pub(crate) fn failures(&self) -> BTreeMap<u64, usize> {
        let mut failures = BTreeMap::new();
        for request in self.0.values().flatten().filter(|request| request.status != 201) {
            *failures.entry(request.status).or_default() += 1;
        }
        failures
    }
}
