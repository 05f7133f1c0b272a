//! A plugin whose answers are closures.

use std::sync::{Arc, Mutex};

use supercargo_framework::binding::{BindingContext, BoxFuture};
use supercargo_framework::event::EventRegistration;
use supercargo_framework::objects::Objects;
use supercargo_framework::plugin::{
    EnqueueExtensions, ExtensionPoints, FilterPlugin, NodeStatuses, Nomination, Permit, PermitPlugin,
    PostBindPlugin, PostFilterPlugin, PreBindPlugin, PreEnqueuePlugin, PreFilter, PreFilterExtensions,
    PreFilterPlugin, PreFlight, PreScorePlugin, QueueSortPlugin, Queued, ReservePlugin, RunFilters,
    ScorePlugin,
};
use supercargo_framework::{Context, CycleState, NodeIndex, NodeInfo, Plugin, PodInfo, QueueContext, Status};

/// Declares the closures of [`Fake`], with a builder method for each.
macro_rules! fake {
    ($($field:ident: ($($argument:ty),*) $(-> $answer:ty)?,)*) => {
        /// A plugin that implements the points it has a closure for.
        #[derive(Default)]
        pub(super) struct Fake {
            name: &'static str,
            $($field: Option<Box<dyn Fn($($argument),*) $(-> $answer)? + Send + Sync>>,)*
        }

        impl Fake {
            $(pub(super) fn $field(
                mut self,
                answer: impl Fn($($argument),*) $(-> $answer)? + Send + Sync + 'static,
            ) -> Self {
                self.$field = Some(Box::new(answer));
                self
            })*
        }
    };
}

fake! {
    pre_enqueue: (&PodInfo) -> Status,
    less: (&PodInfo, &PodInfo) -> bool,
    events: () -> Vec<EventRegistration>,
    pre_filter: (&PodInfo) -> PreFilter,
    pod_added: (&mut CycleState, &PodInfo) -> Status,
    filter: (&CycleState, &PodInfo, &NodeInfo) -> Status,
    post_filter: (&Context<'_>, &NodeStatuses) -> (Nomination, Status),
    pre_score: (&PodInfo) -> Status,
    score: (&NodeInfo) -> Result<i64, Status>,
    reserve: (&mut CycleState, &PodInfo) -> Status,
    unreserve: (&Context<'_>, &CycleState, &PodInfo),
    permit: (&Context<'_>, &PodInfo) -> Permit,
    pre_flight: (&PodInfo) -> PreFlight,
    post_bind: (&PodInfo),
    inconsistencies: () -> Vec<String>,
}

impl Fake {
    pub(super) fn new(name: &'static str) -> Self {
        Self { name, ..Self::default() }
    }

    pub(super) fn build(self) -> Arc<dyn Plugin> {
        Arc::new(self)
    }
}

/// What plugins did, in order.
#[derive(Clone, Default)]
pub(super) struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    pub(super) fn add(&self, line: impl Into<String>) {
        self.0.lock().unwrap().push(line.into());
    }

    pub(super) fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    pub(super) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

impl Plugin for Fake {
    fn name(&self) -> &'static str {
        self.name
    }

    fn extension_points(self: Arc<Self>) -> ExtensionPoints {
        let mut points = ExtensionPoints::new();
        if self.pre_enqueue.is_some() {
            points = points.pre_enqueue(&self);
        }
        if self.less.is_some() {
            points = points.queue_sort(&self);
        }
        if self.events.is_some() {
            points = points.enqueue_extensions(&self);
        }
        if self.pre_filter.is_some() {
            points = points.pre_filter(&self);
        }
        if self.filter.is_some() {
            points = points.filter(&self);
        }
        if self.post_filter.is_some() {
            points = points.post_filter(&self);
        }
        if self.pre_score.is_some() {
            points = points.pre_score(&self);
        }
        if self.score.is_some() {
            points = points.score(&self);
        }
        if self.reserve.is_some() || self.unreserve.is_some() {
            points = points.reserve(&self);
        }
        if self.permit.is_some() {
            points = points.permit(&self);
        }
        if self.pre_flight.is_some() {
            points = points.pre_bind(&self);
        }
        if self.post_bind.is_some() {
            points = points.post_bind(&self);
        }
        points
    }

    fn inconsistencies(&self, _: &Objects) -> Vec<String> {
        self.inconsistencies.as_ref().map_or_else(Vec::new, |answer| answer())
    }
}

impl PreEnqueuePlugin for Fake {
    fn pre_enqueue(&self, _: &QueueContext<'_>, pod: &PodInfo) -> Status {
        self.pre_enqueue.as_ref().map_or(Status::success(), |answer| answer(pod))
    }
}

impl QueueSortPlugin for Fake {
    fn less(&self, a: Queued<'_>, b: Queued<'_>) -> bool {
        self.less.as_ref().is_some_and(|answer| answer(a.pod, b.pod))
    }
}

impl EnqueueExtensions for Fake {
    fn events_to_register(self: Arc<Self>) -> Vec<EventRegistration> {
        self.events.as_ref().map_or_else(Vec::new, |answer| answer())
    }
}

impl PreFilterPlugin for Fake {
    fn pre_filter(&self, _cx: &Context<'_>, _state: &mut CycleState, pod: &PodInfo) -> PreFilter {
        self.pre_filter.as_ref().map_or(PreFilter::AllNodes, |answer| answer(pod))
    }

    fn extensions(&self) -> Option<&dyn PreFilterExtensions> {
        self.pod_added.as_ref().map(|_| self as _)
    }
}

impl PreFilterExtensions for Fake {
    fn add_pod(&self, state: &mut CycleState, _: &PodInfo, added: &PodInfo, _: &NodeInfo) -> Status {
        self.pod_added.as_ref().map_or(Status::success(), |answer| answer(state, added))
    }

    fn remove_pod(&self, _: &mut CycleState, _: &PodInfo, _: &PodInfo, _: &NodeInfo) -> Status {
        Status::success()
    }
}

impl FilterPlugin for Fake {
    fn filter(&self, _cx: &Context<'_>, state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Status {
        self.filter.as_ref().map_or(Status::success(), |answer| answer(state, pod, node))
    }
}

impl PostFilterPlugin for Fake {
    fn post_filter(
        &self,
        cx: &Context<'_>,
        _state: &CycleState,
        _pod: &Arc<PodInfo>,
        statuses: &NodeStatuses,
        _filters: &dyn RunFilters,
    ) -> (Nomination, Status) {
        let answer = self.post_filter.as_ref();
        answer.map_or((Nomination::Keep, Status::success()), |answer| answer(cx, statuses))
    }
}

impl PreScorePlugin for Fake {
    fn pre_score(&self, _: &Context<'_>, _: &mut CycleState, pod: &PodInfo, _: &[NodeIndex]) -> Status {
        self.pre_score.as_ref().map_or(Status::success(), |answer| answer(pod))
    }
}

impl ScorePlugin for Fake {
    fn score(
        &self,
        _cx: &Context<'_>,
        _state: &CycleState,
        _pod: &PodInfo,
        node: &NodeInfo,
    ) -> Result<i64, Status> {
        self.score.as_ref().map_or(Ok(0), |answer| answer(node))
    }
}

impl ReservePlugin for Fake {
    fn reserve(&self, _: &Context<'_>, state: &mut CycleState, pod: &PodInfo, _: &Arc<str>) -> Status {
        self.reserve.as_ref().map_or(Status::success(), |answer| answer(state, pod))
    }

    fn unreserve(&self, cx: &Context<'_>, state: &mut CycleState, pod: &PodInfo, _node: &Arc<str>) {
        if let Some(answer) = &self.unreserve {
            answer(cx, state, pod);
        }
    }
}

impl PermitPlugin for Fake {
    fn permit(&self, cx: &Context<'_>, _: &mut CycleState, pod: &PodInfo, _: &Arc<str>) -> Permit {
        self.permit.as_ref().map_or(Permit::Allow, |answer| answer(cx, pod))
    }
}

impl PreBindPlugin for Fake {
    fn pre_flight(&self, _: &Context<'_>, _: &CycleState, pod: &PodInfo, _: &Arc<str>) -> PreFlight {
        self.pre_flight.as_ref().map_or(PreFlight::Skip { allow_parallel: true }, |answer| answer(pod))
    }

    fn pre_bind(&self, _cx: BindingContext, _work: Box<dyn std::any::Any + Send>) -> BoxFuture<Status> {
        Box::pin(std::future::ready(Status::success()))
    }
}

impl PostBindPlugin for Fake {
    fn post_bind(&self, _: &Context<'_>, _: &mut CycleState, pod: &PodInfo, _: &Arc<str>) {
        if let Some(answer) = &self.post_bind {
            answer(pod);
        }
    }
}
