//! How many nodes are looked at.

/// How many nodes to find, and where to begin: upstream's sampling. It is off unless configured, an extender filters, or
/// there is nothing to choose by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sampling {
    /// The configured percentage; 0 means adaptive.
    pub(crate) percentage: i32,
    /// The index to begin at.
    pub(crate) start: usize,
    /// Whether the first node that fits will do: nothing scores, and no extender filters.
    pub(crate) first_will_do: bool,
}

/// Below this many nodes all are looked at.
const MIN_FEASIBLE_NODES: usize = 100;

impl Sampling {
    /// How many feasible nodes suffice among `nodes`.
    pub(crate) fn nodes_to_find(&self, nodes: usize) -> usize {
        if self.first_will_do {
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
            let sampling = Sampling { percentage, start: 0, first_will_do: false };
            assert_eq!(sampling.nodes_to_find(nodes), expected, "{percentage} % of {nodes}");
        }
        let first = Sampling { percentage: 0, start: 0, first_will_do: true };
        assert_eq!(first.nodes_to_find(5000), 1);
    }
}
