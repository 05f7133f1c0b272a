//! Statistics over rounds.

use supercargo_benches::random::Random;

/// The median.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match (sorted.len(), sorted.len() / 2) {
        (0, _) => f64::NAN,
        (length, middle) if length % 2 == 1 => sorted[middle],
        (_, middle) => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

/// The minimum and the maximum.
pub(crate) fn range(values: &[f64]) -> (f64, f64) {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    (least, values.iter().copied().fold(f64::NEG_INFINITY, f64::max))
}

/// The median of the ratios of all rounds, and its lower bound with a confidence of 90 %. The bound
/// comes from a bootstrap: rounds are drawn with replacement, and a tenth of the medians is below
/// the bound.
pub(crate) fn ratio(over: &[f64], under: &[f64]) -> Ratio {
    const DRAWS: usize = 10_000;
    let ratios: Vec<f64> = over.iter().zip(under).map(|(over, under)| over / under).collect();
    if ratios.is_empty() {
        return Ratio { median: f64::NAN, at_least: f64::NAN };
    }
    let mut random = Random::new(1);
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

/// A ratio of two contenders.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ratio {
    pub(crate) median: f64,
    /// With a confidence of 90 %.
    pub(crate) at_least: f64,
}
