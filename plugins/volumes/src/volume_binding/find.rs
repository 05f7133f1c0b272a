//! Volumes for a pod's claims on one node.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use smallvec::{SmallVec, smallvec};
use supercargo_framework::objects::{Object, resources};
use supercargo_framework::small_map::FEW;
use supercargo_framework::status::Reasons;
use supercargo_framework::{Code, Context, Labels, NodeInfo, Status, Text, steps};

use super::available::Candidates;
use super::claims::Claims;
use super::delayed::{ClassClaims, DelayedClaim, ProvisionableSize, View};
use super::reach::Viewpoint;

const OUT_OF_REACH: Text = Text::Static("node(s) didn't match PersistentVolume's node affinity");
const NO_VOLUME: Text = Text::Static("node(s) didn't find available persistent volumes to bind");
const NO_STORAGE: Text = Text::Static("node(s) did not have enough free storage");
const LOST_VOLUME: Text =
    Text::Static("node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)");

/// A claim with its assignment.
type Given<'a, T> = (&'a DelayedClaim, T);

/// Volumes for a pod's claims on one node.
#[derive(Default)]
pub(super) struct PodVolumes<'a> {
    /// Claims with their volumes.
    pub(super) bindings: SmallVec<[Given<'a, &'a Arc<Object>>; 4]>,
    /// Claims to provision, with the capacities that can serve them.
    pub(super) provisions: SmallVec<[Given<'a, Option<&'a Arc<Object>>>; 4]>,
}

/// The reason why a node is rejected for unbound claims.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shortage {
    Volume,
    Storage,
}

impl Shortage {
    /// What every claim of a class lacks that has neither a volume nor this room.
    fn of(room: ProvisionableSize) -> Self {
        if room == ProvisionableSize::Nothing { Self::Volume } else { Self::Storage }
    }
}

impl Claims {
    /// Whether there are volumes for the claims on a node: whether [`find`](Self::find) succeeds.
    /// The claims are evaluated once for all nodes that can access the same volumes.
    pub(super) fn check(&self, cx: &Context<'_>, node: &NodeInfo) -> Result<(), Status> {
        self.on_node(cx, node, |labels| self.shortage(labels).map_or(Ok(()), Err))
    }

    /// Finds volumes for the claims on a node. Does not allocate for up to four claims of a kind.
    pub(super) fn find(&self, cx: &Context<'_>, node: &NodeInfo) -> Result<PodVolumes<'_>, Status> {
        self.on_node(cx, node, |labels| self.assign(labels))
    }

    /// Evaluates the claims on a node; `delayed` evaluates those with delayed binding.
    fn on_node<T>(
        &self,
        cx: &Context<'_>,
        node: &NodeInfo,
        delayed: impl FnOnce(&Labels) -> Result<T, Shortage>,
    ) -> Result<T, Status> {
        let labels = &node.node().labels;
        let csi_node = || cx.object(&resources::CSI_NODE, node.name()).map(|object| &**object);
        let unreachable = self.unreachable(Viewpoint {
            labels,
            csi_node: self.depend_on_csi_node().then(csi_node).flatten(),
        })?;
        let found = if !self.candidates.include(node.name()) {
            Err(Shortage::Volume)
        } else if let Some(error) = &self.unmatchable {
            return Err(Status::error(error.clone()));
        } else {
            delayed(labels)
        };
        match (found, unreachable) {
            (Ok(found), None) => Ok(found),
            (found, unreachable) => Err(rejection(found.err(), unreachable)),
        }
    }

    /// The reason of the first bound claim in the pod's order whose volume the node cannot access.
    fn unreachable(&self, from: Viewpoint<'_>) -> Result<Option<Text>, Status> {
        for volume in &self.bound {
            match volume {
                None => return Ok(Some(LOST_VOLUME)),
                Some(reach) if reach.includes(from).map_err(Status::error)? => {}
                Some(_) => return Ok(Some(OUT_OF_REACH)),
            }
        }
        Ok(None)
    }

    /// The volumes and storage for claims with delayed binding.
    fn assign(&self, labels: &Labels) -> Result<PodVolumes<'_>, Shortage> {
        let views: SmallVec<[View; 2]> = self.classes.iter().map(|class| class.view(labels)).collect();
        let mut matchings: SmallVec<[_; 2]> =
            self.classes.iter().zip(&views).map(|(class, view)| Matching::new(class, view)).collect();
        let mut found = PodVolumes::default();
        let mut unmatched: SmallVec<[&DelayedClaim; 4]> = SmallVec::new();
        for claim in self.to_match.iter().map(|i| &self.delayed[*i]) {
            match matchings[claim.class].take(claim) {
                Some(volume) => found.bindings.push((claim, volume)),
                None => unmatched.push(claim),
            }
        }
        for claim in self.selected.iter().map(|i| &self.delayed[*i]).chain(unmatched) {
            let room = views[claim.class].room;
            if !room.has_place_for(claim.request) {
                return Err(Shortage::of(room));
            }
            found.provisions.push((claim, self.classes[claim.class].storage_for(claim, labels)));
        }
        Ok(found)
    }

    /// The error of [`assign`](Self::assign).
    fn shortage(&self, labels: &Labels) -> Option<Shortage> {
        let views = self.classes.iter().map(|class| (class, class.view(labels)));
        let lacking: SmallVec<[_; 2]> = views.filter(|(class, view)| self.lacks(class, view)).collect();
        let shortage_of = |(_, view): &(_, View)| Shortage::of(view.room);
        let shortage = shortage_of(lacking.first()?);
        if lacking.iter().all(|other| shortage_of(other) == shortage) {
            return Some(shortage);
        }
        // Claims of several classes lack different things: the first claim decides.
        let first = lacking.iter().min_by_key(|(class, view)| {
            let claim = self.first_lacking(class, view)?;
            let is_open = self.delayed[claim].selected_node().is_none();
            Some((is_open, if is_open { self.delayed[claim].size() } else { 0 }, claim))
        });
        first.map(shortage_of)
    }

    /// Whether any claim of the class gets neither a volume nor storage.
    fn lacks(&self, class: &ClassClaims, view: &View) -> bool {
        self.selected_lacks(class, view).is_some()
            || remember(&class.lacking, class, view, || self.open_lack(class, view))
    }

    /// The first claim that gets neither a volume nor storage.
    fn first_lacking(&self, class: &ClassClaims, view: &View) -> Option<usize> {
        self.selected_lacks(class, view).or_else(|| {
            remember(&class.first_lacking, class, view, || {
                Matching::new(class, view).first_lacking(&self.delayed, None)
            })
        })
    }

    /// The first claim with a selected node that gets no storage.
    fn selected_lacks(&self, class: &ClassClaims, view: &View) -> Option<usize> {
        let lacks = |i: &usize| !view.room.has_place_for(self.delayed[*i].request);
        class.selected.iter().copied().find(lacks)
    }

    fn open_lack(&self, class: &ClassClaims, view: &View) -> bool {
        let Some((large, largest)) = class.without_storage(&self.delayed, view.room) else { return false };
        // The largest claim alone is quickly rejected on most nodes that do not fit.
        if large > Matching::most(class, view)
            || Matching::new(class, view).take(&self.delayed[largest]).is_none()
        {
            return true;
        }
        class.open.len() > 1 && Matching::new(class, view).first_lacking(&self.delayed, Some(large)).is_some()
    }
}

/// The answer for a view, computed once if there are many claims.
fn remember<T: Copy>(
    answers: &Mutex<BTreeMap<View, T>>,
    class: &ClassClaims,
    view: &View,
    compute: impl FnOnce() -> T,
) -> T {
    if class.open.len() <= FEW {
        return compute();
    }
    let mut answers = answers.lock().unwrap_or_else(PoisonError::into_inner);
    steps::add(1);
    let view = class.equivalent(view);
    if let Some(known) = answers.get(&view) {
        return *known;
    }
    let answer = compute();
    answers.insert(view, answer);
    answer
}

/// The assignment of a class's volumes to claims on one node.
struct Matching<'a, 'v> {
    class: &'a ClassClaims,
    view: &'v View,
    candidates: Candidates<'a>,
    /// For each claim with volumes of its own, how many of them are taken.
    own_taken: SmallVec<[usize; 4]>,
}

impl<'a, 'v> Matching<'a, 'v> {
    fn new(class: &'a ClassClaims, view: &'v View) -> Self {
        Self {
            class,
            view,
            candidates: class.available.candidates(&view.reached),
            own_taken: smallvec![0; class.own.len()],
        }
    }

    /// At least the number of claims that can get a volume.
    fn most(class: &ClassClaims, view: &View) -> usize {
        let own: usize = class.own.iter().map(Vec::len).sum();
        own + class.available.count(&view.reached)
    }

    /// Assigns a volume to a claim that is not smaller than those before: one of its own if any is
    /// left, otherwise the smallest free one. A claim whose own volume is not accessible gets none.
    fn take(&mut self, claim: &DelayedClaim) -> Option<&'a Arc<Object>> {
        steps::add(1);
        if let Some(own) = claim.own
            && let Some((place, volume)) = self.class.own[own].get(self.own_taken[own])
        {
            let is_reached = self.view.reached.binary_search(place).is_ok();
            self.own_taken[own] += usize::from(is_reached);
            return is_reached.then_some(volume);
        }
        self.candidates.take(claim.size(), |sort| self.class.suits(claim, sort))
    }

    /// The first open claim that gets neither a volume nor storage. If the number of claims without
    /// storage is given, any such claim.
    fn first_lacking(mut self, claims: &[DelayedClaim], mut large: Option<usize>) -> Option<usize> {
        let mut free = Self::most(self.class, self.view);
        for i in &self.class.open {
            let has_storage = self.view.room.has_place_for(claims[*i].request);
            match self.take(&claims[*i]) {
                Some(_) => free -= 1,
                None if has_storage => {}
                None => return Some(*i),
            }
            if let Some(large) = &mut large {
                *large -= usize::from(!has_storage);
                if free < *large {
                    // Smaller claims have taken the volumes.
                    return Some(*i);
                }
            }
        }
        None
    }
}

/// The rejection of a node, with the reasons in upstream's order.
fn rejection(shortage: Option<Shortage>, unreachable: Option<Text>) -> Status {
    let lacking = shortage.map(|shortage| match shortage {
        Shortage::Volume => NO_VOLUME,
        Shortage::Storage => NO_STORAGE,
    });
    let is_lost = unreachable.as_ref() == Some(&LOST_VOLUME);
    let (first, last) = if is_lost { (lacking, unreachable) } else { (unreachable, lacking) };
    let reasons: Reasons = first.into_iter().chain(last).collect();
    Status::with_reasons(Code::UnschedulableAndUnresolvable, reasons)
}
