//! Which rows must be asked again, and why.

use smallvec::SmallVec;
use supercargo_framework::NodeIndex;
use supercargo_framework::plugin::Scope;

use super::rule::Rule;
use super::view::View;

/// Why a row must be asked again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    NodeCame,
    NodeObject,
    Pods,
    /// Of a change of something else, which has been counted.
    Elsewhere,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) index: NodeIndex,
    pub(super) because: Cause,
}

/// What must be asked again.
#[derive(Debug, Default)]
pub(super) struct Invalidation {
    pub(super) all: bool,
    pub(super) rows: SmallVec<[Row; 8]>,
}

/// Whether an answer of this scope is another for a reason.
fn concerns(scope: &Scope, because: Cause) -> bool {
    match because {
        Cause::NodeCame | Cause::NodeObject | Cause::Elsewhere => true,
        Cause::Pods => matches!(scope, Scope::Node | Scope::Classes(_)),
    }
}

/// The nodes to be asked about again where answers have this scope, each once.
pub(super) fn concerned(
    again: &Invalidation,
    scope: &Scope,
    view: &mut View<'_>,
) -> SmallVec<[NodeIndex; 8]> {
    let mut due: SmallVec<[NodeIndex; 8]> = SmallVec::new();
    for Row { index, because } in &again.rows {
        if !concerns(scope, *because) || !view.nodes.has(*index) {
            continue;
        }
        let rule = match because {
            Cause::NodeCame => Rule::NodeCame,
            Cause::NodeObject => Rule::NodeObject,
            Cause::Pods => Rule::PodsOfNode,
            Cause::Elsewhere => {
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
