//! What waiting pods ask for and events bring, so that an event finds the pods that it may help.

use std::sync::Arc;

use crate::affinity::Operator;
use crate::event::Change;
use crate::labels::Labels;
use crate::pod::PodInfo;
use crate::selector::LabelSelector;

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
        /// A key of its labels, with the value or any; `None` stands for any pod.
        label: Option<(Arc<str>, Option<Arc<str>>)>,
    },
    /// A node's label with this key, or a change of it.
    NodeLabel(Arc<str>),
    /// A new node.
    NewNode,
}

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
        let named = |operator: &Operator| matches!(operator, Operator::In | Operator::Exists);
        let named = selector.requirements().iter().filter(|it| named(&it.operator));
        let rarest = named.min_by_key(|it| (it.operator == Operator::Exists, it.values.len()));
        match rarest {
            None => vec![mark(None)],
            Some(it) if it.values.is_empty() || it.values.len() > MOST_VALUES => {
                vec![mark(Some((Arc::clone(&it.key), None)))]
            }
            Some(it) => {
                let label = |value: &Arc<str>| Some((Arc::clone(&it.key), Some(Arc::clone(value))));
                it.values.iter().map(|value| mark(label(value))).collect()
            }
        }
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

    /// The labels of a node.
    pub fn of_node(labels: &Labels) -> Vec<Self> {
        labels.iter().map(|(key, _)| Self::NodeLabel(Arc::clone(key))).collect()
    }

    /// The labels of a node that changed.
    pub fn of_changed_node(old: &Labels, new: &Labels) -> Vec<Self> {
        let differs = |key: &str| old.get(key) != new.get(key);
        let keys = old.iter().chain(new.iter()).map(|(key, _)| key);
        keys.filter(|key| differs(key)).map(|key| Self::NodeLabel(Arc::clone(key))).collect()
    }
}
