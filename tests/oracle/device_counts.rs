//! Counts what a history shows of claims for devices, from its steps and upstream's answers.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::answer::{Answer, Write};
use super::history::{History, Reference, Step};

/// The number of a kind in a step.
type Number = fn(&Seen<'_>) -> usize;

/// What is counted, each with its number in a step. A kind that no history of a long run shows
/// fails the test.
const KINDS: [(&str, Number); 34] = [
    ("claims allocated", |seen| seen.allocations().count()),
    ("claims allocated by other schedulers", |seen| {
        seen.claim_change(|before, after| !is_allocated(before) && is_allocated(after))
    }),
    ("claims deallocated by others", |seen| {
        seen.claim_change(|before, after| is_allocated(before) && !is_allocated(after))
    }),
    ("claims deallocated during a binding", |seen| {
        let deallocates = seen.claim_change(|before, after| is_allocated(before) && !is_allocated(after));
        if seen.is_claim_being_bound() { deallocates } else { 0 }
    }),
    ("claims deallocated in PostFilter", |seen| {
        seen.status_writes().filter(|(before, after)| is_allocated(before) && !is_allocated(after)).count()
    }),
    ("claims reserved", |seen| {
        seen.status_writes().filter(|(before, after)| reservations(before) < reservations(after)).count()
    }),
    ("claims of several pods", |seen| {
        seen.status_writes().filter(|(_, after)| reservations(after) > 1).count()
    }),
    ("claims unreserved", |seen| seen.writes("patch status").count()),
    ("claims created for extended resources", |seen| seen.writes("create").count()),
    ("devices allocated", |seen| seen.results().count()),
    ("devices allocated with admin access", |seen| seen.allocated_with("adminAccess")),
    ("devices allocated with binding conditions", |seen| seen.allocated_with("bindingConditions")),
    ("devices allocated with counters", |seen| seen.allocated_devices(uses_counters)),
    ("devices allocated in spite of taints", |seen| seen.allocated_devices(is_tainted)),
    ("devices allocated as alternatives", |seen| seen.allocated_alternatives("/s0")),
    ("devices allocated as later alternatives", |seen| {
        seen.allocated_alternatives("/s") - seen.allocated_alternatives("/s0")
    }),
    ("shares of devices allocated", |seen| seen.allocated_with("shareID")),
    ("shares of devices allocated with binding conditions", |seen| {
        seen.results().filter(|it| it["shareID"].is_string() && it["bindingConditions"].is_array()).count()
    }),
    ("nodes rejected for their devices", |seen| seen.rejected_nodes().count()),
    ("nodes rejected for their devices, some with taints", |seen| {
        seen.rejected_nodes().filter(|node| seen.devices_of(node).any(is_tainted)).count()
    }),
    ("nodes rejected for their devices, some with counters", |seen| {
        seen.rejected_nodes().filter(|node| seen.devices_of(node).any(uses_counters)).count()
    }),
    ("nodes rejected for their devices, some shared", |seen| {
        let is_shared = |device: &Value| device["allowMultipleAllocations"] == true;
        seen.rejected_nodes().filter(|node| seen.devices_of(node).any(is_shared)).count()
    }),
    ("waits for devices", |seen| seen.events("BindingConditionsPending", "").count()),
    ("waits for devices that ended in a binding", |seen| {
        seen.known.waiting.iter().filter(|pod| seen.place(pod) == "bound").count()
    }),
    ("waits for devices that failed", |seen| {
        seen.events("FailedScheduling", "device binding failed").count()
    }),
    ("waits for devices that took too long", |seen| {
        seen.events("FailedScheduling", "device binding timeout").count()
    }),
    ("victims with claims", |seen| seen.answer.deleted.iter().filter(|pod| seen.has_claims(pod)).count()),
    ("preemptors with claims", |seen| {
        let cycle = seen.answer.cycle.as_ref().filter(|cycle| cycle.preemption.is_some());
        usize::from(cycle.is_some_and(|cycle| seen.has_claims(&cycle.pod)))
    }),
    ("cycles with claims and extenders", |seen| {
        let cycle = seen.answer.cycle.as_ref().filter(|_| seen.has_extenders);
        usize::from(cycle.is_some_and(|cycle| seen.has_claims(&cycle.pod)))
    }),
    ("bindings with claims and volumes", |seen| {
        let bound = seen.answer.pods.keys().filter(|pod| seen.place(pod) == "bound");
        let bound = bound.filter(|pod| seen.place_before(pod) != "bound");
        bound.filter(|pod| seen.has_claims(pod) && seen.pod(pod)["spec"]["volumes"].is_array()).count()
    }),
    ("gates of pods with claims removed", |seen| {
        let left = seen.answer.pods.keys().filter(|pod| seen.place_before(pod) == "gated");
        let left = left.filter(|pod| seen.place(pod) != "gated" && seen.has_claims(pod));
        left.filter(|pod| seen.pod(pod)["spec"]["schedulingGates"].is_array()).count()
    }),
    ("slices added and deleted", |seen| seen.comings_and_goings("ResourceSlice")),
    ("classes added and deleted", |seen| seen.comings_and_goings("DeviceClass")),
    ("taint rules added and deleted", |seen| seen.comings_and_goings("DeviceTaintRule")),
];

/// What counting knows before a step.
#[derive(Debug, Default)]
pub(super) struct Known {
    objects: BTreeMap<Reference, Value>,
    /// The pods that wait for their devices.
    waiting: BTreeSet<String>,
    places: BTreeMap<String, String>,
}

impl Known {
    /// The counts of the next step.
    pub(super) fn count(
        &mut self,
        history: &History,
        step: usize,
        answer: &Answer,
    ) -> Vec<(&'static str, usize)> {
        let Some(step) = history.steps.get(step) else { return Vec::new() };
        let seen = Seen { step, answer, known: self, has_extenders: history.has_extenders() };
        let counts = KINDS.iter().map(|(kind, count)| (*kind, count(&seen))).collect();
        self.follow(step, answer);
        counts
    }

    fn follow(&mut self, step: &Step, answer: &Answer) {
        match step {
            Step::Apply(object) => {
                self.objects.insert(Reference::of(object), object.clone());
            }
            Step::Delete(reference) => {
                self.objects.remove(reference);
            }
            Step::Advance(_) | Step::Schedule(_) => {}
        }
        for write in &answer.writes {
            if write.verb == "update status" {
                self.objects.insert(written_claim(write), write.body.clone());
            }
        }
        self.places = answer.pods.iter().map(|(pod, state)| (pod.clone(), state.place.clone())).collect();
        self.waiting.retain(|pod| answer.pods.get(pod).is_some_and(|pod| pod.place == "inflight"));
        let began = answer.events.iter().filter(|event| event.reason == "BindingConditionsPending");
        self.waiting.extend(began.map(|event| event.pod.clone()));
    }
}

/// A step with what was known before.
struct Seen<'a> {
    step: &'a Step,
    answer: &'a Answer,
    known: &'a Known,
    has_extenders: bool,
}

impl<'a> Seen<'a> {
    fn writes(&self, verb: &'a str) -> impl Iterator<Item = &'a Write> + use<'a> {
        let writes = self.answer.writes.iter();
        writes.filter(move |write| write.resource == "resourceclaims" && write.verb == verb)
    }

    /// The claims whose status the scheduler has written, as they were and as they are.
    fn status_writes(&self) -> impl Iterator<Item = (&'a Value, &'a Value)> + use<'a> {
        let known = self.known;
        self.writes("update status")
            .map(|write| (known.objects.get(&written_claim(write)).unwrap_or(&Value::Null), &write.body))
    }

    fn allocations(&self) -> impl Iterator<Item = &'a Value> + use<'a> {
        let allocated =
            self.status_writes().filter(|(before, after)| !is_allocated(before) && is_allocated(after));
        allocated.map(|(_, after)| after)
    }

    /// The devices that the scheduler has allocated.
    fn results(&self) -> impl Iterator<Item = &'a Value> + use<'a> {
        self.allocations().flat_map(|claim| list(&claim["status"]["allocation"]["devices"]["results"]))
    }

    fn allocated_with(&self, field: &str) -> usize {
        self.results().filter(|result| !result[field].is_null()).count()
    }

    fn allocated_alternatives(&self, name: &str) -> usize {
        self.results().filter(|result| text(&result["request"]).contains(name)).count()
    }

    fn allocated_devices(&self, is_wanted: fn(&Value) -> bool) -> usize {
        let is_of = |slice: &Value, result: &Value| {
            slice["spec"]["driver"] == result["driver"] && slice["spec"]["pool"]["name"] == result["pool"]
        };
        let device = |result: &'a Value| {
            let slices = self.slices().filter(|slice| is_of(slice, result));
            let mut devices = slices.flat_map(|slice| list(&slice["spec"]["devices"]));
            devices.find(|device| device["name"] == result["device"])
        };
        self.results().filter_map(device).filter(|device| is_wanted(device)).count()
    }

    fn slices(&self) -> impl Iterator<Item = &'a Value> + use<'a> {
        let objects = self.known.objects.iter();
        objects.filter(|(reference, _)| reference.kind == "ResourceSlice").map(|(_, slice)| slice)
    }

    fn devices_of(&self, node: &str) -> impl Iterator<Item = &'a Value> {
        let slices = self.slices().filter(move |slice| slice["spec"]["nodeName"] == *node);
        slices.flat_map(|slice| list(&slice["spec"]["devices"]))
    }

    /// The nodes whose devices do not suffice.
    fn rejected_nodes(&self) -> impl Iterator<Item = &'a str> {
        let nodes = self.answer.cycle.iter().flat_map(|cycle| &cycle.filters);
        nodes
            .filter(|(_, verdicts)| {
                let reasons = verdicts.get("DynamicResources").map(|status| &status.reasons);
                reasons.is_some_and(|reasons| reasons == &["cannot allocate all claims"])
            })
            .map(|(node, _)| node.as_str())
    }

    /// The claim that the step changes, and its new state.
    fn changed_claim(&self) -> Option<(Reference, &'a Value)> {
        let (reference, after) = match self.step {
            Step::Apply(object) => (Reference::of(object), object),
            Step::Delete(reference) => (reference.clone(), &Value::Null),
            Step::Advance(_) | Step::Schedule(_) => return None,
        };
        (reference.kind == "ResourceClaim").then_some((reference, after))
    }

    /// 1 if the step changes a claim in this way.
    fn claim_change(&self, is_wanted: fn(&Value, &Value) -> bool) -> usize {
        usize::from(self.changed_claim().is_some_and(|(claim, after)| {
            is_wanted(self.known.objects.get(&claim).unwrap_or(&Value::Null), after)
        }))
    }

    /// Whether a pod whose binding is in flight names the claim that the step changes.
    fn is_claim_being_bound(&self) -> bool {
        self.changed_claim().is_some_and(|(claim, _)| {
            let mut pods = self.known.places.iter().filter(|(_, place)| *place == "inflight");
            pods.any(|(pod, _)| {
                let mut used = list(&self.pod(pod)["spec"]["resourceClaims"]);
                pod.split('/').next() == Some(&claim.namespace)
                    && used.any(|used| used["resourceClaimName"] == *claim.name)
            })
        })
    }

    fn comings_and_goings(&self, kind: &str) -> usize {
        usize::from(match self.step {
            Step::Apply(object) => {
                object["kind"] == *kind && !self.known.objects.contains_key(&Reference::of(object))
            }
            Step::Delete(reference) => reference.kind == kind,
            Step::Advance(_) | Step::Schedule(_) => false,
        })
    }

    fn events(&self, reason: &'a str, note: &'a str) -> impl Iterator<Item = ()> + use<'a> {
        let events = self.answer.events.iter();
        events.filter(move |event| event.reason == reason && event.note.contains(note)).map(|_| ())
    }

    fn place(&self, pod: &str) -> &'a str {
        self.answer.pods.get(pod).map_or("", |pod| &pod.place)
    }

    fn place_before(&self, pod: &str) -> &'a str {
        self.known.places.get(pod).map_or("", |place| place)
    }

    fn pod(&self, pod: &str) -> &'a Value {
        let (namespace, name) = pod.split_once('/').unwrap_or_default();
        self.known.objects.get(&Reference::pod(namespace, name)).unwrap_or(&Value::Null)
    }

    fn has_claims(&self, pod: &str) -> bool {
        self.pod(pod)["spec"]["resourceClaims"].is_array()
    }
}

fn written_claim(write: &Write) -> Reference {
    let mut claim = write.body.clone();
    claim["apiVersion"] = json!("resource.k8s.io/v1");
    claim["kind"] = json!("ResourceClaim");
    Reference::of(&claim)
}

fn is_allocated(claim: &Value) -> bool {
    claim["status"]["allocation"].is_object()
}

fn reservations(claim: &Value) -> usize {
    list(&claim["status"]["reservedFor"]).count()
}

fn uses_counters(device: &Value) -> bool {
    device["consumesCounters"].is_array()
}

fn is_tainted(device: &Value) -> bool {
    list(&device["taints"]).any(|taint| taint["effect"] != "None")
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
