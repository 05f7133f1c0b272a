//! Taints of nodes and tolerations of pods.

use std::cmp::Ordering;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::features::{Feature, Features};
use crate::indexed::{Indexed, Keyed};
use crate::steps;

/// The effect of a taint on pods that do not tolerate it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum TaintEffect {
    /// No new pod is placed.
    NoSchedule,
    /// Nodes without the taint are preferred.
    PreferNoSchedule,
    /// Pods are not scheduled on the node, and running pods are evicted.
    NoExecute,
    /// An unknown effect; it matches only itself.
    Unknown,
}

impl TaintEffect {
    /// The effect by its API name.
    pub fn from_api(name: &str) -> Self {
        match name {
            "NoSchedule" => Self::NoSchedule,
            "PreferNoSchedule" => Self::PreferNoSchedule,
            "NoExecute" => Self::NoExecute,
            _ => Self::Unknown,
        }
    }

    /// The name in the API; an unknown effect has none.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoSchedule => "NoSchedule",
            Self::PreferNoSchedule => "PreferNoSchedule",
            Self::NoExecute => "NoExecute",
            Self::Unknown => "",
        }
    }

    /// Whether pods that do not tolerate the taint are rejected.
    pub fn forbids(self) -> bool {
        matches!(self, Self::NoSchedule | Self::NoExecute)
    }
}

/// A taint of a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Taint {
    /// The key.
    pub key: Arc<str>,
    /// The value; may be empty.
    pub value: Arc<str>,
    /// The effect.
    pub effect: TaintEffect,
}

/// The operator of a toleration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum TolerationOperator {
    /// The value must be equal; the default.
    Equal,
    /// Any value.
    Exists,
    /// The taint's value is a smaller integer.
    Lt,
    /// The taint's value is a larger integer.
    Gt,
    /// An unknown or disabled operator: tolerates nothing.
    Unknown,
}

impl TolerationOperator {
    /// The operator by its API name. `Gt` and `Lt` require `TaintTolerationComparisonOperators`.
    pub fn from_api(name: &str, features: &Features) -> Self {
        let compares = features.enabled(Feature::TaintTolerationComparisonOperators);
        match name {
            "" | "Equal" => Self::Equal,
            "Exists" => Self::Exists,
            "Lt" if compares => Self::Lt,
            "Gt" if compares => Self::Gt,
            _ => Self::Unknown,
        }
    }
}

/// A toleration of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Toleration {
    /// The key; empty matches every key.
    pub key: Arc<str>,
    /// How values are compared.
    pub operator: TolerationOperator,
    /// The value.
    pub value: Arc<str>,
    /// The effect; `None` matches every effect.
    pub effect: Option<TaintEffect>,
}

impl Toleration {
    /// Whether the taint is tolerated.
    pub fn tolerates(&self, taint: &Taint) -> bool {
        steps::add(1);
        self.effect.is_none_or(|effect| effect == taint.effect)
            && (self.key.is_empty() || self.key == taint.key)
            && match self.operator {
                TolerationOperator::Exists => true,
                TolerationOperator::Equal => self.value == taint.value,
                TolerationOperator::Lt => self.compare(taint) == Some(Ordering::Less),
                TolerationOperator::Gt => self.compare(taint) == Some(Ordering::Greater),
                TolerationOperator::Unknown => false,
            }
    }

    /// Orders tolerations of `Lt` and `Gt`: those of more values first, those of none last.
    fn rank(&self) -> (bool, i64) {
        let bound = match self.operator {
            // Unlike a minus sign, `!` reverses the order of all numbers.
            TolerationOperator::Lt => integer(&self.value).map(|bound| !bound),
            TolerationOperator::Gt => integer(&self.value),
            _ => Some(0),
        };
        (bound.is_none(), bound.unwrap_or_default())
    }

    /// The order of the taint's value and the toleration's; `None` if either is not an integer.
    fn compare(&self, taint: &Taint) -> Option<Ordering> {
        Some(integer(&taint.value)?.cmp(&integer(&self.value)?))
    }
}

/// The integer of a text in canonical form: no leading zero, no plus sign, no negative zero.
fn integer(text: &str) -> Option<i64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let is_canonical = text == "0" || digits.starts_with(|first: char| matches!(first, '1'..='9'));
    if is_canonical { text.parse().ok() } else { None }
}

/// Tolerations are found by key, operator, the value if it must be equal, and effect. The first one
/// found of `Lt` and `Gt` tolerates whatever another one of them does.
impl Keyed for Toleration {
    type Key<'a> = ((&'a str, TolerationOperator, &'a str, Option<TaintEffect>), (bool, i64));

    fn key(&self) -> Self::Key<'_> {
        let value = if self.operator == TolerationOperator::Equal { &*self.value } else { "" };
        ((&self.key, self.operator, value, self.effect), self.rank())
    }
}

/// Whether any of the tolerations tolerates the taint.
pub fn tolerated(tolerations: &Indexed<Toleration>, taint: &Taint) -> bool {
    if tolerations.is_scanned() {
        return tolerations.iter().any(|toleration| toleration.tolerates(taint));
    }
    // An empty key matches every key.
    ["", &*taint.key].into_iter().any(|key| {
        use TolerationOperator::{Equal, Exists, Gt, Lt};
        [(Exists, ""), (Equal, &*taint.value), (Lt, ""), (Gt, "")].into_iter().any(|(operator, value)| {
            // No effect matches every effect.
            [None, Some(taint.effect)].into_iter().any(|effect| {
                let mut found =
                    tolerations.find_by(move |(known, _)| known.cmp(&(key, operator, value, effect)));
                found.next().is_some_and(|toleration| toleration.tolerates(taint))
            })
        })
    })
}

/// The untolerated taints with effect NoSchedule or NoExecute.
pub fn untolerated<'a>(
    taints: &'a [Taint],
    tolerations: &Indexed<Toleration>,
) -> impl Iterator<Item = &'a Taint> {
    taints.iter().filter(|taint| taint.effect.forbids() && !tolerated(tolerations, taint))
}

/// The first of them.
pub fn first_untolerated<'a>(taints: &'a [Taint], tolerations: &Indexed<Toleration>) -> Option<&'a Taint> {
    untolerated(taints, tolerations).next()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn toleration(
        key: &str,
        operator: TolerationOperator,
        value: &str,
        effect: Option<TaintEffect>,
    ) -> Toleration {
        Toleration { key: key.into(), operator, value: value.into(), effect }
    }

    #[test]
    fn a_toleration_matches_by_effect_key_and_value() {
        use TaintEffect::{NoExecute, NoSchedule};
        use TolerationOperator::{Equal, Exists, Unknown};
        let taint = Taint { key: "k".into(), value: "v".into(), effect: NoSchedule };
        let cases = [
            ("equal key, value and effect", toleration("k", Equal, "v", Some(NoSchedule)), true),
            ("another value", toleration("k", Equal, "w", Some(NoSchedule)), false),
            ("another effect", toleration("k", Equal, "v", Some(NoExecute)), false),
            ("no effect means every effect", toleration("k", Equal, "v", None), true),
            ("Exists ignores the value", toleration("k", Exists, "", None), true),
            ("no key with Exists means everything", toleration("", Exists, "", None), true),
            ("another key", toleration("x", Exists, "", None), false),
            ("an unknown operator tolerates nothing", toleration("k", Unknown, "v", None), false),
        ];
        for (name, toleration, expected) in cases {
            assert_eq!(toleration.tolerates(&taint), expected, "{name}");
        }
    }

    proptest! {
        #[test]
        fn many_tolerations_tolerate_what_one_of_them_does(
            tolerations in proptest::collection::vec(any_toleration(), 0..30),
            (key, value) in ("[ab]", "-?[0-3]"),
        ) {
            let taint = Taint { key: key.into(), value: value.into(), effect: TaintEffect::NoSchedule };
            let expected = tolerations.iter().any(|toleration| toleration.tolerates(&taint));
            prop_assert_eq!(tolerated(&tolerations.into(), &taint), expected);
        }
    }

    fn any_toleration() -> impl Strategy<Value = Toleration> {
        use TolerationOperator::{Equal, Exists, Gt, Lt, Unknown};
        let operator = proptest::sample::select(vec![Equal, Equal, Exists, Lt, Gt, Unknown]);
        let effects = [None, Some(TaintEffect::NoSchedule), Some(TaintEffect::NoExecute)];
        let effect = proptest::sample::select(effects.to_vec());
        // Mostly tolerations of nothing here.
        ("[c-z]|[ab]?", operator, "-?[0-9]|x|-9223372036854775808", effect)
            .prop_map(|(key, operator, value, effect)| toleration(&key, operator, &value, effect))
    }

    #[test]
    fn gt_and_lt_compare_canonical_integers() {
        use TolerationOperator::{Gt, Lt};
        let cases = [
            ("5", Lt, "10", true),
            ("10", Lt, "10", false),
            ("11", Lt, "10", false),
            ("11", Gt, "10", true),
            ("10", Gt, "10", false),
            ("9", Gt, "10", false),
            ("-5", Lt, "0", true),
            ("0", Gt, "-1", true),
            ("-0", Lt, "1", false),
            ("05", Lt, "10", false),
            ("+5", Lt, "10", false),
            ("5", Lt, "010", false),
            ("", Lt, "10", false),
            ("-", Lt, "10", false),
            ("5x", Lt, "10", false),
            ("9223372036854775807", Gt, "1", true),
            ("9223372036854775808", Gt, "1", false),
        ];
        for (of_taint, operator, of_toleration, expected) in cases {
            let taint = Taint { key: "k".into(), value: of_taint.into(), effect: TaintEffect::NoSchedule };
            let toleration = toleration("k", operator, of_toleration, None);
            assert_eq!(toleration.tolerates(&taint), expected, "{of_taint} {operator:?} {of_toleration}");
        }
    }

    #[test]
    fn gt_and_lt_require_their_feature_gate() {
        use TolerationOperator::{Equal, Exists, Gt, Lt, Unknown};
        let names = ["", "Equal", "Exists", "Lt", "Gt", "In"];
        let parsed = |features: &Features| names.map(|name| TolerationOperator::from_api(name, features));
        let on = Features::default().with(Feature::TaintTolerationComparisonOperators, true);
        assert_eq!(parsed(&on), [Equal, Equal, Exists, Lt, Gt, Unknown]);
        assert_eq!(parsed(&Features::default()), [Equal, Equal, Exists, Unknown, Unknown, Unknown]);
    }
}
