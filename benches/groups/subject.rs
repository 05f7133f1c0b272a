//! supercargo with the groups.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
use serde_json::Value;
use supercargo_benches::Bench;
use supercargo_codec::{NodeKind, ObjectKind, PodKind};
use supercargo_config::{Catalog, Config};
use supercargo_framework::objects::resources;
use supercargo_framework::plugin::Nomination;
use supercargo_framework::{Feature, Now, Timestamp};
use supercargo_owner::options::scheduler_options;
use supercargo_scheduler::{Effect, Input, NoCalls, Notification, Options, Scheduler};

use crate::cases::{Case, Policy};

/// A scheduler with the feature gates that groups need.
pub(crate) struct Subject {
    bench: Bench,
    pods: PodKind,
}

impl Subject {
    /// With the nodes, bound pods and groups of a case.
    pub(crate) fn new(case: Case, policy: Policy, nodes: usize, plain: bool) -> Result<Self> {
        let catalog = Catalog::in_tree();
        let features = catalog.features.clone();
        let features = features
            .with(Feature::GenericWorkload, true)
            .with(Feature::TopologyAwareWorkloadScheduling, true);
        let config = Config::default_with(&catalog.with_features(features))
            .map_err(|errors| anyhow!("the default configuration is wrong: {errors}"))?;
        let scheduler = Scheduler::new(Options { plain, ..scheduler_options(&config) })?;
        let now = Now { wall: Timestamp(1_767_225_600_000_000), monotonic: Duration::ZERO };
        let no_annotations: [&str; 0] = [];
        let mut subject = Self { bench: Bench { scheduler, now }, pods: PodKind::new(no_annotations) };
        let kind = ObjectKind::of(&resources::POD_GROUP).context("groups are decoded")?;
        for group in case.groups(policy) {
            let group = Arc::new(kind.decode(group.to_string().as_bytes())?);
            subject.bench.handle(Input::Object(Notification::Added(group)));
        }
        let kind = NodeKind::new(no_annotations);
        for node in Case::nodes(nodes) {
            let node = Arc::new(kind.decode(node.to_string().as_bytes())?);
            subject.bench.handle(Input::Node(Notification::Added(node)));
        }
        for pod in case.bound(nodes) {
            let pod = Arc::new(subject.pods.decode(pod.to_string().as_bytes())?);
            subject.bench.handle(Input::AssignedPod(Notification::Added(pod)));
        }
        Ok(subject)
    }

    fn enqueue(&mut self, pods: impl Iterator<Item = Value>) -> Result<()> {
        for pod in pods {
            let pod = Arc::new(self.pods.decode(pod.to_string().as_bytes())?);
            self.bench.handle(Input::QueuedPod(Notification::Added(pod)));
        }
        Ok(())
    }

    /// The time of one attempt of a group, and how many of its pods are bound, or are nominated for
    /// a node.
    pub(crate) fn schedule_group(&mut self, pods: impl Iterator<Item = Value>) -> Result<(Duration, usize)> {
        self.enqueue(pods)?;
        let (took, effects) = self.cycle()?;
        let (mut bound, mut nominated) = (0, 0);
        for effect in effects {
            match &effect {
                Effect::Bind { .. } => bound += 1,
                Effect::PatchPodStatus(patch) => {
                    nominated += usize::from(matches!(patch.nomination, Nomination::Override(Some(_))));
                }
                _ => {}
            }
            self.bench.carry_out(effect);
        }
        // Pods that are bound are nominated, too.
        Ok((took, if bound > 0 { bound } else { nominated }))
    }

    /// The time of the first attempts of pods without a group.
    pub(crate) fn schedule_alone(&mut self, pods: impl Iterator<Item = Value>) -> Result<Duration> {
        let pods: Vec<_> = pods.collect();
        let count = pods.len();
        self.enqueue(pods.into_iter())?;
        (0..count).map(|_| Ok(self.cycle()?.0)).sum()
    }

    fn cycle(&mut self) -> Result<(Duration, Vec<Effect>)> {
        let started = Instant::now();
        let any = self.bench.scheduler.schedule_one(self.bench.now, &mut NoCalls);
        let effects = self.bench.scheduler.take_effects();
        let took = started.elapsed();
        ensure!(any, "nothing is ready to be scheduled");
        Ok((took, effects))
    }
}
