//! What makes an answer that was kept no longer true.

/// A rule by which kept answers are made anew. Each is counted when it applies; a test switches one off and sees the table
/// disagree with the plain path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Rule {
    /// A pod came to a node or left it: answers that depend on the node's pods.
    PodsOfNode,
    /// A node object changed: answers that depend on it.
    NodeObject,
    /// A node came: it has no answers yet.
    NodeCame,
    /// Nodes are visited in another order, because some came or went.
    Order,
    /// A node moved to another domain.
    Domain,
    /// An object that was read changed.
    Object,
    /// An object of a kind that was read as a whole changed.
    Kind,
    /// An object that belongs to a node changed.
    ObjectOfNode,
    /// The number of nodes, which was read, changed.
    NodeCount,
    /// The spread of images, which was read, changed.
    Images,
    /// A plugin worked a change into its state.
    State,
    /// A plugin said that answers in a domain may be others.
    StateOfDomain,
    /// A plugin said that any answer may be another.
    StateOfAll,
    /// A plugin could not work a change in.
    Rebuild,
    /// A node became feasible or stopped being so: states that depend on the feasible nodes.
    Feasible,
    /// A node competes with others now: its sum or its class changed.
    Group,
    /// The greatest raw score changed: scores in proportion to it.
    Greatest,
    /// Pods have been promised a node.
    Nominated,
    /// A plugin that is asked about this pod alone turned a node down.
    Alone,
    /// More has changed than there are nodes, or than is known.
    Behind,
}

impl Rule {
    /// All of them.
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

/// How often each rule applied, and which one does not (in tests).
#[derive(Clone, Debug, Default)]
pub(super) struct Rules {
    counts: [u64; Rule::ALL.len()],
    /// The rule that a test switches off.
    #[cfg(test)]
    pub(super) off: Option<Rule>,
}

impl Rules {
    /// The rule applies here: whether to follow it.
    pub(super) fn follow(&mut self, rule: Rule) -> bool {
        self.counts[rule as usize] += 1;
        #[cfg(test)]
        if self.off == Some(rule) {
            return false;
        }
        true
    }

    pub(super) fn count(&self, rule: Rule) -> u64 {
        self.counts[rule as usize]
    }
}
