//! Prefers cheap nodes, and rejects nodes that cost more than the pod allows.
//!
//! The label `example.com/price` of a node is its price, a whole number; a node without it is free.
//! The label `example.com/max-price` of a pod limits the price of its node.
//!
//! ```yaml
//! pluginConfig:
//! - name: NodeCost
//!   args:
//!     priceLabel: example.com/price
//!     maxPriceLabel: example.com/max-price
//! ```

use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;
use supercargo_framework::caching::{Caching, Scope, Stateless};
use supercargo_framework::event::{Change, EventRegistration, QueueingHint};
use supercargo_framework::plugin::{
    EnqueueExtensions, ExtensionPoints, FilterPlugin, Normalize, PreFilter, PreFilterPlugin, ScorePlugin,
    SignPlugin,
};
use supercargo_framework::registry::{ArgsError, decode_args};
use supercargo_framework::signature::{Signer, Unsignable};
use supercargo_framework::{
    ActionType, Context, CycleState, EventResource, Features, Labels, NodeInfo, NodeRecord, Plugin, PodInfo,
    Status,
};

/// The plugin's name.
pub const NAME: &str = "NodeCost";

const TOO_EXPENSIVE: &str = "node(s) cost more than the pod may";

/// The arguments.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
struct Args {
    price_label: String,
    max_price_label: String,
}

impl Default for Args {
    fn default() -> Self {
        Self {
            price_label: "example.com/price".to_owned(),
            max_price_label: "example.com/max-price".to_owned(),
        }
    }
}

struct NodeCost {
    args: Args,
}

/// Builds the plugin.
pub fn from_args(args: &Value, _: &Features) -> Result<Arc<dyn Plugin>, ArgsError> {
    let args: Args = decode_args(args)?;
    for (field, label) in [("priceLabel", &args.price_label), ("maxPriceLabel", &args.max_price_label)] {
        if label.is_empty() {
            return Err(ArgsError::new(field, "must be the key of a label"));
        }
    }
    Ok(Arc::new(NodeCost { args }))
}

/// The pod's limit: PreFilter parses it once, and Filter reads it for every node.
#[derive(Clone, Copy)]
struct MaxPrice(i64);

impl NodeCost {
    /// The pod's limit, if it has one.
    fn max_price(&self, pod: &PodInfo) -> Result<Option<i64>, Status> {
        let Some(text) = pod.labels.get(&self.args.max_price_label) else {
            return Ok(None);
        };
        let label = &self.args.max_price_label;
        text.parse()
            .map(Some)
            .map_err(|_| Status::unresolvable(format!("pod label {label} is {text:?}, not a number")))
    }

    fn price(&self, node: &NodeRecord) -> i64 {
        price(&node.labels, &self.args.price_label)
    }

    /// Only a node that becomes affordable helps.
    fn after_node_change(&self, pod: &PodInfo, change: &Change) -> QueueingHint {
        let Ok(Some(max)) = self.max_price(pod) else {
            return QueueingHint::Queue;
        };
        let affordable = |node: &Arc<NodeRecord>| self.price(node) <= max;
        let before = change.old_node().is_some_and(affordable);
        let after = change.new_node().is_some_and(affordable);
        QueueingHint::queue_if(after && !before)
    }
}

fn price(labels: &Labels, key: &str) -> i64 {
    labels.get(key).and_then(|price| price.parse().ok()).unwrap_or(0)
}

impl Plugin for NodeCost {
    fn name(&self) -> &'static str {
        NAME
    }

    fn extension_points(self: Arc<Self>) -> ExtensionPoints {
        ExtensionPoints::new()
            .pre_filter(&self)
            .filter(&self)
            .score(&self)
            .enqueue_extensions(&self)
            .sign(&self)
            .caching(&self)
            .incremental(&Arc::new(Stateless))
    }
}

impl PreFilterPlugin for NodeCost {
    fn pre_filter(&self, _: &Context<'_>, state: &mut CycleState, pod: &PodInfo) -> PreFilter {
        match self.max_price(pod) {
            Ok(Some(max)) => {
                state.write(MaxPrice(max));
                PreFilter::AllNodes
            }
            Ok(None) => PreFilter::Skip,
            Err(status) => PreFilter::Reject(status),
        }
    }
}

impl FilterPlugin for NodeCost {
    fn filter(&self, _: &Context<'_>, state: &CycleState, _: &PodInfo, node: &NodeInfo) -> Status {
        match state.read::<MaxPrice>() {
            Some(MaxPrice(max)) if self.price(node.node()) > *max => Status::unresolvable(TOO_EXPENSIVE),
            _ => Status::success(),
        }
    }
}

impl ScorePlugin for NodeCost {
    fn score(&self, _: &Context<'_>, _: &CycleState, _: &PodInfo, node: &NodeInfo) -> Result<i64, Status> {
        Ok(self.price(node.node()).max(0))
    }

    /// The most expensive node gets 0.
    fn normalization(&self) -> Normalize {
        Normalize::ByMax { reverse: true }
    }
}

impl EnqueueExtensions for NodeCost {
    fn events_to_register(self: Arc<Self>) -> Vec<EventRegistration> {
        let nodes = Arc::clone(&self);
        vec![
            EventRegistration::hinted(
                EventResource::Node,
                ActionType::ADD | ActionType::UPDATE_NODE_LABEL,
                move |pod, change| Ok(nodes.after_node_change(pod, change)),
            ),
            // The pod's limit may have changed.
            EventRegistration::always(EventResource::TargetPod, ActionType::UPDATE_POD_LABEL),
        ]
    }
}

impl SignPlugin for NodeCost {
    fn sign(&self, _: &Context<'_>, pod: &PodInfo, signer: &mut Signer) -> Result<(), Unsignable> {
        signer.write(&pod.labels.get(&self.args.max_price_label));
        Ok(())
    }
}

/// Prices are labels of node objects: pods on a node do not change an answer.
impl Caching for NodeCost {
    fn filter_scope(&self, _: &CycleState, _: &PodInfo) -> Scope {
        Scope::NodeObject
    }

    fn score_scope(&self, _: &CycleState, _: &PodInfo) -> Scope {
        Scope::NodeObject
    }
}

#[cfg(test)]
mod tests;
