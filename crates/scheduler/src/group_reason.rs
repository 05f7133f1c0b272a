//! Why the pods of a group are not scheduled, in the words for the group and for each member.

use std::iter;

use supercargo_framework::Status;
use supercargo_framework::plugin::Nomination;
use supercargo_runtime::failure::{Failure, FailureKind};
use supercargo_runtime::observer::AttemptResult;

use crate::group_tree::{GroupFailure, Placed};

/// How often the words of PodGroupPostFilter are repeated at most: a tree can have a hundred
/// thousand groups, and each pod and group gets a copy.
const MOST_REPEATS: usize = 8;

/// Why a group is not scheduled.
pub(crate) enum Reason {
    /// It does not fit.
    Unschedulable {
        /// Before PodGroupPostFilter.
        before: String,
        /// With what that says.
        after: String,
        /// Whether it waits for a preemption.
        waits: bool,
    },
    /// Something failed.
    Error(String),
}

impl Reason {
    /// The words of PodGroupPostFilter are repeated for groups that share the reason: upstream
    /// appends to a status that all of them share.
    pub(crate) fn new(failure: GroupFailure, shares: usize, post_filter: Option<&Status>) -> Self {
        match (failure, post_filter) {
            (GroupFailure::Error(error), _) => Self::Error(error),
            (GroupFailure::Unschedulable(_), Some(status))
                if !status.is_success() && !status.is_rejected() =>
            {
                Self::Error(status.message())
            }
            (GroupFailure::Unschedulable(before), status) => {
                let said = status.map(Status::message);
                let said = said.iter().flat_map(|said| iter::repeat_n(&**said, shares.min(MOST_REPEATS)));
                let after = iter::once(&*before).chain(said).collect::<Vec<_>>().join(", ");
                Self::Unschedulable { before, after, waits: status.is_some_and(Status::is_success) }
            }
        }
    }

    /// The failure of a member, by its result in the trial. A member that was rejected itself says
    /// why; the others name the group's reason.
    pub(crate) fn of_member(&self, result: Option<Result<Placed, Failure>>) -> Failure {
        let rejected = |reason: &str| FailureKind::Rejected(reason.to_owned());
        match (result, self) {
            (Some(Err(failure)), Self::Error(_)) if !failure.kind.is_rejection() => failure.kind.into(),
            (_, Self::Error(error)) => FailureKind::Internal(error.clone()).into(),
            (Some(Err(failure)), Self::Unschedulable { .. }) => failure,
            (Some(Ok(_)), Self::Unschedulable { after, waits: true, .. }) => {
                Failure { kind: rejected(after), nomination: Nomination::Keep }
            }
            (Some(Ok(_)), Self::Unschedulable { after, .. }) => {
                rejected(&format!("pod group is unschedulable, {after}")).into()
            }
            (None, Self::Unschedulable { before, .. }) => {
                Failure { kind: rejected(before), nomination: Nomination::Keep }
            }
        }
    }

    /// The reason and the message of the group's condition.
    pub(crate) fn of_group(&self) -> (&'static str, &str) {
        match self {
            Self::Unschedulable { after, .. } => ("Unschedulable", after),
            Self::Error(error) => ("SchedulerError", error),
        }
    }

    /// How the attempt of the group is counted.
    pub(crate) fn result(&self) -> AttemptResult {
        match self {
            Self::Unschedulable { waits: true, .. } => AttemptResult::WaitingOnPreemption,
            Self::Unschedulable { .. } => AttemptResult::Unschedulable,
            Self::Error(_) => AttemptResult::Error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_does_not_grow_with_the_groups_that_share_it() {
        let reason = |shares| {
            let failure = GroupFailure::Unschedulable("no room".into());
            match Reason::new(failure, shares, Some(&Status::unschedulable("no victims"))) {
                Reason::Unschedulable { after, .. } => after,
                Reason::Error(error) => error,
            }
        };
        assert_eq!(reason(2), "no room, no victims, no victims");
        assert_eq!(reason(100_000), reason(MOST_REPEATS));
    }
}
