//! Adds up what claims have of counters and shared devices.

use std::collections::BTreeMap;

use serde_json::Value;
use supercargo_framework::quantity;

use super::{id, is_dedicated, results};
use crate::api::{name, text};

/// The devices of drivers.
pub(super) struct Ledger<'a> {
    /// The specs of slices, by driver and pool.
    pools: BTreeMap<&'a str, BTreeMap<&'a str, Vec<&'a Value>>>,
}

/// What a claim has of a device.
struct Use<'a> {
    claim: &'a str,
    result: &'a Value,
}

fn items<'a>(object: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    object[field].as_array().into_iter().flatten()
}

fn amounts(object: &Value) -> impl Iterator<Item = (&String, i64)> {
    let amount = |value: &Value| {
        let amount = value.as_str().or_else(|| value["value"].as_str());
        amount.map_or(0, |amount| quantity::value(amount).unwrap_or_default())
    };
    object.as_object().into_iter().flatten().map(move |(name, value)| (name, amount(value)))
}

impl<'a> Ledger<'a> {
    pub(super) fn new(slices: impl Iterator<Item = &'a Value>) -> Self {
        let mut pools = BTreeMap::<_, BTreeMap<_, Vec<_>>>::new();
        for spec in slices.map(|slice| &slice["spec"]) {
            let of_driver = pools.entry(text(spec, "/driver")).or_default();
            of_driver.entry(text(spec, "/pool/name")).or_default().push(spec);
        }
        Self { pools }
    }

    fn slices_of(&self, driver: &str, pool: &str) -> &[&'a Value] {
        let pools = self.pools.get(driver);
        pools.and_then(|pools| pools.get(pool)).map_or(&[], Vec::as_slice)
    }

    /// `None` if its driver has withdrawn it.
    fn device(&self, [driver, pool, name]: [&str; 3]) -> Option<&'a Value> {
        let mut found = self.slices_of(driver, pool).iter().flat_map(|spec| items(spec, "devices"));
        found.find(|device| device["name"] == name)
    }

    /// How many devices of a claim are special.
    pub(super) fn special(&self, claim: &Value) -> u64 {
        const FIELDS: [&str; 4] =
            ["consumesCounters", "allowMultipleAllocations", "taints", "bindingConditions"];
        let devices = results(claim).filter_map(|result| self.device(id(result)));
        devices.filter(|device| FIELDS.iter().any(|field| !device[*field].is_null())).count() as u64
    }

    /// Adds up all that these claims have. What is wrong has amounts, which may change while it is
    /// the same fault.
    pub(super) fn faults<'b>(&self, claims: impl Iterator<Item = &'b Value>) -> BTreeMap<String, String> {
        let mut used = BTreeMap::<[&str; 2], BTreeMap<&str, Vec<Use<'_>>>>::new();
        for claim in claims {
            for result in results(claim).filter(|result| result["adminAccess"] != true) {
                let [driver, pool, device] = id(result);
                let of_device = used.entry([driver, pool]).or_default().entry(device).or_default();
                of_device.push(Use { claim: name(claim), result });
            }
        }
        let mut faults = BTreeMap::new();
        for (pool, devices) in &used {
            self.add_counters(*pool, devices, &mut faults);
            for (device, uses) in devices.iter().filter(|(_, uses)| uses.len() > 1) {
                self.add_device([pool[0], pool[1], device], uses, &mut faults);
            }
        }
        faults
    }

    /// The counters of a pool of which its devices in use take more than there is.
    fn add_counters(
        &self,
        [driver, pool]: [&str; 2],
        in_use: &BTreeMap<&str, Vec<Use<'_>>>,
        faults: &mut BTreeMap<String, String>,
    ) {
        // A shared device takes its counters once.
        let devices = in_use.keys().filter_map(|name| self.device([driver, pool, name]));
        let consumed = devices.flat_map(|device| items(device, "consumesCounters"));
        let mut used = BTreeMap::<(&str, &str), i64>::new();
        for consumption in consumed {
            for (counter, amount) in amounts(&consumption["counters"]) {
                *used.entry((text(consumption, "/counterSet"), counter)).or_default() += amount;
            }
        }
        if used.is_empty() {
            return;
        }
        for set in self.slices_of(driver, pool).iter().flat_map(|spec| items(spec, "sharedCounters")) {
            let name = text(set, "/name");
            for (counter, amount) in amounts(&set["counters"]) {
                let used = used.get(&(name, counter)).copied().unwrap_or_default();
                if used > amount {
                    faults.insert(
                        format!("overdraws {name}/{counter} of pool {pool}"),
                        format!(": {used} of {amount}"),
                    );
                }
            }
        }
    }

    /// Whether two claims have a device that is not shared, somebody has it alone beside shares, or
    /// the shares are more than it has.
    fn add_device(&self, device: [&str; 3], uses: &[Use<'_>], faults: &mut BTreeMap<String, String>) {
        let path = || device.join("/");
        let alone: Vec<&str> = uses.iter().filter(|it| is_dedicated(it.result)).map(|it| it.claim).collect();
        for pair in alone.windows(2) {
            let what = format!("claims {} and {} have device {}", pair[0], pair[1], path());
            faults.insert(what, String::new());
        }
        let shares: Vec<&Use<'_>> = uses.iter().filter(|it| !is_dedicated(it.result)).collect();
        if !shares.is_empty() && shares.len() < uses.len() {
            faults.insert(format!("shares {} with a claim that has it alone", path()), String::new());
        }
        let Some(capacity) =
            self.device(device).map(|it| amounts(&it["capacity"]).collect::<BTreeMap<_, _>>())
        else {
            return;
        };
        let mut used = BTreeMap::<&String, i64>::new();
        for (name, amount) in shares.iter().flat_map(|share| amounts(&share.result["consumedCapacity"])) {
            *used.entry(name).or_default() += amount;
        }
        for (name, used) in used {
            if let Some(capacity) = capacity.get(name).filter(|capacity| used > **capacity) {
                faults.insert(format!("overdraws {name} of {}", path()), format!(": {used} of {capacity}"));
            }
        }
    }

    /// A taint of an allocated device that its request does not tolerate.
    pub(super) fn untolerated(&self, result: &Value, rules: &[&Value]) -> Option<String> {
        let device = self.device(id(result))?;
        let of_rules = rules.iter().map(|rule| &rule["spec"]).filter(|rule| selects(rule, id(result)));
        let taints = items(device, "taints").chain(of_rules.map(|rule| &rule["taint"]));
        let is_tolerated = |taint: &&Value| {
            taint["effect"] == "None" || items(result, "tolerations").any(|it| tolerates(it, taint))
        };
        let taint = taints.into_iter().find(|taint| !is_tolerated(taint))?;
        Some(format!("does not tolerate the taint {} of {}", text(taint, "/key"), id(result).join("/")))
    }
}

fn selects(rule: &Value, device: [&str; 3]) -> bool {
    let selector = &rule["deviceSelector"];
    let fields = ["driver", "pool", "device"].into_iter().zip(device);
    selector.is_object()
        && fields.into_iter().all(|(field, name)| selector[field].is_null() || selector[field] == name)
}

fn tolerates(toleration: &Value, taint: &Value) -> bool {
    let is_unset_or = |field: &str| toleration[field].is_null() || toleration[field] == taint[field];
    let is_any = toleration["operator"] == "Exists";
    is_unset_or("key") && is_unset_or("effect") && (is_any || toleration["value"] == taint["value"])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn slices() -> [Value; 2] {
        let used =
            |amount: &str| json!([{ "counterSet": "set", "counters": { "memory": { "value": amount } } }]);
        let spec = |content: Value| {
            let mut spec = json!({ "driver": "d", "pool": { "name": "p" } });
            spec.as_object_mut().unwrap().extend(content.as_object().unwrap().clone());
            json!({ "spec": spec })
        };
        let devices = json!([
            { "name": "half", "consumesCounters": used("20Gi") },
            { "name": "whole", "consumesCounters": used("40Gi") },
            { "name": "shared", "capacity": { "memory": { "value": "4Gi" } } },
            { "name": "worn", "taints": [{ "key": "worn", "effect": "NoSchedule" }] },
            { "name": "ruled" },
        ]);
        let counters = json!([{ "name": "set", "counters": { "memory": { "value": "40Gi" } } }]);
        [spec(json!({ "devices": devices })), spec(json!({ "sharedCounters": counters }))]
    }

    fn claim(device: &str, more: Value) -> Value {
        let mut result = json!({ "driver": "d", "pool": "p", "device": device });
        result.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({
            "metadata": { "name": device },
            "status": { "allocation": { "devices": { "results": [result] } } },
        })
    }

    fn share(memory: &str) -> Value {
        claim("shared", json!({ "shareID": memory, "consumedCapacity": { "memory": memory } }))
    }

    #[track_caller]
    fn check(claims: &[&Value], expected: &[&str]) {
        let slices = slices();
        let faults = Ledger::new(slices.iter()).faults(claims.iter().copied());
        let faults: Vec<String> = faults.into_iter().map(|(what, amounts)| what + &amounts).collect();
        assert_eq!(faults, expected);
    }

    #[test]
    fn no_two_claims_have_one_device() {
        let one = claim("ruled", json!({}));
        check(&[&one, &claim("ruled", json!({ "adminAccess": true }))], &[]);
        check(&[&one, &one], &["claims ruled and ruled have device d/p/ruled"]);
        // Its driver may have withdrawn it.
        let gone = claim("gone", json!({}));
        check(&[&gone, &one, &gone], &["claims gone and gone have device d/p/gone"]);
    }

    #[test]
    fn counters_are_not_overdrawn() {
        let [half, whole] = ["half", "whole"].map(|device| claim(device, json!({})));
        check(&[&whole], &[]);
        check(&[&half, &whole], &["overdraws set/memory of pool p: 64424509440 of 42949672960"]);
        check(&[&half, &claim("whole", json!({ "adminAccess": true }))], &[]);
        // A shared device takes its counters once.
        let share = |id: &str| claim("whole", json!({ "shareID": id }));
        check(&[&share("2"), &share("1")], &[]);
    }

    #[test]
    fn capacity_is_not_overdrawn() {
        check(&[&share("1Gi"), &share("3Gi")], &[]);
        check(&[&share("2Gi"), &share("3Gi")], &["overdraws memory of d/p/shared: 5368709120 of 4294967296"]);
        let alone = claim("shared", json!({}));
        check(&[&alone, &share("1Gi")], &["shares d/p/shared with a claim that has it alone"]);
    }

    #[test]
    fn taints_are_tolerated() {
        let slices = slices();
        let rule = json!({ "spec": {
            "deviceSelector": { "device": "ruled" }, "taint": { "key": "broken", "effect": "NoExecute" },
        } });
        let untolerated = |device: &str, more: Value| {
            let claim = claim(device, more);
            let result = results(&claim).next().unwrap();
            Ledger::new(slices.iter()).untolerated(result, &[&rule]).unwrap_or_default()
        };
        let tolerating = |key: &str| json!({ "tolerations": [{ "key": key, "operator": "Exists" }] });
        let any = json!({ "tolerations": [{ "operator": "Exists" }] });
        assert_eq!(untolerated("worn", tolerating("worn")), "");
        assert_eq!(untolerated("worn", json!({})), "does not tolerate the taint worn of d/p/worn");
        assert_eq!(
            untolerated("ruled", tolerating("worn")),
            "does not tolerate the taint broken of d/p/ruled"
        );
        assert_eq!(untolerated("ruled", any), "");
    }
}
