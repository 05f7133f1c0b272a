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
/// The most ways to find a pod by one wish.
const MOST_WAYS: usize = 8;
/// An object with more labels brings everything: it is quicker to look at all pods.
const MOST_LABELS: usize = 256;
/// A pod with more wishes of one sort wishes for anything: it is quicker to ask its hint.
const MOST_WISHES: usize = 256;

/// Something that waiting pods ask for, and that changes bring.
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

/// What a waiting pod asks for, in one or several ways: sets of marks. A change that helps brings a
/// mark of each set, so that any of them finds the pod.
pub type Wish = Vec<Vec<Mark>>;

/// Which pods a hint may queue: those of which the change meets a wish.
#[derive(Clone, Copy, Debug)]
pub struct HintMarks {
    /// What a waiting pod asks for. Reads only what the hint's scope has without labels.
    pub of_pod: fn(&PodInfo) -> Vec<Wish>,
    /// What the change brings; `None` if the hint may queue any pod.
    pub of_change: fn(&Change) -> Option<Vec<Mark>>,
}

impl Mark {
    /// Wishes for each of these; for anything if there are very many.
    pub fn wishes(marks: impl IntoIterator<Item = Self>) -> Vec<Wish> {
        let mut wishes: Vec<Wish> =
            marks.into_iter().take(MOST_WISHES + 1).map(|mark| vec![vec![mark]]).collect();
        if wishes.len() > MOST_WISHES {
            wishes = vec![vec![vec![Self::Any]]];
        }
        wishes
    }

    /// A wish for pods that all of these selectors select in a namespace, or in any.
    pub fn of_selectors<'a>(
        selectors: impl IntoIterator<Item = (Option<&'a Arc<str>>, &'a LabelSelector)> + Clone,
    ) -> Wish {
        let mark = |namespace: Option<&Arc<str>>, label| Self::Pod { namespace: namespace.cloned(), label };
        let ways = selectors.clone().into_iter().flat_map(|(namespace, selector)| {
            let way = move |it| labels_of(it).map(|label| mark(namespace, Some(label))).collect();
            asking(selector.requirements()).map(way)
        });
        or_else(ways, || selectors.into_iter().next().map(|(namespace, _)| mark(namespace, None)))
    }

    /// A wish for nodes that a `nodeSelector` and node affinity select.
    pub fn of_node_selectors(selector: &Labels, terms: Option<&[NodeSelectorTerm]>) -> Wish {
        let way = |(key, value): (&Arc<str>, &Arc<str>)| {
            vec![Self::Node((Arc::clone(key), Some(Arc::clone(value))))]
        };
        // An error in a term counts only if the selector matches.
        let by_terms = terms.and_then(Self::of_node_terms);
        or_else(by_terms.into_iter().chain(selector.iter().map(way)), || Some(Self::Any))
    }

    /// The marks of terms of which one must hold. `None` if one can hold on nodes without labels,
    /// or is invalid.
    fn of_node_terms(terms: &[NodeSelectorTerm]) -> Option<Vec<Self>> {
        let mut marks = Vec::new();
        for term in terms.iter().filter(|term| !term.is_empty()) {
            let of_name = term.match_fields.iter().filter(|it| &*it.key == METADATA_NAME);
            let length = |it: &Requirement| it.values.first().map_or(0, |value| value.len());
            // With few and long values it is rare, more often than not.
            let rank =
                |it: &&Requirement| (it.operator != Operator::In, it.values.len(), Reverse(length(it)));
            let rarest = asking(term.match_expressions.iter().chain(of_name)).min_by_key(rank)?;
            if !term.invalid.is_empty() {
                return None;
            }
            marks.extend(labels_of(rarest).map(Self::Node));
        }
        Some(marks)
    }

    /// Wishes for the taints that these tolerate.
    pub fn of_tolerations<'a>(tolerations: impl IntoIterator<Item = &'a Toleration>) -> Vec<Wish> {
        let key = |it: &Toleration| (!it.key.is_empty()).then(|| Arc::clone(&it.key));
        Self::wishes(tolerations.into_iter().map(|it| Self::Taint { key: key(it), effect: it.effect }))
    }

    /// What pods bring to selectors; `None` if they have very many labels, or if there is none.
    pub fn of_labels<'a>(pods: impl IntoIterator<Item = &'a Arc<PodInfo>>) -> Option<Vec<Self>> {
        let mut marks = Vec::new();
        for pod in pods {
            if pod.labels.len() > MOST_LABELS {
                return None;
            }
            for namespace in [Some(&pod.namespace), None] {
                let mut add = |label| marks.push(Self::Pod { namespace: namespace.cloned(), label });
                add(None);
                for (key, value) in pod.labels.iter() {
                    add(Some((Arc::clone(key), Some(Arc::clone(value)))));
                    add(Some((Arc::clone(key), None)));
                }
            }
        }
        (!marks.is_empty()).then_some(marks)
    }

    /// The labels and names of nodes; `None` if they have very many, or if there is none.
    pub fn of_nodes<'a>(nodes: impl IntoIterator<Item = &'a Arc<NodeRecord>>) -> Option<Vec<Self>> {
        let mut marks = Vec::new();
        for node in nodes {
            if node.labels.len() > MOST_LABELS {
                return None;
            }
            marks.push(Self::Node((METADATA_NAME.into(), Some(Arc::clone(&node.name)))));
            for (key, value) in node.labels.iter() {
                let of = |value| Self::Node((Arc::clone(key), value));
                marks.extend([of(Some(Arc::clone(value))), of(None)]);
            }
        }
        (!marks.is_empty()).then_some(marks)
    }

    /// The keys of a node's labels that changed; `None` if it has very many labels.
    pub fn of_changed_node(old: &Labels, new: &Labels) -> Option<Vec<Self>> {
        let differs = |key: &str| old.get(key) != new.get(key);
        let keys = old.iter().chain(new.iter()).map(|(key, _)| key);
        let changed = keys.filter(|key| differs(key)).map(|key| Self::Node((Arc::clone(key), None)));
        (old.len() + new.len() <= MOST_LABELS).then(|| changed.collect())
    }

    /// A taint, as tolerations name it.
    pub fn of_taint(taint: &Taint) -> Vec<Self> {
        let keys = [Some(&taint.key), None];
        let mark = |key: Option<&Arc<str>>, effect| Self::Taint { key: key.cloned(), effect };
        keys.into_iter().flat_map(|key| [mark(key, Some(taint.effect)), mark(key, None)]).collect()
    }
}

/// These ways, or only this mark if there is none.
fn or_else(ways: impl Iterator<Item = Vec<Mark>>, mark: impl FnOnce() -> Option<Mark>) -> Wish {
    let ways: Wish = ways.take(MOST_WAYS).collect();
    if ways.is_empty() { mark().map(|mark| vec![mark]).into_iter().collect() } else { ways }
}

/// The requirements that only labels can meet.
fn asking<'a>(
    requirements: impl IntoIterator<Item = &'a Requirement>,
) -> impl Iterator<Item = &'a Requirement> {
    let asks = |it: &&Requirement| !matches!(it.operator, Operator::NotIn | Operator::DoesNotExist);
    requirements.into_iter().filter(asks)
}

/// The labels of which one meets a requirement.
fn labels_of(requirement: &Requirement) -> impl Iterator<Item = Label> {
    let by_value = requirement.operator == Operator::In && requirement.values.len() <= MOST_VALUES;
    let values = requirement.values.iter().filter(move |_| by_value).cloned().map(Some);
    let any = (!by_value).then_some(None);
    values.chain(any).map(|value| (Arc::clone(&requirement.key), value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn very_many_wishes_are_one_for_anything() {
        let wishes = |count: usize| Mark::wishes((0..count).map(|i| Mark::VolumeClaim(i.to_string().into())));
        assert_eq!(wishes(MOST_WISHES).len(), MOST_WISHES);
        assert_eq!(wishes(MOST_WISHES + 1), [vec![vec![Mark::Any]]]);
        assert!(wishes(0).is_empty());
    }
}
