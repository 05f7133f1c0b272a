//! What many rounds say together.

/// The middle of some values.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match (sorted.len(), sorted.len() / 2) {
        (0, _) => f64::NAN,
        (length, middle) if length % 2 == 1 => sorted[middle],
        (_, middle) => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

/// The least and the most of them.
pub(crate) fn range(values: &[f64]) -> (f64, f64) {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    (least, values.iter().copied().fold(f64::NEG_INFINITY, f64::max))
}

/// The median of what is in each round the one divided by the other, and what it is at least with a confidence of 90 %: rounds
/// are drawn again and again, with replacement, and a tenth of their medians is below that.
pub(crate) fn ratio(over: &[f64], under: &[f64]) -> Ratio {
    const DRAWS: usize = 10_000;
    let ratios: Vec<f64> = over.iter().zip(under).map(|(over, under)| over / under).collect();
    if ratios.is_empty() {
        return Ratio { median: f64::NAN, at_least: f64::NAN };
    }
    let mut random = Random(1);
    let mut drawn = vec![0.0; ratios.len()];
    let mut medians: Vec<f64> = (0..DRAWS)
        .map(|_| {
            drawn.fill_with(|| ratios[random.below(ratios.len())]);
            median(&drawn)
        })
        .collect();
    medians.sort_by(f64::total_cmp);
    Ratio { median: median(&ratios), at_least: medians[DRAWS / 10] }
}

/// How two are to each other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ratio {
    pub(crate) median: f64,
    /// With a confidence of 90 %.
    pub(crate) at_least: f64,
}

/// Numbers that look like chance, the same every time (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % bound as u64) as usize
    }
}
