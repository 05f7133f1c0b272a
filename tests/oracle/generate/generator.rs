//! What all changes need: the state of a history under construction, and ways to add a step.

use anyhow::Result;
use serde_json::{Value, json};
use supercargo_framework::Feature;

use super::group_plan::Plan;
use super::mix::{Kind, Mix};
use crate::oracle::answer::Answer;
use crate::oracle::history::{History, Reference, Step};
use crate::oracle::subject::Subject;
use crate::support::Random;

/// A history under construction.
pub(super) struct Generator<'s> {
    pub(super) random: Random,
    pub(super) mix: Mix,
    /// The number of profiles.
    pub(super) profiles: usize,
    pub(super) subject: &'s mut Subject,
    pub(super) history: History,
    /// supercargo's answers to the steps so far.
    pub(super) answers: Vec<Answer>,
    pub(super) templates: Vec<Value>,
    /// The groups that get pods.
    pub(super) plans: Vec<Plan>,
    /// The number of created objects.
    pub(super) made: u32,
    pub(super) version: u32,
    pub(super) nodes: usize,
    /// Whether nodes keep their zone; see "What histories avoid".
    pub(super) zones_stay: bool,
}

impl Generator<'_> {
    /// Plays a step.
    pub(super) fn take(&mut self, step: Step) -> Result<()> {
        self.history.steps.push(step);
        let step = self.history.steps.last().expect("it has just been pushed");
        self.answers.push(self.subject.step(step)?);
        Ok(())
    }

    pub(super) fn apply(&mut self, object: Value) -> Result<()> {
        self.take(Step::Apply(object))
    }

    /// Changes an object, if it exists.
    pub(super) fn change(
        &mut self,
        reference: &Reference,
        change: impl FnOnce(&mut Self, &mut Value),
    ) -> Result<()> {
        let Some(mut object) = self.subject.object(reference) else { return Ok(()) };
        change(self, &mut object);
        object["metadata"]["resourceVersion"] = json!(self.version_after(&object));
        self.apply(object)
    }

    /// Whether a non-default feature is on.
    pub(super) fn is_on(&self, feature: Feature) -> bool {
        self.history.feature_gates.get(feature.name()) == Some(&true)
    }

    /// Whether the next object gets this feature.
    pub(super) fn has(&mut self, kind: Kind) -> bool {
        self.random.chance(self.mix.of(kind))
    }

    /// The metadata of a new object.
    pub(super) fn metadata(&mut self, namespace: &str, name: &str) -> Value {
        self.made += 1;
        self.version += 1;
        let mut metadata = json!({
            "name": name,
            "uid": format!("uid-{}", self.made),
            "resourceVersion": self.version.to_string(),
            "creationTimestamp": moment("1999-12-31T", self.made),
        });
        if !namespace.is_empty() {
            metadata["namespace"] = json!(namespace);
        }
        metadata
    }

    /// A version for a change of an object. An object that the scheduler has written gets the
    /// scheduler's next version, or, where versions are not compared, its own.
    pub(super) fn version_after(&mut self, object: &Value) -> String {
        self.version += 1;
        let current = object["metadata"]["resourceVersion"].as_str().and_then(|version| version.parse().ok());
        let current: u64 = current.unwrap_or(0);
        match object["kind"].as_str() {
            _ if current < 1_000_000 => self.version.to_string(),
            Some("PersistentVolume" | "PersistentVolumeClaim" | "ResourceClaim") => {
                self.subject.next_version().to_string()
            }
            _ => (9_000_000 + self.version).to_string(),
        }
    }

    /// The name of a node that exists, with few exceptions.
    pub(super) fn some_node_name(&mut self) -> String {
        let nodes = self.subject.objects("Node");
        if nodes.is_empty() || self.random.chance(5) {
            return "nowhere".to_owned();
        }
        nodes[self.random.below(nodes.len())]["metadata"]["name"].as_str().unwrap_or_default().to_owned()
    }

    /// Acts on a random object of a kind, if there is one.
    pub(super) fn with_some(
        &mut self,
        kind: &str,
        act: impl FnOnce(&mut Self, Reference) -> Result<()>,
    ) -> Result<()> {
        let objects = self.subject.objects(kind);
        if objects.is_empty() {
            return Ok(());
        }
        let reference = Reference::of(&objects[self.random.below(objects.len())]);
        act(self, reference)
    }

    /// A pod that terminates during its binding is one of the differences on purpose.
    pub(super) fn terminates_before_binding(&self, pod: &Reference) -> bool {
        self.subject.object(pod).is_some_and(|pod| {
            pod["metadata"]["deletionTimestamp"].is_string() && pod["spec"]["nodeName"].is_null()
        })
    }
}

/// A time of day that is unique for this number.
pub(super) fn moment(day: &str, number: u32) -> String {
    let (hours, minutes, seconds) = (number / 3600 % 24, number / 60 % 60, number % 60);
    format!("{day}{hours:02}:{minutes:02}:{seconds:02}Z")
}
