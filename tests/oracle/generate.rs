//! Generates histories. A seed determines a history.
//!
//! The generator runs supercargo as it goes. Its changes apply to the objects as the scheduler has
//! written them, and it knows which changes are worthwhile.

mod claims;
mod configuration;
mod devices;
mod mix;
mod nodes;
mod pods;
mod resizes;
mod resource_claims;
mod steps;
mod storage;
mod topology;
mod workloads;

use anyhow::Result;
use serde_json::{Value, json};
use supercargo_framework::Feature;

use self::mix::Kind;
pub(super) use self::mix::Mix;
use super::answer::Answer;
use super::history::{History, Reference, Step};
use super::subject::Subject;
use crate::support::Random;

/// A history with supercargo's answers.
pub(super) struct Played {
    pub(super) history: History,
    pub(super) answers: Vec<Answer>,
    /// The reason why supercargo stopped, if it did.
    pub(super) stopped: Option<String>,
}

/// The history of a seed, with this many steps after the first objects.
pub(super) fn history(seed: u64, steps: usize, adjustments: &str) -> Result<Played> {
    let mut random = Random::new(seed);
    let mut mix = Mix::random(&mut random);
    mix.adjust(adjustments)?;
    if mix.of(Kind::Extenders) > 0 {
        // Upstream visits the nodes that a pod names in random order, and extenders keep the order.
        // After a failed search for devices, ours begins at another node, too.
        mix.adjust("matchFields=0,devices=0,extendedResources=0")?;
    }
    if mix.of(Kind::ExtendedResources) > 0 {
        // Upstream deletes the claim of a failed binding before its node is free for others.
        mix.adjust("deviceConditions=0")?;
    }
    let config = configuration::random(&mut random, &mix);
    let mut feature_gates = configuration::feature_gates(&mut random, mix.of(Kind::FeatureGates));
    if config.to_string().contains("bindingTimeout") {
        // The argument needs the feature.
        feature_gates.remove(Feature::DRADeviceBindingConditions.name());
    }
    if feature_gates.get(Feature::PodLevelResources.name()) == Some(&false) {
        // The API server drops these resources then.
        mix.adjust("podLevel=0")?;
    }
    let about = format!("Seed {seed}.");
    let profiles = config["profiles"].as_array().map_or(0, Vec::len);
    let history = History { about, config, feature_gates, steps: Vec::new() };
    let mut subject = Subject::new(&history)?;
    let played = Played { history, answers: Vec::new(), stopped: None };
    let templates = Vec::new();
    let mut generator = Generator {
        random,
        mix,
        profiles,
        subject: &mut subject,
        played,
        templates,
        made: 0,
        version: 0,
        nodes: 0,
        zones_stay: false,
    };
    if let Err(why) = generator.run(steps) {
        generator.played.stopped = Some(format!("{why:#}"));
    }
    Ok(generator.played)
}

/// A history under construction.
struct Generator<'s> {
    random: Random,
    mix: Mix,
    /// The number of profiles.
    profiles: usize,
    subject: &'s mut Subject,
    played: Played,
    templates: Vec<Value>,
    /// The number of created objects.
    made: u32,
    version: u32,
    nodes: usize,
    /// Whether nodes keep their zone; see "What histories avoid".
    zones_stay: bool,
}

impl Generator<'_> {
    fn run(&mut self, steps: usize) -> Result<()> {
        self.prepare()?;
        let end = self.played.history.steps.len() + steps;
        while self.played.history.steps.len() < end {
            self.act()?;
        }
        Ok(())
    }

    /// Plays a step.
    fn take(&mut self, step: Step) -> Result<()> {
        self.played.history.steps.push(step);
        let step = self.played.history.steps.last().expect("it has just been pushed");
        self.played.answers.push(self.subject.step(step)?);
        Ok(())
    }

    fn apply(&mut self, object: Value) -> Result<()> {
        self.take(Step::Apply(object))
    }

    /// Changes an object, if it exists.
    fn change(&mut self, reference: &Reference, change: impl FnOnce(&mut Self, &mut Value)) -> Result<()> {
        let Some(mut object) = self.subject.object(reference) else { return Ok(()) };
        change(self, &mut object);
        object["metadata"]["resourceVersion"] = json!(self.version_after(&object));
        self.apply(object)
    }

    /// Whether a non-default feature is on.
    fn is_on(&self, feature: Feature) -> bool {
        self.played.history.feature_gates.get(feature.name()) == Some(&true)
    }

    /// Whether the next object gets this feature.
    fn has(&mut self, kind: Kind) -> bool {
        self.random.chance(self.mix.of(kind))
    }

    /// The metadata of a new object.
    fn metadata(&mut self, namespace: &str, name: &str) -> Value {
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
    fn version_after(&mut self, object: &Value) -> String {
        self.version += 1;
        let current = object["metadata"]["resourceVersion"].as_str().and_then(|version| version.parse().ok());
        let current: u64 = current.unwrap_or(0);
        match object["kind"].as_str() {
            _ if current < 1_000_000 => self.version.to_string(),
            Some("PersistentVolume" | "PersistentVolumeClaim" | "ResourceClaim") => {
                (current + 1).min(self.subject.next_version()).to_string()
            }
            _ => (9_000_000 + self.version).to_string(),
        }
    }

    /// The name of a node that exists, with few exceptions.
    fn some_node_name(&mut self) -> String {
        let nodes = self.subject.objects("Node");
        if nodes.is_empty() || self.random.chance(5) {
            return "nowhere".to_owned();
        }
        nodes[self.random.below(nodes.len())]["metadata"]["name"].as_str().unwrap_or_default().to_owned()
    }
}

/// A time of day that is unique for this number.
fn moment(day: &str, number: u32) -> String {
    let (hours, minutes, seconds) = (number / 3600 % 24, number / 60 % 60, number % 60);
    format!("{day}{hours:02}:{minutes:02}:{seconds:02}Z")
}
