//! Which rows must be asked again, and why.

use smallvec::SmallVec;
use supercargo_framework::NodeIndex;
use supercargo_framework::caching::Scope;

use super::answers::View;
use super::rule::Rule;

/// Why a row must be asked again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Because {
    NodeCame,
    NodeObject,
    Pods,
    /// Of a change of something else, which has been counted.
    Elsewhere,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) index: NodeIndex,
    pub(super) because: Because,
}

/// What must be asked again.
#[derive(Debug, Default)]
pub(super) struct Again {
    pub(super) all: bool,
    pub(super) rows: SmallVec<[Row; 8]>,
}

/// Whether an answer of this scope is another for a reason.
fn concerns(scope: &Scope, because: Because) -> bool {
    match because {
        Because::NodeCame | Because::NodeObject | Because::Elsewhere => true,
        Because::Pods => matches!(scope, Scope::Node | Scope::Classes(_)),
    }
}

/// The nodes to be asked about again where answers have this scope, each once.
pub(super) fn concerned(again: &Again, scope: &Scope, view: &mut View<'_>) -> SmallVec<[NodeIndex; 8]> {
    let mut due: SmallVec<[NodeIndex; 8]> = SmallVec::new();
    for Row { index, because } in &again.rows {
        if !concerns(scope, *because) || !view.nodes.has(*index) {
            continue;
        }
        let rule = match because {
            Because::NodeCame => Rule::NodeCame,
            Because::NodeObject => Rule::NodeObject,
            Because::Pods => Rule::PodsOfNode,
            Because::Elsewhere => {
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
