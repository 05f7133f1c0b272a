//! Scores in proportion to the greatest raw score.

use supercargo_framework::plugin::MAX_NODE_SCORE;

use super::layout::Layout;

/// The node is not feasible, so its score does not count.
const ABSENT: i64 = i64::MIN;

/// The state of [`Normalize::ByMax`](supercargo_framework::plugin::Normalize) while raw scores
/// change.
#[derive(Debug)]
pub(super) struct Proportional {
    pub(super) plugin: usize,
    reverse: bool,
    /// The greatest raw score.
    greatest: i64,
    /// By node, the raw score if feasible; empty as long as all are 0, the usual case.
    raw: Vec<i64>,
    /// By domain. Filters by domain reject all of a domain or nothing.
    tops: Vec<Top>,
}

/// The greatest raw score of a domain's feasible nodes, and how many have it.
#[derive(Clone, Copy, Debug)]
struct Top {
    raw: i64,
    nodes: usize,
}

/// The score of a raw score, in proportion to the greatest one.
pub(super) fn in_proportion(raw: i64, greatest: i64, reverse: bool) -> i64 {
    let share = if greatest == 0 { raw } else { MAX_NODE_SCORE.wrapping_mul(raw) / greatest };
    if reverse { MAX_NODE_SCORE - share } else { share }
}

impl Top {
    fn of(raw: &[i64], slots: &[u32]) -> Self {
        let raw_at = |slot: &u32| raw.get(*slot as usize).copied().unwrap_or(ABSENT);
        let greatest = slots.iter().map(raw_at).max().unwrap_or(ABSENT);
        Self { raw: greatest, nodes: slots.iter().filter(|slot| raw_at(slot) == greatest).count() }
    }
}

impl Proportional {
    pub(super) fn new(
        plugin: usize,
        reverse: bool,
        rows: &[i64],
        feasible: &[bool],
        layout: &Layout,
    ) -> Self {
        let is_flat = rows.iter().zip(feasible).all(|(raw, feasible)| !feasible || *raw == 0);
        let mut made = Self { plugin, reverse, greatest: 0, raw: Vec::new(), tops: Vec::new() };
        if !is_flat {
            let of_feasible = |(raw, feasible): (&i64, &bool)| if *feasible { *raw } else { ABSENT };
            made.raw = rows.iter().zip(feasible).map(of_feasible).collect();
            made.tops = layout.domains().map(|leaves| Top::of(&made.raw, &layout.slots()[leaves])).collect();
            made.settle(std::iter::repeat(true));
        }
        made
    }

    /// Whether all feasible nodes have the raw score 0, and so the same score.
    pub(super) fn is_flat(&self) -> bool {
        self.raw.is_empty()
    }

    /// Whether a raw score counts. A greater one belongs to a node of a rejected domain.
    pub(super) fn covers(&self, raw: i64) -> bool {
        raw <= self.greatest
    }

    /// The score of a raw score (upstream's DefaultNormalizeScore).
    pub(super) fn score(&self, raw: i64) -> i64 {
        in_proportion(raw, self.greatest, self.reverse)
    }

    /// Sets the raw score of a node, `None` if it is not feasible; `false` if this must be rebuilt.
    pub(super) fn set(&mut self, layout: &Layout, leaf: usize, raw: Option<i64>) -> bool {
        if self.raw.is_empty() {
            return raw.is_none_or(|raw| raw == 0);
        }
        let slot = layout.slots()[leaf] as usize;
        let raw = raw.unwrap_or(ABSENT);
        if self.raw.len() <= slot {
            self.raw.resize(slot + 1, ABSENT);
        }
        let old = std::mem::replace(&mut self.raw[slot], raw);
        let (domain, _) = layout.place(leaf);
        let top = &mut self.tops[domain];
        if raw > top.raw {
            *top = Top { raw, nodes: 1 };
            return true;
        }
        top.nodes += usize::from(raw == top.raw);
        top.nodes -= usize::from(old == top.raw);
        if top.nodes == 0 {
            *top = Top::of(&self.raw, layout.domain_slots(domain));
        }
        true
    }

    /// Sets which domains pass; `false` if the greatest raw score, and so every score, changed.
    pub(super) fn settle(&mut self, passes: impl IntoIterator<Item = bool>) -> bool {
        let tops = self.tops.iter().zip(passes).filter(|(_, passes)| *passes).map(|(top, _)| top.raw);
        match tops.max().filter(|greatest| *greatest != ABSENT) {
            Some(greatest) => std::mem::replace(&mut self.greatest, greatest) == greatest,
            // No node is feasible, or all have the raw score 0.
            None => true,
        }
    }

    /// The approximate size in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.raw.capacity() * size_of::<i64>() + self.tops.capacity() * size_of::<Top>()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::scoring::by_max;

    /// The layout of nodes with these domains.
    fn layout(domains: &[usize]) -> Layout {
        Layout::of_domains(domains)
    }

    proptest! {
        /// Scores equal those of a full normalization after any change and with any domains
        /// rejected.
        #[test]
        fn scores_equal_those_of_a_full_normalization(
            mut nodes in proptest::collection::vec((0..4_i64, any::<bool>(), 0..3_usize), 1..8),
            reverse in any::<bool>(),
            changes in proptest::collection::vec(
                ((0..8_usize, 0..5_i64, any::<bool>()), proptest::collection::vec(any::<bool>(), 3)),
                0..8,
            ),
        ) {
            let layout = layout(&nodes.iter().map(|(.., domain)| *domain).collect::<Vec<_>>());
            let made = |nodes: &[(i64, bool, usize)]| {
                let rows: Vec<i64> = nodes.iter().map(|(raw, ..)| *raw).collect();
                let feasible: Vec<bool> = nodes.iter().map(|(_, feasible, _)| *feasible).collect();
                Proportional::new(0, reverse, &rows, &feasible, &layout)
            };
            let mut kept = made(&nodes);
            for ((slot, raw, feasible), passes) in changes {
                let slot = slot % nodes.len();
                (nodes[slot].0, nodes[slot].1) = (raw, feasible);
                let leaf = layout.leaf(supercargo_framework::NodeIndex(slot as u32)).unwrap();
                if !kept.set(&layout, leaf, feasible.then_some(raw)) {
                    kept = made(&nodes);
                }
                let passed = |slot: usize| {
                    let leaf = layout.leaf(supercargo_framework::NodeIndex(slot as u32)).unwrap();
                    passes[layout.place(leaf).0]
                };
                kept.settle(passes.iter().copied());
                let counted = nodes.iter().enumerate().filter(|(slot, (_, feasible, _))| *feasible && passed(*slot));
                let raw: Vec<i64> = counted.map(|(_, (raw, ..))| *raw).collect();
                let mut scores = raw.clone();
                by_max(&mut scores, reverse);
                prop_assert_eq!(raw.iter().map(|raw| kept.score(*raw)).collect::<Vec<_>>(), scores);
            }
        }
    }
}
