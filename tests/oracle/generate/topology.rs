//! Constraints between pods: topology spread and pod affinity.

use serde_json::{Value, json};

use super::generator::Generator;
use super::mix::Kind;
use super::names::{APPS, NAMESPACES, TRACKS};
use super::nodes::{HOSTNAME, REGION, ZONE};

impl Generator<'_> {
    pub(super) fn topology_spread(&mut self, spec: &mut Value) {
        let mut constraints: Vec<Value> = Vec::new();
        for (kind, action) in [(Kind::HardSpread, "DoNotSchedule"), (Kind::SoftSpread, "ScheduleAnyway")] {
            if self.has(kind) {
                constraints.extend((0..self.random.between(1, 2)).map(|_| self.spread_constraint(action)));
            }
        }
        // A pair of topology key and action must be unique.
        let mut seen = Vec::new();
        constraints.retain(|constraint| {
            let pair = (constraint["topologyKey"].clone(), constraint["whenUnsatisfiable"].clone());
            let new = !seen.contains(&pair);
            seen.push(pair);
            new
        });
        if !constraints.is_empty() {
            spec["topologySpreadConstraints"] = json!(constraints);
        }
    }

    fn spread_constraint(&mut self, action: &str) -> Value {
        let key = *self.random.pick(&[ZONE, ZONE, HOSTNAME, REGION]);
        let mut constraint = json!({
            "maxSkew": *self.random.pick(&[1, 1, 2, 3]),
            "topologyKey": key,
            "whenUnsatisfiable": action,
        });
        if self.random.chance(90) {
            constraint["labelSelector"] = self.label_selector();
        }
        if action == "DoNotSchedule" && self.random.chance(30) {
            constraint["minDomains"] = json!(self.random.between(1, 4));
        }
        for policy in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            if self.random.chance(40) {
                constraint[policy] = json!(self.random.pick(&["Honor", "Ignore"]));
            }
        }
        if constraint["labelSelector"].is_object() && self.random.chance(25) {
            constraint["matchLabelKeys"] = json!([self.random.pick(&["track", "missing"])]);
        }
        constraint
    }

    pub(super) fn pod_affinity(&mut self, spec: &mut Value) {
        let (required, preferred) = (
            "requiredDuringSchedulingIgnoredDuringExecution",
            "preferredDuringSchedulingIgnoredDuringExecution",
        );
        for (kind, field) in [(Kind::PodAffinity, "podAffinity"), (Kind::PodAntiAffinity, "podAntiAffinity")]
        {
            if self.has(kind) {
                let terms: Vec<Value> =
                    (0..self.random.between(1, 2)).map(|_| self.affinity_term()).collect();
                spec["affinity"][field][required] = json!(terms);
            }
            if self.has(Kind::PreferredPods) {
                let terms = (0..self.random.between(1, 2)).map(|_| {
                    let weight = *self.random.pick(&[1, 10, 100]);
                    json!({ "weight": weight, "podAffinityTerm": self.affinity_term() })
                });
                spec["affinity"][field][preferred] = terms.collect();
            }
        }
    }

    fn affinity_term(&mut self) -> Value {
        let mut term = json!({ "topologyKey": *self.random.pick(&[ZONE, HOSTNAME, REGION]) });
        if self.random.chance(92) {
            term["labelSelector"] = self.label_selector();
        }
        if self.random.chance(25) {
            term["namespaces"] = json!(self.random.some(50, &NAMESPACES));
        }
        if self.random.chance(25) {
            term["namespaceSelector"] = match self.random.below(3) {
                0 => json!({}),
                1 => json!({ "matchLabels": { "team": self.random.pick(&["a", "b"]) } }),
                _ => json!({ "matchExpressions": [{ "key": "team", "operator": "DoesNotExist" }] }),
            };
        }
        term
    }

    pub(super) fn label_selector(&mut self) -> Value {
        let random = &mut self.random;
        match random.below(8) {
            0 => json!({}),
            1 => {
                json!({ "matchExpressions": [{ "key": "app", "operator": "In", "values": random.some(60, &APPS[..]).into_iter().chain(["web"]).collect::<Vec<_>>() }] })
            }
            2 => json!({ "matchExpressions": [{ "key": "track", "operator": "Exists" }] }),
            3 => {
                json!({ "matchExpressions": [{ "key": "track", "operator": "NotIn", "values": [random.pick(&TRACKS)] }] })
            }
            4 => json!({ "matchLabels": { "app": random.pick(&APPS), "track": random.pick(&TRACKS) } }),
            _ => json!({ "matchLabels": { "app": random.pick(&APPS) } }),
        }
    }
}
