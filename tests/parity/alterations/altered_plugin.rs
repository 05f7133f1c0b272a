//! Alterations of one plugin. Each wraps what the plugin does at one or more extension points and
//! leaves the rest unchanged.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use supercargo_framework::binding::{
    ApiCall, ApiError, BindingCalls, BindingContext, BindingReport, BoxFuture, Predicate, WaitError,
};
use supercargo_framework::event::{EventRegistration, QueueingHint};
use supercargo_framework::plugin::{
    EnqueueExtensions, ExtensionPoints, FilterPlugin, NodeStatuses, Nomination, Normalize, PostFilterPlugin,
    PreBindPlugin, PreEnqueuePlugin, PreFilter, PreFilterExtensions, PreFilterPlugin, PreFlight,
    PreScorePlugin, QueueSortPlugin, Queued, ReservePlugin, RunFilters, ScorePlugin,
};
use supercargo_framework::{
    ActionType, Context, CycleState, EventResource, NodeIndex, NodeInfo, Plugin, PodInfo, QueueContext,
    Status, Text,
};

/// Changes the result of an extension point.
type Altering<T> = Arc<dyn Fn(T) -> T + Send + Sync>;

/// Alters the extension points of a plugin.
pub(super) type AlterPoints = Arc<dyn Fn(ExtensionPoints) -> ExtensionPoints + Send + Sync>;

/// A plugin of the same name that behaves differently.
pub(super) struct Altered {
    plugin: Arc<dyn Plugin>,
    alter: AlterPoints,
}

impl Altered {
    pub(super) fn wrap(plugin: Arc<dyn Plugin>, alter: AlterPoints) -> Arc<dyn Plugin> {
        Arc::new(Self { plugin, alter })
    }
}

impl Plugin for Altered {
    fn name(&self) -> &'static str {
        self.plugin.name()
    }

    fn extension_points(self: Arc<Self>) -> ExtensionPoints {
        let mut points = Arc::clone(&self.plugin).extension_points();
        // Results that the plugin shares between pods or cycles do not apply to altered points.
        (points.sign, points.incremental, points.caching) = (None, None, None);
        (self.alter)(points)
    }

    fn reads(&self) -> Vec<Text> {
        self.plugin.reads()
    }
}

/// Alters nothing, to show that the wrapping changes nothing.
pub(super) fn nothing() -> AlterPoints {
    let alterations = [
        pre_enqueue(|status| status),
        less(QueueSortPlugin::less),
        pre_filter(|answer| answer),
        filter(|status| status),
        post_filter(|nomination, status| (nomination, status)),
        pre_score(|status| status),
        score(|score| score),
        events(|events| events),
        pod(|_| {}),
        answers(|_| None),
    ];
    Arc::new(move |points| alterations.iter().fold(points, |points, alter| alter(points)))
}

/// Changes the result of PreEnqueue.
pub(super) fn pre_enqueue(change: fn(Status) -> Status) -> AlterPoints {
    struct At(Arc<dyn PreEnqueuePlugin>, fn(Status) -> Status);

    impl PreEnqueuePlugin for At {
        fn pre_enqueue(&self, cx: &QueueContext<'_>, pod: &PodInfo) -> Status {
            (self.1)(self.0.pre_enqueue(cx, pod))
        }
    }

    Arc::new(move |mut points| {
        points.pre_enqueue = points.pre_enqueue.map(|at| Arc::new(At(at, change)) as _);
        points
    })
}

/// Compares two pods.
pub(super) type Less = fn(&dyn QueueSortPlugin, Queued<'_>, Queued<'_>) -> bool;

/// Changes the order of the queue.
pub(super) fn less(change: Less) -> AlterPoints {
    struct At(Arc<dyn QueueSortPlugin>, Less);

    impl QueueSortPlugin for At {
        fn less(&self, a: Queued<'_>, b: Queued<'_>) -> bool {
            (self.1)(&*self.0, a, b)
        }
    }

    Arc::new(move |mut points| {
        points.queue_sort = points.queue_sort.map(|at| Arc::new(At(at, change)) as _);
        points
    })
}

/// PreFilter, with or without its extensions AddPod and RemovePod.
struct AtPreFilter {
    plugin: Arc<dyn PreFilterPlugin>,
    change: fn(PreFilter) -> PreFilter,
    hears_of_added: bool,
    hears_of_removed: bool,
}

impl PreFilterPlugin for AtPreFilter {
    fn pre_filter(&self, cx: &Context<'_>, state: &mut CycleState, pod: &PodInfo) -> PreFilter {
        (self.change)(self.plugin.pre_filter(cx, state, pod))
    }

    fn extensions(&self) -> Option<&dyn PreFilterExtensions> {
        self.plugin.extensions().map(|_| self as _)
    }
}

impl PreFilterExtensions for AtPreFilter {
    fn add_pod(&self, state: &mut CycleState, pod: &PodInfo, added: &PodInfo, node: &NodeInfo) -> Status {
        let extensions = self.plugin.extensions().filter(|_| self.hears_of_added);
        extensions.map_or(Status::success(), |extensions| extensions.add_pod(state, pod, added, node))
    }

    fn remove_pod(
        &self,
        state: &mut CycleState,
        pod: &PodInfo,
        removed: &PodInfo,
        node: &NodeInfo,
    ) -> Status {
        let extensions = self.plugin.extensions().filter(|_| self.hears_of_removed);
        extensions.map_or(Status::success(), |extensions| extensions.remove_pod(state, pod, removed, node))
    }
}

fn at_pre_filter(
    change: fn(PreFilter) -> PreFilter,
    (hears_of_added, hears_of_removed): (bool, bool),
) -> AlterPoints {
    Arc::new(move |mut points| {
        points.pre_filter = points
            .pre_filter
            .map(|plugin| Arc::new(AtPreFilter { plugin, change, hears_of_added, hears_of_removed }) as _);
        points
    })
}

/// Changes the result of PreFilter.
pub(super) fn pre_filter(change: fn(PreFilter) -> PreFilter) -> AlterPoints {
    at_pre_filter(change, (true, true))
}

/// Ignores AddPod in dry runs.
pub(super) fn ignores_add_pod() -> AlterPoints {
    at_pre_filter(|answer| answer, (false, true))
}

/// Ignores RemovePod in dry runs.
pub(super) fn ignores_remove_pod() -> AlterPoints {
    at_pre_filter(|answer| answer, (true, false))
}

/// Changes the result of Filter.
pub(super) fn filter(change: impl Fn(Status) -> Status + Send + Sync + 'static) -> AlterPoints {
    struct At(Arc<dyn FilterPlugin>, Altering<Status>);

    impl FilterPlugin for At {
        fn filter(&self, cx: &Context<'_>, state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Status {
            (self.1)(self.0.filter(cx, state, pod, node))
        }
    }

    let change: Altering<Status> = Arc::new(change);
    Arc::new(move |mut points| {
        points.filter = points.filter.map(|at| Arc::new(At(at, Arc::clone(&change))) as _);
        points
    })
}

/// Changes the result of PostFilter.
pub(super) fn post_filter(change: fn(Nomination, Status) -> (Nomination, Status)) -> AlterPoints {
    struct At(Arc<dyn PostFilterPlugin>, fn(Nomination, Status) -> (Nomination, Status));

    impl PostFilterPlugin for At {
        fn post_filter(
            &self,
            cx: &Context<'_>,
            state: &CycleState,
            pod: &Arc<PodInfo>,
            statuses: &NodeStatuses,
            filters: &dyn RunFilters,
        ) -> (Nomination, Status) {
            let (nomination, status) = self.0.post_filter(cx, state, pod, statuses, filters);
            (self.1)(nomination, status)
        }
    }

    Arc::new(move |mut points| {
        points.post_filter = points.post_filter.map(|at| Arc::new(At(at, change)) as _);
        points
    })
}

/// Changes the input of PostFilter: the pod and the rejected nodes.
pub(super) fn post_filter_sees(change: fn(&mut PodInfo, &mut NodeStatuses)) -> AlterPoints {
    struct At(Arc<dyn PostFilterPlugin>, fn(&mut PodInfo, &mut NodeStatuses));

    impl PostFilterPlugin for At {
        fn post_filter(
            &self,
            cx: &Context<'_>,
            state: &CycleState,
            pod: &Arc<PodInfo>,
            statuses: &NodeStatuses,
            filters: &dyn RunFilters,
        ) -> (Nomination, Status) {
            let (mut pod, mut statuses) = (PodInfo::clone(pod), statuses.clone());
            (self.1)(&mut pod, &mut statuses);
            self.0.post_filter(cx, state, &Arc::new(pod), &statuses, filters)
        }
    }

    Arc::new(move |mut points| {
        points.post_filter = points.post_filter.map(|at| Arc::new(At(at, change)) as _);
        points
    })
}

/// Changes the result of PreScore.
pub(super) fn pre_score(change: fn(Status) -> Status) -> AlterPoints {
    struct At(Arc<dyn PreScorePlugin>, fn(Status) -> Status);

    impl PreScorePlugin for At {
        fn pre_score(
            &self,
            cx: &Context<'_>,
            state: &mut CycleState,
            pod: &PodInfo,
            nodes: &[NodeIndex],
        ) -> Status {
            (self.1)(self.0.pre_score(cx, state, pod, nodes))
        }
    }

    Arc::new(move |mut points| {
        points.pre_score = points.pre_score.map(|at| Arc::new(At(at, change)) as _);
        points
    })
}

/// Score and its normalization.
struct AtScore {
    plugin: Arc<dyn ScorePlugin>,
    change: fn(i64) -> i64,
    normalization: Option<Normalize>,
}

impl ScorePlugin for AtScore {
    fn score(
        &self,
        cx: &Context<'_>,
        state: &CycleState,
        pod: &PodInfo,
        node: &NodeInfo,
    ) -> Result<i64, Status> {
        self.plugin.score(cx, state, pod, node).map(self.change)
    }

    fn normalization(&self) -> Normalize {
        self.normalization.unwrap_or_else(|| self.plugin.normalization())
    }

    fn normalize(&self, state: &CycleState, pod: &PodInfo, scores: &mut [i64]) -> Status {
        self.plugin.normalize(state, pod, scores)
    }
}

fn at_score(change: fn(i64) -> i64, normalization: Option<Normalize>) -> AlterPoints {
    Arc::new(move |mut points| {
        points.score = points.score.map(|plugin| Arc::new(AtScore { plugin, change, normalization }) as _);
        points
    })
}

/// Changes the raw scores.
pub(super) fn score(change: fn(i64) -> i64) -> AlterPoints {
    at_score(change, None)
}

/// Changes the normalization of scores.
pub(super) fn normalized(normalization: Normalize) -> AlterPoints {
    at_score(|score| score, Some(normalization))
}

/// Replaces the scores.
pub(super) fn scored(by: fn(&Context<'_>, &PodInfo, &NodeInfo) -> i64) -> AlterPoints {
    struct At(fn(&Context<'_>, &PodInfo, &NodeInfo) -> i64);

    impl ScorePlugin for At {
        fn score(
            &self,
            cx: &Context<'_>,
            _: &CycleState,
            pod: &PodInfo,
            node: &NodeInfo,
        ) -> Result<i64, Status> {
            Ok((self.0)(cx, pod, node))
        }
    }

    Arc::new(move |mut points| {
        points.score = points.score.map(|_| Arc::new(At(by)) as _);
        points
    })
}

/// The registered events.
pub(super) fn events(
    change: impl Fn(Vec<EventRegistration>) -> Vec<EventRegistration> + Send + Sync + 'static,
) -> AlterPoints {
    struct At(Arc<dyn EnqueueExtensions>, Altering<Vec<EventRegistration>>);

    impl EnqueueExtensions for At {
        fn events_to_register(self: Arc<Self>) -> Vec<EventRegistration> {
            (self.1)(Arc::clone(&self.0).events_to_register())
        }
    }

    let change: Altering<_> = Arc::new(change);
    Arc::new(move |mut points| {
        points.enqueue_extensions =
            points.enqueue_extensions.map(|at| Arc::new(At(at, Arc::clone(&change))) as _);
        points
    })
}

/// Ignores these events.
pub(super) fn ignores(resource: EventResource, action: ActionType) -> AlterPoints {
    events(move |mut events| {
        for registration in events.iter_mut().filter(|given| given.event.resource == resource) {
            registration.event.action -= action;
        }
        events.retain(|registration| !registration.event.action.is_empty());
        events
    })
}

/// Registers these events and always requeues the pod.
pub(super) fn wakes_on(resource: EventResource, action: ActionType) -> AlterPoints {
    events(move |mut events| {
        events.push(EventRegistration::always(resource.clone(), action));
        events
    })
}

/// Ignores new nodes.
pub(super) fn deaf_to_new_nodes() -> AlterPoints {
    ignores(EventResource::Node, ActionType::ADD)
}

/// The hints for events of this kind always return this.
pub(super) fn hints(resource: EventResource, hint: QueueingHint) -> AlterPoints {
    events(move |mut events| {
        for registration in events.iter_mut().filter(|given| given.event.resource == resource) {
            registration.hint = Some(Arc::new(move |_, _, _| Ok(hint)));
            registration.caching.offer = None;
            registration.caching.marks = None;
        }
        events
    })
}

/// Changes the pod that the plugin sees in a scheduling cycle.
pub(super) fn pod(change: fn(&mut PodInfo)) -> AlterPoints {
    struct At<P: ?Sized>(Arc<P>, fn(&mut PodInfo));

    impl<P: ?Sized> At<P> {
        fn seen(&self, pod: &PodInfo) -> PodInfo {
            let mut pod = pod.clone();
            (self.1)(&mut pod);
            pod
        }
    }

    impl PreFilterPlugin for At<dyn PreFilterPlugin> {
        fn pre_filter(&self, cx: &Context<'_>, state: &mut CycleState, pod: &PodInfo) -> PreFilter {
            self.0.pre_filter(cx, state, &self.seen(pod))
        }

        fn extensions(&self) -> Option<&dyn PreFilterExtensions> {
            self.0.extensions().map(|_| self as _)
        }
    }

    impl PreFilterExtensions for At<dyn PreFilterPlugin> {
        fn add_pod(&self, state: &mut CycleState, pod: &PodInfo, added: &PodInfo, node: &NodeInfo) -> Status {
            let add = |it: &dyn PreFilterExtensions| it.add_pod(state, &self.seen(pod), added, node);
            self.0.extensions().map_or(Status::success(), add)
        }

        fn remove_pod(
            &self,
            state: &mut CycleState,
            pod: &PodInfo,
            removed: &PodInfo,
            node: &NodeInfo,
        ) -> Status {
            let remove = |it: &dyn PreFilterExtensions| it.remove_pod(state, &self.seen(pod), removed, node);
            self.0.extensions().map_or(Status::success(), remove)
        }
    }

    impl FilterPlugin for At<dyn FilterPlugin> {
        fn filter(&self, cx: &Context<'_>, state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Status {
            self.0.filter(cx, state, &self.seen(pod), node)
        }
    }

    impl PreScorePlugin for At<dyn PreScorePlugin> {
        fn pre_score(
            &self,
            cx: &Context<'_>,
            state: &mut CycleState,
            pod: &PodInfo,
            nodes: &[NodeIndex],
        ) -> Status {
            self.0.pre_score(cx, state, &self.seen(pod), nodes)
        }
    }

    impl ScorePlugin for At<dyn ScorePlugin> {
        fn score(
            &self,
            cx: &Context<'_>,
            state: &CycleState,
            pod: &PodInfo,
            node: &NodeInfo,
        ) -> Result<i64, Status> {
            self.0.score(cx, state, &self.seen(pod), node)
        }

        fn normalization(&self) -> Normalize {
            self.0.normalization()
        }

        fn normalize(&self, state: &CycleState, pod: &PodInfo, scores: &mut [i64]) -> Status {
            self.0.normalize(state, &self.seen(pod), scores)
        }
    }

    Arc::new(move |mut points| {
        points.pre_filter = points.pre_filter.map(|at| Arc::new(At(at, change)) as _);
        points.filter = points.filter.map(|at| Arc::new(At(at, change)) as _);
        points.pre_score = points.pre_score.map(|at| Arc::new(At(at, change)) as _);
        points.score = points.score.map(|at| Arc::new(At(at, change)) as _);
        points
    })
}

/// Does nothing in Reserve.
pub(super) fn reserves_nothing() -> AlterPoints {
    struct Nothing;

    impl ReservePlugin for Nothing {
        fn reserve(&self, _: &Context<'_>, _: &mut CycleState, _: &PodInfo, _: &Arc<str>) -> Status {
            Status::success()
        }

        fn unreserve(&self, _: &Context<'_>, _: &mut CycleState, _: &PodInfo, _: &Arc<str>) {}
    }

    Arc::new(|mut points| {
        points.reserve = points.reserve.map(|_| Arc::new(Nothing) as _);
        points
    })
}

/// Does nothing in Unreserve.
pub(super) fn unreserves_nothing() -> AlterPoints {
    struct At(Arc<dyn ReservePlugin>);

    impl ReservePlugin for At {
        fn reserve(
            &self,
            cx: &Context<'_>,
            state: &mut CycleState,
            pod: &PodInfo,
            node: &Arc<str>,
        ) -> Status {
            self.0.reserve(cx, state, pod, node)
        }

        fn unreserve(&self, _: &Context<'_>, _: &mut CycleState, _: &PodInfo, _: &Arc<str>) {}
    }

    Arc::new(|mut points| {
        points.reserve = points.reserve.map(|at| Arc::new(At(at)) as _);
        points
    })
}

/// Answers some of the requests of PreBind instead of the server.
pub(super) fn answers(answer: fn(&ApiCall) -> Option<Value>) -> AlterPoints {
    struct At(Arc<dyn PreBindPlugin>, fn(&ApiCall) -> Option<Value>);

    impl PreBindPlugin for At {
        fn pre_flight(
            &self,
            cx: &Context<'_>,
            state: &CycleState,
            pod: &PodInfo,
            node: &Arc<str>,
        ) -> PreFlight {
            self.0.pre_flight(cx, state, pod, node)
        }

        fn pre_bind(&self, cx: BindingContext, work: Box<dyn std::any::Any + Send>) -> BoxFuture<Status> {
            self.0.pre_bind(BindingContext::new(Arc::new(Calls(cx, self.1))), work)
        }
    }

    struct Calls(BindingContext, fn(&ApiCall) -> Option<Value>);

    impl BindingCalls for Calls {
        fn call(&self, call: ApiCall) -> BoxFuture<Result<Value, ApiError>> {
            match (self.1)(&call) {
                Some(answer) => Box::pin(std::future::ready(Ok(answer))),
                None => self.0.call(call),
            }
        }

        fn written(&self, resource: &Text, answer: Value) {
            self.0.written(resource, answer);
        }

        fn report(&self, report: BindingReport) {
            self.0.report(report);
        }

        fn wait_for(&self, predicate: Predicate, timeout: Duration) -> BoxFuture<Result<(), WaitError>> {
            self.0.wait_for(predicate, timeout)
        }

        fn cancelled(&self) -> BoxFuture<()> {
            self.0.cancelled()
        }

        fn sleep(&self, duration: Duration) -> BoxFuture<()> {
            self.0.sleep(duration)
        }
    }

    Arc::new(move |mut points| {
        points.pre_bind = points.pre_bind.map(|at| Arc::new(At(at, answer)) as _);
        points
    })
}

/// Does nothing in PreBind.
pub(super) fn prepares_nothing() -> AlterPoints {
    struct Nothing;

    impl PreBindPlugin for Nothing {
        fn pre_flight(&self, _: &Context<'_>, _: &CycleState, _: &PodInfo, _: &Arc<str>) -> PreFlight {
            PreFlight::Skip { allow_parallel: false }
        }

        fn pre_bind(&self, _: BindingContext, _: Box<dyn std::any::Any + Send>) -> BoxFuture<Status> {
            Box::pin(std::future::ready(Status::success()))
        }
    }

    Arc::new(|mut points| {
        points.pre_bind = points.pre_bind.map(|_| Arc::new(Nothing) as _);
        points
    })
}
