//! `DefaultPreemptionArgs`.

use serde::Deserialize;
use serde_json::Value;
use supercargo_framework::registry::{ArgsError, decode_args};

const PERCENTAGE: &str = "minCandidateNodesPercentage";
const ABSOLUTE: &str = "minCandidateNodesAbsolute";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Given {
    min_candidate_nodes_percentage: Option<i32>,
    min_candidate_nodes_absolute: Option<i32>,
}

/// The number of candidates after which the search ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Args {
    percentage: usize,
    absolute: usize,
}

/// Reads the arguments.
pub(super) fn parse(args: &Value) -> Result<Args, ArgsError> {
    let given: Given = decode_args(args)?;
    let percentage = given.min_candidate_nodes_percentage.unwrap_or(10);
    let absolute = given.min_candidate_nodes_absolute.unwrap_or(100);
    if !(0..=100).contains(&percentage) {
        return Err(ArgsError::new(PERCENTAGE, format!("{percentage} must be from 0 to 100")));
    }
    if percentage == 0 && absolute == 0 {
        return Err(ArgsError::new(PERCENTAGE, format!("0 is not possible while {ABSOLUTE} is 0, too")));
    }
    let negative = |_| ArgsError::new(ABSOLUTE, format!("{absolute} must not be negative"));
    // The percentage is valid, so it is not negative.
    Ok(Args {
        percentage: percentage.unsigned_abs() as usize,
        absolute: absolute.try_into().map_err(negative)?,
    })
}

impl Args {
    /// The number of candidates to find among this many nodes.
    pub(super) fn candidates_wanted(&self, nodes: usize) -> usize {
        (nodes.saturating_mul(self.percentage) / 100).max(self.absolute).min(nodes)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::default_preemption::NAME;
    use crate::testing::args_error;

    #[test]
    fn default_candidates_are_a_tenth_but_at_least_a_hundred() {
        let args = parse(&Value::Null).unwrap();
        for (nodes, wanted) in [(0, 0), (40, 40), (100, 100), (500, 100), (5000, 500)] {
            assert_eq!(args.candidates_wanted(nodes), wanted, "{nodes}");
        }
        let few = parse(&json!({PERCENTAGE: 0, ABSOLUTE: 1})).unwrap();
        assert_eq!(few.candidates_wanted(5000), 1);
    }

    #[test]
    fn invalid_arguments_are_rejected_by_field() {
        let cases = [
            (json!({PERCENTAGE: 101}), "minCandidateNodesPercentage: 101 must be from 0 to 100"),
            (json!({PERCENTAGE: -1}), "minCandidateNodesPercentage: -1 must be from 0 to 100"),
            (json!({ABSOLUTE: -1}), "minCandidateNodesAbsolute: -1 must not be negative"),
            (
                json!({PERCENTAGE: 0, ABSOLUTE: 0}),
                "minCandidateNodesPercentage: 0 is not possible while minCandidateNodesAbsolute is 0, too",
            ),
        ];
        for (args, message) in cases {
            assert_eq!(args_error(NAME, args.clone()).as_deref(), Some(message), "{args}");
        }
        assert_eq!(args_error(NAME, json!({PERCENTAGE: 0})), None);
    }
}
