//! Finds volumes for a pod's claims, filters nodes that cannot access them, and binds them once a
//! node is chosen.
//!
//! A claim with delayed binding is bound to an existing volume, or a volume is provisioned for it
//! on the pod's node. Reserve assumes the decision, so that the next cycle does not assign the same
//! volume. PreBind writes it.

mod args;
mod available;
mod change;
mod claims;
mod delayed;
mod find;
mod hint;
mod kinds;
mod pre_bind;
mod reach;
mod score;
#[cfg(test)]
mod tests;

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use supercargo_framework::binding::{BindingContext, BoxFuture};
use supercargo_framework::caching::{Caching, Stateless};
use supercargo_framework::event::EventRegistration;
use supercargo_framework::plugin::{
    EnqueueExtensions, ExtensionPoints, FilterPlugin, PreBindPlugin, PreFilter, PreFilterPlugin, PreFlight,
    PreScorePlugin, ReservePlugin, ScorePlugin, SignPlugin,
};
use supercargo_framework::registry::ArgsError;
use supercargo_framework::shape::Shape;
use supercargo_framework::signature::{Signer, Unsignable};
use supercargo_framework::{
    Command, Context, CycleState, Feature, Features, NodeIndex, NodeInfo, Plugin, PodInfo, Status,
    VolumeSource,
};

use self::change::Changes;
use self::claims::Claims;
use crate::pod_volumes::has_claims;

/// The plugin's name.
pub const NAME: &str = "VolumeBinding";

struct VolumeBinding {
    /// How long PreBind waits.
    bind_timeout: Duration,
    /// The shape of the storage score; `None` if scoring is disabled.
    shape: Option<Shape>,
    /// Whether volume attributes classes are enabled.
    with_attributes_classes: bool,
}

/// Builds the plugin.
pub(crate) fn from_args(args: &Value, features: &Features) -> Result<Arc<dyn Plugin>, ArgsError> {
    let (bind_timeout, shape) = args::parse(args, features)?;
    let with_attributes_classes = features.enabled(Feature::VolumeAttributesClass);
    Ok(Arc::new(VolumeBinding { bind_timeout, shape, with_attributes_classes }))
}

/// The state that PreFilter writes.
#[derive(Clone)]
struct Found(Arc<Claims>);

/// The decision of Reserve, for PreBind and Unreserve.
#[derive(Clone)]
struct Reserved(Arc<Changes>);

fn claims(state: &CycleState) -> Option<&Claims> {
    state.read::<Found>().map(|found| &*found.0)
}

impl Plugin for VolumeBinding {
    fn name(&self) -> &'static str {
        NAME
    }

    fn extension_points(self: Arc<Self>) -> ExtensionPoints {
        ExtensionPoints::new()
            .pre_filter(&self)
            .filter(&self)
            .pre_score(&self)
            .score(&self)
            .reserve(&self)
            .pre_bind(&self)
            .enqueue_extensions(&self)
            .sign(&self)
            .caching(&self)
            .incremental(&Arc::new(Stateless))
    }
}

impl PreFilterPlugin for VolumeBinding {
    fn pre_filter(&self, cx: &Context<'_>, state: &mut CycleState, pod: &PodInfo) -> PreFilter {
        match Claims::of(cx, pod, self.with_attributes_classes) {
            Ok(None) => PreFilter::Skip,
            Ok(Some(claims)) => {
                state.write(Found(Arc::new(claims)));
                PreFilter::AllNodes
            }
            Err(status) => PreFilter::Reject(status),
        }
    }
}

impl FilterPlugin for VolumeBinding {
    fn filter(&self, cx: &Context<'_>, state: &CycleState, _: &PodInfo, node: &NodeInfo) -> Status {
        match claims(state).map(|claims| claims.check(cx, node)) {
            Some(Err(status)) => status,
            Some(Ok(())) | None => Status::success(),
        }
    }
}

impl PreScorePlugin for VolumeBinding {
    /// Skips, unlike upstream's, if every node would score 0. So most pods with claims are scored
    /// without a look at each node's volumes.
    fn pre_score(&self, _: &Context<'_>, state: &mut CycleState, _: &PodInfo, _: &[NodeIndex]) -> Status {
        let can_score = self.shape.is_some() && claims(state).is_some_and(Claims::can_score);
        if can_score { Status::success() } else { Status::skip() }
    }
}

impl ScorePlugin for VolumeBinding {
    fn score(
        &self,
        cx: &Context<'_>,
        state: &CycleState,
        _: &PodInfo,
        node: &NodeInfo,
    ) -> Result<i64, Status> {
        let found = claims(state).and_then(|claims| claims.find(cx, node).ok());
        Ok(self.shape.as_ref().zip(found).map_or(0, |(shape, found)| score::score(shape, &found)))
    }
}

impl ReservePlugin for VolumeBinding {
    fn reserve(&self, cx: &Context<'_>, state: &mut CycleState, _: &PodInfo, node: &Arc<str>) -> Status {
        let Some(claims) = claims(state).filter(|claims| !claims.delayed.is_empty()) else {
            return Status::success();
        };
        let Some(info) = cx.nodes().get(node) else {
            return Status::error(format!("node {node:?} not found"));
        };
        // The objects have not changed since the node was filtered.
        let changes = match claims.find(cx, info) {
            Ok(found) => Changes::for_node(&found, node, cx.hash_seed()),
            Err(status) => return status,
        };
        for object in changes.assumed() {
            cx.command(Command::Assume(Arc::clone(object)));
        }
        state.write(Reserved(Arc::new(changes)));
        Status::success()
    }

    /// Restores assumed changes. What PreBind has already written appears with the informer's next
    /// update.
    fn unreserve(&self, cx: &Context<'_>, state: &mut CycleState, _: &PodInfo, _: &Arc<str>) {
        if let Some(Reserved(changes)) = state.read() {
            for object in changes.all() {
                cx.command(Command::Restore(Arc::clone(object)));
            }
        }
    }
}

impl PreBindPlugin for VolumeBinding {
    fn pre_flight(&self, _: &Context<'_>, state: &CycleState, pod: &PodInfo, node: &Arc<str>) -> PreFlight {
        if claims(state).is_none_or(|claims| claims.delayed.is_empty()) {
            return PreFlight::Skip { allow_parallel: true };
        }
        let Some(Reserved(changes)) = state.read() else {
            return PreFlight::Fail(Status::error(format!("no pod volume found for node {node:?}")));
        };
        let work = pre_bind::Work {
            pod: pod.key(),
            uid: pod.uid.clone(),
            node: Arc::clone(node),
            changes: Arc::clone(changes),
            timeout: self.bind_timeout,
        };
        PreFlight::Work { allow_parallel: true, work: Box::new(work) }
    }

    fn pre_bind(&self, cx: BindingContext, work: Box<dyn Any + Send>) -> BoxFuture<Status> {
        Box::pin(async move {
            let Ok(work) = work.downcast::<pre_bind::Work>() else {
                return Status::error("this is another plugin's work");
            };
            pre_bind::run(cx, *work).await.map_or_else(Status::error, |()| Status::success())
        })
    }
}

impl EnqueueExtensions for VolumeBinding {
    fn events_to_register(self: Arc<Self>) -> Vec<EventRegistration> {
        hint::registrations()
    }
}

impl SignPlugin for VolumeBinding {
    /// Unlike upstream, signs the namespace of claims, and does not sign pods with ephemeral
    /// volumes, whose claims are named after the pod: equal signatures must give equal answers.
    fn sign(&self, _: &Context<'_>, pod: &PodInfo, signer: &mut Signer) -> Result<(), Unsignable> {
        let mut names = Vec::new();
        for volume in &pod.spec.volumes {
            match &volume.source {
                VolumeSource::Ephemeral => return Err(Unsignable),
                VolumeSource::Claim(name) => names.push(name),
                _ => {}
            }
        }
        signer.write(&names);
        if !names.is_empty() {
            signer.write(&pod.namespace);
        }
        Ok(())
    }
}

impl Caching for VolumeBinding {
    fn filter_never_fails(&self, _: &Context<'_>, state: &CycleState, _: &PodInfo) -> bool {
        claims(state).is_none_or(|claims| !claims.can_fail())
    }

    fn pre_score_depends_on_nodes(&self) -> bool {
        false
    }

    fn stands_alone(&self, pod: &PodInfo) -> bool {
        has_claims(pod)
    }
}
