//! Plugins that implement the given extension points and do nothing.

use std::any::Any;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;
use supercargo_framework::binding::{BindOutcome, BindingContext, BoxFuture};
use supercargo_framework::plugin::{
    BindPlugin, ExtensionPoints, FilterPlugin, NodeStatuses, Nomination, Permit, PermitPlugin,
    PostBindPlugin, PostFilterPlugin, PreBindPlugin, PreEnqueuePlugin, PreFilter, PreFilterPlugin, PreFlight,
    PreScorePlugin, QueueSortPlugin, Queued, ReservePlugin, RunFilters, ScorePlugin,
};
use supercargo_framework::registry::{ArgsError, DefaultPlugin, Registry};
use supercargo_framework::{Context, CycleState, NodeIndex, NodeInfo, Plugin, PodInfo, QueueContext, Status};

/// The supported default plugins of kube-scheduler, in its order.
pub(super) const DEFAULTS: &[DefaultPlugin] = &[
    default("SchedulingGates", 0),
    default("PrioritySort", 0),
    default("NodeUnschedulable", 0),
    default("NodeName", 0),
    default("TaintToleration", 3),
    default("NodeAffinity", 2),
    default("NodePorts", 0),
    default("NodeResourcesFit", 1),
    default("NodeResourcesBalancedAllocation", 1),
    default("ImageLocality", 1),
    default("DefaultBinder", 0),
];

const fn default(name: &'static str, weight: i32) -> DefaultPlugin {
    DefaultPlugin::new(name, weight)
}

/// The default plugins, and some more: `Everywhere` implements all points, `OtherSort` sorts too.
pub(super) fn registry() -> Registry {
    let mut registry = Registry::new();
    macro_rules! register {
        ($($name:literal $args:ident $points:literal,)*) => {
            $(registry.register($name, |args, _| {
                $args($name, args)?;
                Ok(Arc::new(Fake { name: $name, points: $points }))
            });)*
        };
    }
    register! {
        "SchedulingGates" no_args "preEnqueue",
        "PrioritySort" no_args "queueSort",
        "NodeUnschedulable" no_args "filter",
        "NodeName" no_args "filter",
        "TaintToleration" no_args "filter preScore score",
        "NodeAffinity" any_args "preFilter filter preScore score",
        "NodePorts" no_args "preFilter filter",
        "NodeResourcesFit" fit_args "preFilter filter preScore score",
        "NodeResourcesBalancedAllocation" any_args "preScore score",
        "ImageLocality" no_args "score",
        "DefaultBinder" no_args "bind",
        "Everywhere" any_args "preEnqueue preFilter filter postFilter preScore score reserve permit preBind bind postBind",
        "Picky" required_args "filter",
        "OtherSort" any_args "queueSort",
    }
    registry
}

fn no_args(name: &str, args: &Value) -> Result<(), ArgsError> {
    if args.as_object().is_some_and(|args| !args.is_empty()) {
        return Err(ArgsError::new("", format!("{name} takes no arguments; remove them")));
    }
    Ok(())
}

#[allow(clippy::unnecessary_wraps)] // what `registry` wants
fn any_args(_: &str, _: &Value) -> Result<(), ArgsError> {
    Ok(())
}

fn required_args(_: &str, args: &Value) -> Result<(), ArgsError> {
    let found = args.get("needed").is_some();
    found.then_some(()).ok_or_else(|| ArgsError::new("needed", "is missing"))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct FitArgs {
    #[serde(default)]
    #[allow(dead_code)] // only its type matters
    ignored_resources: Vec<String>,
    scoring_strategy: Option<Strategy>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Strategy {
    #[serde(default, rename = "type")]
    _type: Option<String>,
    resources: Vec<Weighted>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Weighted {
    #[allow(dead_code)] // only its type matters
    name: String,
    weight: i64,
}

fn fit_args(_: &str, args: &Value) -> Result<(), ArgsError> {
    let args: FitArgs = serde_path_to_error::deserialize(args)
        .map_err(|error| ArgsError::new(error.path().to_string(), error.inner().to_string()))?;
    for (index, resource) in args.scoring_strategy.iter().flat_map(|strategy| &strategy.resources).enumerate()
    {
        if !(1..=100).contains(&resource.weight) {
            let path = format!("scoringStrategy.resources[{index}].weight");
            return Err(ArgsError::new(path, "must be from 1 to 100"));
        }
    }
    Ok(())
}

#[derive(Debug)]
struct Fake {
    name: &'static str,
    points: &'static str,
}

impl Plugin for Fake {
    fn name(&self) -> &'static str {
        self.name
    }

    fn extension_points(self: Arc<Self>) -> ExtensionPoints {
        self.points.split(' ').fold(ExtensionPoints::new(), |points, name| match name {
            "preEnqueue" => points.pre_enqueue(&self),
            "queueSort" => points.queue_sort(&self),
            "preFilter" => points.pre_filter(&self),
            "filter" => points.filter(&self),
            "postFilter" => points.post_filter(&self),
            "preScore" => points.pre_score(&self),
            "score" => points.score(&self),
            "reserve" => points.reserve(&self),
            "permit" => points.permit(&self),
            "preBind" => points.pre_bind(&self),
            "bind" => points.bind(&self),
            "postBind" => points.post_bind(&self),
            other => unreachable!("no point {other}"),
        })
    }
}

impl PreEnqueuePlugin for Fake {
    fn pre_enqueue(&self, _: &QueueContext<'_>, _: &PodInfo) -> Status {
        Status::success()
    }
}

impl QueueSortPlugin for Fake {
    fn less(&self, _: Queued<'_>, _: Queued<'_>) -> bool {
        false
    }
}

impl PreFilterPlugin for Fake {
    fn pre_filter(&self, _: &Context<'_>, _: &mut CycleState, _: &PodInfo) -> PreFilter {
        PreFilter::Skip
    }
}

impl FilterPlugin for Fake {
    fn filter(&self, _: &Context<'_>, _: &CycleState, _: &PodInfo, _: &NodeInfo) -> Status {
        Status::success()
    }
}

impl PostFilterPlugin for Fake {
    fn post_filter(
        &self,
        _: &Context<'_>,
        _: &CycleState,
        _: &Arc<PodInfo>,
        _: &NodeStatuses,
        _: &dyn RunFilters,
    ) -> (Nomination, Status) {
        (Nomination::Keep, Status::success())
    }
}

impl PreScorePlugin for Fake {
    fn pre_score(&self, _: &Context<'_>, _: &mut CycleState, _: &PodInfo, _: &[NodeIndex]) -> Status {
        Status::success()
    }
}

impl ScorePlugin for Fake {
    fn score(&self, _: &Context<'_>, _: &CycleState, _: &PodInfo, _: &NodeInfo) -> Result<i64, Status> {
        Ok(0)
    }
}

impl ReservePlugin for Fake {
    fn reserve(&self, _: &Context<'_>, _: &mut CycleState, _: &PodInfo, _: &Arc<str>) -> Status {
        Status::success()
    }

    fn unreserve(&self, _: &Context<'_>, _: &mut CycleState, _: &PodInfo, _: &Arc<str>) {}
}

impl PermitPlugin for Fake {
    fn permit(&self, _: &Context<'_>, _: &mut CycleState, _: &PodInfo, _: &Arc<str>) -> Permit {
        Permit::Allow
    }
}

impl PreBindPlugin for Fake {
    fn pre_flight(&self, _: &Context<'_>, _: &CycleState, _: &PodInfo, _: &Arc<str>) -> PreFlight {
        PreFlight::Skip { allow_parallel: true }
    }

    fn pre_bind(&self, _: BindingContext, _: Box<dyn Any + Send>) -> BoxFuture<Status> {
        Box::pin(async { Status::success() })
    }
}

impl BindPlugin for Fake {
    fn bind(&self, _: BindingContext, _: Arc<PodInfo>, _: Arc<str>) -> BoxFuture<BindOutcome> {
        unreachable!("nothing is bound here")
    }
}

impl PostBindPlugin for Fake {
    fn post_bind(&self, _: &Context<'_>, _: &mut CycleState, _: &PodInfo, _: &Arc<str>) {}
}
