//! The plugin's arguments.

use serde::Deserialize;
use serde_json::Value;
use supercargo_framework::labels::is_label_key;
use supercargo_framework::registry::{ArgsError, decode_args};
use supercargo_framework::shape::{Shape, ShapePoint};

use super::IgnoredResources;
use super::strategy::{Method, Strategy};
use crate::args::{ResourceSpec, resources_or_default};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Args {
    ignored_resources: Option<Vec<String>>,
    ignored_resource_groups: Option<Vec<String>>,
    scoring_strategy: Option<ScoringStrategy>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ScoringStrategy {
    r#type: Option<String>,
    resources: Option<Vec<ResourceSpec>>,
    requested_to_capacity_ratio: Option<RequestedToCapacityRatio>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RequestedToCapacityRatio {
    shape: Option<Vec<ShapePoint>>,
}

/// Decodes and checks the arguments.
pub(super) fn parse(args: &Value) -> Result<(IgnoredResources, Strategy), ArgsError> {
    let args: Args = decode_args(args)?;
    let names = args.ignored_resources.unwrap_or_default();
    let groups = args.ignored_resource_groups.unwrap_or_default();
    check_names(&names)?;
    check_groups(&groups)?;
    let ignored = IgnoredResources { names: names.into(), groups: groups.into() };
    // A configured strategy must set its type; only an absent strategy has a default.
    let strategy = args.scoring_strategy.unwrap_or_else(|| ScoringStrategy {
        r#type: Some("LeastAllocated".into()),
        resources: None,
        requested_to_capacity_ratio: None,
    });
    Ok((ignored, parse_strategy(strategy)?))
}

fn check_names(names: &[String]) -> Result<(), ArgsError> {
    match names.iter().position(|name| !is_label_key(name)) {
        Some(i) => Err(ArgsError::new(
            format!("ignoredResources[{i}]"),
            format!("{:?} must be a resource name such as example.com/gpu", names[i]),
        )),
        None => Ok(()),
    }
}

fn check_groups(groups: &[String]) -> Result<(), ArgsError> {
    match groups.iter().position(|group| group.contains('/') || !is_label_key(group)) {
        Some(i) => Err(ArgsError::new(
            format!("ignoredResourceGroups[{i}]"),
            format!(
                "{:?} must be what comes before the slash of a resource name, such as example.com",
                groups[i]
            ),
        )),
        None => Ok(()),
    }
}

/// The type is checked last: to find all errors, the configuration removes what is rejected and
/// asks again, and a strategy must have a type.
fn parse_strategy(strategy: ScoringStrategy) -> Result<Strategy, ArgsError> {
    let name = strategy.r#type.unwrap_or_default();
    let resources = resources_or_default(strategy.resources);
    check_weights(&resources)?;
    let has_shape = !matches!(&*name, "LeastAllocated" | "MostAllocated");
    let shape = match strategy.requested_to_capacity_ratio {
        Some(ratio) if has_shape => {
            let path = "scoringStrategy.requestedToCapacityRatio.shape";
            Some(Shape::parse(&ratio.shape.unwrap_or_default(), path)?)
        }
        Some(_) => {
            return Err(ArgsError::new(
                "scoringStrategy.requestedToCapacityRatio",
                "must only be set when the type is RequestedToCapacityRatio",
            ));
        }
        None => None,
    };
    let method = match (&*name, shape) {
        ("RequestedToCapacityRatio", Some(shape)) => Method::RequestedToCapacityRatio(shape),
        ("RequestedToCapacityRatio", None) => {
            return Err(ArgsError::new(
                "scoringStrategy.requestedToCapacityRatio",
                "must be set when the type is RequestedToCapacityRatio",
            ));
        }
        ("MostAllocated", _) => Method::MostAllocated,
        ("LeastAllocated", _) => Method::LeastAllocated,
        _ => {
            return Err(ArgsError::new(
                "scoringStrategy.type",
                format!("{name:?} must be LeastAllocated, MostAllocated or RequestedToCapacityRatio"),
            ));
        }
    };
    Ok(Strategy::new(method, &resources))
}

fn check_weights(resources: &[ResourceSpec]) -> Result<(), ArgsError> {
    let Some(i) = resources.iter().position(|spec| !(1..=100).contains(&spec.weight)) else {
        return Ok(());
    };
    let ResourceSpec { name, weight } = &resources[i];
    let of = if name.is_empty() { String::new() } else { format!(" of {name}") };
    Err(ArgsError::new(
        format!("scoringStrategy.resources[{i}].weight"),
        format!("{weight} is out of range: the weight{of} must be from 1 to 100"),
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::node_resources_fit::NAME;
    use crate::testing::args_error;

    #[test]
    fn valid_arguments_are_accepted() {
        let good = [
            json!({}),
            json!({"ignoredResources": ["example.com/a"], "ignoredResourceGroups": ["example.com"]}),
            json!({"scoringStrategy": null}),
            json!({"scoringStrategy": {"type": "LeastAllocated"}}),
            json!({"scoringStrategy": {"type": "MostAllocated", "resources": [{"name": "cpu", "weight": 100}]}}),
            json!({"scoringStrategy": {"type": "MostAllocated", "resources": [{"name": "cpu", "weight": 0}]}}),
            json!({"scoringStrategy": {"type": "RequestedToCapacityRatio", "requestedToCapacityRatio":
                {"shape": [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]}}}),
        ];
        for args in good {
            assert_eq!(args_error(NAME, args.clone()), None, "{args}");
        }
    }

    #[test]
    fn invalid_arguments_are_rejected_with_path_and_valid_values() {
        let ratio = |shape: Value| json!({"scoringStrategy": {"type": "RequestedToCapacityRatio", "requestedToCapacityRatio": {"shape": shape}}});
        let bad = [
            (
                json!({"ignoredResources": ["example.com/a", "a b"]}),
                "ignoredResources[1]: \"a b\" must be a resource name such as example.com/gpu",
            ),
            (
                json!({"ignoredResourceGroups": ["example.com/gpu"]}),
                "ignoredResourceGroups[0]: \"example.com/gpu\" must be what comes before the slash of a resource name, such as example.com",
            ),
            (
                json!({"scoringStrategy": {}}),
                "scoringStrategy.type: \"\" must be LeastAllocated, MostAllocated or RequestedToCapacityRatio",
            ),
            (
                json!({"scoringStrategy": {"type": "leastAllocated"}}),
                "scoringStrategy.type: \"leastAllocated\" must be LeastAllocated, MostAllocated or RequestedToCapacityRatio",
            ),
            (
                json!({"scoringStrategy": {"type": "MostAllocated", "resources": [{"name": "cpu"}, {"name": "memory", "weight": 101}]}}),
                "scoringStrategy.resources[1].weight: 101 is out of range: the weight of memory must be from 1 to 100",
            ),
            (
                json!({"scoringStrategy": {"type": "MostAllocated", "resources": [{"name": "cpu", "weight": -1}]}}),
                "scoringStrategy.resources[0].weight: -1 is out of range: the weight of cpu must be from 1 to 100",
            ),
            (
                json!({"scoringStrategy": {"type": "RequestedToCapacityRatio"}}),
                "scoringStrategy.requestedToCapacityRatio: must be set when the type is RequestedToCapacityRatio",
            ),
            (
                json!({"scoringStrategy": {"type": "MostAllocated", "requestedToCapacityRatio": {}}}),
                "scoringStrategy.requestedToCapacityRatio: must only be set when the type is RequestedToCapacityRatio",
            ),
            (
                ratio(json!([])),
                "scoringStrategy.requestedToCapacityRatio.shape: must have at least one point",
            ),
            (
                ratio(json!([{"utilization": 5, "score": 0}, {"utilization": 5, "score": 1}])),
                "scoringStrategy.requestedToCapacityRatio.shape[1].utilization: 5 must be greater than that of the point before: points go up strictly",
            ),
            (
                ratio(json!([{"utilization": 0, "score": 0}, {"utilization": 101, "score": 1}])),
                "scoringStrategy.requestedToCapacityRatio.shape[1].utilization: 101 is out of range: must be from 0 to 100",
            ),
            (
                ratio(json!([{"utilization": 0, "score": 11}])),
                "scoringStrategy.requestedToCapacityRatio.shape[0].score: 11 is out of range: must be from 0 to 10",
            ),
            (
                json!({"scoringStrategy": {"type": "Foo", "resources": [{"name": "", "weight": 1000}]}}),
                "scoringStrategy.resources[0].weight: 1000 is out of range: the weight must be from 1 to 100",
            ),
            (
                json!({"scoringStrategy": {"type": "MostAllocated", "resources": [{"name": "cpu", "wieght": 1}]}}),
                "scoringStrategy.resources[0].wieght: unknown field `wieght`, expected `name` or `weight`",
            ),
            (
                json!({"ignoredResources": "cpu"}),
                "ignoredResources: invalid type: string \"cpu\", expected a sequence",
            ),
        ];
        for (args, message) in bad {
            assert_eq!(args_error(NAME, args.clone()).as_deref(), Some(message), "{args}");
        }
    }
}
