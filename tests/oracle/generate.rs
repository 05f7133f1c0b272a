//! Generates histories. A seed determines a history.
//!
//! The generator runs supercargo as it goes. Its changes apply to the objects as the scheduler has
//! written them, and it knows which changes are worthwhile.

mod claims;
mod configuration;
mod devices;
mod generator;
mod group_plan;
mod groups;
mod mix;
mod names;
mod nodes;
mod pods;
mod resizes;
mod resource_claims;
mod steps;
mod storage;
mod topology;
mod workloads;

use anyhow::Result;
use supercargo_framework::Feature;

use self::generator::Generator;
use self::mix::Kind;
pub(super) use self::mix::Mix;
use super::answer::Answer;
use super::history::History;
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
        mix.adjust("matchFields=0")?;
    }
    if mix.of(Kind::ExtendedResources) > 0 {
        // Upstream deletes the claim of a failed binding before its node is free for others.
        mix.adjust("deviceConditions=0")?;
    }
    let config = configuration::random(&mut random, &mix);
    let mut feature_gates = configuration::feature_gates(&mut random, mix.of(Kind::FeatureGates));
    feature_gates.extend(configuration::group_gates(&mut random, &mix));
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
    let mut generator = Generator {
        random,
        mix,
        profiles,
        subject: &mut subject,
        history,
        answers: Vec::new(),
        templates: Vec::new(),
        plans: Vec::new(),
        made: 0,
        version: 0,
        nodes: 0,
        zones_stay: false,
    };
    let stopped = play(&mut generator, steps).err().map(|why| format!("{why:#}"));
    let Generator { history, answers, .. } = generator;
    Ok(Played { history, answers, stopped })
}

/// Plays the first objects, and then this many steps.
fn play(generator: &mut Generator<'_>, steps: usize) -> Result<()> {
    generator.prepare()?;
    let end = generator.history.steps.len() + steps;
    while generator.history.steps.len() < end {
        generator.act()?;
    }
    Ok(())
}
