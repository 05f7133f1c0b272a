//! Takes allocations of claims away that keep a pod, or the pods of a group, off nodes.

use std::collections::BTreeSet;
use std::sync::Arc;

use supercargo_framework::objects::{
    GroupKey, GroupKind, GroupSpec, Object, PodGroup, ResourceClaim, Typed, resources,
};
use supercargo_framework::plugin::{
    GroupCycle, NodeStatuses, Nomination, Nominations, NotPreFiltered, PodGroupPostFilterPlugin,
    PostFilterPlugin, RunFilters,
};
use supercargo_framework::status::Reasons;
use supercargo_framework::{Code, Command, Context, CycleState, PodInfo, Status};

use super::claims::{body, excludes, is_allocated, limits_nodes, once_each};
use super::extended::{self, ExtendedResources};
use super::{DynamicResources, NAME, UNAVAILABLE, claims, release};

/// The request that gives back a claim, and what is said of it.
struct Release {
    claim: Arc<Object>,
    command: Command,
    status: Status,
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
            Some(Release { command, status, .. }) => {
                cx.command(command);
                status
            }
            None => no_reason(),
        };
        (Nomination::Keep, status)
    }
}

impl PodGroupPostFilterPlugin for DynamicResources {
    /// Does the same for each pod of the group that found no node, and then for the claims of the
    /// group. As upstream, it does nothing for composite groups, and for those with constraints,
    /// also without a topology.
    fn pod_group_post_filter(&self, cycle: &mut dyn GroupCycle) -> (Nominations, Status) {
        let cx = cycle.context();
        let spec = cx.forest().spec(cycle.group());
        let is_narrow = self.with_topology && spec.is_some_and(GroupSpec::has_constraints);
        if cycle.group().kind == GroupKind::Groups || is_narrow {
            return (Nominations::new(), no_reason());
        }
        let (mut tried, mut of_pods) = (Vec::new(), Vec::new());
        let (mut released, mut pods_need_more) = (BTreeSet::new(), false);
        for (pod, statuses) in cycle.rejected() {
            let found = self.claims_of(&cx, &pod).unwrap_or_default();
            let claims: Box<_> = found.iter().map(|claim| Arc::clone(claim.object)).collect();
            let extended = if self.with_extended { extended::of_pod(&cx, &pod) } else { None };
            let release = self.release(&cx, &pod, &claims, extended.as_ref(), statuses);
            pods_need_more |= release.is_none();
            // Pods can share a claim.
            of_pods.extend(release.filter(|it| released.insert(Arc::clone(&it.claim.uid))));
            tried.push(Tried { pod, claims, statuses });
        }
        let of_group = if pods_need_more && self.with_group_claims {
            self.release_of_group(&cx, cycle.group(), &tried, &released)
        } else {
            Ok(None)
        };
        drop(cx);
        for Release { command, .. } in of_pods {
            cycle.command(command);
        }
        let status = match of_group {
            Ok(Some(Release { command, status, .. })) => {
                cycle.command(command);
                status
            }
            // An error would drop what is released.
            Err(reason) if released.is_empty() => Status::error(reason),
            // As upstream, also if nothing was.
            _ => Status::unschedulable("deallocation and deletion of ResourceClaims completed"),
        };
        (Nominations::new(), status)
    }
}

/// A pod of the group that no node took.
struct Tried<'a> {
    pod: Arc<PodInfo>,
    claims: Box<[Arc<Object>]>,
    statuses: &'a NodeStatuses,
}

impl DynamicResources {
    /// What gives back a claim that only the group uses, unless one of its pods is on a node: one
    /// that keeps its pods off nodes loses its allocation, or another one its reservation. The
    /// error is upstream's, about the first claim of the group that is not there.
    fn release_of_group(
        &self,
        cx: &Context<'_>,
        group: &GroupKey,
        tried: &[Tried<'_>],
        released: &BTreeSet<Arc<str>>,
    ) -> Result<Option<Release>, String> {
        let is_active = cx.members_of(&group.key).is_some_and(|members| members.scheduled() > 0);
        let group = cx.forest().get(group).and_then(Typed::<PodGroup>::of);
        let (Some(group), Some(first)) = (group.filter(|_| !is_active), tried.first()) else {
            return Ok(None);
        };
        let uid = &*group.object.uid;
        for Tried { pod, claims, statuses } in tried {
            let unavailable = self.unavailable(cx, claims, statuses, |claim| {
                is_free_but_for(body(claim), uid) && !released.contains(&claim.uid)
            });
            if let Some(claim) = unavailable {
                return Ok(Some(Release {
                    command: release::deallocate(&claim, pod),
                    claim,
                    status: Status::unschedulable("deallocation of PodGroup ResourceClaim completed"),
                }));
            }
        }
        let claims = claims::named_by(group, |key| cx.object(&resources::RESOURCE_CLAIM, key))?;
        let reserved = claims.into_iter().find(|claim| {
            claim.allocation.is_some()
                && !released.contains(&claim.object.uid)
                && claim.is_reserved_for_group(group.object.name())
        });
        Ok(reserved.map(|claim| Release {
            claim: Arc::clone(claim.object),
            command: release::unreserve(claim.object, uid, &first.pod),
            status: Status::unresolvable("ResourceClaim unreserved for PodGroup"),
        }))
    }

    /// What gives back a claim of a pod, if one helps.
    fn release(
        &self,
        cx: &Context<'_>,
        pod: &PodInfo,
        claims: &[Arc<Object>],
        extended: Option<&ExtendedResources>,
        statuses: &NodeStatuses,
    ) -> Option<Release> {
        let uid = pod.uid.text();
        let unavailable = self.unavailable(cx, claims, statuses, |claim| is_free_but_for(body(claim), &uid));
        if let Some(claim) = unavailable {
            return Some(Release {
                command: release::deallocate(&claim, pod),
                claim,
                status: Status::unschedulable("deallocation of ResourceClaim completed"),
            });
        }
        let Some(ExtendedResources::Stale(claim)) = extended else { return None };
        Some(Release {
            claim: Arc::clone(claim),
            command: release::delete(claim, Some(pod)),
            status: Status::unschedulable("deletion of ResourceClaim completed"),
        })
    }

    /// The first of these claims that keeps a pod off a node.
    fn unavailable(
        &self,
        cx: &Context<'_>,
        claims: &[Arc<Object>],
        statuses: &NodeStatuses,
        is_asked_for: impl Fn(&Object) -> bool,
    ) -> Option<Arc<Object>> {
        // As upstream, claims do not count on a node where others cannot be allocated.
        let is_rejected_by_claims = |status: &Status| {
            status.plugin() == NAME && status.reasons().iter().any(|reason| *reason == UNAVAILABLE)
        };
        let nodes: Vec<_> = statuses
            .iter()
            .filter(|(_, status)| is_rejected_by_claims(status))
            .map(|(node, _)| cx.node(node).node())
            .collect();
        if nodes.is_empty() {
            return None;
        }
        let mut claims = once_each(claims).filter(|claim| is_allocated(claim) && is_asked_for(claim));
        let unavailable = claims.find(|claim| {
            self.is_unusable(cx, claim)
                || (limits_nodes(claim) && nodes.iter().any(|node| excludes(claim, node)))
        });
        unavailable.cloned()
    }
}

fn no_reason() -> Status {
    Status::with_reasons(Code::Unschedulable, Reasons::new())
}

/// Whether the claim is reserved for nobody else than the pod or group with this UID.
fn is_free_but_for(claim: &ResourceClaim, uid: &str) -> bool {
    match &*claim.reserved_for {
        [] => true,
        [only] => *only.uid == *uid,
        _ => false,
    }
}
