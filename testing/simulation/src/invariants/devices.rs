//! Devices: no two claims have one, nothing shared is overdrawn, taints are tolerated, and a pod
//! that is bound has its claims with devices that are ready.

mod ledger;

use std::collections::{BTreeMap, BTreeSet};
use std::mem::take;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use parking_lot::Mutex;
use serde_json::Value;
use supercargo_apiserver::ApiServer;
use supercargo_framework::objects::EXTENDED_RESOURCE_CLAIM;
use supercargo_framework::quantity;

use super::mirror::Mirror;
use super::{BoundPod, FORGIVEN, InvariantChecker, Sender};
use crate::api::{EXTENDED_RESOURCES, PODS, RESOURCE_CLAIMS, ask, list, name, text, uid};
use ledger::Ledger;

const SLICES: &str = "/apis/resource.k8s.io/v1/resourceslices";
const TAINT_RULES: &str = "/apis/resource.k8s.io/v1/devicetaintrules";

/// The claim for devices whose status a request is about.
pub(super) fn claim_of_status(path: &str) -> Option<&str> {
    path.strip_prefix(RESOURCE_CLAIMS)?.strip_prefix('/')?.strip_suffix("/status")
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

/// What the server has of devices, and which faults of it nobody could avoid.
pub(super) struct Devices {
    claims: Mirror,
    slices: Mirror,
    rules: Mirror,
    /// The resourceVersion up to which the mirrors have been read.
    version: u64,
    /// Whether what is read was written since the checker looked last.
    blames: bool,
    /// Faults by a scheduler that could not know of another claim, as long as they last.
    excused: BTreeSet<String>,
}

impl Default for Devices {
    fn default() -> Self {
        Self {
            claims: Mirror::new(RESOURCE_CLAIMS),
            slices: Mirror::new(SLICES),
            rules: Mirror::new(TAINT_RULES),
            version: 0,
            blames: false,
            excused: BTreeSet::new(),
        }
    }
}

impl InvariantChecker {
    /// Whether the claim of this path has devices.
    pub(super) async fn is_allocated(server: &ApiServer, path: &str) -> bool {
        has_allocation(&ask(server, Method::GET, path.trim_end_matches("/status"), None).await.1)
    }

    /// Adds up what all claims have after each write of a claim, also of a controller or a driver.
    /// The last write may be that of a scheduler, to this claim, which had no devices before.
    pub fn add_up_claims(&mut self, server: &ApiServer, new: Option<(&Sender, &str)>) {
        let version = server.resource_version();
        if self.devices.version == version {
            return;
        }
        let mut devices = take(&mut self.devices);
        devices.blames = devices.version > 0;
        devices.version = version;
        devices.rules.catch_up(server);
        if devices.slices.catch_up(server) {
            self.add_up(&mut devices, "a slice", None);
        }
        while let Some(changed) = devices.claims.next(server) {
            // The whole list has it, too.
            let by = new.filter(|(_, name)| *name == changed || changed.is_empty());
            self.add_up(&mut devices, &changed, by);
        }
        self.devices = devices;
    }

    /// No device is in two claims, and neither counters nor shares are overdrawn. A scheduler is
    /// only to blame for what it could know.
    fn add_up(&mut self, devices: &mut Devices, changed: &str, by: Option<(&Sender, &str)>) {
        let now = self.now();
        let ledger = Ledger::new(devices.slices.objects());
        let all = ledger.faults(devices.claims.objects());
        self.trace.count("sums of all claims", 1);
        let new = by.and_then(|(from, claim)| Some((from, devices.claims.get(claim)?)));
        let Some((from, new)) = new.filter(|(_, claim)| has_allocation(claim)) else {
            if devices.blames && !self.is_forgiving() {
                let found = all.iter().filter(|(what, _)| !devices.excused.contains(*what));
                for (what, amounts) in found {
                    self.fail(format!("after a change of {changed}: {what}{amounts}"));
                }
            }
            devices.excused = all.into_keys().collect();
            return;
        };
        self.allocated.insert(uid(new).to_owned(), (Arc::clone(&from.process), now));
        if !self.is_forgiving() {
            self.trace.count("checks of devices", 1);
            self.trace.count("checks of special devices", ledger.special(new));
            let is_known = |claim: &&Value| uid(claim) == uid(new) || self.is_known(claim, from, now);
            // Most often nothing at all is wrong.
            let known = if all.is_empty() {
                BTreeMap::new()
            } else {
                ledger.faults(devices.claims.objects().filter(is_known))
            };
            let known = known.into_iter().filter(|(what, _)| !devices.excused.contains(what));
            let mut found: Vec<String> = known.map(|(what, amounts)| what + &amounts).collect();
            let rules: Vec<&Value> =
                devices.rules.objects().filter(|rule| self.is_rule_known(name(rule), now)).collect();
            found.extend(results(new).filter_map(|result| ledger.untolerated(result, &rules)));
            for what in found {
                self.fail(format!("{}: claim {}: {what}", from.process, name(new)));
            }
        }
        devices.excused = all.into_keys().collect();
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
            checker.lock().check_claim(from, pod, &claim);
        }
    }

    fn check_claim(&mut self, from: &Sender, pod: &BoundPod, claim: &Value) {
        self.trace.count("checks of claims of bound pods", 1);
        let is_its_own = has_allocation(claim) && is_reserved_for(claim, &pod.metadata.uid);
        let (pod, name) = (&pod.metadata.name, name(claim));
        if self.is_forgiving() || self.may_be_outdated(name, from) {
            return;
        }
        if !is_prepared(claim) {
            self.fail(format!(
                "{}: pod {pod} is bound, and devices of claim {name} are not ready",
                from.process
            ));
        }
        if !is_its_own {
            self.fail(format!("{}: pod {pod} is bound, and claim {name} is not its own", from.process));
        }
    }

    /// A pod that has just been bound has a device for each extended resource that its node lacks.
    pub(super) async fn check_extended_resources(
        checker: &Mutex<Self>,
        server: &ApiServer,
        from: &Sender,
        pod: &BoundPod,
    ) {
        let amount = |of: &Value, what: &str| of[what].as_str().and_then(|it| quantity::value(it).ok());
        let requested = |what: &str| -> i64 {
            let containers = pod.spec.containers.iter();
            containers.filter_map(|it| amount(&it["resources"]["requests"], what)).sum()
        };
        let asked: Vec<(&str, i64)> = EXTENDED_RESOURCES.map(|what| (what, requested(what))).to_vec();
        if asked.iter().all(|(_, count)| *count == 0) {
            return;
        }
        let node = ask(server, Method::GET, &format!("/api/v1/nodes/{}", pod.spec.node_name), None).await.1;
        let claim = match pod.status.extended.claim() {
            Some(claim) => ask(server, Method::GET, &format!("{RESOURCE_CLAIMS}/{claim}"), None).await.1,
            None => Value::Null,
        };
        let is_of_node = |what: &str| amount(&node["status"]["allocatable"], what).is_some_and(|it| it > 0);
        let wanted: i64 = asked.iter().filter(|(what, _)| !is_of_node(what)).map(|(_, count)| count).sum();
        let got = results(&claim).count();
        let mut checker = checker.lock();
        // A node may have gone.
        if checker.is_forgiving() || node["metadata"].is_null() {
            return;
        }
        checker.trace.count("checks of extended resources", 1);
        // As upstream, a pod may name a claim that is gone, if its node does without.
        if wanted > 0 && got > 0 {
            checker.check_claim(from, pod, &claim);
        }
        if (got as i64) < wanted {
            checker.fail(format!(
                "{}: pod {} is bound, and has {got} of {wanted} devices for its extended resources",
                from.process, pod.metadata.name
            ));
        }
    }

    /// Each claim that a scheduler made for extended resources is the one of its pod.
    pub async fn check_special_claims(checker: &Mutex<Self>, server: &ApiServer) {
        let (claims, pods) = (list(server, RESOURCE_CLAIMS).await, list(server, PODS).await);
        let mut checker = checker.lock();
        for claim in claims.iter().filter(|claim| is_special(claim)) {
            checker.trace.count("claims for extended resources at the end", 1);
            let owner = text(claim, "/metadata/ownerReferences/0/uid");
            let pod = pods.iter().find(|pod| uid(pod) == owner);
            let used = pod.map(|pod| text(pod, "/status/extendedResourceClaimStatus/resourceClaimName"));
            if used != Some(name(claim)) {
                checker.fail(format!("claim {} is left, and its pod uses {used:?}", name(claim)));
            }
        }
    }
}

/// Whether a scheduler made the claim, for extended resources.
fn is_special(claim: &Value) -> bool {
    claim["metadata"]["annotations"][EXTENDED_RESOURCE_CLAIM] == "true"
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use supercargo_apiserver::{ApiServer, Settings};

    use super::super::tests::{in_true_time, sender};
    use super::*;

    /// Creates a claim and gives it a device.
    async fn allocate(server: &ApiServer, claim: &str, device: &str) {
        let request = json!({ "name": "one", "exactly": { "deviceClassName": "class" } });
        let object =
            json!({ "metadata": { "name": claim }, "spec": { "devices": { "requests": [request] } } });
        assert!(ask(server, Method::POST, RESOURCE_CLAIMS, Some(&object)).await.0.is_success());
        let result = json!({ "request": "one", "driver": "example.com", "pool": "p", "device": device });
        let status = json!({ "status": { "allocation": { "devices": { "results": [result] } } } });
        let path = format!("{RESOURCE_CLAIMS}/{claim}/status");
        let (code, answer) = ask(server, Method::PATCH, &path, Some(&status)).await;
        assert!(code.is_success(), "{answer}");
    }

    #[test]
    fn claims_are_added_up_after_each_write() {
        in_true_time(async |checker| {
            let server = ApiServer::new(Settings::default());
            allocate(&server, "one", "a").await;
            allocate(&server, "other", "b").await;
            checker.add_up_claims(&server, None);
            assert!(checker.failures.is_empty());
            allocate(&server, "third", "a").await;
            checker.add_up_claims(&server, None);
            let expected = "after a change of third: claims one and third have device example.com/p/a";
            assert_eq!(checker.failures, [expected]);
            // No fault counts twice.
            allocate(&server, "fourth", "c").await;
            checker.add_up_claims(&server, None);
            assert_eq!(checker.failures.len(), 1);
        });
    }

    #[test]
    fn a_device_that_a_scheduler_could_not_know_to_be_taken_is_no_fault() {
        in_true_time(async |checker| {
            let server = ApiServer::new(Settings::default());
            let (new, old) = (sender("new", 0), sender("old", 0));
            allocate(&server, "one", "a").await;
            checker.add_up_claims(&server, Some((&old, "one")));
            allocate(&server, "other", "a").await;
            checker.add_up_claims(&server, Some((&new, "other")));
            assert!(checker.failures.is_empty(), "{:?}", checker.failures);
            allocate(&server, "third", "a").await;
            checker.add_up_claims(&server, Some((&new, "third")));
            let expected = "new: claim third: claims other and third have device example.com/p/a";
            assert_eq!(checker.failures, [expected]);
        });
    }
}
