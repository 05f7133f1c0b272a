//! The plugin's arguments.

use serde::Deserialize;
use serde_json::Value;
use supercargo_framework::registry::{ArgsError, decode_args};

use super::InterPodAffinity;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Args {
    hard_pod_affinity_weight: Option<i32>,
    ignore_preferred_terms_of_existing_pods: Option<bool>,
}

/// Decodes and validates the arguments.
pub(super) fn parse(args: &Value) -> Result<InterPodAffinity, ArgsError> {
    let args: Args = decode_args(args)?;
    let weight = args.hard_pod_affinity_weight.unwrap_or(1);
    if !(0..=100).contains(&weight) {
        let message = format!("Invalid value: {weight}: not in valid range [0, 100]");
        return Err(ArgsError::new("hardPodAffinityWeight", message));
    }
    Ok(InterPodAffinity {
        hard_pod_affinity_weight: weight,
        ignores_preferences_of_others: args.ignore_preferred_terms_of_existing_pods.unwrap_or(false),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::inter_pod_affinity::NAME;
    use crate::testing::args_error;

    #[test]
    fn argument_errors_match_upstream() {
        let cases = [
            (json!({}), None),
            (json!({"hardPodAffinityWeight": 0, "ignorePreferredTermsOfExistingPods": true}), None),
            (json!({"hardPodAffinityWeight": 100}), None),
            (
                json!({"hardPodAffinityWeight": 101}),
                Some("hardPodAffinityWeight: Invalid value: 101: not in valid range [0, 100]"),
            ),
            (
                json!({"hardPodAffinityWeight": -1}),
                Some("hardPodAffinityWeight: Invalid value: -1: not in valid range [0, 100]"),
            ),
            (
                json!({"hardWeight": 1}),
                Some(
                    "hardWeight: unknown field `hardWeight`, expected `hardPodAffinityWeight` or `ignorePreferredTermsOfExistingPods`",
                ),
            ),
        ];
        for (args, expected) in cases {
            assert_eq!(args_error(NAME, args.clone()).as_deref(), expected, "{args}");
        }
    }

    #[test]
    fn hard_pod_affinity_weight_defaults_to_one() {
        let weight = |args| parse(&args).map(|plugin| plugin.hard_pod_affinity_weight);
        assert_eq!((weight(json!({})), weight(json!({"hardPodAffinityWeight": 7}))), (Ok(1), Ok(7)));
    }
}
