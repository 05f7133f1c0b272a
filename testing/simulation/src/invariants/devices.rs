//! Devices: no two claims have one, nothing shared is overdrawn, taints are tolerated, and a pod
//! that is bound has its claims with devices that are ready.

mod ledger;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use parking_lot::Mutex;
use serde_json::Value;
use supercargo_apiserver::ApiServer;

use super::{BoundPod, FORGIVEN, InvariantChecker, Sender};
use crate::api::{RESOURCE_CLAIMS, ask, list, name, text, uid};
use ledger::Ledger;

const SLICES: &str = "/apis/resource.k8s.io/v1/resourceslices";
const TAINT_RULES: &str = "/apis/resource.k8s.io/v1/devicetaintrules";

/// Whether a request is about the status of a claim for devices.
pub(super) fn is_claim_status(path: &str) -> bool {
    path.starts_with(RESOURCE_CLAIMS) && path.ends_with("/status")
}

/// The name of the claim for an entry of a pod's spec, by its own status entries; `None` if there
/// is none.
pub fn claim_of<'a>(entry: &'a Value, statuses: &'a [Value]) -> Option<&'a str> {
    let given = entry["resourceClaimName"].as_str();
    let status = || statuses.iter().find(|status| status["name"] == entry["name"]);
    given.or_else(|| status()?["resourceClaimName"].as_str())
}

/// Whether a claim is reserved for a pod.
fn is_reserved_for(claim: &Value, pod: &str) -> bool {
    let consumers = claim["status"]["reservedFor"].as_array();
    consumers.into_iter().flatten().any(|consumer| consumer["uid"] == pod)
}

fn has_allocation(claim: &Value) -> bool {
    claim["status"]["allocation"].is_object()
}

/// What a claim has got.
fn results(claim: &Value) -> impl Iterator<Item = &Value> {
    claim["status"]["allocation"]["devices"]["results"].as_array().into_iter().flatten()
}

/// The driver, pool and name of an allocated device.
fn id(result: &Value) -> [&str; 3] {
    ["driver", "pool", "device"].map(|field| result[field].as_str().unwrap_or_default())
}

/// Whether no other claim may have the device.
fn is_dedicated(result: &Value) -> bool {
    result["adminAccess"] != true && result["shareID"].is_null()
}

/// The devices of a claim that no other claim may have.
fn devices(claim: &Value) -> impl Iterator<Item = [&str; 3]> {
    results(claim).filter(|result| is_dedicated(result)).map(id)
}

/// Whether the driver of each device that must be prepared has done so.
fn is_prepared(claim: &Value) -> bool {
    let texts = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let reported = texts(&claim["status"]["devices"]);
    results(claim).all(|result| {
        let status = reported.iter().find(|status| id(status) == id(result));
        let conditions = status.map(|status| texts(&status["conditions"])).unwrap_or_default();
        let is_true =
            |kind: &Value| conditions.iter().any(|it| it["type"] == *kind && it["status"] == "True");
        texts(&result["bindingConditions"]).iter().all(is_true)
    })
}

impl InvariantChecker {
    /// Whether the claim of this path has devices.
    pub(super) async fn is_allocated(server: &ApiServer, path: &str) -> bool {
        has_allocation(&ask(server, Method::GET, path.trim_end_matches("/status"), None).await.1)
    }

    /// No claim that has just got devices has one of another claim, more than there is of what they
    /// share, or a tainted device that it does not tolerate, as far as its scheduler could know.
    pub(super) async fn check_devices(checker: &Mutex<Self>, server: &ApiServer, from: &Sender, path: &str) {
        let claims = list(server, RESOURCE_CLAIMS).await;
        let (slices, rules) = (list(server, SLICES).await, list(server, TAINT_RULES).await);
        let is_new = |claim: &&Value| path == format!("{RESOURCE_CLAIMS}/{}/status", name(claim));
        let Some(new) = claims.iter().find(is_new).filter(|claim| has_allocation(claim)) else { return };
        let mut checker = checker.lock();
        let now = checker.now();
        checker.allocated.insert(uid(new).to_owned(), (Arc::clone(&from.process), now));
        if checker.is_forgiving() {
            return;
        }
        checker.trace.count("checks of devices", 1);
        let wanted: BTreeSet<[&str; 3]> = devices(new).collect();
        let others: Vec<&Value> = claims
            .iter()
            .filter(|other| uid(other) != uid(new) && checker.is_known(other, from, now))
            .collect();
        let of_two = others.iter().flat_map(|other| devices(other).map(move |device| (device, name(other))));
        let mut found: Vec<String> = of_two
            .filter(|(device, _)| wanted.contains(device))
            .map(|(device, other)| {
                format!("{}: claims {} and {other} have device {}", from.process, name(new), device.join("/"))
            })
            .collect();
        let rules = rules.into_iter().filter(|rule| checker.is_rule_known(name(rule), now)).collect();
        let ledger = Ledger::new(slices, rules);
        let wrong = ledger.faults(new, &others);
        checker.trace.count("checks of special devices", ledger.special(new));
        found.extend(wrong.into_iter().map(|what| format!("{}: claim {} {what}", from.process, name(new))));
        found.into_iter().for_each(|what| checker.fail(what));
    }

    /// Whether a scheduler must know of the devices of a claim. The answer to its own write may
    /// have been lost, and it may not yet have seen what others wrote before it led.
    fn is_known(&self, claim: &Value, to: &Sender, now: Duration) -> bool {
        let late = if now < self.views_lag_until { FORGIVEN } else { Duration::ZERO };
        let since = self.acquired.get(&to.process).copied().unwrap_or_default();
        self.allocated.get(uid(claim)).is_none_or(|(by, at)| match *by == to.process {
            true => *at + late <= now,
            false => *at + late < since,
        })
    }

    /// Somebody has added a rule that taints devices.
    pub fn see_taint_rule(&mut self, rule: &str) {
        let now = self.now();
        self.taint_rules.insert(rule.to_owned(), now);
    }

    /// Whether a scheduler must know of a rule when it allocates devices that it writes now.
    fn is_rule_known(&self, rule: &str, now: Duration) -> bool {
        let is_old = self.taint_rules.get(rule).is_some_and(|at| *at + FORGIVEN < now);
        is_old && now >= self.views_lag_until
    }

    /// The status of a claim has been written.
    pub(super) fn see_claim_write(&mut self, from: &Sender, path: &str) {
        let now = self.now();
        self.claim_writes.insert(path.to_owned(), (Arc::clone(&from.process), now));
    }

    /// Whether another process wrote the status of a claim that this one may not have seen.
    fn may_be_outdated(&self, claim: &str, to: &Sender) -> bool {
        let now = self.now();
        let written = self.claim_writes.get(&format!("{RESOURCE_CLAIMS}/{claim}/status"));
        now < self.views_lag_until
            && written.is_some_and(|(by, at)| *by != to.process && *at + FORGIVEN > now)
    }

    /// A pod that has just been bound has its claims, as far as its scheduler could know.
    pub(super) async fn check_reservations(
        checker: &Mutex<Self>,
        server: &ApiServer,
        from: &Sender,
        pod: &BoundPod,
    ) {
        for claim in pod.spec.claims.iter().filter_map(|entry| claim_of(entry, &pod.status.claims)) {
            let claim = ask(server, Method::GET, &format!("{RESOURCE_CLAIMS}/{claim}"), None).await.1;
            let mut checker = checker.lock();
            checker.trace.count("checks of claims of bound pods", 1);
            let is_its_own = has_allocation(&claim) && is_reserved_for(&claim, &pod.metadata.uid);
            let is_prepared = is_prepared(&claim);
            let (pod, claim) = (&pod.metadata.name, text(&claim, "/metadata/name"));
            if !is_prepared && !checker.is_forgiving() && !checker.may_be_outdated(claim, from) {
                checker.fail(format!(
                    "{}: pod {pod} is bound, and devices of claim {claim} are not ready",
                    from.process
                ));
            }
            if !is_its_own && !checker.is_forgiving() && !checker.may_be_outdated(claim, from) {
                checker
                    .fail(format!("{}: pod {pod} is bound, and claim {claim} is not its own", from.process));
            }
        }
    }
}
