//! Extension points after a node is chosen.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use crate::binding::{BindOutcome, BindingContext, BoxFuture};
use crate::context::Context;
use crate::cycle_state::CycleState;
use crate::pod::PodInfo;
use crate::status::Status;

/// Reserves resources for the pod on the chosen node.
///
/// ```
/// use std::sync::Arc;
/// use supercargo_framework::plugin::ReservePlugin;
/// use supercargo_framework::{Context, CycleState, PodInfo, Status};
///
/// /// Rejects pods for a node that is not `n1`, and reserves nothing.
/// struct OnlyFirst;
///
/// impl ReservePlugin for OnlyFirst {
///     fn reserve(&self, _: &Context<'_>, _: &mut CycleState, _: &PodInfo, node: &Arc<str>) -> Status {
///         if &**node == "n1" { Status::success() } else { Status::unschedulable("not n1") }
///     }
///     fn unreserve(&self, _: &Context<'_>, _: &mut CycleState, _: &PodInfo, _: &Arc<str>) {}
/// }
/// ```
pub trait ReservePlugin: Send + Sync + 'static {
    /// Reserves.
    fn reserve(&self, cx: &Context<'_>, state: &mut CycleState, pod: &PodInfo, node: &Arc<str>) -> Status;
    /// Releases. Must do nothing if nothing was reserved.
    fn unreserve(&self, cx: &Context<'_>, state: &mut CycleState, pod: &PodInfo, node: &Arc<str>);
}

/// The result of Permit.
#[derive(Debug)]
pub enum Permit {
    /// Proceed.
    Allow,
    /// Hold the pod until it is allowed or rejected, or until this time has passed.
    Wait(Duration),
    /// Reject the pod, or fail.
    Reject(Status),
}

/// Allows, delays or rejects the binding.
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use supercargo_framework::plugin::{Permit, PermitPlugin};
/// use supercargo_framework::{Context, CycleState, PodInfo};
///
/// struct WaitsForApproval;
///
/// impl PermitPlugin for WaitsForApproval {
///     fn permit(&self, _: &Context<'_>, _: &mut CycleState, pod: &PodInfo, _: &Arc<str>) -> Permit {
///         match pod.labels.get("needs-approval") {
///             Some(_) => Permit::Wait(Duration::from_secs(60)),
///             None => Permit::Allow,
///         }
///     }
/// }
/// ```
pub trait PermitPlugin: Send + Sync + 'static {
    /// The decision for this pod on this node.
    fn permit(&self, cx: &Context<'_>, state: &mut CycleState, pod: &PodInfo, node: &Arc<str>) -> Permit;
}

/// The result of PreBindPreFlight: whether PreBind has work to do.
pub enum PreFlight {
    /// It has none.
    Skip {
        /// Whether its neighbours may still run in parallel.
        allow_parallel: bool,
    },
    /// It has work.
    Work {
        /// Whether it may run in parallel with neighbours that also allow it.
        allow_parallel: bool,
        /// What PreBind needs, taken from the cycle's state.
        work: Box<dyn Any + Send>,
    },
    /// The binding fails.
    Fail(Status),
}

/// Prepares the binding, for example the pod's volumes or devices.
///
/// ```
/// use std::any::Any;
/// use std::sync::Arc;
/// use std::time::Duration;
/// use supercargo_framework::binding::{BindingContext, BoxFuture};
/// use supercargo_framework::plugin::{PreBindPlugin, PreFlight};
/// use supercargo_framework::{Context, CycleState, PodInfo, Status};
///
/// struct Delay;
///
/// impl PreBindPlugin for Delay {
///     fn pre_flight(&self, _: &Context<'_>, _: &CycleState, _: &PodInfo, _: &Arc<str>) -> PreFlight {
///         PreFlight::Work { allow_parallel: true, work: Box::new(Duration::from_secs(1)) }
///     }
///     fn pre_bind(&self, cx: BindingContext, work: Box<dyn Any + Send>) -> BoxFuture<Status> {
///         Box::pin(async move {
///             if let Ok(delay) = work.downcast::<Duration>() {
///                 cx.sleep(*delay).await;
///             }
///             Status::success()
///         })
///     }
/// }
/// ```
pub trait PreBindPlugin: Send + Sync + 'static {
    /// Whether there is work, and what it needs. Runs within the cycle.
    fn pre_flight(&self, cx: &Context<'_>, state: &CycleState, pod: &PodInfo, node: &Arc<str>) -> PreFlight;
    /// Does the work. Runs beside later cycles.
    fn pre_bind(&self, cx: BindingContext, work: Box<dyn Any + Send>) -> BoxFuture<Status>;
}

/// Binds the pod.
///
/// ```
/// use std::sync::Arc;
/// use supercargo_framework::PodInfo;
/// use supercargo_framework::binding::{BindOutcome, BindingContext, BoxFuture};
/// use supercargo_framework::plugin::BindPlugin;
///
/// /// Leaves every pod to the next Bind plugin.
/// struct Pass;
///
/// impl BindPlugin for Pass {
///     fn bind(&self, _: BindingContext, _: Arc<PodInfo>, _: Arc<str>) -> BoxFuture<BindOutcome> {
///         Box::pin(async { BindOutcome::Skip })
///     }
/// }
/// ```
pub trait BindPlugin: Send + Sync + 'static {
    /// Binds, or leaves the pod to the next plugin. Runs beside later cycles.
    fn bind(&self, cx: BindingContext, pod: Arc<PodInfo>, node: Arc<str>) -> BoxFuture<BindOutcome>;
}

/// Runs after the pod is bound.
///
/// ```
/// use std::sync::Arc;
/// use supercargo_framework::context::Command;
/// use supercargo_framework::plugin::PostBindPlugin;
/// use supercargo_framework::pod::PodKey;
/// use supercargo_framework::{Context, CycleState, PodInfo};
///
/// /// Retries the pod that a label names.
/// struct ActivatesNext;
///
/// impl PostBindPlugin for ActivatesNext {
///     fn post_bind(&self, cx: &Context<'_>, _: &mut CycleState, pod: &PodInfo, _: &Arc<str>) {
///         if let Some(name) = pod.labels.get("next") {
///             let next = PodKey { namespace: Arc::clone(&pod.namespace), name: Arc::clone(name) };
///             cx.command(Command::Activate(vec![next]));
///         }
///     }
/// }
/// ```
pub trait PostBindPlugin: Send + Sync + 'static {
    /// The pod is bound to the node.
    fn post_bind(&self, cx: &Context<'_>, state: &mut CycleState, pod: &PodInfo, node: &Arc<str>);
}
