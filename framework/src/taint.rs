//! Taints of nodes and tolerations of pods.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// What a taint does to pods that do not tolerate it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum TaintEffect {
    /// No new pod is placed.
    NoSchedule,
    /// A node without the taint is preferred.
    PreferNoSchedule,
    /// No new pod is placed, and running ones are evicted.
    NoExecute,
    /// An effect this scheduler does not know; it matches nothing but itself.
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

    /// Whether the effect keeps a pod off the node.
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

/// How a toleration compares values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum TolerationOperator {
    /// The value must be equal; the default.
    Equal,
    /// Any value.
    Exists,
    /// An operator this scheduler does not evaluate (upstream's alpha `Lt` and `Gt`, off by default): tolerates nothing.
    Unknown,
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
        self.effect.is_none_or(|effect| effect == taint.effect)
            && (self.key.is_empty() || self.key == taint.key)
            && match self.operator {
                TolerationOperator::Exists => true,
                TolerationOperator::Equal => self.value == taint.value,
                TolerationOperator::Unknown => false,
            }
    }
}

/// Whether any of the tolerations tolerates the taint.
pub fn tolerated(tolerations: &[Toleration], taint: &Taint) -> bool {
    tolerations.iter().any(|toleration| toleration.tolerates(taint))
}

/// The first taint with effect NoSchedule or NoExecute that is not tolerated.
pub fn first_untolerated<'a>(taints: &'a [Taint], tolerations: &[Toleration]) -> Option<&'a Taint> {
    taints.iter().find(|taint| taint.effect.forbids() && !tolerated(tolerations, taint))
}

#[cfg(test)]
mod tests {
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
}
