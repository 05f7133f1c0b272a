//! The allocator of dynamic resource allocation: which devices a pod's claims get on a node.
//!
//! Same as upstream's `k8s.io/dynamic-resource-allocation/structured` 0.37.2: the same devices in
//! the same order, the same errors, and the same number of steps. [`Features`] chooses between
//! upstream's allocators `incubating` and `stable` as upstream does.
//!
//! # Example
//!
//! ```
//! use std::sync::Arc;
//! use supercargo_devices::{AllocatedState, Budget, Cluster, Demand, Features, Inventory, Matches};
//! use supercargo_framework::hash_seed::HashSeed;
//! use supercargo_framework::objects::{Device, DeviceClass, DevicePlace, DeviceRequest, ClaimRequest, Object};
//! use supercargo_framework::objects::{RequestChoice, ResourceClaim, ResourceSlice};
//! use supercargo_framework::NodeRecord;
//! # use supercargo_framework::objects::{Body, ObjectBody};
//! # fn object(key: &str, body: Body) -> Arc<Object> {
//! #     Arc::new(Object {
//! #         resource: "".into(), key: key.into(), uid: "".into(), resource_version: "".into(), labels: Default::default(),
//! #         annotations: Default::default(), terminating: false, controller: None, node_name: None, body,
//! #     })
//! # }
//!
//! // A node with one device,
//! let seed = HashSeed::new(1);
//! let mut inventory = Inventory::new(seed.clone());
//! inventory.insert(&object("slice", Body::ResourceSlice(ResourceSlice {
//!     driver: "gpu.example.com".into(),
//!     pool: "node1".into(),
//!     slice_count: 1,
//!     place: DevicePlace::Node("node1".into()),
//!     devices: Box::new([Device { name: "gpu0".into(), ..Device::default() }]),
//!     ..ResourceSlice::default()
//! })));
//! // and a claim for one.
//! let request = DeviceRequest { class: "gpu".into(), ..DeviceRequest::default() };
//! let claim = object("default/claim", Body::ResourceClaim(ResourceClaim {
//!     requests: Box::new([ClaimRequest { name: "gpu".into(), choice: RequestChoice::Exactly(request) }]),
//!     ..ResourceClaim::default()
//! }));
//! let class = object("gpu", Body::DeviceClass(DeviceClass::default()));
//!
//! let mut matches = Matches::new(&seed);
//! let class_of = |name: &str| (name == "gpu").then(|| class.clone());
//! let demand = Demand::new(Features::default(), &[claim], class_of, &mut matches);
//! let node = NodeRecord { name: "node1".into(), ..NodeRecord::default() };
//! let allocated = AllocatedState::new(seed);
//! let cluster = Cluster { inventory: &inventory, allocated: &allocated };
//! let mut budget = Budget::new(1_000);
//! let found = demand.allocate(cluster, &node, &mut matches, &mut budget, &mut || None).unwrap();
//! let found = found.expect("the device is free");
//!
//! let claims = found.into_claims(&demand, "node1", &mut || unreachable!("nothing is shared"));
//! assert_eq!(&*claims[0].results[0].device.device, "gpu0");
//! assert_eq!(claims[0].raw["devices"]["results"][0]["pool"], "node1");
//! ```
//!
//! # Cost
//!
//! A question about a node reads the slices that name the node and those that name none. Selectors
//! are compiled once, and asked once about each version of a slice ([`Matches`]). The search itself
//! is exponential, as upstream's is: a caller ends it by `interrupt`, which is asked before each
//! step, or limits all searches of an attempt by a [`Budget`].
//!
//! # Differences
//!
//! * Where upstream's order is random, this one's is that of names: slices of one pool, pools of
//!   the allocator `stable`, capacities with several errors.
//! * Slices of a pool that disagree about their number: the first one by name counts, one of the
//!   node first.
//! * Upstream panics where a request has no known form, and divides by zero where a range of
//!   capacity has a step of zero: here both are refused.
//! * Quantities beyond 128 bits of billionths count as the largest.
//! * A selector that runs is not interrupted: its cost and the budget limit it.
//! * Selectors of more than 32 KiB in all are refused.
//! * With a limited budget, a search ends at its first step back if some request has too few
//!   devices whatever the others get. The answer is the same, after fewer steps.

mod allocated;
mod answers;
mod budget;
mod capacity;
mod census;
mod constraints;
mod count;
mod counters;
mod demand;
mod error;
mod features;
mod inventory;
mod node_match;
mod outcome;
mod plan;
mod pools;
pub mod readiness;
mod search;
mod selectors;
mod sight;
mod sum;

use std::sync::Arc;

use supercargo_framework::NodeRecord;

pub use allocated::AllocatedState;
pub use budget::Budget;
pub use census::{Census, CensusKey, Tally, census};
pub use count::ClassCounter;
pub use demand::Demand;
pub use error::AllocateError;
pub use features::Features;
pub use inventory::{Inventory, Reach};
pub use outcome::Allocation;
pub use selectors::Matches;

use crate::plan::{Devices, Matcher};
use crate::pools::PoolState;
use crate::search::Search;

/// The state of the cluster, for which a demand is answered.
#[derive(Clone, Copy, Debug)]
pub struct Cluster<'a> {
    /// The devices.
    pub inventory: &'a Inventory,
    /// Those that claims have, in the API or in flight.
    pub allocated: &'a AllocatedState,
}

impl Demand {
    /// Allocates all claims on a node; nothing if they do not fit. Same as upstream's `Allocate`.
    ///
    /// `interrupt` is asked before each step, where upstream looks at its context: a reason ends
    /// the search with [`AllocateError::Aborted`]. `matches` belongs to the inventory, and `budget`
    /// to all nodes of an attempt.
    pub fn allocate(
        &self,
        cluster: Cluster<'_>,
        node: &NodeRecord,
        matches: &mut Matches,
        budget: &mut Budget,
        interrupt: &mut dyn FnMut() -> Option<Arc<str>>,
    ) -> Result<Option<Allocation>, AllocateError> {
        let pools = pools::gather(cluster.inventory, node, self.features).map_err(AllocateError::fatal)?;
        let devices = Devices::new(&pools, cluster.allocated);
        budget.grant(devices.count(), devices.values());
        let mut matcher = Matcher { demand: self, node, matches, budget };
        let plans = matcher.plan(&pools, &devices)?;
        let Some(solution) = Search::new(matcher, &pools, &devices, plans).run(interrupt)? else {
            let is_invalid = |pool: &pools::Pool<'_>| pool.state == PoolState::Invalid;
            return if pools.iter().any(is_invalid) { Err(AllocateError::InvalidPools) } else { Ok(None) };
        };
        for (claim, chosen) in self.claims.iter().zip(&solution.results) {
            if let Some(terms) = outcome::unsupported_terms(chosen, self.features.is_stable()) {
                let name = claim.object.name();
                let text = format!("unsupported ResourceSlice.NodeSelector with {terms} terms");
                return Err(AllocateError::fatal(format!("create NodeSelector for claim {name}: {text}")));
            }
        }
        Ok(Some(Allocation(solution)))
    }
}
