//! The plugin's arguments.

use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use supercargo_framework::go_duration;
use supercargo_framework::registry::{ArgsError, decode_args};
use supercargo_framework::{Feature, Features};

/// The default of [`Args::filter_timeout`].
const DEFAULT_FILTER_TIMEOUT: Duration = Duration::from_secs(10);
/// The default of [`Args::binding_timeout`].
const DEFAULT_BINDING_TIMEOUT: Duration = Duration::from_mins(10);
/// The least [`Args::binding_timeout`].
const LEAST_BINDING_TIMEOUT: Duration = Duration::from_secs(1);

/// upstream's `DynamicResourcesArgs`, with defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Args {
    /// `filterTimeout`: the limit of the search for devices on a node, see `max_steps`. Zero, or
    /// `None` if the gate DRASchedulerFilterTimeout is off, sets none. The limit of the attempt
    /// applies in any case.
    pub filter_timeout: Option<Duration>,
    /// `bindingTimeout`: how long PreBind waits for the conditions of devices. `None` if a gate
    /// that it needs is off: nothing is waited for.
    pub binding_timeout: Option<Duration>,
}

impl Args {
    /// The maximum of steps of a search on a node: one in a microsecond of `filterTimeout`. Unlike
    /// time, steps are the same on every machine and in a replay.
    pub(super) fn max_steps(&self) -> u64 {
        let limit = self.filter_timeout.filter(|timeout| !timeout.is_zero());
        limit.map_or(u64::MAX, |timeout| u64::try_from(timeout.as_micros()).unwrap_or(u64::MAX))
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Written {
    filter_timeout: Option<String>,
    binding_timeout: Option<String>,
}

/// Decodes and validates the arguments, in upstream's words. An argument whose gate is off is an
/// error.
pub fn parse(args: &Value, features: &Features) -> Result<Args, ArgsError> {
    let written: Written = decode_args(args)?;
    let filter = Argument {
        field: "filterTimeout",
        is_enabled: features.enabled(Feature::DRASchedulerFilterTimeout),
        // The gate's name is as upstream writes it.
        disabled: "DRASchedulingFilterTimeout feature gate is disabled",
        default: DEFAULT_FILTER_TIMEOUT,
        least: Duration::ZERO,
        too_short: "must be zero or positive",
    };
    let binding = Argument {
        field: "bindingTimeout",
        is_enabled: features.enabled(Feature::DRADeviceBindingConditions)
            && features.enabled(Feature::DRAResourceClaimDeviceStatus),
        disabled: "DRADeviceBindingConditions or DRAResourceClaimDeviceStatus feature gate is disabled",
        default: DEFAULT_BINDING_TIMEOUT,
        least: LEAST_BINDING_TIMEOUT,
        too_short: "must be at least 1 second",
    };
    Ok(Args {
        filter_timeout: filter.parse(written.filter_timeout.as_deref())?,
        binding_timeout: binding.parse(written.binding_timeout.as_deref())?,
    })
}

/// What is valid for an argument.
struct Argument {
    field: &'static str,
    is_enabled: bool,
    disabled: &'static str,
    default: Duration,
    least: Duration,
    too_short: &'static str,
}

impl Argument {
    fn parse(&self, text: Option<&str>) -> Result<Option<Duration>, ArgsError> {
        let Some(text) = text else { return Ok(self.is_enabled.then_some(self.default)) };
        let error = |message: &str| Err(ArgsError::new(self.field, message));
        match go_duration::parse_signed(text) {
            None => error("must be a duration such as 10s or 1m30s"),
            Some(_) if !self.is_enabled => error(self.disabled),
            Some((length, is_negative)) if length < self.least || (is_negative && !length.is_zero()) => {
                error(self.too_short)
            }
            Some((length, _)) => Ok(Some(length)),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn without(feature: Feature) -> Features {
        Features::default().with(feature, false)
    }

    fn seconds(args: &Value, features: &Features) -> [Option<u64>; 2] {
        let args = parse(args, features).unwrap();
        [args.filter_timeout, args.binding_timeout].map(|timeout| timeout.map(|length| length.as_secs()))
    }

    #[test]
    fn defaults_depend_on_the_gates() {
        let all = Features::default;
        for (args, features, expected) in [
            (json!({}), all(), [Some(10), Some(600)]),
            (json!(null), all(), [Some(10), Some(600)]),
            (json!({"filterTimeout": null, "bindingTimeout": null}), all(), [Some(10), Some(600)]),
            (json!({"filterTimeout": "0s", "bindingTimeout": "1s"}), all(), [Some(0), Some(1)]),
            (json!({"filterTimeout": "-0", "bindingTimeout": "1m"}), all(), [Some(0), Some(60)]),
            (json!({}), without(Feature::DRASchedulerFilterTimeout), [None, Some(600)]),
            (json!({}), without(Feature::DRADeviceBindingConditions), [Some(10), None]),
            (json!({}), without(Feature::DRAResourceClaimDeviceStatus), [Some(10), None]),
        ] {
            assert_eq!(seconds(&args, &features), expected, "{args}");
        }
    }

    #[test]
    fn invalid_arguments_are_rejected_in_upstreams_words() {
        let all = Features::default;
        let disabled = "bindingTimeout: DRADeviceBindingConditions or DRAResourceClaimDeviceStatus feature gate is disabled";
        for (args, features, expected) in [
            (json!({"filterTimeout": "-1ns"}), all(), "filterTimeout: must be zero or positive"),
            (json!({"bindingTimeout": "999ms"}), all(), "bindingTimeout: must be at least 1 second"),
            (json!({"bindingTimeout": "-1h"}), all(), "bindingTimeout: must be at least 1 second"),
            (json!({"filterTimeout": "10"}), all(), "filterTimeout: must be a duration such as 10s or 1m30s"),
            (
                json!({"filterTimeout": "10s"}),
                without(Feature::DRASchedulerFilterTimeout),
                "filterTimeout: DRASchedulingFilterTimeout feature gate is disabled",
            ),
            (json!({"bindingTimeout": "10s"}), without(Feature::DRADeviceBindingConditions), disabled),
            (json!({"bindingTimeout": "10s"}), without(Feature::DRAResourceClaimDeviceStatus), disabled),
            (
                json!({"bindTimeout": "10s"}),
                all(),
                "bindTimeout: unknown field `bindTimeout`, expected `filterTimeout` or `bindingTimeout`",
            ),
        ] {
            assert_eq!(parse(&args, &features).unwrap_err().to_string(), expected, "{args}");
        }
    }
}
