//! The claim that the scheduler creates for extended resources of a pod which devices provide.
//!
//! Until a node is chosen it is a template: each node may offer other resources itself, so that its
//! devices have to provide others.

use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};
use supercargo_devices::Demand;
use supercargo_framework::labels::Labels;
use supercargo_framework::objects::{
    Body, ClaimRequest, DeviceClass, DeviceCount, DeviceRequest, EXTENDED_RESOURCE_CLAIM, Object,
    RequestChoice, ResourceClaim, Typed, resources, uid_of_extended_resource_claim,
};
use supercargo_framework::pod::{ExtendedResource, OwnerRef};
use supercargo_framework::pod_claims::ExtendedRequest;
use supercargo_framework::resource::names;
use supercargo_framework::{Context, NodeRecord, PodInfo, Status};

/// Its name before the API server gives it one. No claim can have it.
const NAME: &str = "<extended-resources>";

/// The extended resources of a pod, at least one of them of devices.
pub(super) enum ExtendedResources {
    /// A claim of an earlier attempt. It may have devices that are no longer right, so it has to
    /// go.
    Stale(Arc<Object>),
    /// The claim to create.
    New(Box<NewClaim>),
}

/// The claim to create, and its variants by node.
pub(super) struct NewClaim {
    wanted: Box<[Wanted]>,
    requests: Box<[ExtendedResource]>,
    template: Object,
    variants: Mutex<Vec<Arc<Variant>>>,
}

/// Which of the wanted resources a node offers itself.
pub(super) type Offers = Box<[bool]>;

/// An extended resource that the pod requests.
struct Wanted {
    name: Arc<str>,
    /// The DeviceClass that provides it, if any.
    class: Option<Arc<str>>,
}

/// What has to be allocated for a pod on some nodes.
pub(super) struct Variant {
    /// All claims without an allocation.
    pub(super) demand: Demand,
    /// The claim to create, and the resources that the nodes offer.
    pub(super) new: Option<(Arc<Object>, Offers)>,
}

/// The claim to create for some nodes.
#[derive(Clone)]
pub(super) struct Created {
    /// The claim, without a name of its own.
    pub(super) claim: Arc<Object>,
    /// Which request serves which container.
    pub(super) mappings: Arc<[ExtendedRequest]>,
}

/// The extended resources of a pod, if any of them is of devices.
pub(super) fn of_pod(cx: &Context<'_>, pod: &PodInfo) -> Option<ExtendedResources> {
    let new = NewClaim::of_pod(pod, |name| cx.class_of_resource(name))?;
    Some(match claims_of(cx, pod).first() {
        Some(claim) => ExtendedResources::Stale(Arc::clone(claim)),
        None => ExtendedResources::New(Box::new(new)),
    })
}

/// The extended resources that the pod requests and that devices could provide.
pub(super) fn wanted(pod: &PodInfo) -> impl Iterator<Item = &Arc<str>> {
    let scalars = pod.spec.requests.resource.scalars().iter();
    scalars.filter(|(name, amount)| *amount != 0 && names::is_of_devices(name)).map(|(name, _)| name)
}

/// The claims for extended resources that exist for the pod: at most one, unless something went
/// wrong. Reading them is not recorded, as that of other claims of the pod.
pub(super) fn claims_of<'a>(cx: &Context<'a>, pod: &PodInfo) -> Vec<&'a Arc<Object>> {
    let uid = pod.uid.text();
    let claims = cx.untracked(|| cx.claims_of_owner(&uid)).map(|claim| claim.object);
    claims.filter(|claim| claim.is_extended_resource_claim()).collect()
}

fn template(pod: &PodInfo) -> Object {
    let owner = OwnerRef {
        api_version: "v1".into(),
        kind: "Pod".into(),
        name: Arc::clone(&pod.name),
        uid: (*pod.uid.text()).into(),
    };
    let raw = json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "namespace": pod.namespace,
            "generateName": format!("{}-extended-resources-", pod.name),
            "annotations": { EXTENDED_RESOURCE_CLAIM: "true" },
            "ownerReferences": [{
                "apiVersion": owner.api_version,
                "kind": owner.kind,
                "name": owner.name,
                "uid": owner.uid,
                "controller": true,
            }],
        },
        "spec": { "devices": {} },
    });
    Object {
        resource: resources::RESOURCE_CLAIM,
        key: format!("{}/{NAME}", pod.namespace).into(),
        uid: uid_of_extended_resource_claim(&owner.uid),
        resource_version: "".into(),
        labels: Labels::default(),
        annotations: [(EXTENDED_RESOURCE_CLAIM, "true")].into_iter().collect(),
        terminating: false,
        controller: Some(Arc::new(owner)),
        node_name: None,
        body: Body::ResourceClaim(ResourceClaim { raw: Arc::new(raw), ..ResourceClaim::default() }),
    }
}

impl NewClaim {
    /// The claim for a pod; `None` if no extended resource that it requests is of devices.
    pub(super) fn of_pod<'a>(
        pod: &PodInfo,
        class_of: impl Fn(&str) -> Option<Typed<'a, DeviceClass>>,
    ) -> Option<Self> {
        let wanted: Box<[Wanted]> = wanted(pod)
            .map(|name| {
                let class = class_of(name).map(|class| Arc::clone(&class.object.key));
                Wanted { name: Arc::clone(name), class }
            })
            .collect();
        wanted.iter().any(|wanted| wanted.class.is_some()).then(|| Self {
            wanted,
            requests: pod.spec.extended_resources().into(),
            template: template(pod),
            variants: Mutex::default(),
        })
    }

    /// What has to be allocated on a node; nothing if the node itself offers all, and `has_claims`,
    /// which is whether the pod names claims, is false. `demand` prepares the allocation with this
    /// claim.
    pub(super) fn on_node(
        &self,
        node: &NodeRecord,
        has_claims: bool,
        demand: impl FnOnce(&Arc<Object>) -> Demand,
    ) -> Result<Option<Arc<Variant>>, Status> {
        let is_missing = |it: &Wanted| it.class.is_none() && !node.allocatable.reports(&it.name);
        if self.wanted.iter().any(is_missing) {
            return Err(Status::unresolvable("cannot fit resource"));
        }
        // NodeResourcesFit decides about what has no class.
        let is_offered = |it: &Wanted| it.class.is_none() || node.allocatable.scalar(&it.name) != 0;
        if !has_claims && self.wanted.iter().all(is_offered) {
            return Ok(None);
        }
        let mut variants = self.variants.lock().unwrap_or_else(PoisonError::into_inner);
        let is_of_node = |offers: &[bool]| self.wanted.iter().map(is_offered).eq(offers.iter().copied());
        let is_for_node = |it: &&Arc<Variant>| it.new.as_ref().is_some_and(|(_, offers)| is_of_node(offers));
        if let Some(known) = variants.iter().find(is_for_node) {
            return Ok(Some(Arc::clone(known)));
        }
        let offers: Offers = self.wanted.iter().map(is_offered).collect();
        let claim = Arc::new(self.claim(&offers));
        let variant = Arc::new(Variant { demand: demand(&claim), new: Some((claim, offers)) });
        variants.push(Arc::clone(&variant));
        Ok(Some(variant))
    }

    /// The bytes of selectors in all variants.
    pub(super) fn bytes(&self) -> usize {
        let variants = self.variants.lock().unwrap_or_else(PoisonError::into_inner);
        variants.iter().map(|variant| variant.demand.bytes()).sum()
    }

    /// The claim for nodes that offer these of the wanted resources.
    pub(super) fn claim(&self, offers: &[bool]) -> Object {
        let lacking = self.lacking(offers);
        let mut requests: Vec<_> = lacking.flat_map(|(class, users)| users.requests(class)).collect();
        requests.sort_by(|one, other| one.0.cmp(&other.0));
        let mut claim = self.template.clone();
        if let Body::ResourceClaim(body) = &mut claim.body {
            if !requests.is_empty() {
                let raw = Arc::make_mut(&mut body.raw);
                raw["spec"]["devices"]["requests"] = requests.iter().map(raw_request).collect();
            }
            body.requests = requests.into_iter().map(claim_request).collect();
        }
        claim
    }

    /// Which request of that claim serves which container. Called once there are enough devices, so
    /// that the requests are few.
    pub(super) fn mappings(&self, offers: &[bool]) -> Arc<[ExtendedRequest]> {
        self.lacking(offers).flat_map(|(_, users)| users.mappings()).collect()
    }

    /// The resources that devices have to provide: their classes, and who uses them.
    fn lacking(&self, offers: &[bool]) -> impl Iterator<Item = (&Arc<str>, Users<'_>)> {
        self.wanted.iter().zip(offers).filter_map(|(wanted, is_offered)| {
            let class = wanted.class.as_ref().filter(|_| !is_offered)?;
            Some((class, Users::new(self.requests.iter().filter(|it| it.resource == wanted.name))))
        })
    }
}

/// A request: its name, its class and the number of devices.
type Request = (Arc<str>, Arc<str>, i64);

fn raw_request((name, class, count): &Request) -> Value {
    let exactly = json!({ "deviceClassName": class, "allocationMode": "ExactCount", "count": count });
    json!({ "name": name, "exactly": exactly })
}

fn claim_request((name, class, count): Request) -> ClaimRequest {
    let count = DeviceCount::Exact(count);
    ClaimRequest {
        name,
        choice: RequestChoice::Exactly(DeviceRequest { class, count, ..DeviceRequest::default() }),
    }
}

/// The containers that use one resource.
///
/// Same as upstream: an init container that ends before others start uses the devices of containers
/// that come later. If the largest init container needs more devices than these have, one more
/// request adds the rest.
struct Users<'a> {
    lasting: Vec<&'a ExtendedResource>,
    short_lived: Vec<&'a ExtendedResource>,
    /// The init container that lacks most, and what it lacks.
    largest: Option<(&'a ExtendedResource, i64)>,
}

impl<'a> Users<'a> {
    fn new(all: impl Iterator<Item = &'a ExtendedResource>) -> Self {
        let (short_lived, lasting): (Vec<_>, Vec<_>) = all.partition(|it| it.is_short_lived);
        // The devices of those that come at a place or later.
        let mut later: Vec<(u32, i64)> = lasting.iter().map(|it| (it.place, it.count)).collect();
        later.sort_unstable();
        let mut sum = 0_i64;
        for (_, count) in later.iter_mut().rev() {
            sum = sum.saturating_add(*count);
            *count = sum;
        }
        let mut largest: Option<(&ExtendedResource, i64)> = None;
        for it in &short_lived {
            let place = later.partition_point(|(place, _)| *place < it.place);
            let missing = it.count - later.get(place).map_or(0, |(_, count)| *count);
            if missing > largest.map_or(0, |(_, most)| most) {
                largest = Some((it, missing));
            }
        }
        Self { lasting, short_lived, largest }
    }

    fn requests(self, class: &Arc<str>) -> impl Iterator<Item = Request> + use<'_, 'a> {
        let lasting = self.lasting.into_iter().map(|it| (it, it.count));
        let all = self.largest.into_iter().chain(lasting);
        all.map(|(it, count)| (name_of(it), Arc::clone(class), count))
    }

    fn mappings(self) -> Vec<ExtendedRequest> {
        let mut mappings: Vec<_> = self.lasting.iter().map(|it| mapping(it, name_of(it))).collect();
        for it in &self.short_lived {
            let mut missing = it.count;
            for later in self.lasting.iter().filter(|later| later.place >= it.place) {
                if missing <= 0 {
                    break;
                }
                mappings.push(mapping(it, name_of(later)));
                missing = missing.saturating_sub(later.count);
            }
            let largest = self.largest.filter(|_| missing > 0);
            mappings.extend(largest.map(|(largest, _)| mapping(it, name_of(largest))));
        }
        mappings
    }
}

fn name_of(it: &ExtendedResource) -> Arc<str> {
    format!("container-{}-request-{}", it.place, it.resource_place).into()
}

fn mapping(it: &ExtendedResource, request: Arc<str>) -> ExtendedRequest {
    let (container, resource) = (Arc::clone(&it.container), Arc::clone(&it.resource));
    ExtendedRequest { container, resource, request }
}
