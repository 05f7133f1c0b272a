//! The Lease object (coordination.k8s.io/v1) and its requests.

use std::fmt;
use std::time::Duration;

use http::{Method, StatusCode};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::api::{Api, Call, CallError, JSON};

/// Namespace and name of the lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseName {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl LeaseName {
    fn collection(&self) -> String {
        format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", self.namespace)
    }

    fn path(&self) -> String {
        format!("{}/{}", self.collection(), self.name)
    }
}

impl fmt::Display for LeaseName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// The holder in a lease: upstream's LeaderElectionRecord. Times are kept as text, because they are
/// only compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Record {
    /// Empty if the lease is free.
    pub(super) holder: String,
    pub(super) duration_seconds: i64,
    pub(super) acquired: String,
    pub(super) renewed: String,
    /// The number of changes of the holder.
    pub(super) transitions: i64,
}

/// A lease, including fields of other clients.
#[derive(Clone, Debug)]
pub(super) struct Lease(Value);

impl Lease {
    #[cfg(test)]
    pub(super) fn from_object(object: Value) -> Self {
        Self(object)
    }

    /// A lease to create.
    pub(super) fn new(name: &LeaseName, record: &Record) -> Self {
        Self(json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": name.name, "namespace": name.namespace},
        }))
        .with(record)
    }

    pub(super) fn record(&self) -> Record {
        let spec = &self.0["spec"];
        let text = |field: &str| spec[field].as_str().unwrap_or_default().to_owned();
        let number = |field: &str| spec[field].as_i64().unwrap_or_default();
        Record {
            holder: text("holderIdentity"),
            duration_seconds: number("leaseDurationSeconds"),
            acquired: text("acquireTime"),
            renewed: text("renewTime"),
            transitions: number("leaseTransitions"),
        }
    }

    /// The lease at the same resource version, with another record.
    pub(super) fn with(&self, record: &Record) -> Self {
        let mut object = self.0.clone();
        let Record { holder, duration_seconds, acquired, renewed, transitions } = record;
        let spec = &mut object["spec"];
        spec["holderIdentity"] = json!(holder);
        spec["leaseDurationSeconds"] = json!(duration_seconds);
        spec["acquireTime"] = json!(acquired);
        spec["renewTime"] = json!(renewed);
        spec["leaseTransitions"] = json!(transitions);
        Self(object)
    }

    /// The object reference for events.
    pub(super) fn reference(&self) -> Value {
        let metadata = &self.0["metadata"];
        json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "namespace": metadata["namespace"],
            "name": metadata["name"],
            "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"],
        })
    }
}

/// A time as the API's MicroTime.
pub(super) fn micros(time: Timestamp) -> String {
    format!("{time:.6}")
}

/// Sends requests for a lease, with a timeout.
#[derive(Clone)]
pub(super) struct LeaseClient {
    pub(super) api: Api,
    pub(super) name: LeaseName,
    pub(super) timeout: Duration,
}

/// Why a request for the lease failed.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    pub(super) message: String,
    /// The HTTP status, if the server responded.
    pub(super) status: Option<StatusCode>,
}

impl Failure {
    /// Nothing was answered within this time.
    pub(super) fn late(within: Duration) -> Self {
        Self { message: format!("no answer within {within:?}"), status: None }
    }
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Self {
        Self { status: error.status, message: error.error.message }
    }
}

impl LeaseClient {
    /// Reads the lease, if it exists.
    pub(super) async fn get(&self) -> Result<Option<Lease>, Failure> {
        match self.send(Method::GET, &self.name.path(), &Value::Null).await {
            Ok(lease) => Ok(Some(lease)),
            Err(failure) if failure.status == Some(StatusCode::NOT_FOUND) => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// Creates the lease; fails if it exists.
    pub(super) async fn create(&self, lease: &Lease) -> Result<Lease, Failure> {
        self.send(Method::POST, &self.name.collection(), &lease.0).await
    }

    /// Updates the lease; fails if its version has changed.
    pub(super) async fn update(&self, lease: &Lease) -> Result<Lease, Failure> {
        self.send(Method::PUT, &self.name.path(), &lease.0).await
    }

    async fn send(&self, method: Method, path: &str, body: &Value) -> Result<Lease, Failure> {
        let call = self.api.call(Call { method, path, content_type: JSON, body });
        match timeout(self.timeout, call).await {
            Ok(answer) => Ok(Lease(answer?)),
            Err(_) => {
                // The connection may be dead, and there may be another way to the server.
                self.api.reconnect();
                Err(Failure::late(self.timeout))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_round_trip_and_other_fields_are_preserved() {
        let name = LeaseName { namespace: "kube-system".into(), name: "x".into() };
        let record = Record {
            holder: "me".into(),
            duration_seconds: 15,
            acquired: micros("2026-01-01T00:00:00Z".parse().unwrap()),
            renewed: micros("2026-01-01T00:00:01.5Z".parse().unwrap()),
            transitions: 3,
        };
        let lease = Lease::new(&name, &record);
        assert_eq!(lease.record(), record);
        assert_eq!(lease.0["spec"]["renewTime"], "2026-01-01T00:00:01.500000Z");

        let mut object = lease.0;
        object["metadata"]["resourceVersion"] = json!("7");
        object["metadata"]["labels"] = json!({"a": "b"});
        object["spec"]["strategy"] = json!("OldestEmulationVersion");
        let after = Lease(object.clone()).with(&Record { holder: String::new(), ..record });
        object["spec"]["holderIdentity"] = json!("");
        assert_eq!(after.0, object);
    }

    #[test]
    fn an_empty_lease_has_no_holder() {
        for object in [json!({}), json!({"spec": null}), json!({"spec": {"holderIdentity": 5}})] {
            assert_eq!(Lease(object).record(), Record::default());
        }
    }
}
