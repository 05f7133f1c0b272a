//! The plugin's arguments.

use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use supercargo_framework::registry::{ArgsError, decode_args};
use supercargo_framework::{Feature, Features};

use supercargo_framework::shape::{Shape, ShapePoint};

/// The default timeout of PreBind, in seconds.
const DEFAULT_BIND_TIMEOUT: i64 = 600;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Args {
    bind_timeout_seconds: Option<i64>,
    shape: Option<Vec<ShapePoint>>,
}

/// Decodes and validates the arguments: the bind timeout, and the shape of the score if scoring is
/// enabled.
pub(super) fn parse(args: &Value, features: &Features) -> Result<(Duration, Option<Shape>), ArgsError> {
    let args: Args = decode_args(args)?;
    let seconds = args.bind_timeout_seconds.unwrap_or(DEFAULT_BIND_TIMEOUT);
    let seconds = u64::try_from(seconds).map_err(|_| {
        ArgsError::new("bindTimeoutSeconds", format!("{seconds} is out of range: must not be negative"))
    })?;
    let scores = features.enabled(Feature::StorageCapacityScoring);
    let shape = match args.shape {
        Some(_) if !scores => {
            let message = "must only be set when the feature gate StorageCapacityScoring is on";
            return Err(ArgsError::new("shape", message));
        }
        Some(points) if !points.is_empty() => Some(Shape::parse(&points, "shape")?),
        _ => scores.then(Shape::least_used),
    };
    Ok((Duration::from_secs(seconds), shape))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn without_scoring() -> Features {
        Features::default().with(Feature::StorageCapacityScoring, false)
    }

    #[test]
    fn valid_arguments_are_accepted() {
        let scoring = Features::default;
        let point = || json!([{"utilization": 0, "score": 5}]);
        let cases = [
            (json!({}), without_scoring(), 600, false),
            (json!({"bindTimeoutSeconds": 0, "shape": null}), without_scoring(), 0, false),
            (json!({"bindTimeoutSeconds": 30}), scoring(), 30, true),
            (json!({"shape": []}), scoring(), 600, true),
            (json!({"shape": point()}), scoring(), 600, true),
        ];
        for (args, features, seconds, scores) in cases {
            let (timeout, shape) = parse(&args, &features).unwrap();
            assert_eq!((timeout.as_secs(), shape.is_some()), (seconds, scores), "{args}");
        }
    }

    #[test]
    fn invalid_arguments_are_rejected_with_path_and_valid_values() {
        let (off, scoring) = (without_scoring, Features::default);
        let bad = [
            (
                json!({"bindTimeoutSeconds": -1}),
                off(),
                "bindTimeoutSeconds: -1 is out of range: must not be negative",
            ),
            (
                json!({"shape": []}),
                off(),
                "shape: must only be set when the feature gate StorageCapacityScoring is on",
            ),
            (
                json!({"shape": [{"utilization": 5, "score": 1}, {"utilization": 5, "score": 2}]}),
                scoring(),
                "shape[1].utilization: 5 must be greater than that of the point before: points go up strictly",
            ),
            (
                json!({"shape": [{"utilization": 5, "score": 11}]}),
                scoring(),
                "shape[0].score: 11 is out of range: must be from 0 to 10",
            ),
            (
                json!({"timeout": 1}),
                off(),
                "timeout: unknown field `timeout`, expected `bindTimeoutSeconds` or `shape`",
            ),
        ];
        for (args, features, message) in bad {
            let error = parse(&args, &features).err().map(|error| error.to_string());
            assert_eq!(error.as_deref(), Some(message), "{args}");
        }
    }
}
