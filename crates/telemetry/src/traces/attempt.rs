//! Finished attempts and their spans.

use std::borrow::Cow;
use std::sync::Arc;

use supercargo_framework::pod::PodKey;
use supercargo_framework::{Code, Uid};
use supercargo_runtime::observer::{AttemptResult, Timespan};

use super::attempt_record::{AttemptRecord, TimedPlugin, TimedPoint};
use super::ids::{Ids, SpanId, TraceId};
use super::otlp::{Attribute, Failed, Span, SpanKind};

/// The name of the span of an attempt.
const NAME: &str = "scheduling attempt";

/// A finished attempt.
#[derive(Debug)]
pub(super) struct Attempt {
    pub(super) pod: PodKey,
    pub(super) uid: Uid,
    /// The scheduler name of the profile.
    pub(super) profile: Arc<str>,
    /// The number of attempts of the pod, including this one.
    pub(super) number: u32,
    pub(super) result: AttemptResult,
    pub(super) node: Option<Box<str>>,
    pub(super) message: Box<str>,
    pub(super) took: Timespan,
    pub(super) parts: AttemptRecord,
    /// The origin of the clock, in nanoseconds since 1970.
    pub(super) epoch: u64,
}

/// Data that all spans of a trace share.
struct Trace {
    id: TraceId,
    epoch: u64,
}

impl Trace {
    fn span(&self, id: SpanId, name: impl Into<Cow<'static, str>>, took: Timespan) -> Span {
        Span {
            trace_id: self.id,
            span_id: id,
            parent_span_id: None,
            name: name.into(),
            kind: SpanKind,
            start_time_unix_nano: self.epoch.saturating_add(took.from.0),
            end_time_unix_nano: self.epoch.saturating_add(took.to.0),
            attributes: Vec::new(),
            status: None,
        }
    }
}

impl Attempt {
    /// The number of its spans.
    pub(super) fn span_count(&self) -> usize {
        1 + self.parts.count()
    }

    /// The span of the attempt, with child spans for extension points and below them for plugins.
    pub(super) fn spans(&self, ids: &mut Ids) -> Vec<Span> {
        let trace = Trace { id: ids.trace(), epoch: self.epoch };
        let root = ids.span();
        let points: Vec<(SpanId, &TimedPoint)> =
            self.parts.points.iter().map(|part| (ids.span(), part)).collect();
        let mut spans = Vec::with_capacity(self.span_count());
        spans.push(self.root(&trace, root));
        spans.extend(points.iter().map(|(id, part)| point(&trace, root, *id, part)));
        for it in &self.parts.plugins {
            let parent = points.iter().find(|(_, point)| point.holds(&it.part)).map_or(root, |(id, _)| *id);
            spans.push(plugin(&trace, parent, ids.span(), it));
        }
        spans
    }

    fn root(&self, trace: &Trace, id: SpanId) -> Span {
        let mut attributes = vec![
            Attribute::text("k8s.namespace.name", &*self.pod.namespace),
            Attribute::text("k8s.pod.name", &*self.pod.name),
            Attribute::text("k8s.pod.uid", &*self.uid.text()),
            Attribute::text("supercargo.profile", &*self.profile),
            Attribute::number("supercargo.attempt", self.number),
            Attribute::text("supercargo.result", self.result.as_str()),
        ];
        if let Some(node) = &self.node {
            attributes.push(Attribute::text("k8s.node.name", node.clone()));
        }
        let has_failed = self.result == AttemptResult::Error;
        // Unschedulable is a result, not an error.
        if !has_failed && !self.message.is_empty() {
            attributes.push(Attribute::text("supercargo.message", self.message.clone()));
        }
        let status = has_failed.then(|| Failed::with(self.message.clone()));
        Span { attributes, status, ..trace.span(id, NAME, self.took) }
    }
}

fn point(trace: &Trace, parent: SpanId, id: SpanId, part: &TimedPoint) -> Span {
    Span {
        parent_span_id: Some(parent),
        attributes: vec![reported(part.status)],
        status: failure(part.status),
        ..trace.span(id, part.point.as_str(), part.took)
    }
}

fn plugin(
    trace: &Trace,
    parent: SpanId,
    id: SpanId,
    TimedPlugin { plugin, calls, part }: &TimedPlugin,
) -> Span {
    Span {
        parent_span_id: Some(parent),
        attributes: vec![
            Attribute::text("supercargo.extension_point", part.point.as_str()),
            reported(part.status),
            Attribute::number("supercargo.calls", *calls),
        ],
        status: failure(part.status),
        ..trace.span(id, plugin.to_string(), part.took)
    }
}

fn reported(status: Code) -> Attribute {
    Attribute::text("supercargo.status", status.as_str())
}

fn failure(status: Code) -> Option<Failed> {
    (status == Code::Error).then(|| Failed::with(""))
}
