//! Drivers of this crate's plugins by name.

use serde_json::Value;
use supercargo_framework::Features;
use supercargo_framework::registry::Factory;
use supercargo_framework::testing::Driver;

fn factory(plugin: &str) -> Factory {
    crate::registry().get(plugin).expect("tests name plugins that exist")
}

/// The plugin with default arguments and features.
pub(crate) fn driver(plugin: &str) -> Driver {
    Driver::build(factory(plugin), &Value::Null, &Features::default())
}

/// The plugin with valid arguments.
pub(crate) fn driver_with_args(plugin: &str, args: Value) -> Driver {
    Driver::build(factory(plugin), &args, &Features::default())
}

/// The error that these arguments of a plugin cause, if any.
pub(crate) fn args_error(plugin: &str, args: Value) -> Option<String> {
    factory(plugin)(&args, &Features::default()).err().map(|error| error.to_string())
}

/// The plugin with these features.
pub(crate) fn driver_with_features(plugin: &str, features: &Features) -> Driver {
    Driver::build(factory(plugin), &Value::Null, features)
}
