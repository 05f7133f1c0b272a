//! What waiting pods ask for and events bring, so that an event finds the pods that it may help.

use std::cmp::Reverse;
use std::sync::Arc;

use crate::affinity::{METADATA_NAME, NodeSelectorTerm, Operator, Requirement};
use crate::event::Change;
use crate::labels::Labels;
use crate::node::NodeRecord;
use crate::pod::PodInfo;
use crate::selector::LabelSelector;
use crate::taint::{Taint, TaintEffect, Toleration};

/// A requirement with more values is found by its key.
const MOST_VALUES: usize = 8;

/// Something that a waiting pod asks for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mark {
    /// What every event brings.
    Any,
    /// A pod.
    Pod {
        /// Its namespace; `None` is any.
        namespace: Option<Arc<str>>,
        /// A label; `None` stands for any pod.
        label: Option<Label>,
    },
    /// A node's label, or a change of it. `metadata.name` is the node's name.
    Node(Label),
    /// A new node.
    NewNode,
    /// A taint.
    Taint {
        /// Its key; `None` is any.
        key: Option<Arc<str>>,
        /// Its effect; `None` is any.
        effect: Option<TaintEffect>,
    },
    /// A host port.
    HostPort(i32),
    /// A PersistentVolumeClaim, by its key.
    VolumeClaim(Arc<str>),
}

/// A key of a label with a value; `None` is any.
pub type Label = (Arc<str>, Option<Arc<str>>);

/// Which pods a hint may queue: those that ask for something that the change brings.
#[derive(Clone, Copy, Debug)]
pub struct HintMarks {
    /// What a waiting pod asks for. Reads only what the hint's scope has without labels.
    pub of_pod: fn(&PodInfo) -> Vec<Mark>,
    /// What the change brings; `None` if the hint may queue any pod.
    pub of_change: fn(&Change) -> Option<Vec<Mark>>,
}

impl Mark {
    /// What a selector asks for that selects pods in a namespace, or in any: by one of its
    /// requirements, as all must hold.
    pub fn of_selector(namespace: Option<&Arc<str>>, selector: &LabelSelector) -> Vec<Self> {
        let mark = |label| Self::Pod { namespace: namespace.cloned(), label };
        match rarest(selector.requirements()) {
            None => vec![mark(None)],
            Some(requirement) => labels_of(requirement).map(|label| mark(Some(label))).collect(),
        }
    }

    /// What a `nodeSelector` asks for: the label with the longest value, as few nodes have it more
    /// often than not. `None` if it is empty.
    pub fn of_node_selector(selector: &Labels) -> Option<Vec<Self>> {
        let (key, value) = selector.iter().max_by_key(|(_, value)| value.len())?;
        Some(vec![Self::Node((Arc::clone(key), Some(Arc::clone(value))))])
    }

    /// What terms ask for of which one must hold. `None` if one can hold on nodes without labels,
    /// or is invalid.
    pub fn of_node_terms(terms: &[NodeSelectorTerm]) -> Option<Vec<Self>> {
        let mut marks = Vec::new();
        for term in terms.iter().filter(|term| !term.is_empty()) {
            let of_name = term.match_fields.iter().filter(|it| &*it.key == METADATA_NAME);
            let requirement = rarest(term.match_expressions.iter().chain(of_name))?;
            if !term.invalid.is_empty() {
                return None;
            }
            marks.extend(labels_of(requirement).map(Self::Node));
        }
        Some(marks)
    }

    /// What tolerations ask for: one of the taints that they tolerate.
    pub fn of_tolerations<'a>(tolerations: impl IntoIterator<Item = &'a Toleration>) -> Vec<Self> {
        let key = |it: &Toleration| (!it.key.is_empty()).then(|| Arc::clone(&it.key));
        tolerations.into_iter().map(|it| Self::Taint { key: key(it), effect: it.effect }).collect()
    }

    /// What a pod brings to selectors.
    pub fn of_labels(pod: &PodInfo) -> Vec<Self> {
        let mut marks = Vec::with_capacity(2 + 4 * pod.labels.len());
        for namespace in [Some(&pod.namespace), None] {
            let mut add = |label| marks.push(Self::Pod { namespace: namespace.cloned(), label });
            add(None);
            for (key, value) in pod.labels.iter() {
                add(Some((Arc::clone(key), Some(Arc::clone(value)))));
                add(Some((Arc::clone(key), None)));
            }
        }
        marks
    }

    /// The labels and the name of a node.
    pub fn of_node(node: &NodeRecord) -> Vec<Self> {
        let name = Self::Node((METADATA_NAME.into(), Some(Arc::clone(&node.name))));
        let labels = node.labels.iter().flat_map(|(key, value)| {
            [Some(Arc::clone(value)), None].map(|value| Self::Node((Arc::clone(key), value)))
        });
        labels.chain([name]).collect()
    }

    /// The keys of a node's labels that changed.
    pub fn of_changed_node(old: &Labels, new: &Labels) -> Vec<Self> {
        let differs = |key: &str| old.get(key) != new.get(key);
        let keys = old.iter().chain(new.iter()).map(|(key, _)| key);
        keys.filter(|key| differs(key)).map(|key| Self::Node((Arc::clone(key), None))).collect()
    }

    /// A taint, as tolerations name it.
    pub fn of_taint(taint: &Taint) -> Vec<Self> {
        let keys = [Some(&taint.key), None];
        let mark = |key: Option<&Arc<str>>, effect| Self::Taint { key: key.cloned(), effect };
        keys.into_iter().flat_map(|key| [mark(key, Some(taint.effect)), mark(key, None)]).collect()
    }
}

/// The requirement for a label that the fewest have, to guess by its values; `None` if all can hold
/// without labels.
fn rarest<'a>(requirements: impl IntoIterator<Item = &'a Requirement>) -> Option<&'a Requirement> {
    let asks = |it: &&Requirement| !matches!(it.operator, Operator::NotIn | Operator::DoesNotExist);
    let length = |it: &Requirement| it.values.first().map_or(0, |value| value.len());
    let rank = |it: &&Requirement| (it.operator != Operator::In, it.values.len(), Reverse(length(it)));
    requirements.into_iter().filter(asks).min_by_key(rank)
}

/// The labels of which one meets a requirement.
fn labels_of(requirement: &Requirement) -> impl Iterator<Item = Label> {
    let by_value = requirement.operator == Operator::In && requirement.values.len() <= MOST_VALUES;
    let values = requirement.values.iter().filter(move |_| by_value).cloned().map(Some);
    let any = (!by_value).then_some(None);
    values.chain(any).map(|value| (Arc::clone(&requirement.key), value))
}
