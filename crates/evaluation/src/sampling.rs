//! Sampling: how many nodes a cycle filters.

/// The number of nodes to find, and the node to begin with: upstream's sampling. It is used only if
/// configured, if an extender filters, or if nothing scores.
#[derive(Clone, Copy, Debug)]
pub struct Sampling {
    /// The configured percentage; 0 means adaptive.
    pub percentage: i32,
    /// The index of the first node.
    pub start: usize,
    /// Whether the first node that fits is chosen: nothing scores, and no extender filters.
    pub takes_first: bool,
}

/// Smaller clusters are not sampled.
const MIN_FEASIBLE_NODES: usize = 100;

impl Sampling {
    /// The number of feasible nodes to find among `nodes`.
    pub(crate) fn nodes_to_find(&self, nodes: usize) -> usize {
        if self.takes_first {
            return 1;
        }
        if nodes < MIN_FEASIBLE_NODES || self.percentage >= 100 {
            return nodes;
        }
        let adaptive = 50_usize.saturating_sub(nodes / 125).max(5);
        let percentage = usize::try_from(self.percentage).ok().filter(|p| *p > 0).unwrap_or(adaptive);
        (nodes * percentage / 100).max(MIN_FEASIBLE_NODES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sampling_follows_upstreams_numbers() {
        for (percentage, nodes, expected) in [
            (0, 99, 99),
            (0, 100, 100),
            (0, 1000, 420),
            (0, 5000, 500),
            (0, 6000, 300),
            (30, 1000, 300),
            (5, 1000, 100),
            (100, 5000, 5000),
        ] {
            let sampling = Sampling { percentage, start: 0, takes_first: false };
            assert_eq!(sampling.nodes_to_find(nodes), expected, "{percentage} % of {nodes}");
        }
        let first = Sampling { percentage: 0, start: 0, takes_first: true };
        assert_eq!(first.nodes_to_find(5000), 1);
    }
}
