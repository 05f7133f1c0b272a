//! The claims to allocate, prepared once for all nodes.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use supercargo_framework::objects::{
    DeviceClass, DeviceCount, DeviceRequest, DeviceTaint, DeviceToleration, DeviceTolerationOperator, Object,
    ObjectBody as _, RequestChoice, ResourceClaim,
};

use crate::capacity::{RequestedAmounts, requested};
use crate::constraints::Constraint;
use crate::features::Features;
use crate::selectors::{Matches, Selectors};

/// The claims of a pod that have no devices yet.
///
/// It holds what does not depend on a node. Errors in the claims come out per node, as upstream's
/// do: the first one in the order of claims and requests.
#[derive(Debug)]
pub struct Demand {
    pub(crate) features: Features,
    pub(crate) claims: Box<[ClaimDemand]>,
    /// Of all requests, in order.
    pub(crate) alternatives: Box<[Alternative]>,
}

#[derive(Debug)]
pub(crate) struct ClaimDemand {
    pub(crate) object: Arc<Object>,
    pub(crate) requests: Box<[RequestDemand]>,
    pub(crate) constraints: Box<[Constraint]>,
    /// The first constraint of an unknown kind.
    pub(crate) constraint_error: Option<Box<str>>,
}

#[derive(Debug)]
pub(crate) struct RequestDemand {
    pub(crate) name: Arc<str>,
    pub(crate) alternatives: Range<usize>,
    /// Whether there are alternatives (`firstAvailable`), be it a single one.
    pub(crate) is_prioritized: bool,
    /// Why it cannot be handled at all.
    pub(crate) error: Option<Box<str>>,
}

/// A request, or one of the alternatives in it.
#[derive(Debug)]
pub(crate) struct Alternative {
    pub(crate) name: Arc<str>,
    /// The name in results: `request` or `request/subrequest`.
    pub(crate) full_name: Arc<str>,
    /// The claim, the request and the alternative in it.
    place: (usize, usize, usize),
    pub(crate) class: Option<Arc<Object>>,
    pub(crate) selectors: Option<Arc<Selectors>>,
    pub(crate) count: DeviceCount,
    pub(crate) is_admin: bool,
    pub(crate) capacity: RequestedAmounts,
    /// For each constraint of the claim, whether it covers this.
    pub(crate) constrained: Box<[bool]>,
    /// Why it cannot be handled.
    pub(crate) error: Option<Box<str>>,
}

impl Demand {
    /// Prepares claims. `class` looks a DeviceClass up by its name; objects that are no claims are
    /// ignored.
    pub fn new(
        features: Features,
        claims: &[Arc<Object>],
        class: impl Fn(&str) -> Option<Arc<Object>>,
        matches: &mut Matches,
    ) -> Self {
        let mut builder = Builder {
            texts: BTreeSet::new(),
            text_bytes: 0,
            features,
            class: &class,
            matches,
            alternatives: Vec::new(),
        };
        let claims = claims.iter().filter(|object| ResourceClaim::of(&object.body).is_some());
        let claims = claims.enumerate().map(|(place, object)| builder.claim(place, object)).collect();
        Self { features, claims, alternatives: builder.alternatives.into() }
    }

    /// The approximate size in bytes, with compiled selectors.
    pub fn bytes(&self) -> usize {
        let selectors = self.alternatives.iter().flat_map(|alternative| &alternative.selectors);
        let requests: usize = self.claims.iter().map(|claim| size_of_val(&*claim.requests)).sum();
        let parts = size_of_val(&*self.claims) + size_of_val(&*self.alternatives) + requests;
        parts + selectors.map(|selectors| selectors.bytes()).sum::<usize>()
    }

    /// The API's request of an alternative.
    pub(crate) fn request(&self, alternative: &Alternative) -> &DeviceRequest {
        let (claim, request, sub) = alternative.place;
        match &self.claims[claim].spec().requests[request].choice {
            RequestChoice::Exactly(request) => request,
            RequestChoice::FirstAvailable(requests) => &requests[sub],
            RequestChoice::Unknown => unreachable!("a request of an unknown form has no alternative"),
        }
    }

    /// Whether a request tolerates all of these taints, which keep pods off.
    pub(crate) fn tolerates(&self, alternative: &Alternative, taints: &[DeviceTaint]) -> bool {
        let tolerations = &self.request(alternative).tolerations;
        taints.iter().all(|taint| tolerations.iter().any(|toleration| tolerates(toleration, taint)))
    }
}

/// Same as upstream's `ToleratesTaint`.
fn tolerates(toleration: &DeviceToleration, taint: &DeviceTaint) -> bool {
    toleration.effect.is_none_or(|effect| effect == taint.effect)
        && (toleration.key.is_empty() || toleration.key == taint.key)
        && match toleration.operator {
            DeviceTolerationOperator::Equal => toleration.value == taint.value,
            DeviceTolerationOperator::Exists => true,
            DeviceTolerationOperator::Unknown => false,
        }
}

impl ClaimDemand {
    pub(crate) fn spec(&self) -> &ResourceClaim {
        ResourceClaim::of(&self.object.body).expect("a demand is made of ResourceClaims only")
    }
}

impl Alternative {
    pub(crate) fn class(&self) -> Option<&DeviceClass> {
        DeviceClass::of(&self.class.as_ref()?.body)
    }
}

/// The length of all selectors of a demand, in bytes, beyond which they are not compiled. Regular
/// expressions take microseconds per byte.
const MAX_SELECTOR_BYTES: usize = 32 << 10;

struct Builder<'a, F> {
    /// The selectors so far, each once, and their length.
    texts: BTreeSet<Arc<str>>,
    text_bytes: usize,
    features: Features,
    class: &'a F,
    matches: &'a mut Matches,
    alternatives: Vec<Alternative>,
}

impl<F: Fn(&str) -> Option<Arc<Object>>> Builder<'_, F> {
    fn claim(&mut self, place: usize, object: &Arc<Object>) -> ClaimDemand {
        let spec = ResourceClaim::of(&object.body).expect("other objects are filtered out");
        let key = &*object.key;
        let mut constraints = Vec::new();
        let mut constraint_error = None;
        for (i, constraint) in spec.constraints.iter().enumerate() {
            match Constraint::new(&constraint.rule, &constraint.requests, self.features.is_stable()) {
                Some(constraint) => constraints.push(constraint),
                None if constraint_error.is_none() => {
                    let text = "empty constraint (unsupported constraint type?)";
                    constraint_error = Some(format!("claim {key}, constraint #{i}: {text}").into());
                }
                None => {}
            }
        }
        let mut requests = Vec::new();
        for (i, request) in spec.requests.iter().enumerate() {
            let first = self.alternatives.len();
            let (list, is_prioritized) = match &request.choice {
                RequestChoice::Exactly(request) => (std::slice::from_ref(request), false),
                RequestChoice::FirstAvailable(list) => (&**list, !list.is_empty()),
                RequestChoice::Unknown => (&[][..], false),
            };
            for (sub, alternative) in list.iter().enumerate() {
                let name = if is_prioritized { &alternative.name } else { &request.name };
                let full_name =
                    if is_prioritized { format!("{}/{name}", request.name).into() } else { Arc::clone(name) };
                let constrained = constraints.iter().map(|it| it.covers(&request.name, &full_name)).collect();
                let built = self.alternative(key, name, alternative);
                let place = (place, i, sub);
                self.alternatives.push(Alternative { full_name, place, constrained, ..built });
            }
            requests.push(RequestDemand {
                name: Arc::clone(&request.name),
                alternatives: first..self.alternatives.len(),
                is_prioritized,
                error: self.request_error(key, &request.name, list, is_prioritized),
            });
        }
        let (requests, constraints) = (requests.into(), constraints.into());
        ClaimDemand { object: Arc::clone(object), requests, constraints, constraint_error }
    }

    /// Why the enabled features cannot handle a request at all.
    fn request_error(
        &self,
        claim: &str,
        name: &str,
        list: &[DeviceRequest],
        is_prioritized: bool,
    ) -> Option<Box<str>> {
        if list.is_empty() {
            // Upstream's plugin refuses it before.
            let text = "missing device class name (unsupported request type?)";
            return Some(format!("claim {claim}, request {name}: {text}").into());
        }
        if is_prioritized && !self.features.prioritized_list {
            let text = "has subrequests, but the DRAPrioritizedList feature is disabled";
            return Some(format!("claim {claim}, request {name}: {text}").into());
        }
        if self.features.consumable_capacity || self.features.is_stable() {
            return None;
        }
        let wanting = list.iter().find(|request| request.capacity.is_some())?;
        let text = "has capacity requests, but the DRAConsumableCapacity feature is disabled";
        Some(if is_prioritized {
            format!("claim {claim}, subrequest {}: {text}", wanting.name).into()
        } else {
            format!("claim {claim}, request {name}: {text}").into()
        })
    }

    fn alternative(&mut self, claim: &str, name: &Arc<str>, request: &DeviceRequest) -> Alternative {
        let mut built = Alternative {
            name: Arc::clone(name),
            full_name: Arc::clone(name),
            place: (0, 0, 0),
            class: None,
            selectors: None,
            count: request.count.clone(),
            is_admin: request.admin_access == Some(true),
            capacity: request.capacity.as_ref().map(requested).unwrap_or_default(),
            constrained: Box::default(),
            error: None,
        };
        if let Err(text) = self.check(&mut built, request) {
            built.error = Some(format!("claim {claim}, request {name}{text}").into());
        }
        built
    }

    /// Finds the class and the selectors. An error is what follows the request's name.
    fn check(&mut self, built: &mut Alternative, request: &DeviceRequest) -> Result<(), String> {
        if request.has_derived_attributes {
            return Err(": cannot handle request with derived attributes, the feature is disabled".into());
        }
        let selectors: Box<[Arc<str>]> = request.selectors.iter().flatten().cloned().collect();
        if let Some(unknown) = request.selectors.iter().position(Option::is_none) {
            return Err(format!(", selector #{unknown}: CEL expression empty (unsupported selector type?)"));
        }
        if request.admin_access.is_some() && !self.features.admin_access {
            return Err(": admin access is requested, but the feature is disabled".into());
        }
        if request.class.is_empty() {
            return Err(": missing device class name (unsupported request type?)".into());
        }
        let object = (self.class)(&request.class);
        let class = object.as_ref().and_then(|object| DeviceClass::of(&object.body)).ok_or_else(|| {
            let name = &request.class;
            format!(
                ": could not retrieve device class {name}: deviceclass.resource.k8s.io \"{name}\" not found"
            )
        })?;
        // Upstream does not check the kinds of a class's selectors.
        let of_class: Box<[Arc<str>]> =
            class.selectors.iter().map(|selector| selector.clone().unwrap_or_default()).collect();
        for text in of_class.iter().chain(&selectors) {
            self.text_bytes += if self.texts.insert(Arc::clone(text)) { text.len() } else { 0 };
        }
        if self.text_bytes > MAX_SELECTOR_BYTES {
            return Err(format!(": the selectors of all claims are longer than {MAX_SELECTOR_BYTES} bytes"));
        }
        built.selectors = Some(self.matches.compile(of_class, selectors, self.features.is_stable()));
        built.class = object;
        match &request.count {
            DeviceCount::Unknown(mode) => Err(format!(": unsupported count mode {mode}")),
            DeviceCount::Exact(_) | DeviceCount::All => Ok(()),
        }
    }
}
