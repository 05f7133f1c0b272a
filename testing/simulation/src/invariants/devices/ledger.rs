//! Adds up what claims have of counters and shared devices.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use supercargo_framework::quantity;

use super::{id, is_dedicated, results};
use crate::api::text;

/// The devices of drivers, and the rules that taint them.
pub(super) struct Ledger {
    slices: Vec<Value>,
    rules: Vec<Value>,
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

impl Ledger {
    pub(super) fn new(slices: Vec<Value>, rules: Vec<Value>) -> Self {
        Self { slices, rules }
    }

    fn slices_of(&self, driver: &str, pool: &str) -> impl Iterator<Item = &Value> {
        self.slices
            .iter()
            .map(|slice| &slice["spec"])
            .filter(move |spec| spec["driver"] == driver && spec["pool"]["name"] == pool)
    }

    /// `None` if its driver has withdrawn it.
    fn device(&self, [driver, pool, name]: [&str; 3]) -> Option<&Value> {
        let found = self.slices_of(driver, pool).flat_map(|spec| items(spec, "devices"));
        found.into_iter().find(|device| device["name"] == name)
    }

    /// How many devices of a claim are special.
    pub(super) fn special(&self, claim: &Value) -> u64 {
        const FIELDS: [&str; 4] =
            ["consumesCounters", "allowMultipleAllocations", "taints", "bindingConditions"];
        let devices = results(claim).filter_map(|result| self.device(id(result)));
        devices.filter(|device| FIELDS.iter().any(|field| !device[*field].is_null())).count() as u64
    }

    /// What is wrong with the devices of a new claim beside these others.
    pub(super) fn faults(&self, new: &Value, others: &[&Value]) -> Vec<String> {
        let all: Vec<&Value> = others.iter().copied().chain([new]).flat_map(results).collect();
        let own: BTreeSet<[&str; 3]> = results(new).map(id).collect();
        let pools: BTreeSet<[&str; 2]> = own.iter().map(|[driver, pool, _]| [*driver, *pool]).collect();
        let mut faults: Vec<String> =
            pools.into_iter().flat_map(|pool| self.overdrawn_counters(pool, &all)).collect();
        faults.extend(own.into_iter().filter_map(|device| self.overdrawn_device(device, &all)));
        faults.extend(results(new).filter_map(|result| self.untolerated(result)));
        faults
    }

    /// The counters of a pool of which its devices in use take more than there is.
    fn overdrawn_counters(&self, [driver, pool]: [&str; 2], all: &[&Value]) -> Vec<String> {
        // A shared device takes its counters once.
        let ids = all.iter().filter(|result| result["adminAccess"] != true).map(|result| id(result));
        let in_use: BTreeSet<[&str; 3]> = ids.filter(|[d, p, _]| (*d, *p) == (driver, pool)).collect();
        let consumed =
            in_use.into_iter().filter_map(|id| self.device(id)).flat_map(|it| items(it, "consumesCounters"));
        let mut used = BTreeMap::<(&str, &str), i64>::new();
        for consumption in consumed {
            for (counter, amount) in amounts(&consumption["counters"]) {
                *used.entry((text(consumption, "/counterSet"), counter)).or_default() += amount;
            }
        }
        let sets = self.slices_of(driver, pool).flat_map(|spec| items(spec, "sharedCounters"));
        let counters = sets.flat_map(|set| {
            amounts(&set["counters"]).map(move |(counter, amount)| ((text(set, "/name"), &**counter), amount))
        });
        counters
            .filter_map(|((set, counter), amount)| {
                let used = used.get(&(set, counter)).copied().unwrap_or_default();
                (used > amount)
                    .then(|| format!("overdraws {set}/{counter} of pool {pool}: {used} of {amount}"))
            })
            .collect()
    }

    /// Whether the shares of a device are more than it has, or somebody has it alone beside them.
    fn overdrawn_device(&self, device: [&str; 3], all: &[&Value]) -> Option<String> {
        let uses = || all.iter().filter(|result| id(result) == device && result["adminAccess"] != true);
        let shares: Vec<_> = uses().filter(|result| !is_dedicated(result)).collect();
        if !shares.is_empty() && shares.len() < uses().count() {
            return Some(format!("shares {} with a claim that has it alone", device.join("/")));
        }
        let mut used = BTreeMap::<&str, i64>::new();
        for (name, amount) in shares.iter().flat_map(|share| amounts(&share["consumedCapacity"])) {
            *used.entry(name).or_default() += amount;
        }
        let capacity: BTreeMap<_, _> = amounts(&self.device(device)?["capacity"]).collect();
        let is_over =
            |(name, used): &(&str, i64)| capacity.get(&(*name).to_owned()).is_some_and(|it| used > it);
        let (name, used) = used.into_iter().find(is_over)?;
        Some(format!("overdraws {name} of {}: {used} of {}", device.join("/"), capacity[&name.to_owned()]))
    }

    /// A taint of an allocated device that its request does not tolerate.
    fn untolerated(&self, result: &Value) -> Option<String> {
        let device = self.device(id(result))?;
        let of_rules = self.rules.iter().map(|rule| &rule["spec"]).filter(|rule| selects(rule, id(result)));
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

    fn ledger() -> Ledger {
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
        let rule = json!({ "spec": {
            "deviceSelector": { "device": "ruled" }, "taint": { "key": "broken", "effect": "NoExecute" },
        } });
        let slices = vec![spec(json!({ "devices": devices })), spec(json!({ "sharedCounters": counters }))];
        Ledger::new(slices, vec![rule])
    }

    fn claim(device: &str, more: Value) -> Value {
        let mut result = json!({ "driver": "d", "pool": "p", "device": device });
        result.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({ "status": { "allocation": { "devices": { "results": [result] } } } })
    }

    fn share(memory: &str) -> Value {
        claim("shared", json!({ "shareID": memory, "consumedCapacity": { "memory": memory } }))
    }

    #[track_caller]
    fn check(new: &Value, others: &[&Value], expected: &[&str]) {
        assert_eq!(ledger().faults(new, others), expected);
    }

    #[test]
    fn counters_are_not_overdrawn() {
        let [half, whole] = ["half", "whole"].map(|device| claim(device, json!({})));
        check(&whole, &[], &[]);
        check(&whole, &[&half], &["overdraws set/memory of pool p: 64424509440 of 42949672960"]);
        check(&claim("whole", json!({ "adminAccess": true })), &[&half], &[]);
        // A shared device takes its counters once.
        let share = |id: &str| claim("whole", json!({ "shareID": id }));
        check(&share("1"), &[&share("2")], &[]);
    }

    #[test]
    fn capacity_is_not_overdrawn() {
        check(&share("3Gi"), &[&share("1Gi")], &[]);
        check(&share("3Gi"), &[&share("2Gi")], &["overdraws memory of d/p/shared: 5368709120 of 4294967296"]);
        let alone = claim("shared", json!({}));
        check(&share("1Gi"), &[&alone], &["shares d/p/shared with a claim that has it alone"]);
    }

    #[test]
    fn taints_are_tolerated() {
        let tolerating = |key: &str| json!({ "tolerations": [{ "key": key, "operator": "Exists" }] });
        check(&claim("worn", tolerating("worn")), &[], &[]);
        check(&claim("worn", json!({})), &[], &["does not tolerate the taint worn of d/p/worn"]);
        check(&claim("ruled", tolerating("worn")), &[], &["does not tolerate the taint broken of d/p/ruled"]);
        check(&claim("ruled", json!({ "tolerations": [{ "operator": "Exists" }] })), &[], &[]);
    }
}
