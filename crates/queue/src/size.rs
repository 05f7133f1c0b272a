//! Sizes of pods: their requests, rounded.

use supercargo_framework::Resource;

/// How much CPU, memory, ephemeral storage and of any one other resource a pod requests, or a change
/// offers, in steps of about a fifth. What fits into an offer has at most its steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Size([u16; 4]);

impl Size {
    pub(crate) fn of(amounts: &Resource) -> Self {
        let most_of_others = amounts.scalars().iter().map(|(_, amount)| *amount).max().unwrap_or(0);
        Self([amounts.milli_cpu, amounts.memory, amounts.ephemeral_storage, most_of_others].map(step))
    }

    /// The same with any amount of other resources: devices may provide what a node does not offer.
    pub(crate) fn with_any_others(self) -> Self {
        let Self([cpu, memory, storage, _]) = self;
        Self([cpu, memory, storage, u16::MAX])
    }

    /// Whether pods of this size may fit into an offer.
    pub(crate) fn may_fit(self, offer: Self) -> bool {
        self.0.iter().zip(offer.0).all(|(requested, offered)| *requested <= offered)
    }
}

/// Grows with the amount: four steps each time it doubles.
fn step(amount: i64) -> u16 {
    match u64::try_from(amount) {
        Ok(amount @ 4..) => {
            let doublings = amount.ilog2();
            let quarters = (amount >> (doublings - 2)) & 3;
            u16::try_from(4 * (doublings - 1) + quarters as u32).unwrap_or(u16::MAX)
        }
        Ok(amount) => amount as u16,
        Err(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_amount_doubles_in_four_steps() {
        let steps = [-1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 16, 1 << 40, i64::MAX].map(step);
        assert_eq!(steps, [0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 8, 9, 12, 156, 247]);
    }

    proptest! {
        #[test]
        fn what_fits_has_a_size_that_may_fit(
            requested in prop::array::uniform5(amount()), offered in prop::array::uniform5(amount()),
        ) {
            let fits = requested.iter().zip(offered).all(|(requested, offered)| *requested <= offered);
            let size = |[cpu, memory, storage, gpu, fpga]: [i64; 5]| {
                let mut amounts = Resource::new(cpu, memory);
                amounts.ephemeral_storage = storage;
                amounts.set(&"example.com/gpu".into(), gpu);
                amounts.set(&"example.com/fpga".into(), fpga);
                Size::of(&amounts)
            };
            prop_assert!(!fits || size(requested).may_fit(size(offered)));
        }
    }

    /// Small amounts are as frequent as large ones.
    fn amount() -> impl Strategy<Value = i64> {
        (any::<i64>(), 0..63).prop_map(|(amount, shift)| amount >> shift)
    }
}
