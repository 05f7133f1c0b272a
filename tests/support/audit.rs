//! What the API server's audit log says about bindings.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;
use supercargo_controlplane::ControlPlane;

use super::{eventually, name_of};

/// The binding requests that were answered, by pod (`namespace/name`), each with its HTTP status and who sent it.
pub(crate) struct Bindings(BTreeMap<String, Vec<(u64, String)>>);

impl Bindings {
    /// The bindings of these pods, each bound once. When a server is killed, or a client in the middle of a request,
    /// what was carried out may be in no log, or be there as a failure: of so many pods at most nothing need be seen.
    pub(crate) fn of_each_once(plane: &ControlPlane, pods: &[Value], unseen: usize) -> Self {
        let complete = || Some(Self::of(plane)).filter(|bindings| bindings.unseen(pods) <= unseen);
        // An event is written just after the answer.
        let bindings = eventually("the audit log is complete", Duration::from_mins(1), complete, || {
            format!("it lacks {} bindings", Self::of(plane).unseen(pods))
        });
        for pod in pods {
            assert!(bindings.successes(pod) <= 1, "{} was bound twice", name_of(pod));
        }
        bindings
    }

    /// Those that have been answered so far.
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
            bindings.entry(pod).or_default().push((status, text(&event["user"]["username"])));
        }
        Self(bindings)
    }

    /// How many of these pods have no successful binding.
    pub(crate) fn unseen(&self, pods: &[Value]) -> usize {
        pods.iter().filter(|pod| self.successes(pod) == 0).count()
    }

    fn successes(&self, pod: &Value) -> usize {
        let key = format!("{}/{}", pod["metadata"]["namespace"].as_str().unwrap_or_default(), name_of(pod));
        self.0.get(&key).map_or(0, |all| all.iter().filter(|(status, _)| *status == 201).count())
    }

    /// How many pods a user bound with success.
    pub(crate) fn successes_by(&self, user: &str) -> usize {
        let all = self.0.values().flatten();
        all.filter(|(status, by)| *status == 201 && by == user).count()
    }

    /// How many bindings a user asked for, with or without success.
    pub(crate) fn requests_by(&self, user: &str) -> usize {
        self.0.values().flatten().filter(|(_, by)| by == user).count()
    }

    /// How many requests did not bind, by HTTP status.
    pub(crate) fn failures(&self) -> BTreeMap<u64, usize> {
        let mut failures = BTreeMap::new();
        for (status, _) in self.0.values().flatten().filter(|(status, _)| *status != 201) {
            *failures.entry(*status).or_default() += 1;
        }
        failures
    }
}
