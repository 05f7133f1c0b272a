//! Runs a scenario through a scheduler.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};
use supercargo_controlplane::Method;

use super::claims;
use super::cluster::Cluster;
use super::namespace::{NAMESPACE, pod_path};
use super::observe::{self, PodSeen, Seen, items};
use super::scenario::{Expect, Object, Scenario, Step, Target};
use super::scheduler::Scheduler;
use super::scheduler_kind::SchedulerKind;

/// The time limit for a condition, by the scheduler's clock. kube-scheduler's event recorder waits
/// up to 12.5 s before it writes an event again, so on a busy machine two such waits must fit.
const PATIENCE: Duration = Duration::from_secs(30);

/// After this time, a scheduler tries a waiting pod without an event that may help it.
const FLUSH: Duration = Duration::from_mins(5);

/// Creates the namespaces of the scenarios' pods and other objects. They stay: without a
/// controller, a namespace cannot be deleted.
pub(super) fn prepare(cluster: &dyn Cluster) -> Result<()> {
    for (name, labels) in [
        // Claims of this namespace may ask for admin access to devices.
        (NAMESPACE, json!({"resource.kubernetes.io/admin-access": "true"})),
        ("parity-red", json!({"team": "red"})),
        ("parity-blue", json!({"team": "blue"})),
        ("parity-plain", json!({})),
    ] {
        let metadata = json!({"name": name, "labels": labels});
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata});
        cluster.request(Method::Post, "/api/v1/namespaces", Some(&namespace))?.json()?;
    }
    Ok(())
}

/// The result of a run.
pub(super) struct Outcome {
    pub(super) seen: Seen,
    /// The reason why the scenario did not complete.
    pub(super) stopped: Option<anyhow::Error>,
    /// The time from its first step to its last, by the scheduler's clock.
    pub(super) took: Duration,
}

impl Outcome {
    /// Why the scenario shows nothing: it did not complete, or so late that the scheduler may have
    /// tried its pods without an event.
    pub(super) fn flaw(&self) -> Option<String> {
        match &self.stopped {
            Some(why) => Some(format!("{why:#}")),
            None if self.took >= FLUSH => Some(format!("{:.1?} suffice to flush a pod", self.took)),
            None => None,
        }
    }
}

/// Runs a scenario from a clean cluster to a clean cluster.
pub(super) fn scenario(
    cluster: &dyn Cluster,
    scheduler: &mut Scheduler,
    scenario: &Scenario,
) -> Result<Outcome> {
    scenario_within(PATIENCE, cluster, scheduler, scenario)
}

/// The same with another limit for what a step waits for.
pub(super) fn scenario_within(
    patience: Duration,
    cluster: &dyn Cluster,
    scheduler: &mut Scheduler,
    scenario: &Scenario,
) -> Result<Outcome> {
    let side = scheduler.side();
    let mut run = Run {
        cluster,
        side,
        scenario,
        uids: BTreeMap::new(),
        object_uids: BTreeMap::new(),
        barriers: 0,
        patience,
    };
    let start = claims::version(cluster)?;
    let mark = scheduler.mark()?;
    let began = cluster.now();
    let stopped = run.perform().err();
    let took = cluster.now().saturating_sub(began);
    scheduler.check_alive()?;
    let mut seen = run.look(&start)?;
    run.clean_up()?;
    for (pod, scores) in scheduler.scores_since(mark)? {
        if let Some(pod) = seen.pods.get_mut(&pod) {
            // A pending pod has no scores, even if an earlier cycle scored it.
            if pod.node.is_some() {
                pod.scores = scores;
            }
        }
    }
    Ok(Outcome { seen, stopped, took })
}

struct Run<'a> {
    cluster: &'a dyn Cluster,
    side: SchedulerKind,
    scenario: &'a Scenario,
    /// The UIDs of the pods created so far.
    uids: BTreeMap<String, String>,
    /// Those of other objects, by the end of their path.
    object_uids: BTreeMap<String, String>,
    barriers: usize,
    patience: Duration,
}

impl Run<'_> {
    fn perform(&mut self) -> Result<()> {
        // The scheduler must have forgotten the nodes of the last scenario, and know this one's,
        // before the first pod.
        self.wait_until_nodes_are_known(0)?;
        for object in &self.scenario.objects {
            let target = object.target();
            if !self.scenario.comes_later(&target) {
                self.create(&target)?;
            }
        }
        let mut nodes = 0;
        for node in &self.scenario.nodes {
            let target = Target::Node(node.name.clone());
            if !self.scenario.comes_later(&target) {
                self.create(&target)?;
                nodes += 1;
            }
        }
        if nodes > 0 {
            self.wait_until_nodes_are_known(nodes)?;
        }
        for pod in &self.scenario.pods {
            let target = Target::Pod(pod.name.clone());
            if !self.scenario.comes_later(&target) {
                self.create(&target)?;
            }
        }
        for (number, step) in self.scenario.steps.iter().enumerate() {
            self.step(step).with_context(|| format!("step {}", number + 1))?;
        }
        // Waits for writes in flight, such as a patch of a condition.
        self.barrier()?;
        self.cluster.settle()
    }

    /// The pods as they are, and what has changed in claims since that version.
    fn look(&self, start: &str) -> Result<Seen> {
        let mut seen = Seen::default();
        if self.scenario.has_devices() {
            let uids = self.uids.iter().chain(&self.object_uids);
            seen.claims = claims::since(self.cluster, start, uids)?;
        }
        for (name, uid) in &self.uids {
            let mut pod = observe::pod(self.cluster, self.side, name, uid)?;
            pod.name_pods(&self.uids);
            seen.pods.insert(name.clone(), pod);
        }
        Ok(seen)
    }

    fn step(&mut self, step: &Step) -> Result<()> {
        if let Some(target) = &step.create {
            self.create(target)?;
        }
        if let (Some(target), Some(with)) = (&step.patch, &step.with) {
            let mut path = self.scenario.path(target)?;
            if let Some(subresource) = &step.subresource {
                path = format!("{path}/{subresource}");
            }
            self.send(Method::Patch, &path, Some(&self.filled_in(with)))?;
        }
        if let Some(target) = &step.delete {
            let path = self.scenario.path(target)?;
            self.send(Method::Delete, &format!("{path}?gracePeriodSeconds=0"), None)?;
        }
        if let (Some(target), Some(has)) = (&step.see, &step.has) {
            self.see(&self.scenario.path(target)?, &self.filled_in(has))?;
        }
        if let Some(time) = step.elapse {
            self.cluster.elapse(Duration::from_millis(time))?;
        }
        for (pod, expect) in &step.expect {
            self.expect(pod, expect)?;
        }
        Ok(())
    }

    fn create(&mut self, target: &Target) -> Result<()> {
        let name = match target {
            Target::Node(_) => {
                self.post("/api/v1/nodes", &self.scenario.node(target)?)?;
                return Ok(());
            }
            Target::Other { plural, name } => {
                let object = self.scenario.object(target)?;
                let created = self.post(&object.path, &self.filled_in(&object.object))?;
                self.object_uids.insert(format!("{plural}/{name}"), uid_of(&created)?);
                if let Some(status) = &object.status {
                    let (path, status) = (format!("{}/status", object.own_path()), self.filled_in(status));
                    self.send(Method::Patch, &path, Some(&json!({ "status": status })))?;
                }
                return Ok(());
            }
            Target::Pod(name) => name,
        };
        let pod = self.scenario.pod(name)?;
        let created = self
            .post(&format!("/api/v1/namespaces/{NAMESPACE}/pods"), &pod.object(self.scenario, self.side))?;
        self.uids.insert(name.clone(), uid_of(&created)?);
        if let Some(status) = &pod.status {
            let status = json!({ "status": status });
            self.send(Method::Patch, &format!("{}/status", pod_path(name)), Some(&status))?;
        }
        if let Some(expect) = &pod.expect {
            self.expect(name, expect)?;
        }
        Ok(())
    }

    /// Replaces each `{uid of p}` by the UID of that pod, or object.
    fn filled_in(&self, object: &Value) -> Value {
        match object {
            Value::String(text) => {
                let uids = self.uids.iter().chain(&self.object_uids);
                Value::String(
                    uids.fold(text.clone(), |text, (name, uid)| {
                        text.replace(&format!("{{uid of {name}}}"), uid)
                    }),
                )
            }
            Value::Array(items) => items.iter().map(|item| self.filled_in(item)).collect(),
            Value::Object(fields) => {
                fields.iter().map(|(key, value)| (key.clone(), self.filled_in(value))).collect()
            }
            other => other.clone(),
        }
    }

    /// Waits until the object at the path has these fields.
    fn see(&self, path: &str, has: &Value) -> Result<()> {
        let began = self.cluster.now();
        let deadline = began + self.patience;
        loop {
            self.cluster.settle()?;
            let object = self.cluster.request(Method::Get, path, None)?.json()?;
            if contains(&object, has) {
                return Ok(());
            }
            if self.cluster.now() > deadline {
                bail!("{path} lacks {has}: it is {object}");
            }
            self.cluster.pause(began)?;
        }
    }

    /// Waits until the pod is as expected, and checks the expected node or note.
    fn expect(&self, name: &str, expect: &Expect) -> Result<()> {
        let uid = self.uids.get(name).with_context(|| format!("{name} is not created yet"))?;
        let began = self.cluster.now();
        let deadline = began + self.patience;
        loop {
            self.cluster.settle()?;
            let seen = observe::pod(self.cluster, self.side, name, uid)?;
            if is_as_expected(&seen, expect) {
                return check(name, &seen, expect);
            }
            // A bound pod does not change any more.
            let is_settled = match expect {
                Expect::Failed { .. } => seen.is_bound(),
                Expect::Quiet => true,
                _ => false,
            };
            if is_settled || self.cluster.now() > deadline {
                bail!("{name} is not {expect:?}");
            }
            self.cluster.pause(began)?;
        }
    }

    /// Waits until the scheduler reports this many nodes in the note of a failure.
    fn wait_until_nodes_are_known(&mut self, count: usize) -> Result<()> {
        let wanted = match count {
            0 => "no nodes available".to_owned(),
            _ => format!("0/{count} nodes are available"),
        };
        let deadline = self.cluster.now() + PATIENCE;
        loop {
            let note = self.barrier()?;
            if note.starts_with(&wanted) {
                return Ok(());
            }
            if self.cluster.now() > deadline {
                bail!("the scheduler does not see {count} nodes; it says: {note}");
            }
        }
    }

    /// Creates a pod that fits no node, waits for its failure, and deletes it. The scheduler has
    /// then completed its earlier work.
    fn barrier(&mut self) -> Result<String> {
        self.barriers += 1;
        let name = format!("barrier-{}", self.barriers);
        let pod = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": { "name": name, "namespace": NAMESPACE },
            "spec": {
                "schedulerName": self.side.scheduler_name("parity"),
                "containers": [{ "name": "main", "image": "barrier:1" }],
                "nodeSelector": { "parity.test/barrier": "never" },
            },
        });
        let created = self.post(&format!("/api/v1/namespaces/{NAMESPACE}/pods"), &pod)?;
        let uid = uid_of(&created)?;
        let began = self.cluster.now();
        let deadline = began + PATIENCE;
        loop {
            self.cluster.settle()?;
            let seen = observe::pod(self.cluster, self.side, &name, &uid)?;
            // Two failures in quick succession are one event with a count, which keeps the first
            // note, so read the condition.
            let message = seen.condition.as_ref().and_then(|condition| condition.message.as_deref());
            if let Some(message) = message.filter(|_| seen.failures() > 0) {
                let path = format!("{}?gracePeriodSeconds=0", pod_path(&name));
                self.send(Method::Delete, &path, None)?;
                return Ok(message.to_owned());
            }
            if self.cluster.now() > deadline {
                bail!("the scheduler does not say that no node takes {name}");
            }
            self.cluster.pause(began)?;
        }
    }

    /// Deletes all objects and waits until they are gone.
    fn clean_up(&self) -> Result<()> {
        let pods = format!("/api/v1/namespaces/{NAMESPACE}/pods");
        let events = format!("/apis/events.k8s.io/v1/namespaces/{NAMESPACE}/events");
        let deadline = self.cluster.now() + PATIENCE;
        loop {
            let list = self.cluster.request(Method::Get, &pods, None)?.json()?;
            if items(&list).next().is_none() {
                break;
            }
            for pod in items(&list).filter(|pod| pod.pointer("/metadata/finalizers").is_some()) {
                let name = pod.pointer("/metadata/name").and_then(Value::as_str);
                let path = pod_path(name.unwrap_or_default());
                let none = json!({"metadata": {"finalizers": null}});
                // It may be deleted already.
                self.cluster.request(Method::Patch, &path, Some(&none))?;
            }
            self.send(Method::Delete, &format!("{pods}?gracePeriodSeconds=0"), None)?;
            if self.cluster.now() > deadline {
                bail!("the pods do not go away");
            }
        }
        self.send(Method::Delete, "/api/v1/nodes", None)?;
        self.send(Method::Delete, &events, None)?;
        let mut paths: Vec<String> = self.scenario.objects.iter().map(Object::own_path).collect();
        paths.extend(self.other_claims()?);
        for path in paths {
            // The API server adds finalizers to claims and volumes. They may not exist if the
            // scenario failed earlier.
            let none = json!({"metadata": {"finalizers": null}});
            self.cluster.request(Method::Patch, &path, Some(&none))?;
            // Without a garbage collector, orphaning the pods of a ReplicationController would
            // never complete.
            let at_once = "gracePeriodSeconds=0&propagationPolicy=Background";
            self.cluster.request(Method::Delete, &format!("{path}?{at_once}"), None)?;
        }
        Ok(())
    }

    /// The claims that are no objects of the scenario. A garbage collector would delete those for
    /// extended resources with their pods.
    fn other_claims(&self) -> Result<Vec<String>> {
        if !self.scenario.has_devices() {
            return Ok(Vec::new());
        }
        let list = self.cluster.request(Method::Get, claims::PATH, None)?.json()?;
        let names = items(&list).filter_map(|claim| claim.pointer("/metadata/name")?.as_str());
        Ok(names.map(|name| format!("{}/{name}", claims::PATH)).collect())
    }

    /// Creates an object. The API server rejects pods with a new PriorityClass until it knows the
    /// class.
    fn post(&self, path: &str, object: &Value) -> Result<Value> {
        let began = self.cluster.now();
        let deadline = began + PATIENCE;
        loop {
            let answer = self.cluster.request(Method::Post, path, Some(object))?;
            if answer.status != 403 || self.cluster.now() > deadline {
                return answer.json().with_context(|| format!("POST {path}: {object}"));
            }
            self.cluster.pause(began)?;
        }
    }

    fn send(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value> {
        let answer = self.cluster.request(method, path, body)?;
        answer.json().with_context(|| format!("{method} {path}"))
    }
}

fn is_as_expected(seen: &PodSeen, expect: &Expect) -> bool {
    match expect {
        Expect::Bound(_) => seen.is_bound(),
        Expect::Failed { times, .. } => seen.failures() >= *times && seen.is_told_of_its_failure(),
        Expect::Events(times) => seen.occurrences() >= *times,
        Expect::Quiet => seen.node.is_none() && seen.events.is_empty(),
    }
}

fn check(name: &str, seen: &PodSeen, expect: &Expect) -> Result<()> {
    match expect {
        Expect::Bound(Some(node)) if seen.node.as_deref() != Some(node) => {
            bail!("{name} is not on {node}")
        }
        Expect::Failed { note: Some(note), .. }
            if seen.events.last().is_none_or(|event| event.note != *note) =>
        {
            bail!("{name} is not told {note:?}")
        }
        _ => Ok(()),
    }
}

/// Whether the object has every field of `wanted` with its value; of conditions, too, whose times
/// differ. `null` stands for an absent field.
fn contains(object: &Value, wanted: &Value) -> bool {
    let has = |(key, wanted): (&String, &Value)| {
        let found = object.get(key).unwrap_or(&Value::Null);
        match (found.as_array(), wanted.as_array()) {
            (Some(found), Some(wanted)) if key == "conditions" => {
                found.len() == wanted.len()
                    && found.iter().zip(wanted).all(|(one, other)| contains(one, other))
            }
            _ => contains(found, wanted),
        }
    };
    match wanted {
        Value::Object(fields) => fields.iter().all(has),
        _ => object == wanted,
    }
}

fn uid_of(object: &Value) -> Result<String> {
    let uid = object.pointer("/metadata/uid").and_then(Value::as_str);
    Ok(uid.context("an object has no UID")?.to_owned())
}
