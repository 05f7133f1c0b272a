//! Positions of nodes.

/// The position of a node in [`Nodes`](crate::Nodes): stable while the node exists, reused after
/// its removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeIndex(pub u32);
