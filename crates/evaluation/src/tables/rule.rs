//! The rules that invalidate cached answers.

/// A rule that invalidates cached answers. Each application is counted. A test switches one rule
/// off and checks that tables then differ from the plain path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Rule {
    /// A pod was added to a node or removed from it: answers that depend on the node's pods.
    PodsOfNode,
    /// A node object changed: answers that depend on it.
    NodeObject,
    /// A node was added: it has no answers yet.
    NodeCame,
    /// The visiting order changed, because nodes were added or removed.
    Order,
    /// A node moved to another domain.
    Domain,
    /// A tracked object changed.
    Object,
    /// An object of a tracked kind changed.
    Kind,
    /// An object that belongs to a node changed.
    ObjectOfNode,
    /// The number of nodes changed, and was read.
    NodeCount,
    /// The spread of images changed, and was read.
    Images,
    /// A plugin applied a change to its state.
    State,
    /// A plugin reports that answers in a domain may have changed.
    StateOfDomain,
    /// A plugin reports that any answer may have changed.
    StateOfAll,
    /// A plugin could not apply a change.
    Rebuild,
    /// A node became feasible or infeasible: states that depend on the feasible nodes.
    Feasible,
    /// The sum or the class of a node changed: its group.
    Group,
    /// The greatest raw score changed: scores in proportion to it.
    Greatest,
    /// Pods are nominated for a node.
    Nominated,
    /// A plugin that is not cached for this pod rejected a node.
    Alone,
    /// There are more changes than nodes, or some are no longer known.
    Behind,
}

impl Rule {
    /// All rules.
    pub const ALL: [Self; 20] = [
        Self::PodsOfNode,
        Self::NodeObject,
        Self::NodeCame,
        Self::Order,
        Self::Domain,
        Self::Object,
        Self::Kind,
        Self::ObjectOfNode,
        Self::NodeCount,
        Self::Images,
        Self::State,
        Self::StateOfDomain,
        Self::StateOfAll,
        Self::Rebuild,
        Self::Feasible,
        Self::Group,
        Self::Greatest,
        Self::Nominated,
        Self::Alone,
        Self::Behind,
    ];
}

/// How often each rule applied, and the rule that a test switches off.
#[derive(Clone, Debug, Default)]
pub(super) struct Rules {
    counts: [u64; Rule::ALL.len()],
    /// The rule that a test switches off.
    #[cfg(any(test, feature = "testing"))]
    pub(super) off: Option<Rule>,
    /// Whether answers are compared: total scores are kept, and sizes checked.
    #[cfg(any(test, feature = "testing"))]
    pub(super) are_compared: bool,
}

impl Rules {
    /// Counts an application of the rule. Returns whether to follow it.
    pub(super) fn follow(&mut self, rule: Rule) -> bool {
        self.counts[rule as usize] += 1;
        #[cfg(any(test, feature = "testing"))]
        if self.off == Some(rule) {
            return false;
        }
        true
    }

    pub(super) fn count(&self, rule: Rule) -> u64 {
        self.counts[rule as usize]
    }
}
