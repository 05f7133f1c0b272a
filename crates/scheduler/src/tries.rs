//! The limit of what one attempt of a group tries.

use supercargo_framework::plugin::Placement;

/// How many pods and groups one attempt may try on all placements together, and which placements
/// it tries if that does not suffice for all. A group of a thousand pods can have a placement for
/// each of thousands of nodes, and nothing else happens meanwhile. One placement is always tried to
/// the end: the pods of a group are placed together.
pub(crate) struct Tries {
    pub(crate) most: usize,
    /// The trial of a pod counts once for each of this number of nodes.
    pub(crate) nodes: usize,
    /// Selects the placements. Each group takes a digit from it, so that all combinations of
    /// placements of the groups of a tree have their turn.
    pub(crate) turn: usize,
    /// How many attempts the group with the most placements needs to try all of them.
    rounds: usize,
    attempts: usize,
}

impl Default for Tries {
    fn default() -> Self {
        Self { most: 300_000, nodes: 20, turn: 0, rounds: 1, attempts: 0 }
    }
}

impl Tries {
    /// Begins an attempt of a group, the first one with 1.
    pub(crate) fn begin(&mut self, attempts: u32) {
        self.attempts = usize::try_from(attempts).unwrap_or(usize::MAX);
        (self.turn, self.rounds) = (self.attempts.saturating_sub(1), 1);
    }

    /// How many placements a group of this size tries in one attempt, with this share of the limit.
    pub(crate) fn at_once(&self, share: usize, size: usize, placements: &[Placement]) -> usize {
        let most_nodes = placements.iter().map(|placement| placement.nodes.len()).max().unwrap_or(0);
        let cost = size.saturating_mul(most_nodes.div_ceil(self.nodes).max(1));
        (share / cost).min(placements.len()).max(1)
    }

    /// The first placement of a group that tries `at_once` of them in one attempt.
    pub(crate) fn first(&mut self, placements: usize, at_once: usize) -> usize {
        let rounds = placements.div_ceil(at_once).max(1);
        let round = self.turn % rounds;
        self.turn /= rounds;
        self.rounds = self.rounds.max(rounds);
        round * at_once
    }

    /// Whether the attempts so far cannot have tried all placements.
    pub(crate) fn go_on(&self) -> bool {
        self.attempts < self.rounds
    }
}
