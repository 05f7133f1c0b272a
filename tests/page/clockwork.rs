//! A scheduler and the cluster around it in virtual time: the same changes always lead to the same
//! record.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use supercargo::config::{Catalog, Config};
use supercargo_codec::{NodeKind, ObjectKind, PodKind};
use supercargo_framework::binding::BindOutcome;
use supercargo_framework::{Features, Now, Status, Timestamp};
use supercargo_owner::options::scheduler_options;
use supercargo_scheduler::record::{Recorded, RecordedCall, StepLog};
use supercargo_scheduler::{Effect, Input, NoCalls, Notification, Scheduler};

/// How long a cycle takes, and each answer of the API server.
const CYCLE: Duration = Duration::from_micros(700);
const ANSWER: Duration = Duration::from_millis(18);
/// The shortest time between two calls when nothing happens.
const TICK: Duration = Duration::from_millis(1);

/// A change of the cluster.
pub(super) enum Change {
    /// An object is created.
    Create(Value),
    /// An object of this key gets these fields: a JSON merge patch.
    Patch(String, Value),
    /// The object of this key is deleted.
    Delete(String),
    /// An effect has ended.
    Answer(Box<Input>),
}

/// A scheduler, a cluster, and a clock that is set to the next change.
pub(super) struct Clockwork {
    recorded: Recorded<Log>,
    log: Log,
    /// Since the beginning.
    now: Duration,
    begin: Timestamp,
    /// What is to happen, by time and in order.
    due: BTreeMap<(Duration, u64), Change>,
    objects: BTreeMap<String, Value>,
    pods: PodKind,
    nodes: NodeKind,
    changes: u64,
}

/// The lines of the record.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl StepLog for Log {
    fn push(&mut self, step: RecordedCall) {
        self.0.lock().unwrap().extend(step.to_line().unwrap());
    }
}

/// The key of an object: its kind, namespace and name.
pub(super) fn key(object: &Value) -> String {
    let metadata = &object["metadata"];
    let [kind, namespace, name] = [&object["kind"], &metadata["namespace"], &metadata["name"]]
        .map(|text| text.as_str().unwrap_or_default());
    format!("{kind}/{namespace}/{name}")
}

impl Clockwork {
    /// A scheduler with these features, that begins at this time.
    pub(super) fn new(begin: &str, features: Features) -> Self {
        let begin: jiff::Timestamp = begin.parse().unwrap();
        let begin = Timestamp(begin.as_microsecond());
        let catalog = Catalog::in_tree().with_features(features.clone());
        let config = Config { timeline_memory: 64 << 20, ..Config::default_with(&catalog).unwrap() };
        let scheduler = Scheduler::new(scheduler_options(&config)).unwrap();
        let log = Log::default();
        let now = Now { wall: begin, monotonic: Duration::ZERO };
        let recorded = Recorded::new(now, scheduler, config.to_yaml_without_keys(), log.clone());
        let no_annotations: [&str; 0] = [];
        Self {
            recorded,
            log,
            now: Duration::ZERO,
            begin,
            due: BTreeMap::new(),
            objects: BTreeMap::new(),
            pods: PodKind::new(no_annotations).features(features),
            nodes: NodeKind::new(no_annotations),
            changes: 0,
        }
    }

    /// Plans a change.
    pub(super) fn at(&mut self, time: Duration, change: Change) {
        self.changes += 1;
        self.due.insert((time, self.changes), change);
    }

    /// Lets everything happen until this time, and writes the record.
    pub(super) fn record(mut self, until: Duration, file: &Path) {
        self.run(until);
        assert_eq!(self.recorded.scheduler().inconsistencies(), [] as [String; 0]);
        std::fs::write(file, &*self.log.0.lock().unwrap()).unwrap();
    }

    fn run(&mut self, until: Duration) {
        loop {
            let next = self.due.keys().next().copied();
            if let Some(due) = next.filter(|(at, _)| *at <= self.now) {
                let change = self.due.remove(&due).unwrap();
                self.make(change);
            } else if self.recorded.scheduler().has_work() {
                let effects = self.recorded.schedule_one(self.time(), &mut NoCalls);
                self.carry_out(effects);
                self.now += CYCLE;
            } else {
                let deadline = self.now + self.recorded.scheduler().next_deadline(self.time()).max(TICK);
                let next = next.map_or(deadline, |(at, _)| at.min(deadline));
                if next > until {
                    return;
                }
                self.now = next;
                if next == deadline {
                    self.handle(Input::Tick);
                }
            }
        }
    }

    fn time(&self) -> Now {
        Now { wall: self.begin.plus(self.now), monotonic: self.now }
    }

    fn make(&mut self, change: Change) {
        match change {
            Change::Create(object) => self.store(&key(&object), Some(object)),
            Change::Patch(key, patch) => {
                let mut object = self.objects[&key].clone();
                merge(&mut object, &patch);
                self.store(&key, Some(object));
            }
            Change::Delete(key) => self.store(&key, None),
            Change::Answer(input) => self.handle(*input),
        }
    }

    fn store(&mut self, key: &str, mut new: Option<Value>) {
        self.changes += 1;
        let old = self.objects.remove(key);
        if let Some(new) = &mut new {
            new["metadata"]["resourceVersion"] = self.changes.to_string().into();
            if new["metadata"]["uid"].is_null() {
                new["metadata"]["uid"] = format!("uid-{key}").into();
                new["metadata"]["creationTimestamp"] = self.time().wall.to_rfc3339().into();
            }
            self.objects.insert(key.to_owned(), new.clone());
        }
        for input in self.inputs(old.as_ref(), new.as_ref()) {
            self.handle(input);
        }
    }

    /// What informers tell of a change.
    fn inputs(&self, old: Option<&Value>, new: Option<&Value>) -> Vec<Input> {
        let object = old.or(new).unwrap();
        let [version, kind] = ["apiVersion", "kind"].map(|field| object[field].as_str().unwrap());
        match kind {
            "Pod" => {
                let pod = |pod: &Value| Arc::new(self.pods.decode(pod.to_string().as_bytes()).unwrap());
                let (old, new) = (old.map(pod), new.map(pod));
                let assigned = notification(
                    old.clone().filter(|pod| pod.is_assigned()),
                    new.clone().filter(|pod| pod.is_assigned()),
                );
                let queued =
                    notification(old.filter(|pod| !pod.is_assigned()), new.filter(|pod| !pod.is_assigned()));
                assigned.map(Input::AssignedPod).into_iter().chain(queued.map(Input::QueuedPod)).collect()
            }
            "Node" => {
                let node = |node: &Value| Arc::new(self.nodes.decode(node.to_string().as_bytes()).unwrap());
                notification(old.map(node), new.map(node)).map(Input::Node).into_iter().collect()
            }
            _ => {
                let kind = ObjectKind::of_type(version, kind).unwrap();
                let object = |object: &Value| Arc::new(kind.decode(object.to_string().as_bytes()).unwrap());
                notification(old.map(object), new.map(object)).map(Input::Object).into_iter().collect()
            }
        }
    }

    fn handle(&mut self, input: Input) {
        let effects = self.recorded.handle(self.time(), input);
        self.carry_out(effects);
    }

    fn carry_out(&mut self, effects: Vec<Effect>) {
        let answered = self.now + ANSWER;
        for effect in effects {
            match effect {
                Effect::StartPreBind { pod, .. } => {
                    let input = Input::PreBound { pod: pod.uid.clone(), status: Status::success() };
                    self.at(answered, Change::Answer(Box::new(input)));
                }
                Effect::Bind { pod, node, .. } => {
                    let outcome = BindOutcome::Bound;
                    let input = Input::Bound { pod: pod.uid.clone(), by: "DefaultBinder".into(), outcome };
                    self.at(answered, Change::Answer(Box::new(input)));
                    let bound =
                        Change::Patch(format!("Pod/{}", pod.key()), json!({ "spec": { "nodeName": node } }));
                    self.at(answered + TICK, bound);
                }
                Effect::PatchPodStatus(patch) => {
                    let Some(condition) = patch.condition else { continue };
                    let condition = json!({
                        "type": "PodScheduled", "status": condition.status, "reason": condition.reason,
                        "message": condition.message, "observedGeneration": condition.observed_generation,
                        "lastTransitionTime": condition.last_transition.map(Timestamp::to_rfc3339),
                    });
                    let status = json!({ "status": { "conditions": [condition] } });
                    self.at(answered, Change::Patch(format!("Pod/{}", patch.pod), status));
                }
                Effect::RecordEvent(_) | Effect::PatchGroupStatus(_) => {}
                effect => panic!("nothing carries out {effect:?}"),
            }
        }
    }
}

fn notification<T>(old: Option<Arc<T>>, new: Option<Arc<T>>) -> Option<Notification<T>> {
    match (old, new) {
        (None, None) => None,
        (None, Some(new)) => Some(Notification::Added(new)),
        (Some(old), None) => Some(Notification::Deleted(old)),
        (Some(old), Some(new)) => Some(Notification::Updated { old, new }),
    }
}

/// A JSON merge patch.
fn merge(target: &mut Value, patch: &Value) {
    let Some(fields) = patch.as_object() else {
        *target = patch.clone();
        return;
    };
    for (name, value) in fields {
        if value.is_null() {
            target.as_object_mut().unwrap().remove(name);
        } else {
            merge(&mut target[name], value);
        }
    }
}
