//! Sizes of pods: their requests, exact and rounded.

use supercargo_framework::Resource;

/// How much CPU, memory, ephemeral storage and of any one other resource a pod requests, or a
/// change offers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Amounts([i64; 4]);

/// Amounts in steps of about a fifth. What fits into an offer has at most its steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Size([u16; 4]);

impl Amounts {
    pub(crate) fn of(amounts: &Resource) -> Self {
        let most_of_others = amounts.scalars().iter().map(|(_, amount)| *amount).max().unwrap_or(0);
        let all = [amounts.milli_cpu, amounts.memory, amounts.ephemeral_storage, most_of_others];
        Self(all.map(|amount| amount.max(0)))
    }

    /// The same with any amount of other resources: devices may provide what a node does not offer.
    pub(crate) fn with_any_others(self) -> Self {
        let Self([cpu, memory, storage, _]) = self;
        Self([cpu, memory, storage, i64::MAX])
    }

    pub(crate) fn size(self) -> Size {
        Size(self.0.map(step))
    }

    /// Whether pods that request this may fit into an offer.
    pub(crate) fn may_fit(self, offer: Self) -> bool {
        self.0.iter().zip(offer.0).all(|(requested, offered)| *requested <= offered)
    }
}

impl Size {
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
        fn what_fits_has_amounts_and_a_size_that_may_fit(
            requested in prop::array::uniform5(amount()), offered in prop::array::uniform5(amount()),
        ) {
            let fits = requested.iter().zip(offered).all(|(requested, offered)| *requested <= offered);
            let amounts = |[cpu, memory, storage, gpu, fpga]: [i64; 5]| {
                let mut amounts = Resource::new(cpu, memory);
                amounts.ephemeral_storage = storage;
                amounts.set(&"example.com/gpu".into(), gpu);
                amounts.set(&"example.com/fpga".into(), fpga);
                Amounts::of(&amounts)
            };
            let (requested, offered) = (amounts(requested), amounts(offered));
            prop_assert!(!fits || requested.may_fit(offered));
            prop_assert!(!requested.may_fit(offered) || requested.size().may_fit(offered.size()));
        }
    }

    /// Small amounts are as frequent as large ones.
    fn amount() -> impl Strategy<Value = i64> {
        (any::<i64>(), 0..63).prop_map(|(amount, shift)| amount >> shift)
    }
}
