//! What a request takes of the capacities of a device.
//!
//! Same as upstream's arithmetic: whole numbers of 64 bits, or thousandths, where a range has
//! steps; exact comparisons elsewhere. Where upstream would divide by zero, a request is refused.

use std::sync::Arc;

use smallvec::SmallVec;
use supercargo_cel::Quantity;
use supercargo_framework::objects::{CapacityPolicy, CapacityRange, DeviceCapacity, Quantities};

const NOT_REPRESENTABLE: &str = "capacity request cannot be represented in the device's range arithmetic";
const NEGATIVE: &str = "capacity value is negative";

/// A capacity of a device.
#[derive(Debug)]
pub(crate) struct Capacity {
    pub(crate) name: Arc<str>,
    value: Quantity,
    /// The value in billionths.
    most: i128,
    policy: Option<Policy>,
}

#[derive(Debug)]
struct Policy {
    default: Option<Quantity>,
    values: Box<[Quantity]>,
    range: Option<Range>,
}

#[derive(Debug)]
struct Range {
    min: Option<Quantity>,
    max: Option<Quantity>,
    step: Option<Quantity>,
}

/// What a request asks for, by name, ordered.
pub(crate) type RequestedAmounts = Box<[(Arc<str>, Quantity)]>;
/// What it takes of each capacity of a device, in the device's order.
pub(crate) type ConsumedAmounts = SmallVec<[Quantity; 2]>;

pub(crate) fn requested(quantities: &Quantities) -> RequestedAmounts {
    let mut requested: RequestedAmounts =
        quantities.iter().map(|(name, text)| (Arc::clone(name), Quantity::lenient(text))).collect();
    requested.sort_by(|(a, _), (b, _)| a.cmp(b));
    requested
}

/// What a request takes of these capacities; nothing if a capacity is missing, its policy forbids
/// it, or not enough is left. `used` is what others take of each, in billionths.
///
/// An error concerns the whole attempt: it does not depend on what is left.
pub(crate) fn take(
    capacities: &[Capacity],
    requested: &[(Arc<str>, Quantity)],
    used: impl Fn(usize) -> i128,
    has_fractions: bool,
) -> Result<Option<ConsumedAmounts>, String> {
    let has = |name: &Arc<str>| capacities.binary_search_by(|capacity| capacity.name.cmp(name)).is_ok();
    if !requested.iter().all(|(name, _)| has(name)) {
        return Ok(None);
    }
    let mut taken = ConsumedAmounts::new();
    for capacity in capacities {
        let found = requested.binary_search_by(|(name, _)| name.cmp(&capacity.name));
        let wanted = found.ok().map(|place| &requested[place].1);
        let wrong = |reason| format!("capacity {:?}: {reason}", &*capacity.name);
        let quantity = capacity.rounded(wanted, has_fractions).map_err(wrong)?;
        if quantity.sign() < 0 {
            return Err(wrong(NEGATIVE.into()));
        }
        taken.push(quantity);
    }
    let fits = |(place, (capacity, quantity)): (usize, (&Capacity, &Quantity))| {
        capacity.allows(quantity, has_fractions)
            && quantity.nanos().saturating_add(used(place)) <= capacity.most
    };
    Ok(capacities.iter().zip(&taken).enumerate().all(fits).then_some(taken))
}

impl Capacity {
    pub(crate) fn new(name: &Arc<str>, capacity: &DeviceCapacity) -> Self {
        let value = Quantity::lenient(&capacity.value);
        let policy = capacity.policy.as_ref().map(Policy::new);
        Self { name: Arc::clone(name), most: value.nanos(), value, policy }
    }

    /// The request, rounded up to what the policy allows, if it can be.
    fn rounded(&self, wanted: Option<&Quantity>, has_fractions: bool) -> Result<Quantity, String> {
        let Some(wanted) = wanted else {
            let default = self.policy.as_ref().and_then(|policy| policy.default.as_ref());
            return Ok(default.unwrap_or(&self.value).clone());
        };
        let Some(policy) = &self.policy else { return Ok(wanted.clone()) };
        if let Some(range) = &policy.range
            && let Some(min) = &range.min
        {
            return range.round_up(wanted.clone(), min, has_fractions);
        }
        let mut wanted = wanted.clone();
        for value in &policy.values {
            wanted.become_decimal_as(value);
            if wanted.compare(value).is_le() {
                return Ok(value.clone());
            }
        }
        Ok(wanted)
    }

    fn allows(&self, quantity: &Quantity, has_fractions: bool) -> bool {
        let Some(policy) = &self.policy else { return true };
        if policy.default.as_ref().is_some_and(|default| quantity.is_identical(default)) {
            return true;
        }
        match &policy.range {
            Some(range) => range.allows(quantity, has_fractions),
            None => {
                policy.values.is_empty() || policy.values.iter().any(|value| quantity.compare(value).is_eq())
            }
        }
    }
}

impl Policy {
    fn new(policy: &CapacityPolicy) -> Self {
        Self {
            default: policy.default.as_deref().map(Quantity::lenient),
            values: policy.valid_values.iter().map(|value| Quantity::lenient(value)).collect(),
            range: policy.valid_range.as_ref().map(Range::new),
        }
    }
}

impl Range {
    fn new(range: &CapacityRange) -> Self {
        let read = |text: &Option<Arc<str>>| text.as_deref().map(Quantity::lenient);
        Self { min: read(&range.min), max: read(&range.max), step: read(&range.step) }
    }

    /// Up to the next step from the minimum.
    fn round_up(
        &self,
        mut wanted: Quantity,
        min: &Quantity,
        has_fractions: bool,
    ) -> Result<Quantity, String> {
        wanted.become_decimal_as(min);
        if wanted.compare(min).is_lt() {
            return Ok(min.clone());
        }
        let Some(step) = &self.step else { return Ok(wanted) };
        let text = wanted.canonical();
        if self.is_in_thousandths(has_fractions) {
            let whole = wanted.exact_milli().ok_or_else(|| {
                format!("{NOT_REPRESENTABLE}: request {text} is not a representable milli value")
            })?;
            let rounded = next_step(whole, min.round_up_milli(), step.round_up_milli(), true);
            let milli = rounded.ok_or_else(|| {
                format!(
                    "{NOT_REPRESENTABLE}: rounding request {text} up to the next step passes the milli-value range"
                )
            })?;
            return Ok(match milli % 1000 {
                0 => Quantity::whole(milli / 1000, step.format()),
                _ => Quantity::thousandths(milli, step.format()),
            });
        }
        if wanted.compare(&Quantity::whole(i64::MAX, wanted.format())).is_gt() {
            return Err(format!("{NOT_REPRESENTABLE}: request {text} exceeds MaxInt64"));
        }
        let min = min.round_up();
        let rounded = next_step(wanted.round_up(), min, step.round_up(), min >= 0).ok_or_else(|| {
            format!("{NOT_REPRESENTABLE}: rounding request {text} up to the next step passes MaxInt64")
        })?;
        Ok(Quantity::whole(rounded, step.format()))
    }

    fn allows(&self, quantity: &Quantity, has_fractions: bool) -> bool {
        if self.max.as_ref().is_some_and(|max| quantity.compare(max).is_gt()) {
            return false;
        }
        let Some(step) = &self.step else { return true };
        let (value, min, step) = if self.is_in_thousandths(has_fractions) {
            let Some(value) = quantity.exact_milli() else { return false };
            (value, self.min.as_ref().map_or(0, Quantity::round_up_milli), step.round_up_milli())
        } else {
            (quantity.round_up(), self.min.as_ref().map_or(0, Quantity::round_up), step.round_up())
        };
        step != 0 && value.wrapping_sub(min).wrapping_rem(step) == 0
    }

    fn is_in_thousandths(&self, has_fractions: bool) -> bool {
        let is_exact = |quantity: &Quantity| quantity.exact_milli().is_some();
        has_fractions
            && [&self.min, &self.max, &self.step].into_iter().flatten().all(is_exact)
            && self.step.as_ref().is_none_or(|step| step.exact_milli() >= Some(1))
    }
}

/// The least `min` + n × `step` from `value` on; nothing if 64 bits do not hold it and
/// `is_guarded`.
fn next_step(value: i64, min: i64, step: i64, is_guarded: bool) -> Option<i64> {
    let above = value.wrapping_sub(min);
    if step == 0 {
        return Some(value);
    }
    let steps = above.wrapping_div(step).wrapping_add(i64::from(above.wrapping_rem(step) != 0));
    if is_guarded && steps > i64::MAX.wrapping_sub(min).wrapping_div(step) {
        return None;
    }
    Some(min.wrapping_add(step.wrapping_mul(steps)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn capacity(value: &str, policy: Option<CapacityPolicy>) -> Capacity {
        Capacity::new(&"memory".into(), &DeviceCapacity { value: value.into(), policy })
    }

    fn range(min: &str, max: &str, step: &str) -> CapacityPolicy {
        let text = |text: &str| (!text.is_empty()).then(|| Arc::from(text));
        let range = CapacityRange { min: text(min), max: text(max), step: text(step) };
        CapacityPolicy { valid_range: Some(range), ..CapacityPolicy::default() }
    }

    /// What is taken, `no` if it does not fit, or the error.
    fn taken(capacity: Capacity, wanted: Option<&str>, used: &str, has_fractions: bool) -> String {
        let requested: RequestedAmounts =
            wanted.map(|text| ("memory".into(), Quantity::lenient(text))).into_iter().collect();
        let used = Quantity::lenient(used).nanos();
        match take(&[capacity], &requested, |_| used, has_fractions) {
            Ok(Some(taken)) => taken[0].canonical(),
            Ok(None) => "no".into(),
            Err(text) => text,
        }
    }

    #[test]
    fn request_without_policy_is_taken_as_it_is() {
        assert_eq!(taken(capacity("10Gi", None), Some("3Gi"), "7Gi", false), "3Gi");
        assert_eq!(taken(capacity("10Gi", None), Some("3Gi"), "8Gi", false), "no");
        assert_eq!(taken(capacity("10Gi", None), None, "0", false), "10Gi", "no request takes everything");
        assert_eq!(
            taken(capacity("10Gi", None), Some("-1"), "0", false),
            r#"capacity "memory": capacity value is negative"#
        );
    }

    #[test]
    fn missing_capacity_does_not_fit() {
        let requested: RequestedAmounts = Box::new([("cores".into(), Quantity::lenient("1"))]);
        assert_eq!(
            take(&[capacity("10", None)], &requested, |_| 0, false).map(|taken| taken.is_some()),
            Ok(false)
        );
    }

    #[test]
    fn steps_round_up_from_the_minimum() {
        let at = |wanted| taken(capacity("100", Some(range("2", "50", "5"))), wanted, "0", false);
        assert_eq!(at(Some("1")), "2");
        assert_eq!(at(Some("3")), "7");
        assert_eq!(at(Some("7")), "7");
        assert_eq!(at(Some("2.1")), "7", "fractions count as one more");
        assert_eq!(at(Some("48")), "no", "52 is above the maximum");
        assert_eq!(at(None), "no", "100 is, too");
        let most = "9223372036854775807";
        let beyond =
            taken(capacity(most, Some(range("3", most, "5"))), Some("9223372036854775806"), "0", false);
        assert!(
            beyond.ends_with("rounding request 9223372036854775806 up to the next step passes MaxInt64"),
            "{beyond}"
        );
        let large = taken(capacity("1e30", Some(range("2", "1e30", "5"))), Some("1e20"), "0", false);
        assert!(large.ends_with("request 100e18 exceeds MaxInt64"), "{large}");
    }

    #[test]
    fn thousandths_need_the_gate() {
        let at = |has_fractions| {
            taken(capacity("10", Some(range("0.5", "10", "0.25"))), Some("0.6"), "0", has_fractions)
        };
        assert_eq!(at(true), "750m");
        assert_eq!(at(false), "1", "steps of one");
        let small = taken(capacity("10", Some(range("0.5", "10", "0.25"))), Some("600001u"), "0", true);
        assert!(small.ends_with("request 600001u is not a representable milli value"), "{small}");
    }

    #[test]
    fn valid_values_round_up_and_the_default_passes_as_it_is() {
        let policy = |default: &str| CapacityPolicy {
            default: Some(default.into()),
            valid_values: Box::new(["2".into(), "4".into()]),
            valid_range: None,
        };
        let at = |default, wanted| taken(capacity("8", Some(policy(default))), wanted, "0", false);
        assert_eq!(at("3", Some("1")), "2");
        assert_eq!(at("3", Some("5")), "no");
        assert_eq!(at("3", None), "3", "the default need not be a valid value");
        assert_eq!(at("2.0000000001", None), "no", "upstream compares pointers of decimal numbers");
    }

    #[test]
    fn invalid_ranges_refuse_and_do_not_panic() {
        assert_eq!(taken(capacity("8", Some(range("", "8", "0"))), Some("3"), "0", false), "no");
        assert_eq!(taken(capacity("8", Some(range("0", "8", "0"))), Some("3"), "0", true), "no");
        assert_eq!(
            taken(capacity("8", Some(range("-9223372036854775808", "8", "-1"))), Some("3"), "0", false),
            "3"
        );
    }
}
