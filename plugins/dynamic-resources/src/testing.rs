//! Drivers of the plugin.

use serde_json::Value;
use supercargo_framework::Features;
use supercargo_framework::testing::Driver;

use crate::from_args;

/// The plugin with default arguments and features.
pub(crate) fn driver() -> Driver {
    driver_with_features(&Features::default())
}

/// The plugin with valid arguments.
pub(crate) fn driver_with_args(args: Value) -> Driver {
    Driver::build(from_args, &args, &Features::default())
}

/// The plugin with these features.
pub(crate) fn driver_with_features(features: &Features) -> Driver {
    Driver::build(from_args, &Value::Null, features)
}
