//! Takes allocations of claims away that keep a pod, or the pods of a group, off nodes.

use std::collections::BTreeSet;
use std::sync::Arc;

use supercargo_framework::objects::{GroupKind, GroupSpec, Object, ResourceClaim};
use supercargo_framework::plugin::{
    GroupCycle, NodeStatuses, Nomination, Nominations, NotPreFiltered, PodGroupPostFilterPlugin,
    PostFilterPlugin, RunFilters,
};
use supercargo_framework::status::Reasons;
use supercargo_framework::{Code, Command, Context, CycleState, PodInfo, Status};

use super::claims::body;
use super::extended::{self, ExtendedResources};
use super::{DynamicResources, NAME, UNAVAILABLE, claims, release};

/// The request that gives back a claim, and what is said of it.
struct Release {
    claim: Arc<Object>,
    command: Command,
    text: &'static str,
}

impl PostFilterPlugin for DynamicResources {
    /// Takes the allocation of a claim away that no other pod uses, if it kept the pod off a node.
    fn post_filter(
        &self,
        cx: &Context<'_>,
        state: &CycleState,
        pod: &Arc<PodInfo>,
        statuses: &NodeStatuses,
        _: &dyn RunFilters,
    ) -> (Nomination, Status) {
        // As upstream, which then lacks its state.
        if state.read::<NotPreFiltered>().is_some_and(|plugins| plugins.0.contains(&NAME)) {
            return (Nomination::Keep, Status::error("not found"));
        }
        let Some(claims) = claims(state) else { return (Nomination::Keep, no_reason()) };
        let released = self.release(cx, pod, &claims.all, claims.extended.as_ref(), statuses);
        let status = match released {
            Some(Release { command, text, .. }) => {
                cx.command(command);
                Status::unschedulable(text)
            }
            None => no_reason(),
        };
        (Nomination::Keep, status)
    }
}

impl PodGroupPostFilterPlugin for DynamicResources {
    /// Does the same for each pod of the group that found no node. As upstream, it does nothing for
    /// composite groups, and for those with constraints, also without a topology.
    fn pod_group_post_filter(&self, cycle: &mut dyn GroupCycle) -> (Nominations, Status) {
        let cx = cycle.context();
        let spec = cx.forest().spec(cycle.group());
        let is_narrow = self.with_topology && spec.is_some_and(GroupSpec::has_constraints);
        if cycle.group().kind == GroupKind::Groups || is_narrow {
            return (Nominations::new(), no_reason());
        }
        let release = |(pod, statuses): (Arc<PodInfo>, &NodeStatuses)| {
            let found = Self::claims_of(&cx, &pod).ok()?;
            let all: Vec<_> = found.iter().map(|claim| Arc::clone(claim.object)).collect();
            let extended = if self.with_extended { extended::of_pod(&cx, &pod) } else { None };
            self.release(&cx, &pod, &all, extended.as_ref(), statuses)
        };
        let mut claims = BTreeSet::new();
        let released = cycle.rejected().into_iter().filter_map(release);
        // Pods can share a claim.
        let released: Vec<_> = released.filter(|it| claims.insert(Arc::clone(&it.claim.uid))).collect();
        drop(cx);
        for Release { command, .. } in released {
            cycle.command(command);
        }
        // As upstream, also if nothing was.
        let text = "deallocation and deletion of ResourceClaims completed";
        (Nominations::new(), Status::unschedulable(text))
    }
}

impl DynamicResources {
    /// What gives back a claim of a pod, if one helps.
    fn release(
        &self,
        cx: &Context<'_>,
        pod: &PodInfo,
        claims: &[Arc<Object>],
        extended: Option<&ExtendedResources>,
        statuses: &NodeStatuses,
    ) -> Option<Release> {
        let unavailable = claims.iter().find(|claim| {
            is_free_but_for(body(claim), pod)
                && statuses.iter().any(|(node, status)| {
                    // As upstream, claims do not count on a node where others cannot be allocated.
                    let is_rejected_by_claims = status.reasons().iter().any(|reason| *reason == UNAVAILABLE);
                    status.plugin() == NAME
                        && is_rejected_by_claims
                        && self.is_unavailable(cx, claim, cx.node(node).node())
                })
        });
        if let Some(claim) = unavailable {
            return Some(Release {
                claim: Arc::clone(claim),
                command: release::deallocate(claim, pod),
                text: "deallocation of ResourceClaim completed",
            });
        }
        let Some(ExtendedResources::Stale(claim)) = extended else { return None };
        Some(Release {
            claim: Arc::clone(claim),
            command: release::delete(claim, Some(pod)),
            text: "deletion of ResourceClaim completed",
        })
    }
}

fn no_reason() -> Status {
    Status::with_reasons(Code::Unschedulable, Reasons::new())
}

/// Whether no pod but this one uses the claim.
fn is_free_but_for(claim: &ResourceClaim, pod: &PodInfo) -> bool {
    match &*claim.reserved_for {
        [] => true,
        [only] => *only.uid == *pod.uid.text(),
        _ => false,
    }
}
