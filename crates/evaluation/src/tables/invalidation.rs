//! Invalidated rows and their causes.

use smallvec::SmallVec;
use supercargo_framework::NodeIndex;
use supercargo_framework::caching::Scope;

use super::rule::Rule;
use super::view::View;
use crate::changes::Cursor;

/// Why a row is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InvalidatedBy {
    NodeCame,
    NodeObject,
    Pods,
    /// A change elsewhere, which has been counted.
    Elsewhere,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) index: NodeIndex,
    pub(super) cause: InvalidatedBy,
}

/// The rows to evaluate again.
#[derive(Debug, Default)]
pub(super) struct Invalidation {
    pub(super) all: bool,
    /// The latest change of an object of a kind that the plugin follows.
    pub(super) objects: Option<Cursor>,
    pub(super) rows: SmallVec<[Row; 8]>,
}

/// Whether the cause invalidates an answer of this scope.
fn concerns(scope: &Scope, cause: InvalidatedBy) -> bool {
    match cause {
        InvalidatedBy::NodeCame | InvalidatedBy::NodeObject | InvalidatedBy::Elsewhere => true,
        InvalidatedBy::Pods => matches!(scope, Scope::Node | Scope::Classes(_)),
    }
}

/// The nodes whose answers of this scope are invalid, each once.
pub(super) fn concerned(
    invalid: &Invalidation,
    scope: &Scope,
    view: &mut View<'_>,
) -> SmallVec<[NodeIndex; 8]> {
    let mut due: SmallVec<[NodeIndex; 8]> = SmallVec::new();
    for Row { index, cause } in &invalid.rows {
        if !concerns(scope, *cause) || !view.nodes.has(*index) {
            continue;
        }
        let rule = match cause {
            InvalidatedBy::NodeCame => Rule::NodeCame,
            InvalidatedBy::NodeObject => Rule::NodeObject,
            InvalidatedBy::Pods => Rule::PodsOfNode,
            InvalidatedBy::Elsewhere => {
                due.push(*index);
                continue;
            }
        };
        if view.rules.follow(rule) {
            due.push(*index);
        }
    }
    due.sort_unstable();
    due.dedup();
    due
}
